// A small benchmark of the models in use.

import { rate, milliseconds } from "../lib/format.js";

const PROMPT = "Once upon a time there was a lighthouse keeper who counted the ships that passed by, and wrote them into a book. ";
const TOKENS = 64;
const TEXTS = 64;
const TEXT = "The lighthouse keeper counted the ships that passed by in the night, wrote their names into a book, and went to bed.";

/**
 * Reading a prompt and writing an answer.
 * @param {any} model
 * @param {AbortSignal} signal
 */
export async function writing(model, signal) {
    const room = Math.max(64, Math.min(256, model.info.context - TOKENS - 8));
    const ids = await model.tokenize(PROMPT.repeat(12));
    const prompt = Array.from(ids.slice(0, room));
    const run = async (maxTokens) => {
        let usage;
        for await (const part of model.generate(prompt, { maxTokens, temperature: 0, ignoreEos: true, signal })) usage = part.usage ?? usage;
        return usage;
    };
    // The first run makes kernels.
    await run(2);
    const usage = await run(TOKENS);
    return [
        ["Reading", `${rate(prompt.length / (usage.firstTokenMs / 1000))} tokens/s`, `${prompt.length} tokens in ${milliseconds(usage.firstTokenMs)}`],
        ["Writing", `${rate(usage.tokensPerSecond)} tokens/s`, `${usage.completionTokens} tokens`],
    ];
}

/**
 * One text, and many.
 * @param {any} model
 * @param {AbortSignal} signal
 */
export async function embedding(model, signal) {
    const texts = Array.from({ length: TEXTS }, (_, i) => `${i}. ${TEXT}`);
    const tokens = (await model.tokenize(texts[10])).length;
    await model.embed(texts.slice(0, 2), { signal });
    const times = [];
    for (let i = 0; i < 5; i++) {
        const started = performance.now();
        await model.embed([texts[i]], { signal });
        times.push(performance.now() - started);
    }
    const one = times.sort((a, b) => a - b)[2];
    const started = performance.now();
    await model.embed(texts, { signal });
    const all = (performance.now() - started) / 1000;
    return [
        ["One text", milliseconds(one), `${tokens} tokens, median of ${times.length}`],
        ["Many texts", `${rate(TEXTS / all)} texts/s`, `${rate((TEXTS * tokens) / all)} tokens/s, ${TEXTS} at once`],
    ];
}
