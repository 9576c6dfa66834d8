// From what a page asks for to the files of a model.

import { CATALOGUE, HUB } from "../catalogue.js";
import { InvalidInput, UnsupportedModel } from "../errors.js";

/**
 * @typedef {object} Located
 * @property {string} id names the model in the cache
 * @property {string} name for people
 * @property {string} base address of the folder, with its slash
 * @property {string | null} gguf the file, or null for a checkpoint folder
 * @property {Record<string, string>} sha256 by path
 * @property {string} query of the address, if it has one
 */

const lastPart = (path) => path.split("/").filter(Boolean).pop() ?? path;

/**
 * Where a model's files are.
 * @param {{name: string, page?: string, sha256?: string | Record<string, string>}} source
 * @param {string} [hub]
 * @returns {Located}
 */
export function locate({ name, page, sha256 }, hub = HUB) {
    const root = hub.replace(/\/+$/, "");
    const known = CATALOGUE[name];
    if (known) {
        const base = `${root}/${known.repo}/resolve/main/`;
        return {
            id: name,
            name,
            base,
            gguf: known.file ?? null,
            sha256: { ...known.sha256, ...sums(sha256, known.file) },
            query: "",
        };
    }
    // `owner/name` is a repository, unless it is an address of the page's own server.
    const repository = /^[\w.-]+\/[\w.-]+$/.test(name) && !name.startsWith(".") && !name.endsWith(".gguf");
    if (repository) {
        return {
            id: name,
            name: lastPart(name),
            base: `${root}/${name}/resolve/main/`,
            gguf: null,
            sha256: sums(sha256),
            query: "",
        };
    }
    let url;
    try {
        url = new URL(name, page);
    } catch {
        throw new InvalidInput(
            `\`${name}\` is no model: expected ${Object.keys(CATALOGUE).join(", ")}, owner/name of a hub repository, or an address`,
        );
    }
    if (!/[/.:]/.test(name)) {
        throw new InvalidInput(
            `there is no model \`${name}\`: expected ${Object.keys(CATALOGUE).join(", ")}, owner/name of a hub repository, or an address`,
        );
    }
    const { search } = url;
    // A repository's page is meant for people; its files are beside it.
    const tree = /^\/([\w.-]+\/[\w.-]+)(?:\/(?:tree|blob)\/([^/]+)(\/.*)?)?\/?$/.exec(url.pathname);
    if (url.origin === new URL(HUB).origin && tree) {
        url = new URL(`${root}/${tree[1]}/resolve/${tree[2] ?? "main"}${tree[3] ?? "/"}`);
    }
    const path = decodeURIComponent(url.pathname);
    const folder = path.endsWith(".gguf")
        ? new URL("./", url)
        : new URL(url.pathname.endsWith("/") ? url : `${url.origin}${url.pathname}/`);
    const gguf = path.endsWith(".gguf") ? lastPart(path) : null;
    folder.search = "";
    folder.hash = "";
    return {
        id: folder.href + (gguf ?? ""),
        name: gguf ?? lastPart(path),
        base: folder.href,
        gguf,
        sha256: sums(sha256, gguf),
        query: search,
    };
}

/** SHA-256 of files by path: given for each, or one for the file that matters. */
function sums(sha256, gguf) {
    if (sha256 === undefined) return {};
    const all = typeof sha256 === "string" ? { [gguf ?? "model.safetensors"]: sha256 } : sha256;
    for (const [path, sum] of Object.entries(all)) {
        if (!/^[0-9a-f]{64}$/i.test(sum))
            throw new InvalidInput(`sha256 of ${path}: expected 64 hexadecimal digits`);
    }
    return Object.fromEntries(Object.entries(all).map(([path, sum]) => [path, sum.toLowerCase()]));
}

/** All parts of a GGUF model by the name of one. */
export function parts(name) {
    const found = /^(.*-)(\d{5})-of-(\d{5})\.gguf$/.exec(name);
    if (!found) return [name];
    const count = Number(found[3]);
    return Array.from(
        { length: count },
        (_, i) => `${found[1]}${String(i + 1).padStart(5, "0")}-of-${found[3]}.gguf`,
    );
}

/**
 * A folder of files, whatever they come from, as far as finding out what they are goes.
 * @typedef {object} Files
 * @property {(path: string, optional?: boolean) => Promise<boolean>} want sees to a file; whether it is there
 * @property {(path: string) => Promise<string>} text
 */

/**
 * Sees to all files of a checkpoint folder and says what it is for.
 * @param {Files} files
 * @param {(config: string) => string} kindOf
 * @returns {Promise<"embedding" | "generation">}
 */
export async function gather(files, kindOf) {
    const json = async (path) => {
        try {
            return JSON.parse(await files.text(path));
        } catch (error) {
            if (!(error instanceof SyntaxError)) throw error;
            throw new UnsupportedModel(`${path}: ${error.message}: the file is damaged, or no model's`);
        }
    };
    let transformer = "";
    if (await files.want("modules.json", true)) {
        const modules = await json("modules.json");
        for (const [at, { path = "", type = "" }] of modules.entries()) {
            const kind = String(type).split(".").pop();
            if (at === 0) transformer = path && `${path}/`;
            else if (kind === "Pooling" || kind === "Dense") await files.want(`${path}/config.json`);
            if (kind === "Dense" && !(await files.want(`${path}/model.safetensors`, true))) {
                await files.want(`${path}/pytorch_model.bin`, true);
            }
        }
        await Promise.all(
            ["sentence_bert_config.json", "config_sentence_transformers.json"].map((path) =>
                files.want(path, true),
            ),
        );
        if (transformer) await files.want(`${transformer}sentence_bert_config.json`, true);
    }
    await files.want(`${transformer}config.json`);
    const kind = kindOf(await files.text(`${transformer}config.json`));
    const optional = ["tokenizer.json", "tokenizer_config.json"];
    if (kind === "generation") optional.push("generation_config.json", "chat_template.jinja");
    await Promise.all(optional.map((path) => files.want(transformer + path, true)));
    if (!(await files.want(`${transformer}model.safetensors`, true))) {
        const index = `${transformer}model.safetensors.index.json`;
        if (await files.want(index, true)) {
            const names = new Set(Object.values((await json(index)).weight_map ?? {}));
            for (const name of names) await files.want(transformer + name);
        }
    }
    return /** @type {"embedding" | "generation"} */ (kind);
}
