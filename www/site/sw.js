// Keeps the site and the package, so that they work without a network. All files of a version are kept together;
// a new version waits until the page asks for it. Model files are kept by the package itself.

importScripts("./precache.js");

const { version, files } = self.PRECACHE;
const PREFIX = "inferencelayer-site-";
const CACHE = PREFIX + version;
const KEPT = new Set(files.map(([path]) => path));
/** Says which models the server has: asked for each time, and kept for when there is no network. */
const MANIFEST = "models/manifest.json";

self.addEventListener("install", (event) => {
    event.waitUntil(
        (async () => {
            const cache = await caches.open(CACHE);
            await cache.addAll([...KEPT].map((path) => new Request(path, { cache: "no-cache" })));
            // Not every static server has one.
            await cache.add(new Request(MANIFEST, { cache: "no-cache" })).catch(() => {});
        })(),
    );
});

self.addEventListener("activate", (event) => {
    event.waitUntil(
        (async () => {
            for (const name of await caches.keys()) if (name.startsWith(PREFIX) && name !== CACHE) await caches.delete(name);
            await self.clients.claim();
        })(),
    );
});

self.addEventListener("message", ({ data }) => {
    if (data === "take over") self.skipWaiting();
});

async function manifest(request) {
    const cache = await caches.open(CACHE);
    try {
        const response = await fetch(request);
        if (response.ok) await cache.put(MANIFEST, response.clone());
        return response;
    } catch (error) {
        const kept = await cache.match(MANIFEST);
        if (kept) return kept;
        throw error;
    }
}

self.addEventListener("fetch", (event) => {
    const { request } = event;
    const scope = self.registration.scope;
    const url = request.url.split(/[?#]/)[0];
    if (request.method !== "GET" || !url.startsWith(scope)) return;
    const path = url.slice(scope.length) || "index.html";
    if (path === MANIFEST) event.respondWith(manifest(request));
    if (!KEPT.has(path)) return;
    event.respondWith(
        (async () => {
            const cache = await caches.open(CACHE);
            return (await cache.match(path)) ?? fetch(request);
        })(),
    );
});
