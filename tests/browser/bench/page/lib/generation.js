// The generation cases, on any engine.

import { figure, repeat, time } from "./measure.js";
import { nameOf, numbers } from "./query.js";
import { attempt } from "./report.js";

/** What all engines are to continue, in words, so that their answers can be compared. */
const BEGINNING = "The capital of France is";

/**
 * @typedef {object} Answer
 * @property {number} prompt tokens of the prompt
 * @property {number} first milliseconds from the call to the first token
 * @property {number} total milliseconds from the call to its end
 * @property {number} count tokens
 * @property {number[]} [ids]
 * @property {string} text
 *
 * @typedef {object} Generator the answers are of the most likely tokens, whatever they are
 * @property {(length: number, salt: number, tokens: number) => Promise<Answer>} run after a prompt of about so many
 *     tokens; of another salt it begins differently: what two prompts share need not be computed again
 * @property {(text: string, tokens: number) => Promise<Answer>} say after a text
 * @property {(ids: number[] | undefined, tokens: number) => Promise<Answer>} [greedy] after these ids
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
    let salt = 1;
    const run = (length, tokens) => model.run(length, salt++, tokens);
    details.firstTokenMs = (await run(16, 1)).total;

    for (const [length] of numbers(query.cases, "prefill")) {
        const bench = `${name} prompt of ${length}`;
        await attempt(result, bench, async () => {
            const runs = await repeat(query, () => run(length, 1));
            const rates = runs.map(({ prompt, total }) => (prompt * 1000) / total);
            figures.push(figure(bench, "tokens/s", rates));
        });
    }
    for (const [tokens, after] of numbers(query.cases, "decode")) {
        const bench = `${name} ${tokens} tokens after ${after}`;
        await attempt(result, bench, async () => {
            const runs = await repeat(query, () => run(after, tokens));
            const short = runs.find(({ count }) => count !== tokens);
            if (short) throw new Error(`${short.count} tokens came`);
            const rates = runs.map(({ first, total }) => ((tokens - 1) * 1000) / (total - first));
            figures.push(figure(bench, "tokens/s", rates));
        });
    }
    for (const [tokens] of numbers(query.cases, "greedy")) {
        if (model.greedy)
            await attempt(result, `${name} greedy`, async () => {
                const { ids } = await model.greedy(query.prompt, tokens);
                checks.greedy = { prompt: query.prompt, ids };
            });
        await attempt(result, `${name} in words`, async () => {
            checks.said = (await model.say(BEGINNING, tokens)).text;
        });
    }
    if (query.cases.includes("warm")) {
        const bench = `${name} load and first token, cached`;
        await attempt(result, bench, async () => {
            const ms = await time(async () => {
                model = await load(true);
                await run(16, 1);
            });
            figures.push(figure(bench, "ms", [ms]));
        });
    }
}
