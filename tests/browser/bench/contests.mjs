// Who runs against whom, on what.

/**
 * @typedef {object} Side
 * @property {string} page
 * @property {Record<string, string>} query
 *
 * @typedef {object} Contest
 * @property {Side} ours
 * @property {Side[]} peers
 */

/**
 * @param {object} options
 * @param {"webgpu" | "cpu"} options.device
 * @param {string[]} options.dtypes of embeddings
 * @param {boolean} options.minilm there is the embedding model
 * @param {string} [options.gguf] the generating model's address
 * @param {boolean} options.peers
 * @param {string[]} options.cases
 * @returns {Contest[]}
 */
export function contests({ device, dtypes, minilm, gguf, peers, cases }) {
    const contest = (page, query) => {
        const ours = { page: "bench.html", query: { ...query, device } };
        return { ours, peers: peers ? [{ page, query: ours.query }] : [] };
    };
    const of = (kinds) => cases.filter((name) => kinds.includes(name.split("-")[0]));
    const embedding = of(["embed", "warm"]);
    const generation = of(["prefill", "decode", "greedy", "warm"]);
    const all = [];
    if (minilm && embedding.some((name) => name !== "warm"))
        for (const dtype of dtypes)
            all.push(contest("transformers.html", { embed: "models/minilm/", dtype, cases: embedding.join() }));
    if (gguf && generation.some((name) => name !== "warm"))
        all.push(contest("wllama.html", { generate: gguf, cases: generation.join() }));
    return all;
}

/** The figures of several runs of one page as one: all their runs, and the median and the best of these. */
export function pooled(results, median) {
    const [first] = results;
    const benches = [...new Set(results.flatMap(({ figures }) => figures.map(({ bench }) => bench)))];
    const figures = benches.map((bench) => {
        const same = results.flatMap(({ figures }) => figures.filter((one) => one.bench === bench));
        const runs = same.flatMap(({ runs }) => runs);
        const best = same[0].better === "lower" ? Math.min(...runs) : Math.max(...runs);
        return { ...same[0], runs, figure: median(runs), best };
    });
    const longTasks = {
        count: results.reduce((sum, { longTasks }) => sum + longTasks.count, 0),
        longest: Math.max(...results.map(({ longTasks }) => longTasks.longest)),
    };
    return { ...first, figures, longTasks, failures: results.flatMap(({ failures }) => failures) };
}

/** Why a peer's outcome is not ours, or null. */
export function difference(ours, peer) {
    const [a, b] = [ours.checks.vector, peer.checks.vector];
    if (a && b) {
        const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
        const off = 1 - dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
        // Eight bits of one kind or another are some hundredths from what they stand for.
        const most = [ours, peer].some(({ engine }) => /int8|q8/.test(engine.mode)) ? 0.1 : 1e-3;
        if (!(off <= most)) return `its vector differs: 1 - cosine is ${off.toPrecision(3)}`;
    }
    return null;
}

/** How many characters two greedy answers have in common, in words; null where one did not answer. */
export function agreement(ours, peer) {
    const [a, b] = [ours.checks.said, peer.checks.said];
    if (!a || !b) return null;
    let same = 0;
    while (same < a.length && a[same] === b[same]) same += 1;
    return `greedy answers agree in ${same} of ${a.length} characters`;
}
