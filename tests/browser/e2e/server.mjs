// A web server that can be slow, cut connections, damage what it sends and forget files, for the tests of what loads
// models. It remembers what it was asked.

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { readFile, stat } from "node:fs/promises";
import { extname, join, normalize } from "node:path";

const TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".css": "text/css",
    ".wasm": "application/wasm",
};

/**
 * @typedef {object} Fault what is done to requests for a path, until `times` of them have met it
 * @property {number} [status] answers this
 * @property {number} [cut] ends the connection after so many bytes of the file
 * @property {boolean} [noRange] answers with the whole file
 * @property {(bytes: Buffer) => Buffer} [damage] changes the file
 * @property {string} [etag]
 * @property {number} [bytesPerSecond]
 * @property {number} [times]
 */

export class Server {
    /** @type {Map<string, string | Buffer>} */
    #mounts = new Map();
    /** @type {Map<string, Fault>} */
    faults = new Map();
    /** @type {{path: string, range: string | undefined, status: number, sent: number}[]} */
    log = [];
    sockets = new Set();

    /** Serves a folder, bytes, or what another server has, under a path. */
    mount(path, what) {
        this.#mounts.set(path, what);
        return this;
    }

    async start() {
        this.server = createServer((request, response) =>
            this.#answer(request, response).catch((error) => response.destroy(error)),
        );
        this.server.on(
            "connection",
            (socket) =>
                this.sockets.add(socket).size && socket.on("close", () => this.sockets.delete(socket)),
        );
        await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
        // A secure context, as 127.0.0.1 is.
        this.url = `http://127.0.0.1:${this.server.address().port}`;
        return this;
    }

    async stop() {
        for (const socket of this.sockets) socket.destroy();
        await new Promise((resolve) => this.server.close(resolve));
    }

    /** Requests for paths that begin like this, since the log was emptied. */
    requests(prefix = "/") {
        return this.log.filter(({ path }) => path.startsWith(prefix));
    }

    /** Bytes of bodies that were sent for such paths. */
    sent(prefix = "/") {
        return this.requests(prefix).reduce((sum, { sent }) => sum + sent, 0);
    }

    reset() {
        this.log = [];
        this.faults.clear();
    }

    async #find(path) {
        for (const [prefix, what] of [...this.#mounts].sort(([a], [b]) => b.length - a.length)) {
            if (Buffer.isBuffer(what) && path === prefix) return what;
            if (typeof what === "string" && path.startsWith(prefix)) {
                if (what.startsWith("http://")) {
                    const response = await fetch(`${what}/${path.slice(prefix.length)}`);
                    return response.ok ? Buffer.from(await response.arrayBuffer()) : null;
                }
                const inside = normalize(path.slice(prefix.length));
                if (inside.startsWith("..")) return null;
                const file = join(what, inside);
                if ((await stat(file).catch(() => null))?.isFile()) return readFile(file);
            }
        }
        return null;
    }

    async #answer(request, response) {
        const path = decodeURIComponent(new URL(request.url, this.url).pathname);
        const entry = { path, range: request.headers.range, status: 0, sent: 0 };
        this.log.push(entry);
        const headers = {
            "access-control-allow-origin": "*",
            "access-control-expose-headers": "etag, content-range",
        };
        if (request.method === "OPTIONS") {
            response.writeHead(204, { ...headers, "access-control-allow-headers": "*" }).end();
            return;
        }
        const fault = this.#fault(path);
        let bytes = await this.#find(path);
        entry.status = fault.status ?? (bytes ? 200 : 404);
        if (entry.status >= 400 || !bytes) {
            response.writeHead(entry.status, headers).end();
            return;
        }
        if (fault.damage) bytes = fault.damage(Buffer.from(bytes));
        headers.etag = fault.etag ?? `"${createHash("sha1").update(bytes).digest("hex")}"`;
        headers["content-type"] = TYPES[extname(path)] ?? "application/octet-stream";
        headers["accept-ranges"] = "bytes";
        let start = 0;
        const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
        let body = bytes;
        if (range && !fault.noRange) {
            start = Number(range[1]);
            if (start >= bytes.length) {
                response
                    .writeHead((entry.status = 416), {
                        ...headers,
                        "content-range": `bytes */${bytes.length}`,
                    })
                    .end();
                return;
            }
            const end = range[2] ? Math.min(Number(range[2]) + 1, bytes.length) : bytes.length;
            body = bytes.subarray(start, end);
            headers["content-range"] = `bytes ${start}-${end - 1}/${bytes.length}`;
            entry.status = 206;
        }
        headers["content-length"] = body.length;
        response.writeHead(entry.status, headers);
        if (request.method === "HEAD") return response.end();
        await this.#send(
            response,
            body,
            fault.cut === undefined ? Infinity : fault.cut - start,
            fault.bytesPerSecond,
            entry,
        );
    }

    #fault(path) {
        const fault = this.faults.get(path);
        if (!fault) return {};
        if (fault.times !== undefined && --fault.times < 0) {
            this.faults.delete(path);
            return {};
        }
        return fault;
    }

    async #send(response, body, most, bytesPerSecond, entry) {
        const step = bytesPerSecond ? Math.max(1, Math.ceil(bytesPerSecond / 20)) : 1 << 18;
        for (let at = 0; at < body.length; at += step) {
            if (response.destroyed) return;
            const piece = body.subarray(at, Math.min(at + step, most, body.length));
            if (piece.length) {
                entry.sent += piece.length;
                if (!response.write(piece)) await drained(response);
            }
            if (at + piece.length >= most) {
                // What was written arrives first.
                await new Promise((resolve) => setTimeout(resolve, 50));
                response.destroy();
                return;
            }
            if (bytesPerSecond) await new Promise((resolve) => setTimeout(resolve, 50));
        }
        response.end();
    }
}

function drained(response) {
    return new Promise((resolve) => {
        const done = () => {
            response.off("drain", done).off("close", done);
            resolve();
        };
        response.on("drain", done).on("close", done);
    });
}
