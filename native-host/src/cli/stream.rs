//! Records in, vectors out, in constant memory: a window of inputs is tokenised, sorted by length so that batches
//! hold similar lengths, encoded, and handed on in the order it came.
//!
//! Windows are cut by what they hold, never by time, so the same input always makes the same batches. The next
//! window is read and tokenised on its own thread while the model works on the last.

use std::{sync::mpsc, thread};

use super::input::{Content, Record};
use crate::{Error, Result};

/// How much is taken in at a time.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Inputs of one window.
    pub window_records: usize,
    /// Bytes of text (or of ids) after which a window ends.
    pub window_bytes: usize,
    /// The first window is this part of a whole one, so that first results come soon; each next has twice the size.
    pub first_part: usize,
}

impl Limits {
    /// On a GPU a window of about sixteen full batches, which is enough to sort well and to keep the queue filled; a
    /// CPU has no queue, and four keep results coming.
    pub fn new(batch_tokens: usize, gpu: bool) -> Self {
        let batches = if gpu { 16 } else { 4 };
        let window_bytes = batch_tokens.saturating_mul(4 * batches).clamp(1 << 16, 16 << 20);
        Limits {
            window_records: (batch_tokens / 16 * batches).clamp(64, 16_384),
            window_bytes,
            first_part: batches,
        }
    }

    /// What a window of 1/`part` holds.
    fn part(self, part: usize) -> Self {
        let of = |whole: usize| whole.div_ceil(part);
        Limits {
            window_records: of(self.window_records),
            window_bytes: of(self.window_bytes),
            first_part: self.first_part,
        }
    }
}

/// One tokenised input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    pub ids: Vec<u32>,
    pub truncated: bool,
    /// Leading tokens that are left out when pooling.
    pub unpooled: usize,
    pub line: Option<u64>,
    /// Bytes of the input up to and with this one.
    pub bytes: u64,
}

/// Turns a window of records into sequences, one each.
pub type Tokenize = dyn Fn(Vec<Record>) -> Result<Vec<Sequence>> + Send;

/// What happened to the input so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub records: u64,
    pub tokens: u64,
    pub truncated: u64,
    /// Bytes of the input that are dealt with.
    pub bytes: u64,
}

/// Runs all of `records` through `tokenize` and `encode`, and gives each result to `emit` in order.
///
/// `encode` gets a window's sequences, the longest first, and returns a vector for each. `window_done` is called
/// after each window with the totals.
///
/// # Errors
/// The first error of any of the functions. Results before the failing window have been emitted.
pub fn run<I, E, W, D>(
    records: I,
    limits: Limits,
    tokenize: Box<Tokenize>,
    mut encode: E,
    mut emit: W,
    mut window_done: D,
) -> Result<Totals>
where
    I: Iterator<Item = Result<Record>> + Send + 'static,
    E: FnMut(&[&Sequence]) -> Result<Vec<Vec<f32>>>,
    W: FnMut(u64, &Sequence, &[f32]) -> Result<()>,
    D: FnMut(&Totals) -> Result<()>,
{
    let mut totals = Totals::default();
    for window in windows(records, limits, tokenize) {
        let window = window?;
        let mut order: Vec<usize> = (0..window.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(window[i].ids.len()));
        let sequences: Vec<&Sequence> = order.iter().map(|&i| &window[i]).collect();
        let encoded = encode(&sequences)?;
        if encoded.len() != window.len() {
            let why = format!("{} vectors came back for {} texts", encoded.len(), window.len());
            return Err(Error::Input(why));
        }
        let mut vectors = vec![Vec::new(); window.len()];
        for (i, vector) in order.into_iter().zip(encoded) {
            vectors[i] = vector;
        }
        for (sequence, vector) in window.iter().zip(&vectors) {
            emit(totals.records, sequence, vector)?;
            totals.records += 1;
            totals.tokens += sequence.ids.len() as u64;
            totals.truncated += u64::from(sequence.truncated);
            totals.bytes = sequence.bytes;
        }
        window_done(&totals)?;
    }
    Ok(totals)
}

