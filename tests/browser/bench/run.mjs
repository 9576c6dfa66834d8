#!/usr/bin/env node
// node tests/browser/bench/run.mjs: the package in Chromium, beside its peers. `--help` explains the options.

import { appendFileSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { arch, platform, tmpdir } from "node:os";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";

import { launch, visit } from "./browser.mjs";
import { agreement, contests, difference, pooled } from "./contests.mjs";
import { commit, entries, processor, row } from "./ledger.mjs";
import { median } from "./page/lib/measure.js";
import { CASES } from "./page/lib/query.js";
import { ROOT } from "./paths.mjs";
import { serve } from "./server.mjs";
import { makeSite } from "./site.mjs";

const HELP = `node tests/browser/bench/run.mjs [options]: measures the built package in Chromium

  --adapter NAME    swiftshader, lavapipe, cpu (one thread of wasm), or a Chromium's path (default: swiftshader)
  --cases LIST      of ${CASES.join(",")};
                    the numbers may be others
  --dtypes LIST     of embeddings: f32, f16, int8 (default: f32; on the CPU also int8)
  --peers           beside transformers.js and wllama, by turns; the first time they are installed by npm
  --rounds N        turns of each side (default: 2)
  --budget MS       that the runs of a case take in a turn, about (default: 4000)
  --least N         runs of a case in a turn, however long they take (default: 3)
  --context N       most tokens of a prompt and its answer (default: 2048)
  --package DIR     the built package's folder (default: web/dist)
  --minilm DIR      all-MiniLM-L6-v2 (default: as fetch-model finds it)
  --gguf FILE       the model that generates (default: SmolLM2-135M, as fetch-model finds it)
  --python PATH     with onnx and onnxruntime, to make the peers' model (default: python3)
  --flag FLAG       one more flag for Chromium
  --timeout S       for one page (default: 1800)
  --ledger FILE     append the figures, as in docs/scoreboard.jsonl
  --results FILE    append what the pages posted, a line each

  --export DIR      only write the site into DIR, for another machine: any server that takes POSTs to /log and /done
  --import FILE     only read what a page posted there ("-": standard input); with --machine "NVIDIA H200" [--cpu NAME]
`;

const OPTIONS = {
    adapter: { type: "string", default: "swiftshader" },
    cases: { type: "string", default: CASES.join() },
    dtypes: { type: "string" },
    peers: { type: "boolean", default: false },
    rounds: { type: "string", default: "2" },
    budget: { type: "string", default: "4000" },
    least: { type: "string", default: "3" },
    context: { type: "string", default: "2048" },
    package: { type: "string", default: join(ROOT, "web/dist") },
    minilm: { type: "string" },
    gguf: { type: "string" },
    python: { type: "string", default: "python3" },
    flag: { type: "string", multiple: true, default: [] },
    timeout: { type: "string", default: "1800" },
    ledger: { type: "string" },
    results: { type: "string" },
    export: { type: "string" },
    import: { type: "string" },
    machine: { type: "string" },
    cpu: { type: "string" },
    help: { type: "boolean" },
};

/** Where the crate finds a model; it is fetched if need be. */
function fetched(name) {
    const command = ["run", "--quiet", "--bin", "fetch-model", "--", name];
    const path = execFileSync("cargo", command, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
    return path.trim();
}

/** The GGUF file of a model's folder. */
function ggufOf(folder) {
    const file = readdirSync(folder).find((name) => name.endsWith(".gguf"));
    if (!file) throw new Error(`${folder}: there is no GGUF file in it`);
    return join(folder, file);
}

/** Prints figures and adds them to the ledger. */
function tell(lines, ledger) {
    for (const line of lines) console.log(row(line));
    if (ledger) appendFileSync(ledger, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
}

/** Turns what pages posted elsewhere into lines: ours first, peers of the same run after it. */
function imported(given) {
    const text = readFileSync(given.import === "-" ? 0 : given.import, "utf8");
    const posted = text
        .split("\n")
        .filter((line) => line.startsWith("{"))
        .map((line) => JSON.parse(line));
    const where = { cpu: given.cpu ?? "unknown", os: "linux x86_64", adapter: given.machine, commit: commit() };
    const peers = posted.filter(({ engine }) => engine.name !== "inferencelayer");
    for (const ours of posted.filter(({ engine }) => engine.name === "inferencelayer"))
        tell(entries(ours, peers, where), given.ledger);
}

async function measured(given, folder) {
    const device = given.adapter === "cpu" ? "cpu" : "webgpu";
    const plan = contests({
        device,
        dtypes: (given.dtypes ?? (device === "cpu" ? "f32,int8" : "f32")).split(","),
        minilm: Boolean(given.minilm),
        gguf: given.gguf && `models/${basename(given.gguf)}`,
        peers: given.peers,
        cases: given.cases.split(","),
    });
    let heard = () => {};
    const say = (line) => console.error(`  ${line}`);
    const server = await serve(folder, (path, body) => (path === "/done" ? heard(JSON.parse(body)) : say(body)));
    const limits = { budget: given.budget, least: given.least, context: given.context };
    const turn = async ({ page, query }) => {
        const address = `${server.url}/${page}?${new URLSearchParams({ ...query, ...limits })}`;
        console.error(address);
        const browser = await launch(given.adapter, given.flag);
        try {
            const done = new Promise((resolve) => (heard = resolve));
            const result = await visit(browser, address, done, Number(given.timeout), say);
            if (given.results) appendFileSync(given.results, `${JSON.stringify(result)}\n`);
            return result;
        } catch (error) {
            console.error(`${page}: ${error.message}`);
            return null;
        } finally {
            await browser.close();
        }
    };
    // Chromium calls every software adapter by one name.
    const adapter = ["swiftshader", "lavapipe"].includes(given.adapter) ? given.adapter : undefined;
    const os = `${platform()} ${arch() === "x64" ? "x86_64" : arch()}`;
    const where = { adapter, cpu: processor(), os, commit: commit() };
    for (const { ours, peers } of plan) {
        const sides = [ours, ...peers].map((side) => ({ side, results: [] }));
        for (let round = 0; round < Number(given.rounds); round++)
            for (const { side, results } of sides) {
                const result = await turn(side);
                if (result?.engine) results.push(result);
                for (const failure of result?.failures ?? []) console.error(`${side.page}: ${failure}`);
            }
        const [first, ...others] = sides.map(({ results }) => (results.length ? pooled(results, median) : null));
        if (!first) continue;
        const compared = others.filter(Boolean).filter((peer) => {
            const why = difference(first, peer);
            if (why) console.error(`${peer.engine.name} is not compared: ${why}`);
            const common = agreement(first, peer);
            if (common) console.error(`${peer.engine.name}: ${common}`);
            return !why;
        });
        tell(entries(first, compared, where), given.ledger);
        for (const { engine, longTasks } of [first, ...compared])
            console.log(`${engine.name}: ${longTasks.count} long tasks of the page, up to ${longTasks.longest} ms`);
    }
    server.stop();
}

const given = parseArgs({ options: OPTIONS }).values;
if (given.help) console.log(HELP);
else if (given.import) imported(given);
else {
    const wanted = (kinds) => given.export || given.cases.split(",").some((name) => kinds.includes(name.split("-")[0]));
    if (wanted(["embed"])) given.minilm ??= fetched("minilm");
    if (wanted(["prefill", "decode", "greedy"])) given.gguf ??= ggufOf(fetched("smollm2-135m"));
    if (given.export) makeSite(given.export, { ...given, copy: true });
    else {
        const folder = mkdtempSync(join(tmpdir(), "inferencelayer-bench-"));
        process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
        makeSite(folder, given);
        await measured(given, folder);
    }
}
