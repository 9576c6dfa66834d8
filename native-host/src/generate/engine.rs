//! The engine users hold.

#[cfg(not(target_arch = "wasm32"))]
use std::path::{Path, PathBuf};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use inferencelayer_engine::{
    backend::{Backend, StepTime},
    checkpoint::{Folder, Gguf, Loader, TensorSource, open_weights, read_text},
    generate::{Choice, Generator, GeneratorOptions, Slot},
    model::{
        arch::{read_decoder, read_gguf},
        config::Config,
        decoder::{Decoder, DecoderConfig},
    },
};

#[cfg(feature = "tokenizer")]
use super::{Answer, GenerateSettings};
use super::{GenerateOptions, GenerationDefaults, Session};
use crate::{Error, Result, folder::describe};
#[cfg(feature = "tokenizer")]
use crate::{
    chat::{Chat, ChatTemplates},
    tokenizer::{self, Tokenizer},
};
#[cfg(not(target_arch = "wasm32"))]
use crate::{
    device::{self, DeviceOptions},
    folder::{DiskFolder, open_gguf},
};

/// Context that is taken where nothing is said, for models that are made for more.
const USUAL_CONTEXT: usize = 4096;

#[cfg(feature = "tokenizer")]
const NO_TOKENIZER: &str =
    "the checkpoint has no tokenizer (tokenizer.json, or a vocabulary in the GGUF file); give token ids";
#[cfg(feature = "tokenizer")]
const NO_TEMPLATE: &str = "the checkpoint has no chat template (chat_template in tokenizer_config.json, \
                           chat_template.jinja, or tokenizer.chat_template in the GGUF file), so it does not say how \
                           messages become a prompt; give the prompt itself";

/// A generator, and the tokens of each session that were read on behalf of another.
#[derive(Debug)]
pub(super) struct Shared {
    pub generator: Generator,
    /// By slot.
    pub inbox: Vec<VecDeque<Choice>>,
    /// Whoever waits for tokens.
    pub waiting: Vec<Waker>,
}

