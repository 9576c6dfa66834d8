//! Schedules prompts and steps.

use alloc::{collections::VecDeque, format, sync::Arc, vec, vec::Vec};
use core::{
    fmt,
    task::{Context, Poll},
};

use super::{
    Sampling,
    pages::PagePool,
    plans::{Key, Kind, Plans, Prepared},
};
use crate::{
    Error, Result,
    backend::{self, Backend, StepTime, Ticket, USUAL_PROMPT_ROWS},
    model::decoder::{CacheOptions, Caches, Decoder, DecoderConfig, Mixer},
    op::{ATTENTION_TILE, PAGE},
    program::{BufferId, Counts},
    tensor::DType,
};

/// Rows of a run that computes logits of all rows, at most: they are large.
const LOGIT_ROWS: usize = 64;

/// Fewest positions that decoding plans are made for; larger ones follow by factors of 4.
const LEAST_CONTEXT: usize = 1024;

/// How a generator is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratorOptions {
    /// Sequences at a time.
    pub slots: usize,
    /// Most tokens of one sequence, prompt and answer.
    pub context: usize,
    /// Tokens that all sequences may have together; `slots · context` where memory allows.
    pub cached_tokens: usize,
    /// Most tokens of a prompt in one run.
    pub chunk: usize,
    /// Element type of the key-value caches: f32 or f16.
    pub cache: DType,
}

/// Names a sequence of a [`Generator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub usize);

/// One chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub slot: Slot,
    pub token: u32,
    /// Natural logarithm of its probability before temperature and filters. Not finite if the logits are not: then
    /// the token means nothing, and it is the last.
    pub log_probability: f32,
    /// Where it stands in its sequence.
    pub position: usize,
    /// It is one of the sequence's stop tokens, or there is no room for another.
    pub last: bool,
}

/// What the host knows of one sequence.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// Tokens in the caches, as far as they were read; what was submitted ahead is not among them.
    pub ids: Vec<u32>,
    /// How many of `ids` came from prompts.
    pub prompted: Vec<bool>,
    pub pages: Vec<u32>,
    /// Positions that submitted runs fill.
    pub submitted: usize,
    /// The token that follows `ids`, once it was read and is not in the caches.
    pub pending: Option<u32>,
    /// A token that follows is on the device.
    pub live: bool,
    /// No token stands at this position or after it.
    limit: usize,
    /// Runs of the slot's former sequences are told apart by this.
    serial: u64,
    stop: Vec<u32>,
}

struct Run {
    key: Key,
    ticket: Ticket,
    /// Slot and serial of each row.
    rows: Vec<(usize, u64)>,
}

/// Generates text with one decoder on one backend.
pub struct Generator {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) decoder: Decoder,
    pub(super) caches: Caches,
    pub(super) options: GeneratorOptions,
    pub(super) pool: PagePool,
    pub(super) sequences: Vec<Option<Sequence>>,
    plans: Plans,
    /// Slots of the rows of `caches.tokens`, as the host last wrote them.
    rows: Vec<usize>,
    unread: VecDeque<Run>,
    serial: u64,
    blocking: bool,
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator")
            .field("backend", &self.backend.capabilities().name)
            .field("model", &self.decoder.config().model_type)
            .field("options", &self.options)
            .finish()
    }
}

impl Generator {
    /// Makes the caches. Plans are prepared when they are first needed, or by [`Generator::prepare`].
    ///
    /// `blocking` is for natively waiting on results; in a browser, where only the event loop makes progress, it
    /// must be false.
    ///
    /// # Errors
    /// `Input` for impossible options, `TooLarge` and `OutOfMemory`.
    pub fn new(
        backend: Arc<dyn Backend>,
        decoder: Decoder,
        options: GeneratorOptions,
        blocking: bool,
    ) -> Result<Self> {
        let GeneratorOptions { slots, context, cached_tokens, chunk, cache } = options;
        if slots == 0 || slots > 1 << 16 || chunk == 0 || chunk > 1 << 16 {
            return Err(Error::Input(format!("{slots} sequences, prompts in chunks of {chunk} tokens")));
        }
        if context == 0 || context > decoder.context() {
            let most = decoder.context();
            return Err(Error::Input(format!(
                "a context of {context} tokens of a decoder loaded for {most}"
            )));
        }
        if cached_tokens < context {
            return Err(Error::Input(format!("caches of {cached_tokens} tokens for a context of {context}")));
        }
        let pages = cached_tokens.div_ceil(PAGE).max(slots);
        let pages_per_slot = context.div_ceil(PAGE);
        let sizes = CacheOptions { slots, pages, pages_per_slot, dtype: cache };
        let caches = Caches::new(&decoder, &*backend, sizes)?;
        Ok(Generator {
            backend,
            decoder,
            caches,
            options,
            pool: PagePool::new(pages),
            sequences: (0..slots).map(|_| None).collect(),
            plans: Plans::default(),
            rows: Vec::new(),
            unread: VecDeque::new(),
            serial: 0,
            blocking,
        })
    }

