//! The engine users hold: a checkpoint folder loaded on a device, token ids or texts in, vectors out.

#[cfg(not(target_arch = "wasm32"))]
use std::path::Path;
use std::sync::Arc;

use inferencelayer_engine::{
    Error as EngineError,
    backend::Backend,
    batch::EncBatch,
    checkpoint::{Folder, Loader, open_module_weights, open_weights, read_text},
    embed::{self, Embedder, Head, HeadStep},
    model::{TextConfig, TextModel, TextShape, arch, config::Config},
    op::PoolMode,
    pooling::EmbedOut,
};

#[cfg(not(target_arch = "wasm32"))]
use crate::device::{self, DeviceOptions};
#[cfg(feature = "tokenizer")]
use crate::tokenizer::{Encoded, Tokenizer};
use crate::{
    Error, Result,
    folder::{describe, join},
    sentence_transformers::{Module, SentenceTransformer},
};

/// What is done with the encoder's output, where it differs from what the folder says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedOptions {
    /// Instead of the folder's pooling; the modes are concatenated.
    pub pooling: Option<Vec<PoolMode>>,
    /// Keep this many leading dimensions (Matryoshka); a unit vector gets its length back.
    pub dim: Option<usize>,
    /// Whether vectors end in unit length. On by default, whatever the folder says.
    pub normalize: bool,
    /// Use one plan for all sizes, so that a text's vector is the same to the last bit whatever else is in the
    /// batch. Short batches take longer.
    pub deterministic: bool,
}

impl Default for EmbedOptions {
    fn default() -> Self {
        EmbedOptions { pooling: None, dim: None, normalize: true, deterministic: false }
    }
}

/// A loaded embedding model.
#[derive(Debug)]
pub struct EmbedEngine {
    embedder: Embedder,
    settings: SentenceTransformer,
    #[cfg(feature = "tokenizer")]
    tokenizer: Option<Arc<Tokenizer>>,
    #[cfg(not(target_arch = "wasm32"))]
    context: Option<device::GpuHandle>,
}

#[cfg(not(target_arch = "wasm32"))]
impl EmbedEngine {
    /// Loads a folder on the GPU if there is one, else on the CPU. `max_batch_tokens` is the most tokens that go
    /// through the model at a time; larger batches are split.
    ///
    /// # Errors
    /// Names the file, tensor or option at fault.
    pub fn auto(checkpoint_dir: impl AsRef<Path>, max_batch_tokens: usize) -> Result<Self> {
        Self::open(checkpoint_dir, max_batch_tokens, &DeviceOptions::default(), &EmbedOptions::default())
    }

    /// Loads a folder on the CPU.
    ///
    /// # Errors
    /// As [`EmbedEngine::auto`].
    pub fn cpu(checkpoint_dir: impl AsRef<Path>, max_batch_tokens: usize) -> Result<Self> {
        let device = DeviceOptions { device: device::Device::Cpu, ..DeviceOptions::default() };
        Self::open(checkpoint_dir, max_batch_tokens, &device, &EmbedOptions::default())
    }

    /// Loads a folder on the GPU.
    ///
    /// # Errors
    /// As [`EmbedEngine::auto`]; `NoAdapter` if there is no GPU.
    pub fn gpu(checkpoint_dir: impl AsRef<Path>, max_batch_tokens: usize) -> Result<Self> {
        let device = DeviceOptions { device: device::Device::Gpu, ..DeviceOptions::default() };
        Self::open(checkpoint_dir, max_batch_tokens, &device, &EmbedOptions::default())
    }

    /// Loads a folder with all options.
    ///
    /// # Errors
    /// As [`EmbedEngine::auto`].
    pub fn open(
        checkpoint_dir: impl AsRef<Path>,
        max_batch_tokens: usize,
        device: &DeviceOptions,
        options: &EmbedOptions,
    ) -> Result<Self> {
        Self::open_with_progress(checkpoint_dir, max_batch_tokens, device, options, None)
    }

