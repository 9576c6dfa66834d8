//! The engine's one error type. Every variant names the culprit and, where there is a remedy, says it.

use alloc::string::String;

/// What can go wrong in the engine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file's bytes do not follow its format.
    #[error("{file}: {why}")]
    Malformed { file: String, why: String },
    /// A file is missing or cannot be read.
    #[error("{file}: {why}")]
    Read { file: String, why: String },
    /// A checkpoint lacks a tensor.
    #[error("tensor `{tensor}` is missing from {file}")]
    MissingTensor { tensor: String, file: String },
    /// A tensor or an operand has another shape than the model needs.
    #[error("{what}: expected shape {expected}, found {found}")]
    Shape { what: String, expected: String, found: String },
    /// A model configuration lacks a key or holds an impossible value.
    #[error("config key `{key}`: {why}")]
    Config { key: String, why: String },
    /// Something that this engine, backend or adapter does not do.
    #[error("{0}")]
    Unsupported(String),
    /// The caller's input cannot be processed.
    #[error("{0}")]
    Input(String),
    /// No adapter matches what was asked for.
    #[error("no usable GPU: {0}")]
    NoAdapter(String),
    /// The adapter's limits are too small for the model.
    #[error(
        "{what} needs {needed} bytes, but this GPU allows {limit}; use a smaller model, batch or dtype, or the CPU"
    )]
    TooLarge { what: String, needed: u64, limit: u64 },
    /// The device ran out of memory.
    #[error("out of GPU memory while allocating {0}; use a smaller model, batch or dtype, or the CPU")]
    OutOfMemory(String),
    /// The device was lost (driver reset, unplugged, destroyed).
    #[error("the GPU device was lost: {0}")]
    DeviceLost(String),
    /// A result is not a number.
    #[error(
        "{0} is not finite: the model's weights are damaged, or its values overflow in this dtype (f32 holds the largest)"
    )]
    NotFinite(String),
    /// The driver or the API reported a fault that is a bug of ours or of the driver.
    #[error("GPU error: {0}")]
    Gpu(String),
}

/// Result with the engine's error.
pub type Result<T, E = Error> = core::result::Result<T, E>;
