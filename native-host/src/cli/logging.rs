//! Messages to standard error, so that standard output carries results alone.

use std::io::Write;

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Level {
    Off,
    Error,
    #[default]
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<Level> for log::LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Off => log::LevelFilter::Off,
            Level::Error => log::LevelFilter::Error,
            Level::Warn => log::LevelFilter::Warn,
            Level::Info => log::LevelFilter::Info,
            Level::Debug => log::LevelFilter::Debug,
            Level::Trace => log::LevelFilter::Trace,
        }
    }
}

/// Installs the logger. Graphics libraries are chatty: their messages below warnings come at `debug` only, and
/// below information at `trace` only.
pub fn init(level: Level) {
    let own = log::LevelFilter::from(level);
    let others = match level {
        Level::Off => log::LevelFilter::Off,
        Level::Error | Level::Warn | Level::Info => log::LevelFilter::Error,
        Level::Debug => log::LevelFilter::Info,
        Level::Trace => log::LevelFilter::Trace,
    };
    let ours = env!("CARGO_CRATE_NAME");
    let result = env_logger::Builder::new()
        .filter_level(others)
        .filter_module(ours, own)
        .filter_module("lfm2_embed", own)
        .filter_module("lfm2_generate", own)
        .format(|out, record| {
            let level = record.level().as_str().to_ascii_lowercase();
            writeln!(out, "{level}: {}", record.args())
        })
        .try_init();
    if result.is_err() {
        log::debug!("a logger is installed already");
    }
}
