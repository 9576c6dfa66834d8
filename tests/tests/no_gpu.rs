//! Where there is no GPU: `auto` takes the CPU, `gpu` says so. A program of its own, since what a driver loader
//! finds is decided by the environment of the whole process.

use std::{env, process::Command};

use inferencelayer::{
    EmbedEngine, EmbedOptions,
    device::{Device, DeviceOptions, Dtype},
    engine::Error as EngineError,
};
use inferencelayer_tests::{compare::cosine_distance, fixture::Fixture};

/// Set in the process whose environment shows no driver.
const INSIDE: &str = "INFERENCELAYER_TEST_INSIDE";

/// Runs the test `name` again in a process that finds no driver; false if this is that process.
fn elsewhere(name: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return false;
    }
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture"]).env(INSIDE, "1");
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "__EGL_VENDOR_LIBRARY_FILENAMES"] {
        command.env(name, "/nonexistent");
    }
    command.env("__EGL_VENDOR_LIBRARY_DIRS", "/nonexistent");
    let output = command.output().expect("this program starts");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    true
}

#[test]
fn auto_is_the_cpu() {
    if elsewhere("auto_is_the_cpu") {
        return;
    }
    let fixture = Fixture::new("bert");
    let (expected, texts) = (fixture.expected().floats("encode.embeddings"), fixture.texts());
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut auto = EmbedEngine::auto(fixture.path(), 512).unwrap();
    let mut cpu = EmbedEngine::cpu(fixture.path(), 512).unwrap();
    for engine in [&auto, &cpu] {
        assert!(engine.device_name().starts_with("cpu ("), "{}", engine.device_name());
    }
    let vectors = auto.embed(&texts, None).unwrap();
    assert_eq!(vectors, cpu.embed(&texts, None).unwrap());
    for (vector, expected) in vectors.iter().zip(expected.chunks(auto.dimension())) {
        assert!(cosine_distance(vector, expected) < 1e-6);
    }
    let device = DeviceOptions { dtype: Some(Dtype::Int8), ..DeviceOptions::default() };
    let int8 = EmbedEngine::open(fixture.path(), 512, &device, &EmbedOptions::default()).unwrap();
    assert!(int8.device_name().contains("Int8"), "{}", int8.device_name());
}

#[test]
fn a_gpu_that_is_asked_for_is_missed() {
    if elsewhere("a_gpu_that_is_asked_for_is_missed") {
        return;
    }
    let missing = |error: inferencelayer::Error| match error {
        inferencelayer::Error::Engine(EngineError::NoAdapter(why)) => why,
        other => panic!("{other}"),
    };
    let folder = Fixture::new("bert").path().to_owned();
    missing(EmbedEngine::gpu(&folder, 512).unwrap_err());
    // A GPU that is named is wanted, whatever else there is.
    let adapter = inferencelayer::engine::gpu::AdapterChoice::Name("Voodoo".into());
    let device = DeviceOptions { device: Device::Auto, adapter, ..DeviceOptions::default() };
    missing(EmbedEngine::open(&folder, 512, &device, &EmbedOptions::default()).unwrap_err());
}
