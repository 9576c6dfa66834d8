//! Shapes and options of each op on the command line.

use clap::Args;

use super::words::{Activation, Lens, Norm, Pooling, size};

#[derive(Debug, Clone, Args)]
pub struct EmbedArgs {
    #[arg(long, default_value_t = 4096, value_parser = size)]
    pub rows: usize,
    #[arg(long, default_value_t = 768, value_parser = size)]
    pub cols: usize,
    #[arg(long, default_value_t = 30522, value_parser = size)]
    pub vocab: usize,
    /// Positions in the second table
    #[arg(long, default_value_t = 512, value_parser = size)]
    pub positions: usize,
    /// Tables that are summed: ids, then positions, then types
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub tables: u8,
    /// Norm of the sum
    #[arg(long)]
    pub norm: Option<Norm>,
}

#[derive(Debug, Clone, Args)]
pub struct NormArgs {
    #[arg(long, default_value_t = 4096, value_parser = size)]
    pub rows: usize,
    #[arg(long, default_value_t = 768, value_parser = size)]
    pub cols: usize,
    #[arg(long, default_value = "layer")]
    pub kind: Norm,
}

#[derive(Debug, Clone, Args)]
pub struct LinearArgs {
    #[arg(long, default_value_t = 4096, value_parser = size)]
    pub rows: usize,
    #[arg(long = "in", default_value_t = 768, value_parser = size)]
    pub inputs: usize,
    #[arg(long = "out", default_value_t = 768, value_parser = size)]
    pub outputs: usize,
    #[arg(long, default_value = "none")]
    pub act: Activation,
    /// Add a residual
    #[arg(long)]
    pub residual: bool,
    /// Add a bias
    #[arg(long)]
    pub bias: bool,
}

#[derive(Debug, Clone, Args)]
pub struct GatedArgs {
    #[arg(long, default_value_t = 4096, value_parser = size)]
    pub rows: usize,
    #[arg(long = "in", default_value_t = 768, value_parser = size)]
    pub inputs: usize,
    /// Columns of the result; the matrix has twice as many rows
    #[arg(long = "out", default_value_t = 1152, value_parser = size)]
    pub outputs: usize,
    #[arg(long, default_value = "gelu")]
    pub act: Activation,
    /// Add a bias
    #[arg(long)]
    pub bias: bool,
}

#[derive(Debug, Clone, Args)]
pub struct RopeArgs {
    #[arg(long, default_value_t = 4096, value_parser = size)]
    pub rows: usize,
    /// Heads that are turned
    #[arg(long, default_value_t = 24, value_parser = size)]
    pub heads: usize,
    /// Heads in the buffer, turned or not
    #[arg(long, default_value_t = 36, value_parser = size)]
    pub all_heads: usize,
    #[arg(long, default_value_t = 64, value_parser = size)]
    pub head_dim: usize,
    #[arg(long, default_value_t = 8192, value_parser = size)]
    pub positions: usize,
}

#[derive(Debug, Clone, Args)]
pub struct AttentionArgs {
    /// Lengths of the packed sequences, as in 32x512,7
    #[arg(long, default_value = "8x512")]
    pub lens: Lens,
    #[arg(long, default_value_t = 12, value_parser = size)]
    pub heads: usize,
    /// Key and value heads [default: as many as heads]
    #[arg(long, value_parser = size)]
    pub kv_heads: Option<usize>,
    #[arg(long, default_value_t = 64, value_parser = size)]
    pub head_dim: usize,
    /// Attend to keys at most this far away
    #[arg(long, value_parser = clap::value_parser!(u32))]
    pub window: Option<u32>,
    /// Add a relative bias of this radius
    #[arg(long)]
    pub bias_radius: Option<u16>,
}

impl AttentionArgs {
    pub fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }
}

#[derive(Debug, Clone, Args)]
pub struct PoolArgs {
    /// Lengths of the packed sequences, as in 32x512,7
    #[arg(long, default_value = "32x128")]
    pub lens: Lens,
    #[arg(long, default_value_t = 768, value_parser = size)]
    pub cols: usize,
    /// Modes, concatenated
    #[arg(long, default_value = "mean", value_delimiter = ',')]
    pub modes: Vec<Pooling>,
}

#[derive(Debug, Clone, Args)]
pub struct NormalizeArgs {
    #[arg(long, default_value_t = 4096, value_parser = size)]
    pub rows: usize,
    #[arg(long, default_value_t = 768, value_parser = size)]
    pub cols: usize,
    /// Columns kept [default: all]
    #[arg(long, value_parser = size)]
    pub keep: Option<usize>,
    /// Copy without scaling to unit length
    #[arg(long)]
    pub no_unit: bool,
}

impl NormalizeArgs {
    pub fn kept(&self) -> usize {
        self.keep.unwrap_or(self.cols)
    }
}
