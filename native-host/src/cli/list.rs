//! `--list-devices` and `--list-models`.

use std::{fmt::Write, thread};

use inferencelayer_engine::{
    gpu::{AdapterDescription, list_adapters},
    task::block_on,
};

/// All adapters and the CPU.
pub fn devices() -> String {
    let mut text = String::new();
    for adapter in block_on(list_adapters()) {
        describe(&adapter, &mut text);
    }
    if text.is_empty() {
        text += "no GPU: install a Vulkan, Metal or DX12 driver to use one\n";
    }
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    // Writing to a string cannot fail.
    let _ = writeln!(text, "cpu: {} ({cores} threads)", std::env::consts::ARCH);
    text
}

fn describe(adapter: &AdapterDescription, text: &mut String) {
    let a = adapter;
    let yes = |on: bool| if on { "yes" } else { "no" };
    let (least, most) = a.subgroup_size;
    let _ = writeln!(text, "{}: {} ({}, {})", a.index, a.name, a.api, a.kind);
    let _ = writeln!(text, "   driver: {}", a.driver.trim());
    let _ = writeln!(
        text,
        "   features: f16 {}, subgroups {} ({least} to {most}), cooperative matrices {}, timestamps {}",
        yes(a.f16),
        yes(a.subgroups),
        yes(a.cooperative_matrix),
        yes(a.timestamps)
    );
    let _ = writeln!(
        text,
        "   limits: buffer {}, binding {}, workgroup memory {}, {} invocations a workgroup, {} storage buffers",
        bytes(a.max_buffer_bytes),
        bytes(a.max_binding_bytes),
        bytes(a.max_workgroup_bytes.into()),
        a.max_workgroup_invocations,
        a.max_storage_buffers
    );
}

/// `134217728` → `128 MiB`.
fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (n.max(1).ilog2() / 10).min(4);
    let value = n as f64 / f64::from(1u32 << (10 * power.min(3))) / if power == 4 { 1024.0 } else { 1.0 };
    match value.fract() == 0.0 {
        true => format!("{value} {}", units[power as usize]),
        false => format!("{value:.1} {}", units[power as usize]),
    }
}

/// The catalogue.
#[cfg(feature = "net")]
pub fn models() -> String {
    let mut text = String::new();
    for entry in crate::hub::catalogue::ENTRIES {
        let _ = writeln!(text, "{}: {} ({})", entry.alias, entry.about, entry.licence);
        for source in entry.sources {
            let _ = writeln!(text, "   {}: {}", source.describe(), source.note());
        }
    }
    text
}

#[cfg(not(feature = "net"))]
pub fn models() -> String {
    "this build has no models by name (feature net); give the folder of a model\n".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases =
            [(0, "0 B"), (1023, "1023 B"), (16_384, "16 KiB"), (134_217_728, "128 MiB"), (1 << 31, "2 GiB")];
        for (n, expected) in cases {
            assert_eq!(bytes(n), expected);
        }
        assert_eq!(bytes((1 << 32) - 4), "4.0 GiB");
        assert_eq!(bytes(3 << 40), "3 TiB");
    }
}