    /// [`EmbedEngine::open`], calling `progress` with the bytes of weights read so far and all of them.
    ///
    /// # Errors
    /// As [`EmbedEngine::auto`].
    pub fn open_with_progress(
        checkpoint_dir: impl AsRef<Path>,
        max_batch_tokens: usize,
        device: &DeviceOptions,
        options: &EmbedOptions,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Self> {
        let path = checkpoint_dir.as_ref();
        if is_gguf(path) {
            let why = "a GGUF model generates text, it does not embed: use lfm2-generate or GenerateEngine";
            return Err(Error::Input(format!("{}: {why}", path.display())));
        }
        let folder = crate::folder::DiskFolder::open(path)?;
        let opened = device::open(device)?;
        let loading = Self::load(&folder, opened.backend, max_batch_tokens, options, progress);
        let mut engine = inferencelayer_engine::task::block_on(loading)?;
        engine.context = opened.gpu;
        engine.save_pipelines();
        Ok(engine)
    }

    /// One vector for each sequence, in order.
    ///
    /// # Errors
    /// `Input` for sequences that are empty, longer than the model takes, or have ids outside its vocabulary;
    /// the device's errors.
    pub fn encode(&mut self, batch: &EncBatch) -> Result<EmbedOut> {
        Ok(self.embedder.encode_blocking(batch)?)
    }

    /// Measures the steps of one run with the first sequences of a batch.
    ///
    /// # Errors
    /// `Unsupported` where steps cannot be measured (on a CPU, or a GPU without timestamps); as [`EmbedEngine::encode`].
    pub fn profile(&mut self, batch: &EncBatch) -> Result<Vec<inferencelayer_engine::backend::StepTime>> {
        Ok(self.embedder.profile(batch)?)
    }

    /// Names of the GPU and its driver; `None` on a CPU.
    pub fn adapter(&self) -> Option<(String, String)> {
        self.context.as_ref().map(device::GpuHandle::adapter)
    }

    /// Keeps what the GPU's driver compiled so far for the next start.
    pub fn save_pipelines(&self) {
        if let Some(context) = &self.context {
            context.save_pipelines();
        }
    }
}

impl EmbedEngine {
    /// Loads a folder, wherever its files are, on a backend, calling `progress` with the bytes of weights read so far
    /// and all of them.
    ///
    /// # Errors
    /// Names the file, tensor or option at fault.
    pub async fn load(
        folder: &dyn Folder,
        backend: Arc<dyn Backend>,
        max_batch_tokens: usize,
        options: &EmbedOptions,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Self> {
        let settings = SentenceTransformer::read(folder).await?;
        let config = read_config(folder, &settings.transformer).await?;
        let shape = config.shape();
        check_pooling(&settings, options)?;
        #[cfg(feature = "tokenizer")]
        let tokenizer = load_tokenizer(folder, &settings, &shape).await?.map(Arc::new);
        let source = open_weights(folder, &slashed(&settings.transformer)).await?;
        let total = source.total_bytes();
        let tell = |done: u64| {
            if let Some(progress) = progress {
                progress(done.min(total), total);
            }
        };
        let mut loader = Loader::new(&*source, &*backend).with_progress(Some(&tell));
        let model = TextModel::load(config, max_batch_tokens, &mut loader).await?;
        let head = load_head(folder, &settings, shape.hidden, &*backend, options).await?;
        let embedder = Embedder::new(backend, model, head, max_batch_tokens, options.deterministic)?;
        Ok(EmbedEngine {
            embedder,
            settings,
            #[cfg(feature = "tokenizer")]
            tokenizer,
            #[cfg(not(target_arch = "wasm32"))]
            context: None,
        })
    }

    /// The async twin of `encode`, for where blocking is not possible.
    ///
    /// # Errors
    /// As `encode`.
    pub async fn encode_async(&mut self, batch: &EncBatch) -> Result<EmbedOut> {
        Ok(self.embedder.encode(batch).await?)
    }

    /// Values of one vector.
    pub fn dimension(&self) -> usize {
        self.embedder.width()
    }

    /// Most tokens of one sequence.
    pub fn max_sequence(&self) -> usize {
        sequence_limit(&self.settings, self.embedder.model())
    }

    /// What the folder says about prompts, limits and modules.
    pub fn settings(&self) -> &SentenceTransformer {
        &self.settings
    }

    /// The engine underneath.
    pub fn embedder(&self) -> &Embedder {
        &self.embedder
    }

    /// For people: the device and how numbers are kept on it.
    pub fn device_name(&self) -> String {
        let capabilities = self.embedder.backend().capabilities();
        format!(
            "{}, weights {:?}, activations {:?}",
            capabilities.name, capabilities.matrices, capabilities.activations
        )
    }
}

/// Texts instead of token ids.
#[cfg(feature = "tokenizer")]
impl EmbedEngine {
    /// The tokenizer, its limit set to the model's.
    ///
    /// # Errors
    /// `Input` if the folder has none.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        self.tokenizer.as_ref().ok_or_else(|| {
            Error::Input("the model's folder has no tokenizer.json; give token ids, or add the file".into())
        })
    }

    /// The text put before each input for a prompt's name, or for the folder's default name.
    ///
    /// # Errors
    /// `Input` for a name the model does not have.
    pub fn prompt(&self, name: Option<&str>) -> Result<&str> {
        self.settings.prompts.resolve(name)
    }

    /// Token ids of `prompt` followed by each text.
    ///
    /// # Errors
    /// `Input` without a tokenizer; `Tokenizer`.
    pub fn tokenize(&self, texts: &[&str], prompt: &str) -> Result<Vec<Encoded>> {
        let tokenizer = self.tokenizer()?;
        if prompt.is_empty() {
            return tokenizer.encode_batch(texts);
        }
        let prompted: Vec<String> = texts.iter().map(|text| format!("{prompt}{text}")).collect();
        tokenizer.encode_batch(&prompted.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Leading tokens that are left out when pooling: those of the prompt, if the model wants that.
    ///
    /// # Errors
    /// As [`EmbedEngine::tokenize`].
    pub fn unpooled_tokens(&self, prompt: &str) -> Result<usize> {
        if self.settings.pooling.include_prompt { Ok(0) } else { self.tokenizer()?.prompt_length(prompt) }
    }

    /// A batch of encoded texts that share `prompt`.
    ///
    /// # Errors
    /// As [`EmbedEngine::tokenize`].
    pub fn batch(&self, seqs: Vec<Vec<u32>>, prompt: &str) -> Result<EncBatch> {
        let unpooled = self.unpooled_tokens(prompt)?;
        let batch = EncBatch::from_seqs(seqs);
        if unpooled == 0 {
            return Ok(batch);
        }
        let starts = vec![unpooled; batch.len()];
        Ok(batch.with_pool_starts(starts)?)
    }

    /// One vector for each text. Texts longer than the model's limit are cut; `prompt` is the name of one of
    /// the model's prompts, or `None` for its default.
    ///
    /// # Errors
    /// `Input` for an unknown prompt or a folder without tokenizer; the device's errors.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn embed(&mut self, texts: &[&str], prompt: Option<&str>) -> Result<Vec<Vec<f32>>> {
        inferencelayer_engine::task::block_on(async {
            let batch = self.text_batch(texts, prompt)?;
            pooled(self.encode(&batch)?)
        })
    }

    /// The async twin of `embed`.
    ///
    /// # Errors
    /// As `embed`.
    pub async fn embed_async(&mut self, texts: &[&str], prompt: Option<&str>) -> Result<Vec<Vec<f32>>> {
        let batch = self.text_batch(texts, prompt)?;
        pooled(self.encode_async(&batch).await?)
    }

    fn text_batch(&self, texts: &[&str], prompt: Option<&str>) -> Result<EncBatch> {
        let prompt = self.prompt(prompt)?;
        let seqs = self.tokenize(texts, prompt)?.into_iter().map(|encoded| encoded.ids).collect();
        self.batch(seqs, prompt)
    }
}

