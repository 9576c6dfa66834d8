//! Encodes batches: packs, submits, reads.

use alloc::{collections::VecDeque, sync::Arc, vec, vec::Vec};
use core::{fmt, ops::Range};

use super::{
    bucket::Buckets,
    head::Head,
    plans::{Key, Kind, Plans},
};
use crate::{
    Error, Result,
    backend::{self, Backend, StepTime, Ticket},
    batch::{EncBatch, Packed},
    model::{TextModel, TextShape},
    pooling::EmbedOut,
    task::block_on,
};

/// Runs that are submitted before the first is read: one is packed and one read while one is computed.
const MOST_UNREAD: usize = 3;

/// Turns token sequences into vectors on one backend.
pub struct Embedder {
    backend: Arc<dyn Backend>,
    model: TextModel,
    shape: TextShape,
    head: Head,
    buckets: Buckets,
    plans: Plans,
    /// Runs that were submitted and not read, oldest first.
    unread: VecDeque<Run>,
    packed: Packed,
}

/// One submitted run.
struct Run {
    key: Key,
    ticket: Ticket,
    /// Rows of each sequence in the output.
    rows: Vec<usize>,
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedder")
            .field("backend", &self.backend.capabilities().name)
            .field("model", &self.shape.model_type)
            .field("head", &self.head.describe())
            .field("max_tokens", &self.buckets.max_tokens())
            .finish()
    }
}

/// What is done with runs whose results are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// Await them: the future is pending until they are there.
    Async,
    /// Block in the plan, so that the future never is.
    Block,
}

impl Embedder {
    /// Prepares the plan for the largest runs, so that the backend's memory has its final size from now on.
    ///
    /// `max_tokens` is the most tokens of one run; larger batches are split. With `deterministic`, all runs use
    /// the largest plan: a backend may choose kernels by a plan's size, and with one size a text's vector is
    /// the same to the last bit whatever else is in the batch. Short batches take longer then.
    ///
    /// # Errors
    /// `Input` if `max_tokens` is 0, a decoder was loaded for fewer or the head's `dim` is impossible, and those of
    /// [`Backend::prepare`].
    pub fn new(
        backend: Arc<dyn Backend>,
        model: impl Into<TextModel>,
        head: Head,
        max_tokens: usize,
        deterministic: bool,
    ) -> Result<Self> {
        if max_tokens == 0 || u32::try_from(max_tokens).is_err() {
            return Err(Error::Input(alloc::format!(
                "batches of at most {max_tokens} tokens; 1 to 4294967295 are possible"
            )));
        }
        let model = model.into();
        let shape = model.shape();
        model.check_tokens(max_tokens)?;
        head.width(shape.hidden)?;
        let buckets = Buckets::new(max_tokens, deterministic);
        let largest = Key { bucket: buckets.largest(), kind: Kind::Pooled };
        let mut plans = Plans::default();
        plans.get(largest, |_| false, &*backend, &model, &head)?;
        let (unread, packed) = (VecDeque::new(), Packed::default());
        Ok(Embedder { backend, model, shape, head, buckets, plans, unread, packed })
    }

