// What the site's tests share: its own server with a package and models, a browser, and pages that are watched.

import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { Handler } from "../../../www/server/http.mjs";
import { Models } from "../../../www/server/models.mjs";
import { Site } from "../../../www/server/site.mjs";
import { FLAGS, TOOLS, WEBGPU } from "../chromium.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
export const ROOT = join(HERE, "../../..");
export const FIXTURES = join(ROOT, "tests/fixtures");
export const MOCK = join(HERE, "mock");
export const DIST = join(ROOT, "web/dist");
const tools = createRequire(join(TOOLS, "package.json"));
const { chromium } = tools("playwright-core");
export const AXE = tools.resolve("axe-core/axe.min.js");

/** A folder that is deleted when the tests end. */
export function scratch(name) {
    const folder = mkdtempSync(join(tmpdir(), `inferencelayer-${name}-`));
    process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
    return folder;
}

/** A model folder with the two defaults' names and small files. */
export function modelFolder() {
    const folder = scratch("models");
    mkdirSync(join(folder, "smollm2-135m"));
    cpSync(join(FIXTURES, "gguf_llama/model.gguf"), join(folder, "smollm2-135m/tiny.gguf"));
    cpSync(join(FIXTURES, "bert"), join(folder, "minilm"), { recursive: true });
    return folder;
}

/** The site with a package, at an address of its own. */
export async function serve(packed = MOCK, folder = modelFolder()) {
    const handler = new Handler(await Site.open(packed), new Models(folder));
    const requests = [];
    const answer = handler.answer.bind(handler);
    handler.answer = (request, response) => {
        requests.push(request.url);
        return answer(request, response);
    };
    const server = await handler.listen(0, "127.0.0.1");
    return {
        // "localhost" and 127.0.0.1 are secure contexts.
        url: `http://127.0.0.1:${server.address().port}/`,
        requests,
        handler,
        async stop() {
            server.closeAllConnections();
            await new Promise((resolve) => server.close(resolve));
        },
    };
}

export function launch() {
    return chromium.launch({ executablePath: process.env.INFERENCELAYER_CHROMIUM ?? "/usr/bin/chromium", args: [...FLAGS, WEBGPU] });
}

/**
 * Opens a view in a context of its own and watches it: messages on the console, requests to others, long tasks.
 * @param {any} browser
 * @param {string} url
 * @param {any} [options] for the context; `workers: false` keeps the service worker away
 */
export async function open(browser, url, { workers = false, ...options } = {}) {
    const context = await browser.newContext({ serviceWorkers: workers ? "allow" : "block", ...options });
    // Busy machines stand still for a while now and then.
    context.setDefaultTimeout(120_000);
    const page = await context.newPage();
    watch(page, new URL(url).origin);
    await page.goto(url);
    await page.locator("main h1").waitFor({ state: "attached" });
    return page;
}

/** Collects what should not happen. */
export function watch(page, origin) {
    page.problems = [];
    page.on("console", (message) => {
        const own = message.text() === "Service Worker registration blocked by Playwright";
        if (["error", "warning"].includes(message.type()) && !own) page.problems.push(message.text());
    });
    page.on("pageerror", (error) => page.problems.push(String(error)));
    page.on("request", (request) => {
        const to = request.url();
        if (/^https?:/.test(to) && !to.startsWith(origin)) page.problems.push(`request to ${to}`);
    });
}

/** A text file for file inputs. */
export function textFile(name, text) {
    const path = join(scratch("file"), name);
    writeFileSync(path, text);
    return path;
}

/** Violations that axe-core finds, without the minor ones. */
export async function axe(page) {
    // Not as a script element: the page's policy would refuse it.
    const { readFileSync } = await import("node:fs");
    await page.evaluate(readFileSync(AXE, "utf8"));
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    return violations
        .filter(({ impact }) => impact === "serious" || impact === "critical" || impact === "moderate")
        .map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}

/**
 * Tasks of page threads that took more than 50 ms of processor time while `work` ran: unlike the time that passed,
 * it does not grow on a busy machine.
 * @param {any} browser
 * @param {any} page
 * @param {() => Promise<void>} work
 * @returns {Promise<number[]>} milliseconds
 */
export async function longTasks(browser, page, work) {
    await browser.startTracing(page, { categories: ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"] });
    let trace;
    try {
        await work();
    } finally {
        trace = await browser.stopTracing();
    }
    const { traceEvents } = JSON.parse(trace.toString());
    const threads = traceEvents.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain");
    // Not the browser's own pages.
    const origin = new URL(page.url()).origin;
    const ours = new Set(traceEvents.filter(({ args }) => args?.data?.url?.startsWith(origin)).map(({ pid, tid }) => `${pid} ${tid}`));
    const mains = new Set(threads.map(({ pid, tid }) => `${pid} ${tid}`).filter((thread) => ours.has(thread)));
    const tasks = traceEvents.filter(({ name, pid, tid, tdur }) => name === "RunTask" && tdur !== undefined && mains.has(`${pid} ${tid}`));
    if (tasks.length < 10) throw new Error(`the trace has only ${tasks.length} tasks: it cannot say that there were no long ones`);
    return tasks.map(({ tdur }) => tdur / 1000).filter((ms) => ms > 50);
}
