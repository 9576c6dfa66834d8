// Search by meaning in the user's own texts.

import { fromFiles } from "../catalogue.js";
import { announce } from "../lib/announce.js";
import { button, h, setText } from "../lib/dom.js";
import { count, plural, rate, seconds } from "../lib/format.js";
import { slots } from "../models.js";
import { chooser, droppable } from "../parts/drop.js";
import { ModelBar } from "../parts/model-bar.js";
import { problem } from "../parts/problem.js";
import { index } from "./client.js";
import { embedAll } from "./embedding.js";
import { Result, stems } from "./result.js";

const DEBOUNCE = 180;
const PAGE = 20;
/** Results whose sentences are compared with the query, once it rests. */
const CLOSER = 5;
const WIDE = matchMedia("(min-width: 60rem)");
const SAMPLE = "samples/things-worth-knowing.txt";

export class SearchView {
    title = "Search";
    #slot = slots.embedding;
    /** @type {AbortController | null} */
    #embedding = null;
    #total = 0;
    #done = 0;
    /** @type {Float32Array | null} */
    #vector = null;
    #shown = 0;
    #query = new AbortController();
    #timer = 0;
    #pasted = 0;

    constructor() {
        this.bar = new ModelBar(this.#slot, { onChosen: () => void this.#forget() });
        this.input = h("input", {
            type: "search",
            id: "query",
            placeholder: "What are you looking for?",
            autocomplete: "off",
            on: { input: () => this.#later() },
        });
        this.status = h("p.status", { role: "status" });
        this.results = h("ol.results", { "aria-label": "Results" });
        this.more = button({ text: "Show more", class: "more", onClick: () => void this.#page() });
        this.more.hidden = true;
        this.problems = h("div.problems");
        this.element = h(
            "div.search",
            {},
            h("h1.sr", { tabindex: "-1" }, "Search"),
            this.bar.element,
            this.#library(),
            h(
                "section.found",
                { "aria-label": "Search by meaning" },
                h("div.query", {}, h("label", { for: "query" }, "Find by meaning"), this.input),
                this.status,
                this.problems,
                this.results,
                this.more,
            ),
        );
        droppable(this.element, "Drop text files to search in them", (files) => void this.#files(files));
        this.#documents();
    }

    /** The part with the documents. */
    #library() {
        this.paste = h("textarea", { id: "paste", rows: "4", placeholder: "Paste text here; empty lines separate paragraphs" });
        this.list = h("ul.documents");
        this.meter = h("progress", { "aria-label": "Paragraphs embedded", max: "1" });
        this.meterWords = h("span.words");
        this.halt = button({ text: "Pause", class: "quiet small", onClick: () => this.#pause() });
        this.embedding = h("div.embedding", { hidden: true }, this.meter, h("div.row.between", {}, this.meterWords, this.halt));
        this.exporter = button({ text: "Export", icon: "download", class: "quiet small", onClick: () => void this.#export() });
        this.clear = button({ text: "Remove all", icon: "trash", class: "quiet small", onClick: () => void this.#clear() });
        this.library = h(
            "details.library",
            { open: true },
            h("summary", {}, h("h2", {}, "Texts")),
            h("div.field", {}, h("label", { for: "paste" }, "Paste a text"), this.paste),
            h(
                "div.row",
                {},
                button({ text: "Add", class: "primary", onClick: () => void this.#addPasted() }),
                ...chooser({ text: "Files…", icon: "file", accept: ".txt,.md,.csv,.json,.html,.log,text/*", multiple: true, onFiles: (files) => void this.#files(files) }, button),
                button({ text: "Sample", class: "quiet", onClick: () => void this.#sample() }),
            ),
            this.embedding,
            this.list,
            h(
                "div.row",
                {},
                this.exporter,
                ...chooser({ text: "Import", icon: "upload", accept: ".json", class: "quiet small", onFiles: ([file]) => void this.#import(file) }, button),
                this.clear,
            ),
        );
        return this.library;
    }

    /** Runs something that the user asked for and shows what went wrong. */
    async #try(work, again) {
        this.problems.replaceChildren();
        try {
            return await work();
        } catch (error) {
            if (error.code === "Aborted" || this.#slot.error === error) return undefined;
            const own = error.code ? error : Object.assign(error, { code: "InvalidInput" });
            this.problems.replaceChildren(problem(own, { ...(again && { retry: again }), choose: () => void this.bar.picker.open() }));
            return undefined;
        }
    }

    async #add(what) {
        const added = await this.#try(() => index("add", what));
        if (!added) return;
        announce(`${added.name}: ${plural(added.paragraphs, "paragraph")}`);
        await this.#documents();
        void this.#embed();
    }

    async #addPasted() {
        const text = this.paste.value;
        if (!text.trim()) return this.paste.focus();
        this.paste.value = "";
        await this.#add({ name: `Pasted text ${++this.#pasted}`, text });
    }

    async #files(files) {
        const weights = files.filter(({ name }) => /\.(gguf|safetensors)$/.test(name));
        if (weights.length) return this.bar.choose(fromFiles(files, "embedding"));
        for (const file of files) await this.#add({ name: file.webkitRelativePath || file.name, file });
    }

    async #sample() {
        await this.#try(async () => {
            const response = await fetch(SAMPLE);
            if (!response.ok) throw new Error(`the sample is missing (${response.status})`);
            await this.#add({ name: "Things worth knowing", text: await response.text() });
        });
    }

    /** Shows the documents anew. */
    async #documents() {
        const { documents } = await index("documents");
        this.#total = documents.reduce((sum, { paragraphs }) => sum + paragraphs, 0);
        this.#done = documents.reduce((sum, { embedded }) => sum + embedded, 0);
        this.list.replaceChildren(
            ...documents.map(({ id, name, paragraphs }) =>
                h(
                    "li",
                    {},
                    h("span.stack", {}, h("b", {}, name), h("span.about", {}, plural(paragraphs, "paragraph"))),
                    button({ label: `Remove ${name}`, icon: "close", class: "icon small", onClick: () => void this.#remove(id, name) }),
                ),
            ),
        );
        this.exporter.disabled = this.clear.disabled = documents.length === 0;
        if (!this.#vector) this.#say();
    }

    async #remove(id, name) {
        await index("remove", id);
        announce(`${name} removed`);
        await this.#documents();
        this.list.querySelector("button")?.focus();
        await this.#rank();
    }

    async #clear() {
        this.#embedding?.abort();
        await index("clear");
        announce("All texts removed");
        await this.#documents();
        await this.#rank();
    }

    /** Vectors of another model are worth nothing. */
    async #forget() {
        this.#embedding?.abort();
        this.#vector = null;
        await index("forget");
        this.results.replaceChildren();
        this.more.hidden = true;
        await this.#documents();
        if (this.#total > 0) void this.#embed();
    }

    #pause() {
        if (this.#embedding) this.#embedding.abort();
        else void this.#embed();
    }

    async #embed() {
        if (this.#embedding) return;
        const running = new AbortController();
        this.#embedding = running;
        setText(this.halt.lastElementChild, "Pause");
        this.embedding.hidden = false;
        this.#progress(0);
        await this.#try(
            async () => {
                const model = await this.#slot.ready();
                await embedAll(model, {
                    signal: running.signal,
                    onBatch: (done, perSecond) => {
                        this.#done += done;
                        this.#progress(perSecond);
                    },
                });
            },
            () => void this.#embed(),
        );
        this.#embedding = null;
        await this.#documents();
        const all = this.#done >= this.#total;
        // Where there is little room, what was found needs it now.
        if (all && this.#total && !WIDE.matches && !this.library.contains(document.activeElement)) this.library.open = false;
        this.embedding.hidden = all;
        setText(this.halt.lastElementChild, "Go on");
        if (all && this.#total) announce(`${plural(this.#total, "paragraph")} ready to search`);
        if (this.input.value.trim()) await this.#ask();
        else this.#say();
    }

    #progress(perSecond) {
        this.meter.value = this.#total ? this.#done / this.#total : 0;
        const left = perSecond ? ` · ${rate(perSecond)}/s, ${seconds((this.#total - this.#done) / perSecond)} left` : "";
        setText(this.meterWords, `${count(this.#done)} of ${plural(this.#total, "paragraph")}${this.#done < this.#total ? left : ""}`);
    }

    #say(found) {
        if (found) setText(this.status, found);
        else if (this.#total === 0) setText(this.status, "Add a text, or take the sample. Then ask in your own words: what is meant counts, not the words.");
        else setText(this.status, `${plural(this.#total, "paragraph")} in ${plural(this.list.childElementCount, "text")}`);
    }

    #later() {
        clearTimeout(this.#timer);
        this.#query.abort();
        this.#timer = setTimeout(() => void this.#ask(), DEBOUNCE);
    }

    /** Embeds the query and shows what is nearest. */
    async #ask() {
        const text = this.input.value.trim();
        this.#query.abort();
        if (!text || this.#total === 0) {
            this.#vector = null;
            this.results.replaceChildren();
            this.more.hidden = true;
            return this.#say();
        }
        const query = new AbortController();
        this.#query = query;
        await this.#try(
            async () => {
                const model = await this.#slot.ready();
                const started = performance.now();
                const [vector] = await model.embed([text], { signal: query.signal });
                if (query.signal.aborted) return;
                this.#vector = vector;
                this.#took = performance.now() - started;
                const results = await this.#rank();
                if (!query.signal.aborted) await this.#closer(model, vector, results.slice(0, CLOSER), query.signal);
            },
            () => void this.#ask(),
        );
    }

    #took = 0;

    /** Shows the first results for the present query. */
    async #rank() {
        this.results.replaceChildren();
        this.#shown = 0;
        return this.#vector ? this.#page() : [];
    }

    async #page() {
        const vector = this.#vector;
        const started = performance.now();
        const { results, total } = await index("rank", { vector, from: this.#shown, most: PAGE });
        if (vector !== this.#vector) return [];
        const beginnings = stems(this.input.value);
        const views = results.map((result) => new Result(result, beginnings));
        const first = this.#shown === 0;
        this.results.append(...views.map(({ element }) => element));
        this.#shown += results.length;
        this.more.hidden = this.#shown >= total;
        const took = this.#took + performance.now() - started;
        if (first) this.#say(`${count(this.#shown)} nearest of ${plural(total, "paragraph")} · ${Math.max(1, Math.round(took))} ms`);
        else views[0]?.element.querySelector("p").scrollIntoView({ block: "nearest" });
        return views;
    }

    /** Finds the sentence of each result that fits the query best, if that does not take long. */
    async #closer(model, vector, results, signal) {
        const sets = results.filter((result) => result.sentences.length > 1 && result.sentences.length < 12);
        const all = sets.flatMap((result) => result.sentences);
        if (!all.length || all.length * this.#took > 1500) return;
        const vectors = await model.embed(all, { signal });
        let at = 0;
        for (const result of sets) {
            const scores = result.sentences.map(() => vectors[at++].reduce((sum, value, i) => sum + value * vector[i], 0));
            result.best(scores.indexOf(Math.max(...scores)));
        }
    }

    async #export() {
        const blob = await this.#try(() => index("write"));
        if (!blob) return;
        const address = URL.createObjectURL(blob);
        h("a", { href: address, download: "index.json" }).click();
        setTimeout(() => URL.revokeObjectURL(address), 10_000);
    }

    async #import(file) {
        this.#embedding?.abort();
        const read = await this.#try(() => index("read", file));
        if (!read) return;
        announce("Index imported");
        await this.#documents();
        await this.#try(async () => {
            const name = this.#slot.model?.info.name ?? this.#slot.choice?.name;
            const made = read.model;
            const model = await this.#slot.ready();
            if (made && made !== model.info.name) {
                // They cannot be compared with this model's.
                await index("forget");
                announce(`The vectors were made by ${made}; ${name} makes them anew`);
            }
        });
        void this.#embed();
    }

    shown() {}
}
