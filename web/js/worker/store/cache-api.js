// Entries in the Cache API, for browsers without the file system: the journal and each piece of data is a response.

const NAME = "inferencelayer";
/** Never fetched: names of responses have to be addresses. */
const BASE = "https://inferencelayer.invalid/";

export function available() {
    return typeof globalThis.caches?.open === "function";
}

const open = () => caches.open(NAME);

export async function keys() {
    const found = new Set();
    for (const { url } of await (await open()).keys()) found.add(url.slice(BASE.length).split("/")[0]);
    return [...found];
}

async function removeUnder(prefix) {
    const cache = await open();
    for (const request of await cache.keys()) if (request.url.startsWith(prefix)) await cache.delete(request);
}

export async function remove(key) {
    await removeUnder(`${BASE}${key}/`);
}

export class CacheBacking {
    #journal = "";
    /** @type {Promise<unknown>} */
    #written = Promise.resolve();

    constructor(key) {
        this.base = `${BASE}${key}/`;
    }

    async readJournal() {
        const found = await (await open()).match(`${this.base}journal`);
        this.#journal = found ? await found.text() : "";
        return this.#journal;
    }

    async appendJournal(line) {
        this.#journal += line;
        const text = this.#journal;
        this.#written = this.#written.then(async () =>
            (await open()).put(`${this.base}journal`, new Response(text)),
        );
        await this.#written;
    }

    async write(file, offset, bytes) {
        await (await open()).put(`${this.base}${file}/${offset}`, new Response(bytes.slice()));
    }

    close() {}

    drop(file) {
        return removeUnder(`${this.base}${file}/`);
    }

    async reader(file) {
        const cache = await open();
        const prefix = `${this.base}${file}/`;
        const starts = (await cache.keys())
            .filter(({ url }) => url.startsWith(prefix))
            .map(({ url }) => Number(url.slice(prefix.length)));
        if (starts.length === 0) return null;
        starts.sort((a, b) => a - b);
        // Blobs of responses stay where they are until they are read.
        const blobs = await Promise.all(
            starts.map(async (start) => (await cache.match(prefix + start)).blob()),
        );
        const blob = new Blob(blobs);
        return {
            size: blob.size,
            read: async (offset, length) =>
                new Uint8Array(await blob.slice(offset, offset + length).arrayBuffer()),
            close() {},
        };
    }
}
