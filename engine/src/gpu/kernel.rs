//! The table of kernels that the build script makes from `shaders/`.

/// One kernel's template with its imports expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel {
    pub name: &'static str,
    pub text: &'static str,
    /// Device features it uses: `f16`, `coop`, `subgroups`.
    pub needs: &'static [&'static str],
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
