// Loaded models, and their second life after the GPU was lost.

import { Aborted, InvalidInput } from "../errors.js";
import { openDevice } from "./devices.js";
import { obtain } from "./obtain.js";
import { Progress } from "./progress.js";

/** A wasm object that is freed when the last call that uses it has ended. */
class Shared {
    #users = 0;
    #over = false;

    constructor(inner) {
        this.inner = inner;
    }

    async use(work) {
        this.#users += 1;
        try {
            return await work(this.inner);
        } finally {
            this.#users -= 1;
            this.#sweep();
        }
    }

    /** No new calls; freed when the others have ended. */
    end() {
        this.#over = true;
        this.#sweep();
    }

    #sweep() {
        if (!this.#over || this.#users > 0 || !this.inner) return;
        this.inner.free();
        this.inner = null;
    }
}

export class LoadedModel {
    /** @type {Shared | null} */
    #shared = null;
    /** @type {Promise<void> | null} */
    #starting = null;
    #unloaded = new AbortController();
    /** Calls under way. @type {Set<import("./rpc.js").Call>} */
    #calls = new Set();

    constructor(wasm, handle, source, options) {
        this.wasm = wasm;
        this.handle = handle;
        this.source = source;
        this.options = options;
    }

    /**
     * @param {AbortSignal} signal
     * @param {(event: object) => void} tell
     */
    async start(signal, tell) {
        const {
            device: kind = "auto",
            cache = true,
            hub,
            dtype,
            context,
            pooling,
            deterministic,
            maxBatchTokens,
        } = this.options;
        if (!["auto", "webgpu", "cpu"].includes(kind)) {
            throw new InvalidInput(`device: there is no \`${kind}\`; there are auto, webgpu and cpu`);
        }
        const progress = new Progress(tell);
        const { wasm } = this;
        // The device is opened and checked while files come; without one nothing more of them is fetched.
        const opening = openDevice(wasm, kind);
        const failed = new AbortController();
        opening.catch(() => failed.abort());
        const inner = await obtain(
            this.source,
            {
                signal: AbortSignal.any([signal, failed.signal]),
                progress,
                keep: cache !== false,
                hub,
                wasm,
                opening,
            },
            async (files) => {
                const { device, info } = await opening;
                this.device = device;
                const weights = Object.entries(files.files).filter(([path]) =>
                    /\.(gguf|safetensors)$/.test(path),
                );
                progress.begin(
                    "upload",
                    weights.reduce((sum, [, file]) => sum + file.size, 0),
                );
                let compiling = false;
                const told = (done, all) => {
                    if (done < all || compiling) return;
                    compiling = true;
                    progress.end();
                    progress.begin("compile", 1);
                };
                const made =
                    files.kind === "embedding"
                        ? await wasm.Embedder.load(
                              device,
                              files.files,
                              given({ dtype, pooling, deterministic, maxBatchTokens }),
                              told,
                          )
                        : await wasm.Generator.load(
                              device,
                              files.files,
                              files.gguf ?? undefined,
                              given({ dtype, context }),
                              told,
                          );
                if (!compiling) {
                    progress.end();
                    progress.begin("compile", 1);
                }
                progress.end();
                this.kind = files.kind;
                this.info = {
                    id: files.id,
                    name: files.name,
                    kind: files.kind,
                    bytes: files.bytes,
                    cached: files.cached,
                    device: info,
                    ...(await made.info()),
                };
                return made;
            },
        ).catch(async (error) => {
            await opening;
            throw error;
        });
        if (signal.aborted) {
            inner.free();
            throw new Aborted("the call was aborted");
        }
        this.#shared = new Shared(inner);
    }

    /** Starts again after the device was lost. */
    #restart() {
        this.#starting ??= (async () => {
            const lost = this.#shared;
            this.#shared = null;
            lost?.end();
            await this.start(this.#unloaded.signal, () => {});
            const message = `the GPU was lost; ${this.info.name} was loaded again`;
            postMessage({ model: this.handle, warning: { code: "DeviceLost", message, info: this.info } });
        })().finally(() => (this.#starting = null));
        return this.#starting;
    }

    /**
     * Runs a call on the model, starting it again if its device is gone. `repeatable` says whether the call can be
     * made once more after it failed by that.
     * @template T
     * @param {import("./rpc.js").Call} call
     * @param {(inner: any) => Promise<T>} work
     * @param {() => boolean} repeatable
     * @returns {Promise<T>}
     */
    async use(call, work, repeatable) {
        this.#calls.add(call);
        try {
            for (let again = false; ; again = true) {
                this.#alive();
                if (!this.#shared || this.device.lost) await this.#restart();
                const shared = this.#shared;
                try {
                    return await shared.use(work);
                } catch (error) {
                    if (error?.name !== "DeviceLost") throw error;
                    // Whatever it was, nothing more can be had from this one.
                    if (this.#shared === shared) await this.#forget(shared);
                    if (again || call.signal.aborted || !repeatable()) throw error;
                }
            }
        } finally {
            this.#calls.delete(call);
        }
    }

    async #forget(shared) {
        this.#shared = null;
        shared.end();
    }

    #alive() {
        if (this.#unloaded.signal.aborted) throw new Aborted("the model was unloaded; load it again");
    }

    unload() {
        this.#unloaded.abort();
        for (const call of this.#calls) call.abort();
        this.#shared?.end();
        this.#shared = null;
    }
}

/** Options that were given. */
function given(options) {
    return Object.fromEntries(
        Object.entries(options).filter(([, value]) => value !== undefined && value !== null),
    );
}
