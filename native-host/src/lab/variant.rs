//! Variants: a backend, the formats it keeps, and its options, under one name.

use std::{fmt, str::FromStr, sync::Arc};

use inferencelayer_engine::{
    backend::Backend,
    gpu::{AdapterChoice, GpuBackend, GpuContext, GpuFormats, GpuOptions},
    reference::Reference,
    task::block_on,
    tensor::{DType, Format},
};

use crate::{
    Result,
    device::{self, DeviceOptions},
};

/// The kind of machine a variant runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    Gpu,
    Cpu,
    Reference,
}

const DEVICES: [(&str, Device); 3] =
    [("gpu", Device::Gpu), ("cpu", Device::Cpu), ("reference", Device::Reference)];
const FORMATS: [(&str, Format); 3] = [("f32", Format::F32), ("f16", Format::F16), ("int8", Format::Int8)];

/// One way of running an op: `gpu-f16-nocoop`, `reference`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    pub device: Device,
    /// Of matrices; the GPU keeps activations and tables in it too.
    pub format: Format,
    /// Blocks that matrices and the first table come in instead.
    pub blocks: Option<Blocks>,
    /// Words after device and format.
    options: Vec<GpuWord>,
}

/// Weights in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    pub format: Format,
    /// They multiply activations in 8-bit blocks where rows are few.
    pub q8: bool,
}

/// A switch of the GPU backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GpuWord {
    NoCooperativeMatrix,
    NoSubgroups,
    NoF16,
    DefaultLimits,
    CheckedShaders,
    AsHardware,
    Tile(&'static str),
}

const GPU_WORDS: [(&str, GpuWord); 12] = [
    ("nocoop", GpuWord::NoCooperativeMatrix),
    ("nosubgroups", GpuWord::NoSubgroups),
    ("nof16", GpuWord::NoF16),
    ("default-limits", GpuWord::DefaultLimits),
    ("checked", GpuWord::CheckedShaders),
    ("as-hardware", GpuWord::AsHardware),
    ("tile128", GpuWord::Tile("128")),
    ("tile128n", GpuWord::Tile("128n")),
    ("tile64w", GpuWord::Tile("64w")),
    ("tile64", GpuWord::Tile("64")),
    ("tile32", GpuWord::Tile("32")),
    ("tile16", GpuWord::Tile("16")),
];

fn name_of<T: PartialEq + Copy>(table: &[(&'static str, T)], value: T) -> &'static str {
    table.iter().find(|(_, v)| *v == value).map_or("", |(name, _)| name)
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&DEVICES, self.device))?;
        if !self.blocks.is_some_and(|b| b.q8) {
            write!(f, "-{}", name_of(&FORMATS, self.format))?;
        }
        if let Some(blocks) = self.blocks {
            write!(f, "-{}", blocks.format.name().to_lowercase())?;
        }
        self.options.iter().try_for_each(|word| write!(f, "-{}", name_of(&GPU_WORDS, *word)))
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (device, mut rest) = text.split_once('-').unwrap_or((text, ""));
        let Some((_, device)) = DEVICES.iter().find(|(name, _)| *name == device) else {
            return Err(format!("`{text}`: a variant begins with one of {}", names(&DEVICES)));
        };
        let mut variant = Variant { device: *device, format: Format::F32, blocks: None, options: Vec::new() };
        let word = |rest: &mut &str, name: &str| match rest.strip_prefix(name) {
            Some(after) if after.is_empty() || after.starts_with('-') => {
                *rest = after.trim_start_matches('-');
                true
            }
            _ => false,
        };
        let floats = FORMATS.iter().find(|(name, _)| word(&mut rest, name));
        if let Some((_, format)) = floats {
            variant.format = *format;
        }
        let of_blocks = |f: &Format| word(&mut rest, &f.name().to_lowercase());
        if let Some(format) = Format::BLOCKS.into_iter().find(of_blocks) {
            variant.blocks = Some(Blocks { format, q8: floats.is_none() });
            if floats.is_none() && *device == Device::Gpu {
                variant.format = Format::F16;
            }
        }
        while *device == Device::Gpu
            && let Some((_, option)) = GPU_WORDS.iter().find(|(name, _)| word(&mut rest, name))
        {
            variant.options.push(*option);
        }
        if !rest.is_empty() {
            let words = if *device == Device::Gpu { names(&GPU_WORDS) } else { "nothing".into() };
            return Err(format!(
                "`{text}`: after the device come one of {}, a format of blocks such as q4_0, and {words}",
                names(&FORMATS)
            ));
        }
        if variant.blocks.is_some() && (*device == Device::Cpu || variant.format == Format::Int8) {
            return Err(format!("`{text}`: blocks are kept beside f32 or f16, by the GPU and the reference"));
        }
        match (*device, variant.format) {
            (Device::Gpu, Format::Int8) => Err(format!("`{text}`: the GPU keeps f32 or f16")),
            (Device::Cpu, Format::F16) => Err(format!("`{text}`: the CPU keeps matrices in f32 or int8")),
            _ => Ok(variant),
        }
    }
}

