// The GPU: lost, wrong, absent, shared, and given back; and the page, which none of it may block.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { distance, json, launch, open, serve, tensors } from "./harness.mjs";

const WORKER = "/package/dist/worker.js";
const { texts } = json("bert/texts.json");
const expected = tensors("bert/expected.safetensors")["encode.embeddings"];
let server, browser;

before(async () => {
    server = await serve();
    browser = await launch();
});
after(async () => {
    await browser?.close();
    await server?.stop();
});

/** A page whose worker runs `script` first. */
async function pageWith(script) {
    server.faults.set(WORKER, { damage: (file) => Buffer.concat([Buffer.from(`{${script}}\n`), file]) });
    return open(await browser.newContext(), server);
}

/** Counts devices and buffers, and destroys devices when it is told to. */
const SPY = `
    const devices = [];
    let bytes = 0, buffers = 0;
    const request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (descriptor) {
        const device = await request.call(this, descriptor);
        devices.push(device);
        return device;
    };
    const create = GPUDevice.prototype.createBuffer;
    GPUDevice.prototype.createBuffer = function (descriptor) {
        const buffer = create.call(this, descriptor);
        bytes += buffer.size;
        buffers += 1;
        return buffer;
    };
    const destroy = GPUBuffer.prototype.destroy;
    GPUBuffer.prototype.destroy = function () {
        bytes -= this.size;
        buffers -= 1;
        return destroy.call(this);
    };
    const channel = new BroadcastChannel("spy");
    channel.onmessage = ({ data }) => {
        if (data === "lose") devices.forEach((device) => device.destroy());
        if (data === "lose") bytes = buffers = 0;
        channel.postMessage({ devices: devices.length, bytes, buffers });
    };`;

const spy = (page, what) =>
    page.evaluate(
        (what) =>
            new Promise((resolve) => {
                const channel = new BroadcastChannel("spy");
                channel.onmessage = ({ data }) => resolve(data);
                channel.postMessage(what);
            }),
        what,
    );

function agrees(vectors) {
    const width = expected.shape[1];
    vectors.forEach((vector, i) => {
        const off = distance(vector, expected.values.slice(i * width, (i + 1) * width));
        assert.ok(off <= 1e-4, `text ${i}: 1 - cosine is ${off}`);
    });
}

test("a lost device comes back at the next call, with a warning", async () => {
    const page = await pageWith(SPY);
    await page.evaluate(
        async ([bert, llama]) => {
            window.warnings = [];
            window.bert = await lib.load(bert, { device: "webgpu" });
            window.llama = await lib.load(llama, { device: "webgpu" });
            for (const model of [window.bert, window.llama]) {
                model.addEventListener("warning", ({ detail }) =>
                    warnings.push({ name: model.info.name, ...detail }),
                );
            }
            window.before = (await collect(llama_())).tokens;
            function llama_() {
                return window.llama.generate("A short sentence", { maxTokens: 5, ignoreEos: true });
            }
        },
        [`${server.url}/models/bert/`, `${server.url}/models/gguf_llama/model.gguf`],
    );
    assert.equal((await spy(page, "count")).devices, 1, "models share one device");
    await spy(page, "lose");
    server.log = [];
    const vectors = await page.evaluate(async (texts) => (await bert.embed(texts)).map((v) => [...v]), texts);
    agrees(vectors);
    const [tokens, was] = await page.evaluate(async () => [
        (await collect(llama.generate("A short sentence", { maxTokens: 5, ignoreEos: true }))).tokens,
        before,
    ]);
    assert.deepEqual(tokens, was);
    const warnings = await page.evaluate(() => warnings);
    assert.deepEqual(
        warnings.map(({ name, code }) => [name, code]),
        [
            ["bert", "DeviceLost"],
            ["model.gguf", "DeviceLost"],
        ],
    );
    assert.match(warnings[0].message, /loaded again/);
    assert.deepEqual(server.requests("/models/"), [], "from the cache");
    assert.equal((await spy(page, "count")).devices, 2, "and they share the new one");

    // In the middle of an answer it is an error, since its parts are out already; the next one works.
    const { error, count } = await page.evaluate(async () => {
        let count = 0;
        const { error } = await outcome(async () => {
            for await (const _ of llama.generate("A short sentence", { maxTokens: 400, ignoreEos: true })) {
                if (++count === 2) new BroadcastChannel("spy").postMessage("lose");
            }
        });
        return { error, count };
    });
    assert.equal(error?.name, "DeviceLost", `after ${count} parts`);
    assert.match(error.message, /the next call starts it again/);
    const again = await page.evaluate(
        async () =>
            (await collect(llama.generate("A short sentence", { maxTokens: 5, ignoreEos: true }))).tokens,
    );
    assert.deepEqual(again, was);
    await page.context().close();
});

