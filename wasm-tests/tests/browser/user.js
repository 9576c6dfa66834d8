// A page's code: what it says is wrong, or "".
export async function useEmbedder(Embedder, files, texts) {
    const embedder = await Embedder.load(files);
    const [length, calls] = [embedder.dimensions, [embedder.embed(texts), embedder.embed(texts.slice(0, 1))]];
    const [all, [first]] = await Promise.all(calls);
    if (all.length !== texts.length) return `${all.length} vectors for ${texts.length} texts`;
    if (!all.every((v) => v instanceof Float32Array && v.length === length)) return "not Float32Arrays";
    if (Math.abs(Math.hypot(...first) - 1) > 1e-3) return `length ${Math.hypot(...first)}`;
    if (first.some((v, i) => Math.abs(v - all[0][i]) > 2e-3)) return "overlapping calls differ";
    if ((await embedder.embed([])).length !== 0) return "vectors for no texts";

    const short = await Embedder.load(files, { device: "auto", dim: 16, dtype: undefined });
    if ((await short.embed(texts.slice(0, 1)))[0].length !== 16) return "dim is not heeded";
    short.free();

    const thrown = await Embedder.load({}, null).catch((error) => error);
    if (!(thrown instanceof Error && thrown.message.includes("config.json"))) return `threw ${thrown}`;
    return typeof embedder.device === "string" && embedder.maxTokens > 0 ? "" : "getters";
}
