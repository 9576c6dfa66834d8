// The cache: entries in whatever the browser keeps, and the locks that tabs share.

import { QuotaExceeded } from "../../errors.js";
import * as cacheApi from "./cache-api.js";
import { Entry, hash } from "./entry.js";
import { MemoryBacking } from "./memory.js";
import * as opfs from "./opfs.js";

/** Where entries are kept: "opfs", "cache-api" or "memory". */
export const kind = opfs.available() ? "opfs" : cacheApi.available() ? "cache-api" : "memory";

const keeper = { opfs, "cache-api": cacheApi, memory: { keys: async () => [], remove: async () => {} } }[
    kind
];

async function keyOf(id) {
    return (await hash(new TextEncoder().encode(id))).slice(0, 32);
}

async function backing(id) {
    if (kind === "opfs") return new opfs.OpfsBacking(await keyOf(id));
    return new cacheApi.CacheBacking(await keyOf(id));
}

/**
 * Runs `work` while nobody else writes (or, shared, while nobody writes) to a model's entry.
 * @template T
 * @param {string} id
 * @param {{mode: "exclusive" | "shared", signal: AbortSignal, onWait?: () => void}} options
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function locked(id, { mode, signal, onWait }, work) {
    if (!navigator.locks || kind === "memory") return work();
    const name = `inferencelayer/${id}`;
    const start = () => {
        waiting = false;
        return work();
    };
    let waiting = true;
    const done = navigator.locks.request(name, { mode, signal }, start);
    // The lock is ours within a moment, unless another tab holds it.
    if (onWait) setTimeout(() => waiting && onWait(), 50);
    return done;
}

/** @param {string} id */
export async function openEntry(id, keep) {
    return new Entry(keep && kind !== "memory" ? await backing(id) : new MemoryBacking()).open();
}

/** What the cache holds. */
export async function list() {
    const all = [];
    for (const key of await keeper.keys()) {
        const entry = await new Entry(
            kind === "opfs" ? new opfs.OpfsBacking(key) : new cacheApi.CacheBacking(key),
        ).open();
        const files = [...entry.files.values()];
        if (!entry.id) continue;
        all.push({
            id: entry.id,
            bytes: files.reduce((sum, file) => sum + file.bytes, 0),
            complete: files.length > 0 && files.every((file) => file.done),
            files: files.map(({ path, bytes, size, done }) => ({ path, bytes, size, complete: done })),
        });
    }
    return all;
}

/** Forgets a model, or all. Says whether there was anything. */
export async function remove(id, signal) {
    const found = (await list()).filter((entry) => id === undefined || entry.id === id);
    for (const entry of found) {
        await locked(entry.id, { mode: "exclusive", signal }, async () =>
            keeper.remove(await keyOf(entry.id)),
        );
    }
    return found.length > 0;
}

export async function estimate() {
    const { usage = 0, quota = 0 } = (await navigator.storage?.estimate?.()) ?? {};
    const models = (await list()).reduce((sum, entry) => sum + entry.bytes, 0);
    return { kind, usage, quota, models, persistent: (await navigator.storage?.persisted?.()) ?? false };
}

/**
 * The error about storage that does not suffice for `needed` more bytes.
 * @param {boolean} full a write has failed already; browsers may claim more room than they give
 */
export async function quotaError(needed, full) {
    const { usage, quota } = await estimate();
    const free = full && usage + needed <= quota ? 0 : Math.max(0, quota - usage);
    const missing = needed - free;
    const mb = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
    return new QuotaExceeded(
        `the browser's storage for this site is full: ${mb(usage)} are in use, ${mb(needed)} more are needed, ` +
            `${mb(missing)} are missing. Free space on the device, delete models with cache.delete(id), or load with ` +
            "cache: false",
        { missing, needed, usage, quota },
    );
}

/** @throws QuotaExceeded if so many more bytes cannot be kept */
export async function requireSpace(needed) {
    if (kind === "memory") return;
    const { usage, quota } = (await navigator.storage?.estimate?.()) ?? {};
    if (quota !== undefined && usage !== undefined && usage + needed > quota)
        throw await quotaError(needed, false);
}
