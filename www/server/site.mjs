// The files that make the site: those of site/, the package's under package/, and the list that its service worker
// keeps.

import { createHash } from "node:crypto";
import { cp, mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { output } from "./fetch.mjs";

const SITE = join(dirname(fileURLToPath(import.meta.url)), "../site");
/** What the site needs of the package. */
const PACKAGE = ["index.js", "worker.js"];
/** Shown by developer tools alone, or for people. */
const NOT_KEPT = /\.(map|d\.ts)$|(^|\/)LICENSE$/;
/** Answered by the service worker itself, or never kept by it. */
const OWN = new Set(["sw.js", "precache.js"]);

/**
 * The folder of the built package, building it if it is missing.
 * @param {string} root
 */
export async function buildPackage(root) {
    const dist = join(root, "web/dist");
    if (!(await stat(join(dist, "index.js")).catch(() => null))) {
        console.log("building the package (web/build); this takes some minutes");
        process.stdout.write(
            await output(join(root, "web/build"), []).catch((error) => {
                throw new Error(`${error.message}; tests/setup installs the tools that it needs`);
            }),
        );
    }
    return dist;
}

async function* files(folder, below = "") {
    for (const entry of await readdir(join(folder, below), { withFileTypes: true })) {
        const path = below + entry.name;
        if (entry.isDirectory()) yield* files(folder, `${path}/`);
        else if (!entry.name.startsWith(".")) yield path;
    }
}

export class Site {
    /** Files by their path in the site. @type {Map<string, string>} */
    #files = new Map();

    /**
     * @param {string} packed folder of the built package
     */
    static async open(packed) {
        for (const name of PACKAGE) {
            if (!(await stat(join(packed, name)).catch(() => null))) throw new Error(`${packed}: there is no ${name}: not the built package`);
        }
        const site = new Site();
        for await (const path of files(SITE)) site.#files.set(path, join(SITE, path));
        for await (const path of files(packed)) site.#files.set(`package/${path}`, join(packed, path));
        return site;
    }

    get paths() {
        return [...this.#files.keys()];
    }

    /** A file's place, or nothing. */
    file(path) {
        return this.#files.get(path);
    }

    /** What the service worker keeps: paths with hashes, and a version that changes with any of them. */
    async precache() {
        const kept = [];
        for (const path of this.paths.sort()) {
            if (OWN.has(path) || NOT_KEPT.test(path)) continue;
            const hash = createHash("sha256").update(await readFile(this.#files.get(path))).digest("hex").slice(0, 16);
            kept.push([path, hash]);
        }
        const version = createHash("sha256").update(JSON.stringify(kept)).digest("hex").slice(0, 12);
        return Buffer.from(`self.PRECACHE = ${JSON.stringify({ version, files: kept }, null, 1)};\n`);
    }
}

/**
 * Writes the site for static web servers. Models can be put beside it, with their manifest; without one it takes
 * those of the package's catalogue.
 * @param {Site} site
 * @param {string} folder
 */
export async function exportSite(site, folder) {
    for (const path of site.paths) {
        await mkdir(dirname(join(folder, path)), { recursive: true });
        await cp(site.file(path), join(folder, path));
    }
    await writeFile(join(folder, "precache.js"), await site.precache());
    await mkdir(join(folder, "models"), { recursive: true });
    await writeFile(join(folder, "models/manifest.json"), JSON.stringify({ models: [] }));
}