impl Shared {
    /// The next token of a slot; `None` if none is on its way.
    pub fn poll_choice(&mut self, slot: Slot, cx: &mut Context<'_>) -> Poll<Result<Option<Choice>>> {
        loop {
            if let Some(choice) = self.inbox[slot.0].pop_front() {
                return Poll::Ready(Ok(Some(choice)));
            }
            // Steps ahead first, then wait for the oldest.
            while self.generator.in_flight() < self.generator.depth() {
                match self.generator.decode() {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
            match self.generator.poll_next(cx) {
                Poll::Pending => {
                    self.waiting.push(cx.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(None)),
                Poll::Ready(Ok(Some(choices))) => {
                    for choice in choices {
                        self.inbox[choice.slot.0].push_back(choice);
                    }
                    // Their tokens may be among these.
                    self.waiting.drain(..).for_each(Waker::wake);
                }
            }
        }
    }
}

/// A loaded generating model.
///
/// Sessions of one engine share its weights, and their steps run as one batch. Several engines share a device.
#[derive(Debug)]
pub struct GenerateEngine {
    pub(super) shared: Arc<Mutex<Shared>>,
    config: DecoderConfig,
    defaults: GenerationDefaults,
    /// Or why there is none: token ids still work.
    #[cfg(feature = "tokenizer")]
    tokenizer: Result<Arc<Tokenizer>, String>,
    /// Or why there are none: texts that go on still work.
    #[cfg(feature = "tokenizer")]
    templates: Result<ChatTemplates, String>,
    context: usize,
    device: String,
    #[cfg(not(target_arch = "wasm32"))]
    gpu: Option<device::GpuHandle>,
}

#[cfg(not(target_arch = "wasm32"))]
impl GenerateEngine {
    /// Loads a folder or a GGUF file on the GPU if there is one, else on the CPU.
    ///
    /// # Errors
    /// Names the file, tensor or option at fault.
    pub fn auto(checkpoint: impl AsRef<Path>, options: GenerateOptions) -> Result<Self> {
        Self::open(checkpoint, &options)
    }

    /// [`GenerateEngine::auto`] on the CPU.
    ///
    /// # Errors
    /// As [`GenerateEngine::auto`].
    pub fn cpu(checkpoint: impl AsRef<Path>, options: GenerateOptions) -> Result<Self> {
        let device = DeviceOptions { device: device::Device::Cpu, ..options.device };
        Self::open(checkpoint, &GenerateOptions { device, ..options })
    }

    /// [`GenerateEngine::auto`] on the GPU.
    ///
    /// # Errors
    /// As [`GenerateEngine::auto`]; `NoAdapter` if there is no GPU.
    pub fn gpu(checkpoint: impl AsRef<Path>, options: GenerateOptions) -> Result<Self> {
        let device = DeviceOptions { device: device::Device::Gpu, ..options.device };
        Self::open(checkpoint, &GenerateOptions { device, ..options })
    }

    fn open(checkpoint: impl AsRef<Path>, options: &GenerateOptions) -> Result<Self> {
        Self::open_with_progress(checkpoint, options, None)
    }

    /// [`GenerateEngine::auto`], calling `progress` with the bytes of weights read so far and all of them.
    ///
    /// # Errors
    /// As [`GenerateEngine::auto`].
    pub fn open_with_progress(
        checkpoint: impl AsRef<Path>,
        options: &GenerateOptions,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Self> {
        let path = &gguf_within(checkpoint.as_ref())?;
        let opened = device::open_decoder(&options.device)?;
        let block =
            inferencelayer_engine::task::block_on::<std::pin::Pin<Box<dyn Future<Output = Result<Self>>>>>;
        let mut engine = if path.is_dir() {
            let folder = DiskFolder::open(path)?;
            block(Box::pin(Self::load_folder(&folder, opened.backend, options, true, progress)))?
        } else {
            let file = open_gguf(path)?;
            block(Box::pin(Self::load_gguf(&file, opened.backend, options, true, progress)))?
        };
        engine.gpu = opened.gpu;
        engine.save_pipelines();
        Ok(engine)
    }

    /// Names of the GPU and its driver; `None` on a CPU.
    pub fn adapter(&self) -> Option<(String, String)> {
        self.gpu.as_ref().map(device::GpuHandle::adapter)
    }

    /// Keeps what the GPU's driver compiled so far for the next start.
    pub fn save_pipelines(&self) {
        if let Some(context) = &self.gpu {
            context.save_pipelines();
        }
    }
}

impl GenerateEngine {
    /// Loads a Hugging Face folder, wherever its files are, on a backend. `blocking` is for where waiting may block:
    /// not in a browser.
    ///
    /// # Errors
    /// Names the file, tensor or option at fault.
    pub async fn load_folder(
        folder: &dyn Folder,
        backend: Arc<dyn Backend>,
        options: &GenerateOptions,
        blocking: bool,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Self> {
        let name = describe(folder, "config.json");
        let Some(text) = read_text(folder, "config.json").await? else {
            let why = "the file is missing: is this the folder of a Hugging Face model? (a GGUF model is named by its \
                       file)";
            return Err(Error::malformed(name, why));
        };
        let config = read_decoder(&Config::parse(&name, &text)?)?;
        #[cfg(not(feature = "tokenizer"))]
        let end = None;
        #[cfg(feature = "tokenizer")]
        let tokenizer = match folder.open("tokenizer.json").await? {
            Some(_) => Tokenizer::from_folder(folder, "").await.map(Arc::new).map_err(|e| e.to_string()),
            None => Err(NO_TOKENIZER.into()),
        };
        #[cfg(feature = "tokenizer")]
        let end = tokenizer.as_ref().ok().and_then(|t| t.special_tokens().eos);
        #[cfg(feature = "tokenizer")]
        let templates = found(ChatTemplates::from_folder(folder).await);
        let defaults = GenerationDefaults::from_folder(folder, config.vocab, end).await?;
        let source = open_weights(folder, "").await?;
        let engine = Self::load(config, &*source, backend, options, blocking, progress).await?;
        Ok(GenerateEngine {
            defaults,
            #[cfg(feature = "tokenizer")]
            tokenizer,
            #[cfg(feature = "tokenizer")]
            templates,
            ..engine
        })
    }

    /// Loads a GGUF file on a backend.
    ///
    /// # Errors
    /// As [`GenerateEngine::load_folder`].
    pub async fn load_gguf(
        file: &Gguf,
        backend: Arc<dyn Backend>,
        options: &GenerateOptions,
        blocking: bool,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Self> {
        let config = read_gguf(file)?;
        let defaults = GenerationDefaults::from_gguf(file.metadata(), config.vocab)?;
        #[cfg(feature = "tokenizer")]
        let tokenizer = match tokenizer::from_gguf(file.metadata()) {
            Ok(found) => found.map(Arc::new).ok_or_else(|| NO_TOKENIZER.into()),
            Err(error) => Err(error.to_string()),
        };
        #[cfg(feature = "tokenizer")]
        let templates = found(ChatTemplates::from_gguf(file.metadata()));
        let engine = Self::load(config, file, backend, options, blocking, progress).await?;
        Ok(GenerateEngine {
            defaults,
            #[cfg(feature = "tokenizer")]
            tokenizer,
            #[cfg(feature = "tokenizer")]
            templates,
            ..engine
        })
    }

    async fn load(
        config: DecoderConfig,
        source: &dyn TensorSource,
        backend: Arc<dyn Backend>,
        options: &GenerateOptions,
        blocking: bool,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Self> {
        let context = options.context.unwrap_or_else(|| config.max_positions.min(USUAL_CONTEXT));
        let slots = options.sessions.max(1);
        let usual = backend.capabilities().prompt_rows;
        let chunk = if options.chunk == 0 { usual } else { options.chunk }.min(context.max(1));
        let total = source.total_bytes();
        let tell = |done: u64| {
            if let Some(progress) = progress {
                progress(done.min(total), total);
            }
        };
        let layers = 0..config.layers.len();
        let mut loader = Loader::new(source, &*backend).with_progress(Some(&tell));
        let decoder = Decoder::load_layers(config.clone(), layers, context, &mut loader).await?;
        let cache = backend.capabilities().activations;
        let device = backend.capabilities().name.clone();
        let sizes =
            GeneratorOptions { slots, context, cached_tokens: slots.saturating_mul(context), chunk, cache };
        let mut generator = Generator::new(backend, decoder, sizes, blocking)?;
        generator.prepare(1, context)?;
        let inbox = (0..slots).map(|_| VecDeque::new()).collect();
        Ok(GenerateEngine {
            shared: Arc::new(Mutex::new(Shared { generator, inbox, waiting: Vec::new() })),
            config,
            defaults: GenerationDefaults::default(),
            #[cfg(feature = "tokenizer")]
            tokenizer: Err(NO_TOKENIZER.into()),
            #[cfg(feature = "tokenizer")]
            templates: Err(NO_TEMPLATE.into()),
            context,
            device,
            #[cfg(not(target_arch = "wasm32"))]
            gpu: None,
        })
    }

    /// Begins an empty session.
    ///
    /// # Errors
    /// `Input` if as many sessions are open as the engine was made for.
    pub fn session(&self) -> Result<Session> {
        Session::start(&self.shared)
    }

    /// What the checkpoint says about generating.
    pub fn defaults(&self) -> &GenerationDefaults {
        &self.defaults
    }

    /// Measures the parts of one step of all sessions that are generating. Their answers are damaged by it.
    ///
    /// # Errors
    /// `Unsupported` where steps cannot be measured (on a GPU without timestamps); the device's errors.
    pub fn profile(&self) -> Result<Vec<StepTime>> {
        Ok(lock(&self.shared).generator.profile()?)
    }

    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Most tokens of one session.
    pub fn context(&self) -> usize {
        self.context
    }

    /// For people: what the model runs on.
    pub fn device_name(&self) -> &str {
        &self.device
    }

    /// Most tokens of a prompt that are processed at once.
    pub fn chunk(&self) -> usize {
        lock(&self.shared).generator.options().chunk
    }

    /// Bytes that the backend holds: weights, caches, activations.
    pub fn memory(&self) -> u64 {
        lock(&self.shared).generator.backend().memory()
    }
}

/// The GGUF file of a folder that holds one model in that format and no other; else the path itself.
///
/// # Errors
/// `Io`; `Input` if the folder holds several models.
#[cfg(not(target_arch = "wasm32"))]
fn gguf_within(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() || path.join("config.json").exists() {
        return Ok(path.to_owned());
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(Error::io(path))? {
        let file = entry.map_err(Error::io(path))?.path();
        let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        // Of a model in several files, the first.
        let parts = inferencelayer_engine::checkpoint::split_names(name);
        let first = parts.is_none_or(|parts| parts.first().is_some_and(|first| first == name));
        if name.ends_with(".gguf") && first {
            files.push(file);
        }
    }
    files.sort_unstable();
    match &files[..] {
        [] => Ok(path.to_owned()),
        [file] => Ok(file.clone()),
        several => {
            let names: Vec<String> = several.iter().map(|f| f.display().to_string()).collect();
            Err(Error::Input(format!(
                "{} holds several models: name one of {}",
                path.display(),
                names.join(", ")
            )))
        }
    }
}

#[cfg(feature = "tokenizer")]
fn found(templates: Result<Option<ChatTemplates>>) -> Result<ChatTemplates, String> {
    templates.map_err(|e| e.to_string())?.ok_or_else(|| NO_TEMPLATE.into())
}

/// Texts and messages instead of token ids.
#[cfg(feature = "tokenizer")]
impl GenerateEngine {
    /// # Errors
    /// `Input` if the checkpoint has no tokenizer, or one that is not supported, with the reason.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>> {
        self.tokenizer.as_ref().map_err(|why| Error::Input(why.clone()))
    }

    /// Makes `ids` the session's tokens and answers them in text, until a token of
    /// [`GenerationDefaults::eos`](super::GenerationDefaults::eos) unless the settings say otherwise.
    ///
    /// # Errors
    /// As [`Session::generate`]; `Input` for stop texts without a tokenizer.
    pub fn answer<'a>(
        &self,
        session: &'a mut Session,
        ids: &[u32],
        settings: &GenerateSettings,
    ) -> Result<Answer<'a>> {
        let tokenizer = match self.tokenizer() {
            Ok(tokenizer) => Some(tokenizer.clone()),
            Err(why) if !settings.stop.is_empty() => return Err(why),
            Err(_) => None,
        };
        Answer::new(session, tokenizer, ids, &self.defaults.eos, settings)
    }

    /// # Errors
    /// `Input` if the checkpoint has no chat template, or one that does not compile, with the reason.
    pub fn chat_templates(&self) -> Result<&ChatTemplates> {
        self.templates.as_ref().map_err(|why| Error::Input(why.clone()))
    }

    /// Token ids of a chat, as the model's template renders it.
    ///
    /// # Errors
    /// As [`ChatTemplates::render`]; `Input` without a tokenizer or a template.
    pub fn chat_ids(&self, chat: &Chat) -> Result<Vec<u32>> {
        let text = self.chat_templates()?.render(chat)?;
        self.tokenizer()?.encode_rendered(&text)
    }

    /// Makes a chat the session's tokens and answers its last message. What the session holds of it already is not
    /// computed again, so a chat may grow by a question at a time.
    ///
    /// # Errors
    /// As [`GenerateEngine::chat_ids`] and [`GenerateEngine::answer`].
    pub fn chat<'a>(
        &self,
        session: &'a mut Session,
        chat: &Chat,
        settings: &GenerateSettings,
    ) -> Result<Answer<'a>> {
        self.answer(session, &self.chat_ids(chat)?, settings)
    }
}

/// The generator, for one user at a time. A user that panicked leaves it as it is after a failed call.
pub(super) fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
