// The worker's side of the calls: methods answer once or in parts, and are told when nobody waits any more.

import { pack } from "../errors.js";

/** Parts that may be on their way before the page has taken one. */
const WINDOW = 64;

/** One call under way. */
export class Call {
    #controller = new AbortController();
    #open = 0;
    /** @type {(() => void) | null} */
    #wake = null;

    /** @param {number} id */
    constructor(id) {
        this.id = id;
    }

    get signal() {
        return this.#controller.signal;
    }

    abort(reason) {
        this.#controller.abort(reason);
        this.#wake?.();
    }

    /** Says something while the call goes on. */
    event(event) {
        postMessage({ id: this.id, event });
    }

    /**
     * Gives a part of the answer; a promise where the page should catch up first.
     * @returns {void | Promise<void>}
     */
    part(part) {
        postMessage({ id: this.id, part });
        this.#open += 1;
        if (this.#open < WINDOW || this.signal.aborted) return;
        return new Promise((resolve) => (this.#wake = resolve));
    }

    /** The page took a part. */
    taken() {
        this.#open -= 1;
        this.#wake?.();
        this.#wake = null;
    }
}

/**
 * Answers calls for ever.
 * @param {Record<string, (call: Call, ...args: any[]) => unknown>} methods
 */
export function serve(methods) {
    /** @type {Map<number, Call>} */
    const calls = new Map();
    // Where the module traps in the middle of a future, nobody's promise says so.
    const trap = (event, error) => {
        if (!(error instanceof WebAssembly.RuntimeError)) return;
        event.preventDefault();
        postMessage({ crashed: crash(error) });
    };
    addEventListener("error", (event) => trap(event, event.error));
    addEventListener("unhandledrejection", (event) => trap(event, event.reason));
    globalThis.onmessage = async ({ data }) => {
        if (data.cancel) return calls.get(data.cancel)?.abort();
        if (data.ack) return calls.get(data.ack)?.taken();
        const call = new Call(data.id);
        calls.set(data.id, call);
        try {
            postMessage({ id: data.id, value: await methods[data.method](call, ...data.args) });
        } catch (error) {
            if (error instanceof WebAssembly.RuntimeError) postMessage({ crashed: crash(error) });
            else postMessage({ id: data.id, error: pack(error) });
        } finally {
            calls.delete(data.id);
        }
    };
}

/** A trap leaves the module in no state to go on. */
function crash(error) {
    const memory = /memory|allocat/i.test(error.message);
    const message = memory
        ? "the page's memory does not suffice; use a smaller model, context or batch"
        : `the engine stopped (${error.message}); the next call starts it again`;
    return { ...pack(error), name: memory ? "OutOfMemory" : "InferenceError", message };
}

/** Lets the event loop take a turn: messages come in, others get their share. */
export function turn() {
    return new Promise((resolve) => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => {
            port1.close();
            resolve(undefined);
        };
        port2.postMessage(null);
    });
}
