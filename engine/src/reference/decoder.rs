//! The decoders' ops but sampling, as plain loops.

use alloc::{format, vec, vec::Vec};

use super::ops::{Scope, activate, dot, project, turn_head, values};
use crate::{
    Error, Result,
    op::{
        CachedAttention, ConvRows, ExpertGatedLinear, ExpertLinear, PAGE, Route, Scoring, ShortConv, StoreKv,
    },
    program::BufferId,
};

/// Position and slot of a row of `tokens`.
struct Place {
    position: usize,
    slot: usize,
}

impl Scope<'_> {
    fn place(&self, tokens: BufferId, row: usize) -> Place {
        let token = &self.integers[tokens.index()][row * 4..][..4];
        Place { position: token[1] as usize, slot: token[3] as usize }
    }

    /// Row of the cache that holds a position.
    fn cache_row(&self, pages: BufferId, cache: BufferId, place: &Place) -> Result<usize> {
        let (cols, rows) = (self.program.spec(pages).cols, self.program.spec(cache).rows);
        let Place { position, slot } = *place;
        let page = (position / PAGE < cols)
            .then(|| self.integers[pages.index()].get(slot * cols + position / PAGE))
            .flatten();
        let row = page.map_or(usize::MAX, |page| (*page as usize).saturating_mul(PAGE) + position % PAGE);
        if row < rows {
            return Ok(row);
        }
        Err(Error::Input(format!("position {position} of slot {slot} has no page in the cache")))
    }

    pub(super) fn store_kv(&mut self, o: &StoreKv) -> Result<()> {
        let (rows, _) = self.shape(o.qkv);
        let d = o.head_dim;
        let table = values(&o.rope)?;
        for row in 0..rows {
            let place = self.place(o.tokens, row);
            let target = self.cache_row(o.pages, o.cache, &place)?;
            let Some(angles) = table.get(place.position * d..(place.position + 1) * d) else {
                let (position, limit) = (place.position, o.rope.rows());
                return Err(Error::Input(format!("position {position} in a RoPE table of {limit}")));
            };
            for head in 0..o.heads + 2 * o.kv_heads {
                let mut v = self.row(o.qkv, row)[head * d..][..d].to_vec();
                let is_query = head < o.heads;
                let is_value = head >= o.heads + o.kv_heads;
                if !is_value {
                    turn_head(&mut v, if is_query { &o.q_norm } else { &o.k_norm }, angles)?;
                }
                for (i, v) in v.into_iter().enumerate() {
                    if is_query {
                        self.store(o.qkv, row, head * d + i, v);
                    } else {
                        self.store(o.cache, target, (head - o.heads) * d + i, v);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn cached_attention(&mut self, o: &CachedAttention) -> Result<()> {
        let (rows, _) = self.shape(o.q);
        let d = o.head_dim;
        for row in 0..rows {
            let place = self.place(o.tokens, row);
            let keys: Vec<usize> = (0..=place.position)
                .map(|position| self.cache_row(o.pages, o.cache, &Place { position, slot: place.slot }))
                .collect::<Result<_>>()?;
            for head in 0..o.heads {
                let kv_head = head / (o.heads / o.kv_heads);
                let q = &self.row(o.q, row)[head * d..][..d];
                let scores: Vec<f64> = keys
                    .iter()
                    .map(|k| f64::from(o.scale) * dot(q, &self.row(o.cache, *k)[kv_head * d..][..d]))
                    .collect();
                let largest = scores.iter().fold(f64::MIN, |m, s| m.max(*s));
                let weights: Vec<f64> = scores.iter().map(|s| libm::exp(s - largest)).collect();
                let total: f64 = weights.iter().sum();
                for i in 0..d {
                    let column = (o.kv_heads + kv_head) * d + i;
                    let sum: f64 = keys
                        .iter()
                        .zip(&weights)
                        .map(|(k, w)| w * f64::from(self.row(o.cache, *k)[column]))
                        .sum();
                    self.store(o.out, row, head * d + i, (sum / total) as f32);
                }
            }
        }
        Ok(())
    }

    pub(super) fn short_conv(&mut self, o: &ShortConv) -> Result<()> {
        let (rows, cols) = self.shape(o.out);
        let kept = o.weight.rows() - 1;
        let (tokens, spans, state) = match o.rows {
            ConvRows::Slots { tokens, spans, state } => (tokens, spans, state),
            ConvRows::Sequences { tiles, ahead } => return self.sequence_conv(o, tiles, ahead),
        };
        let spans: Vec<(usize, usize)> = match spans {
            Some(spans) => {
                let (count, _) = self.shape(spans);
                let pairs = self.integers[spans.index()].as_chunks::<2>().0;
                pairs[..count].iter().map(|s| (s[0] as usize, s[1] as usize)).collect()
            }
            None => (0..rows).map(|row| (row, row + 1)).collect(),
        };
        for (first, end) in spans {
            if first >= end {
                continue;
            }
            let Place { position, slot } = self.place(tokens, first);
            if (slot + 1) * kept > self.program.spec(state).rows || end > rows {
                return Err(Error::Input(format!("slot {slot}, rows {first}..{end} of a convolution")));
            }
            for col in 0..cols {
                // The last inputs before this run, then this run's.
                let mut u: Vec<f32> = (0..kept)
                    .map(|j| {
                        // Column j lies kept − j positions back; before position 0 there is nothing.
                        let there = position + j >= kept;
                        if there { self.row(state, slot * kept + j)[col] } else { 0.0 }
                    })
                    .collect();
                for row in first..end {
                    u.push(self.conv_input(o, row, col));
                    self.convolve(o, row, col, &u[row - first..][..=kept])?;
                }
                for j in 0..kept {
                    let last = u[u.len() - kept + j];
                    self.store(state, slot * kept + j, col, last);
                }
            }
        }
        Ok(())
    }

    /// A short convolution of whole sequences.
    fn sequence_conv(&mut self, o: &ShortConv, tiles: BufferId, ahead: usize) -> Result<()> {
        let ((count, _), (rows, cols), taps) = (self.shape(tiles), self.shape(o.out), o.weight.rows());
        for tile in 0..count {
            let at: [usize; 4] =
                core::array::from_fn(|i| self.integers[tiles.index()][tile * 4 + i] as usize);
            let [first, last, start, end] = at;
            if start > first || last > end || end > rows {
                return Err(Error::Input(format!("rows {first}..{last} of {start}..{end} of a convolution")));
            }
            for (row, col) in (first..last).flat_map(|row| (0..cols).map(move |col| (row, col))) {
                let u: Vec<f32> = (0..taps)
                    .map(|j| match (row + ahead + j).checked_sub(taps - 1) {
                        Some(other) if (start..end).contains(&other) => self.conv_input(o, other, col),
                        _ => 0.0,
                    })
                    .collect();
                self.convolve(o, row, col, &u)?;
            }
        }
        Ok(())
    }

    /// `u` of one row and column.
    fn conv_input(&self, o: &ShortConv, row: usize, col: usize) -> f32 {
        let (bcx, cols) = (self.row(o.bcx, row), o.weight.cols());
        bcx[col] * bcx[2 * cols + col]
    }

    /// One output, by the `u` under its taps.
    fn convolve(&mut self, o: &ShortConv, row: usize, col: usize, u: &[f32]) -> Result<()> {
        let (weight, bias) = (values(&o.weight)?, o.bias.as_ref().map(values).transpose()?);
        let (cols, c) = (o.weight.cols(), self.row(o.bcx, row)[o.weight.cols() + col]);
        let y: f64 =
            u.iter().enumerate().map(|(j, u)| f64::from(weight[j * cols + col]) * f64::from(*u)).sum();
        let y = y + bias.map_or(0.0, |b| f64::from(b[col]));
        self.store(o.out, row, col, (f64::from(c) * y) as f32);
        Ok(())
    }

    pub(super) fn route(&mut self, o: &Route) -> Result<()> {
        let (rows, _) = self.shape(o.x);
        let (weight, bias) = (values(&o.weight)?, o.bias.as_ref().map(values).transpose()?);
        let experts = o.weight.rows();
        for row in 0..rows {
            let logits: Vec<f32> =
                (0..experts).map(|e| project(self.row(o.x, row), weight, None, e)).collect();
            let largest = logits.iter().fold(f32::MIN, |m, v| m.max(*v));
            let total: f64 = logits.iter().map(|v| libm::exp(f64::from(v - largest))).sum();
            let scores: Vec<f32> = logits
                .iter()
                .map(|v| match o.scoring {
                    Scoring::Softmax => (libm::exp(f64::from(v - largest)) / total) as f32,
                    Scoring::Sigmoid => activate(crate::op::Activation::Sigmoid, *v),
                })
                .collect();
            let mut order: Vec<usize> = (0..experts).collect();
            let rank = |e: usize| scores[e] + bias.map_or(0.0, |b| b[e]);
            order.sort_unstable_by(|a, b| rank(*b).total_cmp(&rank(*a)).then(a.cmp(b)));
            order.truncate(o.used);
            let sum: f32 = order.iter().map(|e| scores[*e]).sum();
            let scale = o.scale / o.normalize.map_or(1.0, |eps| sum + eps);
            let cols = self.program.spec(o.out).cols;
            let mut out = vec![0.0; cols];
            for (i, e) in order.into_iter().enumerate() {
                out[i] = e as f32;
                out[o.used + i] = scores[e] * scale;
            }
            self.store_row(o.out, row, &out);
        }
        Ok(())
    }

    /// Index and weight of a row's experts.
    fn chosen(&self, routes: BufferId, used: usize, row: usize, experts: usize) -> Result<Vec<(usize, f32)>> {
        let row = self.row(routes, row);
        let found: Vec<(usize, f32)> = (0..used).map(|i| (row[i] as usize, row[used + i])).collect();
        match found.iter().find(|(e, _)| *e >= experts) {
            Some((e, _)) => Err(Error::Input(format!("expert {e} of {experts}"))),
            None => Ok(found),
        }
    }

    pub(super) fn expert_gated_linear(&mut self, o: &ExpertGatedLinear) -> Result<()> {
        let (rows, cols) = self.shape(o.out);
        let (weight, width) = (values(&o.weight)?, cols / o.used);
        for row in 0..rows {
            let chosen = self.chosen(o.routes, o.used, row, o.weight.rows() / (2 * width))?;
            for (i, (expert, _)) in chosen.into_iter().enumerate() {
                for n in 0..width {
                    let gate_row = expert * 2 * width + n;
                    let gate = activate(o.activation, project(self.row(o.x, row), weight, None, gate_row));
                    let up = project(self.row(o.x, row), weight, None, gate_row + width);
                    self.store(o.out, row, i * width + n, gate * up);
                }
            }
        }
        Ok(())
    }

    pub(super) fn expert_linear(&mut self, o: &ExpertLinear) -> Result<()> {
        let (rows, cols) = self.shape(o.out);
        let (weight, width) = (values(&o.weight)?, self.program.spec(o.x).cols / o.used);
        for row in 0..rows {
            let chosen = self.chosen(o.routes, o.used, row, o.weight.rows() / cols)?;
            for n in 0..cols {
                let mut y = o.residual.map_or(0.0, |r| f64::from(self.row(r, row)[n]));
                for (i, (expert, share)) in chosen.iter().enumerate() {
                    let x = &self.row(o.x, row)[i * width..][..width];
                    y += f64::from(*share) * f64::from(project(x, weight, None, expert * cols + n));
                }
                self.store(o.out, row, n, y as f32);
            }
        }
        Ok(())
    }
}
