// The generation cases, on any engine.

import { figure, repeat, time } from "./measure.js";
import { nameOf, numbers } from "./query.js";
import { attempt } from "./report.js";
import { promptIds } from "./texts.js";

/**
 * @typedef {object} Answer
 * @property {number} first milliseconds from the call to the first token
 * @property {number} total milliseconds from the call to its end
 * @property {number} count tokens
 * @property {number[]} [ids]
 * @property {string} text
 *
 * @typedef {object} Generator
 * @property {number} vocabulary
 * @property {(ids: number[], tokens: number) => Promise<Answer>} generate the most likely tokens, whatever they are
 */

/**
 * @param {import("./report.js").Result} result
 * @param {import("./query.js").Query} query
 * @param {(again: boolean) => Promise<Generator>} load from the network, or again from the cache
 */
export async function generation(result, query, load) {
    const { figures, checks, details } = result;
    const name = nameOf(query.generate);
    let model;
    const loading = await time(async () => (model = await load(false)));
    figures.push(figure(`${name} load`, "ms", [loading]));
    // No two prompts begin alike: what they share need not be computed again.
    let salt = 1;
    const prompt = (length) => promptIds(length, model.vocabulary, salt++);
    details.firstTokenMs = (await model.generate(prompt(16), 1)).total;

    for (const [length] of numbers(query.cases, "prefill")) {
        const bench = `${name} prompt of ${length}`;
        await attempt(result, bench, async () => {
            const runs = await repeat(query, () => model.generate(prompt(length), 1));
            const rates = runs.map(({ total }) => (length * 1000) / total);
            figures.push(figure(bench, "tokens/s", rates));
        });
    }
    for (const [tokens, after] of numbers(query.cases, "decode")) {
        const bench = `${name} ${tokens} tokens after ${after}`;
        await attempt(result, bench, async () => {
            const runs = await repeat(query, () => model.generate(prompt(after), tokens));
            const short = runs.find(({ count }) => count !== tokens);
            if (short) throw new Error(`${short.count} tokens came`);
            const rates = runs.map(({ first, total }) => ((tokens - 1) * 1000) / (total - first));
            figures.push(figure(bench, "tokens/s", rates));
        });
    }
    for (const [tokens] of numbers(query.cases, "greedy")) {
        await attempt(result, `${name} greedy`, async () => {
            const ids = query.prompt ?? promptIds(16, model.vocabulary);
            const answer = await model.generate(ids, tokens);
            checks.greedy = { prompt: ids, ids: answer.ids, text: answer.text };
        });
    }
    if (query.cases.includes("warm")) {
        const bench = `${name} load and first token, cached`;
        await attempt(result, bench, async () => {
            const ms = await time(async () => {
                model = await load(true);
                await model.generate(prompt(16), 1);
            });
            figures.push(figure(bench, "ms", [ms]));
        });
    }
}
