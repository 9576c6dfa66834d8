// What a GGUF file says about itself: name and licence, from the first metadata of its header.

import { open } from "node:fs/promises";

const MOST = 1 << 16;
const STRING = 8;
/** Bytes of values by type: u8, i8, u16, i16, u32, i32, f32, bool, string, array, u64, i64, f64. */
const WIDTHS = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];

/**
 * The texts among a file's metadata, up to its first array: writers put those about the whole model first.
 * @param {string} path
 * @returns {Promise<Record<string, string>>} empty if this is no GGUF file
 */
export async function texts(path) {
    const file = await open(path);
    try {
        const { buffer, bytesRead } = await file.read(Buffer.alloc(MOST), 0, MOST, 0);
        return parse(buffer.subarray(0, bytesRead));
    } finally {
        await file.close();
    }
}

/** @param {Buffer} bytes the beginning of a file */
export function parse(bytes) {
    const found = {};
    if (bytes.length < 24 || bytes.toString("latin1", 0, 4) !== "GGUF") return found;
    const count = Number(bytes.readBigUInt64LE(16));
    let at = 24;
    const text = () => {
        if (at + 8 > bytes.length) return null;
        const length = Number(bytes.readBigUInt64LE(at));
        if (at + 8 + length > bytes.length) return null;
        at += 8 + length;
        return bytes.toString("utf8", at - length, at);
    };
    for (let i = 0; i < count; i++) {
        const key = text();
        if (key === null || at + 4 > bytes.length) break;
        const type = bytes.readUInt32LE(at);
        at += 4;
        if (type === STRING) {
            const value = text();
            if (value === null) break;
            found[key] = value;
        } else if (WIDTHS[type]) {
            at += WIDTHS[type];
        } else {
            break;
        }
    }
    return found;
}
