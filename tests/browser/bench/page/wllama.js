// The bench of wllama: llama.cpp as wasm, on WebGPU or on one thread.

import { generation } from "./lib/generation.js";
import { bench, log } from "./lib/report.js";
import { words } from "./lib/texts.js";
import { LoggerWithoutDebug, Wllama } from "./peers/wllama/esm/index.js";

const version = async () => (await (await fetch("./version.json")).json())["@wllama/wllama"];

/** Its WebGPU kernels need f16; without, it says nothing and computes on the CPU. */
async function mode(cpu) {
    if (cpu) return "wasm, 1 thread";
    const adapter = await navigator.gpu?.requestAdapter();
    return adapter?.features.has("shader-f16") ? "webgpu" : "wasm, having no shader-f16";
}

bench(async (result, query) => {
    const cpu = query.device === "cpu";
    result.engine = { name: "wllama", version: await version(), mode: await mode(cpu) };
    let engine;
    const load = async () => {
        await engine?.exit();
        engine = new Wllama(
            { default: new URL("./peers/wllama/esm/wasm/wllama.wasm", location.href).href },
            { suppressNativeLog: true, logger: LoggerWithoutDebug },
        );
        await engine.loadModelFromUrl(new URL(query.generate, location.href).href, {
            n_ctx: query.context,
            ...(cpu ? { n_gpu_layers: 0, n_threads: 1 } : {}),
        });
        await log(`wllama ${result.engine.version}, ${engine.getNumThreads()} threads`);
        result.details.threads = engine.getNumThreads();
        const say = async (prompt, tokens) => {
            const start = performance.now();
            let first = 0;
            let text = "";
            let usage;
            await engine.createCompletion({
                prompt,
                max_tokens: tokens,
                temperature: 0,
                top_k: 1,
                ignore_eos: true,
                cache_prompt: false,
                stream: true,
                onData(chunk) {
                    first ||= performance.now() - start;
                    text += chunk.choices[0]?.text ?? "";
                    usage = chunk.usage ?? usage;
                },
            });
            const total = performance.now() - start;
            return { prompt: usage.prompt_tokens, first, total, count: usage.completion_tokens, text };
        };
        // It takes text, not ids.
        return { say, run: (length, salt, tokens) => say(words(length, salt), tokens) };
    };
    await generation(result, query, load);
});
