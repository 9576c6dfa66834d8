/** What a model runs on: the GPU by WebGPU, one thread of the processor, or whichever is better here. */
export type DeviceKind = "auto" | "webgpu" | "cpu";

/** How far loading has come. */
export interface LoadProgress {
    /** Fetching files, checking those in the cache, moving weights to the device, making kernels. */
    phase: "download" | "verify" | "upload" | "compile";
    /** Done so far; of `compile`, 0 of 1 and then 1 of 1. */
    bytes: number;
    /** All there is to do, as far as it is known. */
    total: number;
    /** Bytes a second, over the last seconds. */
    speed: number;
}

export interface LoadOptions {
    /** Default: "auto", a real GPU if there is one that computes right, else the CPU. */
    device?: DeviceKind;
    /**
     * How numbers are kept. Default: weights in GGUF's blocks as they come; others in f16 on a GPU that has it, else
     * f32. int8 is for embeddings on the CPU.
     */
    dtype?: "f32" | "f16" | "int8";
    /** Keep the files in the browser's storage, and take them from there. Default: true. */
    cache?: boolean;
    onProgress?: (progress: LoadProgress) => void;
    /** Ends loading; what was downloaded is kept for the next time. */
    signal?: AbortSignal;
    /** Most tokens of prompt and answer together. Default: what the model is made for, at most 4096. */
    context?: number;
    /** Where repositories are. Default: "https://huggingface.co". */
    hub?: string;
    /** Embeddings: instead of the model's pooling; several are concatenated. */
    pooling?: ("cls" | "mean" | "max" | "mean_sqrt_len_tokens" | "weightedmean" | "lasttoken")[];
    /** Embeddings: make a vector the same to the last bit whatever else is in the batch. Default: false. */
    deterministic?: boolean;
    /** Embeddings: most tokens of one run; larger batches are split. Default: 8192. */
    maxBatchTokens?: number;
}

/**
 * What to load:
 * - a name: `minilm` or another of {@link models}, or `owner/name` of a hub repository with safetensors;
 * - an address: of a GGUF file (of any part, if it has several), of a checkpoint folder, or of a hub repository;
 * - an address and the SHA-256 that its GGUF file or `model.safetensors` has, or those of files by their path;
 * - files that the user chose or dropped: a GGUF file, or those of a checkpoint folder.
 */
export type ModelSource =
    | string
    | URL
    | { url: string | URL; sha256?: string | Record<string, string> }
    | { files: Iterable<File> | ArrayLike<File> };

export interface EmbedOptions {
    /** The name of one of the model's prompts (`info.prompts`); "" for none. Default: the model's default. */
    prompt?: string;
    /** Keep this many leading values of each vector (Matryoshka). */
    dim?: number;
    /** Whether vectors have unit length. Default: true. */
    normalize?: boolean;
    signal?: AbortSignal;
}

export interface GenerateOptions {
    /** Default: 512. */
    maxTokens?: number;
    /** 0, the default, takes the most likely token each time. */
    temperature?: number;
    /** Keep the most likely tokens that together have this probability. Default: 1, all. */
    topP?: number;
    /** Keep this many most likely tokens. Default: 0, all. */
    topK?: number;
    /** Keep tokens at least this times as likely as the most likely one. Default: 0, all. */
    minP?: number;
    /** Divides the logits of tokens that were there already. Default: 1, off. */
    repetitionPenalty?: number;
    frequencyPenalty?: number;
    presencePenalty?: number;
    /** The same seed gives the same answer on the same device. Default: a random one. */
    seed?: number;
    /** Texts that end the answer; they are not part of it. */
    stop?: string[];
    /** Go on after the model's end-of-sequence tokens. Default: false. */
    ignoreEos?: boolean;
    signal?: AbortSignal;
}

export interface Tool {
    type: "function";
    function: { name: string; description?: string; parameters?: object };
}

export interface ChatOptions extends GenerateOptions {
    /** Functions that the model may ask for, if its template knows them. */
    tools?: Tool[];
    /** What else the template asks for, such as `enable_thinking`. */
    template?: Record<string, unknown>;
}

export interface Message {
    role: "system" | "user" | "assistant" | "tool" | (string & {});
    content: string;
    [key: string]: unknown;
}

export interface Usage {
    promptTokens: number;
    completionTokens: number;
    totalTokens: number;
    /** From the call to the first token. */
    firstTokenMs: number;
    totalMs: number;
    /** After the first token, without the time that was spent waiting for the page. */
    tokensPerSecond: number;
}

/** A piece of an answer. */
export interface Part {
    /** Whole characters. */
    text: string;
    tokens: number[];
    /** Natural logarithms of the tokens' probabilities before temperature and filters. */
    logProbabilities: number[];
    /** With the last part: by an end-of-sequence token or stop text, or by the number of tokens. */
    finishReason?: "stop" | "length";
    /** With the last part. */
    usage?: Usage;
}

export interface DeviceInfo {
    kind: "webgpu" | "cpu";
    name: string;
    /** A processor that poses as a GPU, or is one. */
    software: boolean;
    f16: boolean;
    subgroups: boolean;
    /** Integer dot products of 8-bit activations with weights in blocks. */
    packedDot: boolean;
    maxBufferBytes: number;
    maxBindingBytes: number;
    maxWorkgroupBytes: number;
    maxWorkgroupInvocations: number;
    maxStorageBuffers: number;
    /** The kernels' check against a plain implementation when the device was opened. */
    selfCheck: {
        /** The fastest kernels computed right. */
        ok: boolean;
        /** What is not used since kernels with it computed wrong. */
        without: string[];
        failures: string[];
        milliseconds: number;
    } | null;
    /** Why this is not a GPU, if one was wanted. */
    reason: string | null;
}

