// The folder that is served: pages, the built package, models, peers. Any static server will do.

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";

import { BENCH, PEERS, peers, ROOT, TOOLS } from "./paths.mjs";

/**
 * Makes the folder.
 * @param {string} folder which is made anew
 * @param {object} options
 * @param {boolean} [options.copy] files instead of links, for another machine
 * @param {string} options.package the built package
 * @param {string} [options.minilm] a sentence-transformers folder, served as models/minilm/
 * @param {string} [options.gguf] a GGUF file, served as models/NAME
 * @param {boolean} [options.peers]
 * @param {string} options.python which has onnx and onnxruntime, for the peers' model
 */
export function makeSite(folder, { copy = false, package: dist, minilm, gguf, peers: withPeers = false, python }) {
    if (!existsSync(join(dist, "index.js"))) throw new Error("the package is not built: web/build does it");
    rmSync(folder, { recursive: true, force: true });
    const put = (from, to) => {
        const path = join(folder, to);
        mkdirSync(dirname(path), { recursive: true });
        if (copy) cpSync(from, path, { recursive: true, dereference: true });
        else symlinkSync(resolve(from), path);
    };
    mkdirSync(folder, { recursive: true });
    for (const page of ["bench", "transformers", "wllama"])
        for (const end of ["html", "js"]) put(join(BENCH, "page", `${page}.${end}`), `${page}.${end}`);
    put(join(BENCH, "page/lib"), "lib");
    put(dist, "dist");
    if (minilm) put(minilm, "models/minilm");
    if (gguf) put(gguf, `models/${basename(gguf)}`);
    const { version } = JSON.parse(readFileSync(join(ROOT, "web/package.json"), "utf8"));
    writeFileSync(join(folder, "version.json"), JSON.stringify({ inferencelayer: version, ...PEERS }));
    if (!withPeers) return;
    const modules = peers();
    put(join(modules, "@huggingface/transformers/dist"), "peers/transformers/dist");
    put(join(modules, "@wllama/wllama/esm"), "peers/wllama/esm");
    put(join(modules, "onnxruntime-common/dist/esm"), "peers/onnxruntime-common/dist/esm");
    const ort = join(modules, "onnxruntime-web/dist");
    const module = "ort-wasm-simd-threaded.asyncify";
    for (const file of ["ort.webgpu.bundle.min.mjs", `${module}.mjs`, `${module}.wasm`])
        put(join(ort, file), `peers/onnxruntime-web/dist/${file}`);
    if (minilm) put(onnx(minilm, python), "models/onnx/minilm");
}

/** The model as ONNX files, made once. */
function onnx(model, python) {
    const folder = join(TOOLS, "bench-onnx");
    // The last of its files: what is there without it was not finished.
    if (!existsSync(join(folder, "onnx/model_quantized.onnx"))) {
        const script = join(ROOT, "tests/peers/bert_onnx.py");
        execFileSync(python, [script, model, folder], { stdio: ["ignore", 2, "inherit"] });
    }
    return folder;
}
