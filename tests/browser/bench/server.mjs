// Serves a folder to pages and hears from them: cross-origin isolated, as threads need it, and with Range requests.

import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".wasm": "application/wasm",
};

/**
 * @param {string} folder
 * @param {(path: string, body: string) => void} hear takes what pages post
 * @returns {Promise<{url: string, stop: () => void}>}
 */
export async function serve(folder, hear) {
    const server = createServer(async (request, response) => {
        const path = normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname));
        if (request.method === "POST") {
            const pieces = [];
            for await (const piece of request) pieces.push(piece);
            response.writeHead(200, { "content-length": 0 }).end();
            return hear(path, Buffer.concat(pieces).toString());
        }
        const file = join(folder, path);
        const found = await stat(file).catch(() => null);
        const headers = {
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-embedder-policy": "require-corp",
            "cache-control": "no-cache",
            "accept-ranges": "bytes",
        };
        if (!found?.isFile()) return response.writeHead(404, headers).end();
        headers["content-type"] = TYPES[extname(path)] ?? "application/octet-stream";
        headers.etag = `"${found.size}-${found.mtimeMs}"`;
        const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
        const start = range ? Number(range[1]) : 0;
        const end = Math.min(range?.[2] ? Number(range[2]) : Infinity, found.size - 1);
        headers["content-length"] = Math.max(0, end - start + 1);
        if (range) headers["content-range"] = `bytes ${start}-${end}/${found.size}`;
        response.writeHead(range ? 206 : 200, headers);
        if (request.method === "HEAD" || found.size === 0) return response.end();
        createReadStream(file, { start, end }).pipe(response);
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    const stop = () => {
        server.closeAllConnections();
        server.close();
    };
    return { url: `http://127.0.0.1:${server.address().port}`, stop };
}
