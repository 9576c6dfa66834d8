// The page's side of the package; types and explanations are in index.d.ts.

import { CATALOGUE } from "./catalogue.js";
import { Model } from "./client/model.js";
import { Client } from "./client/rpc.js";
import { InvalidInput } from "./errors.js";

export * from "./errors.js";

/** Bundlers find the worker by this expression. */
const client = new Client(
    () => new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "inferencelayer" }),
);

const OPTIONS = ["device", "dtype", "cache", "context", "hub", "pooling", "deterministic", "maxBatchTokens"];

/** What the worker is to load: a name, an address, or files. */
function describe(source) {
    if (typeof source === "string") return { name: source, page: location.href };
    if (source instanceof URL) return { name: source.href };
    if (source?.url !== undefined)
        return { name: String(source.url), page: location.href, sha256: source.sha256 };
    if (source?.files) {
        const files = Array.from(source.files);
        if (files.length === 0) throw new InvalidInput("files: there are none");
        return { files: files.map((file) => ({ path: file.webkitRelativePath || file.name, file })) };
    }
    throw new InvalidInput("load: expected a model's name, its address, {url, sha256} or {files}");
}

export async function load(source, options = {}) {
    const { onProgress, signal, ...rest } = options;
    for (const key of Object.keys(rest)) {
        if (!OPTIONS.includes(key))
            throw new InvalidInput(`load: there is no option \`${key}\`; there are ${OPTIONS.join(", ")}`);
    }
    const request = { source: describe(source), options: rest };
    const answer = await client.call("load", [request.source, rest], {
        signal,
        onEvent: onProgress,
        onLate: ({ handle }) => void client.call("unload", [handle]).catch(() => {}),
    });
    return new Model(client, request, answer);
}

export const cache = {
    list: () => client.call("cacheList", []),
    delete: (id) => client.call("cacheDelete", [id]),
    estimate: () => client.call("cacheEstimate", []),
};

export function checkSupport(options = {}) {
    return client.call("checkSupport", [options]);
}

export const models = Object.entries(CATALOGUE).map(([id, { about, kind, licence, bytes }]) => ({
    id,
    about,
    kind,
    licence,
    bytes,
}));
