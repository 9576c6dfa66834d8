// The worker: it owns the wasm module, the devices and the models.

import * as glue from "wasm-module";

import { Aborted, InvalidInput } from "../errors.js";
import { answer } from "./answer.js";
import { openDevice } from "./devices.js";
import { LoadedModel } from "./models.js";
import { serve } from "./rpc.js";
import * as store from "./store/index.js";
import { support } from "./support.js";
import { embed } from "./texts.js";

/** @type {Promise<typeof glue> | null} */
let starting = null;

/** The wasm module; its memory is `exports.memory`. */
let exports = null;

function wasm() {
    starting ??= (async () => {
        exports = await glue.default({ module_or_path: new URL("./inferencelayer.wasm", import.meta.url) });
        return glue;
    })();
    // A failed fetch can be made again.
    starting.catch(() => (starting = null));
    return starting;
}

/** @type {Map<number, LoadedModel>} */
const models = new Map();
let next = 1;

/** @returns {LoadedModel} */
function find(handle, kind, what) {
    const model = models.get(handle);
    if (!model) throw new Aborted("the model was unloaded; load it again");
    if (kind && model.kind !== kind) {
        const verb =
            model.kind === "embedding"
                ? "embeds texts and does not generate"
                : "generates text and does not embed";
        throw new InvalidInput(`${what}: ${model.info.name} ${verb}`);
    }
    return model;
}

const always = () => true;

serve({
    async load(call, source, options) {
        const model = new LoadedModel(await wasm(), next++, source, options);
        await model.start(call.signal, (event) => call.event(event));
        models.set(model.handle, model);
        return { handle: model.handle, info: model.info };
    },

    embed(call, handle, texts, options) {
        const model = find(handle, "embedding", "embed");
        const onCpu = model.info.device.kind === "cpu";
        return model.use(call, (inner) => embed(inner, texts, options, onCpu, call.signal), always);
    },

    generate(call, handle, prompt, options) {
        const ids = Array.isArray(prompt) ? Uint32Array.from(prompt) : prompt;
        return answer(find(handle, "generation", "generate"), call, () => ids, options);
    },

    chat(call, handle, messages, { tools, template, ...options }) {
        const prompt = (inner) => inner.chatIds({ ...template, messages, tools });
        return answer(find(handle, "generation", "chat"), call, prompt, options);
    },

    tokenize: (call, handle, text) => find(handle).use(call, async (inner) => inner.tokenize(text), always),

    detokenize: (call, handle, ids) => find(handle).use(call, async (inner) => inner.detokenize(ids), always),

    memory: (call, handle) =>
        find(handle).use(
            call,
            async (inner) => ({ device: await inner.memory(), wasm: exports.memory.buffer.byteLength }),
            always,
        ),

    unload(_, handle) {
        models.get(handle)?.unload();
        models.delete(handle);
    },

    cacheList: () => store.list(),

    async cacheDelete(call, id) {
        return store.remove(id, call.signal);
    },

    cacheEstimate: () => store.estimate(),

    async checkSupport(_, { selfCheck = false }) {
        const found = await support();
        if (!selfCheck) return found;
        const { info } = await openDevice(await wasm(), found.webgpu ? "webgpu" : "cpu");
        return { ...found, device: info };
    },
});
