// Files that are dropped on a view.

import { h } from "../lib/dom.js";

/** The files of a drop, those of dropped folders with their paths. @param {DataTransfer} transfer */
async function files(transfer) {
    const entries = Array.from(transfer.items, (item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (!entries.some((entry) => entry.isDirectory)) return Array.from(transfer.files);
    const found = [];
    const walk = async (entry) => {
        if (entry.isFile) {
            const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
            Object.defineProperty(file, "webkitRelativePath", { value: entry.fullPath.slice(1) });
            found.push(file);
            return;
        }
        const reader = entry.createReader();
        for (;;) {
            // They come in portions.
            const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
            if (!some.length) return;
            for (const inner of some) await walk(inner);
        }
    };
    for (const entry of entries) await walk(entry);
    return found;
}

/**
 * Lets files be dropped on a view; an overlay says so while they hover.
 * @param {HTMLElement} view
 * @param {string} what
 * @param {(files: File[]) => void} onFiles
 */
export function droppable(view, what, onFiles) {
    const overlay = h("div.drop", { "aria-hidden": "true" }, h("p", {}, what));
    let depth = 0;
    const has = (event) => event.dataTransfer?.types.includes("Files");
    const show = (on) => overlay.classList.toggle("shown", on);
    view.append(overlay);
    view.addEventListener("dragenter", (event) => {
        if (!has(event)) return;
        event.preventDefault();
        depth += 1;
        show(true);
    });
    view.addEventListener("dragover", (event) => has(event) && event.preventDefault());
    view.addEventListener("dragleave", (event) => {
        if (!has(event)) return;
        depth = Math.max(0, depth - 1);
        if (depth === 0) show(false);
    });
    view.addEventListener("drop", async (event) => {
        if (!has(event)) return;
        event.preventDefault();
        depth = 0;
        show(false);
        const dropped = await files(event.dataTransfer);
        if (dropped.length) onFiles(dropped);
    });
}

/**
 * A button that asks for files.
 * @param {{text: string, icon: any, accept?: string, multiple?: boolean, folder?: boolean, class?: string, onFiles: (files: File[]) => void}} about
 * @param {typeof import("../lib/dom.js").button} button
 */
export function chooser({ text, icon, accept, multiple, folder, class: className, onFiles }, button) {
    const input = h("input", {
        type: "file",
        accept,
        multiple,
        webkitdirectory: folder,
        hidden: true,
        tabindex: "-1",
        on: {
            change() {
                const files = Array.from(input.files);
                input.value = "";
                if (files.length) onFiles(files);
            },
        },
    });
    const opener = button({ text, icon, class: className, onClick: () => input.click() });
    return [opener, input];
}
