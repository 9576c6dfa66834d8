// Downloads that go wrong, caches that break, tabs that share: on the CPU, since weights get there the same way.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import { launch, open, serve } from "./harness.mjs";
import { mountLarge } from "./models.mjs";

const MIB = 1 << 20;
/** Bytes of a piece of the cache: what a broken download can lose. */
const PIECE = 4 * MIB;
const WEIGHTS = "/big/model.safetensors";
let server, browser, context, page, size, url;

before(async () => {
    server = await serve();
    size = mountLarge(server, "/big/", 24 * MIB).length;
    browser = await launch();
    url = `${server.url}/big/`;
});
after(async () => {
    await browser?.close();
    await server?.stop();
});
beforeEach(async () => {
    await context?.close();
    server.reset();
    context = await browser.newContext();
    page = await open(context, server);
});

/** Loads the model, embeds a text and unloads it. */
function load(page, source = url, options = {}) {
    return page.evaluate(
        ([source, options]) =>
            outcome(async () => {
                const events = [];
                const model = await lib.load(source, {
                    device: "cpu",
                    onProgress: (event) => events.push(event),
                    ...options,
                });
                const [vector] = await model.embed(["a text"]);
                await model.unload();
                return {
                    info: model.info,
                    vector: [...vector],
                    phases: [...new Set(events.map(({ phase }) => phase))],
                    events,
                };
            }),
        [source, options],
    );
}

/** What was asked for; "rest" begins at a whole piece. What a broken connection still held is lost. */
const asked = () =>
    server.requests(WEIGHTS).map(({ range, status }) => {
        if (range === undefined) return `all ${status}`;
        assert.match(range, /^bytes=(4194304|8388608|12582912)-$/);
        return `rest ${status}`;
    });

test("a download that is cut at 40 % goes on where it ended", async () => {
    server.faults.set(WEIGHTS, { cut: 0.4 * size, times: 1 });
    const { value, error } = await load(page);
    assert.equal(error, undefined, error?.message);
    assert.equal(value.info.cached, false);
    assert.deepEqual(asked(), ["all 200", "rest 206"]);
    assert.ok(server.sent(WEIGHTS) < size + 2 * PIECE);
    const shares = value.events
        .filter(({ phase }) => phase === "download")
        .map(({ bytes, total }) => bytes / (total || 1));
    assert.ok(shares.every((share) => share <= 1));
    assert.equal(shares.at(-1), 1);
});

test("a download that failed goes on at the next visit", async () => {
    server.faults.set(WEIGHTS, { cut: 0.4 * size, times: 1 });
    const rest = setInterval(() => {
        // After the cut, the server is gone.
        if (server.requests(WEIGHTS).length) server.faults.set(WEIGHTS, { status: 503 });
    }, 5);
    const { error } = await load(page);
    clearInterval(rest);
    assert.equal(error.name, "DownloadFailed");
    assert.match(error.message, /503, 5 times in a row; .* is kept/);
    assert.equal(error.status, 503);
    const [entry] = await page.evaluate(() => lib.cache.list());
    assert.equal(entry.complete, false);
    assert.ok(entry.bytes > PIECE);
    server.reset();
    await page.close();
    page = await open(context, server);
    const { value } = await load(page);
    assert.equal(value.vector.length, value.info.dimensions);
    assert.deepEqual(asked(), ["rest 206"]);
    assert.deepEqual(server.requests("/big/").length, 1, "what was there is not fetched again");
});

test("an aborted download is kept as far as it came", async () => {
    server.faults.set(WEIGHTS, { bytesPerSecond: 16 * MIB });
    const { error } = await page.evaluate(
        (url) =>
            outcome(() => {
                const stop = new AbortController();
                const onProgress = ({ phase, bytes }) =>
                    phase === "download" && bytes > 10 * 1024 * 1024 && stop.abort();
                return lib.load(url, { device: "cpu", onProgress, signal: stop.signal });
            }),
        url,
    );
    assert.equal(error.name, "Aborted");
    server.reset();
    const { value } = await load(page);
    assert.equal(value.info.cached, false);
    assert.deepEqual(asked(), ["rest 206"]);
});

