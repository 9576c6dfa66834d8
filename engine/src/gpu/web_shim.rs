//! What wgpu's web backend does not do: WebGPU's `subgroups` feature, and the adapter's name.
//!
//! wgpu 30 has no entry for `subgroups` in its table of browser features, so it can neither request the feature nor
//! report it. WGSL text reaches the browser unchanged, so that it is enough to add the feature to the request. Of an
//! adapter's names it takes the description alone, which browsers leave empty.

use alloc::string::String;

use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen(inline_js = r#"
let granted = false;
let installed = false;
let name = "";

export function installShim() {
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
        const { description, device: model, vendor, architecture } = this.info ?? {};
        name = description || [vendor, architecture, model].filter(Boolean).join(" ");
        return device;
    };
}

export function adapterName() {
    return name;
}

export function subgroupsGranted() {
    return granted;
}
"#)]
extern "C" {
    #[wasm_bindgen(js_name = installShim)]
    fn install();
    #[wasm_bindgen(js_name = adapterName)]
    fn adapter_name() -> String;
    #[wasm_bindgen(js_name = subgroupsGranted)]
    fn subgroups_granted() -> bool;
}

/// Makes every later device request in this page or worker ask for `subgroups` where the adapter offers it, and
/// remember the adapter's name.
///
/// Call it before `Adapter::request_device`. Further calls do nothing, and neither does the first where the browser
/// has no WebGPU.
pub fn install_shim() {
    install();
}

/// What the browser tells of the adapter whose device was requested last, as in `nvidia hopper`.
pub fn name_of_adapter() -> String {
    adapter_name()
}

/// Whether the device requested last in this page or worker has `subgroups`: ask right after `request_device`
/// returned. WGSL that uses them must then start with `enable subgroups;`.
pub fn subgroups_were_granted() -> bool {
    subgroups_granted()
}
