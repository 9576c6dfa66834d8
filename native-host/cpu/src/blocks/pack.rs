//! Blocks in panels.
//!
//! A panel holds `panel` consecutive outputs (the last one is filled up with zeros): first its scales, then its
//! integers. Four consecutive inputs of an output lie in one 32-bit lane, and lane follows lane, so that a vector
//! is the same inputs of consecutive outputs. 8-bit integers are `[inputs / 4][panel][4]`; 4-bit ones are
//! `[inputs / 8][panel][4]`, the low halves being the first four of eight inputs.
//!
//! 5-bit integers and indices of tables become 8-bit integers, 2-bit and 3-bit ones 4-bit: without loss.

use half::f16;
use inferencelayer_engine::{
    Result,
    format::Format,
    quant::{self, Unpacked},
};

use crate::{gemm::pack::Aligned, isa::Isa, simd::Simd};

/// What the scale of a group of values is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scales {
    /// f16 `[groups][panel]`.
    Half,
    /// f16 `[groups][scale, minimum][panel]`.
    HalfMin,
    /// f32 `[groups][panel]`.
    Float,
    /// i8 `[groups][panel]`, times f16 `[inputs / 256][panel]`.
    Byte,
    /// u8 `[groups][scale, minimum][panel]`, times f16 `[inputs / 256][scale, minimum][panel]`.
    ByteMin,
}

/// How a block format is kept; several share one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Integers of 8 bits, else of 4.
    pub bytes: bool,
    /// What is added to a 4-bit integer to make it unsigned.
    pub offset: i8,
    /// Values that share a scale: 16 or 32.
    pub group: usize,
    pub scales: Scales,
}

/// Inputs of a block of 32 values, which every format's rows are multiples of.
pub const BLOCK: usize = 32;

impl Layout {
    /// `None` for formats without blocks.
    pub const fn of(format: Format) -> Option<Layout> {
        let (bytes, offset, group, scales) = match format {
            Format::Q8_0 | Format::Q5_0 | Format::Iq4Nl => (true, 0, 32, Scales::Half),
            Format::Q5_1 => (true, 0, 32, Scales::HalfMin),
            // Its scales reach beyond f16's range.
            Format::Mxfp4 => (true, 0, 32, Scales::Float),
            Format::Q4_0 => (false, 8, 32, Scales::Half),
            Format::Q4_1 => (false, 0, 32, Scales::HalfMin),
            Format::Q2K => (false, 0, 16, Scales::ByteMin),
            Format::Q3K => (false, 4, 16, Scales::Byte),
            Format::Q4K => (false, 0, 32, Scales::ByteMin),
            Format::Q5K => (true, 0, 32, Scales::ByteMin),
            Format::Q6K => (true, 0, 16, Scales::Byte),
            Format::Iq4Xs => (true, 0, 32, Scales::Byte),
            _ => return None,
        };
        Some(Layout { bytes, offset, group, scales })
    }

    /// Whether groups have minima.
    pub const fn has_min(self) -> bool {
        matches!(self.scales, Scales::HalfMin | Scales::ByteMin)
    }

    /// Bytes of the groups' scales, and of what they are multiplied by, for one output of `inputs` values.
    const fn scale_bytes(self, inputs: usize) -> (usize, usize) {
        let groups = inputs / self.group;
        match self.scales {
            Scales::Half => (2 * groups, 0),
            Scales::HalfMin | Scales::Float => (4 * groups, 0),
            Scales::Byte => (groups, inputs / 256 * 2),
            Scales::ByteMin => (2 * groups, inputs / 256 * 4),
        }
    }

    /// Bytes of `inputs` integers.
    pub const fn integer_bytes(self, inputs: usize) -> usize {
        if self.bytes { inputs } else { inputs / 2 }
    }
}

/// A weight `[outputs, inputs]` in panels.
#[derive(Debug)]
pub struct PackedBlocks {
    pub outputs: usize,
    pub inputs: usize,
    pub layout: Layout,
    pub panel: usize,
    /// What is added to 8-bit integers.
    byte_offset: i32,
    panel_bytes: usize,
    values: Aligned<u8>,
}

/// One panel.
#[derive(Clone, Copy)]
pub struct Panel<'a> {
    pub layout: Layout,
    /// Outputs.
    pub width: usize,
    pub scales: &'a [u8],
    /// What scales are multiplied by: f16.
    pub tops: &'a [u8],
    pub integers: &'a [u8],
}

