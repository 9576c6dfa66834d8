// What the user chose, kept by the browser.

const KEY = "inferencelayer";

const DEFAULTS = {
    theme: "auto",
    device: "auto",
    chosen: /** @type {Record<string, string>} */ ({}),
    system: "You are a helpful assistant. Answer briefly.",
    temperature: 0.3,
    topP: 0.9,
    maxTokens: 512,
    seed: "",
};

function read() {
    try {
        return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
    } catch {
        return { ...DEFAULTS };
    }
}

/** @type {typeof DEFAULTS} */
export const settings = read();

/** @param {Partial<typeof DEFAULTS>} changes */
export function change(changes) {
    Object.assign(settings, changes);
    try {
        localStorage.setItem(KEY, JSON.stringify(settings));
    } catch {
        // Storage is switched off: they hold until the page is left.
    }
}
