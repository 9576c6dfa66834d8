// One result: its text with the query's words marked, the sentence that fits best, and its score.

import { h } from "../lib/dom.js";
import { sentences } from "./split.js";

/** Words that say nothing about what is meant. */
const COMMON = new Set(
    "the a an and or of to in is are was were be been for on with as at by it its this that from not what which who how why when where do does did can could will would you your i we they he she his her their has have had but if about into than then there".split(" "),
);

/** The query's words as they are looked for in texts: their beginnings, so that other forms are found too. */
export function stems(query) {
    const words = query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
    return words.filter((word) => word.length > 2 && !COMMON.has(word)).map((word) => (word.length > 5 ? word.slice(0, Math.max(4, word.length - 3)) : word));
}

/**
 * A text with words marked that begin with one of the stems.
 * @returns {Node[]}
 */
export function marked(text, beginnings) {
    const nodes = [];
    let plain = 0;
    if (beginnings.length) {
        for (const { 0: word, index } of text.matchAll(/[\p{L}\p{N}]+/gu)) {
            if (!beginnings.some((stem) => word.toLowerCase().startsWith(stem))) continue;
            if (index > plain) nodes.push(document.createTextNode(text.slice(plain, index)));
            nodes.push(h("mark", {}, word));
            plain = index + word.length;
        }
    }
    if (plain < text.length) nodes.push(document.createTextNode(text.slice(plain)));
    return nodes;
}

export class Result {
    constructor({ score, text, document: name, at }, beginnings) {
        this.text = text;
        this.sentences = sentences(text);
        this.beginnings = beginnings;
        this.body = h("p", {}, ...marked(text, beginnings));
        const shown = Math.max(0, Math.min(1, score));
        this.element = h(
            "li.result",
            {},
            h(
                "div.score",
                {},
                h("span.number", {}, h("span.sr", {}, "Score "), score.toFixed(2)),
                h("meter", { min: "0", max: "1", value: undefined, "aria-hidden": "true" }),
            ),
            h("div", {}, this.body, h("p.source", {}, `${name} · paragraph ${at + 1}`)),
        );
        this.element.querySelector("meter").value = shown;
    }

    /** Sets off the sentence that fits best. */
    best(at) {
        this.body.replaceChildren(
            ...this.sentences.flatMap((sentence, i) =>
                i === at ? [h("span.best", {}, ...marked(sentence.trim(), this.beginnings)), " "] : marked(sentence, this.beginnings),
            ),
        );
    }
}