fn names<T>(table: &[(&'static str, T)]) -> String {
    table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// A variant's backend.
pub enum Opened {
    Gpu(Arc<GpuBackend>),
    Other(Arc<dyn Backend>),
}

impl Opened {
    /// The backend, to be held by an engine.
    pub fn shared(&self) -> Arc<dyn Backend> {
        match self {
            Opened::Gpu(gpu) => gpu.clone(),
            Opened::Other(other) => other.clone(),
        }
    }

    pub fn backend(&self) -> &dyn Backend {
        match self {
            Opened::Gpu(gpu) => &**gpu,
            Opened::Other(other) => &**other,
        }
    }
}

impl Variant {
    /// What a device is usually run with.
    pub fn usual(device: Device) -> Vec<Variant> {
        let formats: &[Format] = match device {
            Device::Gpu => &[Format::F32, Format::F16],
            Device::Cpu => &[Format::F32, Format::Int8],
            Device::Reference => &[Format::F32],
        };
        formats
            .iter()
            .map(|format| Variant { device, format: *format, blocks: None, options: Vec::new() })
            .collect()
    }

    /// The GPU options that the variant's words stand for.
    pub fn gpu_options(&self, adapter: &AdapterChoice) -> GpuOptions {
        let has = |word| self.options.contains(&word);
        GpuOptions {
            adapter: adapter.clone(),
            default_limits: has(GpuWord::DefaultLimits),
            no_f16: has(GpuWord::NoF16),
            no_subgroups: has(GpuWord::NoSubgroups),
            no_cooperative_matrix: has(GpuWord::NoCooperativeMatrix),
            as_hardware: has(GpuWord::AsHardware),
            checked_shaders: has(GpuWord::CheckedShaders),
            linear_tile: self
                .options
                .iter()
                .find_map(|w| if let GpuWord::Tile(t) = w { Some(*t) } else { None }),
            ..Default::default()
        }
    }

    /// Opens the variant's backend.
    ///
    /// # Errors
    /// `NoAdapter` and the backend's other errors.
    pub fn open(&self, adapter: &AdapterChoice, threads: usize) -> Result<Opened> {
        match self.device {
            Device::Gpu => {
                let context = block_on(GpuContext::new(&self.gpu_options(adapter)))?;
                let q8_activations = self.blocks.is_some_and(|b| b.q8);
                let formats = GpuFormats { floats: self.format, q8_activations };
                Ok(Opened::Gpu(Arc::new(GpuBackend::new(context, formats)?)))
            }
            Device::Cpu => {
                let dtype =
                    if self.format == Format::Int8 { device::Dtype::Int8 } else { device::Dtype::F32 };
                let options = DeviceOptions {
                    device: device::Device::Cpu,
                    dtype: Some(dtype),
                    threads: Some(threads),
                    ..DeviceOptions::default()
                };
                Ok(Opened::Other(device::open(&options)?.backend))
            }
            Device::Reference => {
                let activations = if self.format == Format::F16 { DType::F16 } else { DType::F32 };
                let q8_rows = if self.blocks.is_some_and(|b| b.q8) { 8 } else { 0 };
                Ok(Opened::Other(Arc::new(
                    Reference::with_formats(activations, self.format).with_q8(q8_rows),
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in [
            "gpu-f32",
            "gpu-f16-nocoop",
            "gpu-f16-nocoop-default-limits",
            "cpu-int8",
            "reference-int8",
            "gpu-q4_0",
            "gpu-f32-q4_k-nocoop",
            "gpu-f16-mxfp4",
            "reference-iq4_nl",
        ] {
            assert_eq!(name.parse::<Variant>().unwrap().to_string(), name);
        }
        assert_eq!("reference".parse::<Variant>().unwrap().to_string(), "reference-f32");
        let variant: Variant = "gpu-q6_k".parse().unwrap();
        assert_eq!(
            (variant.format, variant.blocks),
            (Format::F16, Some(Blocks { format: Format::Q6K, q8: true }))
        );
        let variant: Variant = "gpu-default-limits-nof16".parse().unwrap();
        assert_eq!(variant.to_string(), "gpu-f32-default-limits-nof16");
        let options = variant.gpu_options(&AdapterChoice::Index(3));
        assert!(options.default_limits && options.no_f16 && !options.no_cooperative_matrix);
        assert_eq!(options.adapter, AdapterChoice::Index(3));
    }

    #[test]
    fn unknown_words_are_named() {
        for bad in [
            "",
            "tpu",
            "gpu-f17",
            "gpu-f16-fast",
            "gpu-int8",
            "reference-nocoop",
            "gpu-f32x",
            "cpu-f16",
            "cpu-int8-nocoop",
            "cpu-q4_0",
            "gpu-q4_9",
            "gpu-q4_0-f16",
            "reference-int8-q4_0",
        ] {
            let error = bad.parse::<Variant>().unwrap_err();
            assert!(error.contains(&format!("`{bad}`")), "{error}");
        }
    }
}