/// The vectors of a model that pools.
///
/// # Errors
/// `Input` for another kind of output.
pub fn pooled(out: EmbedOut) -> Result<Vec<Vec<f32>>> {
    match out {
        EmbedOut::Pooled(vectors) => Ok(vectors),
        other => Err(Error::Input(format!("the model gives no pooled vectors but {other:?}"))),
    }
}

/// Whether a path is a GGUF file, or a folder with one and without config.json.
#[cfg(not(target_arch = "wasm32"))]
fn is_gguf(path: &Path) -> bool {
    let named = |path: &Path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
    if !path.is_dir() || path.join("config.json").exists() {
        return named(path);
    }
    std::fs::read_dir(path).is_ok_and(|files| files.flatten().any(|file| named(&file.path())))
}

async fn read_config(folder: &dyn Folder, path: &str) -> Result<TextConfig> {
    let name = join(path, "config.json");
    let Some(text) = read_text(folder, &name).await? else {
        let why = "the file is missing: is this the folder of a Hugging Face or sentence-transformers model?";
        return Err(Error::malformed(describe(folder, &name), why));
    };
    Ok(arch::read_text(&Config::parse(&describe(folder, &name), &text)?)?)
}

/// The engine wants folders inside a model with their slash.
fn slashed(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}/") }
}