impl PackedBlocks {
    /// Room for a weight, all zero; `inputs` must be whole blocks of the layout's format.
    pub fn zeroed(isa: Isa, layout: Layout, outputs: usize, inputs: usize) -> Self {
        let geometry = isa.geometry();
        let panel = geometry.panel;
        let (scales, tops) = layout.scale_bytes(inputs);
        let panel_bytes = panel * (scales + tops + layout.integer_bytes(inputs));
        let values = Aligned::zeroed(outputs.div_ceil(panel) * panel_bytes);
        let byte_offset = geometry.byte_offset;
        let mut packed = PackedBlocks { outputs, inputs, layout, panel, byte_offset, panel_bytes, values };
        if layout.bytes && byte_offset != 0 {
            // Zero as it is stored, for the outputs that fill up the last panel.
            for at in 0..outputs.div_ceil(panel) {
                let panel = &mut packed.values.as_mut_slice()[at * panel_bytes..][..panel_bytes];
                panel[(scales + tops) * packed.panel..].fill(byte_offset as u8);
            }
        }
        packed
    }

    /// What is added to the integers as they are stored.
    pub fn offset(&self) -> i32 {
        if self.layout.bytes { self.byte_offset } else { i32::from(self.layout.offset) }
    }

    /// Packs a row given as blocks of `format`, whose layout this is.
    ///
    /// # Errors
    /// Those of [`quant::unpack`].
    pub fn set_row(&mut self, row: usize, format: Format, blocks: &[u8], block: &mut Unpacked) -> Result<()> {
        let (lane, width, layout) = (row % self.panel, self.panel, self.layout);
        let (scale_bytes, top_bytes) = layout.scale_bytes(self.inputs);
        let panel = &mut self.values.as_mut_slice()[row / width * self.panel_bytes..][..self.panel_bytes];
        let (scales, rest) = panel.split_at_mut(scale_bytes * width);
        let (tops, integers) = rest.split_at_mut(top_bytes * width);
        let mut first = 0;
        for bytes in blocks.chunks(format.block_bytes()) {
            quant::unpack(format, bytes, block)?;
            for (i, &q) in block.q[..block.len].iter().enumerate() {
                let input = first + i;
                if layout.bytes {
                    let q = i32::from(q) + self.byte_offset;
                    integers[(input / 4 * width + lane) * 4 + input % 4] = q as u8;
                } else {
                    let byte = &mut integers[(input / 8 * width + lane) * 4 + input % 4];
                    *byte |= ((q + layout.offset) as u8) << (input % 8 / 4 * 4);
                }
            }
            for i in 0..block.len / block.group {
                let group = first / layout.group + i;
                let half = |v: f32| f16::from_f32(v).to_le_bytes();
                let (step, min_step) = block.steps[i];
                match layout.scales {
                    Scales::Half => put(scales, group * width + lane, half(block.scale[i])),
                    Scales::HalfMin => {
                        put(scales, 2 * group * width + lane, half(block.scale[i]));
                        put(scales, (2 * group + 1) * width + lane, half(block.min[i]));
                    }
                    Scales::Float => put(scales, group * width + lane, block.scale[i].to_le_bytes()),
                    Scales::Byte => put(scales, group * width + lane, [step as u8]),
                    Scales::ByteMin => {
                        put(scales, 2 * group * width + lane, [step as u8]);
                        put(scales, (2 * group + 1) * width + lane, [min_step]);
                    }
                }
            }
            let half = |v: f32| f16::from_f32(v).to_le_bytes();
            match layout.scales {
                Scales::Byte => put(tops, first / 256 * width + lane, half(block.d)),
                Scales::ByteMin => {
                    put(tops, first / 256 * 2 * width + lane, half(block.d));
                    put(tops, (first / 256 * 2 + 1) * width + lane, half(block.dmin));
                }
                _ => {}
            }
            first += block.len;
        }
        Ok(())
    }

