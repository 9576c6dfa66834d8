// A stand-in for the package with the same surface: the site's own behaviour is tested on it, fast and in every
// state. `mock` on the window sets what happens next.

export class InferenceError extends Error {
    constructor(message, details) {
        super(message);
        Object.assign(this, details);
    }

    get name() {
        return this.code;
    }

    get code() {
        return "InferenceError";
    }
}

const errorClass = (name) =>
    class extends InferenceError {
        get code() {
            return name;
        }
    };

export const NoWebGpu = errorClass("NoWebGpu");
export const OutOfMemory = errorClass("OutOfMemory");
export const DeviceLost = errorClass("DeviceLost");
export const DownloadFailed = errorClass("DownloadFailed");
export const UnsupportedModel = errorClass("UnsupportedModel");
export const Aborted = errorClass("Aborted");
export const QuotaExceeded = errorClass("QuotaExceeded");
export const InvalidInput = errorClass("InvalidInput");
const CLASSES = { NoWebGpu, OutOfMemory, DeviceLost, DownloadFailed, UnsupportedModel, Aborted, QuotaExceeded, InvalidInput };

const ANSWER = `Here is **an answer** with \`code\` and a list:

- first
- second, *slanted*

\`\`\`rust
fn main() {
    println!("<b>not bold</b>");
}
\`\`\`

It ends with <img src=x onerror="window.hacked = true"> and a [link](https://example.com/).`;

const mock = (window.mock = {
    /** Milliseconds between an answer's parts, and steps of loading. */
    pause: 4,
    loadSteps: 4,
    answer: ANSWER,
    /** @type {string | null} code of the error that the next load, chat or embed throws */
    failLoad: null,
    failChat: null,
    webgpu: true,
    /** Whether models have a chat template. */
    chat: true,
    calls: [],
    cached: new Map([["lfm2-350m", { id: "lfm2-350m", bytes: 90_000_000, complete: false, files: [] }]]),
});

const sleep = (ms, signal) =>
    new Promise((resolve, reject) => {
        const timer = setTimeout(resolve, ms);
        signal?.addEventListener("abort", () => (clearTimeout(timer), reject(new Aborted("the call was aborted"))), { once: true });
        if (signal?.aborted) reject(new Aborted("the call was aborted"));
    });

function fail(code) {
    throw new CLASSES[code](`a made-up ${code}`, code === "QuotaExceeded" ? { missing: 120_000_000, needed: 2e8, usage: 1e8, quota: 1.8e8 } : {});
}

const device = () => ({
    kind: mock.webgpu ? "webgpu" : "cpu",
    name: mock.webgpu ? "Mock GPU" : "CPU",
    software: false,
    f16: true,
    subgroups: true,
    packedDot: true,
    selfCheck: mock.webgpu ? { ok: true, without: [], failures: [], milliseconds: 4.2 } : null,
    reason: mock.webgpu ? null : "there is no WebGPU",
});

/** A bag of words, so that likeness means something. */
function embedOne(text) {
    const vector = new Float32Array(64);
    for (const word of text.toLowerCase().match(/[a-z]+/g) ?? []) {
        let hash = 7;
        for (const character of word) hash = (hash * 31 + character.charCodeAt(0)) >>> 0;
        vector[hash % 64] += 1;
    }
    const length = Math.hypot(...vector) || 1;
    return vector.map((value) => value / length);
}

class Model extends EventTarget {
    constructor(info) {
        super();
        this.info = { ...info, get chat() { return mock.chat; } };
    }

    async embed(texts, { signal } = {}) {
        mock.calls.push({ method: "embed", texts: texts.length });
        await sleep(mock.pause, signal);
        return texts.map(embedOne);
    }

    async *chat(messages, { signal, maxTokens = 512, ...options } = {}) {
        mock.calls.push({ method: "chat", messages: structuredClone(messages), options: { maxTokens, ...options } });
        if (mock.failChat) {
            const code = mock.failChat;
            mock.failChat = null;
            fail(code);
        }
        yield* this.generate(mock.answer, { signal, maxTokens });
    }

