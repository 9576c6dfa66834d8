// What the address asks for: `?device=webgpu&embed=models/minilm/&generate=models/some.gguf&cases=embed-32x64,…`.

/** Every case, in the order in which they run; the numbers in a case's name may be any. */
export const CASES = [
    "embed-1x14",
    "embed-32x64",
    "embed-32x252",
    "prefill-128",
    "prefill-512",
    "decode-128-after-512",
    "greedy-32",
    "warm",
];

/**
 * @typedef {object} Query
 * @property {string} device "webgpu" or "cpu"
 * @property {string} [embed] where an embedding model is, an address relative to the page
 * @property {string} [generate] where a GGUF file is
 * @property {string} [dtype] as `load` takes it
 * @property {number} context most tokens of a prompt and its answer
 * @property {string[]} cases
 * @property {number} budget milliseconds that a case's runs take together, about
 * @property {number} least runs of a case, however long they take
 * @property {number} most runs of a case, however short they are
 * @property {number[]} [prompt] token ids that `greedy-N` goes on from
 */

/**
 * Reads the page's query string.
 * @param {string} search
 * @returns {Query}
 */
export function readQuery(search) {
    const given = new URLSearchParams(search);
    const number = (name, otherwise) => {
        const value = Number(given.get(name) ?? otherwise);
        if (!Number.isFinite(value) || value <= 0) throw new Error(`${name}: expected a number above 0`);
        return value;
    };
    const list = (name) => given.get(name)?.split(",").filter(Boolean);
    return {
        device: given.get("device") ?? "webgpu",
        embed: given.get("embed") ?? undefined,
        generate: given.get("generate") ?? undefined,
        dtype: given.get("dtype") ?? undefined,
        context: number("context", 2048),
        cases: list("cases") ?? CASES,
        budget: number("budget", 4000),
        least: number("least", 3),
        most: number("most", 200),
        prompt: list("prompt")?.map(Number),
    };
}

/**
 * The numbers of the cases of a kind: `numbers(["embed-32x64"], "embed")` is `[[32, 64]]`.
 * @param {string[]} cases
 * @param {string} kind
 * @returns {number[][]}
 */
export function numbers(cases, kind) {
    return cases
        .filter((name) => name.split("-")[0] === kind)
        .map((name) => (name.match(/\d+/g) ?? []).map(Number));
}

/** A model's name, of its address: `smollm2` of `models/smollm2.gguf`. */
export const nameOf = (address) =>
    address.replace(/\/+$/, "").split("/").at(-1).replace(/\.gguf$/i, "").toLowerCase();
