// The embedding cases, on any engine.

import { figure, median, repeat, time } from "./measure.js";
import { nameOf, numbers } from "./query.js";
import { attempt } from "./report.js";
import { texts } from "./texts.js";

/**
 * @typedef {object} Embedder
 * @property {(texts: string[]) => Promise<ArrayLike<number>[]>} embed unit vectors
 * @property {(texts: string[]) => Promise<ArrayLike<number>[]>} tokenize ids, special tokens included
 */

/**
 * @param {import("./report.js").Result} result
 * @param {import("./query.js").Query} query
 * @param {(again: boolean) => Promise<Embedder>} load from the network, or again from the cache
 */
export async function embedding(result, query, load) {
    const { figures, checks, details } = result;
    const name = nameOf(query.embed);
    let model;
    const loading = await time(async () => (model = await load(false)));
    figures.push(figure(`${name} load`, "ms", [loading]));
    const make = (count, tokens) => texts(async (text) => (await model.tokenize([text]))[0], count, tokens);
    const [checked] = await make(1, 14);
    details.firstVectorMs = await time(async () => (checks.vector = Array.from((await model.embed([checked]))[0])));

    for (const [count, tokens] of numbers(query.cases, "embed")) {
        const bench = `${name} ${count}x${tokens}`;
        await attempt(result, bench, async () => {
            const batch = await make(count, tokens);
            const calls = await repeat(query, () => time(() => model.embed(batch)));
            if (count === 1) return void figures.push(figure(bench, "ms", calls));
            const rate = (ms) => (count * tokens * 1000) / ms;
            figures.push(figure(bench, "tokens/s", calls.map(rate)));
            const tokenizing = median(
                await repeat({ ...query, budget: query.budget / 4 }, () => time(() => model.tokenize(batch))),
            );
            // Where tokenizing alone is posted text by text, this can be more than it takes inside a call.
            const rest = calls.map((ms) => rate(Math.max(ms - tokenizing, 0.01)));
            figures.push(figure(`${bench}, tokenizing subtracted`, "tokens/s", rest));
            details[`${bench} tokenizing ms`] = tokenizing;
        });
    }
    if (query.cases.includes("warm")) {
        // Ours by a new worker; transformers.js keeps its module, which is compiled already.
        const bench = `${name} load and first vector, cached`;
        await attempt(result, bench, async () => {
            const ms = await time(async () => (await load(true)).embed([checked]));
            figures.push(figure(bench, "ms", [ms]));
        });
    }
}
