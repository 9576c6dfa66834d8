// Documents as paragraphs with their vectors, searched by going through all of them: some milliseconds for thousands.

import { split } from "./split.js";

const FORMAT = "inferencelayer-index";
/** Paragraphs that are kept at most: about 200 MB with vectors of 384 values. */
const MOST = 100_000;

/**
 * @typedef {object} Paragraph
 * @property {number} id
 * @property {number} document
 * @property {number} at its place in the document
 * @property {string} text
 * @property {Float32Array | null} vector of unit length
 */

const toBase64 = (vector) => {
    const bytes = new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength);
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
};

const fromBase64 = (text) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    if (bytes.length % 4 !== 0) throw new Error("a vector is cut off");
    return new Float32Array(bytes.buffer);
};

export class Index {
    /** @type {Paragraph[]} */
    #paragraphs = [];
    /** @type {Map<number, string>} */
    #names = new Map();
    #next = 1;
    /** What the vectors were made by. */
    #model = "";

    /** Splits a text and adds its paragraphs. */
    add(name, text) {
        const parts = split(text);
        if (parts.length === 0) throw new Error(`${name}: there is no text in it`);
        if (this.#paragraphs.length + parts.length > MOST) {
            throw new Error(`${name}: with its ${parts.length} paragraphs there would be more than ${MOST}`);
        }
        const document = this.#next++;
        this.#names.set(document, name);
        parts.forEach((part, at) => this.#paragraphs.push({ id: this.#next++, document, at, text: part, vector: null }));
        return { id: document, name, paragraphs: parts.length };
    }

    remove(document) {
        this.#names.delete(document);
        this.#paragraphs = this.#paragraphs.filter((paragraph) => paragraph.document !== document);
    }

    clear() {
        this.#names.clear();
        this.#paragraphs = [];
    }

    documents() {
        const found = new Map([...this.#names].map(([id, name]) => [id, { id, name, paragraphs: 0, embedded: 0 }]));
        for (const { document, vector } of this.#paragraphs) {
            const about = found.get(document);
            about.paragraphs += 1;
            if (vector) about.embedded += 1;
        }
        return { documents: [...found.values()], model: this.#model };
    }

    /** Paragraphs without a vector, in order. */
    pending(most) {
        const found = [];
        for (const { id, text, vector } of this.#paragraphs) {
            if (vector) continue;
            found.push({ id, text });
            if (found.length === most) break;
        }
        return found;
    }

    /** Gives paragraphs their vectors; those that were removed meanwhile are passed over. */
    put(ids, values, width, model) {
        this.#model = model;
        const places = new Map(ids.map((id, i) => [id, i]));
        for (const paragraph of this.#paragraphs) {
            const at = places.get(paragraph.id);
            if (at !== undefined) paragraph.vector = values.slice(at * width, (at + 1) * width);
        }
    }

    /** Drops the vectors: another model makes others. */
    forget() {
        this.#model = "";
        for (const paragraph of this.#paragraphs) paragraph.vector = null;
    }

    /** Paragraphs by likeness to a vector, best first, from a place in that order on. */
    rank(vector, from, most) {
        const scored = [];
        for (const paragraph of this.#paragraphs) {
            const other = paragraph.vector;
            if (!other || other.length !== vector.length) continue;
            let score = 0;
            for (let i = 0; i < vector.length; i++) score += vector[i] * other[i];
            scored.push({ score, paragraph });
        }
        scored.sort((a, b) => b.score - a.score || a.paragraph.id - b.paragraph.id);
        const results = scored.slice(from, from + most).map(({ score, paragraph: { document, at, text, id } }) => ({
            id,
            score,
            at,
            text,
            document: this.#names.get(document),
        }));
        return { results, total: scored.length };
    }

    /** The index as pieces of JSON. */
    *write() {
        yield `{"format":"${FORMAT}","version":1,"model":${JSON.stringify(this.#model)},"documents":[`;
        let before = "";
        for (const [id, name] of this.#names) {
            const own = this.#paragraphs.filter(({ document }) => document === id);
            yield `${before}\n{"name":${JSON.stringify(name)},"paragraphs":[`;
            before = ",";
            for (const [i, { text, vector }] of own.entries()) {
                yield `${i ? "," : ""}\n${JSON.stringify(vector ? { text, vector: toBase64(vector) } : { text })}`;
            }
            yield "]}";
        }
        yield "\n]}\n";
    }

    /** Replaces the index by one that was written. */
    read(text) {
        const refuse = (why) => {
            throw new Error(`this is no index that was exported here: ${why}`);
        };
        let data;
        try {
            data = JSON.parse(text);
        } catch (error) {
            return refuse(error.message);
        }
        if (data?.format !== FORMAT || data.version !== 1 || !Array.isArray(data.documents)) return refuse("its format is another");
        /** @type {Paragraph[]} */
        const paragraphs = [];
        const names = new Map();
        let width = 0;
        for (const { name, paragraphs: own } of data.documents) {
            if (typeof name !== "string" || !Array.isArray(own)) return refuse("a document has no name or no paragraphs");
            const document = this.#next++;
            names.set(document, name);
            for (const [at, { text: part, vector }] of own.entries()) {
                if (typeof part !== "string") return refuse(`${name}: a paragraph has no text`);
                const values = vector === undefined ? null : fromBase64(vector);
                if (values) width ||= values.length;
                if (values && values.length !== width) return refuse(`${name}: vectors have different lengths`);
                paragraphs.push({ id: this.#next++, document, at, text: part, vector: values });
                if (paragraphs.length > MOST) return refuse(`it has more than ${MOST} paragraphs`);
            }
        }
        this.#paragraphs = paragraphs;
        this.#names = names;
        this.#model = String(data.model ?? "");
        return this.documents();
    }
}