    pub fn model(&self) -> &DecoderConfig {
        self.decoder.config()
    }

    pub fn options(&self) -> &GeneratorOptions {
        &self.options
    }

    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Prepares the plans that prompts and answers of up to `tokens` tokens need, so that nothing is made while
    /// text is generated.
    ///
    /// # Errors
    /// Those of [`Backend::prepare`].
    pub fn prepare(&mut self, sequences: usize, tokens: usize) -> Result<()> {
        let tokens = tokens.clamp(1, self.options.context);
        let chunk = self.options.chunk;
        let largest = self.prompt_key(Kind::Choose, tokens.min(chunk));
        self.plan(largest)?;
        if tokens > chunk {
            self.plan(self.prompt_key(Kind::Store, chunk))?;
        }
        let usual = self.prompt_key(Kind::Choose, tokens.min(chunk).min(USUAL_PROMPT_ROWS));
        self.plan(usual)?;
        let mut context = self.context_bucket(1);
        loop {
            self.plan(Key { kind: Kind::Decode, rows: self.row_bucket(sequences), context })?;
            if context >= tokens.min(self.options.context) {
                return Ok(());
            }
            context = self.context_bucket(context + 1);
        }
    }

    /// Begins a sequence.
    ///
    /// # Errors
    /// `Input` if all slots are taken.
    pub fn start(&mut self) -> Result<Slot> {
        let Some(slot) = self.sequences.iter().position(Option::is_none) else {
            let count = self.sequences.len();
            return Err(Error::Input(format!("all {count} slots are taken; finish a sequence first")));
        };
        self.serial += 1;
        self.sequences[slot] = Some(Sequence { serial: self.serial, ..Sequence::default() });
        Ok(Slot(slot))
    }

    /// Ends a sequence and frees its pages. What was submitted for it is not reported.
    pub fn finish(&mut self, slot: Slot) {
        if let Some(mut sequence) = self.sequences.get_mut(slot.0).and_then(Option::take) {
            self.pool.release(&mut sequence.pages);
        }
    }

    /// Tokens of a sequence that are in the caches, as far as they were read.
    pub fn tokens(&self, slot: Slot) -> &[u32] {
        self.sequences.get(slot.0).and_then(Option::as_ref).map_or(&[], |s| &s.ids)
    }

    /// Can [`Generator::rewind`] go to any earlier position? Not with convolutions, whose state is of one position.
    pub fn can_rewind(&self) -> bool {
        let layers = &self.decoder.config().layers[self.decoder.layers()];
        layers.iter().all(|l| matches!(l.mixer, Mixer::Attention { .. }))
    }

    /// Forgets all but the first `length` tokens of a sequence.
    ///
    /// # Errors
    /// `Input` if it has fewer; `Unsupported` if the caches cannot go back ([`Generator::can_rewind`]): finish the
    /// sequence and begin again.
    pub fn rewind(&mut self, slot: Slot, length: usize) -> Result<()> {
        let exact = self.can_rewind();
        let sequence = self.sequence(slot)?;
        if length > sequence.ids.len() {
            let found = sequence.ids.len();
            return Err(Error::Input(format!("a sequence of {found} tokens has no position {length}")));
        }
        if !exact && length > 0 && sequence.submitted != length {
            let why =
                format!("this model's convolutions are at position {}, not {length}", sequence.submitted);
            return Err(Error::Unsupported(why));
        }
        sequence.ids.truncate(length);
        sequence.prompted.truncate(length);
        (sequence.submitted, sequence.pending, sequence.live) = (length, None, false);
        Ok(())
    }

