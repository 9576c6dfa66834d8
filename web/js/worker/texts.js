// Texts into vectors, in slices that leave other calls their turn.

import { Aborted } from "../errors.js";
import { turn } from "./rpc.js";

/** Characters that are embedded at once on the CPU, which does nothing else meanwhile. */
const CPU_CHARACTERS = 4096;

/** @param {string[]} texts */
function* slices(texts, most) {
    let start = 0;
    let characters = 0;
    for (let at = 0; at < texts.length; at++) {
        if (at > start && characters + texts[at].length > most) {
            yield texts.slice(start, at);
            start = at;
            characters = 0;
        }
        characters += texts[at].length;
    }
    if (texts.length > start || start === 0) yield texts.slice(start);
}

/** The vectors of `texts`, one after the other. */
export async function embed(inner, texts, options, onCpu, signal) {
    const all = [];
    for (const slice of slices(texts, onCpu ? CPU_CHARACTERS : Infinity)) {
        if (signal.aborted) throw new Aborted("the call was aborted");
        all.push(...(await inner.embed(slice, options)));
        if (onCpu) await turn();
    }
    const width = all[0]?.length ?? 0;
    const values = new Float32Array(all.length * width);
    all.forEach((vector, i) => values.set(vector, i * width));
    return { values, width };
}
