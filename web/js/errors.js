// The package's errors. Each message says what went wrong and what can be done about it.

/** What all errors of this package have in common; `name` (also `code`) is the class. */
export class InferenceError extends Error {
    /**
     * @param {string} message
     * @param {Record<string, unknown>} [details] becomes properties of the error
     */
    constructor(message, details) {
        super(message);
        Object.assign(this, details);
    }

    get name() {
        return this.code;
    }

    /** For `switch`: the class's name, which survives minifiers. */
    get code() {
        return "InferenceError";
    }
}

/**
 * @template {string} Name
 * @param {Name} name
 */
function errorClass(name) {
    return class extends InferenceError {
        get code() {
            return name;
        }
    };
}

/** There is no WebGPU, or no adapter that computes right. */
export const NoWebGpu = errorClass("NoWebGpu");
/** The GPU's or the page's memory does not suffice. */
export const OutOfMemory = errorClass("OutOfMemory");
/** The GPU was taken away during a call; the next call starts it again. */
export const DeviceLost = errorClass("DeviceLost");
/** A file could not be fetched; `url` and, if a server answered, `status`. What arrived is kept for the next try. */
export const DownloadFailed = errorClass("DownloadFailed");
/** The files are damaged, or no model that this package runs. */
export const UnsupportedModel = errorClass("UnsupportedModel");
/** The call was ended by its signal, or its model was unloaded. */
export const Aborted = errorClass("Aborted");
/** The browser grants too little storage; `missing` bytes have to be freed. */
export const QuotaExceeded = errorClass("QuotaExceeded");
/** The caller's arguments cannot be. */
export const InvalidInput = errorClass("InvalidInput");

const CLASSES = {
    NoWebGpu,
    OutOfMemory,
    DeviceLost,
    DownloadFailed,
    UnsupportedModel,
    Aborted,
    QuotaExceeded,
    InvalidInput,
};

/** What can be done, where the engine's message does not say it. */
const ADVICE = {
    NoWebGpu: 'use a browser with WebGPU on a page of https or localhost, or device: "cpu"',
    DeviceLost: "the next call starts it again",
    UnsupportedModel: "choose another file of the model, or one of the models that the README lists",
};

/**
 * An error as a plain object that can be posted.
 * @param {any} error
 */
export function pack(error) {
    if (error?.name === "AbortError") error = new Aborted("the call was aborted");
    const name = error?.name in CLASSES ? error.name : "InferenceError";
    let message = String(error?.message ?? error);
    const advice = ADVICE[name];
    if (advice && !(error instanceof InferenceError) && !message.includes(advice)) message += `; ${advice}`;
    // Errors of the wasm module have their name as a property of their own.
    const { name: _, ...details } = error instanceof Error ? error : {};
    return { name, message, details };
}

/**
 * The error that was packed.
 * @param {ReturnType<typeof pack>} packed
 */
export function unpack({ name, message, details }) {
    return new (CLASSES[name] ?? InferenceError)(message, details);
}
