//! Choosing tokens: a scan of logits in parts, the choice of each sequence, and what it writes.
//!
//! Values are computed as the reference computes them, operation by operation, so the same token is chosen.

use core::{cmp::Ordering, ops::Range};

use inferencelayer_engine::{
    op::{MOST_STOPS, SETTING_WORDS, Setting},
    reference::pcg4d,
};

use super::{
    math::exp2,
    simd::{Kernel, Simd},
};

/// Tokens of one part of a scan.
pub const PART: usize = 4096;

/// One slot's settings.
#[derive(Clone, Copy)]
pub struct Settings<'a>(pub &'a [u32]);

impl<'a> Settings<'a> {
    /// Those of a slot, of all slots'.
    pub fn of(all: &'a [u32], slot: usize) -> Self {
        Settings(&all[slot * SETTING_WORDS..][..SETTING_WORDS])
    }

    fn word(self, setting: Setting) -> u32 {
        self.0[setting as usize]
    }

    fn number(self, setting: Setting) -> f32 {
        f32::from_bits(self.word(setting))
    }

    fn flag(self, bit: u32) -> bool {
        self.word(Setting::Flags) & bit != 0
    }

    fn greedy(self) -> bool {
        self.number(Setting::Temperature) <= 0.0
    }

    /// Whether repetitions, counts or generated tokens change a logit.
    fn penalises(self) -> bool {
        self.number(Setting::Repetition) != 1.0
            || self.number(Setting::Frequency) != 0.0
            || self.number(Setting::Presence) != 0.0
    }

    /// Does the token end the sequence?
    fn stops(self, token: u32) -> bool {
        let count = (self.word(Setting::StopCount) as usize).min(MOST_STOPS);
        self.0[Setting::Stops as usize..][..count].contains(&token)
    }
}

/// What a part of the logits comes to.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Found {
    largest: f32,
    /// Sum of exponentials relative to the largest.
    total: f32,
    /// The largest after bias and penalties among the allowed, and its token, the first of equals.
    best: f32,
    token: u32,
}

/// No token: all are masked.
const NONE: u32 = u32::MAX;

/// Words of a [`Found`].
pub const FOUND_WORDS: usize = 4;

/// What is kept of one slot.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    pub settings: Settings<'a>,
    pub counts: &'a [u32],
    pub bias: Option<&'a [f32]>,
    pub mask: Option<&'a [u32]>,
}

/// Scans some tokens of a sequence's logits.
pub struct Scan<'a> {
    pub logits: &'a [f32],
    pub slot: Slot<'a>,
    pub tokens: Range<usize>,
    /// Logits after bias and penalties, NaN for those not allowed; written if the choice needs more than the best.
    pub values: &'a mut [f32],
    pub found: *mut Found,
}

impl Kernel for Scan<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let raw = &self.logits[self.tokens.clone()];
        let mut most = s.splat(f32::MIN);
        for part in raw.chunks(S::LANES) {
            most = s.max(s.load_part(part, f32::MIN), most);
        }
        let largest = s.largest(most);
        let (shift, log2e) = (s.splat(largest), s.splat(core::f32::consts::LOG2_E));
        let mut sums = s.splat(0.0);
        for part in raw.chunks(S::LANES) {
            let v = s.mul(s.sub(s.load_part(part, f32::MIN), shift), log2e);
            sums = s.add(sums, exp2(s, v));
        }
        let settings = self.slot.settings;
        let mask = self.slot.mask.filter(|_| settings.flag(2));
        let bias = self.slot.bias.filter(|_| settings.flag(4));
        let plain = mask.is_none() && bias.is_none() && !settings.penalises();
        let (best, token) =
            if plain && settings.greedy() { first_of_largest(raw, largest) } else { self.values(mask, bias) };
        let token = if token == NONE { NONE } else { token + self.tokens.start as u32 };
        // SAFETY: whoever made this promises the place.
        unsafe { self.found.write(Found { largest, total: s.sum(sums), best, token }) };
    }
}

