//! Tensor descriptions: element types, weights' uses, and the handle of a weight that a backend holds.

use alloc::{string::String, sync::Arc};
use core::{any::Any, fmt};

use crate::quant::q8;
pub use crate::{format::Format, quant::decode_f32};

/// Element type of a program's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    F32,
    /// IEEE half precision; arithmetic on it is always done in f32.
    F16,
    U32,
    /// Signed 8-bit integers with a scale for each [`q8::BLOCK`] of a row, only between two ops: what integer dot
    /// products with block-format weights take. [`crate::quant::q8`] has the layout and the rounding.
    Q8,
}

impl DType {
    /// Bytes of a row of `cols` elements.
    pub const fn row_bytes(self, cols: usize) -> usize {
        match self {
            DType::F32 | DType::U32 => cols * 4,
            DType::F16 => cols * 2,
            DType::Q8 => q8::row_words(cols) * 4,
        }
    }
}

/// What a weight is used for; it decides the layout a backend keeps it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightUse {
    /// `[out, in]` matrix of a linear op.
    Matrix,
    /// Table whose rows are looked up (embeddings, RoPE tables).
    Table,
    /// Small vectors read whole: biases, norm parameters, attention bias tables. Always kept in f32.
    Vector,
}

/// What a backend must know before a weight's bytes arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightSpec {
    /// For error messages: the tensor's name in the checkpoint.
    pub name: String,
    pub rows: usize,
    pub cols: usize,
    /// Encoding to keep it in.
    pub format: Format,
    pub usage: WeightUse,
}

/// Backend memory that holds one weight or state; freed when the last handle is dropped.
pub trait WeightStorage: Any + fmt::Debug + MaybeSendSync {
    fn as_any(&self) -> &dyn Any;
}

/// A weight that a backend holds, `[rows, cols]`.
#[derive(Debug, Clone)]
pub struct Weight {
    spec: Arc<WeightSpec>,
    storage: Arc<dyn WeightStorage>,
}

impl Weight {
    pub fn new(spec: WeightSpec, storage: Arc<dyn WeightStorage>) -> Self {
        Weight { spec: Arc::new(spec), storage }
    }

    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub fn rows(&self) -> usize {
        self.spec.rows
    }

    pub fn cols(&self) -> usize {
        self.spec.cols
    }

    pub fn format(&self) -> Format {
        self.spec.format
    }

    pub fn usage(&self) -> WeightUse {
        self.spec.usage
    }

    /// The storage, if it belongs to the backend whose storage type is `T`.
    pub fn storage<T: 'static>(&self) -> Option<&T> {
        self.storage.as_any().downcast_ref()
    }
}

/// Memory that outlives runs and plans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSpec {
    /// For error messages and profiles.
    pub name: &'static str,
    pub dtype: DType,
    pub rows: usize,
    /// A multiple of 4, of 2 words at least.
    pub cols: usize,
}

impl StateSpec {
    /// 32-bit words of one row.
    pub const fn row_words(&self) -> usize {
        self.dtype.row_bytes(self.cols) / 4
    }

    pub const fn bytes(&self) -> u64 {
        self.rows as u64 * self.dtype.row_bytes(self.cols) as u64
    }
}

/// What a backend keeps between runs (key-value caches, page tables, the next tokens), `[rows, cols]`; freed when
/// the last handle and the last plan that uses it are dropped.
#[derive(Debug, Clone)]
pub struct State {
    spec: Arc<StateSpec>,
    storage: Arc<dyn WeightStorage>,
}

impl State {
    pub fn new(spec: StateSpec, storage: Arc<dyn WeightStorage>) -> Self {
        State { spec: Arc::new(spec), storage }
    }

    pub fn spec(&self) -> &StateSpec {
        &self.spec
    }

    /// The storage, if it belongs to the backend whose storage type is `T`.
    pub fn storage<T: 'static>(&self) -> Option<&T> {
        self.storage.as_any().downcast_ref()
    }

    /// Are these handles of the same memory?
    pub fn same(&self, other: &State) -> bool {
        Arc::ptr_eq(&self.spec, &other.spec)
    }
}

/// `Send + Sync` natively; nothing on wasm32, where GPU objects stay on the thread that made them.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSendSync: Send + Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + Sync + ?Sized> MaybeSendSync for T {}
/// `Send + Sync` natively; nothing on wasm32, where GPU objects stay on the thread that made them.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSendSync {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSendSync for T {}
