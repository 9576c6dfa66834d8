// Generation: goldens, streams that stop, pages that are slow, and the shape of OpenAI's client.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { launch, open, serve, tensors } from "./harness.mjs";

const golden = tensors("gguf_llama/expected.safetensors");
let server, browser, page;

before(async () => {
    server = await serve();
    browser = await launch();
    page = await open(await browser.newContext(), server);
});
after(async () => {
    await browser?.close();
    await server?.stop();
});

for (const device of ["cpu", "webgpu"]) {
    describe(device, { concurrency: false }, () => suite(device));
}

function suite(device) {
    before(async () => {
        // A software adapter compiles for many seconds; once is enough.
        await page.evaluate(
            async ([url, device]) => {
                await window.model?.unload();
                window.model = await lib.load(url, { device, dtype: "f32" });
            },
            [`${server.url}/models/gguf_llama/model.gguf`, device],
        );
    });

    test("greedy tokens are transformers' own", async () => {
        for (const at of [0, 1]) {
            const ids = golden[`greedy${at}.input_ids`].values;
            const expected = golden[`greedy${at}.tokens`].values;
            const { tokens, last, parts } = await page.evaluate(
                ([ids, maxTokens]) => collect(model.generate(ids, { maxTokens, ignoreEos: true })),
                [ids, expected.length],
            );
            assert.deepEqual(tokens, expected);
            assert.ok(parts > 3, "it comes in parts");
            assert.equal(last.finishReason, "length");
            assert.equal(last.usage.promptTokens, ids.length);
            assert.equal(last.usage.completionTokens, expected.length);
        }
    });

    test("a chat is its template's prompt, answered", async () => {
        const messages = [
            { role: "system", content: "Be brief." },
            { role: "user", content: "Where is the lake? 2024" },
        ];
        const { info, chat, prompted } = await page.evaluate(async (messages) => {
            const options = { maxTokens: 12 };
            const text =
                messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("") +
                "<|im_start|>assistant\n";
            return {
                info: model.info,
                chat: await collect(model.chat(messages, options)),
                prompted: await collect(model.generate(await model.tokenize(text), options)),
            };
        }, messages);
        assert.equal(info.chat, true);
        assert.equal(info.kind, "generation");
        assert.deepEqual(chat.tokens, prompted.tokens);
        assert.equal(chat.last.usage.promptTokens, prompted.last.usage.promptTokens);
    });

    test("the same seed gives the same answer", async () => {
        const [a, b, c] = await page.evaluate(async () => {
            const ask = async (seed) =>
                (
                    await collect(
                        model.generate("A short sentence", {
                            maxTokens: 16,
                            temperature: 2,
                            seed,
                            ignoreEos: true,
                        }),
                    )
                ).tokens;
            return [await ask(1), await ask(1), await ask(2)];
        });
        assert.deepEqual(a, b);
        assert.notDeepEqual(a, c);
    });

    test("an aborted answer stops at once and leaves the model usable", async () => {
        const { error, count, again } = await page.evaluate(async () => {
            const stop = new AbortController();
            let count = 0;
            const { error } = await outcome(async () => {
                for await (const _ of model.generate("A short sentence", {
                    maxTokens: 400,
                    ignoreEos: true,
                    signal: stop.signal,
                })) {
                    if (++count === 3) stop.abort();
                }
            });
            return {
                error,
                count,
                again: (await collect(model.generate("A", { maxTokens: 3, ignoreEos: true }))).tokens.length,
            };
        });
        assert.deepEqual([error.name, count, again], ["Aborted", 3, 3]);
    });

    test("leaving the loop ends the answer", async () => {
        const { ms, again } = await page.evaluate(async () => {
            for await (const _ of model.generate("A short sentence", { maxTokens: 480, ignoreEos: true }))
                break;
            const start = performance.now();
            // Answers take turns: this one would wait for the other's 480 tokens.
            const again = await collect(model.generate("A", { maxTokens: 2, ignoreEos: true }));
            return { ms: performance.now() - start, again: again.tokens.length };
        });
        assert.equal(again, 2);
        assert.ok(ms < 5000, `${ms} ms`);
    });

    test("a page that does not take the parts stops the generation, not for good", async () => {
        const { before, after, total } = await page.evaluate(async () => {
            const parts = model.generate("A short sentence", { maxTokens: 400, ignoreEos: true });
            await parts.next();
            // Whoever asks next waits for this answer: its length shows how far the first came.
            const seen = [];
            const waited = await Promise.race([
                collect(model.generate("A", { maxTokens: 1 })).then(() => "done"),
                new Promise((resolve) => setTimeout(() => resolve("waiting"), 4000)),
            ]);
            for await (const part of parts) seen.push(...part.tokens);
            return { before: waited, after: seen.length, total: seen.length };
        });
        assert.equal(before, "waiting", "the first answer is held back");
        assert.ok(after > 300, `${total} tokens came later`);
    });

    test("mistakes have names", async () => {
        const errors = await page.evaluate(async () => {
            const all = [];
            for (const work of [
                () => collect(model.generate("")),
                () => collect(model.generate("a", { temperature: -1 })),
                () => collect(model.generate("a", { maxTokns: 1 })),
                () => collect(model.generate(new Uint32Array(600))),
                () => collect(model.chat([{ role: "user" }])),
                () => model.embed(["a"]),
            ]) {
                all.push((await outcome(work)).error);
            }
            return all;
        });
        for (const error of errors) {
            assert.ok(error?.isOurs, JSON.stringify(error));
            assert.equal(error.name, "InvalidInput", error.message);
        }
    });

    test("OpenAI's client", async () => {
        const { whole, chunks, list } = await page.evaluate(async () => {
            const client = new OpenAI({ models: { tiny: model } });
            const request = {
                model: "tiny",
                messages: [{ role: "user", content: [{ type: "text", text: "Hello" }] }],
                max_tokens: 8,
                temperature: 0,
            };
            const whole = await client.chat.completions.create(request);
            const chunks = [];
            for await (const chunk of await client.chat.completions.create({
                ...request,
                stream: true,
                stream_options: { include_usage: true },
            })) {
                chunks.push(chunk);
            }
            return { whole, chunks, list: await client.models.list() };
        });
        assert.equal(whole.object, "chat.completion");
        assert.equal(whole.usage.completion_tokens, 8);
        const text = chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("");
        assert.equal(text, whole.choices[0].message.content);
        assert.equal(chunks[0].choices[0].delta.role, "assistant");
        assert.equal(chunks.at(-2).choices[0].finish_reason, "length");
        assert.deepEqual(chunks.at(-1).usage, whole.usage);
        assert.ok(list.data.some(({ id }) => id === "tiny") && list.data.some(({ id }) => id === "minilm"));
    });
}
