// Pages in a Chromium, one at a time, each with storage of its own.

import { createRequire } from "node:module";
import { join } from "node:path";

import { FLAGS, TOOLS, WEBGPU } from "../chromium.mjs";

/** Adapters that need no GPU. */
const BINARIES = {
    swiftshader: "/usr/bin/chromium",
    cpu: "/usr/bin/chromium",
    lavapipe: join(TOOLS, "lavapipe-chromium/chromium/chromium"),
};

/**
 * @param {string} adapter a name above, or the path of a Chromium
 * @param {string[]} flags more of Chromium's
 */
export async function launch(adapter, flags) {
    const { chromium } = createRequire(join(TOOLS, "package.json"))("playwright-core");
    return chromium.launch({ executablePath: BINARIES[adapter] ?? adapter, args: [...FLAGS, WEBGPU, ...flags] });
}

/**
 * Opens a page and waits until `done` is resolved.
 * @template T
 * @param {import("playwright-core").Browser} browser
 * @param {string} address
 * @param {Promise<T>} done
 * @param {number} timeout seconds
 * @param {(line: string) => void} say takes what goes wrong in the page
 */
export async function visit(browser, address, done, timeout, say) {
    const context = await browser.newContext();
    let timer;
    try {
        const page = await context.newPage();
        page.on("pageerror", (error) => say(`page: ${error}`));
        page.on("console", (message) => message.type() === "error" && say(`console: ${message.text()}`));
        const late = new Promise((_, reject) => {
            timer = setTimeout(() => reject(new Error(`nothing in ${timeout} s`)), timeout * 1000);
            page.on("crash", () => reject(new Error("the page crashed")));
        });
        await page.goto(address);
        return await Promise.race([done, late]);
    } finally {
        clearTimeout(timer);
        await context.close();
    }
}
