// The box that shows an error by its type, with buttons for what can be done.

import { explain } from "../errors.js";
import { button, h, icon } from "../lib/dom.js";
import { change } from "../lib/settings.js";

const LABELS = {
    retry: ["Try again", "again"],
    choose: ["Choose another model", "chip"],
    cpu: ["Use the CPU", "chip"],
    devices: ["See devices and storage", "settings"],
    unkept: ["Load without keeping", "download"],
    clear: ["New conversation", "trash"],
};

/**
 * @param {any} error
 * @param {Partial<Record<import("../errors.js").Action, () => void>>} handlers actions without one are not offered
 */
export function problem(error, handlers) {
    const { title, advice, actions, detail, code } = explain(error);
    const all = {
        devices: () => (location.hash = "#/devices"),
        ...(handlers.retry && {
            cpu() {
                change({ device: "cpu" });
                handlers.retry();
            },
        }),
        ...handlers,
    };
    const offered = actions.filter((action) => all[action]);
    return h(
        "section.problem",
        { role: "alert", "data-code": code },
        h("p.title", {}, icon("warn"), title),
        h("p", {}, advice),
        h("p.detail", {}, h("code", {}, code), ` ${detail}`),
        h(
            "div.row",
            {},
            ...offered.map((action) => {
                const [text, glyph] = LABELS[action];
                return button({ text, icon: glyph, onClick: () => all[action]() });
            }),
        ),
    );
}
