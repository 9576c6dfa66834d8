// A small web server: types, ranges, entity tags, and the headers that the site's pages need.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { pipeline } from "node:stream/promises";

const TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".map": "application/json; charset=utf-8",
    ".webmanifest": "application/manifest+json; charset=utf-8",
    ".wasm": "application/wasm",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".ts": "text/plain; charset=utf-8",
    ".jinja": "text/plain; charset=utf-8",
};

/**
 * Everything is the site's own; wasm may be compiled. Model files come from the hub only when somebody chooses a
 * model that is not served here.
 */
export const POLICY = [
    "default-src 'self'",
    "script-src 'self' 'wasm-unsafe-eval'",
    "connect-src 'self' https://huggingface.co https://*.huggingface.co https://*.hf.co",
    "img-src 'self' data:",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
].join("; ");

const HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    // Kept, and asked for again each time: a tag says whether it is the same.
    "cache-control": "no-cache",
};

/**
 * The bytes that a Range header asks for.
 * @param {string | undefined} header
 * @param {number} size
 * @returns {{start: number, end: number} | "all" | "none"} `end` is past the last byte
 */
export function rangeOf(header, size) {
    const found = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
    if (!found || (found[1] === "" && found[2] === "")) return "all";
    const start = found[1] === "" ? Math.max(0, size - Number(found[2])) : Number(found[1]);
    const end = found[1] === "" || found[2] === "" ? size : Math.min(Number(found[2]) + 1, size);
    return start < end ? { start, end } : "none";
}

export class Handler {
    /**
     * @param {import("./site.mjs").Site} site
     * @param {import("./models.mjs").Models} models
     */
    constructor(site, models) {
        this.site = site;
        this.models = models;
    }

    /** @returns {Promise<import("node:http").Server>} */
    async listen(port, host) {
        const server = createServer((request, response) => {
            this.answer(request, response).catch((error) => {
                // Whoever asked may be gone; that is no news.
                if (!response.destroyed) console.error(`${request.url}: ${error.message}`);
                response.destroy();
            });
        });
        await new Promise((resolve, reject) => {
            server.once("error", (error) => {
                const busy = error.code === "EADDRINUSE";
                reject(new Error(busy ? `port ${port} is in use: choose another with --port` : error.message));
            });
            server.listen(port, host, resolve);
        });
        return server;
    }

    /** What a path stands for: bytes, the path of a file, or nothing. */
    async #find(path) {
        if (path === "precache.js") return this.site.precache();
        if (path === "models/manifest.json") return this.models.manifest();
        if (path.startsWith("models/")) return this.models.file(path.slice(7));
        return this.site.file(path === "" ? "index.html" : path);
    }

    /**
     * @param {import("node:http").IncomingMessage} request
     * @param {import("node:http").ServerResponse} response
     */
    async answer(request, response) {
        const fail = (status, headers = {}) => response.writeHead(status, { ...HEADERS, ...headers }).end();
        if (request.method !== "GET" && request.method !== "HEAD") return fail(405, { allow: "GET, HEAD" });
        let path;
        try {
            path = decodeURIComponent(new URL(request.url, "http://localhost").pathname).slice(1);
        } catch {
            return fail(400);
        }
        const what = await this.#find(path);
        if (what === undefined) return fail(404);
        const headers = { ...HEADERS, "content-type": TYPES[extname(path || "index.html")] ?? "application/octet-stream" };
        if (Buffer.isBuffer(what)) {
            headers.etag = `"${createHash("sha256").update(what).digest("hex").slice(0, 32)}"`;
            if (request.headers["if-none-match"] === headers.etag) return response.writeHead(304, headers).end();
            headers["content-length"] = what.length;
            response.writeHead(200, headers).end(request.method === "HEAD" ? undefined : what);
            return;
        }
        const { size, mtimeMs } = await stat(what);
        headers.etag = `"${size.toString(16)}-${Math.round(mtimeMs).toString(16)}"`;
        headers["accept-ranges"] = "bytes";
        if (request.headers["if-none-match"] === headers.etag) return response.writeHead(304, headers).end();
        const condition = request.headers["if-range"];
        const range = condition && condition !== headers.etag ? "all" : rangeOf(request.headers.range, size);
        if (range === "none") return fail(416, { "content-range": `bytes */${size}` });
        const { start, end } = range === "all" ? { start: 0, end: size } : range;
        if (range !== "all") headers["content-range"] = `bytes ${start}-${end - 1}/${size}`;
        headers["content-length"] = end - start;
        response.writeHead(range === "all" ? 200 : 206, headers);
        if (request.method === "HEAD" || start === end) return response.end();
        await pipeline(createReadStream(what, { start, end: end - 1, highWaterMark: 1 << 18 }), response);
    }
}
