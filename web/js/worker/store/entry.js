// What the cache holds of one model: its files' data in pieces, and a journal of what is there.
//
// The journal only grows, a line after what it speaks of was written: whatever a crash leaves behind is the beginning
// of the truth. Each piece of a file has its own hash, so that damage shows before anything is read from it.

/** Bytes of a piece. */
export const PIECE = 4 << 20;

/**
 * @typedef {object} StoredFile
 * @property {number} index names the data
 * @property {string} path
 * @property {string} url
 * @property {number | null} size
 * @property {string | null} etag
 * @property {string | null} sha256 of the whole file, if it was verified
 * @property {number} bytes that are there
 * @property {string[]} hashes of the pieces
 * @property {boolean} done
 */

/** @param {BufferSource} bytes */
export async function hash(bytes) {
    // Pages without a secure context have no cryptography; nothing of theirs is kept either.
    if (!globalThis.crypto?.subtle) return "";
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Entry {
    /** @type {Map<string, StoredFile>} */
    files = new Map();
    /** Optional files that the server has not. @type {Set<string>} */
    absent = new Set();
    id = "";
    #count = 0;
    /** Ends a line that was cut off. */
    #start = "";
    /** @type {Promise<void>} */
    #appended = Promise.resolve();

    /** @param {any} backing */
    constructor(backing) {
        this.backing = backing;
    }

    /** Reads the journal. */
    async open() {
        const text = await this.backing.readJournal();
        for (const line of text.split("\n")) {
            try {
                if (line) this.#apply(JSON.parse(line));
            } catch {
                // Cut off while it was written. If it was a piece's, the file's hashes will not fit its data.
            }
        }
        if (text && !text.endsWith("\n")) this.#start = "\n";
        return this;
    }

    #apply(line) {
        if (line.entry !== undefined) this.id = line.entry;
        if (line.absent !== undefined) this.absent.add(line.absent);
        if (line.file !== undefined) {
            const { file, url, size = null, etag = null } = line;
            const stored = {
                index: line.index,
                path: file,
                url,
                size,
                etag,
                sha256: null,
                bytes: 0,
                hashes: [],
                done: false,
            };
            this.files.set(file, stored);
            this.#count = Math.max(this.#count, line.index + 1);
        }
        const known = [...this.files.values()].find((file) => file.index === line.of);
        if (!known) return;
        if (line.piece !== undefined) {
            known.hashes.push(line.piece);
            known.bytes += line.bytes;
        }
        if (line.done) Object.assign(known, { done: true, size: known.bytes, sha256: line.sha256 ?? null });
        if (line.drop) this.files.delete(known.path);
    }

    async #append(line) {
        this.#apply(line);
        const text = `${this.#start}${JSON.stringify(line)}\n`;
        this.#start = "";
        this.#appended = this.#appended.then(() => this.backing.appendJournal(text));
        await this.#appended;
    }

    /** Names the model that the entry is of. */
    async name(id) {
        if (this.id !== id) await this.#append({ entry: id });
    }

    /** Says that the server has no such file. */
    async setAbsent(path) {
        if (!this.absent.has(path)) await this.#append({ absent: path });
    }

    /**
     * Begins a file.
     * @param {{path: string, url: string, size: number | null, etag: string | null}} file
     * @returns {Promise<StoredFile>}
     */
    async begin({ path, url, size, etag }) {
        const index = this.#count++;
        // Data that a lost journal spoke of may be in its place.
        await this.backing.drop(index);
        await this.#append({ file: path, index, url, size, etag });
        return /** @type {StoredFile} */ (this.files.get(path));
    }

    /**
     * Appends a piece.
     * @param {StoredFile} file
     * @param {Uint8Array<ArrayBuffer>} bytes `PIECE` of them, but for the last
     */
    async add(file, bytes) {
        const [digest] = await Promise.all([hash(bytes), this.backing.write(file.index, file.bytes, bytes)]);
        await this.#append({ of: file.index, piece: digest, bytes: bytes.length });
    }

    /** @param {StoredFile} file */
    async finish(file, sha256) {
        await this.#append({ of: file.index, done: true, ...(sha256 ? { sha256 } : {}) });
    }

    /** Forgets a file. @param {StoredFile} file */
    async drop(file) {
        await this.#append({ of: file.index, drop: true });
        await this.backing.drop(file.index);
    }

    /**
     * Reads a file's pieces from the first on.
     * @param {StoredFile} file
     * @returns {AsyncGenerator<{bytes: Uint8Array<ArrayBuffer>, hash: string}>}
     */
    async *pieces(file) {
        const reader = await this.backing.reader(file.index);
        try {
            for (let at = 0, i = 0; at < file.bytes; at += PIECE, i++) {
                const length = Math.min(PIECE, file.bytes - at);
                const bytes = reader ? await reader.read(at, length) : new Uint8Array(0);
                yield { bytes, hash: file.hashes[i] };
            }
        } finally {
            reader?.close();
        }
    }

    /**
     * Whether a file's data is what was written.
     * @param {StoredFile} file
     * @param {(bytes: number) => void} read
     */
    async intact(file, read) {
        for await (const piece of this.pieces(file)) {
            if (piece.hash && (await hash(piece.bytes)) !== piece.hash) return false;
            read(piece.bytes.length);
        }
        return true;
    }

    close() {
        this.backing.close();
    }
}
