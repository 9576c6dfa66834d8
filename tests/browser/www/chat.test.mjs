// The chat on the mock package.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { FIXTURES, launch, open, serve } from "./harness.mjs";

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
    page = await open(browser, `${server.url}#/chat`);
});
afterEach(async () => {
    assert.deepEqual(page.problems, []);
    await page.context().close();
});

const calls = (method) => page.evaluate((method) => mock.calls.filter((call) => call.method === method), method);
const idle = () => page.waitForFunction(() => !document.querySelector(".message.busy") && document.querySelector(".message.assistant .stats")?.textContent);
const last = () => page.locator(".message.assistant").last();
const button = (name) => page.getByRole("button", { name, exact: true });

async function say(text) {
    await page.fill("#message", text);
    await page.keyboard.press("Enter");
}

test("a message loads the default model, and its answer is shown as Markdown that is no markup", async () => {
    await say("Hello");
    await idle();
    const [{ name, sha256 }] = await calls("load");
    assert.equal(name, "tiny.gguf");
    assert.match(sha256["tiny.gguf"], /^[0-9a-f]{64}$/);
    const [{ messages, options }] = await calls("chat");
    assert.deepEqual(messages.map(({ role }) => role), ["system", "user"]);
    assert.equal(messages[1].content, "Hello");
    assert.deepEqual(options, { maxTokens: 512, temperature: 0.3, topP: 0.9 });
    const body = last().locator(".body");
    assert.equal(await body.locator("strong").textContent(), "an answer");
    assert.deepEqual(await body.locator("ul li").allTextContents(), ["first", "second, slanted"]);
    assert.match(await body.locator("pre").textContent(), /println!\("<b>not bold<\/b>"\)/);
    assert.equal(await body.locator("img, b").count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    const link = body.locator("a");
    assert.deepEqual([await link.getAttribute("href"), await link.getAttribute("rel")], ["https://example.com/", "noopener noreferrer nofollow"]);
    assert.match(await last().locator(".stats").textContent(), /^250 tokens\/s · \d+ tokens · first after 12 ms$/);
    assert.match(await page.locator(".foot .words").textContent(), /^\d+ of 2,048 tokens of context$/);
});

for (const [how, stop] of [
    ["the button", () => button("Stop").click()],
    ["Escape", () => page.keyboard.press("Escape")],
]) {
    test(`${how} stops an answer, and what came stays`, async () => {
        await page.evaluate(() => {
            mock.pause = 30;
            mock.loadSteps = 1;
        });
        await say("Hello");
        await last().locator(".body strong").waitFor();
        await stop();
        await idle();
        const text = await last().locator(".body").textContent();
        assert.ok(text.startsWith("Here is an answer") && !text.includes("link"), text);
        assert.match(await last().locator(".stats").textContent(), /stopped$/);
        assert.equal(await page.evaluate(() => document.activeElement.id), "message");
        // It is part of the conversation.
        await page.evaluate(() => (mock.pause = 1));
        await say("Go on");
        await idle();
        const messages = (await calls("chat"))[1].messages;
        assert.deepEqual(messages.map(({ role }) => role), ["system", "user", "assistant", "user"]);
    });
}

test("regenerate asks for the last answer again, clear forgets all", async () => {
    await say("Hello");
    await idle();
    await page.evaluate(() => (mock.answer = "Another answer."));
    await button("Regenerate").click();
    await last().getByText("Another answer.").waitFor();
    await idle();
    assert.equal(await page.locator(".message.assistant").count(), 1);
    assert.deepEqual((await calls("chat"))[1].messages.map(({ role }) => role), ["system", "user"]);
    await button("Clear").click();
    assert.equal(await page.locator(".message").count(), 0);
    assert.ok(await page.locator(".greeting").isVisible());
    assert.ok(await button("Regenerate").isDisabled());
});

test("settings reach the model and stay", async () => {
    await page.fill("#system", "Be a pirate.");
    await page.fill("#seed", "7");
    await page.fill("#maxTokens", "5");
    await page.locator("#temperature").fill("1.2");
    await page.locator("#topP").fill("0.5");
    await page.reload();
    assert.equal(await page.inputValue("#system"), "Be a pirate.");
    await say("Hello");
    await idle();
    const [{ messages, options }] = await calls("chat");
    assert.equal(messages[0].content, "Be a pirate.");
    assert.deepEqual(options, { maxTokens: 5, temperature: 1.2, topP: 0.5, seed: 7 });
    assert.match(await last().locator(".stats").textContent(), /cut at the token limit$/);
    // What is out of range is not taken.
    await page.fill("#maxTokens", "0");
    await page.locator("#maxTokens").blur();
    assert.equal(await page.inputValue("#maxTokens"), "5");
});

test("the picker tells sizes, licences and what is here already", async () => {
    await page.getByRole("button", { name: /Choose another/ }).click();
    const items = page.locator("dialog[open] button.model");
    await items.nth(2).waitFor();
    const texts = await items.allTextContents();
    assert.match(texts[0], /SmolLM2-135M-Instruct.*Apache-2\.0.*on this server/);
    assert.match(texts[1], /LFM2-350M.*219 MB.*LFM Open License v1\.0.*90\.0 MB on this device/);
    assert.match(texts[2], /LFM2-1\.2B.*696 MB.*downloads from the hub/);
    await items.nth(1).click();
    await page.getByText("on Mock GPU").waitFor();
    assert.equal((await calls("load"))[0].name, "lfm2-350m");
    await page.reload();
    await page.locator(".model-name b", { hasText: "LFM2-350M" }).waitFor();
    // What was loaded is marked.
    await button("Load").click();
    await button("Unload").click();
    assert.equal((await calls("unload")).length, 1);
    await page.getByRole("button", { name: /Choose another/ }).click();
    await page.locator("dialog[open] .place[data-state=here]").waitFor();
});

test("progress is shown and can be cancelled", async () => {
    await page.evaluate(() => {
        mock.pause = 40;
        mock.loadSteps = 40;
    });
    await button("Load").click();
    await page.getByText(/\d+ MB of 98\.0 MB · 25\.0 MB\/s, \d s left|MB of 98\.0 MB/).waitFor();
    assert.equal(await page.locator(".steps [aria-current]").textContent(), "Download");
    await button("Cancel").click();
    await button("Load").waitFor();
    assert.equal(await page.locator(".problem").count(), 0);
});

test("a GGUF file can be chosen or dropped", async () => {
    await page.getByRole("button", { name: /Choose another/ }).click();
    const chosen = page.waitForEvent("filechooser");
    await button("GGUF file…").click();
    await (await chosen).setFiles(join(FIXTURES, "gguf_llama/model.gguf"));
    await button("Unload").waitFor();
    assert.deepEqual((await calls("load")).map(({ name, files }) => [name, files]), [["model.gguf", 1]]);
    assert.match(await page.locator(".model-name").textContent(), /model\.gguf/);
    await page.evaluate(() => {
        const transfer = new DataTransfer();
        transfer.items.add(new File(["GGUF"], "dropped.gguf"));
        const target = document.querySelector(".chat");
        target.dispatchEvent(new DragEvent("dragenter", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        window.overlay = getComputedStyle(document.querySelector(".chat .drop")).display;
        target.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
    });
    assert.equal(await page.evaluate(() => window.overlay), "grid");
    await page.locator(".model-name b", { hasText: "dropped.gguf" }).waitFor();
    await button("Unload").waitFor();
    assert.equal((await calls("load")).at(-1).name, "dropped.gguf");
    // The model before it was unloaded.
    assert.deepEqual((await calls("unload")).map(({ name }) => name), ["model.gguf"]);
});

for (const [code, title, action] of [
    ["NoWebGpu", "No usable GPU", "Use the CPU"],
    ["OutOfMemory", "Not enough memory", "Choose another model"],
    ["DownloadFailed", "The download failed", "Try again"],
    ["QuotaExceeded", "Not enough storage", "Load without keeping"],
    ["UnsupportedModel", "This model cannot be used here", "Choose another model"],
    ["DeviceLost", "The GPU was taken away", "Try again"],
]) {
    test(`loading fails with ${code}: says what to do`, async () => {
        await page.evaluate((code) => (mock.failLoad = code), code);
        await button("Load").click();
        const box = page.getByRole("alert");
        await box.getByText(title).waitFor();
        assert.match(await box.textContent(), new RegExp(`${code} a made-up ${code}`));
        await box.getByRole("button", { name: action }).click();
        if (action === "Choose another model") {
            await page.locator("dialog[open]").waitFor();
            return;
        }
        await button("Unload").waitFor();
        assert.equal(await page.getByRole("alert").count(), 0);
        const again = (await calls("load"))[1];
        assert.equal(again.device, code === "NoWebGpu" ? "cpu" : "auto");
        assert.equal(again.cache, code !== "QuotaExceeded");
    });
}

test("a model without a chat template goes on with a transcript, and says so", async () => {
    await button("Load").click();
    await button("Unload").waitFor();
    await page.evaluate(() => {
        mock.answer = "An answer.";
        mock.chat = false;
    });
    await say("Hello");
    await idle();
    const [{ prompt, stop }] = await calls("generate");
    assert.match(prompt, /^Instructions: .*\nUser: Hello\nAssistant:$/);
    assert.deepEqual(stop, ["\nUser:"]);
    assert.match(await last().locator(".stats").textContent(), /no chat template: continues a transcript$/);
});

test("an answer that fails can be asked for again", async () => {
    await page.evaluate(() => (mock.failChat = "DeviceLost"));
    await say("Hello");
    await page.getByRole("alert").getByText("The GPU was taken away").waitFor();
    assert.equal(await page.locator(".message.assistant").count(), 0);
    await button("Try again").click();
    await idle();
    assert.equal(await page.getByRole("alert").count(), 0);
    assert.equal(await page.locator(".message").count(), 2);
});

test("screen readers hear sentences, not each token", async () => {
    await page.evaluate(() => {
        window.heard = [];
        new MutationObserver((changes) => {
            for (const { addedNodes } of changes) for (const node of addedNodes) heard.push(node.textContent);
        }).observe(document.getElementById("live"), { childList: true });
        mock.answer = "One sentence here. ".repeat(150);
        mock.pause = 20;
    });
    const started = Date.now();
    await say("Hello");
    await idle();
    const most = (Date.now() - started) / 4000 + 1;
    const heard = await page.evaluate(() => window.heard);
    const told = heard.filter((text) => text.includes("sentence"));
    assert.ok(told.length >= 2 && told.length <= most, `${told.length}`);
    assert.match(told.at(-1), /End of the answer\.$/);
    for (const text of told.slice(0, -1)) assert.match(text, /\.$/);
    assert.equal(told.join(" ").match(/One sentence here/g).length, 150);
});

test("the log follows the answer, unless the reader scrolled away", async () => {
    await page.evaluate(() => {
        mock.answer = "A line of text.\n\n".repeat(120);
        mock.pause = 3;
    });
    await say("Hello");
    await page.waitForFunction(() => document.querySelector(".log").scrollTop > 300);
    await page.evaluate(() => (document.querySelector(".log").scrollTop = 10));
    await page.waitForTimeout(300);
    assert.ok((await page.evaluate(() => document.querySelector(".log").scrollTop)) < 30);
    await idle();
});
