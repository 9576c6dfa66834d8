// The index, in a worker: splitting, ranking and writing thousands of paragraphs never keeps the page waiting.

import { Index } from "./index.js";

const index = new Index();

/** Everything that the page can ask for. */
const methods = {
    add: ({ name, text, file }) => (file ? file.text() : Promise.resolve(text)).then((all) => index.add(name, all)),
    remove: (id) => index.remove(id),
    clear: () => index.clear(),
    documents: () => index.documents(),
    pending: (most) => index.pending(most),
    put: ({ ids, values, width, model }) => index.put(ids, values, width, model),
    forget: () => index.forget(),
    rank: ({ vector, from, most }) => index.rank(vector, from, most),
    write: () => new Blob(index.write(), { type: "application/json" }),
    read: (file) => file.text().then((text) => index.read(text)),
};

self.onmessage = async ({ data: { id, method, argument } }) => {
    try {
        self.postMessage({ id, value: await methods[method](argument) });
    } catch (error) {
        self.postMessage({ id, error: error.message });
    }
};
