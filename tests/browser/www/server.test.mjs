// The site's server: types, ranges, tags, what it serves and what it does not, models and their manifest.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { parse } from "../../../www/server/gguf.mjs";
import { rangeOf } from "../../../www/server/http.mjs";
import { Models } from "../../../www/server/models.mjs";
import { FIXTURES, MOCK, ROOT, modelFolder, scratch, serve } from "./harness.mjs";

let server;
before(async () => {
    server = await serve();
});
after(() => server.stop());

const get = (path, headers = {}, method = "GET") => fetch(server.url + path, { headers, method });

/** A request whose path is sent as it is: `fetch` would tidy it up. */
function raw(path) {
    return new Promise((resolve, reject) => {
        const { port } = new URL(server.url);
        request({ port, host: "127.0.0.1", path }, (response) => response.resume().on("end", () => resolve(response.statusCode))).on("error", reject).end();
    });
}

test("files have their types, and the page its policy", async () => {
    for (const [path, type] of [
        ["", "text/html"],
        ["js/main.js", "text/javascript"],
        ["css/base.css", "text/css"],
        ["icon.svg", "image/svg+xml"],
        ["site.webmanifest", "application/manifest+json"],
        ["package/index.js", "text/javascript"],
        ["models/manifest.json", "application/json"],
    ]) {
        const response = await get(path);
        assert.equal(response.status, 200, path);
        assert.ok(response.headers.get("content-type").startsWith(type), path);
        assert.match(response.headers.get("content-security-policy"), /default-src 'self'/);
        assert.equal(response.headers.get("cross-origin-opener-policy"), null);
    }
});

test("the page's own policy is the server's", async () => {
    const page = await (await get("")).text();
    const header = (await get("")).headers.get("content-security-policy");
    const own = /http-equiv="Content-Security-Policy"\s+content="([^"]+)"/.exec(page)[1];
    // A page cannot say itself who may frame it.
    assert.equal(`${own}; frame-ancestors 'none'`, header);
});

test("nothing but the site is served", async () => {
    for (const path of ["/../package.json", "/..%2fserve.mjs", "/%2e%2e/serve.mjs", "/models/..%2f..%2fetc%2fpasswd", "/models/../../../etc/passwd", "/nothing", "/js", "/models/", "/models/minilm/none"]) {
        assert.equal(await raw(path), 404, path);
    }
    assert.equal(await raw("/%zz"), 400);
    assert.equal((await get("", {}, "POST")).status, 405);
});

test("ranges, tags and HEAD", async () => {
    const path = "models/smollm2-135m/tiny.gguf";
    const bytes = readFileSync(join(FIXTURES, "gguf_llama/model.gguf"));
    const whole = await get(path);
    assert.equal(whole.headers.get("accept-ranges"), "bytes");
    assert.deepEqual(Buffer.from(await whole.arrayBuffer()), bytes);
    const etag = whole.headers.get("etag");
    const part = await get(path, { range: "bytes=100-199" });
    assert.equal(part.status, 206);
    assert.equal(part.headers.get("content-range"), `bytes 100-199/${bytes.length}`);
    assert.deepEqual(Buffer.from(await part.arrayBuffer()), bytes.subarray(100, 200));
    assert.equal((await get(path, { range: `bytes=${bytes.length}-` })).status, 416);
    assert.equal((await get(path, { "if-none-match": etag })).status, 304);
    assert.equal((await get(path, { range: "bytes=0-9", "if-range": '"other"' })).status, 200);
    assert.equal((await get(path, { range: "bytes=0-9", "if-range": etag })).status, 206);
    const head = await get(path, {}, "HEAD");
    assert.equal(head.headers.get("content-length"), String(bytes.length));
    assert.equal((await head.arrayBuffer()).byteLength, 0);
});

test("ranges are read as HTTP has them", () => {
    assert.deepEqual(rangeOf("bytes=0-0", 10), { start: 0, end: 1 });
    assert.deepEqual(rangeOf("bytes=5-", 10), { start: 5, end: 10 });
    assert.deepEqual(rangeOf("bytes=-3", 10), { start: 7, end: 10 });
    assert.deepEqual(rangeOf("bytes=-30", 10), { start: 0, end: 10 });
    assert.deepEqual(rangeOf("bytes=2-99", 10), { start: 2, end: 10 });
    assert.equal(rangeOf("bytes=10-", 10), "none");
    assert.equal(rangeOf("bytes=5-2", 10), "none");
    for (const other of [undefined, "", "bytes=-", "bytes=a-b", "bytes=0-1,3-4", "items=0-1"]) assert.equal(rangeOf(other, 10), "all", other);
});

