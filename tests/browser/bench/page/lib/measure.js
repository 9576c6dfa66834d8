// Repeated runs of one thing, and the figures made of them.

/** @param {number[]} values */
export function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * Runs `work` until the budget is spent, after a warm-up that counts for nothing and takes at most a fourth of it.
 * @template T
 * @param {{budget: number, least: number, most: number}} limits
 * @param {(run: number) => Promise<T>} work
 * @returns {Promise<T[]>} what each run gave
 */
export async function repeat({ budget, least, most }, work) {
    let run = 0;
    const warm = performance.now() + budget / 4;
    do await work(run++);
    while (performance.now() < warm && run < 10);
    const end = performance.now() + budget;
    const results = [];
    while (results.length < least || (performance.now() < end && results.length < most))
        results.push(await work(run++));
    return results;
}

/**
 * Milliseconds that `work` takes.
 * @param {() => Promise<unknown>} work
 */
export async function time(work) {
    const start = performance.now();
    await work();
    return performance.now() - start;
}

/**
 * A figure of a case: its runs, in the unit that is shown.
 * @param {string} bench
 * @param {"ms" | "tokens/s"} unit
 * @param {number[]} runs
 */
export function figure(bench, unit, runs) {
    const better = unit === "ms" ? "lower" : "higher";
    const best = unit === "ms" ? Math.min(...runs) : Math.max(...runs);
    return { bench, unit, better, figure: median(runs), best, runs };
}
