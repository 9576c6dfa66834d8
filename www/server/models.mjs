// The models of a folder, and the manifest that tells pages of them.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readdir, readFile, realpath, rename, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, dirname, join } from "node:path";

import { texts } from "./gguf.mjs";

/** Files of a checkpoint folder that models are made of. */
const WANTED = /\.(safetensors|json|jinja|bin|gguf)$/;
const PART = /-(\d{5})-of-\d{5}\.gguf$/;
/** Folders within folders that are looked into. */
const DEPTH = 2;

/**
 * @typedef {object} LocalModel
 * @property {string} id
 * @property {string} name
 * @property {"embedding" | "generation"} kind
 * @property {string | null} licence
 * @property {string} path below `models/`: of the GGUF file, or of the checkpoint folder with its slash
 * @property {number} bytes
 * @property {{path: string, bytes: number, sha256: string}[]} files by their path below the model's folder
 */

/** SHA-256 of files, remembered by path, size and time: models are large. */
class Sums {
    #path = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "inferencelayer/sha256.json");
    /** @type {Promise<Record<string, string>> | null} */
    #known = null;
    #new = false;

    /** @param {string} path */
    async of(path) {
        this.#known ??= readFile(this.#path, "utf8").then(JSON.parse).catch(() => ({}));
        const known = await this.#known;
        const { size, mtimeMs } = await stat(path);
        const key = `${await realpath(path)} ${size} ${mtimeMs}`;
        if (typeof known[key] !== "string") {
            const hash = createHash("sha256");
            for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(piece);
            known[key] = hash.digest("hex");
            this.#new = true;
        }
        return known[key];
    }

    async save() {
        if (!this.#new) return;
        this.#new = false;
        await mkdir(dirname(this.#path), { recursive: true });
        const staged = `${this.#path}.${process.pid}`;
        await writeFile(staged, JSON.stringify(await this.#known));
        await rename(staged, this.#path);
    }
}

export class Models {
    #sums = new Sums();
    /** Files that may be served, by their path below `models/`. @type {Map<string, string>} */
    #files = new Map();
    /** @type {Promise<LocalModel[]> | null} */
    #list = null;

    /**
     * @param {string} folder
     * @param {{required?: boolean}} [options] whether it is an error if the folder is missing
     */
    constructor(folder, { required = false } = {}) {
        this.folder = folder;
        this.required = required;
    }

    /** @returns {Promise<LocalModel[]>} */
    list() {
        this.#list ??= this.#scan();
        return this.#list;
    }

    /**
     * The file that a path below `models/` stands for.
     * @param {string} path
     */
    async file(path) {
        await this.list();
        return this.#files.get(path);
    }

    /** The manifest's bytes. */
    async manifest() {
        return Buffer.from(JSON.stringify({ models: await this.list() }, null, 1));
    }

    async #scan() {
        if (!(await stat(this.folder).catch(() => null))?.isDirectory()) {
            if (this.required) throw new Error(`--models ${this.folder}: there is no such folder`);
            return [];
        }
        const found = [];
        await this.#look("", DEPTH, found);
        await this.#sums.save();
        return found;
    }

    /** Looks for models in a folder below the model folder. */
    async #look(below, depth, found) {
        const all = await this.#entries(below);
        if (all.some(({ name }) => name === "config.json") && all.some(({ name }) => /\.safetensors$/.test(name))) {
            found.push(await this.#checkpoint(below, all));
            return;
        }
        for (const { name, directory } of all) {
            const part = PART.exec(name);
            if (directory && depth > 0) await this.#look(`${below}${name}/`, depth - 1, found);
            else if (!directory && name.endsWith(".gguf") && (!part || part[1] === "00001")) {
                found.push(await this.#gguf(below, name, all));
            }
        }
    }

    async #entries(below) {
        const folder = join(this.folder, below);
        const all = [];
        for (const name of (await readdir(folder)).sort()) {
            if (name.startsWith(".")) continue;
            // Links are followed; one that dangles is no file.
            const about = await stat(join(folder, name)).catch(() => null);
            if (about) all.push({ name, directory: about.isDirectory() });
        }
        return all;
    }

    async #add(below, path) {
        const file = join(this.folder, below, path);
        this.#files.set(below + path, file);
        return { path, bytes: (await stat(file)).size, sha256: await this.#sums.of(file) };
    }

    async #gguf(below, name, all) {
        const part = PART.exec(name);
        const prefix = part ? name.slice(0, part.index) : null;
        const names = part ? all.map((entry) => entry.name).filter((other) => PART.test(other) && other.startsWith(`${prefix}-`)) : [name];
        const files = [];
        for (const each of names) files.push(await this.#add(below, each));
        const about = await texts(join(this.folder, below, name));
        const own = below ? basename(below) : "";
        return {
            id: own && all.filter((entry) => entry.name.endsWith(".gguf")).length === names.length ? own : name.replace(/\.gguf$/, ""),
            name: name.replace(/\.gguf$/, ""),
            kind: "generation",
            licence: about["general.license"] ?? null,
            path: below + name,
            bytes: files.reduce((sum, file) => sum + file.bytes, 0),
            files,
        };
    }

    async #checkpoint(below, all) {
        const files = [];
        for (const { name, directory } of all) {
            if (!directory && WANTED.test(name)) files.push(await this.#add(below, name));
            if (!directory) continue;
            for (const inner of await this.#entries(`${below}${name}/`)) {
                if (!inner.directory && WANTED.test(inner.name)) files.push(await this.#add(below, `${name}/${inner.name}`));
            }
        }
        const folder = join(this.folder, below);
        const config = JSON.parse(await readFile(join(folder, "config.json"), "utf8").catch(() => "{}"));
        const decoder = (config.architectures ?? []).some((name) => /CausalLM/.test(name));
        return {
            id: basename(below || this.folder),
            name: basename(below || this.folder),
            kind: decoder ? "generation" : "embedding",
            licence: await licenceOf(folder),
            path: below,
            bytes: files.reduce((sum, file) => sum + file.bytes, 0),
            files,
        };
    }
}

/** The licence that a model card's header names. */
async function licenceOf(folder) {
    const card = await readFile(join(folder, "README.md"), "utf8").catch(() => "");
    return /^---\n[^]*?^license:\s*['"]?([\w.-]+)[^]*?^---/m.exec(card)?.[1] ?? null;
}
