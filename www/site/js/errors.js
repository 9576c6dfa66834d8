// The package's errors in words for people, with what can be done about each.

import { bytes } from "./lib/format.js";

/**
 * @typedef {"retry" | "choose" | "cpu" | "devices" | "unkept" | "clear"} Action
 * what the page offers: try again, choose another model, use the CPU, see the devices and the storage, load without
 * keeping the files, begin a new conversation
 */

/** @type {Record<string, (error: any) => {title: string, advice: string, actions: Action[]}>} */
const KINDS = {
    NoWebGpu: () => ({
        title: "No usable GPU",
        advice: "This browser gives the page no GPU that computes right. Models run on the CPU too, slower; Devices says what is missing.",
        actions: ["cpu", "devices"],
    }),
    OutOfMemory: () => ({
        title: "Not enough memory",
        advice: "The model does not fit. Choose a smaller one, or close other tabs and programs that use the GPU.",
        actions: ["choose", "retry"],
    }),
    DeviceLost: () => ({
        title: "The GPU was taken away",
        advice: "The driver restarted, or the system needed the GPU. Trying again starts it anew.",
        actions: ["retry", "devices"],
    }),
    DownloadFailed: ({ status }) => ({
        title: "The download failed",
        advice:
            status === 404
                ? "The server does not have this file. Choose another model, or a file from this device."
                : "What arrived is kept: trying again goes on from there. Without a network, choose a model that is on this device.",
        actions: ["retry", "choose"],
    }),
    QuotaExceeded: ({ missing }) => ({
        title: "Not enough storage",
        advice: `The browser grants this site too little: ${bytes(missing ?? 0)} are missing. Delete models that you do not need, or load this one without keeping it.`,
        actions: ["devices", "unkept"],
    }),
    UnsupportedModel: () => ({
        title: "This model cannot be used here",
        advice: "Its files are damaged, or it is of a kind that does not run here. Choose another one.",
        actions: ["choose"],
    }),
    InvalidInput: () => ({
        title: "That cannot be done",
        advice: "Change what was asked for and try again; a new conversation is short again.",
        actions: ["retry", "clear"],
    }),
};

/** @param {any} error */
export function explain(error) {
    const kind = KINDS[error?.code];
    const known = kind?.(error) ?? {
        title: "Something went wrong",
        advice: "This should not have happened. Trying again may help.",
        actions: /** @type {Action[]} */ (["retry", "choose"]),
    };
    return { ...known, detail: String(error?.message ?? error), code: error?.code ?? error?.name ?? "Error" };
}