/// The first token of those equal to `largest`; of zeros, the positive ones are larger.
fn first_of_largest(values: &[f32], largest: f32) -> (f32, u32) {
    let mut best: Option<(f32, u32)> = None;
    for (t, v) in values.iter().enumerate() {
        if *v == largest && best.is_none_or(|(b, _)| v.total_cmp(&b).is_gt()) {
            best = Some((*v, t as u32));
            if *v != 0.0 {
                break;
            }
        }
    }
    best.unwrap_or((f32::MIN, NONE))
}

impl Scan<'_> {
    /// Values after bias and penalties; returns the best, and its token within the part.
    fn values(&mut self, mask: Option<&[u32]>, bias: Option<&[f32]>) -> (f32, u32) {
        let settings = self.slot.settings;
        let repetition = settings.number(Setting::Repetition);
        let (frequency, presence) = (settings.number(Setting::Frequency), settings.number(Setting::Presence));
        let keep = !settings.greedy();
        let mut best: Option<(f32, u32)> = None;
        for (i, t) in self.tokens.clone().enumerate() {
            let allowed = mask.is_none_or(|mask| mask[t / 32] >> (t % 32) & 1 == 1);
            let mut l = f32::NAN;
            if allowed {
                let count = self.slot.counts[t];
                l = self.logits[t] + bias.map_or(0.0, |bias| bias[t]);
                if count > 0 {
                    l = if l > 0.0 { l / repetition } else { l * repetition };
                }
                let generated = count / 2;
                if generated > 0 {
                    l -= frequency * generated as f32 + presence;
                }
                if best.is_none_or(|(b, _)| l.total_cmp(&b).is_gt()) {
                    best = Some((l, i as u32));
                }
            }
            if keep {
                self.values[i] = l;
            }
        }
        best.unwrap_or((f32::MIN, NONE))
    }
}

/// A candidate.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Candidate {
    token: u32,
    value: f32,
}

/// Words of scratch memory for a choice among `vocab` tokens.
pub const fn scratch_words(vocab: usize) -> usize {
    4 * vocab
}

/// The choice of one sequence.
pub struct Choice<'a> {
    pub settings: Settings<'a>,
    pub logits: &'a [f32],
    pub values: &'a [f32],
    pub found: &'a [Found],
    /// Where the chosen token stands.
    pub position: u32,
    pub candidates: &'a mut [Candidate],
    pub weights: &'a mut [f64],
}

