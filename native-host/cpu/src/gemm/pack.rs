//! Weights in panels.
//!
//! A panel holds `panel` consecutive outputs (the last one is filled up with zeros), input by input: f32 as
//! `[in][panel]`, 8-bit as `[in / dot][panel][dot]`. Rows are packed as they arrive.

use super::super::isa::Isa;

/// One cache line; memory made of these is aligned for every instruction set.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Zeroed memory, aligned to cache lines, of plain values.
#[derive(Debug, Default)]
pub struct Aligned<T> {
    lines: Vec<Line>,
    len: usize,
    of: core::marker::PhantomData<T>,
}

/// Types of which every bit pattern is a value.
pub trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for i8 {}
impl Plain for u8 {}
impl Plain for i32 {}
impl Plain for u32 {}

impl<T: Plain> Aligned<T> {
    pub fn zeroed(len: usize) -> Self {
        let lines = (len * size_of::<T>()).div_ceil(64);
        Aligned { lines: vec![Line([0; 64]); lines], len, of: core::marker::PhantomData }
    }

    /// The same as pages that the system zeroes when they are first touched; `None` if there is no such memory.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let count = len.checked_mul(size_of::<T>())?.div_ceil(64);
        if count == 0 {
            return Some(Aligned { lines: Vec::new(), len, of: core::marker::PhantomData });
        }
        let layout = std::alloc::Layout::array::<Line>(count).ok()?;
        // SAFETY: the layout is not empty. The memory is the global allocator's, of a vector's layout, and zero
        // bytes are lines.
        let lines = unsafe {
            let p = std::alloc::alloc_zeroed(layout).cast::<Line>();
            if p.is_null() {
                return None;
            }
            Vec::from_raw_parts(p, count, count)
        };
        Some(Aligned { lines, len, of: core::marker::PhantomData })
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.lines.len() * 64
    }

    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the lines hold at least `len` values, all bytes are initialised, every bit pattern is a value,
        // and 64 is a multiple of every alignment of a `Plain` type.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and the borrow is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

/// A weight `[outputs, inputs]` in f32 panels.
#[derive(Debug)]
pub struct PackedF32 {
    pub outputs: usize,
    pub inputs: usize,
    panel: usize,
    values: Aligned<f32>,
}

impl PackedF32 {
    /// Room for a weight, all zero.
    pub fn zeroed(isa: Isa, outputs: usize, inputs: usize) -> Self {
        let panel = isa.geometry().panel;
        let values = Aligned::zeroed(outputs.div_ceil(panel) * panel * inputs);
        PackedF32 { outputs, inputs, panel, values }
    }

    /// Packs consecutive values of the row-major weight, the first of which is at index `at`.
    pub fn set(&mut self, at: usize, values: &[f32]) {
        let (mut row, mut col, mut rest) = (at / self.inputs, at % self.inputs, values);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(self.inputs - col));
            let (first, lane) = ((row / self.panel) * self.panel * self.inputs, row % self.panel);
            let panel = &mut self.values.as_mut_slice()[first..][..self.panel * self.inputs];
            let lane = panel[col * self.panel..].iter_mut().skip(lane).step_by(self.panel);
            lane.zip(now).for_each(|(to, from)| *to = *from);
            (row, col, rest) = (row + 1, 0, later);
        }
    }

    /// Adds a row's values to `out`, which has `inputs` values. The row must exist.
    pub fn add_row(&self, row: usize, out: &mut [f32]) {
        let lane = self.panel(row / self.panel).iter().skip(row % self.panel).step_by(self.panel);
        out.iter_mut().zip(lane).for_each(|(to, from)| *to += from);
    }

    /// Panels, the last one filled up.
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(self.panel)
    }

    /// One panel: `[inputs][panel]`.
    pub fn panel(&self, at: usize) -> &[f32] {
        let size = self.panel * self.inputs;
        &self.values.as_slice()[at * size..][..size]
    }

    pub fn bytes(&self) -> usize {
        self.values.bytes()
    }
}

/// Most inputs of an 8-bit weight: beyond, sums of products could pass 32 bits.
pub const MAX_INT8_INPUTS: usize = 1 << 16;

/// A weight `[outputs, inputs]` in panels of 8-bit integers with a scale for each output.
#[derive(Debug)]
pub struct PackedInt8 {
    pub outputs: usize,
    pub inputs: usize,
    panel: usize,
    dot: usize,
    values: Aligned<i8>,
    scales: Aligned<f32>,
    sums: Aligned<i32>,
}

impl PackedInt8 {
    /// Room for a weight, all zero.
    pub fn zeroed(isa: Isa, outputs: usize, inputs: usize) -> Self {
        let (panel, dot) = (isa.geometry().panel, isa.geometry().dot);
        let filled = outputs.div_ceil(panel) * panel;
        PackedInt8 {
            outputs,
            inputs,
            panel,
            dot,
            values: Aligned::zeroed(filled * inputs.next_multiple_of(dot)),
            scales: Aligned::zeroed(filled),
            sums: Aligned::zeroed(filled),
        }
    }

    /// Quantizes one row: symmetric, its largest magnitude becomes 127.
    pub fn set_row(&mut self, row: usize, values: &[f32]) {
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let scale = largest / 127.0;
        let size = self.panel * self.steps() * self.dot;
        let panel = &mut self.values.as_mut_slice()[(row / self.panel) * size..][..size];
        let mut sum = 0i32;
        for (i, v) in values.iter().enumerate() {
            let q = if scale > 0.0 { (v / scale).round().clamp(-127.0, 127.0) as i8 } else { 0 };
            panel[((i / self.dot) * self.panel + row % self.panel) * self.dot + i % self.dot] = q;
            sum += i32::from(q);
        }
        self.scales.as_mut_slice()[row] = scale;
        self.sums.as_mut_slice()[row] = sum;
    }

    /// Dot steps along the inputs.
    pub fn steps(&self) -> usize {
        self.inputs.div_ceil(self.dot)
    }

    /// Panels, the last one filled up.
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(self.panel)
    }

    /// One panel: `[steps][panel][dot]`, its outputs' scales, and the sums of their weights.
    pub fn panel(&self, at: usize) -> (&[i8], &[f32], &[i32]) {
        let (size, outputs) = (self.panel * self.steps() * self.dot, at * self.panel..(at + 1) * self.panel);
        let values = &self.values.as_slice()[at * size..][..size];
        (values, &self.scales.as_slice()[outputs.clone()], &self.sums.as_slice()[outputs])
    }

    pub fn bytes(&self) -> usize {
        self.values.bytes() + self.scales.bytes() + self.sums.bytes()
    }
}
