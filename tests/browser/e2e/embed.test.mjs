// Embeddings: progress, goldens on both devices, options, the cache at the next visit, errors.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { distance, json, launch, open, serve, tensors } from "./harness.mjs";

const { texts } = json("bert/texts.json");
const expected = tensors("bert/expected.safetensors")["encode.embeddings"];
let server, browser, context, page;

before(async () => {
    server = await serve();
    browser = await launch();
    context = await browser.newContext();
    page = await open(context, server);
});
after(async () => {
    await browser?.close();
    await server?.stop();
});

const url = () => `${server.url}/models/bert/`;

function agrees(vectors, limit) {
    const width = expected.shape[1];
    assert.equal(vectors.length, expected.shape[0]);
    vectors.forEach((vector, i) => {
        const off = distance(vector, expected.values.slice(i * width, (i + 1) * width));
        assert.ok(off <= limit, `text ${i}: 1 - cosine is ${off}`);
    });
}

for (const [device, dtype, limit] of [
    ["webgpu", "f32", 1e-6],
    ["webgpu", "f16", 1e-4],
    ["cpu", "f32", 1e-6],
    ["cpu", "int8", 3e-3],
]) {
    test(`vectors are sentence-transformers' own: ${device} in ${dtype}`, async () => {
        const { info, vectors } = await page.evaluate(
            async ([url, texts, device, dtype]) => {
                const model = await lib.load(url, { device, dtype });
                const vectors = await model.embed(texts);
                await model.unload();
                return { info: model.info, vectors: vectors.map((v) => [...v]) };
            },
            [url(), texts, device, dtype],
        );
        assert.equal(info.device.kind, device);
        assert.equal(info.dimensions, expected.shape[1]);
        agrees(vectors, limit);
    });
}

test("progress goes through its phases and only forwards", async () => {
    const events = await page.evaluate(async (url) => {
        const events = [];
        await lib.cache.delete();
        const model = await lib.load(url, { device: "cpu", onProgress: (e) => events.push(e) });
        await model.unload();
        return events;
    }, url());
    const phases = events.map(({ phase }) => phase).filter((phase, i, all) => phase !== all[i - 1]);
    assert.deepEqual(phases, ["download", "upload", "compile"]);
    for (const phase of phases) {
        const all = events.filter((event) => event.phase === phase);
        all.slice(1).forEach((event, i) => assert.ok(event.bytes >= all[i].bytes, JSON.stringify(all)));
        const last = all.at(-1);
        assert.equal(last.bytes, last.total, `${phase} ends when all is done`);
        assert.ok(last.total > 0);
        assert.ok(all.every(({ speed }) => Number.isFinite(speed) && speed >= 0));
    }
});

test("the next visit takes nothing from the network", async () => {
    await page.evaluate(async (url) => (await lib.load(url, { device: "cpu" })).unload(), url());
    server.reset();
    await page.close();
    page = await open(context, server);
    const { info, phases, vectors } = await page.evaluate(
        async ([url, texts]) => {
            const phases = new Set();
            const model = await lib.load(url, {
                device: "cpu",
                onProgress: ({ phase }) => phases.add(phase),
            });
            const vectors = await model.embed(texts);
            return { info: model.info, phases: [...phases], vectors: vectors.map((v) => [...v]) };
        },
        [url(), texts],
    );
    assert.equal(info.cached, true);
    assert.deepEqual(phases, ["verify", "upload", "compile"]);
    assert.deepEqual(server.requests("/models/"), []);
    agrees(vectors, 1e-6);
});

test("what the cache holds can be listed and deleted", async () => {
    const { list, estimate, deleted, again, left } = await page.evaluate(async (id) => {
        const list = await lib.cache.list();
        const estimate = await lib.cache.estimate();
        return {
            list,
            estimate,
            deleted: await lib.cache.delete(id),
            again: await lib.cache.delete(id),
            left: await lib.cache.list(),
        };
    }, url());
    assert.equal(list.length, 1);
    assert.equal(list[0].id, url());
    assert.ok(list[0].complete && list[0].files.some(({ path }) => path === "model.safetensors"));
    assert.equal(estimate.kind, "opfs");
    assert.equal(estimate.models, list[0].bytes);
    assert.deepEqual([deleted, again, left], [true, false, []]);
});

test("each call chooses length, dimensions and prompt", async () => {
    const { full, plain, short, none, two, prompted } = await page.evaluate(
        async ([url, prompts]) => {
            const model = await lib.load(url, { device: "cpu" });
            const one = async (options) => [...(await model.embed(["A short sentence."], options))[0]];
            const other = await lib.load(prompts, { device: "cpu" });
            return {
                full: await one(),
                plain: await one({ normalize: false }),
                short: await one({ dim: 10 }),
                none: (await model.embed([])).length,
                two: (await Promise.all([model.embed(["a", "b"]), model.embed(["c"])])).map((v) => v.length),
                prompted: other.info.prompts,
            };
        },
        [url(), `${server.url}/models/prompts/`],
    );
    const length = (v) => Math.hypot(...v);
    assert.ok(Math.abs(length(full) - 1) < 1e-6);
    assert.ok(Math.abs(length(plain) - 1) > 1e-3, "left as long as it comes");
    assert.ok(distance(full, plain) < 1e-6);
    assert.equal(short.length, 10);
    assert.ok(Math.abs(length(short) - 1) < 1e-6);
    assert.ok(distance(short, full.slice(0, 10)) < 1e-6);
    assert.deepEqual([none, two], [0, [2, 1]]);
    assert.ok(prompted.length > 0);
});

