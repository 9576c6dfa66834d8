// This package's bench: what a page gets through the public API.

import { embedding } from "./lib/embedding.js";
import { generation } from "./lib/generation.js";
import { bench, log } from "./lib/report.js";
import { promptIds } from "./lib/texts.js";

/** Versions come with the page: the built package does not say its own. */
const version = async () => (await (await fetch("./version.json")).json()).inferencelayer;

/**
 * Loads a model and notes when each phase began, from the start of the worker on.
 * @param {string} address
 * @param {import("./lib/query.js").Query} query
 * @param {boolean} again by a copy of the package: a worker of its own, as after a reload of the page
 * @param {import("./lib/report.js").Result} result
 */
async function open(address, { device, dtype }, again, result, options = {}) {
    const started = performance.now();
    const { load } = await import(again ? "./dist/index.js?again" : "./dist/index.js");
    const phases = {};
    const onProgress = ({ phase }) => (phases[phase] ??= performance.now() - started);
    const given = Object.fromEntries(Object.entries({ device, dtype, ...options }).filter(([, value]) => value));
    const model = await load(new URL(address, location.href), { ...given, onProgress });
    phases.ready = performance.now() - started;
    const { info } = model;
    if (again && !info.cached) throw new Error("the cache does not hold the model");
    result.details[again ? "phases, cached" : "phases"] = phases;
    result.details.memory = await model.memory();
    result.device = info.device;
    result.engine = { name: "inferencelayer", version: await version(), mode: `${info.device.kind} ${info.dtype}` };
    await log(`${info.name} on ${info.device.name}, ${info.dtype}; ${JSON.stringify(phases)}`);
    return model;
}

/** @returns {import("./lib/generation.js").Generator} */
function generator(model) {
    const { vocabulary } = model.info;
    const generate = async (prompt, maxTokens) => {
        const start = performance.now();
        const ids = [];
        let text = "";
        let usage;
        for await (const part of model.generate(prompt, { maxTokens, ignoreEos: true })) {
            ids.push(...part.tokens);
            text += part.text;
            usage = part.usage;
        }
        const total = performance.now() - start;
        // A file without a tokenizer gives no text and so no part before the last: the worker knows the first.
        return { prompt: usage.promptTokens, first: usage.firstTokenMs, total, count: ids.length, ids, text };
    };
    return {
        run: (length, salt, tokens) => generate(promptIds(length, vocabulary, salt), tokens),
        say: generate,
        greedy: (ids = promptIds(16, vocabulary), tokens) => generate(ids, tokens),
    };
}

bench(async (result, query) => {
    let model;
    const next = async (address, again, options) => {
        await model?.unload();
        return (model = await open(address, query, again, result, options));
    };
    if (query.embed)
        await embedding(result, query, async (again) => {
            const opened = await next(query.embed, again);
            return {
                embed: (texts) => opened.embed(texts),
                tokenize: (texts) => Promise.all(texts.map((text) => opened.tokenize(text))),
            };
        });
    if (query.generate)
        await generation(result, query, async (again) =>
            generator(await next(query.generate, again, { context: query.context })),
        );
});