    async *generate(prompt, { signal, maxTokens = 512, stop } = {}) {
        mock.calls.push({ method: "generate", prompt, stop });
        const words = typeof prompt === "string" ? prompt.match(/\S+\s*|\s+/g) : Array.from({ length: maxTokens }, () => "word ");
        let tokens = 0;
        for (const text of words.slice(0, maxTokens)) {
            await sleep(mock.pause, signal);
            tokens += 1;
            yield { text, tokens: [tokens], logProbabilities: [-1] };
        }
        const usage = { promptTokens: 20, completionTokens: tokens, totalTokens: 20 + tokens, firstTokenMs: 12, totalMs: 100, tokensPerSecond: 250 };
        yield { text: "", tokens: [], logProbabilities: [], finishReason: tokens < maxTokens ? "stop" : "length", usage };
    }

    async tokenize(text) {
        return Uint32Array.from(text.split(/\s+/), (_, i) => i);
    }

    async detokenize(ids) {
        return Array.from(ids).join(" ");
    }

    async memory() {
        return { device: 120_000_000, wasm: 30_000_000 };
    }

    async unload() {
        mock.calls.push({ method: "unload", name: this.info.name });
    }
}

export async function load(source, { onProgress, signal, device: kind, cache: keep } = {}) {
    const name = typeof source === "string" ? source : source.url ? source.url.replace(/\/$/, "").split("/").pop() : source.files[0].name;
    mock.calls.push({ method: "load", name, device: kind, cache: keep, files: source.files?.length, sha256: source.sha256 });
    if (mock.failLoad) {
        const code = mock.failLoad;
        mock.failLoad = null;
        fail(code);
    }
    const total = 98_000_000;
    for (const phase of ["download", "upload", "compile"]) {
        for (let i = 0; i <= mock.loadSteps; i++) {
            onProgress?.({ phase, bytes: (total * i) / mock.loadSteps, total, speed: 25_000_000 });
            await sleep(mock.pause, signal);
        }
    }
    const embedding = /minilm|e5/i.test(name);
    const id = typeof source === "string" ? source : (source.url ?? name);
    if (keep !== false && !source.files) mock.cached.set(id, { id, bytes: total, complete: true, files: [] });
    return new Model({ id, name, kind: embedding ? "embedding" : "generation", device: device(), context: 2048, dimensions: 64, bytes: total, cached: false });
}

export const cache = {
    list: async () => [...mock.cached.values()],
    async delete(id) {
        if (id === undefined) mock.cached.clear();
        return mock.cached.delete(id);
    },
    estimate: async () => ({ kind: "opfs", usage: 190_000_000, quota: 6_000_000_000, models: 188_000_000, persistent: false }),
};

export async function checkSupport({ selfCheck } = {}) {
    const limits = {
        maxBufferSize: 4294967296,
        maxStorageBufferBindingSize: 2147483644,
        maxComputeWorkgroupStorageSize: 32768,
        maxComputeInvocationsPerWorkgroup: 1024,
        maxStorageBuffersPerShaderStage: 10,
        maxComputeWorkgroupsPerDimension: 65535,
    };
    return {
        webgpu: mock.webgpu,
        adapter: mock.webgpu
            ? { vendor: "mock", architecture: "paper", description: "Mock GPU", fallback: false, features: ["shader-f16", "subgroups", "timestamp-query"], limits }
            : null,
        f16: mock.webgpu,
        subgroups: mock.webgpu,
        wasmSimd: true,
        cache: "opfs",
        locks: true,
        secureContext: true,
        crossOriginIsolated: false,
        reasons: mock.webgpu ? [] : ["the browser has no WebGPU, or it is switched off: models run on the CPU"],
        ...(selfCheck && { device: device() }),
    };
}

export const models = [
    { id: "minilm", about: "all-MiniLM-L6-v2: English sentence embeddings, 384 dimensions, 23 M parameters", kind: "embedding", licence: "Apache-2.0", bytes: 91_400_000 },
    { id: "smollm2-135m", about: "SmolLM2-135M-Instruct: a small English chat model, 135 M parameters in 4 bits", kind: "generation", licence: "Apache-2.0", bytes: 98_362_432 },
    { id: "lfm2-350m", about: "LFM2-350M: chat in eight languages, 354 M parameters in 4 bits", kind: "generation", licence: "LFM Open License v1.0", bytes: 219_000_000 },
    { id: "lfm2-1.2b", about: "LFM2-1.2B: chat in eight languages, 1.2 G parameters in 4 bits", kind: "generation", licence: "LFM Open License v1.0", bytes: 696_000_000 },
];
