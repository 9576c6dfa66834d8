//! The backend as a whole, against the scalar reference.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use inferencelayer_engine::{
    backend::Backend,
    tensor::Format,
    testing::{CaseReport, Size, check_cases, check_ops, decoder_cases},
};

use super::{CpuBackend, CpuOptions, Isa, Serial, Threads};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

fn options(isa: Isa, matrices: Format, q8_activations: bool) -> CpuOptions {
    let parallel = Arc::new(Threads::new(2).unwrap());
    CpuOptions { parallel, isa: Some(isa), matrices, q8_activations, ..CpuOptions::default() }
}

/// The instruction sets there are here, each with the size of the suite that it runs: of those that differ in a few
/// instructions, one runs it whole.
fn isas() -> impl Iterator<Item = (Isa, Size)> {
    let whole = [Isa::detect(), Isa::Avx2, Isa::Neon];
    let size = move |isa| if whole.contains(&isa) { Size::Full } else { Size::Small };
    Isa::ALL.into_iter().filter(|isa| isa.available()).map(move |isa| (isa, size(isa)))
}

fn assert_passed(what: &str, reports: &[CaseReport]) {
    assert!(reports.len() > 100);
    let failed = reports.iter().filter(|report| !report.passed());
    let failed: Vec<String> = failed.map(|r| format!("{}: {:?}", r.name, r.outcome)).collect();
    let (count, all) = (failed.len(), reports.len());
    assert!(failed.is_empty(), "{what}: {count} of {all} fail:\n{}", failed[..count.min(40)].join("\n"));
}

#[test]
fn every_op_matches_the_reference() {
    for (isa, size) in isas() {
        for (matrices, q8) in [(Format::F32, false), (Format::F32, true), (Format::Int8, false)] {
            let backend = CpuBackend::new(options(isa, matrices, q8)).unwrap();
            let reports = block_on(check_ops(&backend, size));
            assert_passed(&format!("{isa}, {matrices:?}, q8 {q8}"), &reports);
        }
    }
}

#[test]
fn every_op_of_decoders_matches_the_reference() {
    for (isa, size) in isas() {
        for (matrices, q8) in [(Format::F32, false), (Format::F32, true), (Format::Int8, false)] {
            let backend = CpuBackend::new(options(isa, matrices, q8)).unwrap();
            let cases = decoder_cases(backend.capabilities(), size);
            let reports = block_on(check_cases(&backend, cases));
            assert_passed(&format!("{isa}, {matrices:?}, q8 {q8}"), &reports);
        }
    }
}

#[test]
fn serial_passes_too() {
    let serial = CpuOptions { parallel: Arc::new(Serial), ..CpuOptions::default() };
    let backend = CpuBackend::new(serial).unwrap();
    let mut reports = block_on(check_ops(&backend, Size::Small));
    reports.extend(block_on(check_cases(&backend, decoder_cases(backend.capabilities(), Size::Small))));
    assert_passed("serial", &reports);
    assert_eq!(backend.capabilities().name, format!("cpu ({}, 1 thread)", Isa::detect()));
}