    /// Appends `ids` to a sequence and chooses the token after them; [`Generator::next`] reports it, and decoding
    /// steps go on from there until `tokens` have been chosen. A token that was chosen before and is not in the
    /// caches comes first.
    ///
    /// # Errors
    /// `Input` for no tokens, ids outside the vocabulary, more tokens than the context or the caches hold, or
    /// impossible settings; those of the backend.
    pub fn prompt(&mut self, slot: Slot, ids: &[u32], tokens: usize, sampling: &Sampling) -> Result<()> {
        sampling.check(self.decoder.config().vocab)?;
        if tokens == 0 {
            return Err(Error::Input("no tokens to choose; `logits` takes a prompt without choosing".into()));
        }
        let ids = self.feed(slot, ids)?;
        self.write_sampling(slot, sampling)?;
        // Runs of an earlier answer that are still unread are nobody's.
        self.serial += 1;
        let serial = self.serial;
        self.sequence(slot)?.serial = serial;
        let row = match self.rows.iter().position(|s| *s == slot.0) {
            Some(row) => row,
            None => {
                self.rows.push(slot.0);
                self.rows.len() - 1
            }
        };
        let mut rest = &ids[..];
        while rest.len() > self.options.chunk {
            let (chunk, more) = rest.split_at(self.options.chunk);
            self.submit_chunk(slot, chunk, Kind::Store, row)?;
            rest = more;
        }
        self.submit_chunk(slot, rest, Kind::Choose, row)?;
        let stop = sampling.stop.clone();
        let context = self.options.context;
        let sequence = self.sequence(slot)?;
        (sequence.live, sequence.stop) = (true, stop);
        sequence.limit = sequence.ids.len().saturating_add(tokens).min(context);
        Ok(())
    }

    /// Appends `ids` to a sequence and returns the logits after each of them, `[ids, vocab]`. No token is chosen.
    ///
    /// # Errors
    /// As [`Generator::prompt`].
    pub async fn logits(&mut self, slot: Slot, ids: &[u32]) -> Result<Vec<f32>> {
        let ids = self.feed(slot, ids)?;
        let (columns, vocab) = (self.decoder.logit_columns(), self.decoder.config().vocab);
        let mut all = Vec::new();
        for chunk in ids.chunks(LOGIT_ROWS.min(self.options.chunk)) {
            // Logits take this run's turn: what is in flight is read later, in its order.
            let (key, ticket) = self.submit_rows(slot, chunk, Kind::Logits, 0)?;
            let mut values = vec![0.0; chunk.len() * columns];
            let blocking = self.blocking;
            let Some(prepared) = self.plans.existing(key) else { return Err(lost_plan()) };
            if blocking {
                prepared.plan.wait(ticket)?;
            }
            backend::read(&mut *prepared.plan, ticket, &mut values).await?;
            values.chunks(columns).for_each(|row| all.extend_from_slice(&row[..vocab]));
        }
        Ok(all)
    }

    /// Steps that may be submitted before the first is read.
    pub fn depth(&self) -> usize {
        self.backend.capabilities().steps_ahead.max(1)
    }

    /// Runs that were submitted and not read.
    pub fn in_flight(&self) -> usize {
        self.unread.len()
    }

    /// Submits one step of all sequences that have a next token on the device and room for it; says how many
    /// there are. Waits for nothing.
    ///
    /// # Errors
    /// `Input` if the caches are full, and those of the backend.
    pub fn decode(&mut self) -> Result<usize> {
        let Some((key, count)) = self.next_step()? else { return Ok(0) };
        let rows: Vec<(usize, u64)> =
            self.rows.iter().map(|s| (*s, self.sequences[*s].as_ref().map_or(0, |q| q.serial))).collect();
        let prepared = self.plan(key)?;
        let Some(out) = prepared.out else { return Err(lost_plan()) };
        let ticket = prepared.plan.submit([count as u32, 0, 0, 0], &[], &[(out, count)])?;
        for at in 0..count {
            let slot = Slot(self.rows[at]);
            self.sequence(slot)?.submitted += 1;
        }
        self.unread.push_back(Run { key, ticket, rows });
        Ok(count)
    }