test("unload frees all of a model and nothing else, twenty times over", async () => {
    const page = await pageWith(SPY);
    const rounds = [];
    await page.evaluate(async (url) => {
        window.other = await lib.load(url, { device: "webgpu" });
        await other.embed(["stays"]);
    }, `${server.url}/models/distilbert/`);
    const kept = await spy(page, "count");
    for (let round = 0; round < 20; round++) {
        const memory = await page.evaluate(
            async ([url, texts]) => {
                const model = await lib.load(url, { device: "webgpu" });
                await model.embed(texts);
                const memory = await model.memory();
                await model.unload();
                return memory;
            },
            [`${server.url}/models/bert/`, texts],
        );
        assert.ok(memory.device > 1e6);
        const { bytes, buffers } = await spy(page, "count");
        assert.deepEqual([bytes, buffers], [kept.bytes, kept.buffers], `round ${round}`);
        rounds.push(memory.wasm);
    }
    assert.equal(rounds.at(-1), rounds[4], `wasm memory in bytes: ${rounds}`);
    assert.equal((await page.evaluate(async () => (await other.embed(["still there"]))[0].length)) > 0, true);
    await page.context().close();
});

test("a worker that failed is started again at the next call", async () => {
    const page = await pageWith(`
        let armed = false;
        new BroadcastChannel("spy").onmessage = () => (armed = true);
        const submit = GPUQueue.prototype.submit;
        GPUQueue.prototype.submit = function (...buffers) {
            if (armed) throw new WebAssembly.RuntimeError("unreachable");
            return submit.apply(this, buffers);
        };`);
    const { error, vectors, warnings } = await page.evaluate(
        async ([url, texts]) => {
            const warnings = [];
            const model = await lib.load(url, { device: "webgpu" });
            model.addEventListener("warning", ({ detail }) => warnings.push(detail.code));
            new BroadcastChannel("spy").postMessage("break");
            await new Promise((resolve) => setTimeout(resolve, 100));
            const { error } = await outcome(() => model.embed(texts));
            return { error, vectors: (await model.embed(texts)).map((v) => [...v]), warnings };
        },
        [`${server.url}/models/bert/`, texts],
    );
    assert.equal(error.name, "InferenceError");
    assert.match(error.message, /the engine stopped \(unreachable\); the next call starts it again/);
    assert.deepEqual(warnings, ["WorkerRestarted"]);
    agrees(vectors);
    await page.context().close();
});

test("packed dot products that are wrong are not used", async () => {
    const page = await pageWith(`
        const create = GPUDevice.prototype.createShaderModule;
        GPUDevice.prototype.createShaderModule = function (descriptor) {
            const code = descriptor.code.replaceAll(/\\bdot4I8Packed\\(/g, "1 + dot4I8Packed(");
            return create.call(this, { ...descriptor, code });
        };`);
    const { device } = await page.evaluate(() => lib.checkSupport({ selfCheck: true }));
    assert.equal(device.packedDot, false);
    assert.equal(device.selfCheck.ok, false);
    assert.ok(device.selfCheck.without.includes("packed dot products"), device.selfCheck.without);
    assert.ok(
        device.selfCheck.failures.every((name) => /Q8/.test(name)) && device.selfCheck.failures.length > 0,
    );
    await page.context().close();
});

test("subgroups that are wrong are not used", async (t) => {
    const page = await pageWith(`
        const create = GPUDevice.prototype.createShaderModule;
        GPUDevice.prototype.createShaderModule = function (descriptor) {
            // Each invocation gets its own value instead of another's.
            const code = descriptor.code.replaceAll(/\\bsubgroupShuffleXor\\((\\w+), [^)]*\\)/g, "($1)");
            return create.call(this, { ...descriptor, code });
        };`);
    const { device, adapter } = await page.evaluate(() => lib.checkSupport({ selfCheck: true }));
    if (adapter.subgroupMinSize < 8) {
        await page.context().close();
        return t.skip("this adapter's subgroups are too small to be used");
    }
    assert.deepEqual(
        [device.kind, device.subgroups, device.selfCheck.without],
        ["webgpu", false, ["subgroups"]],
    );
    assert.ok(device.selfCheck.failures.length > 0);
    await page.context().close();
});

