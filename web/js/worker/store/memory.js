// An entry that is not kept: Blobs, which browsers move to disk when they are many.

import { blobReader } from "./opfs.js";

export class MemoryBacking {
    #journal = "";
    /** @type {Map<number, Blob>} */
    #files = new Map();

    async readJournal() {
        return this.#journal;
    }

    async appendJournal(line) {
        this.#journal += line;
    }

    async write(file, offset, bytes) {
        const before = this.#files.get(file)?.slice(0, offset) ?? new Blob();
        this.#files.set(file, new Blob([before, bytes]));
    }

    close() {}

    async drop(file) {
        this.#files.delete(file);
    }

    async reader(file) {
        const blob = this.#files.get(file);
        return blob ? blobReader(blob) : null;
    }
}
