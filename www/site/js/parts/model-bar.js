// The bar at the top of a view: which model is used, its state, and how to change it.

import { button, h, icon, setText } from "../lib/dom.js";
import { bytes } from "../lib/format.js";
import { Picker } from "./picker.js";
import { problem } from "./problem.js";
import { Progress } from "./progress.js";

const ORIGINS = { local: "on this server", hub: "from the model hub", file: "from this device" };

export class ModelBar {
    /**
     * @param {any} slot
     * @param {{onChosen?: () => void}} [options]
     */
    constructor(slot, { onChosen } = {}) {
        this.slot = slot;
        this.onChosen = onChosen;
        this.name = h("b");
        this.about = h("span.about");
        this.picker = new Picker(slot, (choice) => void this.choose(choice));
        this.opener = button({
            text: "",
            icon: "chip",
            class: "model-name",
            "aria-haspopup": "dialog",
            onClick: () => void this.picker.open(),
        });
        this.opener.append(h("span.sr", {}, "Model: "), h("span.stack", {}, this.name, this.about), h("span.sr", {}, ". Choose another"), icon("chevron"));
        this.load = button({ text: "Load", icon: "download", class: "", onClick: () => this.start() });
        this.unload = button({ text: "Unload", class: "quiet", onClick: () => void slot.unload() });
        this.progress = new Progress(() => slot.cancel());
        this.problems = h("div.problems");
        this.warning = h("p.note", { role: "status" });
        this.element = h(
            "section.model-bar",
            { "aria-label": "Model" },
            h("div.row.between", {}, this.opener, this.load, this.unload),
            this.progress.element,
            this.warning,
            this.problems,
            this.picker.dialog,
        );
        slot.addEventListener("change", () => this.show());
        this.show();
    }

    async choose(choice) {
        await this.slot.choose(choice);
        this.onChosen?.();
        this.start();
    }

    start(options) {
        // What fails is shown by the bar itself.
        this.slot.ready(options).catch(() => {});
    }

    show() {
        const { choice, state, progress, model, error, warning } = this.slot;
        setText(this.name, choice?.name ?? "No model");
        const device = model?.info.device;
        const where = device ? (device.kind === "cpu" ? "on the CPU" : `on ${device.name || "the GPU"}`) : null;
        const parts = choice ? [bytes(choice.bytes), where ?? ORIGINS[choice.origin], choice.licence] : ["choose one"];
        setText(this.about, parts.filter(Boolean).join(" · "));
        this.load.hidden = state === "ready" || state === "loading" || !choice;
        this.unload.hidden = state !== "ready";
        this.progress.element.hidden = state !== "loading";
        if (state === "loading") this.progress.show(progress);
        setText(this.warning, warning);
        this.warning.hidden = !warning;
        if (this.shown === error) return;
        this.shown = error;
        this.problems.replaceChildren();
        if (!error) return;
        const handlers = {
            retry: () => this.start(),
            choose: () => void this.picker.open(),
            unkept: () => this.start({ keep: false }),
        };
        this.problems.append(problem(error, handlers));
    }
}
