// A worker's code: what it says is wrong, or "".
export async function useEmbedder(Embedder, device, files, texts) {
    const embedder = await Embedder.load(device, files);
    const { dimensions: length } = await embedder.info();
    const calls = [embedder.embed(texts), embedder.embed(texts.slice(0, 1))];
    const [all, [first]] = await Promise.all(calls);
    if (all.length !== texts.length) return `${all.length} vectors for ${texts.length} texts`;
    if (!all.every((v) => v instanceof Float32Array && v.length === length)) return "not Float32Arrays";
    if (Math.abs(Math.hypot(...first) - 1) > 1e-3) return `length ${Math.hypot(...first)}`;
    if (first.some((v, i) => Math.abs(v - all[0][i]) > 2e-3)) return "overlapping calls differ";
    if ((await embedder.embed([])).length !== 0) return "vectors for no texts";
    if ((await embedder.embed(texts.slice(0, 1), { dim: 16, prompt: undefined }))[0].length !== 16)
        return "dim is not heeded";
    embedder.free();

    const thrown = await Embedder.load(device, {}, null).catch((error) => error);
    if (!(thrown instanceof Error && thrown.message.includes("config.json"))) return `threw ${thrown}`;

    const broken = { size: 10, read: () => Promise.reject(new Error("the disk is on fire")) };
    const failed = await Embedder.load(device, { ...files, "model.safetensors": broken }).catch(
        (error) => error,
    );
    if (!failed.message?.includes("the disk is on fire")) return `threw ${failed}`;
    return "";
}

/** Bytes that are somewhere else, given at once or later. */
export function source(bytes) {
    const copy = bytes.slice();
    let count = 0;
    const read = (offset, length) => copy.subarray(offset, offset + length);
    return {
        size: copy.length,
        read: (offset, length) => (count++ % 2 ? read : async (...at) => read(...at))(offset, length),
    };
}
