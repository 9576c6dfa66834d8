//! Models by the names that `--model` takes.

use std::path::{Path, PathBuf};

use crate::Result;

/// The folder or file of a model: a path that is there, else an alias or hub id, which is fetched if need be.
///
/// # Errors
/// `Fetch`, with what was tried.
#[cfg(feature = "net")]
pub fn find(name: &str) -> Result<PathBuf> {
    use super::progress::Transfers;
    use crate::hub;
    if Path::new(name).exists() {
        return Ok(name.into());
    }
    hub::locate(name, &hub::Config::from_env()?, &Transfers::default())
}

/// The folder or file of a model.
///
/// # Errors
/// `Fetch` if there is none of this name.
#[cfg(not(feature = "net"))]
pub fn find(name: &str) -> Result<PathBuf> {
    match Path::new(name).exists() {
        true => Ok(name.into()),
        false => Err(crate::Error::Fetch(format!(
            "{name} is no folder or file, and this build has no models by name (feature net)"
        ))),
    }
}
