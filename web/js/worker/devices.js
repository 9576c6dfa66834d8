// The devices of this worker: each is opened once and shared by all models.

/** @type {Map<string, Promise<{device: any, info: any}>>} */
const opened = new Map();

/**
 * @param {any} wasm
 * @param {"auto" | "webgpu" | "cpu"} kind
 */
export async function openDevice(wasm, kind) {
    const known = opened.get(kind);
    if (known) {
        const found = await known.catch(() => null);
        if (found && !found.device.lost) return found;
        // Others may have opened it anew meanwhile.
        if (opened.get(kind) !== known) return openDevice(wasm, kind);
        opened.delete(kind);
        // Models that were on it still ask it; then it is garbage.
        if (found)
            for (const [name, other] of opened)
                if ((await other.catch(() => null)) === found) opened.delete(name);
    }
    if (kind === "auto") {
        const gpu = await opened.get("webgpu")?.catch(() => null);
        if (gpu && !gpu.info.software && !gpu.device.lost) return gpu;
    }
    const opening = open(wasm, kind);
    opened.set(kind, opening);
    const found = await opening;
    // "auto" is one of the others.
    if (kind === "auto" && !opened.has(found.info.kind)) opened.set(found.info.kind, opening);
    return found;
}

async function open(wasm, kind) {
    const device = await wasm.Device.open({ kind });
    return { device, info: device.info() };
}
