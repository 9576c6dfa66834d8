// Tokens into the parts of an answer.

import { Aborted } from "../errors.js";
import { turn } from "./rpc.js";

/** Longest time between two turns of the event loop. */
const STRETCH = 30;

/**
 * Generates an answer and gives its parts to the call. `prompt` makes what the model goes on from.
 * @param {import("./models.js").LoadedModel} model
 * @param {import("./rpc.js").Call} call
 * @param {(inner: any) => string | Uint32Array} prompt
 * @param {object} options
 */
export async function answer(model, call, prompt, options) {
    const started = performance.now();
    let first = 0;
    let turned = started;
    let waiting = 0;
    let part = { text: "", tokens: [], logProbabilities: [] };
    const send = () => {
        const sent = part;
        part = { text: "", tokens: [], logProbabilities: [] };
        return call.part(sent);
    };
    const take = (id, text, logProbability) => {
        if (call.signal.aborted) return false;
        const now = performance.now();
        first ||= now;
        part.text += text;
        part.tokens.push(id);
        part.logProbabilities.push(logProbability);
        const full = part.text ? send() : undefined;
        if (full) {
            return full.then(() => {
                waiting += performance.now() - now;
                turned = performance.now();
                return !call.signal.aborted;
            });
        }
        if (now - turned < STRETCH) return undefined;
        return turn().then(() => {
            turned = performance.now();
            return !call.signal.aborted;
        });
    };
    const run = (inner) => inner.generate(prompt(inner), options, take);
    const { promptTokens, completionTokens, finishReason } = await model.use(call, run, () => first === 0);
    if (call.signal.aborted) throw new Aborted("the call was aborted");
    const ended = performance.now();
    const seconds = (ended - (first || ended) - waiting) / 1000;
    await call.part({
        ...part,
        finishReason,
        usage: {
            promptTokens,
            completionTokens,
            totalTokens: promptTokens + completionTokens,
            firstTokenMs: (first || ended) - started,
            totalMs: ended - started,
            tokensPerSecond: seconds > 0 && completionTokens > 1 ? (completionTokens - 1) / seconds : 0,
        },
    });
}
