//! The values a problem is computed on, and the part of them that the reference can check in good time.

use inferencelayer_engine::{
    op::ATTENTION_TILE,
    tensor::Format,
    testing::{Random, random_blocks, tiles},
};

use super::{
    problem::{Fill, Param, Problem},
    words::Lens,
};

/// What flows through the op: everything but weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Streams {
    /// `[rows, cols]`; empty if the op has no float input.
    pub x: Vec<f32>,
    /// `[rows, out]`; empty if there is none.
    pub residual: Vec<f32>,
    /// Tokens, tiles or ranges; empty if the op has no index input.
    pub index: Vec<u32>,
}

/// A problem's inputs and weights.
#[derive(Debug, Clone)]
pub struct Data {
    pub streams: Streams,
    /// In the order of the problem's parameters.
    pub weights: Vec<Vec<f32>>,
}

impl Data {
    /// Seeded by the problem, so that every run and every backend sees the same values.
    pub fn new(problem: &Problem) -> Data {
        let o = problem.operands();
        let mut random = Random::named(&problem.to_string());
        let rows = o.rows[0];
        let x = random.values(o.x.map_or(0, |cols| rows * cols), 0.0, 1.0);
        let residual = random.values(if o.residual { rows * o.out.1 } else { 0 }, 0.0, 2.0);
        let index = index(problem, &mut random);
        let weights = o
            .params
            .iter()
            .map(|p| match p.fill {
                Fill::Uniform { center, spread } => random.values(p.rows * p.cols, center, spread),
                Fill::Angles => angles(p.rows, p.cols),
            })
            .collect();
        Data { streams: Streams { x, residual, index }, weights }
    }
}

/// A parameter's bytes in a format of blocks, the same every time.
pub fn blocks(problem: &Problem, param: &Param, format: Format) -> Vec<u8> {
    let spread = match param.fill {
        Fill::Uniform { spread, .. } => spread,
        Fill::Angles => 1.0,
    };
    let mut random = Random::named(&format!("{problem} {} {format}", param.name));
    random_blocks(&mut random, format, param.rows * param.cols / format.block(), spread)
}

/// RoPE table of base 10000: cosines of the half angles, then sines.
fn angles(positions: usize, head_dim: usize) -> Vec<f32> {
    let half = (head_dim / 2).max(1);
    let angle = |at: usize| {
        let (position, i) = (at / head_dim, at % head_dim);
        let angle = position as f64 * 10_000f64.powf(-((i % half) as f64) / half as f64);
        if i < half { angle.cos() as f32 } else { angle.sin() as f32 }
    };
    (0..positions * head_dim).map(angle).collect()
}

fn index(problem: &Problem, random: &mut Random) -> Vec<u32> {
    let tokens = |random: &mut Random, rows: usize, ids: usize, positions: usize, types: usize| {
        let row = |at: usize, random: &mut Random| {
            [random.below(ids), (at % positions) as u32, random.below(types), 0]
        };
        (0..rows).flat_map(|at| row(at, random)).collect()
    };
    match problem {
        Problem::Embed(a) => tokens(random, a.rows, a.vocab, a.positions, 2),
        Problem::Rope(a) => tokens(random, a.rows, 1, a.positions, 1),
        Problem::Attention(a) => tiles(&a.lens.0, ATTENTION_TILE).concat(),
        Problem::Pool(a) => {
            ranges(&a.lens.0).into_iter().flat_map(|r| [r.start as u32, r.end as u32]).collect()
        }
        _ => Vec::new(),
    }
}

/// Row ranges of packed sequences of these lengths.
fn ranges(lens: &[usize]) -> Vec<std::ops::Range<usize>> {
    let mut start = 0;
    lens.iter()
        .map(|len| {
            start += len;
            start - len..start
        })
        .collect()
}

/// A smaller problem whose result rows are rows of the whole problem's result.
#[derive(Debug, Clone)]
pub struct Sample {
    pub problem: Problem,
    pub streams: Streams,
    /// Rows of the sample's result to compare…
    pub rows: Vec<usize>,
    /// … with these rows of the whole result.
    pub of_whole: Vec<usize>,
}

impl Sample {
    /// A sample that takes about `budget` multiplications, or the whole problem where that is within it.
    pub fn new(problem: &Problem, streams: &Streams, budget: u64) -> Sample {
        let rows = problem.operands().rows[0];
        let products = problem.products();
        let out_rows = problem.operands().rows[problem.operands().out.0 as usize];
        if products <= budget {
            let all: Vec<usize> = (0..out_rows).collect();
            let (problem, streams) = (problem.clone(), streams.clone());
            return Sample { problem, streams, rows: all.clone(), of_whole: all };
        }
        let share = budget as f64 / products as f64;
        match problem {
            Problem::Attention(_) => attention(problem, streams, budget),
            _ => some_rows(problem, streams, ((rows as f64 * share) as usize).max(3)),
        }
    }

    /// Whether rows were left out.
    pub fn is_part(&self, whole: &Problem) -> bool {
        let o = whole.operands();
        self.of_whole.len() < o.rows[o.out.0 as usize]
    }
}

/// `n` of `rows` rows: the first, the last, and the rest spread evenly.
fn spread(rows: usize, n: usize) -> Vec<usize> {
    if n >= rows {
        return (0..rows).collect();
    }
    if n <= 1 {
        return vec![rows - 1];
    }
    (0..n).map(|i| i * (rows - 1) / (n - 1)).collect()
}

