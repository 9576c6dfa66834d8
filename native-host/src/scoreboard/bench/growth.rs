//! Time against the number of tokens in one batch: it may not grow faster than they do.

use super::{Options, Sink, random_model, remark};
use crate::{
    Result,
    lab::{report::duration, stats::Summary},
    scoreboard::{
        contest::{Batch, Contender as _, Request},
        engine::Ours,
        ledger::Better,
        model::MINILM,
    },
};

/// Tokens of each text, so that attention's share is the same in all batches.
const LENGTH: usize = 128;
/// Texts in the batches: 512 to 8192 tokens.
const TEXTS: [usize; 5] = [4, 8, 16, 32, 64];
const ROUNDS: usize = 5;

pub fn run(options: &Options, sink: &mut Sink<'_>) -> Result<()> {
    for shape in options.models(&[MINILM]) {
        let folder = random_model(&shape)?;
        for variant in options.variants(&["cpu-f32", "cpu-int8"])? {
            let most = TEXTS[TEXTS.len() - 1] * LENGTH;
            let mut ours = Ours::load(folder.path(), &variant, &options.adapter, options.threads, most)?;
            let mut times = vec![Vec::new(); TEXTS.len()];
            for round in 0..=ROUNDS {
                for (times, texts) in times.iter_mut().zip(TEXTS) {
                    let reply = ours.run(Request::encode(Batch::new(texts, LENGTH)))?;
                    // The first round prepares plans.
                    if round > 0 {
                        times.extend(reply.seconds);
                    }
                }
            }
            let best: Vec<f64> = times.iter().filter_map(|t| Some(Summary::of(t)?.min)).collect();
            let batches = TEXTS.map(|texts| Batch::new(texts, LENGTH));
            let figure = (worst(&best, &batches), "x proportion", Better::Lower);
            let bench = format!("{} growth", shape.name);
            let mut entry = options.entry(bench, variant.to_string(), figure, options.machine(ours.gpu()));
            let words: Vec<String> = best
                .iter()
                .zip(&batches)
                .map(|(t, b)| format!("{} tokens {}", b.all_tokens(), duration(*t)))
                .collect();
            remark(&mut entry, &words.join(", "));
            sink(entry)?;
        }
    }
    Ok(())
}

/// The most that any batch takes, as a multiple of what the smallest takes for its number of tokens.
fn worst(seconds: &[f64], batches: &[Batch]) -> f64 {
    let a_token = |(s, b): (&f64, &Batch)| s / b.all_tokens() as f64;
    let each: Vec<f64> = seconds.iter().zip(batches).map(a_token).collect();
    let first = each.first().copied().unwrap_or(f64::NAN);
    each.iter().skip(1).fold(0.0, |most: f64, t| most.max(t / first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_relative_to_the_smallest_batch() {
        let batches = [Batch::new(1, 10), Batch::new(2, 10), Batch::new(4, 10)];
        assert_eq!(worst(&[1.0, 2.0, 4.0], &batches), 1.0);
        assert!((worst(&[1.0, 3.0, 4.0], &batches) - 1.5).abs() < 1e-9);
        assert_eq!(worst(&[2.0, 2.0, 3.0], &batches), 0.5);
    }
}
