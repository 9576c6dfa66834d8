//! The backend as a whole, against the scalar reference.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use inferencelayer_engine::{
    backend::Backend,
    tensor::Format,
    testing::{Size, check_ops},
};

use super::{CpuBackend, CpuOptions, Isa, Parallel, Serial, Threads};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

fn backend(isa: Isa, matrices: Format, parallel: Arc<dyn Parallel>) -> CpuBackend {
    CpuBackend::new(CpuOptions { parallel, isa: Some(isa), matrices, ..CpuOptions::default() }).unwrap()
}

#[test]
fn every_op_matches_the_reference() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        for matrices in [Format::F32, Format::Int8] {
            let backend = backend(isa, matrices, Arc::new(Threads::new(2).unwrap()));
            let size = if isa == Isa::Scalar { Size::Small } else { Size::Full };
            let reports = block_on(check_ops(&backend, size));
            assert!(reports.len() > 100);
            for report in reports {
                let outcome = &report.outcome;
                assert!(report.passed(), "{isa}, {matrices:?}: {}: {outcome:?}", report.name);
            }
        }
    }
}

#[test]
fn serial_passes_too() {
    let backend = backend(Isa::detect(), Format::F32, Arc::new(Serial));
    for report in block_on(check_ops(&backend, Size::Small)) {
        assert!(report.passed(), "{}: {:?}", report.name, report.outcome);
    }
    assert_eq!(backend.capabilities().name, format!("cpu ({}, 1 thread)", Isa::detect()));
}
