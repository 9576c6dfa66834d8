// The page's side of the index.

let worker = null;
let next = 1;
const waiting = new Map();

function start() {
    const started = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "search" });
    started.onmessage = ({ data }) => {
        const { resolve, reject } = waiting.get(data.id);
        waiting.delete(data.id);
        if (data.error === undefined) resolve(data.value);
        else reject(new Error(data.error));
    };
    started.onerror = (event) => {
        for (const { reject } of waiting.values()) reject(new Error(`the search's worker failed: ${event.message ?? "it could not be loaded"}`));
        waiting.clear();
    };
    return started;
}

/**
 * @param {string} method of `worker.js`
 * @param {any} [argument]
 * @param {Transferable[]} [transfer]
 * @returns {Promise<any>}
 */
export function index(method, argument, transfer = []) {
    worker ??= start();
    return new Promise((resolve, reject) => {
        const id = next++;
        waiting.set(id, { resolve, reject });
        worker.postMessage({ id, method, argument }, transfer);
    });
}
