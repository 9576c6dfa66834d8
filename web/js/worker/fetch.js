// Requests that are made again where that may help, and answers that say why not.

import { Aborted, DownloadFailed } from "../errors.js";

/** Failures in a row, without a byte in between, after which a download is given up. */
const TRIES = 5;
const FIRST_PAUSE = 300;

/** Answers that a later request may change. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

const HINTS = {
    401: "the model may need an account at its host: download it yourself and give its files to load({files})",
    403: "the model may need an account at its host: download it yourself and give its files to load({files})",
    404: "check the address and the file's name",
    429: "the host limits requests: try again later",
};

/** @param {AbortSignal} signal */
export function pause(milliseconds, signal) {
    return new Promise((resolve, reject) => {
        const abort = () => {
            clearTimeout(timer);
            reject(new Aborted("the call was aborted"));
        };
        const timer = setTimeout(() => {
            signal.removeEventListener("abort", abort);
            resolve(undefined);
        }, milliseconds);
        if (signal.aborted) abort();
        signal.addEventListener("abort", abort, { once: true });
    });
}

/** Counts failures in a row and waits longer after each. */
export class Patience {
    #failures = 0;

    constructor(url, signal) {
        this.url = url;
        this.signal = signal;
    }

    /** Something arrived. */
    reward() {
        this.#failures = 0;
    }

    /**
     * Waits before another try.
     * @throws DownloadFailed after too many
     */
    async fail(why, status, wait) {
        if (this.signal.aborted) throw new Aborted("the call was aborted");
        this.#failures += 1;
        if (this.#failures >= TRIES) {
            throw new DownloadFailed(
                `${this.url}: ${why}, ${TRIES} times in a row; check the connection and try again: what arrived is kept`,
                { url: this.url, status },
            );
        }
        await pause(wait ?? FIRST_PAUSE * 2 ** (this.#failures - 1), this.signal);
    }
}

/**
 * One answer to a request for a file from byte `start` on: 200, 206, 416, or `null` for a file that is not there.
 * @param {Patience} patience
 * @returns {Promise<Response | null>}
 */
export async function request(patience, start) {
    const { url, signal } = patience;
    for (;;) {
        let response;
        try {
            // Not through the browser's own cache: files are kept once.
            const headers = start > 0 ? { Range: `bytes=${start}-` } : {};
            response = await fetch(url, { headers, signal, cache: "no-store" });
        } catch (error) {
            const offline =
                navigator.onLine === false
                    ? "this device is offline"
                    : `the request failed (${error.message})`;
            await patience.fail(
                `${offline}; if the address is right, its server may not allow other sites (CORS)`,
            );
            continue;
        }
        const { status } = response;
        if (response.ok || status === 416) return response;
        await response.body?.cancel();
        if (status === 404 || status === 410) return null;
        if (PASSING.has(status)) {
            const after = Number(response.headers.get("retry-after"));
            await patience.fail(
                `the server answered ${status}`,
                status,
                after > 0 && after < 60 ? after * 1000 : undefined,
            );
            continue;
        }
        const hint = HINTS[status] ?? "try again later";
        throw new DownloadFailed(`${url}: the server answered ${status}; ${hint}`, { url, status });
    }
}

/** @param {Response} response to a request from byte `start` on */
export function sizeOf(response, start) {
    const range = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
    if (range) return Number(range[1]);
    // Of what is compressed on the way, the length says nothing about the file.
    const length = response.headers.get("content-encoding") ? null : response.headers.get("content-length");
    return length === null ? null : Number(length) + (response.status === 206 ? start : 0);
}
