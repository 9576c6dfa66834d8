// From the page to whoever serves it: progress to /log, the result to /done.

import { readQuery } from "./query.js";

/** A task is long from 50 ms on: the page does not answer meanwhile. */
const longTasks = [];
const observer = new PerformanceObserver((list) => longTasks.push(...list.getEntries()));
observer.observe({ type: "longtask" });

/** Shows a line and sends it. */
export function log(line) {
    document.querySelector("#log").append(`${line}\n`);
    return fetch("/log", { method: "POST", body: line }).catch(() => {});
}

/**
 * Runs a page's bench and posts what it gave: `work` fills the result, and each case that fails is named in it.
 * @param {(result: Result, query: import("./query.js").Query) => Promise<void>} work
 *
 * @typedef {object} Result
 * @property {{name: string, version: string, mode: string} | null} engine
 * @property {object} device what it ran on
 * @property {object[]} figures
 * @property {Record<string, unknown>} checks what must be the same for all engines
 * @property {Record<string, unknown>} details
 * @property {string[]} failures
 */
export async function bench(work) {
    const result = { engine: null, device: {}, figures: [], checks: {}, details: {}, failures: [] };
    try {
        await work(result, readQuery(location.search));
    } catch (error) {
        result.failures.push(String(error?.stack ?? error));
    }
    // Entries come after the task that they tell of.
    await new Promise((resolve) => setTimeout(resolve, 200));
    longTasks.push(...observer.takeRecords());
    const longest = Math.max(0, ...longTasks.map(({ duration }) => duration));
    const tasks = longTasks.map(({ startTime, duration }) => [Math.round(startTime), duration]);
    result.longTasks = { count: longTasks.length, longest, tasks };
    result.browser = navigator.userAgent.match(/Chrom\w*\/([\d.]+)/)?.[1] ?? navigator.userAgent;
    await log(`done, ${result.failures.length} failures`);
    await fetch("/done", { method: "POST", body: JSON.stringify(result) });
}

/**
 * Runs one case; a failure of it does not end the others.
 * @param {Result} result
 * @param {string} name
 * @param {() => Promise<void>} work
 */
export async function attempt(result, name, work) {
    const known = result.figures.length;
    try {
        await work();
        for (const { bench, figure, best, unit, runs } of result.figures.slice(known))
            await log(
                `${bench}: ${figure.toPrecision(4)} ${unit}, best ${best.toPrecision(4)}, ${runs.length} runs`,
            );
    } catch (error) {
        result.failures.push(`${name}: ${error?.message ?? error}`);
        await log(`${name} failed: ${error?.message ?? error}`);
    }
}
