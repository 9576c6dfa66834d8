//! The table of kernels that the build script makes from `shaders/`.

/// One kernel's template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    pub name: &'static str,
    pub text: &'static str,
    /// Device features it uses: `f16`, `coop`, `subgroups`.
    pub needs: &'static [&'static str],
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The words that a kernel's key may take, as the build validates them.
#[cfg(test)]
pub fn permuted(kernel: &Kernel, key: &str) -> alloc::vec::Vec<alloc::string::String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shaders");
    let text = std::fs::read_to_string(folder.join(kernel.name).with_extension("wgsl")).unwrap();
    let words =
        text.lines().find_map(|l| l.strip_prefix("//! permute ")?.strip_prefix(key)?.strip_prefix(' '));
    words.unwrap_or_default().split_whitespace().map(Into::into).collect()
}
