// Search on the mock package, whose vectors are bags of words.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { launch, longTasks, open, serve, textFile } from "./harness.mjs";

let server, browser, page;
before(async () => {
    server = await serve();
    browser = await launch();
});
after(async () => {
    await browser?.close();
    await server?.stop();
});
beforeEach(async () => {
    page = await open(browser, `${server.url}#/search`);
});
afterEach(async () => {
    assert.deepEqual(page.problems, []);
    await page.context().close();
});

const button = (name) => page.getByRole("button", { name, exact: true });
const results = () => page.locator(".result");
const embedded = () => page.waitForFunction(() => document.querySelector(".documents li") && document.querySelector(".embedding").hidden);

async function paste(text) {
    await page.fill("#paste", text);
    await button("Add").click();
}

const PARAGRAPHS = [
    "Bees dance to tell each other where the flowers are, and how far it is to fly there.",
    "Sourdough needs flour and water and a lot of patience, and it has to be fed every day.",
    "Glaciers flow under their own weight, some metres in a year, and leave moraines behind.",
];

test("a pasted text is found by what it says", async () => {
    await paste(PARAGRAPHS.join("\n\n"));
    await embedded();
    assert.match(await page.locator(".documents").textContent(), /Pasted text 1.*3 paragraphs/);
    await page.fill("#query", "bees and flowers");
    await results().first().waitFor();
    assert.equal(await results().count(), 3);
    assert.match(await results().first().textContent(), /Bees dance/);
    const marks = await results().first().locator("mark").allTextContents();
    assert.deepEqual(marks, ["Bees", "flowers"]);
    const scores = (await results().locator(".number").allTextContents()).map((text) => Number(text.replace("Score ", "")));
    assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
    assert.match(await page.locator(".search .status").textContent(), /^3 nearest of 3 paragraphs · \d+ ms$/);
    await page.fill("#query", "");
    await page.waitForFunction(() => !document.querySelector(".result"));
});

test("queries are embedded when typing rests, not for every letter", async () => {
    await paste(PARAGRAPHS.join("\n\n"));
    await embedded();
    await page.evaluate(() => (mock.calls.length = 0));
    await page.locator("#query").pressSequentially("glaciers flow", { delay: 20 });
    await results().first().waitFor();
    const asked = await page.evaluate(() => mock.calls.filter(({ method, texts }) => method === "embed" && texts === 1).length);
    assert.ok(asked <= 3, `${asked}`);
    assert.match(await results().first().textContent(), /Glaciers/);
});

test("text files are added and removed", async () => {
    const file = textFile("notes.txt", PARAGRAPHS.slice(0, 2).join("\n\n"));
    const chosen = page.waitForEvent("filechooser");
    await button("Files…").click();
    await (await chosen).setFiles([file, textFile("more.md", PARAGRAPHS[2])]);
    await page.locator(".documents li").nth(1).waitFor();
    await embedded();
    await page.fill("#query", "sourdough needs flour and water");
    await results().first().waitFor();
    assert.match(await results().first().textContent(), /notes\.txt · paragraph 2/);
    await button("Remove notes.txt").click();
    await page.waitForFunction(() => document.querySelectorAll(".result").length === 1);
    assert.match(await results().first().textContent(), /Glaciers/);
    await button("Remove all").click();
    await page.waitForFunction(() => !document.querySelector(".result, .documents li"));
});

test("a file without text is an error that names it", async () => {
    const chosen = page.waitForEvent("filechooser");
    await button("Files…").click();
    await (await chosen).setFiles(textFile("empty.txt", "\n \n"));
    await page.getByRole("alert").getByText("empty.txt: there is no text in it").waitFor();
});

test("an index can be exported and imported", async () => {
    await button("Sample").click();
    await embedded();
    const download = page.waitForEvent("download");
    await button("Export").click();
    const path = await (await download).path();
    const { documents, model } = JSON.parse(readFileSync(path, "utf8"));
    assert.equal(documents.length, 1);
    assert.equal(model, "minilm");
    await page.reload();
    await page.locator(".search").waitFor();
    await page.evaluate(() => (mock.calls.length = 0));
    let chosen = page.waitForEvent("filechooser");
    await button("Import").click();
    await (await chosen).setFiles(textFile("index.json", readFileSync(path, "utf8")));
    await embedded();
    assert.equal(await page.evaluate(() => mock.calls.filter(({ method }) => method === "embed").length), 0, "vectors come with it");
    await page.fill("#query", "how do bees tell others where flowers are");
    await results().first().waitFor();
    assert.match(await results().first().textContent(), /Bees tell each other/);
    await results().first().locator(".best").waitFor();
    assert.match(await results().first().locator(".best").textContent(), /by dancing/);
    chosen = page.waitForEvent("filechooser");
    await button("Import").click();
    await (await chosen).setFiles(textFile("other.json", "{}"));
    await page.getByRole("alert").getByText(/no index that was exported here/).waitFor();
});

test("thousands of paragraphs: progress, paging, and the page stays smooth", async () => {
    const words = "river stone lamp winter harbour letter garden engine bread mirror cloud bridge".split(" ");
    const many = Array.from({ length: 4000 }, (_, i) => `Paragraph ${i} about ${words[i % 12]} and ${words[(i * 7) % 11]}, with enough words to stand for itself.`);
    const file = textFile("many.txt", many.join("\n\n"));
    await page.evaluate(() => {
        window.told = [];
        const words = document.querySelector(".embedding .words");
        new MutationObserver(() => told.push(words.textContent)).observe(words, { childList: true, characterData: true, subtree: true });
    });
    const long = await longTasks(browser, page, async () => {
        const chosen = page.waitForEvent("filechooser");
        await button("Files…").click();
        await (await chosen).setFiles(file);
        await embedded();
        await page.fill("#query", "harbour and bread");
        await results().first().waitFor();
        await button("Show more").click();
        await results().nth(39).waitFor();
    });
    assert.equal(await results().count(), 40);
    assert.match(await page.locator(".search .status").textContent(), /nearest of 4,000 paragraphs/);
    assert.deepEqual(long, []);
    const told = await page.evaluate(() => window.told);
    assert.ok(told.filter((text) => /^[\d,]+ of 4,000 paragraphs · [\d,.]+\/s, \d+ s left$/.test(text)).length > 5, told.join("\n"));
    assert.equal(told.at(-1), "4,000 of 4,000 paragraphs");
});

test("embedding can be paused and goes on", async () => {
    await page.evaluate(() => Object.assign(mock, { pause: 700, loadSteps: 1 }));
    await paste(Array.from({ length: 60 }, (_, i) => `This is paragraph number ${i}, and it is long enough to stand for itself.`).join("\n\n"));
    await page.getByText(/of 60 paragraphs ·/).waitFor();
    await button("Pause").click();
    await button("Go on").waitFor();
    const done = await page.locator(".embedding .words").textContent();
    assert.match(done, /^\d+ of 60/);
    await page.evaluate(() => (mock.pause = 1));
    await button("Go on").click();
    await embedded();
});
