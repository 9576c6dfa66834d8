// The site on the real package (web/dist) with tiny models: once through everything, then without a network.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { DIST, launch, longTasks, serve, watch } from "./harness.mjs";

// A software adapter compiles a kernel for seconds.
const PATIENCE = 120_000;
let server, browser, context, page;

before(async () => {
    assert.ok(existsSync(join(DIST, "index.js")), "the package is not built: run web/build");
    server = await serve(DIST);
    browser = await launch();
    context = await browser.newContext();
    context.setDefaultTimeout(PATIENCE);
    // "auto" takes the CPU here; the chat is to be seen on WebGPU.
    await context.addInitScript(() => {
        if (!localStorage.getItem("inferencelayer")) localStorage.setItem("inferencelayer", JSON.stringify({ device: "webgpu", temperature: 0, maxTokens: 12 }));
    });
    page = await context.newPage();
    watch(page, new URL(server.url).origin);
    await page.goto(server.url);
    await page.locator("#where[data-state=kept]").waitFor();
});
after(async () => {
    await browser?.close();
    await server?.stop();
});

const button = (name) => page.getByRole("button", { name, exact: true });

/** Waits until an answer is complete; an error that the page shows is one of the test. */
async function answered() {
    await page.waitForFunction(() => document.querySelector(".problem") || (document.querySelector(".message.assistant .stats")?.textContent.includes("first after") && !document.querySelector(".busy")));
    assert.deepEqual(await page.locator(".problem").allTextContents(), []);
}
const modelBytes = () => server.requests.filter((path) => /models\/.*(gguf|safetensors)/.test(path));

test("the chat answers, and the page stays smooth", async () => {
    const long = await longTasks(browser, page, async () => {
        await page.fill("#message", "Where is the lake?");
        await page.keyboard.press("Enter");
        await answered();
    });
    assert.match(await page.locator(".message .stats").last().textContent(), /tokens? · first after/);
    assert.match(await page.locator(".foot .words").textContent(), /^\d+ of [\d,]+ tokens of context$/);
    assert.deepEqual(long, []);
    assert.equal(modelBytes().length, 1);
});

test("regenerating at temperature 0 gives the same answer", async () => {
    const before = await page.locator(".message.assistant .body").textContent();
    await button("Regenerate").click();
    await answered();
    assert.equal(await page.locator(".message.assistant .body").textContent(), before);
});

test("texts are embedded and found", async () => {
    await page.goto(`${server.url}#/search`);
    await button("Sample").click();
    await page.waitForFunction(() => document.querySelector(".documents li") && document.querySelector(".embedding").hidden);
    // The tiny model means nothing by its vectors, but a text is always nearest to itself.
    const text = "Paper can be recycled five to seven times. Each time its fibres become shorter, until they no longer hold together; so some fresh fibre is always added.";
    await page.fill("#query", text);
    await page.locator(".result").first().waitFor();
    const first = page.locator(".result").first();
    assert.match(await first.textContent(), /^Score 1\.00Paper can be recycled/);
});

test("the device's self-check and the cache are shown", async () => {
    await page.goto(`${server.url}#/devices`);
    await page.locator(".verdict").waitFor();
    assert.match(await page.locator(".verdict").textContent(), /kernels/);
    const storage = page.locator("section[aria-labelledby=storage]");
    await storage.getByText("tiny.gguf").waitFor();
    assert.equal(await storage.locator(".rows li").count(), 2);
    await page.getByText(/on the device, .* of wasm memory/).first().waitFor();
});

test("without a network, after a reload, everything goes on from what is kept", async () => {
    assert.deepEqual(page.problems, []);
    await page.close();
    const { url } = server;
    await server.stop();
    page = await context.newPage();
    watch(page, new URL(url).origin);
    await page.goto(`${url}#/chat`);
    await page.getByRole("button", { name: /Choose another/ }).click();
    await page.locator("dialog[open] .place[data-state=here]").waitFor();
    await page.keyboard.press("Escape");
    await page.fill("#message", "Where is the lake?");
    await page.keyboard.press("Enter");
    await answered();
    await page.goto(`${url}#/search`);
    await button("Sample").click();
    await page.waitForFunction(() => document.querySelector(".documents li") && document.querySelector(".embedding").hidden);
    await page.fill("#query", "paper");
    await page.locator(".result").first().waitFor();
    await page.goto(`${url}#/devices`);
    await button("Delete all").click();
    await page.getByText("No models are kept.").waitFor();
    // The browser looks for a newer service worker, and the worker for the manifest.
    assert.deepEqual(page.problems.filter((text) => !/ERR_CONNECTION_REFUSED|ERR_FAILED/.test(text)), []);
});
