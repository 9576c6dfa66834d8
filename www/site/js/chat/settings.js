// The panel with the settings of the chat.

import { h } from "../lib/dom.js";
import { change, settings } from "../lib/settings.js";

/** A slider with its value beside it. */
function slider(id, label, hint, { min, max, step }) {
    const output = h("output", { for: id }, String(settings[id]));
    const input = h("input", { id, type: "range", min, max, step, "aria-describedby": `${id}-hint` });
    input.value = String(settings[id]);
    input.addEventListener("input", () => {
        output.textContent = input.value;
        change({ [id]: Number(input.value) });
    });
    return h("div.field", {}, h("div.row.between", {}, h("label", { for: id }, label), output), input, h("p.hint", { id: `${id}-hint` }, hint));
}

/** A whole number; `empty` says whether there may be none. */
function number(id, label, hint, { min, max, empty }) {
    const input = h("input", { id, type: "number", inputmode: "numeric", min, max, "aria-describedby": `${id}-hint` });
    if (empty) input.placeholder = "random";
    input.value = String(settings[id]);
    input.addEventListener("change", () => {
        const value = Number(input.value);
        const blank = empty && input.value === "";
        if (!blank && !(Number.isInteger(value) && value >= min && value <= max)) input.value = String(settings[id]);
        change({ [id]: input.value === "" ? "" : Number(input.value) });
    });
    return h("div.field", {}, h("label", { for: id }, label), input, h("p.hint", { id: `${id}-hint` }, hint));
}

export function settingsPanel() {
    const system = h("textarea", { id: "system", rows: "3", "aria-describedby": "system-hint", on: { change: () => change({ system: system.value }) } });
    system.value = settings.system;
    const wide = matchMedia("(min-width: 66rem)");
    const panel = h(
        "details.settings",
        { open: wide.matches },
        h("summary", {}, "Settings"),
        h(
            "div.fields",
            {},
            h(
                "div.field",
                {},
                h("label", { for: "system" }, "System prompt"),
                system,
                h("p.hint", { id: "system-hint" }, "What the model is told before your messages."),
            ),
            slider("temperature", "Temperature", "0 takes the likeliest word each time; more is more varied.", { min: 0, max: 2, step: 0.1 }),
            slider("topP", "Top-p", "Choose only among the words that together have this probability.", { min: 0.05, max: 1, step: 0.05 }),
            number("maxTokens", "Most tokens of an answer", "A token is about three quarters of an English word.", { min: 1, max: 32768 }),
            number("seed", "Seed", "The same seed gives the same answer again on this device.", { min: 0, max: 4294967295, empty: true }),
        ),
    );
    wide.addEventListener("change", () => (panel.open = wide.matches));
    return panel;
}

/** The settings as the package takes them. */
export function generation() {
    const { temperature, topP, maxTokens, seed } = settings;
    return { temperature, topP, maxTokens, ...(seed === "" ? {} : { seed: Number(seed) }) };
}
