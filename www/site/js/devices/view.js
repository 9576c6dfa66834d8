// What this device and browser can do, what is kept in the browser's storage, and a small benchmark.

import { cache, checkSupport } from "../../package/index.js";
import { announce } from "../lib/announce.js";
import { button, h, icon } from "../lib/dom.js";
import { binary, bytes, count, milliseconds, plural } from "../lib/format.js";
import { change, settings } from "../lib/settings.js";
import { slots, unloadAll } from "../models.js";
import { problem } from "../parts/problem.js";
import * as bench from "./bench.js";
import { guides } from "./guides.js";

const DEVICES = { auto: "Whatever is best here", webgpu: "GPU (WebGPU)", cpu: "CPU" };
const CACHES = {
    opfs: "private files of this site",
    "cache-api": "the browser's cache storage",
    memory: "memory alone: nothing is kept when the page is left",
};
const USES = { generation: "writes", embedding: "embeds" };
/** Limits that decide which models fit, in bytes or as numbers. */
const LIMITS = [
    ["maxBufferSize", "Largest buffer", binary],
    ["maxStorageBufferBindingSize", "Largest binding", binary],
    ["maxComputeWorkgroupStorageSize", "Workgroup memory", binary],
    ["maxComputeInvocationsPerWorkgroup", "Invocations a workgroup", count],
    ["maxStorageBuffersPerShaderStage", "Storage buffers a stage", count],
    ["maxComputeWorkgroupsPerDimension", "Workgroups a dimension", count],
];
const WHAT = {
    "shader-f16": "16-bit floats in shaders: half the memory traffic",
    subgroups: "operations across the lanes of a group: faster sums",
    "timestamp-query": "times of single kernels",
    "chromium-experimental-subgroup-matrix": "tensor cores",
};

/** A list of terms and values. */
function facts(pairs) {
    return h("dl.facts", {}, ...pairs.filter(Boolean).map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))));
}

const card = (id, title, ...children) => h("section.card", { "aria-labelledby": id }, h("h2", { id }, title), ...children);

export class DevicesView {
    title = "Devices";
    /** @type {AbortController | null} */
    #benchmark = null;

