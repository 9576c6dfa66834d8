// A model's files, ready to be read: from the cache, from the network by way of it, or from the page.

import { Aborted, InvalidInput, UnsupportedModel } from "../errors.js";
import { download } from "./download.js";
import { gather, locate, parts } from "./locate.js";
import * as store from "./store/index.js";
import { turn } from "./rpc.js";

/** Bytes that are read before the event loop gets a turn and the device may catch up. */
const STRIDE = 16 << 20;

/**
 * @typedef {object} Obtained
 * @property {string} id
 * @property {string} name
 * @property {"embedding" | "generation"} kind
 * @property {string | null} gguf
 * @property {Record<string, any>} files for the wasm module
 * @property {number} bytes of all files
 * @property {boolean} cached nothing was downloaded
 * @property {() => void} close
 * @property {unknown} [failure] what reading failed with
 */

/**
 * Obtains a model's files and gives them to `use`.
 * @template T
 * @param {any} source
 * @param {{signal: AbortSignal, progress: import("./progress.js").Progress, keep: boolean, hub?: string, wasm: any, opening: Promise<{device: any}>}} context
 * @param {(files: Obtained) => Promise<T>} use
 * @returns {Promise<T>}
 */
export async function obtain(source, context, use) {
    if (source.files) return use(await fromPage(source.files, context));
    const located = locate(source, context.hub);
    const keep = context.keep && store.kind !== "memory";
    const { signal, progress } = context;
    const wait = () => void watch(located.id, progress, waiting.signal);
    const waiting = new AbortController();
    // What is in memory belongs to this load alone.
    const lock = (mode, work) =>
        keep ? store.locked(located.id, { mode, signal, onWait: wait }, work) : work();
    const ensured = await lock("exclusive", () => {
        waiting.abort();
        return ensure(located, keep, context);
    });
    return lock("shared", async () => {
        const files = await open(ensured, context);
        try {
            return await use(files);
        } catch (error) {
            // The module's error says less than what happened.
            throw files.failure ?? error;
        } finally {
            files.close();
        }
    });
}

/** Tells how far another tab's download has come. */
async function watch(id, progress, signal) {
    if (signal.aborted) return;
    progress.begin("download");
    while (!signal.aborted) {
        const entry = await store.openEntry(id, true);
        const files = [...entry.files.values()];
        const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
        progress.set(
            bytes,
            Math.max(
                bytes + 1,
                files.reduce((sum, file) => sum + (file.size ?? file.bytes), 0),
            ),
        );
        await new Promise((resolve) => setTimeout(resolve, 200));
    }
}

/** Downloads what is missing and checks what is there; whoever calls holds the entry's lock. */
async function ensure(located, keep, { signal, progress, wasm }) {
    const entry = await store.openEntry(located.id, keep);
    try {
        await entry.name(located.id);
        let loaded = 0;
        const old = [...entry.files.values()].filter((file) => file.done);
        if (old.length) {
            progress.begin(
                "verify",
                old.reduce((sum, file) => sum + file.bytes, 0),
            );
            for (const file of old) {
                signal.throwIfAborted();
                if (!(await entry.intact(file, (bytes) => progress.add(bytes)))) await entry.drop(file);
            }
            progress.end();
        }
        let begun = false;
        const fetched = async (path, optional) => {
            if (entry.absent.has(path)) return false;
            const file = entry.files.get(path);
            const sha256 = located.sha256[path];
            if (!file?.done || (sha256 && file.sha256 !== sha256)) {
                if (!begun) progress.begin("download");
                begun = true;
                loaded += 1;
            }
            const url = located.base + path.split("/").map(encodeURIComponent).join("/") + located.query;
            return download(
                entry,
                { path, url, optional, sha256 },
                { signal, progress, keep, Sha256: wasm.Sha256 },
            );
        };
        let kind = /** @type {"embedding" | "generation"} */ ("generation");
        if (located.gguf) {
            for (const part of parts(located.gguf)) await fetched(part, false);
        } else {
            kind = await gather({ want: fetched, text: (path) => text(entry, path) }, wasm.modelKind);
        }
        if (begun) progress.end();
        return { entry, located, kind, cached: loaded === 0 };
    } finally {
        entry.close();
    }
}

