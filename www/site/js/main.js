// The page: its views by the address after the hash, the theme, and the service worker.

import { announce } from "./lib/announce.js";
import { button, h, icon, setText } from "./lib/dom.js";
import { change, settings } from "./lib/settings.js";
import { turn } from "./lib/turn.js";

const VIEWS = {
    chat: () => import("./chat/view.js").then(({ ChatView }) => ChatView),
    search: () => import("./search/view.js").then(({ SearchView }) => SearchView),
    devices: () => import("./devices/view.js").then(({ DevicesView }) => DevicesView),
};

async function make(name) {
    const View = await VIEWS[name]();
    await turn();
    const view = new View();
    await turn();
    return view;
}
const THEMES = { auto: ["auto", "as the system's"], light: ["sun", "light"], dark: ["moon", "dark"] };

const main = document.getElementById("main");
/** Views stay as they are while others are shown. @type {Map<string, Promise<any>>} */
const made = new Map();

async function show(moved) {
    const asked = /^#\/(\w+)/.exec(location.hash)?.[1];
    const name = asked in VIEWS ? asked : "chat";
    for (const link of document.querySelectorAll("nav a")) {
        if (link.dataset.view === name) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    }
    if (!made.has(name)) made.set(name, make(name));
    let view;
    try {
        view = await made.get(name);
    } catch (error) {
        made.delete(name);
        main.replaceChildren(h("p.card", { role: "alert" }, `This view could not be loaded: ${error.message}. Reload the page.`));
        return;
    }
    // Another one may have been asked for meanwhile.
    if ((/^#\/(\w+)/.exec(location.hash)?.[1] ?? "chat") !== name && asked in VIEWS) return;
    document.title = `${view.title} · inferencelayer`;
    document.body.dataset.view = name;
    if (main.firstElementChild !== view.element) main.replaceChildren(view.element);
    view.shown();
    // Who came by a link goes on at the view's heading, as on any new page.
    if (moved) view.element.querySelector("h1").focus({ preventScroll: true });
}

function theme() {
    const toggle = document.getElementById("theme");
    const apply = () => {
        const [glyph, words] = THEMES[settings.theme] ?? THEMES.auto;
        if (settings.theme === "auto") delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = settings.theme;
        toggle.replaceChildren(icon(glyph));
        toggle.setAttribute("aria-label", `Theme: ${words}. Change`);
        toggle.title = `Theme: ${words}`;
    };
    toggle.addEventListener("click", () => {
        const names = Object.keys(THEMES);
        change({ theme: names[(names.indexOf(settings.theme) + 1) % names.length] });
        apply();
        announce(`Theme: ${THEMES[settings.theme][1]}`);
    });
    apply();
}

/** Says whether the site would work without a network, and offers new versions of it. */
async function offline() {
    const where = document.getElementById("where");
    const say = () => {
        const kept = Boolean(navigator.serviceWorker?.controller);
        where.dataset.state = navigator.onLine ? (kept ? "kept" : "") : "offline";
        setText(where, navigator.onLine ? (kept ? "Works offline" : "") : "Offline");
    };
    addEventListener("online", say);
    addEventListener("offline", say);
    if (!navigator.serviceWorker) return say();
    let had = Boolean(navigator.serviceWorker.controller);
    navigator.serviceWorker.addEventListener("controllerchange", () => {
        say();
        // The first one takes over a page that is as new as itself.
        if (had) location.reload();
        had = true;
    });
    say();
    const registration = await navigator.serviceWorker.register("sw.js").catch((error) => {
        console.info(`the site is not kept for offline use: ${error.message}`);
        return null;
    });
    const offer = (worker) => {
        const update = document.getElementById("update");
        update.replaceChildren(
            h("span", {}, "There is a new version of this site."),
            button({ text: "Use it", class: "primary small", onClick: () => worker.postMessage("take over") }),
            button({ label: "Later", icon: "close", onClick: () => (update.hidden = true) }),
        );
        update.hidden = false;
    };
    if (registration?.waiting) offer(registration.waiting);
    registration?.addEventListener("updatefound", () => {
        const worker = registration.installing;
        worker?.addEventListener("statechange", () => worker.state === "installed" && registration.active && offer(worker));
    });
}

document.getElementById("skip").addEventListener("click", (event) => {
    // Its address is not a view's.
    event.preventDefault();
    main.focus();
});
// A file that misses its view must not replace the page.
for (const type of ["dragover", "drop"]) addEventListener(type, (event) => event.preventDefault());
addEventListener("hashchange", () => void show(true));

theme();
await turn();
await show(false);
await turn();
await offline();
