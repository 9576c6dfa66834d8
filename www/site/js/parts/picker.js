// The dialog in which a model is chosen.

import { cached, choices, fromFiles } from "../catalogue.js";
import { button, h, icon } from "../lib/dom.js";
import { bytes } from "../lib/format.js";
import { chooser } from "./drop.js";

const TITLES = { generation: "Choose a model that chats", embedding: "Choose a model that embeds" };

/** What is known about where a choice's files are. */
function place(choice, kept) {
    const entry = kept.get(choice.cacheId);
    if (entry?.complete) return ["here", "on this device"];
    if (entry?.bytes) return ["partly", `${bytes(entry.bytes)} on this device`];
    if (choice.origin === "local") return ["local", "on this server"];
    return ["hub", "downloads from the hub"];
}

export class Picker {
    /**
     * @param {any} slot
     * @param {(choice: import("../catalogue.js").Choice) => void} onChoose
     */
    constructor(slot, onChoose) {
        this.slot = slot;
        this.onChoose = onChoose;
        this.list = h("ul.models");
        const heading = `pick-${slot.kind}`;
        const take = (files) => this.take(fromFiles(files, slot.kind));
        const file =
            slot.kind === "generation"
                ? chooser({ text: "GGUF file…", icon: "file", accept: ".gguf", multiple: true, onFiles: take }, button)
                : [];
        this.dialog = h(
            "dialog.picker",
            {
                "aria-labelledby": heading,
                // A click on what is behind it.
                on: { click: (event) => event.target === this.dialog && this.dialog.close() },
            },
            h(
                "div.inside",
                {},
                h("div.row.between", {}, h("h2", { id: heading }, TITLES[slot.kind]), button({ label: "Close", icon: "close", onClick: () => this.dialog.close() })),
                this.list,
                h(
                    "div.row.own",
                    {},
                    h("p", {}, "Your own, which stays on this device:"),
                    ...file,
                    ...chooser({ text: "Checkpoint folder…", icon: "folder", folder: true, onFiles: take }, button),
                ),
            ),
        );
    }

    take(choice) {
        this.dialog.close();
        this.onChoose(choice);
    }

    async open() {
        this.list.replaceChildren(h("li.quietly", {}, "Looking for models"));
        this.dialog.showModal();
        const [all, kept] = await Promise.all([choices(), cached()]);
        const fitting = all.filter(({ kind }) => kind === this.slot.kind);
        this.list.replaceChildren(...fitting.map((choice) => this.#item(choice, kept)));
    }

    #item(choice, kept) {
        const [state, words] = place(choice, kept);
        const present = this.slot.choice?.id === choice.id;
        return h(
            "li",
            {},
            h(
                "button.model",
                { type: "button", "aria-current": present ? "true" : undefined, on: { click: () => this.take(choice) } },
                h("span.stack", {}, h("b", {}, choice.name), h("span.about", {}, choice.about)),
                h(
                    "span.particulars",
                    {},
                    h("span.size", {}, bytes(choice.bytes)),
                    h("span", {}, choice.licence ?? "licence: see its source"),
                    h("span.place", { dataset: { state } }, state === "here" ? icon("check") : null, words),
                ),
            ),
        );
    }
}
