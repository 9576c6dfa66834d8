// What all that starts a Chromium has in common: where the tools are, and flags for a machine without display or network.

import { homedir } from "node:os";
import { join } from "node:path";

/** The folder of tests/setup's tools. */
export const TOOLS =
    process.env.INFERENCELAYER_TOOLS ??
    join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "inferencelayer/tools");

/** WebGPU on adapters that no browser offers by itself. */
export const WEBGPU = "--enable-unsafe-webgpu";

export const FLAGS = [
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];