test("an adapter that computes wrong whatever is left out is not used", async () => {
    const page = await pageWith(`
        const create = GPUDevice.prototype.createShaderModule;
        GPUDevice.prototype.createShaderModule = function (descriptor) {
            return create.call(this, { ...descriptor, code: descriptor.code.replaceAll(/\\bexp\\(/g, "exp2(") });
        };`);
    const { error, auto } = await page.evaluate(async (url) => {
        const { error } = await outcome(() => lib.load(url, { device: "webgpu" }));
        return { error, auto: (await lib.load(url)).info.device };
    }, `${server.url}/models/bert/`);
    assert.equal(error.name, "NoWebGpu");
    assert.match(error.message, /computes wrong.*attention.*device: "cpu"/s);
    assert.equal(auto.kind, "cpu");
    await page.context().close();
});

test("without WebGPU models run on the CPU", async () => {
    const without = await launch({ webgpu: false });
    try {
        server.faults.clear();
        const page = await open(await without.newContext(), server);
        const { support, info, vectors, error, answer, on } = await page.evaluate(
            async ([url, texts, llama]) => {
                const support = await lib.checkSupport();
                const model = await lib.load(url);
                const vectors = (await model.embed(texts)).map((v) => [...v]);
                const { error } = await outcome(() => lib.load(url, { device: "webgpu" }));
                const chat = await lib.load(llama);
                const answer = await collect(
                    chat.chat([{ role: "user", content: "Hello" }], { maxTokens: 6, ignoreEos: true }),
                );
                return { support, info: model.info, vectors, error, answer, on: chat.info.device.kind };
            },
            [`${server.url}/models/bert/`, texts, `${server.url}/models/gguf_llama/model.gguf`],
        );
        assert.deepEqual([on, answer.tokens.length], ["cpu", 6]);
        assert.equal(support.webgpu, false);
        assert.match(support.reasons.join(), /WebGPU.*CPU/);
        assert.equal(info.device.kind, "cpu");
        assert.ok(info.device.reason, "and it says why");
        agrees(vectors);
        assert.equal(error.name, "NoWebGpu");
        assert.match(error.message, /device: "cpu"/);
    } finally {
        await without.close();
    }
});

test("leaving the page leaves nothing running", async () => {
    server.faults.clear();
    const page = await open(await browser.newContext(), server);
    await page.evaluate(async (url) => {
        window.model = await lib.load(url, { device: "cpu" });
        model.embed(Array.from({ length: 100_000 }, (_, i) => `text ${i}`)).catch(() => {});
    }, `${server.url}/models/bert/`);
    assert.equal(page.workers().length, 1);
    const gone = page.workers()[0];
    const ended = new Promise((resolve) => gone.on("close", resolve));
    await page.goto("about:blank");
    await ended;
    assert.equal(page.workers().length, 0);
    await page.goBack();
    await page.waitForFunction(() => window.ready);
    const length = await page.evaluate(
        async (url) => (await (await lib.load(url, { device: "cpu" })).embed(["back"]))[0].length,
        `${server.url}/models/bert/`,
    );
    assert.ok(length > 0);
    await page.context().close();
});

test("the page is never blocked", async () => {
    server.faults.clear();
    // On a busy machine other programs can hold the page up: what we cause happens every time.
    let worst = [];
    for (let round = 0; round < 4; round++) {
        const page = await open(await browser.newContext(), server);
        const tasks = await page.evaluate(
            async ([bert, llama]) => {
                await new Promise((resolve) => setTimeout(resolve, 200));
                const start = performance.now();
                const model = await lib.load(bert, { device: "webgpu", onProgress: () => {} });
                await model.embed(
                    Array.from({ length: 2000 }, (_, i) => `a text that is the ${i}th of many`),
                );
                const other = await lib.load(llama, { device: "webgpu" });
                await collect(other.generate("A short sentence", { maxTokens: 200, ignoreEos: true }));
                await new Promise((resolve) => setTimeout(resolve, 200));
                return longTasks.filter(({ startTime }) => startTime >= start);
            },
            [`${server.url}/models/bert/`, `${server.url}/models/gguf_llama/model.gguf`],
        );
        await page.context().close();
        if (tasks.length === 0) return;
        worst = tasks;
    }
    assert.deepEqual(worst, []);
});
