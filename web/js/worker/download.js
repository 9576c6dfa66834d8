// Files from the network into an entry of the cache: in pieces, from where a former try ended, checked as they arrive.

import { DownloadFailed } from "../errors.js";
import { Patience, request, sizeOf } from "./fetch.js";
import { PIECE } from "./store/entry.js";
import { quotaError, requireSpace } from "./store/index.js";

/** Files whose length is known to be that on the server: the others may be compressed on the way. */
const BINARY = /\.(gguf|safetensors|bin)$/;

/**
 * @typedef {object} Wanted
 * @property {string} path
 * @property {string} url
 * @property {boolean} [optional] may be missing
 * @property {string} [sha256] the file's, if it is known
 */

/**
 * Sees to it that an entry holds a file; false if it is optional and the server has it not.
 * @param {import("./store/entry.js").Entry} entry
 * @param {Wanted} wanted
 * @param {{signal: AbortSignal, progress: import("./progress.js").Progress, keep: boolean, Sha256: any}} context
 */
export async function download(entry, wanted, context) {
    const { path, url, sha256 } = wanted;
    const { progress } = context;
    if (entry.absent.has(path)) return false;
    let file = entry.files.get(path);
    if (file && sha256 && file.done && file.sha256 !== sha256) {
        // Another file is wanted than was.
        await entry.drop(file);
        file = undefined;
    }
    if (file?.done) return true;
    if (file && file.url !== url) {
        await entry.drop(file);
        file = undefined;
    }
    if (file) {
        if (file.size !== null) progress.expect(file.size);
        progress.add(file.bytes);
    }
    const patience = new Patience(url, context.signal);
    for (let again = false; ; again = true) {
        const state = await transfer(entry, file, wanted, patience, context);
        if (state === null) {
            if (!wanted.optional) {
                throw new DownloadFailed(
                    `${url}: the server has no such file (404); check the address and the file's name`,
                    {
                        url,
                        status: 404,
                    },
                );
            }
            await entry.setAbsent(path);
            return false;
        }
        const { hash } = state;
        if (!sha256 || hash === sha256) {
            await entry.finish(state.file, sha256 ? hash : undefined);
            return true;
        }
        progress.add(-state.file.bytes);
        await entry.drop(state.file);
        file = undefined;
        if (again) {
            throw new DownloadFailed(
                `${url}: its SHA-256 is ${hash}, expected ${sha256}: this is another file, or it is damaged on the way`,
                { url },
            );
        }
    }
}

/** Fetches what is missing of a file, in as many requests as it takes; `null` if it is not there. */
async function transfer(entry, file, { path, url, sha256 = undefined }, patience, { signal, progress, keep, Sha256 }) {
    const hasher = sha256 ? new Sha256() : null;
    const restart = async () => {
        progress.add(-file.bytes);
        if (file.size !== null) progress.expect(-file.size);
        await entry.drop(file);
        file = undefined;
        hasher?.finish();
    };
    try {
        if (file && hasher) for await (const { bytes } of entry.pieces(file)) hasher.update(bytes);
        for (;;) {
            const start = file?.bytes ?? 0;
            if (start > 0 && start === file.size) return { file, hash: hasher?.finish() };
            const response = await request(patience, start);
            if (response === null) return null;
            const size = sizeOf(response, start);
            const etag = response.headers.get("etag");
            const changed =
                file &&
                ((file.etag && etag && file.etag !== etag) ||
                    (file.size !== null && size !== null && file.size !== size));
            if (start > 0 && (response.status !== 206 || changed)) {
                // The server cannot go on, or has another file now.
                await response.body?.cancel();
                await restart();
                await patience.fail(
                    `the server answered ${response.status} to a request for the rest`,
                    response.status,
                    0,
                );
                continue;
            }
            if (!file) {
                const known = BINARY.test(path) || !size ? size : null;
                if (keep) await requireSpace(size ?? 0);
                file = await entry.begin({ path, url, size: known, etag });
                if (known !== null) progress.expect(known);
            }
            const end = await receive(entry, file, response, hasher, patience, progress, keep);
            if (end === "end" && (file.size === null || file.size === file.bytes)) {
                return { file, hash: hasher?.finish() };
            }
            if (end === "end" && file.bytes > file.size) await restart();
            await patience.fail(
                end === "end" ? "the connection ended early" : `the connection broke (${end})`,
            );
            signal.throwIfAborted();
        }
    } finally {
        hasher?.free();
    }
}

/** Stores what arrives; returns "end", or why it ended early. */
async function receive(entry, file, response, hasher, patience, progress, keep) {
    const piece = new Uint8Array(PIECE);
    let filled = 0;
    const store = async () => {
        const bytes = piece.subarray(0, filled);
        hasher?.update(bytes);
        try {
            await entry.add(file, bytes);
        } catch (error) {
            if (error?.name !== "QuotaExceededError") throw error;
            throw keep ? await quotaError((file.size ?? file.bytes + filled) - file.bytes, true) : error;
        }
        filled = 0;
    };
    const reader = response.body.getReader();
    try {
        for (;;) {
            let step;
            try {
                step = await reader.read();
            } catch (error) {
                // What is no whole piece is fetched again.
                progress.add(-filled);
                return error?.message ?? "error";
            }
            if (step.done) break;
            patience.reward();
            progress.add(step.value.length);
            for (let rest = step.value; rest.length;) {
                const taken = Math.min(rest.length, PIECE - filled);
                piece.set(rest.subarray(0, taken), filled);
                filled += taken;
                rest = rest.subarray(taken);
                if (filled === PIECE) await store();
            }
        }
        const whole = file.size === null || file.bytes + filled >= file.size;
        if (filled && whole) await store();
        else progress.add(-filled);
        return "end";
    } finally {
        reader.cancel().catch(() => {});
    }
}
