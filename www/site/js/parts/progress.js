// How far a load has come: its phase among the others, a bar, bytes, speed, and a button to cancel.

import { announce } from "../lib/announce.js";
import { button, h, setText } from "../lib/dom.js";
import { bytes, seconds } from "../lib/format.js";

const PHASES = { download: "Download", verify: "Check", upload: "To the device", compile: "Compile" };

/** What is told about a phase. */
function words({ phase, bytes: done, total, speed }) {
    if (phase === "compile") return "Making kernels for this device";
    const known = total > 0 ? `${bytes(done)} of ${bytes(total)}` : bytes(done);
    if (!speed) return known;
    const left = total > done ? `, ${seconds((total - done) / speed)} left` : "";
    return `${known} · ${bytes(speed)}/s${phase === "download" ? left : ""}`;
}

export class Progress {
    #phase = "";

    /** @param {() => void} onCancel */
    constructor(onCancel) {
        this.steps = h("ol.steps", {}, ...Object.entries(PHASES).map(([phase, name]) => h("li", { dataset: { phase } }, name)));
        this.bar = h("progress", { max: "1", "aria-label": "Loading the model" });
        this.words = h("span.words");
        this.element = h(
            "div.loading",
            {},
            this.steps,
            this.bar,
            h("div.row.between", {}, this.words, button({ text: "Cancel", icon: "close", class: "quiet small", onClick: onCancel })),
        );
    }

    /** @param {any} progress as the package tells it; null at the start */
    show(progress) {
        const phase = progress?.phase ?? "";
        if (phase !== this.#phase) {
            this.#phase = phase;
            const names = Object.keys(PHASES);
            for (const step of this.steps.children) {
                const at = names.indexOf(step.dataset.phase);
                // Files in the cache are checked and not downloaded; a fresh download is not checked again.
                step.dataset.state = step.dataset.phase === phase ? "now" : at < names.indexOf(phase) ? "past" : "ahead";
                if (step.dataset.phase === phase) step.setAttribute("aria-current", "step");
                else step.removeAttribute("aria-current");
            }
            if (phase) announce(PHASES[phase]);
        }
        if (!progress) {
            this.bar.removeAttribute("value");
            setText(this.words, "Starting");
            return;
        }
        if (progress.total > 0 && phase !== "compile") this.bar.value = progress.bytes / progress.total;
        else this.bar.removeAttribute("value");
        setText(this.words, words(progress));
    }
}
