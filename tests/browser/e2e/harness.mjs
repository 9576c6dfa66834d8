// What the tests share: the package as it is packed, a server for it and for models, browsers, and pages that use it.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { FLAGS, TOOLS, WEBGPU } from "../chromium.mjs";
import { Server } from "./server.mjs";

export { TOOLS };

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../../..");
export const FIXTURES = join(ROOT, "tests/fixtures");
const { chromium } = createRequire(join(TOOLS, "package.json"))("playwright-core");

const BINARY = process.env.INFERENCELAYER_CHROMIUM ?? "/usr/bin/chromium";

/** A folder that is deleted when the tests end. */
export function scratch(name) {
    const folder = mkdtempSync(join(tmpdir(), `inferencelayer-${name}-`));
    process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
    return folder;
}

/** The tarball that `npm pack` makes of the built package. */
export function pack() {
    const folder = scratch("pack");
    execFileSync("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: join(ROOT, "web") });
    return join(
        folder,
        readdirSync(folder).find((name) => name.endsWith(".tgz")),
    );
}

/** The package's folder, unpacked from its tarball. */
export function unpacked() {
    const folder = scratch("package");
    execFileSync("tar", ["-xzf", pack(), "-C", folder]);
    return join(folder, "package");
}

const PAGE = `<!doctype html><meta charset="utf-8"><title>test</title><script type="module">
import * as lib from "/package/dist/index.js";
import OpenAI from "/package/dist/openai.js";
Object.assign(window, { lib, OpenAI });
window.ready = true;
</script>`;

/** A server with the package and the fixtures' models. */
export async function serve() {
    const server = new Server();
    server
        .mount("/package/", unpacked())
        .mount("/models/", FIXTURES + "/")
        .mount("/page.html", Buffer.from(PAGE));
    return server.start();
}

/** @param {{webgpu?: boolean, flags?: string[]}} [options] */
export async function launch({ webgpu = true, flags = [] } = {}) {
    const args = [...FLAGS, ...(webgpu ? [WEBGPU] : ["--disable-features=WebGPU"]), ...flags];
    return chromium.launch({ executablePath: BINARY, args });
}

/** Opens a page that has the package in `lib` and watches its long tasks. */
export async function open(context, server, path = "/page.html") {
    const page = await context.newPage();
    page.messages = [];
    page.on("console", (message) => page.messages.push(message.text()));
    page.on("pageerror", (error) => page.messages.push(String(error)));
    await page.addInitScript(() => {
        window.longTasks = [];
        new PerformanceObserver((list) => {
            for (const { startTime, duration } of list.getEntries())
                window.longTasks.push({ startTime, duration });
        }).observe({ type: "longtask" });
        /** Runs a call that may throw; the outcome is plain. */
        window.outcome = async (work) => {
            try {
                return { value: await work() };
            } catch (error) {
                return {
                    error: {
                        name: error.name,
                        message: error.message,
                        ...error,
                        isOurs: error instanceof lib.InferenceError,
                    },
                };
            }
        };
        window.collect = async (parts) => {
            const all = [];
            for await (const part of parts) all.push(part);
            return {
                text: all.map(({ text }) => text).join(""),
                tokens: all.flatMap(({ tokens }) => tokens),
                last: all.at(-1),
                parts: all.length,
            };
        };
    });
    await page.goto(server.url + path);
    await page.waitForFunction(() => window.ready, null, { timeout: 60_000 });
    return page;
}

export const json = (path) => JSON.parse(readFileSync(join(FIXTURES, path), "utf8"));

/** Tensors of a safetensors file as arrays, f32 and integers. */
export function tensors(path) {
    const bytes = readFileSync(join(FIXTURES, path));
    const length = Number(bytes.readBigUInt64LE(0));
    const header = JSON.parse(bytes.subarray(8, 8 + length).toString());
    const found = {};
    for (const [name, info] of Object.entries(header)) {
        if (name === "__metadata__") continue;
        const [start, end] = info.data_offsets.map((offset) => 8 + length + offset);
        const data = bytes.subarray(start, end);
        const copy = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
        const make = {
            F32: Float32Array,
            I32: Int32Array,
            U32: Uint32Array,
            I64: BigInt64Array,
            U8: Uint8Array,
        }[info.dtype];
        if (make) found[name] = { shape: info.shape, values: Array.from(new make(copy), Number) };
    }
    return found;
}

/** `1 − cosine`. */
export function distance(a, b) {
    const dot = (x, y) => x.reduce((sum, v, i) => sum + v * y[i], 0);
    return 1 - dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}
