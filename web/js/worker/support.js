// What this browser can do for models.

import { kind as cache } from "./store/index.js";

/** A module of one function that adds 128-bit vectors. */
const SIMD = new Uint8Array([
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98,
    11,
]);

const plain = (object) => {
    const found = {};
    for (const key in object) if (typeof object[key] !== "function") found[key] = object[key];
    return found;
};

export async function support() {
    const simd = WebAssembly.validate(SIMD);
    const reasons = [];
    if (!simd)
        reasons.push(
            "WebAssembly has no 128-bit vectors here: nothing of this package runs; update the browser",
        );
    if (!globalThis.isSecureContext)
        reasons.push("the page is neither https nor localhost: no WebGPU, and nothing is kept");
    let adapter = null;
    if (!navigator.gpu) {
        reasons.push("the browser has no WebGPU, or it is switched off: models run on the CPU");
    } else {
        adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
        if (!adapter)
            reasons.push("WebGPU finds no adapter: models run on the CPU; update the graphics driver");
    }
    return {
        webgpu: adapter !== null,
        adapter: adapter && {
            ...plain(adapter.info ?? {}),
            fallback: adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter ?? false,
            features: [...adapter.features].sort(),
            limits: plain(adapter.limits),
        },
        f16: adapter?.features.has("shader-f16") ?? false,
        subgroups: adapter?.features.has("subgroups") ?? false,
        wasmSimd: simd,
        cache,
        locks: Boolean(navigator.locks),
        secureContext: Boolean(globalThis.isSecureContext),
        crossOriginIsolated: Boolean(globalThis.crossOriginIsolated),
        reasons,
    };
}
