//! Sampling as sorted lists.

use alloc::{format, vec::Vec};

use super::ops::Scope;
use crate::{
    Error, Result,
    op::{MOST_STOPS, SETTING_WORDS, Sample, Setting},
};

/// One slot's settings.
struct Settings<'a>(&'a [u32]);

impl Settings<'_> {
    fn word(&self, setting: Setting) -> u32 {
        self.0[setting as usize]
    }

    fn number(&self, setting: Setting) -> f32 {
        f32::from_bits(self.word(setting))
    }

    fn flag(&self, bit: u32) -> bool {
        self.word(Setting::Flags) & bit != 0
    }
}

/// First word of pcg4d (Jarzynski and Olano, "Hash Functions for GPU Rendering", JCGT 2020).
pub fn pcg4d(v: [u32; 4]) -> u32 {
    let mut v = v.map(|x| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    for round in 0..2 {
        if round == 1 {
            v = v.map(|x| x ^ (x >> 16));
        }
        v[0] = v[0].wrapping_add(v[1].wrapping_mul(v[3]));
        v[1] = v[1].wrapping_add(v[2].wrapping_mul(v[0]));
        v[2] = v[2].wrapping_add(v[0].wrapping_mul(v[1]));
        v[3] = v[3].wrapping_add(v[1].wrapping_mul(v[2]));
    }
    v[0]
}

impl Scope<'_> {
    pub(super) fn sample(&mut self, o: &Sample) -> Result<()> {
        let (sequences, _) = self.shape(o.logits);
        for s in 0..sequences {
            let from = o.targets.unwrap_or(o.tokens);
            let token: [u32; 4] = core::array::from_fn(|i| self.integers[from.index()][s * 4 + i]);
            let (position, slot) = (token[1], token[3] as usize);
            let row = o.targets.map_or(s, |_| token[0] as usize);
            let slots = self.program.spec(o.settings).rows;
            if slot >= slots || row >= self.program.spec(o.tokens).rows {
                return Err(Error::Input(format!("slot {slot} of {slots}, row {row} of the tokens")));
            }
            let words = self.integers[o.settings.index()][slot * SETTING_WORDS..][..SETTING_WORDS].to_vec();
            let settings = Settings(&words);
            let (chosen, log_probability) = self.choose(o, s, slot, position + 1, &settings);
            self.store_row(o.out, s, &[chosen as f32, log_probability, (position + 1) as f32, 0.0]);
            if settings.flag(8) {
                continue;
            }
            let counted = slot * self.program.spec(o.counts).cols + chosen;
            let counts = &mut self.integers[o.counts.index()];
            counts[counted] = counts[counted].saturating_add(2);
            let stops = &words[Setting::Stops as usize..];
            let count = (settings.word(Setting::StopCount) as usize).min(MOST_STOPS);
            let next = match stops[..count].contains(&(chosen as u32)) {
                true => [chosen as u32, 0, 0, slots as u32 - 1],
                false => [chosen as u32, position + 1, 0, slot as u32],
            };
            self.integers[o.tokens.index()][row * 4..][..4].copy_from_slice(&next);
        }
        Ok(())
    }

    /// The token and the logarithm of its probability among all.
    fn choose(
        &self,
        o: &Sample,
        s: usize,
        slot: usize,
        position: u32,
        settings: &Settings<'_>,
    ) -> (usize, f32) {
        let raw = &self.row(o.logits, s)[..o.vocab];
        let counts = &self.integers[o.counts.index()][slot * self.program.spec(o.counts).cols..];
        let largest = raw.iter().fold(f32::MIN, |m, v| m.max(*v));
        let log_total = libm::log(raw.iter().map(|v| libm::exp(f64::from(v - largest))).sum());
        let log_probability = |t: usize| (f64::from(raw[t] - largest) - log_total) as f32;
        let allowed = |t: usize| match (o.mask, settings.flag(2)) {
            (Some(mask), true) => {
                let words = self.program.spec(mask).cols;
                self.integers[mask.index()][slot * words + t / 32] >> (t % 32) & 1 == 1
            }
            _ => true,
        };
        let repetition = settings.number(Setting::Repetition);
        let penalised = |t: usize| {
            let bias = match (o.bias, settings.flag(4)) {
                (Some(bias), true) => self.row(bias, slot)[t],
                _ => 0.0,
            };
            let (mut l, count) = (raw[t] + bias, counts[t]);
            if count > 0 {
                l = if l > 0.0 { l / repetition } else { l * repetition };
            }
            let generated = count / 2;
            if generated > 0 {
                l -= settings.number(Setting::Frequency) * generated as f32
                    + settings.number(Setting::Presence);
            }
            l
        };
        let mut candidates: Vec<(usize, f32)> =
            (0..o.vocab).filter(|t| allowed(*t)).map(|t| (t, penalised(t))).collect();
        candidates.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let Some(best) = candidates.first().copied() else { return (0, f32::MIN) };
        let temperature = settings.number(Setting::Temperature);
        if temperature <= 0.0 {
            return (best.0, log_probability(best.0));
        }
        let late = settings.flag(1);
        if !late {
            candidates.iter_mut().for_each(|c| c.1 /= temperature);
        }
        keep(&mut candidates, settings);
        if late {
            candidates.iter_mut().for_each(|c| c.1 /= temperature);
        }
        candidates.sort_unstable_by_key(|c| c.0);
        let top = candidates.iter().fold(f32::MIN, |m, c| m.max(c.1));
        let weights: Vec<f64> = candidates.iter().map(|c| libm::exp(f64::from(c.1 - top))).collect();
        let seed = [
            settings.word(Setting::SeedLow),
            settings.word(Setting::SeedHigh),
            settings.word(Setting::Choice),
            position,
        ];
        let uniform = f64::from(pcg4d(seed) >> 8) / f64::from(1 << 24);
        let target = uniform * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        for (c, w) in candidates.iter().zip(&weights) {
            sum += w;
            if sum > target {
                return (c.0, log_probability(c.0));
            }
        }
        let last = candidates.last().map_or(best.0, |c| c.0);
        (last, log_probability(last))
    }
}

/// Drops what top-k, top-p and min-p drop from candidates in falling order; equals stay or go together.
fn keep(candidates: &mut Vec<(usize, f32)>, settings: &Settings<'_>) {
    let largest = candidates[0].1;
    let k = settings.word(Setting::TopK) as usize;
    if k > 0 && k < candidates.len() {
        let least = candidates[k - 1].1;
        candidates.retain(|c| c.1 >= least);
    }
    let p = f64::from(settings.number(Setting::TopP));
    if p < 1.0 {
        let weight = |c: &(usize, f32)| libm::exp(f64::from(c.1 - largest));
        let wanted = p * candidates.iter().map(weight).sum::<f64>();
        let mut sum = 0.0;
        let mut least = largest;
        for c in candidates.iter() {
            if sum >= wanted && c.1 < least {
                break;
            }
            least = c.1;
            sum += weight(c);
        }
        candidates.retain(|c| c.1 >= least);
    }
    let m = settings.number(Setting::MinP);
    if m > 0.0 {
        let least = largest + libm::logf(m.min(1.0));
        candidates.retain(|c| c.1 >= least);
    }
}
