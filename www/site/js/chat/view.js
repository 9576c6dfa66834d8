// The chat.

import { fromFiles } from "../catalogue.js";
import { announce } from "../lib/announce.js";
import { button, h, setText } from "../lib/dom.js";
import { settings } from "../lib/settings.js";
import { slots } from "../models.js";
import { droppable } from "../parts/drop.js";
import { ModelBar } from "../parts/model-bar.js";
import { problem } from "../parts/problem.js";
import { answer } from "./answer.js";
import { contextWords, MessageView } from "./message.js";
import { generation, settingsPanel } from "./settings.js";

const SUGGESTIONS = ["Explain why the sky is blue in two sentences.", "Write a haiku about rain.", "List five uses for an old newspaper."];
/** Distance from the end, in pixels, at which the log still follows what is written. */
const NEAR = 80;

export class ChatView {
    title = "Chat";
    /** @type {{role: "user" | "assistant", content: string, view: MessageView}[]} */
    #messages = [];
    /** @type {AbortController | null} */
    #running = null;
    #slot = slots.generation;
    #used = 0;
    #atEnd = true;

    constructor() {
        this.bar = new ModelBar(this.#slot);
        this.greeting = this.#greeting();
        this.log = h("div.log", { role: "log", "aria-label": "Conversation", "aria-live": "off", tabindex: "0" }, this.greeting);
        this.log.addEventListener("scroll", () => {
            this.#atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR;
        });
        this.problems = h("div.problems");
        this.input = h("textarea", {
            id: "message",
            rows: "1",
            placeholder: "Write a message",
            "aria-describedby": "keys",
            enterkeyhint: "send",
            on: { keydown: (event) => this.#key(event), input: () => this.#fit() },
        });
        this.send = h("button.primary.send", { type: "submit" });
        this.sendText = h("span", {}, "Send");
        this.send.append(this.sendText);
        this.stop = button({ text: "Stop", icon: "stop", class: "stop", onClick: () => this.#stop() });
        this.again = button({ text: "Regenerate", icon: "again", class: "quiet", onClick: () => void this.#regenerate() });
        this.clear = button({ text: "Clear", icon: "trash", class: "quiet", onClick: () => this.#clear() });
        this.context = h("meter", { min: "0", "aria-label": "Context used" });
        this.contextWords = h("span.words");
        this.composer = h(
            "form.composer",
            { "aria-label": "Your message", on: { submit: (event) => (event.preventDefault(), void this.#submit()) } },
            h("label.sr", { for: "message" }, "Message"),
            this.input,
            this.send,
            this.stop,
        );
        this.element = h(
            "div.chat",
            {},
            h("h1.sr", { tabindex: "-1" }, "Chat"),
            this.bar.element,
            h("div.talk", {}, this.log, this.problems, this.composer, this.#foot()),
            h("aside", { "aria-label": "Settings of the chat" }, settingsPanel()),
        );
        droppable(this.element, "Drop a GGUF file to chat with it", (files) => {
            // Loading starts at once; where the files are wrong, the bar says so.
            void this.bar.choose(fromFiles(files, "generation"));
        });
        document.addEventListener("keydown", (event) => {
            if (event.key === "Escape" && this.#running && !event.defaultPrevented && !document.querySelector("dialog[open]")) this.#stop();
        });
        this.#slot.addEventListener("change", () => this.#state());
        this.#state();
    }

    #greeting() {
        const ask = (text) => {
            this.input.value = text;
            void this.#submit();
        };
        return h(
            "section.greeting",
            {},
            h("h2", {}, "A model of your own, in this tab"),
            h("p", {}, "It runs on this device. What you write and what it answers go nowhere."),
            h("div.suggestions", {}, ...SUGGESTIONS.map((text) => button({ text, class: "suggestion", onClick: () => ask(text) }))),
        );
    }

    #foot() {
        return h(
            "div.foot",
            {},
            h("div.row", {}, this.again, this.clear),
            h("div.row.context", {}, this.contextWords, this.context),
            h("p.hint", { id: "keys" }, "Enter sends, Shift and Enter makes a new line, Escape stops."),
        );
    }

    #state() {
        const running = this.#running !== null;
        const has = this.#messages.length > 0;
        this.send.hidden = running;
        this.stop.hidden = !running;
        this.again.disabled = running || !this.#messages.some(({ role }) => role === "user");
        this.clear.disabled = running || !has;
        const context = this.#slot.model?.info.context;
        this.context.hidden = !context || !has;
        if (context) {
            this.context.max = context;
            this.context.high = context * 0.8;
            this.context.value = this.#used;
        }
        setText(this.contextWords, has ? contextWords(this.#used, context) : "");
    }

    #key(event) {
        // While a word is being composed, Enter belongs to the input method.
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        if (!this.#running) void this.#submit();
    }

    /** The input grows with its text where CSS alone cannot do that. */
    #fit() {
        if (CSS.supports("field-sizing", "content")) return;
        this.input.style.height = "auto";
        this.input.style.height = `${this.input.scrollHeight}px`;
    }

    async #submit() {
        const content = this.input.value.trim();
        if (!content || this.#running) return;
        this.input.value = "";
        this.#fit();
        this.#add("user", content);
        await this.#answer();
    }

    #add(role, content) {
        this.greeting.remove();
        const view = new MessageView(role, role === "user" ? "You" : (this.#slot.choice?.name ?? "Model"));
        view.show(content);
        const message = { role, content, view };
        this.#messages.push(message);
        this.log.append(view.element);
        this.#atEnd = true;
        this.#follow();
        return message;
    }

    /** Keeps the end in sight, unless the user scrolled away from it. */
    #follow() {
        if (this.#atEnd) this.log.scrollTop = this.log.scrollHeight;
    }

    async #answer() {
        const running = new AbortController();
        this.#running = running;
        this.problems.replaceChildren();
        const system = settings.system.trim();
        const messages = this.#messages.map(({ role, content }) => ({ role, content }));
        if (system) messages.unshift({ role: "system", content: system });
        const reply = this.#add("assistant", "");
        const { view } = reply;
        view.busy(true);
        this.#state();
        // Stopping while the model loads ends the loading.
        running.signal.addEventListener("abort", () => this.#slot.cancel());
        try {
            view.wait("Waiting for the model");
            const model = await this.#slot.ready();
            view.name(this.#slot.choice.name);
            view.wait("Reading the conversation");
            const options = { ...generation(), signal: running.signal };
            const outcome = await answer(model, messages, options, view, () => this.#follow());
            reply.content = outcome.text;
            this.#used = outcome.usage ? outcome.usage.totalTokens : this.#used + outcome.tokens;
            // Stopped before anything came: there is nothing to keep.
            if (!outcome.text) this.#drop(reply);
        } catch (error) {
            if (reply.view.text) reply.content = reply.view.text;
            else this.#drop(reply);
            if (error.code !== "Aborted" && this.#slot.error !== error) this.#fail(error);
        } finally {
            view.busy(false);
            this.#running = null;
            this.#state();
        }
    }

    #drop(message) {
        message.view.element.remove();
        this.#messages = this.#messages.filter((other) => other !== message);
    }

    #fail(error) {
        const handlers = {
            retry: () => void this.#regenerate(),
            choose: () => void this.bar.picker.open(),
            clear: () => this.#clear(),
        };
        this.problems.replaceChildren(problem(error, handlers));
    }

    #stop() {
        this.#running?.abort();
        announce("Stopping");
        this.input.focus();
    }

    async #regenerate() {
        if (this.#running) return;
        // The button rests while the answer is written.
        this.input.focus();
        const last = this.#messages.at(-1);
        if (last?.role === "assistant") this.#drop(last);
        if (this.#messages.at(-1)?.role === "user") await this.#answer();
    }

    #clear() {
        this.#messages = [];
        this.#used = 0;
        this.problems.replaceChildren();
        this.log.replaceChildren(this.greeting);
        this.#state();
        announce("The conversation is empty");
        this.input.focus();
    }

    shown() {
        this.#state();
    }
}