fn take(values: &[f32], rows: &[usize], all_rows: usize) -> Vec<f32> {
    let cols = values.len() / all_rows.max(1);
    rows.iter().flat_map(|r| &values[r * cols..(r + 1) * cols]).copied().collect()
}

/// For linear ops, whose rows do not depend on each other.
fn some_rows(problem: &Problem, streams: &Streams, n: usize) -> Sample {
    let all = problem.operands().rows[0];
    let of_whole = spread(all, n);
    let mut problem = problem.clone();
    match &mut problem {
        Problem::Linear(a) => a.rows = of_whole.len(),
        Problem::GatedLinear(a) => a.rows = of_whole.len(),
        // No other op has products, so none is ever over the budget.
        _ => {}
    }
    let streams = Streams {
        x: take(&streams.x, &of_whole, all),
        residual: take(&streams.residual, &of_whole, all),
        index: Vec::new(),
    };
    Sample { problem, streams, rows: (0..of_whole.len()).collect(), of_whole }
}

/// A few whole sequences, of which some query rows are computed, each as a tile of its own.
fn attention(problem: &Problem, streams: &Streams, budget: u64) -> Sample {
    let Problem::Attention(args) = problem else {
        return some_rows(problem, streams, 1);
    };
    let lens = &args.lens.0;
    let ranges = ranges(lens);
    let longest = (0..lens.len()).max_by_key(|i| lens[*i]).unwrap_or(0);
    let mut chosen = vec![0, lens.len() / 2, longest, lens.len() - 1];
    chosen.sort_unstable();
    chosen.dedup();
    let (mut sample, mut index, mut rows, mut of_whole) = (args.clone(), Vec::new(), Vec::new(), Vec::new());
    sample.lens = Lens(chosen.iter().map(|i| lens[*i]).collect());
    let mut source = Vec::new();
    for sequence in &chosen {
        let (whole, start) = (ranges[*sequence].clone(), source.len());
        let products_a_row = (2 * args.heads * args.head_dim * whole.len()) as u64;
        let n = (budget / chosen.len() as u64 / products_a_row.max(1)).max(2) as usize;
        for row in spread(whole.len(), n) {
            let at = start + row;
            rows.push(at);
            of_whole.push(whole.start + row);
            index.extend([at, at + 1, start, start + whole.len()].map(|v| v as u32));
        }
        source.extend(whole);
    }
    let all = problem.operands().rows[0];
    let streams = Streams { x: take(&streams.x, &source, all), residual: Vec::new(), index };
    Sample { problem: Problem::Attention(sample), streams, rows, of_whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::args::{AttentionArgs, LinearArgs};
    use crate::lab::words::Activation;

    fn linear(rows: usize) -> Problem {
        let act = Activation::None;
        Problem::Linear(LinearArgs { rows, inputs: 8, outputs: 12, act, residual: true, bias: false })
    }

    #[test]
    fn values_are_the_same_every_time() {
        let problem = linear(5);
        let (a, b) = (Data::new(&problem), Data::new(&problem));
        assert_eq!((a.streams.x.len(), a.streams.residual.len()), (40, 60));
        assert_eq!((a.streams, a.weights), (b.streams, b.weights));
    }

    #[test]
    fn rows_are_spread_over_the_whole() {
        assert_eq!(spread(5, 9), [0, 1, 2, 3, 4]);
        assert_eq!(spread(101, 3), [0, 50, 100]);
        assert_eq!(spread(7, 1), [6]);
    }

    #[test]
    fn linear_samples_hold_the_rows_they_name() {
        let problem = linear(100);
        let data = Data::new(&problem);
        let sample = Sample::new(&problem, &data.streams, 8 * 12 * 10);
        assert_eq!(sample.of_whole.len(), 10);
        assert_eq!((sample.of_whole[0], sample.of_whole[9]), (0, 99));
        assert!(sample.is_part(&problem));
        let third = sample.of_whole[3];
        assert_eq!(sample.streams.x[24..32], data.streams.x[third * 8..third * 8 + 8]);
        assert_eq!(sample.streams.residual[36..48], data.streams.residual[third * 12..third * 12 + 12]);
        assert!(!Sample::new(&problem, &data.streams, 8 * 12 * 100).is_part(&problem));
    }

    #[test]
    fn attention_samples_keep_whole_sequences() {
        let lens = "3,50,7,2".parse().unwrap();
        let args =
            AttentionArgs { lens, heads: 2, kv_heads: None, head_dim: 4, window: None, bias_radius: None };
        let problem = Problem::Attention(args);
        let data = Data::new(&problem);
        let sample = Sample::new(&problem, &data.streams, 16 * 50 * 12);
        assert_eq!(sample.problem.lens(), [3, 50, 7, 2]);
        assert_eq!(sample.index_of(3), [sample.rows[3] as u32, sample.rows[3] as u32 + 1, 3, 53]);
        assert_eq!(sample.of_whole[0], 0);
        assert_eq!(*sample.of_whole.last().unwrap(), 61);
        assert!(sample.is_part(&problem) && sample.of_whole.contains(&52));
    }

    impl Sample {
        fn index_of(&self, at: usize) -> &[u32] {
            &self.streams.index[at * 4..at * 4 + 4]
        }
    }
}
