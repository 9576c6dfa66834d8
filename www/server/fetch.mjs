// The default models, by the hub code of the Rust crate; what was fetched is linked into the model folder.

import { spawn } from "node:child_process";
import { lstat, mkdir, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
export const DEFAULT_MODELS = ["minilm", "smollm2-135m"];

/** Where models are looked for if nobody says. */
export const folderOfModels = () => join(ROOT, ".models");

/**
 * Runs a command with its messages shown and returns its output.
 * @param {string} command
 * @param {string[]} args
 * @returns {Promise<string>}
 */
export function output(command, args) {
    return new Promise((resolve, reject) => {
        const child = spawn(command, args, { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] });
        let text = "";
        child.stdout.setEncoding("utf8").on("data", (piece) => (text += piece));
        child.on("error", (error) => reject(new Error(`${command} could not be started: ${error.message}`)));
        child.on("close", (status) => {
            if (status === 0) resolve(text);
            else reject(new Error(`${[command, ...args].join(" ")} failed with status ${status}`));
        });
    });
}

/**
 * Fetches the default models, unless the folder has them.
 * @param {string} folder
 */
export async function fetchModels(folder) {
    await mkdir(folder, { recursive: true });
    const missing = [];
    for (const name of DEFAULT_MODELS) if (!(await exists(join(folder, name)))) missing.push(name);
    if (missing.length === 0) return;
    console.log(`fetching ${missing.join(", ")}`);
    const cargo = ["run", "--quiet", "--release", "--bin", "fetch-model", "--", ...missing];
    const places = (await output("cargo", cargo)).trim().split("\n");
    if (places.length !== missing.length) throw new Error("fetch-model did not name a folder for each model");
    for (const [at, name] of missing.entries()) {
        const link = join(folder, name);
        // A link to a folder that is gone.
        await rm(link, { force: true });
        // Windows lets anybody make junctions, but not links.
        await symlink(places[at], link, "junction");
    }
}

async function exists(path) {
    // A link is followed: it may be dangling.
    const found = await lstat(join(path, ".")).catch(() => null);
    return found !== null;
}