test("long lists go through in slices, in order, and end when they are aborted", async () => {
    const { count, same, error, after } = await page.evaluate(async (url) => {
        const model = await lib.load(url, { device: "cpu" });
        const texts = Array.from({ length: 2500 }, (_, i) => `text number ${i % 7}`);
        const all = await model.embed(texts);
        const [first] = await model.embed([texts[2499]]);
        const stop = new AbortController();
        const long = outcome(() => model.embed(texts, { signal: stop.signal }));
        setTimeout(() => stop.abort(), 20);
        const { error } = await long;
        const after = (await model.embed(["still there"])).length;
        return {
            count: all.length,
            same: all[2499].every((v, i) => Math.abs(v - first[i]) < 1e-5),
            error,
            after,
        };
    }, url());
    assert.deepEqual([count, same, error.name, after], [2500, true, "Aborted", 1]);
});

test("files that the user chose", async () => {
    const paths = [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "1_Pooling/config.json",
    ];
    const { name, vectors, error } = await page.evaluate(
        async ([url, paths, texts]) => {
            const files = await Promise.all(
                paths.map(async (path) => {
                    const file = new File([await (await fetch(url + path)).blob()], path.split("/").pop());
                    // As from an input for folders.
                    Object.defineProperty(file, "webkitRelativePath", { value: `my-bert/${path}` });
                    return file;
                }),
            );
            const model = await lib.load({ files }, { device: "cpu" });
            const vectors = await model.embed(texts);
            const { error } = await outcome(() => lib.load({ files: files.slice(1) }, { device: "cpu" }));
            return { name: model.info.name, vectors: vectors.map((v) => [...v]), error };
        },
        [url(), paths, texts],
    );
    assert.equal(name, "my-bert");
    agrees(vectors, 1e-6);
    assert.equal(error.name, "UnsupportedModel");
    assert.match(error.message, /config\.json/);
});

test("mistakes have names and say what to do", async () => {
    server
        .mount("/page.gguf", Buffer.from("<!doctype html>"))
        .mount("/t5/config.json", Buffer.from('{"model_type": "t5"}'));
    const cases = await page.evaluate(async (base) => {
        const model = await lib.load(`${base}/models/bert/`, { device: "cpu" });
        const cpu = { device: "cpu" };
        const aborted = AbortSignal.abort();
        return Object.entries({
            "no-such-model": () => lib.load("no-such-model", cpu),
            "expected a model's name": () => lib.load({}, cpu),
            "there are none": () => lib.load({ files: [] }, cpu),
            "no option `devise`": () => lib.load(`${base}/models/bert/`, { devise: "cpu" }),
            "no `tpu`": () => lib.load(`${base}/models/bert/`, { device: "tpu" }),
            404: () => lib.load(`${base}/nowhere/`, cpu),
            "f16 runs on GPUs": () => lib.load(`${base}/models/bert/`, { ...cpu, dtype: "f16" }),
            "is no GGUF file": () => lib.load(`${base}/page.gguf`, cpu),
            "is `t5`": () => lib.load(`${base}/t5`, cpu),
            "the call was aborted": () => lib.load(`${base}/models/bert/`, { ...cpu, signal: aborted }),
            "item 1 is no string": () => model.embed(["a", 2]),
            "no prompt `x`": () => model.embed(["a"], { prompt: "x" }),
            "999 dimensions": () => model.embed(["a"], { dim: 999 }),
            "options: ": () => model.embed(["a"], { dimension: 1 }),
            "does not generate": () => collect(model.generate("a")),
        }).reduce(
            async (all, [culprit, work]) => [...(await all), { culprit, ...(await outcome(work)).error }],
            [],
        );
    }, server.url);
    const names = {
        404: "DownloadFailed",
        "is no GGUF file": "UnsupportedModel",
        "is `t5`": "UnsupportedModel",
        "the call was aborted": "Aborted",
    };
    for (const { culprit, name, message, isOurs } of cases) {
        assert.ok(isOurs, `${culprit}: ${name} ${message}`);
        assert.ok(message.includes(culprit), `${culprit}: ${message}`);
        assert.equal(name, names[culprit] ?? "InvalidInput", message);
    }
});

test("an unloaded model says so", async () => {
    const { first, second } = await page.evaluate(async (url) => {
        const model = await lib.load(url, { device: "cpu" });
        const running = outcome(() => model.embed(Array.from({ length: 3000 }, (_, i) => `text ${i}`)));
        await model.unload();
        await model.unload();
        return { first: await running, second: await outcome(() => model.embed(["a"])) };
    }, url());
    assert.equal(first.error.name, "Aborted");
    assert.equal(second.error.name, "Aborted");
    assert.match(second.error.message, /unloaded/);
});