async function text(entry, path) {
    const parts = [];
    for await (const { bytes } of entry.pieces(entry.files.get(path))) parts.push(bytes.slice());
    return new Blob(parts).text();
}

/** Opens what was ensured. */
async function open({ entry, located, kind, cached }, context) {
    const readers = [];
    const paths = [...entry.files.keys()];
    const files = {};
    /** @type {Obtained} */
    const obtained = {
        id: located.id,
        name: located.name,
        kind,
        gguf: located.gguf,
        files,
        bytes: 0,
        cached,
        close: () => readers.splice(0).forEach((reader) => reader.close()),
    };
    try {
        for (const path of paths) {
            const reader = await entry.backing.reader(entry.files.get(path).index);
            if (!reader) throw new Error(`${path}: the file vanished from the cache; load the model again`);
            readers.push(reader);
            obtained.bytes += reader.size;
            files[path] = paced(reader, path, obtained, context);
        }
    } catch (error) {
        obtained.close();
        throw error;
    }
    return obtained;
}

const isWeights = (path) => /\.(gguf|safetensors)$/.test(path);

/** Reads with turns for the event loop, progress and an end when nobody waits any more. */
function paced(reader, path, obtained, { signal, progress, opening }) {
    let since = 0;
    return {
        size: reader.size,
        async read(offset, length) {
            try {
                if (signal.aborted) throw new Aborted("the call was aborted");
                since += length;
                if (since >= STRIDE) {
                    since = 0;
                    await (await opening).device.idle();
                    await turn();
                }
                const bytes = await reader.read(offset, length);
                if (isWeights(path)) progress.add(bytes.length);
                return bytes;
            } catch (error) {
                obtained.failure ??= error;
                throw error;
            }
        },
    };
}

/** Files that a page holds: a folder's, or a GGUF model's. */
async function fromPage(given, context) {
    const byPath = new Map(given.map(({ path, file }) => [path, file]));
    const gguf = [...byPath.keys()].filter((path) => path.endsWith(".gguf"));
    const first = gguf.find((path) => parts(path)[0] === path) ?? gguf[0];
    const read = {};
    let bytes = 0;
    /** @type {Obtained} */
    const obtained = {
        id: "",
        name: "",
        kind: "generation",
        gguf: null,
        files: read,
        bytes: 0,
        cached: true,
        close() {},
    };
    const add = (path, file) => {
        bytes += file.size;
        const reader = {
            size: file.size,
            read: async (at, n) => new Uint8Array(await file.slice(at, at + n).arrayBuffer()),
        };
        read[path] = paced(reader, path, obtained, context);
    };
    if (first) {
        for (const path of gguf) add(path.split("/").pop(), byPath.get(path));
        obtained.gguf = first.split("/").pop();
        obtained.name = obtained.gguf;
    } else {
        const config = [...byPath.keys()]
            .filter((path) => path.endsWith("config.json"))
            .sort((a, b) => a.length - b.length);
        const root =
            [...byPath.keys()].find((path) => /(^|\/)modules\.json$/.test(path)) ??
            config.find((path) => /(^|\/)config\.json$/.test(path));
        if (root === undefined) {
            throw new InvalidInput(
                "files: there is neither a .gguf file nor the config.json of a checkpoint folder among them",
            );
        }
        const prefix = root.slice(0, root.lastIndexOf("/") + 1);
        for (const [path, file] of byPath) if (path.startsWith(prefix)) add(path.slice(prefix.length), file);
        const files = {
            want: async (path, optional) => {
                if (path in read) return true;
                if (!optional) throw new UnsupportedModel(`${prefix}${path} is missing among the files`);
                return false;
            },
            text: (path) => byPath.get(prefix + path).text(),
        };
        obtained.kind = await gather(files, context.wasm.modelKind);
        obtained.name = prefix.split("/").filter(Boolean).pop() ?? "files";
    }
    obtained.bytes = bytes;
    obtained.id = obtained.name;
    return obtained;
}
