//! Turns what a device reports out of band (lost, out of memory, validation) into typed errors.

use alloc::{
    string::{String, ToString},
    sync::Arc,
};
use std::sync::{Mutex, PoisonError};

use crate::{Error, Result};

/// The first unreported fault of a device; a lost device stays lost.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Option<Error>>);

impl Faults {
    /// Listens to a device.
    pub fn listen(device: &wgpu::Device) -> Arc<Faults> {
        let faults = Arc::new(Faults::default());
        let on_error = faults.clone();
        device.on_uncaptured_error(Arc::new(move |error| on_error.record(convert(error))));
        let on_lost = faults.clone();
        device.set_device_lost_callback(move |reason, message| {
            // Dropping a device on purpose is no fault.
            if reason != wgpu::DeviceLostReason::Destroyed || !message.is_empty() {
                let text = if message.is_empty() { alloc::format!("{reason:?}") } else { message };
                on_lost.record(Error::DeviceLost(text));
            }
        });
        faults
    }

    fn record(&self, error: Error) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() || matches!(error, Error::DeviceLost(_)) {
            *first = Some(error);
        }
    }

    /// Records that the device is gone.
    pub fn lost(&self, why: String) {
        self.record(Error::DeviceLost(why));
    }

    /// Whether the device is gone.
    pub fn is_lost(&self) -> bool {
        matches!(&*self.0.lock().unwrap_or_else(PoisonError::into_inner), Some(Error::DeviceLost(_)))
    }

    /// Reports and forgets the first fault since the last call; a lost device is reported every time.
    ///
    /// # Errors
    /// That fault.
    pub fn check(&self) -> Result<()> {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*first {
            Some(lost @ Error::DeviceLost(_)) => Err(lost.clone()),
            _ => first.take().map_or(Ok(()), Err),
        }
    }

    /// [`Faults::check`], naming what was being allocated if memory ran out.
    ///
    /// # Errors
    /// Those of `check`.
    pub fn check_allocation(&self, what: &str) -> Result<()> {
        self.check().map_err(|error| match error {
            Error::OutOfMemory(_) => Error::OutOfMemory(what.into()),
            other => other,
        })
    }
}

fn convert(error: wgpu::Error) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory("a buffer".into()),
        wgpu::Error::Validation { description, .. } => Error::Gpu(description),
        other => Error::Gpu(describe(&other)),
    }
}

fn describe(error: &wgpu::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;

    fn out_of_memory() -> wgpu::Error {
        wgpu::Error::OutOfMemory { source: Box::new(Error::Gpu("driver".into())) }
    }

    #[test]
    fn a_fault_is_reported_once_and_named() {
        let faults = Faults::default();
        faults.record(convert(out_of_memory()));
        assert_eq!(faults.check_allocation("weights"), Err(Error::OutOfMemory("weights".into())));
        assert_eq!(faults.check(), Ok(()));
    }

    #[test]
    fn a_lost_device_stays_lost_and_outranks_other_faults() {
        let faults = Faults::default();
        faults.record(convert(out_of_memory()));
        faults.lost("reset".into());
        for _ in 0..2 {
            assert_eq!(faults.check(), Err(Error::DeviceLost("reset".into())));
            assert!(faults.is_lost());
        }
    }
}
