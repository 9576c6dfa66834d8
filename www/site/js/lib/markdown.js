// The little Markdown that models write: into elements, with text nodes for all text. A text that grows changes only
// the blocks that did.

import { button, h } from "./dom.js";
import { announce } from "./announce.js";

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^\s{0,3}(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^\s{0,3}>\s?(.*)$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;

/**
 * @typedef {object} Block
 * @property {"code" | "heading" | "list" | "quote" | "rule" | "paragraph"} type
 * @property {string} source
 * @property {string[]} lines
 * @property {string} [language]
 * @property {number} [level]
 */

/**
 * @param {string} text
 * @returns {Block[]}
 */
export function blocks(text) {
    /** @type {Block[]} */
    const found = [];
    const lines = text.replace(/\r\n?/g, "\n").split("\n");
    for (let at = 0; at < lines.length; ) {
        const start = at;
        const line = lines[at];
        const fence = FENCE.exec(line);
        const heading = HEADING.exec(line);
        /** @type {Omit<Block, "source"> | null} */
        let block = null;
        if (!line.trim()) {
            at += 1;
            continue;
        } else if (fence) {
            const inner = [];
            for (at += 1; at < lines.length && !lines[at].trimStart().startsWith(fence[1]); at++) inner.push(lines[at]);
            at += 1;
            block = { type: "code", lines: inner, language: fence[2] };
        } else if (heading) {
            at += 1;
            block = { type: "heading", level: heading[1].length, lines: [heading[2].replace(/\s+#+\s*$/, "")] };
        } else if (RULE.test(line)) {
            at += 1;
            block = { type: "rule", lines: [] };
        } else if (ITEM.test(line)) {
            const inner = [];
            while (at < lines.length && (ITEM.test(lines[at]) || (/^\s{2,}\S/.test(lines[at]) && !FENCE.test(lines[at])))) inner.push(lines[at++]);
            block = { type: "list", lines: inner };
        } else if (QUOTE.test(line)) {
            const inner = [];
            while (at < lines.length && QUOTE.test(lines[at])) inner.push(QUOTE.exec(lines[at++])[1]);
            block = { type: "quote", lines: inner };
        } else {
            const inner = [];
            const other = (next) => !next.trim() || [FENCE, HEADING, ITEM, QUOTE, RULE].some((kind) => kind.test(next));
            do inner.push(lines[at++]);
            while (at < lines.length && !other(lines[at]));
            block = { type: "paragraph", lines: inner };
        }
        found.push({ ...block, source: lines.slice(start, at).join("\n") });
    }
    return found;
}

/** The end of what `mark` opened at `from`, or -1. */
function closing(text, mark, from) {
    const end = text.indexOf(mark, from);
    return end > from && !/\s/.test(text[end - 1]) ? end : -1;
}

const word = (character) => character !== undefined && /[\p{L}\p{N}]/u.test(character);

/** Quotes in quotes, and marks in marks, that are followed. */
const DEPTH = 6;

/**
 * Text with code, bold, italics and links as nodes.
 * @param {string} text
 * @returns {Node[]}
 */
export function inline(text, depth = 0) {
    if (depth > DEPTH) return [document.createTextNode(text)];
    const nodes = [];
    let plain = "";
    const flush = () => {
        if (plain) nodes.push(document.createTextNode(plain));
        plain = "";
    };
    for (let at = 0; at < text.length; ) {
        const character = text[at];
        if (character === "\\" && /[\\`*_[\]#>-]/.test(text[at + 1] ?? "")) {
            plain += text[at + 1];
            at += 2;
            continue;
        }
        if (character === "`") {
            const mark = /^`+/.exec(text.slice(at, at + 8))[0];
            const end = text.indexOf(mark, at + mark.length);
            if (end > 0) {
                flush();
                nodes.push(h("code", {}, text.slice(at + mark.length, end)));
                at = end + mark.length;
                continue;
            }
            plain += mark;
            at += mark.length;
            continue;
        }
        if (character === "*" || (character === "_" && !word(text[at - 1]))) {
            const mark = text[at + 1] === character ? character + character : character;
            const inner = at + mark.length;
            const end = /\s/.test(text[inner] ?? " ") ? -1 : closing(text, mark, inner);
            if (end > 0 && !(character === "_" && word(text[end + mark.length]))) {
                flush();
                nodes.push(h(mark.length === 2 ? "strong" : "em", {}, ...inline(text.slice(inner, end), depth + 1)));
                at = end + mark.length;
                continue;
            }
            plain += mark;
            at += mark.length;
            continue;
        }
        if (character === "[") {
            // Bounded, so that a line of brackets does not take long.
            const link = /^\[([^[\]]{1,300})\]\((https?:\/\/[^\s()]{1,1000})\)/.exec(text.slice(at, at + 1320));
            if (link) {
                flush();
                nodes.push(h("a", { href: link[2], target: "_blank", rel: "noopener noreferrer nofollow" }, link[1]));
                at += link[0].length;
                continue;
            }
        }
        plain += character;
        at += 1;
    }
    flush();
    return nodes;
}

/** Lines with breaks where Markdown has hard ones. */
function flow(lines) {
    const nodes = [];
    lines.forEach((line, i) => {
        const hard = / {2,}$|\\$/.test(line) && i < lines.length - 1;
        nodes.push(...inline(line.replace(/( {2,}|\\)$/, "")));
        if (i < lines.length - 1) nodes.push(hard ? h("br") : document.createTextNode(" "));
    });
    return nodes;
}

function list(lines) {
    const root = h("ul");
    /** @type {{indent: number, element: any}[]} */
    const open = [];
    for (const line of lines) {
        const item = ITEM.exec(line);
        if (!item) {
            const last = open.at(-1)?.element.lastElementChild;
            if (last) last.append(" ", ...inline(line.trim()));
            continue;
        }
        const indent = item[1].length;
        const ordered = /\d/.test(item[2]);
        while (open.length > 1 && indent < open.at(-1).indent) open.pop();
        if (!open.length || indent > open.at(-1).indent + 1) {
            const element = h(ordered ? "ol" : "ul", ordered && parseInt(item[2]) !== 1 ? { start: parseInt(item[2]) } : {});
            (open.at(-1)?.element.lastElementChild ?? root).append(element);
            open.push({ indent, element });
        }
        open.at(-1).element.append(h("li", {}, ...inline(item[3])));
    }
    return root.childElementCount === 1 ? root.firstElementChild : root;
}

function code({ lines, language }) {
    const text = lines.join("\n");
    const copy = button({
        text: "Copy",
        icon: "copy",
        class: "quiet small",
        async onClick() {
            await navigator.clipboard.writeText(text);
            copy.lastElementChild.textContent = "Copied";
            announce("Copied");
            setTimeout(() => (copy.lastElementChild.textContent = "Copy"), 2000);
        },
    });
    const name = language || "text";
    return h(
        "div.code",
        {},
        h("div.code-top", {}, h("span", {}, name), copy),
        h("pre", { tabindex: "0", role: "group", "aria-label": `Code, ${name}` }, h("code", {}, text)),
    );
}

/** @param {Block} block */
function element(block, depth = 0) {
    switch (block.type) {
        case "code":
            return code(block);
        case "heading":
            // Below the page's own headings.
            return h(`h${Math.min(6, block.level + 2)}`, {}, ...inline(block.lines[0]));
        case "list":
            return list(block.lines);
        case "quote":
            if (depth > DEPTH) return h("p", {}, block.lines.join(" "));
            return h("blockquote", {}, ...blocks(block.lines.join("\n")).map((inner) => element(inner, depth + 1)));
        case "rule":
            return h("hr");
        default:
            return h("p", {}, ...flow(block.lines));
    }
}

/** An element that shows a text and follows it while it grows. */
export class Markdown {
    /** @type {string[]} */
    #sources = [];

    /** @param {HTMLElement} target */
    constructor(target) {
        this.target = target;
    }

    /** @param {string} text */
    show(text) {
        const all = blocks(text);
        let same = 0;
        while (same < all.length && this.#sources[same] === all[same].source) same += 1;
        while (this.target.children.length > same) this.target.lastElementChild.remove();
        this.target.append(...all.slice(same).map((block) => element(block)));
        this.#sources = all.map(({ source }) => source);
    }
}
