// Entries in the origin private file system: a folder each, with a journal and the data of each file.

const ROOT = "inferencelayer";

export function available() {
    return (
        typeof navigator.storage?.getDirectory === "function" &&
        typeof globalThis.FileSystemFileHandle?.prototype?.createSyncAccessHandle === "function"
    );
}

async function root(create) {
    return (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT, { create });
}

const missing = (error) => error?.name === "NotFoundError";

/** Keys of all entries. */
export async function keys() {
    const found = [];
    try {
        for await (const [name, handle] of (await root(false)).entries())
            if (handle.kind === "directory") found.push(name);
    } catch (error) {
        if (!missing(error)) throw error;
    }
    return found;
}

export async function remove(key) {
    try {
        await (await root(false)).removeEntry(key, { recursive: true });
    } catch (error) {
        if (!missing(error)) throw error;
    }
}

/** Where one entry's journal and data are; made when something is written. */
export class OpfsBacking {
    /** @type {Map<string, FileSystemSyncAccessHandle>} */
    #writing = new Map();

    constructor(key) {
        this.key = key;
    }

    async #folder(create) {
        return (await root(create)).getDirectoryHandle(this.key, { create });
    }

    /** @returns {Promise<FileSystemSyncAccessHandle>} */
    async #writer(name) {
        let handle = this.#writing.get(name);
        if (!handle) {
            const file = await (await this.#folder(true)).getFileHandle(name, { create: true });
            handle = await file.createSyncAccessHandle();
            this.#writing.set(name, handle);
        }
        return handle;
    }

    async readJournal() {
        try {
            const file = await (await this.#folder(false)).getFileHandle("journal");
            return await (await file.getFile()).text();
        } catch (error) {
            if (missing(error)) return "";
            throw error;
        }
    }

    async appendJournal(line) {
        const handle = await this.#writer("journal");
        writeAll(handle, handle.getSize(), new TextEncoder().encode(line));
        handle.flush();
    }

    /** @param {Uint8Array<ArrayBuffer>} bytes */
    async write(file, offset, bytes) {
        writeAll(await this.#writer(`${file}.bin`), offset, bytes);
    }

    /** Ends writing: others can read from now on. */
    close() {
        for (const handle of this.#writing.values()) {
            handle.flush();
            handle.close();
        }
        this.#writing.clear();
    }

    async drop(file) {
        this.#writing.get(`${file}.bin`)?.close();
        this.#writing.delete(`${file}.bin`);
        try {
            await (await this.#folder(false)).removeEntry(`${file}.bin`);
        } catch (error) {
            if (!missing(error)) throw error;
        }
    }

    /**
     * Opens a file's data for reading; `null` if it is gone.
     * @returns {Promise<{size: number, read(offset: number, length: number): Uint8Array | Promise<Uint8Array>, close(): void} | null>}
     */
    async reader(file) {
        let handle;
        try {
            handle = await (await this.#folder(false)).getFileHandle(`${file}.bin`);
        } catch (error) {
            if (missing(error)) return null;
            throw error;
        }
        try {
            // Several tabs may read at once where the browser knows this mode; else one, and the others by Blobs.
            const access = await handle.createSyncAccessHandle({ mode: "read-only" });
            let buffer = new Uint8Array(0);
            return {
                size: access.getSize(),
                read(offset, length) {
                    if (buffer.length < length) buffer = new Uint8Array(length);
                    const bytes = buffer.subarray(0, length);
                    return bytes.subarray(0, access.read(bytes, { at: offset }));
                },
                close: () => access.close(),
            };
        } catch (error) {
            if (error?.name !== "NoModificationAllowedError") throw error;
            return blobReader(await handle.getFile());
        }
    }
}

/** @param {FileSystemSyncAccessHandle} handle */
function writeAll(handle, offset, bytes) {
    for (let done = 0; done < bytes.length;) {
        const wrote = handle.write(bytes.subarray(done), { at: offset + done });
        // Chromium answers a full disk with its error's number, taken as unsigned.
        if (!(wrote > 0 && wrote <= bytes.length - done)) {
            throw new DOMException("nothing could be written", "QuotaExceededError");
        }
        done += wrote;
    }
}

/** @param {Blob} blob */
export function blobReader(blob) {
    return {
        size: blob.size,
        read: async (offset, length) =>
            new Uint8Array(await blob.slice(offset, offset + length).arrayBuffer()),
        close() {},
    };
}