/// Reads and tokenises on a thread of its own, one window ahead. The thread is not joined: it may be waiting for
/// input when the consumer gives up, and ends when it next tries to send.
fn windows<I>(
    mut records: I,
    limits: Limits,
    tokenize: Box<Tokenize>,
) -> impl Iterator<Item = Result<Vec<Sequence>>>
where
    I: Iterator<Item = Result<Record>> + Send + 'static,
{
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut part = limits.first_part.max(1);
        loop {
            let (window, end) = take_window(&mut records, limits.part(part));
            part = part.div_ceil(2);
            // An error in a later line must not swallow the lines before it.
            if !window.is_empty() && sender.send(tokenize(window).map(Some)).is_err() {
                return;
            }
            match end {
                End::Full => {}
                End::Input => {
                    let _ = sender.send(Ok(None));
                    return;
                }
                End::Failed(error) => {
                    // Nobody is left to hear it if the consumer has stopped.
                    let _ = sender.send(Err(error));
                    return;
                }
            }
        }
    });
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        // `None` is the end of the input: a thread that is gone without it has panicked.
        let panicked = || Err(Error::Input("the input's reader panicked; its message stands above".into()));
        let next = receiver.recv().unwrap_or_else(|_| panicked()).transpose();
        done = !matches!(next, Some(Ok(_)));
        next
    })
}

enum End {
    Full,
    Input,
    Failed(Error),
}

