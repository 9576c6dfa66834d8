// One message of the conversation on the page.

import { announce } from "../lib/announce.js";
import { button, h, setText } from "../lib/dom.js";
import { count, milliseconds, plural, rate } from "../lib/format.js";
import { Markdown } from "../lib/markdown.js";

export class MessageView {
    /**
     * @param {"user" | "assistant"} role
     * @param {string} name who says it
     */
    constructor(role, name) {
        this.text = "";
        this.body = h("div.body");
        this.stats = h("span.stats");
        this.copy = button({ label: "Copy the message", icon: "copy", class: "icon small", onClick: () => void this.#copy() });
        this.foot = h("footer", {}, this.copy, this.stats);
        this.who = h("h2.who");
        this.element = h(`article.message.${role}`, {}, this.who, this.body, this.foot);
        this.name(name);
        if (role === "assistant") this.markdown = new Markdown(this.body);
    }

    /** @param {string} name who says it */
    name(name) {
        setText(this.who, name);
        this.element.setAttribute("aria-label", name);
    }

    async #copy() {
        await navigator.clipboard.writeText(this.text);
        announce("Copied");
        this.copy.classList.add("done");
        setTimeout(() => this.copy.classList.remove("done"), 1500);
    }

    /** @param {string} text all of it */
    show(text) {
        this.text = text;
        if (this.markdown) this.markdown.show(text);
        else setText(this.body, text);
    }

    /** @param {boolean} on whether it still grows */
    busy(on) {
        this.element.classList.toggle("busy", on);
        this.element.setAttribute("aria-busy", String(on));
    }

    /** What the model does before it writes. */
    wait(words) {
        setText(this.stats, words);
    }

    /**
     * @param {{tokens: number, tokensPerSecond: number, firstTokenMs: number, end?: string}} stats
     */
    tell({ tokens, tokensPerSecond, firstTokenMs, end }) {
        const parts = [plural(tokens, "token")];
        if (tokensPerSecond > 0) parts.unshift(`${rate(tokensPerSecond)} tokens/s`);
        if (firstTokenMs > 0) parts.push(`first after ${milliseconds(firstTokenMs)}`);
        if (end) parts.push(end);
        setText(this.stats, parts.join(" · "));
    }
}

/** Words about a context that fills. */
export function contextWords(used, context) {
    return context ? `${count(used)} of ${count(context)} tokens of context` : "";
}
