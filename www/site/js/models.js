// The models in use: one that writes, one that embeds. Views ask for them here and follow their state.

import { Aborted, UnsupportedModel, load } from "../package/index.js";
import { initial } from "./catalogue.js";
import { change, settings } from "./lib/settings.js";

/** Holds one model; fires `change` whenever its state does. */
class Slot extends EventTarget {
    /** @type {import("./catalogue.js").Choice | null} */
    choice = null;
    /** @type {any} the loaded model */
    model = null;
    /** @type {"empty" | "loading" | "ready" | "failed"} */
    state = "empty";
    /** @type {any} what `load` told last */
    progress = null;
    /** @type {Error | null} */
    error = null;
    /** What happened to the model by itself. */
    warning = "";
    #keep = true;
    /** @type {Promise<any> | null} */
    #loading = null;
    #abort = new AbortController();
    /** @type {Promise<void>} */
    #started;

    /** @param {"embedding" | "generation"} kind */
    constructor(kind) {
        super();
        this.kind = kind;
        this.#started = (async () => {
            this.choice ??= await initial(kind, settings.chosen[kind]);
            this.#tell();
        })();
    }

    #tell(changes = {}) {
        Object.assign(this, changes);
        this.dispatchEvent(new Event("change"));
    }

    /**
     * Chooses another model; the present one is unloaded.
     * @param {import("./catalogue.js").Choice} choice
     */
    async choose(choice) {
        await this.unload();
        this.#keep = true;
        if (choice.origin !== "file") change({ chosen: { ...settings.chosen, [this.kind]: choice.id } });
        this.#tell({ choice });
    }

    /**
     * The model, loaded if it is not.
     * @param {{keep?: boolean}} [options] whether its files stay in the browser's storage
     */
    ready({ keep } = {}) {
        if (keep !== undefined) this.#keep = keep;
        if (this.model) return Promise.resolve(this.model);
        this.#loading ??= this.#load().finally(() => (this.#loading = null));
        return this.#loading;
    }

    async #load() {
        await this.#started;
        const { choice } = this;
        const abort = new AbortController();
        this.#abort = abort;
        this.#tell({ state: "loading", progress: null, error: null, warning: "" });
        try {
            if (!choice) throw new UnsupportedModel("there is no model to load: choose one");
            const model = await load(choice.source, {
                device: settings.device,
                cache: this.#keep,
                signal: abort.signal,
                onProgress: (progress) => this.#tell({ progress }),
            });
            if (abort.signal.aborted || model.info.kind !== this.kind) {
                await model.unload();
                if (abort.signal.aborted) throw new Aborted("loading was cancelled");
                const use = model.info.kind === "embedding" ? "embeds texts: use it in Search" : "writes text: use it in Chat";
                throw new UnsupportedModel(`${model.info.name} ${use}`);
            }
            model.addEventListener("warning", ({ detail }) => this.#tell({ warning: detail.message }));
            this.#tell({ model, state: "ready", progress: null });
            return model;
        } catch (error) {
            const cancelled = error.code === "Aborted";
            this.#tell({ state: cancelled ? "empty" : "failed", progress: null, error: cancelled ? null : error });
            throw error;
        }
    }

    cancel() {
        this.#abort.abort();
    }

    async unload() {
        this.cancel();
        await this.#loading?.catch(() => {});
        const { model } = this;
        this.#tell({ model: null, state: "empty", progress: null, error: null, warning: "" });
        await model?.unload();
    }
}

export const slots = { generation: new Slot("generation"), embedding: new Slot("embedding") };

/** Frees what is loaded, so that it is loaded anew with other settings. */
export async function unloadAll() {
    await Promise.all(Object.values(slots).map((slot) => slot.unload()));
}
