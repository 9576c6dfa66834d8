// The site's modules that need no page: splitting, the index, Markdown's blocks, numbers, errors.

import assert from "node:assert/strict";
import { test } from "node:test";

import { bytes, binary, milliseconds, seconds } from "../../../www/site/js/lib/format.js";
import { explain } from "../../../www/site/js/errors.js";
import { Index } from "../../../www/site/js/search/index.js";
import { sentences, split } from "../../../www/site/js/search/split.js";
import { blocks } from "../../../www/site/js/lib/markdown.js";

test("texts are split at empty lines", () => {
    const a = "A first paragraph that is long enough to stand for itself, with\na line break in it.";
    const b = "A second paragraph, which is also long enough to be one of its own, I think.";
    assert.deepEqual(split(`${a}\r\n\r\n  \n${b}\n`), [a.replace("\n", " "), b]);
    assert.deepEqual(split(`Title\n\n${a}`), [`Title ${a.replace("\n", " ")}`]);
    assert.deepEqual(split("short"), ["short"]);
    assert.deepEqual(split(" \n\n \t"), []);
});

test("long paragraphs are cut between sentences, overlap, and lose nothing", () => {
    const all = Array.from({ length: 60 }, (_, i) => `This is sentence number ${i} of a long paragraph.`);
    const parts = split(all.join(" "));
    assert.ok(parts.length > 3);
    for (const part of parts) assert.ok(part.length <= 960, `${part.length}`);
    for (const sentence of all) assert.ok(parts.some((part) => part.includes(sentence)), sentence);
    for (let i = 1; i < parts.length; i++) {
        const words = parts[i].split(" ").slice(0, 4).join(" ");
        assert.ok(parts[i - 1].includes(words), `${words} overlaps`);
    }
});

test("text without sentences or spaces is split too", () => {
    const long = "x".repeat(5000);
    assert.equal(split(long).join("").replace(/x/g, "").length, 0);
    assert.ok(split(long).every((part) => part.length <= 960));
    assert.ok(split(long).reduce((sum, part) => sum + part.length, 0) >= 5000);
    assert.deepEqual(sentences("One. Two? Three"), ["One. ", "Two? ", "Three"]);
});

const vector = (...values) => Float32Array.from(values);

function filled() {
    const index = new Index();
    const long = (word) => `${word} ${"and some words more that make this a paragraph of its own ".repeat(2)}`;
    index.add("a", `${long("one")}\n\n${long("two")}`);
    index.add("b", long("three"));
    const pending = index.pending(10);
    index.put(pending.map(({ id }) => id), vector(1, 0, 0, 1, 0.6, 0.8), 2, "model");
    return index;
}

test("the index ranks by likeness and pages through the order", () => {
    const index = filled();
    const { results, total } = index.rank(vector(0, 1), 0, 2);
    assert.equal(total, 3);
    assert.deepEqual(results.map(({ text, score, document }) => [text.split(" ")[0], +score.toFixed(3), document]), [["two", 1, "a"], ["three", 0.8, "b"]]);
    assert.deepEqual(index.rank(vector(0, 1), 2, 2).results.map(({ text }) => text.split(" ")[0]), ["one"]);
    assert.equal(index.rank(vector(0, 1, 0), 0, 2).total, 0, "vectors of another length are no likeness");
    const first = index.documents().documents[0].id;
    index.remove(first);
    assert.equal(index.rank(vector(0, 1), 0, 9).total, 1);
    index.forget();
    assert.equal(index.pending(9).length, 1);
});

test("vectors of removed paragraphs are passed over", () => {
    const index = new Index();
    const { id } = index.add("a", "a text");
    const [pending] = index.pending(1);
    index.remove(id);
    index.put([pending.id], vector(1, 0), 2, "model");
    assert.equal(index.rank(vector(1, 0), 0, 9).total, 0);
});

test("an index that was written can be read", () => {
    const written = [...filled().write()].join("");
    JSON.parse(written);
    const other = new Index();
    const { documents, model } = other.read(written);
    assert.equal(model, "model");
    assert.deepEqual(documents.map(({ name, paragraphs, embedded }) => [name, paragraphs, embedded]), [["a", 2, 2], ["b", 1, 1]]);
    assert.deepEqual(other.rank(vector(0, 1), 0, 1).results[0].score, 1);
});

test("files that are no index are refused, and change nothing", () => {
    const index = filled();
    for (const text of ["", "{}", "[1]", '{"format":"inferencelayer-index","version":2,"documents":[]}', '{"format":"inferencelayer-index","version":1,"documents":[{"name":1}]}', '{"format":"inferencelayer-index","version":1,"documents":[{"name":"a","paragraphs":[{"text":"x","vector":"AAA="}]}]}']) {
        assert.throws(() => index.read(text), Error, text);
    }
    assert.equal(index.rank(vector(0, 1), 0, 9).total, 3);
});

test("an empty text is an error that names it", () => {
    assert.throws(() => new Index().add("empty.txt", " \n "), /empty\.txt: there is no text/);
});

const shapes = (text) => blocks(text).map(({ type, lines }) => [type, lines.length]);

test("Markdown's blocks", () => {
    assert.deepEqual(shapes("# Title\ntext\nmore\n\n- a\n- b\n  c\n\n1. x\n\n> quote\n\n---\n\n```js\nx\n\ny\n```\nend"), [
        ["heading", 1],
        ["paragraph", 2],
        ["list", 3],
        ["list", 1],
        ["quote", 1],
        ["rule", 0],
        ["code", 3],
        ["paragraph", 1],
    ]);
    assert.deepEqual(shapes("```\nnot closed\n# yet"), [["code", 2]]);
    assert.deepEqual(shapes(""), []);
});

test("a text that grows changes only its last block", () => {
    const text = "# Title\n\nA paragraph with **bold**.\n\n- a\n- b\n\n```\ncode\n```\n\nThe end of it.";
    let before = [];
    for (let end = 1; end <= text.length; end++) {
        const now = blocks(text.slice(0, end)).map(({ source }) => source);
        const same = before.findIndex((source, i) => source !== now[i]);
        assert.ok(same === -1 || same >= before.length - 2, text.slice(0, end));
        before = now;
    }
});

test("numbers for people", () => {
    assert.deepEqual([0, 999, 1234, 98_362_432, 1_834_000_000].map(bytes), ["0 B", "999 B", "1.2 kB", "98.4 MB", "1.8 GB"]);
    assert.deepEqual([134217728, 2147483644, 65536].map(binary), ["128 MiB", "2.00 GiB", "64 KiB"]);
    assert.deepEqual([0.4, 31.4, 1500].map(milliseconds), ["0.4 ms", "31 ms", "1.50 s"]);
    assert.deepEqual([0.2, 90, 7300, Infinity].map(seconds), ["1 s", "2 min", "2 h 2 min", ""]);
});

test("every error has words and something to do", () => {
    for (const code of ["NoWebGpu", "OutOfMemory", "DeviceLost", "DownloadFailed", "QuotaExceeded", "UnsupportedModel", "InvalidInput", "InferenceError"]) {
        const { title, advice, actions, detail } = explain({ code, message: "why", missing: 5_000_000 });
        assert.ok(title && advice && actions.length && detail === "why", code);
    }
    assert.match(explain({ code: "QuotaExceeded", message: "", missing: 120_000_000 }).advice, /120 MB are missing/);
});
