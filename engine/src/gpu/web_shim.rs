//! Lets wgpu's web backend use WebGPU's `subgroups` feature.
//!
//! wgpu 30 has no entry for `subgroups` in its table of browser features, so it can neither request the feature nor
//! report it. WGSL text reaches the browser unchanged, so that it is enough to add the feature to the request.

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(inline_js = r#"
let granted = false;
let installed = false;

export function installSubgroups() {
    if (installed || typeof GPUAdapter === "undefined") return;
    installed = true;
    const request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (descriptor) {
        if (this.features.has("subgroups")) {
            const features = new Set(descriptor?.requiredFeatures ?? []).add("subgroups");
            descriptor = { ...descriptor, requiredFeatures: [...features] };
        }
        const device = await request.call(this, descriptor);
        granted = device.features.has("subgroups");
        return device;
    };
}

export function subgroupsGranted() {
    return granted;
}
"#)]
extern "C" {
    #[wasm_bindgen(js_name = installSubgroups)]
    fn install_subgroups();
    #[wasm_bindgen(js_name = subgroupsGranted)]
    fn subgroups_granted() -> bool;
}

/// Makes every later device request in this page or worker ask for `subgroups` where the adapter offers it.
///
/// Call it before `Adapter::request_device`. Further calls do nothing, and neither does the first where the browser
/// has no WebGPU.
pub fn install_subgroups_shim() {
    install_subgroups();
}

/// Whether the device requested last in this page or worker has `subgroups`: ask right after `request_device`
/// returned. WGSL that uses them must then start with `enable subgroups;`.
pub fn subgroups_were_granted() -> bool {
    subgroups_granted()
}
