#!/usr/bin/env node
// node www/serve.mjs: serves the demo site, the package and local models. `--help` explains the options.

import { parseArgs } from "node:util";

import { fetchModels, folderOfModels, ROOT } from "./server/fetch.mjs";
import { Handler } from "./server/http.mjs";
import { Models } from "./server/models.mjs";
import { buildPackage, exportSite, Site } from "./server/site.mjs";

const HELP = `node www/serve.mjs [options]: serves the demo site

  --fetch          first fetch the two default models (all-MiniLM-L6-v2, SmolLM2-135M; 190 MB) into the model folder
  --models DIR     folder of models: GGUF files, and folders with config.json and *.safetensors (default: .models)
  --port N         default: 8080
  --host NAME      default: localhost; anything else is no secure context without https, so it has no WebGPU
  --package DIR    the built npm package (default: web/dist, built by web/build if it is missing)
  --export DIR     write the site with the package into DIR, for any static web server, and end
  --help`;

function options() {
    const known = {
        fetch: { type: "boolean" },
        models: { type: "string" },
        port: { type: "string" },
        host: { type: "string", default: "localhost" },
        package: { type: "string" },
        export: { type: "string" },
        help: { type: "boolean" },
    };
    const { values } = parseArgs({ options: known });
    const port = Number(values.port ?? 8080);
    if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error(`--port ${values.port}: expected 0 to 65535`);
    return { ...values, port };
}

async function main() {
    const given = options();
    if (given.help) return console.log(HELP);
    const packed = given.package ?? (await buildPackage(ROOT));
    const folder = given.models ?? folderOfModels();
    if (given.fetch) await fetchModels(folder);

    const site = await Site.open(packed);
    if (given.export) {
        await exportSite(site, given.export);
        return console.log(`the site is in ${given.export}`);
    }
    const models = new Models(folder, { required: given.models !== undefined });
    const found = await models.list();
    const server = await new Handler(site, models).listen(given.port, given.host);
    for (const model of found) console.log(`model  ${model.id}  ${(model.bytes / 1e6).toFixed(0)} MB`);
    if (found.length === 0) console.log(`no models in ${folder}: --fetch gets the default ones`);
    console.log(`http://${given.host}:${server.address().port}/`);
}

main().catch((error) => {
    console.error(`serve: ${error.message}`);
    process.exitCode = 1;
});
