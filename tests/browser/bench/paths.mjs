// Where things are: the checkout, the tools' folder, the peers from npm.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { TOOLS } from "../chromium.mjs";

export { TOOLS };

export const BENCH = dirname(fileURLToPath(import.meta.url));
export const ROOT = join(BENCH, "../../..");

/** Peers, in the versions that were compared. */
export const PEERS = { "@huggingface/transformers": "4.3.2", "@wllama/wllama": "3.13.0" };

/**
 * The peers' `node_modules`, beside the tools and outside the checkout; what is missing is installed. Scripts are not
 * run: they would fetch native libraries, which no page needs.
 */
export function peers() {
    const folder = join(TOOLS, "bench-peers");
    const installed = (name) => {
        const path = join(folder, "node_modules", name, "package.json");
        return existsSync(path) && JSON.parse(readFileSync(path, "utf8")).version;
    };
    const missing = Object.entries(PEERS).filter(([name, version]) => installed(name) !== version);
    if (missing.length) {
        mkdirSync(folder, { recursive: true });
        const wanted = missing.map(([name, version]) => `${name}@${version}`);
        const quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
        execFileSync("npm", ["install", ...quiet, "--prefix", folder, ...wanted], { stdio: "inherit" });
    }
    return join(folder, "node_modules");
}
