// A model as the page sees it.

import { Aborted, InvalidInput } from "../errors.js";

/** Texts are posted in slices, so that long lists neither block the page nor cannot be aborted. */
const SLICE_TEXTS = 1024;
const SLICE_CHARACTERS = 1 << 18;
/** Slices that may be under way. */
const SLICES = 2;

/** @param {string[]} texts */
function* slices(texts) {
    let start = 0;
    let characters = 0;
    for (let at = 0; at < texts.length; at++) {
        const text = texts[at];
        if (typeof text !== "string") throw new InvalidInput(`texts: item ${at} is no string`);
        if (at > start && (at - start >= SLICE_TEXTS || characters + text.length > SLICE_CHARACTERS)) {
            yield texts.slice(start, at);
            start = at;
            characters = 0;
        }
        characters += text.length;
    }
    if (texts.length > start) yield texts.slice(start);
}

/** A loaded model; see index.d.ts. */
export class Model extends EventTarget {
    #client;
    #request;
    #handle;
    #epoch;
    /** @type {Promise<void> | null} */
    #reloading = null;
    #unloaded = false;

    /**
     * @param {import("./rpc.js").Client} client
     * @param {{source: object, options: object}} request what it was loaded with
     * @param {{handle: number, info: import("../../types/index.js").ModelInfo}} loaded
     */
    constructor(client, request, loaded) {
        super();
        this.#client = client;
        this.#request = request;
        this.#take(loaded);
    }

    #take({ handle, info }) {
        this.#handle = handle;
        this.#epoch = this.#client.epoch;
        this.info = info;
        this.#client.models.set(handle, new WeakRef(this));
    }

    /** Loads the model again if its worker is gone. */
    async #ready() {
        if (this.#unloaded) throw new Aborted("the model was unloaded; load it again");
        if (this.#epoch === this.#client.epoch) return;
        this.#reloading ??= this.#reload().finally(() => (this.#reloading = null));
        await this.#reloading;
    }

    async #reload() {
        this.#take(await this.#client.call("load", [this.#request.source, this.#request.options]));
        this.warn({ code: "WorkerRestarted", message: "the worker had failed; the model was loaded again" });
    }

    /** @param {{code: string, message: string, info?: object}} warning */
    warn(warning) {
        if (warning.info) this.info = /** @type {any} */ (warning.info);
        this.dispatchEvent(
            new CustomEvent("warning", { detail: { code: warning.code, message: warning.message } }),
        );
    }

    async #call(method, args, options) {
        await this.#ready();
        return this.#client.call(method, [this.#handle, ...args], options);
    }

    async *#stream(method, args, signal) {
        await this.#ready();
        yield* this.#client.stream(method, [this.#handle, ...args], signal);
    }

    /**
     * @param {string[]} texts
     * @param {import("../../types/index.js").EmbedOptions} [options]
     */
    async embed(texts, { signal, ...options } = {}) {
        if (typeof texts === "string") texts = [texts];
        if (!Array.isArray(texts)) throw new InvalidInput("texts: expected an array of strings");
        const all = [...slices(texts)];
        if (all.length === 0) all.push([]);
        const answers = new Array(all.length);
        let next = 0;
        const work = async () => {
            while (next < all.length) {
                const at = next++;
                answers[at] = await this.#call("embed", [all[at], options], { signal });
            }
        };
        await Promise.all(Array.from({ length: Math.min(SLICES, all.length) }, work));
        return answers.flatMap(({ values, width }) =>
            Array.from({ length: width ? values.length / width : 0 }, (_, i) =>
                values.slice(i * width, (i + 1) * width),
            ),
        );
    }

    /**
     * @param {object[]} messages
     * @param {import("../../types/index.js").ChatOptions} [options]
     */
    chat(messages, { signal, ...options } = {}) {
        return this.#stream("chat", [messages, options], signal);
    }

    /**
     * @param {string | number[] | Uint32Array} prompt
     * @param {import("../../types/index.js").GenerateOptions} [options]
     */
    generate(prompt, { signal, ...options } = {}) {
        return this.#stream("generate", [prompt, options], signal);
    }

    tokenize(text) {
        return this.#call("tokenize", [text]);
    }

    detokenize(ids) {
        return this.#call("detokenize", [Uint32Array.from(ids)]);
    }

    memory() {
        return this.#call("memory", []);
    }

    async unload() {
        if (this.#unloaded) return;
        this.#unloaded = true;
        // A worker that is gone took its models along.
        if (this.#epoch !== this.#client.epoch) return;
        this.#client.models.delete(this.#handle);
        await this.#client.call("unload", [this.#handle]);
    }

    async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
        await this.unload();
    }
}
