// The bench of transformers.js: embeddings alone, from an ONNX file of the same weights.

import { embedding } from "./lib/embedding.js";
import { nameOf } from "./lib/query.js";
import { bench, log } from "./lib/report.js";
import { env, pipeline } from "./peers/transformers/dist/transformers.web.min.js";

const { onnx } = env.backends;
// As from a hub, so that files go through its cache.
env.allowLocalModels = false;
env.remoteHost = new URL(".", location.href).href;
env.remotePathTemplate = "models/onnx/{model}/";

/** Its names of what the others call f32, f16 and int8. */
const DTYPES = { f32: "fp32", f16: "fp16", int8: "q8" };

bench(async (result, query) => {
    const { device, dtype = "f32" } = query;
    const folder = new URL("./peers/onnxruntime-web/dist/", location.href).href;
    // The module that it would take from its delivery network.
    const module = `${folder}ort-wasm-simd-threaded.asyncify`;
    onnx.wasm.wasmPaths = { mjs: `${module}.mjs`, wasm: `${module}.wasm` };
    // One thread, as ours has; on a GPU threads do next to nothing.
    onnx.wasm.numThreads = 1;
    const kind = device === "cpu" ? "wasm" : device;
    result.engine = { name: "transformers.js", version: env.version, mode: `${kind} ${DTYPES[dtype]}` };
    const load = async () => {
        const extractor = await pipeline("feature-extraction", nameOf(query.embed), {
            device: kind,
            dtype: DTYPES[dtype],
        });
        await log(`transformers.js ${env.version}, ${result.engine.mode}`);
        return {
            async embed(texts) {
                const vectors = await extractor(texts, { pooling: "mean", normalize: true });
                const [count, width] = vectors.dims;
                return Array.from({ length: count }, (_, i) => vectors.data.subarray(i * width, (i + 1) * width));
            },
            async tokenize(texts) {
                const { input_ids: ids } = extractor.tokenizer(texts, { padding: true, truncation: true });
                const [count, width] = ids.dims;
                return Array.from({ length: count }, (_, i) => ids.data.subarray(i * width, (i + 1) * width));
            },
        };
    };
    await embedding(result, query, load);
});