    constructor() {
        this.summary = h("p.summary", { role: "status" }, "Looking at this device");
        this.adapter = h("div");
        this.check = h("div", {}, h("p.quietly", {}, "Not run yet"));
        this.storage = h("div");
        this.loaded = h("div");
        this.figures = h("div", { "aria-live": "polite" });
        this.run = button({ text: "Run", class: "primary", onClick: () => void this.#bench() });
        this.element = h(
            "div.devices",
            {},
            h("h1", { tabindex: "-1" }, "Devices"),
            this.summary,
            h(
                "div.cards",
                {},
                card("adapter", "Graphics adapter", this.adapter),
                card(
                    "check",
                    "Self-check",
                    h("p.about", {}, "Kernels are compared with a plain implementation on this device; those that compute wrong are not used."),
                    this.check,
                    button({ text: "Check again", icon: "again", class: "quiet", onClick: () => void this.#selfCheck() }),
                ),
                card("loaded", "Models in use", this.#device(), this.loaded),
                card("storage", "Storage", this.storage),
                card(
                    "bench",
                    "Benchmark",
                    h("p.about", {}, "Loads the chosen models if they are not, then reads, writes and embeds for some seconds."),
                    h("div.row", {}, this.run),
                    this.figures,
                ),
            ),
        );
        for (const slot of Object.values(slots)) slot.addEventListener("change", () => this.#models());
        this.#models();
    }

    /** Called each time that the view is shown. */
    shown() {
        void this.#support();
        void this.#storage();
    }

    #device() {
        const select = h(
            "select",
            {
                id: "device",
                on: {
                    async change() {
                        change({ device: select.value });
                        await unloadAll();
                        announce("Models will be loaded anew on this device");
                    },
                },
            },
            ...Object.entries(DEVICES).map(([value, name]) => h("option", { value }, name)),
        );
        select.value = settings.device;
        return h("div.field", {}, h("label", { for: "device" }, "Run models on"), select);
    }

    async #support() {
        let support;
        try {
            support = await checkSupport();
        } catch (error) {
            this.summary.replaceChildren(problem(error, { retry: () => void this.#support() }));
            return;
        }
        const { adapter } = support;
        const name = adapter && (adapter.description || [adapter.vendor, adapter.architecture].filter(Boolean).join(" ") || "a GPU");
        this.summary.dataset.state = adapter && !adapter.fallback ? "good" : "fair";
        this.summary.replaceChildren(
            adapter
                ? adapter.fallback
                    ? `WebGPU is here, on a software adapter (${name}): it works, but a processor poses as the GPU.`
                    : `WebGPU is here, on ${name}.`
                : "There is no WebGPU here. Models run on the CPU, which is slower.",
        );
        this.adapter.replaceChildren(...(adapter ? this.#adapter(adapter, support) : this.#lacking(support)));
        if (!this.checked) void this.#selfCheck();
    }

    #adapter(adapter, support) {
        const yes = (there) => (there ? "yes" : "no");
        return [
            facts([
                adapter.vendor && ["Vendor", adapter.vendor],
                adapter.architecture && ["Architecture", adapter.architecture],
                adapter.description && ["Description", adapter.description],
                ["16-bit floats", yes(support.f16)],
                ["Subgroups", yes(support.subgroups)],
                ...LIMITS.filter(([key]) => adapter.limits[key] !== undefined).map(([key, term, show]) => [term, show(adapter.limits[key])]),
            ]),
            h(
                "details",
                {},
                h("summary", {}, plural(adapter.features.length, "feature")),
                h("ul.plain", {}, ...adapter.features.map((feature) => h("li", {}, h("code", {}, feature), WHAT[feature] ? ` ${WHAT[feature]}` : ""))),
            ),
            h(
                "details",
                {},
                h("summary", {}, "All limits"),
                facts(Object.entries(adapter.limits).map(([key, value]) => [key, count(value)])),
            ),
        ];
    }

    #lacking(support) {
        return [
            h("ul.plain", {}, ...support.reasons.map((reason) => h("li", {}, reason))),
            h("h3", {}, "How to get WebGPU"),
            ...guides().map(([name, text], at) => h("details", { open: at === 0 }, h("summary", {}, name), h("p", {}, text))),
        ];
    }

    async #selfCheck() {
        this.checked = true;
        this.check.replaceChildren(h("p.quietly", { role: "status" }, "Checking the kernels"));
        try {
            const { device } = await checkSupport({ selfCheck: true });
            const found = device?.selfCheck;
            const state = !found ? "none" : found.ok ? "good" : "fair";
            const words = {
                good: "All kernels compute right.",
                fair: "Some kernels compute wrong here; others are used instead.",
                none: "Models run on the CPU; there are no kernels to check.",
            }[state];
            this.check.replaceChildren(
                h("p.verdict", { dataset: { state } }, icon(state === "fair" ? "warn" : "check"), words),
                facts([
                    ["Device", device.name || device.kind],
                    found && ["Took", milliseconds(found.milliseconds)],
                    found?.without.length && ["Without", found.without.join(", ")],
                    device.reason && ["Why", device.reason],
                ]),
                ...(found?.failures.length
                    ? [h("details", {}, h("summary", {}, "What went wrong"), h("ul.plain", {}, ...found.failures.map((text) => h("li", {}, text))))]
                    : []),
            );
        } catch (error) {
            this.check.replaceChildren(problem(error, { retry: () => void this.#selfCheck() }));
        }
    }

    #models() {
        const all = Object.values(slots).filter(({ model }) => model);
        if (all.length === 0) {
            this.loaded.replaceChildren(h("p.quietly", {}, "None is loaded."));
            return;
        }
        const list = h(
            "ul.rows",
            {},
            ...all.map((slot) => {
                const memory = h("span.about", {}, `${USES[slot.kind]} on ${slot.model.info.device.name || slot.model.info.device.kind}`);
                slot.model
                    .memory()
                    .then(({ device, wasm }) => memory.append(` · ${bytes(device)} on the device, ${bytes(wasm)} of wasm memory`))
                    // Unloaded meanwhile.
                    .catch(() => {});
                return h(
                    "li",
                    {},
                    h("span.stack", {}, h("b", {}, slot.choice.name), memory),
                    button({ text: "Unload", label: `Unload ${slot.choice.name}`, class: "quiet small", onClick: () => void slot.unload() }),
                );
            }),
        );
        this.loaded.replaceChildren(list);
    }

    async #storage() {
        try {
            const [entries, { kind, usage, quota, models, persistent }] = await Promise.all([cache.list(), cache.estimate()]);
            const meter = h("meter", { min: "0", "aria-label": "Storage used" });
            meter.max = quota || 1;
            meter.value = usage;
            const items = entries.map((entry) =>
                h(
                    "li",
                    {},
                    h(
                        "span.stack",
                        {},
                        h("b", {}, decodeURIComponent(entry.id.replace(/\/$/, "").split("/").pop())),
                        h("span.about", {}, `${bytes(entry.bytes)}${entry.complete ? "" : ", not complete: loading it goes on from there"}`),
                    ),
                    button({ label: `Delete ${entry.id}`, icon: "trash", class: "icon small", onClick: () => void this.#delete(entry.id) }),
                ),
            );
            const keep = button({ text: "Keep for good", class: "quiet", onClick: () => void this.#persist() });
            const all = button({ text: "Delete all", icon: "trash", class: "quiet", onClick: () => void this.#delete() });
            this.storage.replaceChildren(
                h("p", {}, `${bytes(usage)} of ${bytes(quota)} that the browser grants this site, ${bytes(models)} of it models, in ${CACHES[kind]}.`),
                meter,
                items.length ? h("ul.rows", {}, ...items) : h("p.quietly", {}, "No models are kept."),
                h(
                    "div.row",
                    {},
                    items.length ? all : null,
                    persistent ? h("p.about", {}, "The browser keeps it until you delete it.") : keep,
                ),
            );
        } catch (error) {
            this.storage.replaceChildren(problem(error, { retry: () => void this.#storage() }));
        }
    }

    async #persist() {
        const granted = (await navigator.storage?.persist?.()) ?? false;
        announce(granted ? "The browser keeps it" : "The browser did not agree; it may delete it when space is short");
        await this.#storage();
    }

    async #delete(id) {
        await cache.delete(id);
        announce("Deleted");
        await this.#storage();
        this.storage.querySelector("button")?.focus();
    }

    async #bench() {
        if (this.#benchmark) return this.#benchmark.abort();
        const running = new AbortController();
        this.#benchmark = running;
        this.run.lastElementChild.textContent = "Stop";
        this.figures.replaceChildren();
        const runs = [
            [slots.embedding, bench.embedding],
            [slots.generation, bench.writing],
        ];
        try {
            for (const [slot, measure] of runs) {
                const line = h("p.quietly", {}, `Loading ${slot.choice?.name ?? "the model"}`);
                this.figures.append(line);
                const cancel = () => slot.cancel();
                running.signal.addEventListener("abort", cancel);
                const model = await slot.ready().finally(() => running.signal.removeEventListener("abort", cancel));
                line.textContent = `Measuring ${slot.choice.name}`;
                const rows = await measure(model, running.signal);
                line.replaceWith(
                    h("h3", {}, slot.choice.name),
                    h("dl.figures", {}, ...rows.map(([term, value, about]) => h("div", {}, h("dt", {}, term), h("dd", {}, h("b", {}, value), h("span.about", {}, about))))),
                );
            }
        } catch (error) {
            this.figures.querySelector(".quietly")?.remove();
            if (error.code !== "Aborted") this.figures.append(problem(error, { retry: () => void this.#bench() }));
        } finally {
            this.#benchmark = null;
            this.run.lastElementChild.textContent = "Run";
            void this.#storage();
        }
    }
}