test("a server that cannot go on is asked for all of it", async () => {
    server.faults.set(WEIGHTS, { cut: 0.4 * size, noRange: true, times: 1 });
    const later = setInterval(
        () => server.requests(WEIGHTS).length === 1 && server.faults.set(WEIGHTS, { noRange: true }),
        5,
    );
    const { value } = await load(page);
    clearInterval(later);
    assert.equal(value.vector.length, value.info.dimensions);
    assert.deepEqual(asked(), ["all 200", "rest 200", "all 200"]);
});

test("a file that changed meanwhile is fetched anew", async () => {
    server.faults.set(WEIGHTS, { cut: 0.4 * size, etag: '"old"', times: 1 });
    const { value } = await load(page);
    assert.equal(value.vector.length, value.info.dimensions);
    assert.deepEqual(asked(), ["all 200", "rest 206", "all 200"]);
});

test("a server that is busy is asked again", async () => {
    server.faults.set("/big/config.json", { status: 503, times: 2 });
    const { value } = await load(page);
    assert.ok(value.vector);
    assert.deepEqual(
        server.requests("/big/config.json").map(({ status }) => status),
        [503, 503, 200],
    );
});

test("what is known by its hash is checked", async () => {
    const { createHash } = await import("node:crypto");
    const { readFileSync } = await import("node:fs");
    const { FIXTURES } = await import("./harness.mjs");
    const bytes = readFileSync(`${FIXTURES}/bert/model.safetensors`);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const bert = `${server.url}/models/bert/`;
    const path = "/models/bert/model.safetensors";
    const flip = (file) => {
        file[file.length - 100] ^= 1;
        return file;
    };
    // Damaged once, it is fetched again.
    server.faults.set(path, { damage: flip, times: 1 });
    const first = await load(page, { url: bert, sha256 });
    assert.equal(first.error, undefined, first.error?.message);
    assert.equal(server.requests(path).length, 2);
    server.reset();
    assert.equal((await load(page, { url: bert, sha256 })).value.info.cached, true);
    // Another is wanted: the cached one does not do, nor does the server's.
    const wrong = await load(page, { url: bert, sha256: sha256.replace(/./g, "0") });
    assert.equal(wrong.error.name, "DownloadFailed");
    assert.match(wrong.error.message, new RegExp(`SHA-256 is ${sha256}, expected 0{64}`));
    const bad = await load(page, { url: bert, sha256: "abc" });
    assert.equal(bad.error.name, "InvalidInput");
});

/** Does something to the files of the one entry in the cache. */
const damage = (page, work) =>
    page.evaluate(async (work) => {
        const root = await (await navigator.storage.getDirectory()).getDirectoryHandle("inferencelayer");
        for await (const [, folder] of root.entries()) {
            const files = {};
            for await (const [name, handle] of folder.entries()) files[name] = handle;
            const sizes = Object.fromEntries(
                await Promise.all(Object.entries(files).map(async ([n, h]) => [n, (await h.getFile()).size])),
            );
            const largest = Object.keys(sizes).sort((a, b) => sizes[b] - sizes[a])[0];
            const write = async (handle, at, data) => {
                const writable = await handle.createWritable({ keepExistingData: true });
                if (data === null) await writable.truncate(at);
                else await writable.write({ type: "write", position: at, data });
                await writable.close();
            };
            await new Function("folder", "files", "largest", "write", `return (async () => {${work}})()`)(
                folder,
                files,
                largest,
                write,
            );
        }
    }, work);

