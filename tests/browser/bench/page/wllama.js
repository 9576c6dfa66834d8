// The bench of wllama: llama.cpp as wasm, on WebGPU or on one thread.

import { generation } from "./lib/generation.js";
import { bench, log } from "./lib/report.js";
import { LoggerWithoutDebug, Wllama } from "./peers/wllama/esm/index.js";

const version = async () => (await (await fetch("./version.json")).json())["@wllama/wllama"];

bench(async (result, query) => {
    const cpu = query.device === "cpu";
    result.engine = { name: "wllama", version: await version(), mode: cpu ? "wasm, 1 thread" : "webgpu" };
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
        return {
            vocabulary: engine.getLoadedContextInfo().n_vocab,
            async generate(prompt, tokens) {
                const start = performance.now();
                let first = 0;
                let text = "";
                let count = tokens;
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
                        count = chunk.timings?.predicted_n ?? chunk.usage?.completion_tokens ?? count;
                    },
                });
                return { first, total: performance.now() - start, count, text };
            },
        };
    };
    await generation(result, query, load);
});