    /// The tokens of the oldest run that was not read, those of sequences that were finished meanwhile left out;
    /// `None` if there is no such run.
    ///
    /// # Errors
    /// Those of the backend.
    pub async fn next(&mut self) -> Result<Option<Vec<Choice>>> {
        core::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`Generator::next`] for who must not hold the generator while waiting.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Vec<Choice>>>> {
        let Some(run) = self.unread.front() else { return Poll::Ready(Ok(None)) };
        let (key, ticket, count) = (run.key, run.ticket, run.rows.len());
        let blocking = self.blocking;
        let Some(prepared) = self.plans.existing(key) else { return Poll::Ready(Err(lost_plan())) };
        let mut values = vec![0.0; count * 4];
        let waited = if blocking { prepared.plan.wait(ticket) } else { Ok(()) };
        let done = match waited {
            Ok(()) => match prepared.plan.poll_read(ticket, &mut values, cx) {
                Poll::Ready(done) => done,
                Poll::Pending => return Poll::Pending,
            },
            failed => failed,
        };
        let Some(run) = self.unread.pop_front() else { return Poll::Ready(Ok(None)) };
        Poll::Ready(done.map(|()| Some(self.choices(run, &values))))
    }

    /// What a run's values say of its sequences.
    fn choices(&mut self, run: Run, values: &[f32]) -> Vec<Choice> {
        let mut choices = Vec::with_capacity(run.rows.len());
        for ((slot, serial), row) in run.rows.into_iter().zip(values.as_chunks::<4>().0) {
            let Some(sequence) = self.sequences[slot].as_mut().filter(|s| s.serial == serial) else {
                continue;
            };
            // After a stop token, rows of the last slot come back.
            if !sequence.live {
                continue;
            }
            let (token, position) = (row[0] as u32, row[2] as usize);
            if let Some(pending) = sequence.pending.replace(token) {
                sequence.ids.push(pending);
                sequence.prompted.push(false);
            }
            let broken = !row[1].is_finite();
            let last = broken || sequence.stop.contains(&token) || position + 1 >= sequence.limit;
            if last {
                sequence.live = false;
                // Steps ahead went elsewhere, or were not submitted.
                sequence.submitted = sequence.ids.len();
            }
            choices.push(Choice { slot: Slot(slot), token, log_probability: row[1], position, last });
        }
        choices
    }

    /// Runs one step of all sequences as [`Generator::decode`] does and measures its parts; its tokens are lost, so
    /// begin the sequences again.
    ///
    /// # Errors
    /// `Unsupported` where steps cannot be measured; those of [`Generator::decode`].
    pub fn profile(&mut self) -> Result<Vec<StepTime>> {
        let Some((key, count)) = self.next_step()? else { return Ok(Vec::new()) };
        self.plan(key)?.plan.profile([count as u32, 0, 0, 0], &[])
    }

    /// Runs a prompt of one chunk at most and measures its parts; the sequence is damaged, so begin it again.
    ///
    /// # Errors
    /// `Input` for more tokens than a chunk holds; those of [`Generator::profile`] and [`Generator::prompt`].
    pub fn profile_prompt(&mut self, slot: Slot, ids: &[u32]) -> Result<Vec<StepTime>> {
        if ids.len() > self.options.chunk {
            let (found, most) = (ids.len(), self.options.chunk);
            return Err(Error::Input(format!("a prompt of {found} tokens; {most} are measured at a time")));
        }
        let ids = self.feed(slot, ids)?;
        self.write_sampling(slot, &Sampling::default())?;
        let inputs = PromptInputs::new(slot, &ids, self.sequence(slot)?.submitted, 0);
        let prepared = self.plan(self.prompt_key(Kind::Choose, ids.len()))?;
        let named = inputs.named(prepared);
        prepared.plan.profile(inputs.counts(), &named)
    }

    /// Ends a sequence's answer: no further steps. Its tokens stay in the caches for a later prompt.
    ///
    /// # Errors
    /// `Input` if there is no such sequence.
    pub fn pause(&mut self, slot: Slot) -> Result<()> {
        self.sequence(slot)?.live = false;
        Ok(())
    }

    pub(super) fn sequence(&mut self, slot: Slot) -> Result<&mut Sequence> {
        let found = self.sequences.get_mut(slot.0).and_then(Option::as_mut);
        found.ok_or_else(|| Error::Input(format!("slot {} holds no sequence", slot.0)))
    }