    pub fn model(&self) -> &TextShape {
        &self.shape
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Values of one vector.
    pub fn width(&self) -> usize {
        self.head.width(self.shape.hidden).unwrap_or(0)
    }

    /// Most tokens of one run.
    pub fn max_tokens(&self) -> usize {
        self.buckets.max_tokens()
    }

    /// Plans that are prepared now.
    pub fn prepared_plans(&self) -> usize {
        self.plans.len()
    }

    /// One vector for each sequence, in order.
    ///
    /// # Errors
    /// `Input` for sequences that are empty, too long or have ids that the model has not, and those of the
    /// backend. An empty batch gives an empty result.
    pub async fn encode(&mut self, batch: &EncBatch) -> Result<EmbedOut> {
        Ok(EmbedOut::Pooled(self.run(batch, Kind::Pooled, Waiting::Async).await?))
    }

    /// [`Embedder::encode`], blocking. Not for browsers, where results need the event loop.
    ///
    /// # Errors
    /// As [`Embedder::encode`].
    pub fn encode_blocking(&mut self, batch: &EncBatch) -> Result<EmbedOut> {
        Ok(EmbedOut::Pooled(block_on(self.run(batch, Kind::Pooled, Waiting::Block))?))
    }

    /// The last hidden states, `[tokens, hidden]` row-major for each sequence.
    ///
    /// # Errors
    /// As [`Embedder::encode`].
    pub async fn encode_tokens(&mut self, batch: &EncBatch) -> Result<Vec<Vec<f32>>> {
        self.run(batch, Kind::Tokens, Waiting::Async).await
    }

    /// [`Embedder::encode_tokens`], blocking. Not for browsers.
    ///
    /// # Errors
    /// As [`Embedder::encode`].
    pub fn encode_tokens_blocking(&mut self, batch: &EncBatch) -> Result<Vec<Vec<f32>>> {
        block_on(self.run(batch, Kind::Tokens, Waiting::Block))
    }

    /// Encodes as many of the first sequences as one run takes and measures its steps.
    ///
    /// # Errors
    /// `Unsupported` where steps cannot be measured; those of [`Embedder::encode`].
    pub fn profile(&mut self, batch: &EncBatch) -> Result<Vec<StepTime>> {
        batch.check(&self.shape, self.buckets.max_tokens())?;
        let mut chunks = batch.chunks(self.buckets.max_tokens(), self.buckets.max_sequences()).into_iter();
        let Some(chunk) = chunks.next() else { return Ok(Vec::new()) };
        let (key, _) = self.pack(batch, chunk, Kind::Pooled)?;
        let Packed { tokens, tiles, ranges, counts } = &self.packed;
        let Some(prepared) = self.plans.existing(key) else { return Err(lost_plan()) };
        let named =
            [(Some(prepared.tokens), tokens), (Some(prepared.tiles), tiles), (prepared.ranges, ranges)];
        let inputs: Vec<_> = named.into_iter().filter_map(|(id, words)| Some((id?, &words[..]))).collect();
        prepared.plan.profile(*counts, &inputs)
    }

    async fn run(&mut self, batch: &EncBatch, kind: Kind, waiting: Waiting) -> Result<Vec<Vec<f32>>> {
        // Runs of a call that failed or was dropped half-way.
        while !self.unread.is_empty() {
            self.read_oldest(waiting, &mut Vec::new()).await?;
        }
        batch.check(&self.shape, self.buckets.max_tokens())?;
        let mut out = Vec::with_capacity(batch.len());
        for chunk in batch.chunks(self.buckets.max_tokens(), self.buckets.max_sequences()) {
            let (key, depth) = self.pack(batch, chunk.clone(), kind)?;
            while self.unread.len() >= depth {
                self.read_oldest(waiting, &mut out).await?;
            }
            self.submit(batch, chunk, key)?;
        }
        while !self.unread.is_empty() {
            self.read_oldest(waiting, &mut out).await?;
        }
        Ok(out)
    }

    /// Packs some sequences and sees to their plan; returns its key, and how many runs may be unread.
    fn pack(&mut self, batch: &EncBatch, chunk: Range<usize>, kind: Kind) -> Result<(Key, usize)> {
        self.packed.pack(batch, chunk, &self.shape);
        let [tokens, sequences, ..] = self.packed.counts;
        let bucket = self.buckets.fitting(tokens as usize, sequences as usize);
        let key = Key { bucket, kind };
        let unread = &self.unread;
        let busy = |key| unread.iter().any(|run| run.key == key);
        let prepared = self.plans.get(key, busy, &*self.backend, &self.model, &self.head)?;
        Ok((key, prepared.plan.depth().clamp(1, MOST_UNREAD)))
    }

    fn submit(&mut self, batch: &EncBatch, chunk: Range<usize>, key: Key) -> Result<()> {
        let Packed { tokens, tiles, ranges, counts } = &self.packed;
        let Some(prepared) = self.plans.existing(key) else { return Err(lost_plan()) };
        let out = prepared.out;
        let ticket = match prepared.ranges {
            Some(id) => {
                let inputs =
                    [(prepared.tokens, &tokens[..]), (prepared.tiles, &tiles[..]), (id, &ranges[..])];
                prepared.plan.submit(*counts, &inputs, &[(out, counts[1] as usize)])?
            }
            None => {
                let inputs = [(prepared.tokens, &tokens[..]), (prepared.tiles, &tiles[..])];
                prepared.plan.submit(*counts, &inputs, &[(out, counts[0] as usize)])?
            }
        };
        let rows = match key.kind {
            Kind::Pooled => vec![1; chunk.len()],
            Kind::Tokens => batch.seqs()[chunk].iter().map(Vec::len).collect(),
        };
        self.unread.push_back(Run { key, ticket, rows });
        Ok(())
    }

    /// Reads the oldest run; it stays among the unread if this future is dropped before it is done.
    async fn read_oldest(&mut self, waiting: Waiting, out: &mut Vec<Vec<f32>>) -> Result<()> {
        let Some(run) = self.unread.front() else { return Ok(()) };
        let Some(prepared) = self.plans.existing(run.key) else { return Err(lost_plan()) };
        let mut values = vec![0.0; run.rows.iter().sum::<usize>() * prepared.cols];
        let done = match waiting {
            Waiting::Block => prepared.plan.wait(run.ticket),
            Waiting::Async => Ok(()),
        };
        let done = match done {
            Ok(()) => backend::read(&mut *prepared.plan, run.ticket, &mut values).await,
            failed => failed,
        };
        let cols = prepared.cols;
        let Some(run) = self.unread.pop_front() else { return Ok(()) };
        done?;
        if !values.iter().all(|v| v.is_finite()) {
            return Err(Error::NotFinite("a text's vector".into()));
        }
        let mut rest = &values[..];
        for rows in run.rows {
            let (mine, others) = rest.split_at(rows * cols);
            rest = others;
            out.push(match run.key.kind {
                Kind::Pooled => self.head.finish(mine),
                Kind::Tokens => mine.to_vec(),
            });
        }
        Ok(())
    }
}

fn lost_plan() -> Error {
    Error::Unsupported("a plan in use was dropped".into())
}
