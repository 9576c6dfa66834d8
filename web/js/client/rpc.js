// The page's side of the calls to the worker: promises, streams, cancellation.

import { Aborted, DownloadFailed, InferenceError, unpack } from "../errors.js";

/**
 * @typedef {object} Pending
 * @property {(value: any) => void} resolve
 * @property {(error: Error) => void} reject
 * @property {((event: any) => void)} [onEvent]
 * @property {((part: any) => void)} [onPart]
 */

/**
 * @typedef {object} CallOptions
 * @property {AbortSignal} [signal]
 * @property {(event: any) => void} [onEvent]
 * @property {(part: any) => void} [onPart]
 * @property {(value: any) => void} [onLate] takes the value of a call that was aborted too late
 */

/** A worker and the calls that are under way in it. It starts with the first call. */
export class Client {
    /** @type {Worker | null} */
    #worker = null;
    /** @type {Map<number, Pending>} */
    #pending = new Map();
    #next = 1;
    /** Grows each time that the worker had to be started again: models of earlier ones are gone. */
    epoch = 0;
    /** Models by their number in the worker. @type {Map<number, WeakRef<{warn(warning: object): void}>>} */
    models = new Map();

    /** @param {() => Worker} start */
    constructor(start) {
        this.start = start;
    }

    #open() {
        if (this.#worker) return this.#worker;
        const worker = this.start();
        let heard = false;
        worker.onmessage = ({ data }) => {
            heard = true;
            this.#receive(data);
        };
        worker.onerror = (event) => {
            event.preventDefault?.();
            const what = event.message ? ` (${event.message})` : "";
            const why = heard
                ? new InferenceError(`the worker failed${what}; the next call starts it again`)
                : new DownloadFailed(
                      `the worker's script could not be loaded${what}; it lies beside the package's index.js. ` +
                          'In a development server that moves packages, exclude "inferencelayer" from that ' +
                          "(Vite: optimizeDeps.exclude)",
                  );
            this.#fail(worker, why);
        };
        worker.onmessageerror = () => this.#fail(worker, new InferenceError("a message could not be read"));
        this.#worker = worker;
        return worker;
    }

    /** Ends a worker that is of no use any more. */
    #fail(worker, error) {
        if (worker !== this.#worker) return;
        worker.terminate();
        this.#worker = null;
        this.epoch += 1;
        this.models.clear();
        const pending = [...this.#pending.values()];
        this.#pending.clear();
        for (const { reject } of pending) reject(error);
    }

    #receive(data) {
        if (data.warning) return this.models.get(data.model)?.deref()?.warn(data.warning);
        if (data.crashed) return this.#fail(this.#worker, unpack(data.crashed));
        const pending = this.#pending.get(data.id);
        if (!pending) return;
        if ("event" in data) pending.onEvent?.(data.event);
        else if ("part" in data) pending.onPart?.(data.part);
        else {
            this.#pending.delete(data.id);
            if ("error" in data) pending.reject(unpack(data.error));
            else pending.resolve(data.value);
        }
    }

    /**
     * Calls a method of the worker.
     * @param {string} method
     * @param {unknown[]} args
     * @param {CallOptions} [options]
     * @returns {Promise<any>}
     */
    call(method, args, options) {
        return this.#call(method, args, options).done;
    }

    /**
     * @param {string} method
     * @param {unknown[]} args
     * @param {CallOptions} options
     */
    #call(method, args, { signal, onEvent, onPart, onLate } = {}) {
        const id = this.#next++;
        const worker = () => this.#worker;
        if (signal?.aborted) return { id, worker, done: Promise.reject(new Aborted("the call was aborted")) };
        const done = new Promise((resolve, reject) => {
            const target = this.#open();
            const abort = () => {
                target.postMessage({ cancel: id });
                // The answer is nobody's now.
                const late = { resolve: (value) => onLate?.(value), reject: () => {} };
                if (this.#pending.has(id)) this.#pending.set(id, late);
                reject(new Aborted("the call was aborted"));
            };
            const settle = (how) => (value) => {
                signal?.removeEventListener("abort", abort);
                how(value);
            };
            this.#pending.set(id, { resolve: settle(resolve), reject: settle(reject), onEvent, onPart });
            signal?.addEventListener("abort", abort, { once: true });
            try {
                target.postMessage({ id, method, args });
            } catch (error) {
                this.#pending.delete(id);
                settle(reject)(
                    new InferenceError(`arguments cannot be sent to the worker: ${error.message}`),
                );
            }
        });
        return { id, worker, done };
    }

    /**
     * Calls a method that answers in parts. The worker waits where parts are not taken; leaving the loop ends the call.
     * @param {string} method
     * @param {unknown[]} args
     * @param {AbortSignal} [signal]
     * @returns {AsyncGenerator<any, void, void>}
     */
    async *stream(method, args, signal) {
        const ended = new AbortController();
        const signals = signal ? anySignal([signal, ended.signal]) : ended.signal;
        /** @type {any[]} */
        const parts = [];
        let wake = () => {};
        let over = false;
        let failure = null;
        const onPart = (part) => {
            parts.push(part);
            wake();
        };
        const { id, worker, done } = this.#call(method, args, { signal: signals, onPart });
        const finish = (error) => {
            over = true;
            failure = error ?? null;
            wake();
        };
        done.then(
            () => finish(),
            (error) => finish(error),
        );
        try {
            for (;;) {
                // What came before an abort was not asked for any more.
                if (failure) throw failure;
                if (parts.length) {
                    const part = parts.shift();
                    worker()?.postMessage({ ack: id });
                    yield part;
                } else if (over) {
                    return;
                } else {
                    await new Promise((resolve) => (wake = () => resolve(undefined)));
                }
            }
        } finally {
            if (!over) ended.abort();
        }
    }
}

/** `AbortSignal.any`, which is younger than WebGPU in some browsers. */
function anySignal(signals) {
    if (AbortSignal.any) return AbortSignal.any(signals);
    const controller = new AbortController();
    for (const signal of signals) {
        if (signal.aborted) controller.abort();
        signal.addEventListener("abort", () => controller.abort(), { once: true });
    }
    return controller.signal;
}