    /// Checks what is to be appended to a sequence, and makes room for it.
    fn feed(&mut self, slot: Slot, ids: &[u32]) -> Result<Vec<u32>> {
        let (vocab, context) = (self.decoder.config().vocab, self.options.context);
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
            return Err(Error::Input(format!("token {id} of a vocabulary of {vocab}")));
        }
        let exact = self.can_rewind();
        let sequence = self.sequence(slot)?;
        let stored = sequence.ids.len();
        if sequence.submitted != stored {
            if !exact {
                let why = "steps were submitted beyond the last token that was read, and this model's convolutions \
                           cannot go back: finish the sequence and begin again";
                return Err(Error::Unsupported(why.into()));
            }
            sequence.submitted = stored;
        }
        let all: Vec<u32> = sequence.pending.into_iter().chain(ids.iter().copied()).collect();
        if all.is_empty() {
            return Err(Error::Input("an empty prompt".into()));
        }
        if stored + all.len() > context {
            let (found, room) = (all.len(), context - stored);
            return Err(Error::Input(format!(
                "a prompt of {found} tokens; the context of {context} tokens has room for {room}"
            )));
        }
        self.reserve(slot, stored + all.len())?;
        let sequence = self.sequence(slot)?;
        let chosen = usize::from(sequence.pending.take().is_some());
        sequence.live = false;
        sequence.prompted.extend((0..all.len()).map(|i| i >= chosen));
        sequence.ids.extend_from_slice(&all);
        Ok(all)
    }

    /// Sees to it that a sequence has pages for so many positions.
    pub(super) fn reserve(&mut self, slot: Slot, positions: usize) -> Result<()> {
        let Some(Some(sequence)) = self.sequences.get_mut(slot.0) else {
            return Err(Error::Input(format!("slot {} holds no sequence", slot.0)));
        };
        if self.pool.reserve(&mut sequence.pages, positions)? {
            let mut row = sequence.pages.clone();
            row.resize(self.caches.pages.spec().cols, 0);
            self.backend.write_state(&self.caches.pages, slot.0, &row)?;
        }
        Ok(())
    }

    fn write_sampling(&mut self, slot: Slot, sampling: &Sampling) -> Result<()> {
        let mut counts = Vec::new();
        if sampling.penalises() {
            counts = vec![0u32; self.caches.counts.spec().cols];
            let sequence = self.sequence(slot)?;
            for (id, prompted) in sequence.ids.iter().zip(&sequence.prompted) {
                let count = &mut counts[*id as usize];
                *count = if *prompted { *count | 1 } else { count.saturating_add(2) };
            }
        }
        let (backend, caches) = (&self.backend, &self.caches);
        if !counts.is_empty() {
            backend.write_state(&caches.counts, slot.0, &counts)?;
        }
        if !sampling.logit_bias.is_empty() {
            let mut bias = vec![0f32; caches.bias.spec().cols];
            sampling.logit_bias.iter().for_each(|(id, value)| bias[*id as usize] += value);
            let words: Vec<u32> = bias.into_iter().map(f32::to_bits).collect();
            backend.write_state(&caches.bias, slot.0, &words)?;
        }
        backend.write_state(&caches.settings, slot.0, &sampling.words())
    }

    fn submit_chunk(&mut self, slot: Slot, ids: &[u32], kind: Kind, row: usize) -> Result<()> {
        let (key, ticket) = self.submit_rows(slot, ids, kind, row)?;
        let serial = self.sequence(slot)?.serial;
        if kind == Kind::Choose {
            self.unread.push_back(Run { key, ticket, rows: vec![(slot.0, serial)] });
        } else if let Some(prepared) = self.plans.existing(key) {
            // Nothing was asked for, so there is nothing to wait for.
            let mut context = Context::from_waker(core::task::Waker::noop());
            let _ = prepared.plan.poll_read(ticket, &mut [], &mut context);
        }
        Ok(())
    }

    /// Submits consecutive rows of one sequence, which its `ids` hold already.
    fn submit_rows(&mut self, slot: Slot, ids: &[u32], kind: Kind, row: usize) -> Result<(Key, Ticket)> {
        let count = ids.len();
        let key = self.prompt_key(kind, count);
        let inputs = PromptInputs::new(slot, ids, self.sequence(slot)?.submitted, row);
        let prepared = self.plan(key)?;
        let reads: Vec<_> =
            prepared.out.into_iter().map(|out| (out, if kind == Kind::Logits { count } else { 1 })).collect();
        let ticket = prepared.plan.submit(inputs.counts(), &inputs.named(prepared), &reads)?;
        self.sequence(slot)?.submitted += count;
        Ok((key, ticket))
    }

    fn plan(&mut self, key: Key) -> Result<&mut Prepared> {
        let unread = &self.unread;
        let busy = |key| unread.iter().any(|run| run.key == key);
        self.plans.get(key, busy, &*self.backend, &self.decoder, &self.caches)
    }

    /// Leaves the rows of live sequences with room, without gaps.
    fn compact(&mut self) -> Result<()> {
        let goes_on = |s: &Option<Sequence>| s.as_ref().is_some_and(|s| s.live && s.submitted + 1 < s.limit);
        let mut at = 0;
        while at < self.rows.len() {
            if goes_on(&self.sequences[self.rows[at]]) {
                at += 1;
                continue;
            }
            let last = self.rows.len() - 1;
            if at != last {
                self.backend.copy_state(&self.caches.tokens, last..last + 1, at)?;
            }
            self.rows.swap_remove(at);
        }
        Ok(())
    }

    /// Makes room for one step of all live sequences; names its plan and the number of rows.
    fn next_step(&mut self) -> Result<Option<(Key, usize)>> {
        self.compact()?;
        let count = self.rows.len();
        if count == 0 {
            return Ok(None);
        }
        let mut furthest = 0;
        for at in 0..count {
            let slot = Slot(self.rows[at]);
            let positions = self.sequence(slot)?.submitted + 1;
            self.reserve(slot, positions)?;
            furthest = furthest.max(positions);
        }
        let key =
            Key { kind: Kind::Decode, rows: self.row_bucket(count), context: self.context_bucket(furthest) };
        Ok(Some((key, count)))
    }

    fn prompt_key(&self, kind: Kind, rows: usize) -> Key {
        let chunk = self.options.chunk;
        let most = if kind == Kind::Logits { LOGIT_ROWS.min(chunk) } else { chunk };
        let rows = rows.next_power_of_two().max(16).min(most.max(rows));
        Key { kind, rows, context: self.options.context }
    }

    fn row_bucket(&self, rows: usize) -> usize {
        rows.next_power_of_two().min(self.options.slots)
    }

    fn context_bucket(&self, positions: usize) -> usize {
        let mut bucket = LEAST_CONTEXT;
        while bucket < positions {
            bucket *= 4;
        }
        bucket.min(self.options.context)
    }
}

