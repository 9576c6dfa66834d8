//! Contenders do the same work by turns, so that whatever disturbs the machine disturbs all of them.

use std::{fmt, str::FromStr, thread::sleep, time::Duration, time::Instant};

use serde::{Deserialize, Serialize};

use crate::{Error, Result, lab::stats::Summary};

/// Texts of equal length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub texts: usize,
    /// Tokens of each text.
    pub tokens: usize,
}

impl Batch {
    pub const fn new(texts: usize, tokens: usize) -> Batch {
        Batch { texts, tokens }
    }

    /// Tokens of all texts.
    pub fn all_tokens(self) -> usize {
        self.texts * self.tokens
    }

    /// Token ids, the same for all contenders (see tests/peers/README.md).
    pub fn ids(self) -> Vec<Vec<u32>> {
        let id = |i: usize| 1000 + (i * 7919 % 20_000) as u32;
        (0..self.texts).map(|t| (t * self.tokens..(t + 1) * self.tokens).map(id).collect()).collect()
    }
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.texts, self.tokens)
    }
}

impl FromStr for Batch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |word: &str| word.parse().ok().filter(|n| (1..=65_536).contains(n));
        let (texts, tokens) = text.split_once('x').unwrap_or_default();
        match (number(texts), number(tokens)) {
            (Some(texts), Some(tokens)) => Ok(Batch { texts, tokens }),
            _ => Err(format!("`{text}` is not TEXTSxTOKENS, as in 32x128")),
        }
    }
}

/// What a contender is asked for: to encode texts, or to generate after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Request {
    pub texts: usize,
    /// Tokens of each text.
    pub tokens: usize,
    /// Tokens to generate, most likely ones, whatever they are. One times the prompt: from its ids in host memory to
    /// the token in host memory. More time those after the first.
    #[serde(skip_serializing_if = "is_none")]
    pub answer: usize,
    pub runs: usize,
}

/// Whether nothing is to be generated.
fn is_none(answer: &usize) -> bool {
    *answer == 0
}

impl Request {
    /// Encode a batch.
    pub const fn encode(batch: Batch) -> Request {
        Request { texts: batch.texts, tokens: batch.tokens, answer: 0, runs: 1 }
    }

    /// Generate `answer` tokens after a prompt of `tokens`.
    pub const fn generate(tokens: usize, answer: usize) -> Request {
        Request { texts: 1, tokens, answer, runs: 1 }
    }

    /// The batch of its texts.
    pub const fn batch(&self) -> Batch {
        Batch::new(self.texts, self.tokens)
    }
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Reply {
    /// Of each run: from ids in host memory to vectors in host memory, or what [`Request::answer`] says.
    pub seconds: Vec<f64>,
    /// The first text's; for generation, the logits after the prompt's first [`COMPARED`] tokens.
    pub vector: Vec<f32>,
}

/// Tokens of a prompt after which logits are compared.
pub const COMPARED: usize = 16;

/// An engine, ours or a peer.
pub trait Contender {
    /// For people.
    fn name(&self) -> String;

    /// # Errors
    /// Whatever keeps it from working.
    fn run(&mut self, request: Request) -> Result<Reply>;
}

/// How long a contest may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Rounds at most; at least three are done.
    pub rounds: usize,
    /// Seconds for all contenders together, at most, after the third round.
    pub seconds: f64,
    /// Seconds that one turn should take at least, in several runs if need be.
    pub turn: f64,
    /// Pause after each turn, in which threads of the one before fall asleep.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { rounds: 7, seconds: 30.0, turn: 0.15, pause: Duration::from_millis(30) }
    }
}

/// A contender's result.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Of one run.
    pub seconds: Summary,
    pub vector: Vec<f32>,
}

struct Turn {
    runs: usize,
    seconds: Vec<f64>,
    vector: Vec<f32>,
}

impl Turn {
    fn take(&mut self, contender: &mut dyn Contender, work: Request, limits: &Limits) -> Result<()> {
        let request = Request { runs: self.runs, ..work };
        let reply = contender.run(request)?;
        sleep(limits.pause);
        if reply.seconds.len() != self.runs || reply.seconds.iter().any(|s| !s.is_finite() || *s <= 0.0) {
            let (name, runs) = (contender.name(), self.runs);
            return Err(Error::Input(format!("{name} did not time {runs} runs: {:?}", reply.seconds)));
        }
        self.seconds.extend(reply.seconds);
        self.vector = reply.vector;
        Ok(())
    }
}

