// Results as lines of docs/scoreboard.jsonl; native-host/src/scoreboard/ledger.rs reads them.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { ROOT } from "./paths.mjs";

const MEASURED = join(ROOT, "tests/peers/measured.jsonl");

/** How many times as good ours is. */
const ratio = (better, ours, peer) => (better === "higher" ? ours / peer : peer / ours);

/** The commit of the checkout, with `+` where files other than the ledger's differ. */
export function commit() {
    const git = (...args) => execFileSync("git", ["-C", ROOT, ...args], { encoding: "utf8" }).trim();
    const changes = git("status", "--porcelain", "--", ".", ":!docs/scoreboard.jsonl", ":!docs/SCOREBOARD.md");
    return git("rev-parse", "--short=12", "HEAD") + (changes ? "+" : "");
}

/** This machine's processor, as the ledger calls it. */
export function processor() {
    const info = readFileSync("/proc/cpuinfo", "utf8");
    const value = (key) => new RegExp(`^${key}\\s*:\\s*(.*)$`, "m").exec(info)?.[1];
    return `${value("model name")} (family ${value("cpu family")}, model ${value("model")})`;
}

/** Figures of peers that were measured apart on such an adapter. */
function apart({ bench, figure, better }, adapter) {
    const lines = readFileSync(MEASURED, "utf8").split("\n").filter(Boolean);
    return lines
        .map((line) => JSON.parse(line))
        .filter((one) => one.bench === bench && adapter?.startsWith(one.adapter))
        .map((one) => {
            const times = ratio(better, figure, one.figure);
            const mode = `${one.mode}, measured apart on ${one.date}`;
            return { name: one.name, version: one.version, mode, figure: one.figure, ratio: times, best_ratio: times };
        });
}

/**
 * The lines for a result of ours and those of peers from the same run.
 * @param {object} ours
 * @param {object[]} peers
 * @param {{cpu: string, os: string, adapter?: string, commit: string}} where
 */
export function entries(ours, peers, where) {
    const gpu = ours.device.kind === "webgpu";
    const adapter = gpu ? (where.adapter ?? ours.device.name) : undefined;
    const date = `${new Date().toISOString().slice(0, 19)}Z`;
    return ours.figures.map((one) => {
        const bench = `browser ${one.bench}`;
        const beside = peers.flatMap((peer) => {
            const same = peer.figures.find((other) => other.bench === one.bench);
            if (!same) return [];
            const { name, version, mode } = peer.engine;
            const times = (ours, peer) => ratio(one.better, ours, peer);
            const by = { ratio: times(one.figure, same.figure), best_ratio: times(one.best, same.best) };
            return [{ name, version, mode, figure: same.figure, ...by }];
        });
        const { count, longest } = ours.longTasks;
        return {
            date,
            commit: where.commit,
            bench,
            mode: ours.engine.mode,
            figure: one.figure,
            unit: one.unit,
            better: one.better,
            machine: { cpu: where.cpu, threads: 1, os: where.os, ...(adapter ? { adapter } : {}) },
            versions: { inferencelayer: ours.engine.version, chromium: ours.browser },
            peers: [...beside, ...apart({ ...one, bench }, adapter)],
            note:
                `${one.runs.length} runs, best ${one.best.toPrecision(4)}; ` +
                (count ? `${count} long tasks of the page, up to ${longest} ms` : "the page had no long task"),
        };
    });
}

/** A line for people. */
export function row(entry) {
    const beside = entry.peers.map(
        ({ name, mode, figure, ratio, best_ratio: best }) =>
            `${name} ${mode}: ${figure.toPrecision(4)}, ${ratio.toFixed(2)}x (${best.toFixed(2)}x)`,
    );
    const figure = `${entry.figure.toPrecision(4)} ${entry.unit}`;
    return [entry.bench.padEnd(58), entry.mode.padEnd(18), figure.padStart(18), ...beside].join("  ");
}