/// What a run of a prompt's rows is given.
struct PromptInputs {
    tokens: Vec<u32>,
    tiles: Vec<u32>,
    spans: [u32; 2],
    target: [u32; 4],
}

impl PromptInputs {
    /// Rows of `ids` from position `first` on; `row` is the sequence's among those that are decoded.
    fn new(slot: Slot, ids: &[u32], first: usize, row: usize) -> Self {
        let (count, first, slot) = (ids.len(), first as u32, slot.0 as u32);
        let tokens = ids.iter().zip(first..).flat_map(|(id, position)| [*id, position, 0, slot]).collect();
        let tiles = (0..count)
            .step_by(ATTENTION_TILE)
            .flat_map(|at| [at as u32, (at + ATTENTION_TILE).min(count) as u32, 0, 0])
            .collect();
        let target = [row as u32, first + count as u32 - 1, 0, slot];
        PromptInputs { tokens, tiles, spans: [0, count as u32], target }
    }

    fn counts(&self) -> Counts {
        [self.tokens.len() as u32 / 4, 1, self.tiles.len() as u32 / 4, 0]
    }

    fn named(&self, prepared: &Prepared) -> Vec<(BufferId, &[u32])> {
        let all = [
            (prepared.tokens, &self.tokens[..]),
            (prepared.tiles, &self.tiles),
            (prepared.spans, &self.spans),
            (prepared.targets, &self.target),
        ];
        all.into_iter().filter_map(|(id, words)| Some((id?, words))).collect()
    }
}

fn lost_plan() -> Error {
    Error::Unsupported("a plan in use was dropped".into())
}