    pub fn panel(&self, at: usize) -> Panel<'_> {
        let (scales, tops) = self.layout.scale_bytes(self.inputs);
        let panel = &self.values.as_slice()[at * self.panel_bytes..][..self.panel_bytes];
        let (scales, rest) = panel.split_at(scales * self.panel);
        let (tops, integers) = rest.split_at(tops * self.panel);
        Panel { layout: self.layout, width: self.panel, scales, tops, integers }
    }

    /// Adds a row's values to `out`, which has `inputs` values. The row must exist.
    pub fn add_row(&self, row: usize, out: &mut [f32]) {
        let (panel, lane, offset) = (self.panel(row / self.panel), row % self.panel, self.offset());
        for (group, out) in out.chunks_mut(self.layout.group).enumerate() {
            let (scale, min) = panel.scale(group, lane);
            for (i, out) in out.iter_mut().enumerate() {
                let input = group * self.layout.group + i;
                let q = if self.layout.bytes {
                    let byte = panel.integers[(input / 4 * self.panel + lane) * 4 + input % 4];
                    // Stored as it is, or made unsigned.
                    if offset == 0 { i32::from(byte as i8) } else { i32::from(byte) - offset }
                } else {
                    let byte = panel.integers[(input / 8 * self.panel + lane) * 4 + input % 4];
                    i32::from(byte >> (input % 8 / 4 * 4) & 15) - offset
                };
                *out += scale * q as f32 + min;
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.values.bytes()
    }
}

fn put<const N: usize>(plane: &mut [u8], at: usize, value: [u8; N]) {
    plane[at * N..][..N].copy_from_slice(&value);
}

fn half_at(plane: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([plane[2 * at], plane[2 * at + 1]]).to_f32()
}

impl Panel<'_> {
    /// Scale and minimum of one output's group.
    fn scale(&self, group: usize, lane: usize) -> (f32, f32) {
        let (width, top) = (self.width, group * self.layout.group / 256);
        match self.layout.scales {
            Scales::Half => (half_at(self.scales, group * width + lane), quant::NO_MIN),
            Scales::HalfMin => {
                let at = 2 * group * width + lane;
                (half_at(self.scales, at), half_at(self.scales, at + width))
            }
            Scales::Float => {
                let bytes = &self.scales[(group * width + lane) * 4..][..4];
                (f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]), quant::NO_MIN)
            }
            Scales::Byte => {
                let step = self.scales[group * width + lane] as i8;
                (half_at(self.tops, top * width + lane) * f32::from(step), quant::NO_MIN)
            }
            Scales::ByteMin => {
                let (at, top) = (2 * group * width + lane, 2 * top * width + lane);
                let (step, min_step) = (self.scales[at], self.scales[at + width]);
                let min = half_at(self.tops, top + width) * f32::from(min_step);
                (half_at(self.tops, top) * f32::from(step), -min)
            }
        }
    }

    /// Scales and minima of `groups` from `first` on, `[groups][width]` each; minima only where there are any.
    #[inline(always)]
    pub fn scales<S: Simd>(&self, s: S, first: usize, groups: usize, scales: &mut [f32], mins: &mut [f32]) {
        let width = S::NV * S::LANES;
        debug_assert_eq!(width, self.width);
        /// One vector of f16, as f32.
        #[inline(always)]
        fn halves<S: Simd>(s: S, plane: &[u8], at: usize) -> S::F {
            let plane = &plane[2 * at..][..2 * S::LANES];
            // SAFETY: the slice has a vector's bytes.
            unsafe { s.load_half(plane.as_ptr().cast()) }
        }
        /// One vector of bytes, as f32; unsigned ones are less than 64.
        #[inline(always)]
        fn steps<S: Simd>(s: S, plane: &[u8], at: usize) -> S::F {
            let plane = &plane[at..][..S::LANES];
            // SAFETY: the slice has a vector's bytes.
            unsafe { s.load_bytes(plane.as_ptr().cast()) }
        }
        let per_top = 256 / self.layout.group;
        for group in 0..groups {
            let at = first + group;
            let scales = &mut scales[group * width..][..width];
            match self.layout.scales {
                Scales::Half => {
                    for (v, to) in scales.chunks_exact_mut(S::LANES).enumerate() {
                        s.store_part(to, halves(s, self.scales, at * width + v * S::LANES));
                    }
                }
                Scales::HalfMin => {
                    let mins = &mut mins[group * width..][..width];
                    for (v, (to, min)) in
                        scales.chunks_exact_mut(S::LANES).zip(mins.chunks_exact_mut(S::LANES)).enumerate()
                    {
                        s.store_part(to, halves(s, self.scales, 2 * at * width + v * S::LANES));
                        s.store_part(min, halves(s, self.scales, (2 * at + 1) * width + v * S::LANES));
                    }
                }
                Scales::Float => {
                    let plane = &self.scales[at * width * 4..][..width * 4];
                    for (to, from) in scales.iter_mut().zip(plane.as_chunks::<4>().0) {
                        *to = f32::from_le_bytes(*from);
                    }
                }
                Scales::Byte => {
                    let top = at / per_top * width;
                    for (v, to) in scales.chunks_exact_mut(S::LANES).enumerate() {
                        let step = steps(s, self.scales, at * width + v * S::LANES);
                        s.store_part(to, s.mul(halves(s, self.tops, top + v * S::LANES), step));
                    }
                }
                Scales::ByteMin => {
                    let mins = &mut mins[group * width..][..width];
                    let (at, top) = (2 * at * width, at / per_top * 2 * width);
                    for (v, (to, min)) in
                        scales.chunks_exact_mut(S::LANES).zip(mins.chunks_exact_mut(S::LANES)).enumerate()
                    {
                        let lane = v * S::LANES;
                        let scale = steps(s, self.scales, at + lane);
                        s.store_part(to, s.mul(halves(s, self.tops, top + lane), scale));
                        let step = s.sub(s.splat(0.0), steps(s, self.scales, at + width + lane));
                        s.store_part(min, s.mul(halves(s, self.tops, top + width + lane), step));
                    }
                }
            }
        }
    }
}
