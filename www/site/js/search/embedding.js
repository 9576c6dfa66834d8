// Gives all paragraphs of the index their vectors, in batches that last about half a second, so that queries get
// their turn and the progress moves.

import { index } from "./client.js";

const FIRST = 8;
const MOST = 256;
const WANTED_MS = 400;

/**
 * @param {any} model
 * @param {{signal: AbortSignal, onBatch: (done: number, perSecond: number) => void}} options
 * @returns {Promise<void>} when all have their vectors
 */
export async function embedAll(model, { signal, onBatch }) {
    let size = FIRST;
    let perSecond = 0;
    for (;;) {
        const batch = await index("pending", size);
        if (batch.length === 0) return;
        const started = performance.now();
        const vectors = await model.embed(batch.map(({ text }) => text), { signal });
        const width = vectors[0].length;
        const values = new Float32Array(width * vectors.length);
        vectors.forEach((vector, i) => values.set(vector, i * width));
        await index("put", { ids: batch.map(({ id }) => id), values, width, model: model.info.name }, [values.buffer]);
        const took = performance.now() - started;
        const rate = (batch.length / took) * 1000;
        perSecond = perSecond ? perSecond * 0.7 + rate * 0.3 : rate;
        size = Math.max(1, Math.min(MOST, Math.round((batch.length * WANTED_MS) / took), size * 4));
        onBatch(batch.length, perSecond);
        if (signal.aborted) return;
    }
}
