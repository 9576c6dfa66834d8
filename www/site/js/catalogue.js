// The models that can be chosen: those that the site's own server has, and those of the package's catalogue.

import { cache, models as known } from "../package/index.js";

const BASE = new URL("../", import.meta.url);

/** Shown first, and loaded if nothing else was chosen. */
export const DEFAULTS = { generation: "smollm2-135m", embedding: "minilm" };

/**
 * @typedef {object} Choice
 * @property {string} id
 * @property {string} name
 * @property {string} about
 * @property {"embedding" | "generation"} kind
 * @property {string | null} licence
 * @property {number} bytes
 * @property {"local" | "hub" | "file"} origin where it comes from: this site's server, the model hub, the device
 * @property {any} source for the package's `load`
 * @property {string | null} cacheId its name in the cache
 */

/** Names of licences for people, by how model files write them. */
const LICENCES = { "apache-2.0": "Apache-2.0", mit: "MIT", lfm1: "LFM Open License v1.0" };

/** @returns {Choice} */
function local(model) {
    const url = new URL(`models/${model.path.split("/").map(encodeURIComponent).join("/")}`, BASE).href;
    const entry = known.find(({ id }) => id === model.id);
    return {
        id: model.id,
        name: entry ? nameOf(entry) : model.name,
        about: entry ? aboutOf(entry) : model.files.length === 1 ? model.files[0].path : `${model.files.length} files`,
        kind: model.kind,
        licence: entry?.licence ?? LICENCES[model.licence?.toLowerCase()] ?? model.licence,
        bytes: model.bytes,
        origin: "local",
        source: { url, sha256: Object.fromEntries(model.files.map(({ path, sha256 }) => [path, sha256])) },
        // As the package names what it loads by address.
        cacheId: model.path.endsWith(".gguf") ? new URL("./", url).href + model.path.split("/").pop() : url,
    };
}

// "name: what it is" is how the catalogue describes models.
const nameOf = ({ id, about }) => (about.includes(":") ? about.slice(0, about.indexOf(":")) : id);
const aboutOf = ({ about }) => (about.includes(":") ? about.slice(about.indexOf(":") + 1).trim() : about);

/** @returns {Choice} */
function remote(entry) {
    const { id, kind, licence, bytes } = entry;
    return { id, name: nameOf(entry), about: aboutOf(entry), kind, licence, bytes, origin: "hub", source: id, cacheId: id };
}

/**
 * A choice of files from this device.
 * @param {File[]} files
 * @param {"embedding" | "generation"} kind
 * @returns {Choice}
 */
export function fromFiles(files, kind) {
    const weights = files.filter(({ name }) => /\.(gguf|safetensors)$/.test(name));
    const folder = files[0].webkitRelativePath?.split("/")[0];
    const name = folder || (weights[0] ?? files[0]).name;
    const bytes = files.reduce((sum, { size }) => sum + size, 0);
    const about = files.length === 1 ? "a file from this device" : `${files.length} files from this device`;
    return { id: `file:${name}`, name, about, kind, licence: null, bytes, origin: "file", source: { files }, cacheId: null };
}

/** @type {Promise<Choice[]> | null} */
let listed = null;

/** All choices; the server is asked once. */
export function choices() {
    listed ??= (async () => {
        const response = await fetch(new URL("models/manifest.json", BASE)).catch(() => null);
        const { models = [] } = response?.ok ? await response.json() : {};
        const own = models.map(local);
        const others = known.filter(({ id }) => !own.some((choice) => choice.id === id)).map(remote);
        return [...own, ...others];
    })();
    return listed;
}

/**
 * The one to start with: what was chosen last, the default, or any that this server has.
 * @param {"embedding" | "generation"} kind
 * @param {string | undefined} chosen
 */
export async function initial(kind, chosen) {
    const fitting = (await choices()).filter((choice) => choice.kind === kind);
    const find = (id) => fitting.find((choice) => choice.id === id);
    const usual = find(DEFAULTS[kind]);
    return find(chosen) ?? (usual?.origin === "local" ? usual : fitting.find(({ origin }) => origin === "local")) ?? usual ?? null;
}

/** What the cache holds, by name. @returns {Promise<Map<string, {bytes: number, complete: boolean}>>} */
export async function cached() {
    const entries = await cache.list();
    return new Map(entries.map((entry) => [entry.id, entry]));
}
