// The site as a whole: offline, by keyboard alone, for screen readers, in both themes, without long tasks.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { axe, launch, longTasks, open, serve, watch } from "./harness.mjs";

let server, browser;
before(async () => {
    server = await serve();
    browser = await launch();
});
after(async () => {
    await browser?.close();
    await server?.stop();
});

const VIEWS = ["chat", "search", "devices"];

test("views have addresses, titles, and the way back", async () => {
    const page = await open(browser, server.url);
    assert.equal(await page.title(), "Chat · inferencelayer");
    await page.getByRole("link", { name: "Search", exact: true }).click();
    await page.waitForFunction(() => document.title === "Search · inferencelayer");
    assert.match(page.url(), /#\/search$/);
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Search");
    assert.equal(await page.locator("nav [aria-current=page]").textContent(), "Search");
    await page.goBack();
    await page.locator(".chat").waitFor();
    await page.goto(`${server.url}#/devices`);
    await page.locator(".devices").waitFor();
    await page.goto(`${server.url}#/nothing`);
    await page.locator(".chat").waitFor();
    assert.deepEqual(page.problems, []);
    await page.context().close();
});

test("after the first load the site works without a network", async () => {
    const page = await open(browser, server.url, { workers: true });
    await page.locator("#where[data-state=kept]").waitFor();
    const context = page.context();
    await page.close();
    server.requests.length = 0;
    await server.stop();
    const offline = await context.newPage();
    watch(offline, new URL(server.url).origin);
    for (const view of VIEWS) {
        await offline.goto(`${server.url}#/${view}`);
        await offline.reload();
        await offline.locator(`.${view}`).waitFor();
    }
    await offline.goto(`${server.url}#/search`);
    await offline.getByRole("button", { name: "Sample" }).click();
    await offline.waitForFunction(() => document.querySelector(".documents li") && document.querySelector(".embedding").hidden);
    await offline.fill("#query", "bees");
    await offline.locator(".result").first().waitFor();
    // The browser itself looks for a new service worker, in vain, and says so.
    assert.deepEqual(offline.problems.filter((text) => !/sw\.js|ERR_CONNECTION_REFUSED|manifest\.json/.test(text)), []);
    await context.close();
    server = await serve();
});

test("a new version is offered, and taken when asked for", async () => {
    const page = await open(browser, server.url, { workers: true });
    await page.locator("#where[data-state=kept]").waitFor();
    const precache = server.handler.site.precache.bind(server.handler.site);
    server.handler.site.precache = async () => Buffer.from((await precache()).toString().replace(/"version": "\w+"/, '"version": "0123456789ab"'));
    await page.evaluate(async () => (await navigator.serviceWorker.getRegistration()).update());
    await page.getByText("There is a new version of this site.").waitFor();
    const loaded = page.waitForEvent("load");
    await page.getByRole("button", { name: "Use it" }).click();
    await loaded;
    await page.locator(".chat").waitFor();
    assert.deepEqual(await page.evaluate(() => caches.keys()), ["inferencelayer-site-0123456789ab"]);
    server.handler.site.precache = precache;
    await page.context().close();
});

for (const colorScheme of ["light", "dark"]) {
    for (const [device, viewport] of [
        ["desk", { width: 1280, height: 820 }],
        ["phone", { width: 360, height: 740 }],
    ]) {
        test(`no accessibility violations: ${colorScheme}, ${device}`, async () => {
            const page = await open(browser, `${server.url}#/chat`, { colorScheme, viewport });
            const check = async (where) => {
                // Colours fade over a moment.
                await page.waitForTimeout(200);
                assert.deepEqual(await axe(page), [], where);
                const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
                assert.equal(wide, 0, `${where}: nothing lies outside`);
            };
            await check("chat, empty");
            await page.getByRole("button", { name: /Choose another/ }).click();
            await page.locator("dialog[open] button.model").first().waitFor();
            await check("picker");
            await page.keyboard.press("Escape");
            await page.evaluate(() => (mock.failLoad = "QuotaExceeded"));
            await page.getByRole("button", { name: "Load", exact: true }).click();
            await page.getByRole("alert").waitFor();
            await check("error");
            await page.evaluate(() => Object.assign(mock, { pause: 30, loadSteps: 20 }));
            await page.fill("#message", "Hello");
            await page.keyboard.press("Enter");
            await page.locator(".loading progress[value]").waitFor();
            await check("loading");
            await page.evaluate(() => Object.assign(mock, { pause: 2 }));
            await page.locator(".message.assistant .stats", { hasText: "250" }).waitFor();
            await check("conversation");
            await page.goto(`${server.url}#/search`);
            await page.locator(".search").waitFor();
            await check("search, empty");
            await page.getByRole("button", { name: "Sample" }).click();
            await page.fill("#query", "bees and flowers");
            await page.locator(".result .best").first().waitFor();
            await check("search");
            await page.goto(`${server.url}#/devices`);
            await page.locator(".verdict").waitFor();
            await check("devices");
            await page.getByRole("button", { name: "Run" }).click();
            await page.locator(".figures").nth(1).waitFor();
            await check("benchmark");
            assert.deepEqual(page.problems, []);
            await page.context().close();
        });
    }
}

test("everything can be done by keyboard", async () => {
    const page = await open(browser, `${server.url}#/chat`);
    const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
    const focused = () => page.evaluate(() => (document.activeElement.innerText || document.activeElement.id || document.activeElement.getAttribute("aria-label") || "").trim());
    const outlined = () => page.evaluate(() => {
        const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
        // The message's outline is that of the box around it.
        // Behind the last one the focus is on the browser's own parts.
        return ["message", ""].includes(document.activeElement === document.body ? "" : document.activeElement.id || "-") || (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2);
    });
    /** Presses Tab until the focus is on something. */
    const reach = async (pattern) => {
        for (let i = 0; i < 60; i++) {
            await press("Tab");
            assert.ok(await outlined(), `the focus is seen on ${await focused()}`);
            if (pattern.test(await focused())) return;
        }
        assert.fail(`Tab does not reach ${pattern}`);
    };
    await press("Tab");
    assert.equal(await focused(), "Skip to content");
    await press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    await reach(/Choose another/);
    await press("Enter");
    await page.locator("dialog[open] button.model").first().waitFor();
    await reach(/LFM2-350M/);
    await press("Enter");
    await page.getByRole("button", { name: "Unload", exact: true }).waitFor();
    await reach(/^message$/);
    await page.keyboard.type("Hello");
    await press("Shift+Enter");
    await page.keyboard.type("there");
    await press("Enter");
    await page.locator(".message.assistant .stats", { hasText: "250" }).waitFor();
    assert.equal(await page.locator(".message.user .body").innerText(), "Hello\nthere");
    await reach(/^Regenerate$/);
    await press("Enter");
    await page.waitForFunction(() => mock.calls.filter(({ method }) => method === "chat").length === 2);
    await page.waitForFunction(() => !document.querySelector(".busy"));
    await reach(/^temperature$/);
    await press("ArrowRight");
    assert.equal(await page.inputValue("#temperature"), "0.4");
    await page.evaluate(() => document.activeElement.blur());
    await reach(/^Search$/);
    await press("Enter");
    await page.locator(".search").waitFor();
    await reach(/^paste$/);
    await page.keyboard.type("Bees dance to tell each other where flowers are, and how far it is to fly.");
    await reach(/^Add$/);
    await press("Enter");
    await page.waitForFunction(() => document.querySelector(".documents li") && document.querySelector(".embedding").hidden);
    await reach(/^query$/);
    await page.keyboard.type("bees");
    await page.locator(".result").waitFor();
    assert.deepEqual(page.problems, []);
    await page.context().close();
});

test("the theme is the system's until one is chosen, and stays", async () => {
    const page = await open(browser, server.url, { colorScheme: "dark" });
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await background();
    const toggle = page.getByRole("button", { name: /^Theme/ });
    await toggle.click();
    const light = await background();
    assert.notEqual(light, dark);
    assert.match(await toggle.getAttribute("aria-label"), /Theme: light/);
    await page.reload();
    assert.equal(await background(), light);
    await toggle.click();
    assert.equal(await background(), dark);
    await page.context().close();
});

test("animations rest where less motion is wanted", async () => {
    const page = await open(browser, server.url, { reducedMotion: "reduce" });
    await page.evaluate(() => Object.assign(mock, { pause: 50 }));
    await page.getByRole("button", { name: "Load", exact: true }).click();
    await page.locator(".loading").waitFor();
    assert.equal(await page.evaluate(() => document.getAnimations().length), 0);
    await page.context().close();
});

test("no long tasks: first load, a fast answer, a long one", async () => {
    const context = await browser.newContext({ serviceWorkers: "block" });
    const page = await context.newPage();
    const long = await longTasks(browser, page, async () => {
        await page.goto(`${server.url}#/chat`);
        await page.locator(".chat").waitFor();
        await page.evaluate(() => {
            mock.answer = "Some **words** of an answer, with `code`.\n\n- an item\n- another\n\n```js\nlet x = 1;\n```\n\n".repeat(40);
            mock.pause = 0;
        });
        await page.fill("#message", "Hello");
        await page.keyboard.press("Enter");
        await page.locator(".message.assistant .stats", { hasText: "250" }).waitFor();
        for (const view of ["search", "devices", "chat"]) {
            await page.evaluate((view) => (location.hash = `#/${view}`), view);
            await page.locator(`.${view}`).waitFor();
        }
    });
    assert.deepEqual(long, []);
    await context.close();
});