fn take_window(records: &mut impl Iterator<Item = Result<Record>>, limits: Limits) -> (Vec<Record>, End) {
    let (mut window, mut bytes) = (Vec::new(), 0);
    while window.len() < limits.window_records && bytes < limits.window_bytes {
        match records.next() {
            None => return (window, End::Input),
            Some(Err(error)) => return (window, End::Failed(error)),
            Some(Ok(record)) => {
                bytes += match &record.content {
                    Content::Text(text) => text.len(),
                    Content::Ids(ids) => ids.len() * 4,
                };
                window.push(record);
            }
        }
    }
    (window, End::Full)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    const LIMITS: Limits = Limits { window_records: 6, window_bytes: 1 << 20, first_part: 1 };

    fn records(lengths: &[usize]) -> Vec<Result<Record>> {
        let record = |(i, n): (usize, &usize)| {
            Ok(Record {
                content: Content::Ids(vec![i as u32; *n]),
                line: Some(i as u64 + 1),
                bytes: i as u64,
            })
        };
        lengths.iter().enumerate().map(record).collect()
    }

    fn tokenize() -> Box<Tokenize> {
        Box::new(|records| {
            let sequence = |r: Record| {
                let ids = match r.content {
                    Content::Ids(ids) => ids,
                    Content::Text(text) => vec![text.len() as u32],
                };
                Sequence { truncated: ids.len() > 10, ids, unpooled: 0, line: r.line, bytes: r.bytes }
            };
            Ok(records.into_iter().map(sequence).collect())
        })
    }

    #[test]
    fn order_is_kept() {
        let lengths = [3, 9, 1, 12, 4, 4, 2, 2, 2, 2, 2, 2, 5];
        let mut lengths_seen = Vec::new();
        let mut seen = Vec::new();
        let encode = |batch: &[&Sequence]| {
            lengths_seen.push(batch.iter().map(|s| s.ids.len()).collect::<Vec<_>>());
            Ok(batch.iter().map(|s| vec![s.ids[0] as f32, s.ids.len() as f32]).collect())
        };
        let emit = |index: u64, sequence: &Sequence, vector: &[f32]| {
            assert_eq!(sequence.line, Some(index + 1));
            seen.push((index, vector.to_vec()));
            Ok(())
        };
        let totals =
            run(records(&lengths).into_iter(), LIMITS, tokenize(), encode, emit, |_| Ok(())).unwrap();
        let expected: Vec<_> =
            lengths.iter().enumerate().map(|(i, n)| (i as u64, vec![i as f32, *n as f32])).collect();
        assert_eq!(seen, expected);
        assert_eq!(totals, Totals { records: 13, tokens: 50, truncated: 1, bytes: 12 });
        // Windows of six: [3 9 1 12 4 4], [2 2 2 2 2 2], [5].
        let expected: [&[usize]; 3] = [&[12, 9, 4, 4, 3, 1], &[2; 6], &[5]];
        assert_eq!(lengths_seen, expected);
    }

    #[test]
    fn lines_before_a_bad_one_come_out() {
        let mut input = records(&[1, 2]);
        input.push(Err(Error::Input("line 3 is bad".into())));
        input.extend(records(&[4]));
        let mut emitted = 0;
        let encode = |batch: &[&Sequence]| Ok(batch.iter().map(|_| vec![0.0]).collect());
        let emit = |_: u64, _: &Sequence, _: &[f32]| {
            emitted += 1;
            Ok(())
        };
        let error = run(input.into_iter(), LIMITS, tokenize(), encode, emit, |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "line 3 is bad");
        assert_eq!(emitted, 2);
    }

    #[test]
    fn first_windows_are_small() {
        let mut sizes = Vec::new();
        let encode = |batch: &[&Sequence]| {
            sizes.push(batch.len());
            Ok(batch.iter().map(|_| vec![0.0]).collect())
        };
        let limits = Limits { first_part: 4, ..LIMITS };
        run(records(&[1; 17]).into_iter(), limits, tokenize(), encode, |_, _, _| Ok(()), |_| Ok(())).unwrap();
        assert_eq!(sizes, [2, 3, 6, 6]);
    }

    #[test]
    fn a_panic_in_the_reader_is_an_error() {
        let input = (0..20).map(|i| if i < 9 { Ok(Record::argument("abc")) } else { panic!("the reader's") });
        let encode = |batch: &[&Sequence]| Ok(batch.iter().map(|_| vec![0.0]).collect());
        let error = run(input, LIMITS, tokenize(), encode, |_, _, _| Ok(()), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn memory_is_constant() {
        // At most: one window being read, one waiting, one being encoded.
        let read = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&read);
        let input = (0..10_000).map(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(Record::argument("abc"))
        });
        let mut emitted = 0;
        let encode = |batch: &[&Sequence]| Ok(batch.iter().map(|_| vec![0.0]).collect());
        let emit = |_: u64, _: &Sequence, _: &[f32]| {
            emitted += 1;
            let ahead = read.load(Ordering::Relaxed) - emitted;
            assert!(ahead < 4 * LIMITS.window_records, "{ahead} records read ahead");
            Ok(())
        };
        let totals = run(input, LIMITS, tokenize(), encode, emit, |_| Ok(())).unwrap();
        assert_eq!(totals.records, 10_000);
    }

    #[test]
    fn a_window_ends_at_its_bytes() {
        let limits = Limits { window_bytes: 10, ..LIMITS };
        let mut input = records(&[1, 1, 1, 1]).into_iter();
        let (window, end) = take_window(&mut input, limits);
        assert_eq!(window.len(), 3, "twelve bytes of ids pass the limit of ten");
        assert!(matches!(end, End::Full));
    }

    #[test]
    fn the_consumer_may_stop() {
        let encode = |_: &[&Sequence]| Err(Error::Input("device lost".into()));
        let emit = |_: u64, _: &Sequence, _: &[f32]| Ok(());
        let endless = std::iter::repeat_with(|| Ok(Record::argument("abc")));
        let error = run(endless, LIMITS, tokenize(), encode, emit, |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "device lost");
    }

    #[test]
    fn a_wrong_number_of_vectors_is_an_error() {
        let encode = |_: &[&Sequence]| Ok(vec![]);
        let emit = |_: u64, _: &Sequence, _: &[f32]| Ok(());
        let error = run(records(&[1]).into_iter(), LIMITS, tokenize(), encode, emit, |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("0 vectors"), "{error}");
    }
}
