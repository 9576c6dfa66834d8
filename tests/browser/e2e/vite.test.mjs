// A user's project: the tarball installed into an empty Vite project, ten lines of code, built and opened.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { FIXTURES, TOOLS, launch, pack, scratch } from "./harness.mjs";
import { Server } from "./server.mjs";

const MAIN = `import { load } from "inferencelayer";
const base = new URLSearchParams(location.search).get("models");
const say = (id, text) => (document.getElementById(id).textContent += text);
const embedder = await load(base + "bert/", { device: "cpu" });
const [a, b] = await embedder.embed(["The lake is cold.", "Cold water in the lake."]);
say("similarity", a.reduce((sum, value, i) => sum + value * b[i], 0).toFixed(3));
const chat = await load(base + "gguf_llama/model.gguf", { device: "cpu" });
for await (const part of chat.chat([{ role: "user", content: "Where is the lake?" }], { maxTokens: 8 }))
    say("answer", part.text);
say("done", "done");
`;
const HTML = `<!doctype html><meta charset="utf-8"><title>ten lines</title>
<p id="similarity"></p><p id="answer"></p><p id="done"></p><script type="module" src="/main.js"></script>`;

const vite = join(TOOLS, "node_modules/.bin/vite");
let project, server, browser;

before(async () => {
    project = scratch("vite");
    writeFileSync(
        join(project, "package.json"),
        JSON.stringify({ name: "page", private: true, type: "module" }),
    );
    writeFileSync(join(project, "index.html"), HTML);
    writeFileSync(join(project, "main.js"), MAIN);
    execFileSync("npm", ["install", "--silent", "--offline", "--no-audit", "--no-fund", pack()], {
        cwd: project,
    });
    server = await new Server().mount("/models/", FIXTURES + "/").start();
    browser = await launch();
});
after(async () => {
    await browser?.close();
    await server?.stop();
});

async function works(address) {
    const page = await browser.newPage();
    const problems = [];
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
    await page.goto(`${address}?models=${encodeURIComponent(server.url + "/models/")}`);
    const done = page.waitForFunction(() => document.getElementById("done").textContent, null, {
        timeout: 180_000,
    });
    const failed = new Promise((_, reject) => page.on("pageerror", reject));
    await Promise.race([done, failed]);
    const [similarity, answer] = await page.evaluate(() =>
        ["similarity", "answer"].map((id) => document.getElementById(id).textContent),
    );
    assert.ok(Number(similarity) > 0 && Number(similarity) <= 1, similarity);
    assert.ok(answer.length > 0);
    await page.close();
}

test("built by Vite", async () => {
    execFileSync(vite, ["build", "--logLevel", "warn"], {
        cwd: project,
        stdio: ["ignore", "ignore", "inherit"],
    });
    const assets = readdirSync(join(project, "dist/assets"));
    assert.equal(assets.filter((name) => name.endsWith(".wasm")).length, 1, assets.join());
    server
        .mount("/built/", join(project, "dist") + "/")
        .mount("/assets/", join(project, "dist/assets") + "/");
    await works(`${server.url}/built/index.html`);
});

test("served by Vite's development server", async () => {
    const child = spawn(vite, ["--port", "0", "--host", "127.0.0.1", "--clearScreen", "false"], {
        cwd: project,
    });
    try {
        const address = await new Promise((resolve, reject) => {
            let text = "";
            child.stdout.on("data", (data) => {
                text += data;
                const found = /(http:\/\/127\.0\.0\.1:\d+)/.exec(text.replaceAll(/\x1b\[\d+m/g, ""));
                if (found) resolve(found[1]);
            });
            child.on("exit", () => reject(new Error(`vite ended: ${text}`)));
        });
        await works(`${address}/`);
    } finally {
        child.kill();
    }
});
