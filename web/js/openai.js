// The shape of OpenAI's client over this package: existing code ports by changing the import. Types: openai.d.ts.

import { InvalidInput, load, models as known } from "./index.js";

const now = () => Math.floor(Date.now() / 1000);
const newId = (prefix) => `${prefix}-${crypto.randomUUID().replaceAll("-", "")}`;

/** A message's content as plain text; parts of other kinds are an error. */
function plain(content) {
    if (!Array.isArray(content)) return content ?? "";
    return content
        .map((part) => {
            if (part.type !== "text")
                throw new InvalidInput(
                    `messages: content of type \`${part.type}\` is not supported, text is`,
                );
            return part.text;
        })
        .join("");
}

/** Settings by their names here. */
function settings(request) {
    const refused = ["response_format", "functions", "logit_bias"].filter(
        (key) => request[key] !== undefined,
    );
    if (refused.length) throw new InvalidInput(`\`${refused[0]}\` is not supported; leave it out`);
    if ((request.n ?? 1) !== 1) throw new InvalidInput("n: one choice a request is supported");
    const named = {
        maxTokens: request.max_completion_tokens ?? request.max_tokens,
        temperature: request.temperature ?? 1,
        topP: request.top_p,
        seed: request.seed,
        frequencyPenalty: request.frequency_penalty,
        presencePenalty: request.presence_penalty,
        stop: typeof request.stop === "string" ? [request.stop] : request.stop,
        tools: request.tools,
    };
    return Object.fromEntries(
        Object.entries(named).filter(([, value]) => value !== undefined && value !== null),
    );
}

const usageOf = (usage) => ({
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.totalTokens,
});

export class OpenAI {
    /** @type {Map<string, Promise<import("../types/index.js").Model>>} */
    #models = new Map();
    #options;

    constructor({ models = {}, load: options = {} } = {}) {
        this.#options = options;
        for (const [name, model] of Object.entries(models)) this.#models.set(name, Promise.resolve(model));
        this.chat = { completions: { create: (request, options) => this.#complete(request, options) } };
        this.embeddings = { create: (request, options) => this.#embed(request, options) };
        this.models = {
            list: async () => ({
                object: "list",
                data: [...new Set([...this.#models.keys(), ...known.map(({ id }) => id)])].map((id) => ({
                    id,
                    object: "model",
                    created: 0,
                    owned_by: "inferencelayer",
                })),
            }),
        };
    }

    /** The model of this name, loaded at its first use. */
    #model(name) {
        if (typeof name !== "string" || !name) throw new InvalidInput("model: expected a name");
        let model = this.#models.get(name);
        if (!model) {
            model = load(name, this.#options);
            this.#models.set(name, model);
            model.catch(() => this.#models.delete(name));
        }
        return model;
    }

    /**
     * @param {any} request
     * @param {{signal?: AbortSignal}} [options]
     */
    async #complete(request, { signal } = {}) {
        if (!Array.isArray(request.messages)) throw new InvalidInput("messages: expected an array");
        const options = { ...settings(request), signal };
        const messages = request.messages.map((message) => ({ ...message, content: plain(message.content) }));
        const model = await this.#model(request.model);
        const base = { id: newId("chatcmpl"), created: now(), model: request.model };
        const parts = model.chat(messages, options);
        if (request.stream) return chunks(parts, base, request.stream_options?.include_usage);
        let content = "";
        let last;
        for await (const part of parts) {
            content += part.text;
            last = part;
        }
        const message = { role: "assistant", content, refusal: null };
        const choice = { index: 0, message, logprobs: null, finish_reason: last.finishReason };
        return { ...base, object: "chat.completion", choices: [choice], usage: usageOf(last.usage) };
    }

    /**
     * @param {any} request
     * @param {{signal?: AbortSignal}} [options]
     */
    async #embed({ model: name, input, dimensions, encoding_format: format = "float" }, { signal } = {}) {
        if (!["float", "base64"].includes(format))
            throw new InvalidInput(`encoding_format: there is no \`${format}\``);
        const texts = typeof input === "string" ? [input] : input;
        const model = await this.#model(name);
        const vectors = await model.embed(
            texts,
            dimensions === undefined ? { signal } : { dim: dimensions, signal },
        );
        const encode = format === "base64" ? base64 : (vector) => Array.from(vector);
        return {
            object: "list",
            model: name,
            data: vectors.map((vector, index) => ({ object: "embedding", index, embedding: encode(vector) })),
            usage: { prompt_tokens: 0, total_tokens: 0 },
        };
    }
}

/** @param {AsyncGenerator<any>} parts */
async function* chunks(parts, base, withUsage) {
    const chunk = (delta, finish_reason = null) => ({
        ...base,
        object: "chat.completion.chunk",
        choices: [{ index: 0, delta, logprobs: null, finish_reason }],
    });
    yield chunk({ role: "assistant", content: "" });
    for await (const part of parts) {
        if (part.text) yield chunk({ content: part.text });
        if (!part.usage) continue;
        yield chunk({}, part.finishReason);
        if (withUsage)
            yield { ...base, object: "chat.completion.chunk", choices: [], usage: usageOf(part.usage) };
    }
}

/** Little-endian bytes of a vector, as OpenAI's own client asks for them. */
function base64(vector) {
    let text = "";
    for (const byte of new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength))
        text += String.fromCharCode(byte);
    return btoa(text);
}

export default OpenAI;
