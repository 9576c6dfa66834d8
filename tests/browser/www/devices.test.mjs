// The devices view on the mock package.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { launch, open, serve } from "./harness.mjs";

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
    page = await open(browser, `${server.url}#/devices`);
});
afterEach(async () => {
    assert.deepEqual(page.problems, []);
    await page.context().close();
});

const button = (name) => page.getByRole("button", { name, exact: true });

test("adapter, limits, features and the self-check are shown", async () => {
    await page.locator(".summary", { hasText: "WebGPU is here, on Mock GPU." }).waitFor();
    const adapter = page.locator("section[aria-labelledby=adapter]");
    assert.match(await adapter.textContent(), /Largest buffer4 GiB.*Workgroup memory32 KiB/);
    await adapter.getByText("3 features").click();
    assert.ok(await adapter.getByText("shader-f16").isVisible());
    await page.getByText("All kernels compute right.").waitFor();
});

test("without WebGPU it says what to do in this browser first", async () => {
    await page.evaluate(() => {
        mock.webgpu = false;
        location.hash = "#/chat";
    });
    await page.locator(".chat").waitFor();
    await page.evaluate(() => (location.hash = "#/devices"));
    await page.getByText("There is no WebGPU here.").waitFor();
    assert.match(await page.locator(".card details[open]").textContent(), /^Chrome, Edge.*chrome:\/\/flags/);
    assert.equal(await page.locator(".card details").count(), 3);
    await button("Check again").click();
    await page.getByText("Models run on the CPU; there are no kernels to check.").waitFor();
});

test("the storage is listed and can be emptied", async () => {
    const storage = page.locator("section[aria-labelledby=storage]");
    await storage.getByText("190 MB of 6.0 GB that the browser grants this site, 188 MB of it models").waitFor();
    assert.match(await storage.locator("li").textContent(), /lfm2-350m.*90\.0 MB, not complete/);
    await button("Delete lfm2-350m").click();
    await storage.getByText("No models are kept.").waitFor();
});

test("the benchmark measures both models; they can be unloaded", async () => {
    await button("Run").click();
    await page.locator(".figures").nth(1).waitFor();
    assert.match(await page.locator(".figures").nth(0).textContent(), /One text.*ms.*Many texts.*texts\/s/);
    assert.match(await page.locator(".figures").nth(1).textContent(), /Reading.*tokens\/s.*Writing250 tokens\/s/);
    await page.getByText(/120 MB on the device, 30\.0 MB of wasm memory/).first().waitFor();
    await button("Unload SmolLM2-135M-Instruct").click();
    await button("Unload all-MiniLM-L6-v2").click();
    await page.getByText("None is loaded.").waitFor();
});

test("another device: models are loaded anew on it", async () => {
    await button("Run").click();
    await page.locator(".figures").nth(1).waitFor();
    await page.selectOption("#device", "cpu");
    await page.getByText("None is loaded.").waitFor();
    await page.evaluate(() => (location.hash = "#/chat"));
    await button("Load").click();
    await button("Unload").waitFor();
    assert.equal(await page.evaluate(() => mock.calls.filter(({ method }) => method === "load").at(-1).device), "cpu");
});