impl Choice<'_> {
    /// The token and the logarithm of its probability among all, before bias and penalties.
    pub fn make(mut self) -> (u32, f32) {
        let largest = self.found.iter().fold(f32::MIN, |m, f| m.max(f.largest));
        let terms = self.found.iter().map(|f| f64::from(f.total) * libm::exp(f64::from(f.largest - largest)));
        let log_total = libm::log(terms.sum());
        let mut best: Option<(f32, u32)> = None;
        for found in self.found.iter().filter(|f| f.token != NONE) {
            if best.is_none_or(|(b, _)| found.best.total_cmp(&b).is_gt()) {
                best = Some((found.best, found.token));
            }
        }
        let Some((_, best)) = best else { return (0, f32::MIN) };
        let token = if self.settings.greedy() { best } else { self.draw().unwrap_or(best) };
        (token, (f64::from(self.logits[token as usize] - largest) - log_total) as f32)
    }

    /// Draws one of the candidates that are left after the filters.
    fn draw(&mut self) -> Option<u32> {
        let (settings, mut count) = (self.settings, 0);
        for (token, value) in self.values.iter().enumerate() {
            if !value.is_nan() {
                self.candidates[count] = Candidate { token: token as u32, value: *value };
                count += 1;
            }
        }
        let temperature = settings.number(Setting::Temperature);
        let late = settings.flag(1);
        if !late {
            self.candidates[..count].iter_mut().for_each(|c| c.value /= temperature);
        }
        let count = self.keep(count);
        let candidates = &mut self.candidates[..count];
        if late {
            candidates.iter_mut().for_each(|c| c.value /= temperature);
        }
        let top = candidates.iter().fold(f32::MIN, |m, c| m.max(c.value));
        let mut total = 0.0;
        for (c, weight) in candidates.iter().zip(self.weights.iter_mut()) {
            *weight = libm::exp(f64::from(c.value - top));
            total += *weight;
        }
        let seed = [Setting::SeedLow, Setting::SeedHigh, Setting::Choice].map(|s| settings.word(s));
        let uniform = f64::from(pcg4d([seed[0], seed[1], seed[2], self.position]) >> 8) / f64::from(1 << 24);
        let target = uniform * total;
        let mut sum = 0.0;
        for (c, weight) in candidates.iter().zip(self.weights.iter()) {
            sum += weight;
            if sum > target {
                return Some(c.token);
            }
        }
        candidates.last().map(|c| c.token)
    }

    /// Leaves what top-k, top-p and min-p leave of the first `count` candidates, in order; returns how many.
    fn keep(&mut self, count: usize) -> usize {
        let (settings, mut count) = (self.settings, count);
        let largest = self.candidates[..count].iter().fold(f32::MIN, |m, c| m.max(c.value));
        let k = settings.word(Setting::TopK) as usize;
        if k > 0 && k < count {
            let work = self.work(count);
            let (_, least, _) = work.select_nth_unstable_by(k - 1, descending);
            let least = *least;
            count = self.retain(count, least);
        }
        let p = f64::from(settings.number(Setting::TopP));
        if p < 1.0 {
            let weight = |v: f32| libm::exp(f64::from(v - largest));
            let wanted = p * self.candidates[..count].iter().map(|c| weight(c.value)).sum::<f64>();
            let least = last_kept(self.work(count), largest, wanted, weight);
            count = self.retain(count, least);
        }
        let m = settings.number(Setting::MinP);
        if m > 0.0 {
            count = self.retain(count, largest + libm::logf(m.min(1.0)));
        }
        count
    }

    /// The candidates' values, to be moved about.
    fn work(&mut self, count: usize) -> &mut [f32] {
        // SAFETY: a weight has room for two values, and every bit pattern is one.
        let work = unsafe { core::slice::from_raw_parts_mut(self.weights.as_mut_ptr().cast::<f32>(), count) };
        work.iter_mut().zip(&self.candidates[..count]).for_each(|(v, c)| *v = c.value);
        work
    }

    fn retain(&mut self, count: usize, least: f32) -> usize {
        let mut kept = 0;
        for at in 0..count {
            let candidate = self.candidates[at];
            if candidate.value >= least {
                self.candidates[kept] = candidate;
                kept += 1;
            }
        }
        kept
    }
}

/// The least of the values that, in falling order, are kept until their weights come to `wanted`; equals of the last
/// are kept too.
fn last_kept(values: &mut [f32], largest: f32, wanted: f64, weight: impl Fn(f32) -> f64) -> f32 {
    let (mut rest, mut some) = (values, 64);
    let (mut sum, mut least) = (0.0, largest);
    while !rest.is_empty() {
        // The largest of the rest, in order; more of them each time.
        some = rest.len().min(some * 4);
        if some < rest.len() {
            rest.select_nth_unstable_by(some - 1, descending);
        }
        let (now, later) = core::mem::take(&mut rest).split_at_mut(some);
        now.sort_unstable_by(descending);
        for v in now.iter() {
            if sum >= wanted && *v < least {
                return least;
            }
            least = *v;
            sum += weight(*v);
        }
        rest = later;
    }
    least
}

/// What a chosen token changes: the next tokens, and its slot's counts.
pub struct Commit<'a> {
    pub settings: Settings<'a>,
    pub token: u32,
    /// Where it stands.
    pub position: u32,
    pub slot: usize,
    pub slots: usize,
    /// The row of the next tokens.
    pub next: &'a mut [u32],
    /// The slot's.
    pub counts: &'a mut [u32],
}

impl Commit<'_> {
    pub fn make(self) {
        if self.settings.flag(8) {
            return;
        }
        if let Some(count) = self.counts.get_mut(self.token as usize) {
            *count = count.saturating_add(2);
        }
        let next = match self.settings.stops(self.token) {
            true => [self.token, 0, 0, self.slots as u32 - 1],
            false => [self.token, self.position, 0, self.slot as u32],
        };
        self.next.copy_from_slice(&next);
    }
}

fn descending(a: &f32, b: &f32) -> Ordering {
    b.total_cmp(a)
}
