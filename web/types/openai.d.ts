import type { LoadOptions, Message, Model, Tool } from "./index.js";

export interface ChatCompletionRequest {
    /** A model's name or address, as for `load`; it is loaded at its first use. */
    model: string;
    messages: (Omit<Message, "content"> & { content: string | { type: "text"; text: string }[] | null })[];
    stream?: boolean;
    stream_options?: { include_usage?: boolean };
    max_tokens?: number;
    max_completion_tokens?: number;
    /** Default: 1, as OpenAI's. */
    temperature?: number;
    top_p?: number;
    frequency_penalty?: number;
    presence_penalty?: number;
    seed?: number;
    stop?: string | string[];
    tools?: Tool[];
    n?: 1;
}

export interface CompletionUsage {
    prompt_tokens: number;
    completion_tokens: number;
    total_tokens: number;
}

export interface ChatCompletion {
    id: string;
    object: "chat.completion";
    created: number;
    model: string;
    choices: {
        index: number;
        message: { role: "assistant"; content: string; refusal: null };
        logprobs: null;
        finish_reason: "stop" | "length";
    }[];
    usage: CompletionUsage;
}

export interface ChatCompletionChunk {
    id: string;
    object: "chat.completion.chunk";
    created: number;
    model: string;
    choices: {
        index: number;
        delta: { role?: "assistant"; content?: string };
        logprobs: null;
        finish_reason: "stop" | "length" | null;
    }[];
    usage?: CompletionUsage;
}

export interface EmbeddingRequest {
    model: string;
    input: string | string[];
    dimensions?: number;
    encoding_format?: "float" | "base64";
}

export interface EmbeddingResponse {
    object: "list";
    model: string;
    data: { object: "embedding"; index: number; embedding: number[] | string }[];
    usage: { prompt_tokens: number; total_tokens: number };
}

/** OpenAI's client over models in this page. */
export class OpenAI {
    constructor(options?: {
        /** How models are loaded. */
        load?: LoadOptions;
        /** Models that are loaded already, by name. */
        models?: Record<string, Model>;
    });
    chat: {
        completions: {
            create(
                request: ChatCompletionRequest & { stream: true },
                options?: { signal?: AbortSignal },
            ): Promise<AsyncIterable<ChatCompletionChunk>>;
            create(
                request: ChatCompletionRequest & { stream?: false },
                options?: { signal?: AbortSignal },
            ): Promise<ChatCompletion>;
        };
    };
    embeddings: {
        create(request: EmbeddingRequest, options?: { signal?: AbortSignal }): Promise<EmbeddingResponse>;
    };
    models: {
        list(): Promise<{
            object: "list";
            data: { id: string; object: "model"; created: number; owned_by: string }[];
        }>;
    };
}

export default OpenAI;