/// Times every contender on the work. One that fails drops out with its error; the others go on.
pub fn contest(
    contenders: &mut [&mut dyn Contender],
    work: Request,
    limits: &Limits,
) -> Vec<Result<Standing>> {
    let mut turns: Vec<Result<Turn>> = contenders
        .iter_mut()
        .map(|contender| {
            let mut turn = Turn { runs: 1, seconds: Vec::new(), vector: Vec::new() };
            // The first run may allocate, compile and read weights for the first time.
            turn.take(&mut **contender, work, limits)?;
            turn.seconds.clear();
            turn.take(&mut **contender, work, limits)?;
            turn.runs = ((limits.turn / turn.seconds[0]).ceil() as usize).clamp(1, 500);
            turn.seconds.clear();
            Ok(turn)
        })
        .collect();
    let (start, count) = (Instant::now(), contenders.len());
    for round in 0..limits.rounds.max(3) {
        if round >= 3 && start.elapsed().as_secs_f64() > limits.seconds {
            break;
        }
        // Each begins once, so that nobody always follows the same other.
        for at in (0..count).map(|i| (i + round) % count) {
            if let Ok(turn) = &mut turns[at]
                && let Err(error) = turn.take(&mut *contenders[at], work, limits)
            {
                turns[at] = Err(error);
            }
        }
    }
    turns
        .into_iter()
        .map(|turn| {
            let turn = turn?;
            let seconds =
                Summary::of(&turn.seconds).ok_or_else(|| Error::Input("no run was timed".into()))?;
            Ok(Standing { seconds, vector: turn.vector })
        })
        .collect()
}

/// Cosine of the angle between two vectors; `None` if their lengths differ or one is zero.
pub fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let norms = (dot(a, a) * dot(b, b)).sqrt();
    (a.len() == b.len() && norms > 0.0).then(|| dot(a, b) / norms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, rc::Rc};

    struct Fake {
        name: &'static str,
        seconds: f64,
        /// Fails from this call on.
        breaks: usize,
        calls: usize,
        log: Rc<RefCell<Vec<&'static str>>>,
    }

    impl Contender for Fake {
        fn name(&self) -> String {
            self.name.into()
        }

        fn run(&mut self, request: Request) -> Result<Reply> {
            self.calls += 1;
            if self.calls >= self.breaks {
                return Err(Error::Input("broken".into()));
            }
            self.log.borrow_mut().push(self.name);
            // Slower the first time.
            let seconds = if self.calls == 1 { 99.0 } else { self.seconds };
            Ok(Reply { seconds: vec![seconds; request.runs], vector: vec![request.texts as f32] })
        }
    }

    #[test]
    fn turns_are_taken_fairly_and_failures_stay_alone() {
        let log = Rc::new(RefCell::new(Vec::new()));
        let fake = |name, seconds, breaks| Fake { name, seconds, breaks, calls: 0, log: log.clone() };
        let (mut a, mut b, mut c) = (fake("a", 0.06, 99), fake("b", 3.0, 99), fake("c", 0.01, 4));
        let limits = Limits { rounds: 3, seconds: 1.0, turn: 0.15, pause: Duration::ZERO };
        let work = Request::encode(Batch::new(4, 8));
        let standings = contest(&mut [&mut a, &mut b, &mut c], work, &limits);
        let a = standings[0].as_ref().unwrap();
        assert_eq!((a.seconds.median, a.seconds.count), (0.06, 9));
        assert_eq!(a.vector, [4.0]);
        assert_eq!(standings[1].as_ref().unwrap().seconds.count, 3);
        assert!(standings[2].as_ref().unwrap_err().to_string().contains("broken"));
        // Two runs to warm up, then rounds that begin with another each time.
        assert_eq!(log.borrow()[6..], ["a", "b", "c", "b", "a", "a", "b"]);
    }

    #[test]
    fn batches_are_read_and_numbered() {
        let batch: Batch = "2x3".parse().unwrap();
        assert_eq!(batch.ids(), [[1000, 8919, 16838], [4757, 12676, 20595]]);
        assert_eq!((batch.all_tokens(), batch.to_string()), (6, "2x3".into()));
        for bad in ["", "3", "x", "0x1", "1x0", "1x1x1", "99999x1"] {
            assert!(bad.parse::<Batch>().is_err(), "{bad}");
        }
    }

    #[test]
    fn cosines_need_vectors_of_one_length() {
        assert_eq!(cosine(&[1.0, 0.0], &[2.0, 0.0]), Some(1.0));
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 2.0]), Some(0.0));
        assert_eq!(cosine(&[1.0], &[1.0, 0.0]), None);
        assert_eq!(cosine(&[0.0], &[1.0]), None);
    }
}