test("the manifest has each model's files with their hashes", async () => {
    const { models } = await (await get("models/manifest.json")).json();
    assert.deepEqual(models.map(({ id, kind }) => [id, kind]), [
        ["minilm", "embedding"],
        ["smollm2-135m", "generation"],
    ]);
    const [encoder, decoder] = models;
    assert.equal(encoder.path, "minilm/");
    assert.ok(encoder.files.some(({ path }) => path === "1_Pooling/config.json"));
    assert.equal(decoder.path, "smollm2-135m/tiny.gguf");
    for (const model of models) {
        assert.equal(model.bytes, model.files.reduce((sum, { bytes }) => sum + bytes, 0));
        for (const { path, bytes, sha256 } of model.files) {
            const folder = model.path.replace(/[^/]*$/, "");
            const body = Buffer.from(await (await get(`models/${folder}${path}`)).arrayBuffer());
            assert.equal(body.length, bytes);
            assert.equal(createHash("sha256").update(body).digest("hex"), sha256);
        }
    }
});

test("a model folder may hold parts, links, nested folders and rubbish", async () => {
    const folder = scratch("models");
    const gguf = readFileSync(join(FIXTURES, "gguf_qwen3/model.gguf"));
    writeFileSync(join(folder, "big-00001-of-00002.gguf"), gguf);
    writeFileSync(join(folder, "big-00002-of-00002.gguf"), gguf);
    writeFileSync(join(folder, "notes.txt"), "no model");
    mkdirSync(join(folder, "owner/name"), { recursive: true });
    writeFileSync(join(folder, "owner/name/one.gguf"), gguf);
    writeFileSync(join(folder, "owner/name/two.gguf"), gguf);
    symlinkSync(join(FIXTURES, "qwen3_tied"), join(folder, "linked"));
    symlinkSync(join(folder, "gone"), join(folder, "dangling"));
    const found = await new Models(folder).list();
    assert.deepEqual(found.map(({ id, kind, path, files }) => [id, kind, path, files.length > 1]), [
        ["big-00001-of-00002", "generation", "big-00001-of-00002.gguf", true],
        ["linked", "generation", "linked/", true],
        ["one", "generation", "owner/name/one.gguf", false],
        ["two", "generation", "owner/name/two.gguf", false],
    ]);
    await assert.rejects(new Models(join(folder, "none"), { required: true }).list(), /--models .*none: there is no such folder/);
    assert.deepEqual(await new Models(join(folder, "none")).list(), []);
});

test("a GGUF file's texts are read, whatever follows them", () => {
    const text = (value) => {
        const length = Buffer.alloc(8);
        length.writeBigUInt64LE(BigInt(value.length));
        return Buffer.concat([length, Buffer.from(value)]);
    };
    const u32 = (value) => Buffer.from(new Uint32Array([value]).buffer);
    const u64 = (value) => Buffer.from(new BigUint64Array([BigInt(value)]).buffer);
    const head = (count) => Buffer.concat([Buffer.from("GGUF"), u32(3), u64(1), u64(count)]);
    const file = Buffer.concat([
        head(4),
        ...[text("general.name"), u32(8), text("A model")],
        ...[text("general.file_type"), u32(4), u32(2)],
        ...[text("general.license"), u32(8), text("mit")],
        ...[text("tokens"), u32(9), u32(8), u64(5)],
    ]);
    assert.deepEqual(parse(file), { "general.name": "A model", "general.license": "mit" });
    for (let end = 0; end < file.length; end++) assert.doesNotThrow(() => parse(file.subarray(0, end)));
    assert.deepEqual(parse(Buffer.from("no GGUF file, but longer than a header")), {});
    assert.deepEqual(parse(Buffer.concat([head(2 ** 40), u64(2 ** 60)])), {});
});

test("the service worker's list has every file of the page, and changes with them", async () => {
    const list = (await (await get("precache.js")).text()).replace(/^self\.PRECACHE = |;\s*$/g, "");
    const { files, version } = JSON.parse(list);
    const paths = files.map(([path]) => path);
    for (const path of ["index.html", "js/main.js", "js/search/worker.js", "package/index.js", "samples/things-worth-knowing.txt"]) {
        assert.ok(paths.includes(path), path);
    }
    assert.ok(!paths.includes("sw.js") && !paths.some((path) => path.endsWith(".map")));
    assert.match(version, /^[0-9a-f]{12}$/);
});

test("the site can be exported", () => {
    const folder = scratch("export");
    execFileSync("node", ["www/serve.mjs", "--package", MOCK, "--export", folder], { cwd: ROOT });
    for (const path of ["index.html", "precache.js", "package/index.js", "models/manifest.json"]) readFileSync(join(folder, path));
});

test("wrong options are named", () => {
    const run = (...args) => spawnSync("node", ["www/serve.mjs", ...args], { cwd: ROOT, encoding: "utf8" });
    assert.match(run("--port", "x").stderr, /serve: --port x: expected/);
    assert.match(run("--package", modelFolder()).stderr, /serve: .*: there is no index\.js/);
    assert.match(run("--package", MOCK, "--models", "/nowhere").stderr, /serve: --models \/nowhere/);
    assert.equal(run("--wrong").status, 1);
    assert.match(run("--help").stdout, /--fetch/);
});