for (const [what, work, refetched] of [
    ["a changed byte", "await write(files[largest], 13e6, new Uint8Array([1, 2, 3, 4]))", true],
    ["weights that were cut off", "await write(files[largest], 13e6, null)", true],
    ["weights that vanished", "await folder.removeEntry(largest)", true],
    [
        "a journal that was cut off",
        "await write(files.journal, (await files.journal.getFile()).size - 30, null)",
        true,
    ],
    [
        "a journal full of garbage",
        "await write(files.journal, 0, new Uint8Array((await files.journal.getFile()).size).fill(120))",
        true,
    ],
    ["a journal that is empty", "await write(files.journal, 0, null)", true],
]) {
    test(`a broken cache heals: ${what}`, async () => {
        const { value: before } = await load(page);
        await page.close();
        page = await open(context, server);
        await damage(page, work);
        server.reset();
        const { value, error } = await load(page);
        assert.equal(error, undefined, error?.message);
        assert.deepEqual(value.vector, before.vector);
        assert.equal(server.requests("/big/").length > 0, refetched);
        server.reset();
        const { value: again } = await load(page);
        assert.equal(again.info.cached, true, "healed for good");
        assert.deepEqual(server.requests("/big/"), []);
    });
}

test("storage that does not suffice is an error that says how much is missing", async () => {
    const session = await context.newCDPSession(page);
    await session.send("Storage.overrideQuotaForOrigin", { origin: server.url, quotaSize: 10 * MIB });
    const { error } = await load(page);
    assert.equal(error.name, "QuotaExceeded");
    assert.ok(error.missing > 13 * MIB && error.missing < 21 * MIB, `${error.missing}`);
    assert.match(error.message, /MB are missing.*cache\.delete.*cache: false/);
    // Nothing of it is needed without the cache.
    const { value } = await load(page, url, { cache: false });
    assert.ok(value.vector);
    await session.send("Storage.overrideQuotaForOrigin", { origin: server.url });
    assert.ok((await load(page)).value.vector, "and with more storage it works");
});

test("two tabs share one download", async () => {
    server.faults.set(WEIGHTS, { bytesPerSecond: 16 * MIB });
    const other = await open(context, server);
    const [a, b] = await Promise.all([load(page), load(other)]);
    assert.deepEqual(a.value.vector, b.value.vector);
    assert.equal(server.sent(WEIGHTS), size);
    assert.deepEqual([a.value.info.cached, b.value.info.cached].sort(), [false, true]);
    // The one that waits shows how far the other has come.
    const waited = a.value.info.cached ? a : b;
    assert.ok(
        waited.value.events.some(({ phase, bytes }) => phase === "download" && bytes > 0),
        JSON.stringify(waited.value.events),
    );
});

test("a tab that is closed leaves its download to the other", async () => {
    server.faults.set(WEIGHTS, { bytesPerSecond: 12 * MIB });
    const other = await open(context, server);
    const first = load(page).catch(() => {});
    await page.waitForTimeout(900);
    const second = load(other);
    await page.waitForTimeout(300);
    await page.close();
    await first;
    const { value } = await second;
    assert.ok(value.vector);
    assert.ok(server.sent(WEIGHTS) < 2 * size - PIECE, "it went on where the other ended");
    page = other;
});

test("without the cache nothing is kept", async () => {
    const { value } = await load(page, url, { cache: false });
    assert.ok(value.vector);
    assert.deepEqual(await page.evaluate(() => lib.cache.list()), []);
});

test("browsers without the file system keep models in the Cache API", async () => {
    const script = Buffer.from("delete FileSystemFileHandle.prototype.createSyncAccessHandle;\n");
    server.faults.set("/package/dist/worker.js", { damage: (file) => Buffer.concat([script, file]) });
    server.faults.set(WEIGHTS, { cut: 0.4 * size, times: 1 });
    await page.reload();
    await page.waitForFunction(() => window.ready);
    const { value } = await load(page);
    assert.deepEqual(asked(), ["all 200", "rest 206"]);
    assert.equal((await page.evaluate(() => lib.cache.estimate())).kind, "cache-api");
    server.log = [];
    const { value: again } = await load(page);
    assert.deepEqual([again.info.cached, server.requests("/big/").length], [true, 0]);
    assert.deepEqual(again.vector, value.vector);
    assert.equal(await page.evaluate(() => lib.cache.delete()), true);
    assert.deepEqual(await page.evaluate(() => lib.cache.list()), []);
});
