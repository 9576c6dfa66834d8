// Numbers for people.

const whole = new Intl.NumberFormat("en");

/** 12,345 */
export const count = (n) => whole.format(Math.round(n));

/** Bytes in decimal units, three digits or so. */
export function bytes(n) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let at = 0;
    while (n >= 1000 && at < units.length - 1) {
        n /= 1000;
        at += 1;
    }
    return `${at > 0 && n < 99.95 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

/** Bytes in binary units where they come out even, as limits do: 134217728 is 128 MiB. */
export function binary(n) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    while (n >= 1024 && at < units.length - 1) {
        n /= 1024;
        at += 1;
    }
    return `${Number.isInteger(n) ? count(n) : n.toFixed(n < 10 ? 2 : 1)} ${units[at]}`;
}

export function milliseconds(ms) {
    if (ms < 10) return `${ms.toFixed(1)} ms`;
    return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
}

export function seconds(s) {
    if (!Number.isFinite(s)) return "";
    if (s < 60) return `${Math.max(1, Math.round(s))} s`;
    const minutes = Math.round(s / 60);
    return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A rate with about three digits. */
export const rate = (n) => (n < 10 ? n.toFixed(1) : count(n));

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
