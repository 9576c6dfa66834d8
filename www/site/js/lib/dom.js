// Elements, made without markup: what a model writes never becomes any.

/**
 * Makes an element.
 * @param {string} tag `tag`, `tag.class` or `tag.class.other`
 * @param {Record<string, any>} [properties] attributes; `on` holds listeners, `dataset` data attributes
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {any}
 */
export function h(tag, properties = {}, ...children) {
    const [name, ...classes] = tag.split(".");
    const element = document.createElement(name);
    if (classes.length) element.className = classes.join(" ");
    for (const [key, value] of Object.entries(properties ?? {})) {
        if (value === undefined || value === null || value === false) continue;
        if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
        else if (key === "dataset") Object.assign(element.dataset, value);
        else if (key === "value" || key === "textContent") element[key] = value;
        else element.setAttribute(key, value === true ? "" : String(value));
    }
    element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
    return element;
}

/** Paths of icons in a box of 24, drawn with strokes. */
const ICONS = {
    send: "M12 19V5M6 11l6-6 6 6",
    stop: "M7 7h10v10H7z",
    copy: "M9 9h10v10H9zM5 15V5h10",
    check: "M5 12.5l4.5 4.5L19 7.5",
    again: "M19 12a7 7 0 1 1-2-4.9M19 4v4h-4",
    trash: "M5 7h14M10 7V4.5h4V7M7 7l.8 12.5h8.4L17 7M10.5 10.5v5.5M13.5 10.5v5.5",
    file: "M7 3.5h7l4 4v13H7zM14 3.5v4h4",
    folder: "M4 6.5h6l2 2h8v10H4z",
    download: "M12 4v11M7 11l5 5 5-5M5 20h14",
    upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
    settings: "M5 7h9M18 7h1M5 12h2M11 12h8M5 17h8M17 17h2M16 5v4M9 10v4M15 15v4",
    sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
    moon: "M19.5 14A7.8 7.8 0 1 1 10 4.5a6.3 6.3 0 0 0 9.5 9.5z",
    auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
    chevron: "M7 10l5 5 5-5",
    close: "M6 6l12 12M18 6L6 18",
    search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12M15.5 15.5L20 20",
    warn: "M12 4l9 16H3zM12 10v4.5M12 17v.5",
    chip: "M7 7h10v10H7zM10 3.5V7M14 3.5V7M10 17v3.5M14 17v3.5M3.5 10H7M3.5 14H7M17 10h3.5M17 14h3.5",
};

/** @param {keyof typeof ICONS} name */
export function icon(name) {
    const ns = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(ns, "svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("class", "glyph");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(ns, "path");
    path.setAttribute("d", ICONS[name]);
    svg.append(path);
    return svg;
}

/**
 * A button with an icon, and a text unless there is only a label for screen readers.
 * @param {{text?: string, label?: string, icon?: keyof typeof ICONS, class?: string, onClick: (event: Event) => void}} about
 */
export function button({ text, label, icon: glyph, class: className = "", onClick, ...rest }) {
    const element = h("button", { type: "button", "aria-label": label, title: text ? undefined : label, ...rest, on: { click: onClick } });
    element.className = className || (text ? "" : "icon");
    if (glyph) element.append(icon(glyph));
    if (text) element.append(h("span", {}, text));
    return element;
}

/** Sets the text of an element if it is another. */
export function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
}
