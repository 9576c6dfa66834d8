// Runs one answer: parts from the model into a view, at most once a frame.

import { Narrator } from "../lib/announce.js";

/**
 * @typedef {object} Outcome
 * @property {string} text
 * @property {number} tokens
 * @property {any} [usage]
 * @property {"stop" | "length" | "stopped"} end
 */

const NAMES = { system: "Instructions", user: "User", assistant: "Assistant" };

/** The parts of an answer. Models that were not made for chats have no template: they go on with a transcript. */
function parts(model, messages, options) {
    if (model.info.chat !== false) return model.chat(messages, options);
    const lines = messages.map(({ role, content }) => `${NAMES[role]}: ${content}\n`);
    return model.generate(`${lines.join("")}Assistant:`, { ...options, stop: ["\nUser:"] });
}

/**
 * @param {any} model
 * @param {{role: string, content: string}[]} messages
 * @param {any} options for the package, with `signal`
 * @param {import("./message.js").MessageView} view
 * @param {() => void} onShown after the view changed
 * @returns {Promise<Outcome>} of an aborted answer, what came until then
 */
export async function answer(model, messages, options, view, onShown) {
    const narrator = new Narrator();
    const started = performance.now();
    let first = 0;
    let text = "";
    let tokens = 0;
    let usage;
    let end = /** @type {Outcome["end"]} */ ("stop");
    let frame = 0;
    const stats = () => {
        const seconds = (performance.now() - first) / 1000;
        view.tell({ tokens, tokensPerSecond: seconds > 0.2 ? (tokens - 1) / seconds : 0, firstTokenMs: first - started });
    };
    const show = () => {
        frame = 0;
        view.show(text);
        stats();
        narrator.grow(text);
        onShown();
    };
    try {
        for await (const part of parts(model, messages, options)) {
            first ||= performance.now();
            text += part.text;
            tokens += part.tokens.length;
            if (part.usage) {
                usage = part.usage;
                end = part.finishReason ?? end;
            }
            frame ||= requestAnimationFrame(show);
        }
    } catch (error) {
        if (error.code !== "Aborted") throw error;
        end = "stopped";
    } finally {
        cancelAnimationFrame(frame);
        view.show(text);
        onShown();
    }
    const cut = { stop: "", length: "cut at the token limit", stopped: "stopped" }[end];
    const words = [cut, model.info.chat === false ? "no chat template: continues a transcript" : ""].filter(Boolean).join(" · ");
    if (usage) view.tell({ ...usage, tokens: usage.completionTokens, end: words });
    else if (first) view.tell({ tokens, tokensPerSecond: (tokens - 1) / ((performance.now() - first) / 1000 || 1), firstTokenMs: first - started, end: words });
    else view.tell({ tokens: 0, tokensPerSecond: 0, firstTokenMs: 0, end: words });
    narrator.end(text, end === "stopped" ? "Stopped." : "End of the answer.");
    return { text, tokens, usage, end };
}
