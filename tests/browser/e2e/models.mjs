// Models for tests of downloads: the tiny ones, made as large as is needed.

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { FIXTURES } from "./harness.mjs";

/** A safetensors file with a tensor of so many bytes that no model uses. */
export function padded(path, bytes) {
    const file = readFileSync(join(FIXTURES, path));
    const length = Number(file.readBigUInt64LE(0));
    const header = JSON.parse(file.subarray(8, 8 + length).toString());
    const end = file.length - 8 - length;
    header.unused = { dtype: "F32", shape: [bytes / 4], data_offsets: [end, end + bytes] };
    let text = JSON.stringify(header);
    text = text.padEnd(Math.ceil(text.length / 8) * 8);
    const head = Buffer.alloc(8);
    head.writeBigUInt64LE(BigInt(text.length));
    const padding = Buffer.alloc(bytes);
    for (let i = 0; i < bytes; i += 4) padding.writeUInt32LE((i * 2654435761) >>> 0, i);
    return Buffer.concat([head, Buffer.from(text), file.subarray(8 + length), padding]);
}

/** Mounts a BERT whose weights have about so many bytes; returns their number. */
export function mountLarge(server, path, bytes) {
    const weights = padded("bert/model.safetensors", bytes);
    server.mount(path, join(FIXTURES, "bert") + "/").mount(`${path}model.safetensors`, weights);
    return weights;
}