fn sequence_limit(settings: &SentenceTransformer, model: &TextShape) -> usize {
    settings.max_seq_length.unwrap_or(usize::MAX).min(model.max_tokens)
}

fn check_pooling(settings: &SentenceTransformer, options: &EmbedOptions) -> Result<()> {
    let modes = options.pooling.as_ref().unwrap_or(&settings.pooling.modes);
    if !settings.pooling.include_prompt && modes.contains(&PoolMode::WeightedMean) {
        // There the weights of the text's tokens go on counting from the prompt's, which the engine's pooling
        // does not do.
        let why = "`include_prompt: false` together with weighted mean pooling";
        return Err(EngineError::Unsupported(format!("{why} is not supported")).into());
    }
    Ok(())
}

#[cfg(feature = "tokenizer")]
async fn load_tokenizer(
    folder: &dyn Folder,
    settings: &SentenceTransformer,
    model: &TextShape,
) -> Result<Option<Tokenizer>> {
    if folder.open(&join(&settings.transformer, "tokenizer.json")).await?.is_none() {
        // Token ids can still be encoded; texts give an error that names the file.
        return Ok(None);
    }
    let mut tokenizer = Tokenizer::from_folder(folder, &settings.transformer).await?;
    if settings.do_lower_case {
        tokenizer.lowercase()?;
    }
    let mut limit = sequence_limit(settings, model);
    if settings.max_seq_length.is_none() {
        limit = tokenizer.model_max_length().unwrap_or(usize::MAX).min(limit);
    }
    tokenizer.set_max_length(Some(limit))?;
    Ok(Some(tokenizer))
}

async fn load_head(
    folder: &dyn Folder,
    settings: &SentenceTransformer,
    hidden: usize,
    backend: &dyn Backend,
    options: &EmbedOptions,
) -> Result<Head> {
    if let Some(dimension) = settings.pooling.dimension
        && dimension != hidden
    {
        return Err(EngineError::Shape {
            what: format!("{}: the pooling module's token vectors", folder.name()),
            expected: format!("[{hidden}], as in the model's config.json"),
            found: format!("[{dimension}]"),
        }
        .into());
    }
    let mut steps = Vec::new();
    for module in &settings.head {
        steps.push(match module {
            Module::Normalize => HeadStep::Normalize,
            Module::Dense(dense) => {
                let source = open_module_weights(folder, &slashed(&dense.path)).await?;
                HeadStep::Dense(embed::Dense::load(&dense.config, &mut Loader::new(&*source, backend)).await?)
            }
        });
    }
    let pooling = options.pooling.clone().unwrap_or_else(|| settings.pooling.modes.clone());
    let mut head = Head { pooling, steps, dim: options.dim };
    head.set_unit(options.normalize);
    Ok(head)
}