export interface ModelInfo {
    /** Its name in the cache. */
    id: string;
    name: string;
    kind: "embedding" | "generation";
    architecture: string;
    device: DeviceInfo;
    /** How matrices that do not come in blocks are kept. */
    dtype: string;
    /** Bytes of its files. */
    bytes: number;
    /** Nothing was downloaded. */
    cached: boolean;
    /** Embeddings: values of a vector. */
    dimensions?: number;
    /** Embeddings: most tokens of one text; longer ones are cut. */
    maxTokens?: number;
    prompts?: string[];
    defaultPrompt?: string | null;
    /** Generation: most tokens of prompt and answer together. */
    context?: number;
    vocabulary?: number;
    /** Generation: there is a chat template. */
    chat?: boolean;
}

export interface ModelWarning {
    /** "DeviceLost" or "WorkerRestarted": the model was loaded again. */
    code: string;
    message: string;
}

/** A loaded model. It fires `warning` events, {@link ModelWarning} being their `detail`. */
export interface Model extends EventTarget {
    readonly info: ModelInfo;
    /** A vector for each text, in order. */
    embed(texts: string[], options?: EmbedOptions): Promise<Float32Array[]>;
    /** The answer to a conversation, by the model's own template, part by part; leaving the loop ends it. */
    chat(messages: Message[], options?: ChatOptions): AsyncGenerator<Part, void, void>;
    /** What follows a text, or token ids. */
    generate(
        prompt: string | number[] | Uint32Array,
        options?: GenerateOptions,
    ): AsyncGenerator<Part, void, void>;
    tokenize(text: string): Promise<Uint32Array>;
    detokenize(ids: ArrayLike<number>): Promise<string>;
    /** Bytes: what the device holds for this model, and the wasm memory that all models share. */
    memory(): Promise<{ device: number; wasm: number }>;
    /** Ends its calls and frees all that it holds. */
    unload(): Promise<void>;
    addEventListener(
        type: "warning",
        listener: (event: CustomEvent<ModelWarning>) => void,
        options?: boolean | AddEventListenerOptions,
    ): void;
    addEventListener(
        type: string,
        listener: EventListenerOrEventListenerObject,
        options?: boolean | AddEventListenerOptions,
    ): void;
}

/**
 * Loads a model in the package's worker.
 *
 * @throws {NoWebGpu} `device: "webgpu"` was asked for and there is none
 * @throws {DownloadFailed} a file could not be fetched
 * @throws {QuotaExceeded} the browser grants too little storage
 * @throws {UnsupportedModel} the files are damaged, or no model that this package runs
 * @throws {OutOfMemory} it does not fit
 * @throws {Aborted} by `signal`
 */
export function load(source: ModelSource, options?: LoadOptions): Promise<Model>;

export interface CachedModel {
    id: string;
    bytes: number;
    /** All files are there; the others' downloads go on from where they ended. */
    complete: boolean;
    files: { path: string; bytes: number; size: number | null; complete: boolean }[];
}

/** Models in the browser's storage. */
export const cache: {
    list(): Promise<CachedModel[]>;
    /** Deletes a model, or all; says whether there was anything. Waits for tabs that are loading it. */
    delete(id?: string): Promise<boolean>;
    /** Bytes: in use by this site, granted to it, and in use by models. */
    estimate(): Promise<{
        kind: "opfs" | "cache-api" | "memory";
        usage: number;
        quota: number;
        models: number;
        persistent: boolean;
    }>;
};

export interface Support {
    webgpu: boolean;
    adapter: {
        vendor?: string;
        architecture?: string;
        device?: string;
        description?: string;
        fallback: boolean;
        features: string[];
        limits: Record<string, number>;
    } | null;
    f16: boolean;
    subgroups: boolean;
    wasmSimd: boolean;
    cache: "opfs" | "cache-api" | "memory";
    locks: boolean;
    secureContext: boolean;
    crossOriginIsolated: boolean;
    /** What is missing and what that means. */
    reasons: string[];
    /** With `selfCheck`. */
    device?: DeviceInfo;
}

/** What this browser can do; with `selfCheck`, the device is opened and its kernels are checked. */
export function checkSupport(options?: { selfCheck?: boolean }): Promise<Support>;

/** Models known by a short name. */
export const models: readonly {
    id: string;
    about: string;
    kind: "embedding" | "generation";
    licence: string;
    /** About how much is downloaded. */
    bytes: number;
}[];

/** What all errors of this package have in common. */
export class InferenceError extends Error {
    /** The class's name, for `switch`. */
    readonly code: string;
}
/** There is no WebGPU, or no adapter that computes right. */
export class NoWebGpu extends InferenceError {}
/** The GPU's or the page's memory does not suffice. */
export class OutOfMemory extends InferenceError {}
/** The GPU was taken away during a call; the next call starts it again. */
export class DeviceLost extends InferenceError {}
/** A file could not be fetched; what arrived is kept for the next try. */
export class DownloadFailed extends InferenceError {
    readonly url?: string;
    /** If a server answered. */
    readonly status?: number;
}
/** The files are damaged, or no model that this package runs. */
export class UnsupportedModel extends InferenceError {}
/** The call was ended by its signal, or its model was unloaded. */
export class Aborted extends InferenceError {}
/** The browser grants too little storage. */
export class QuotaExceeded extends InferenceError {
    /** Bytes that have to be freed. */
    readonly missing: number;
    readonly needed: number;
    readonly usage: number;
    readonly quota: number;
}
/** The caller's arguments cannot be. */
export class InvalidInput extends InferenceError {}
