// A user's code: it has to compile against the package's types, and its mistakes must not.

import {
    Aborted,
    DownloadFailed,
    cache,
    checkSupport,
    load,
    models,
    type Model,
    type Part,
} from "inferencelayer";
import OpenAI from "inferencelayer/openai";

export async function use(files: FileList, signal: AbortSignal): Promise<string> {
    const model: Model = await load("minilm", {
        device: "auto",
        dtype: "f16",
        onProgress: ({ phase, bytes, total, speed }) => console.log(phase, bytes / total, speed),
        signal,
    });
    const [vector]: Float32Array[] = await model.embed(["a"], { dim: 64, prompt: "query" });
    model.addEventListener("warning", ({ detail }) => console.warn(detail.code, detail.message));
    await load({ files });
    await load({ url: new URL("https://example.org/model.gguf"), sha256: "0".repeat(64) });
    let text = "";
    let last: Part | undefined;
    for await (const part of model.chat([{ role: "user", content: "Hi" }], {
        maxTokens: 5,
        temperature: 0.7,
        signal,
    })) {
        text += part.text;
        last = part;
    }
    for await (const part of model.generate([1, 2, 3], { stop: ["\n"] })) text += part.text;
    text += await model.detokenize(await model.tokenize("a"));
    text += `${last?.usage?.tokensPerSecond} ${vector?.length} ${(await model.memory()).device} ${models[0]?.id}`;
    text += `${(await cache.list())[0]?.bytes} ${(await cache.estimate()).quota} ${(await checkSupport()).adapter?.limits.maxBufferSize}`;
    const client = new OpenAI({ models: { tiny: model } });
    const answer = await client.chat.completions.create({
        model: "tiny",
        messages: [{ role: "user", content: "Hi" }],
    });
    text += answer.choices[0]?.message.content;
    for await (const chunk of await client.chat.completions.create({
        model: "tiny",
        messages: [],
        stream: true,
    })) {
        text += chunk.choices[0]?.delta.content ?? "";
    }
    try {
        await model.unload();
    } catch (error) {
        if (error instanceof DownloadFailed) text += error.status;
        if (error instanceof Aborted) text += error.code;
    }
    // @ts-expect-error there is no such device
    await load("minilm", { device: "gpu" });
    // @ts-expect-error there is no such option
    await model.embed(["a"], { dimension: 3 });
    // @ts-expect-error texts, not a text
    await model.embed(1);
    return text;
}
