// How far a load has come, told about ten times a second.

const INTERVAL = 100;
/** The speed is that of so many last milliseconds. */
const WINDOW = 3000;

/** Tells a listener about one phase at a time. */
export class Progress {
    #phase = "";
    #bytes = 0;
    #total = 0;
    #told = 0;
    /** @type {[number, number][]} times and bytes */
    #samples = [];

    /** @param {(event: object) => void} tell */
    constructor(tell) {
        this.tell = tell;
    }

    /** @param {"download" | "verify" | "upload" | "compile"} phase */
    begin(phase, total = 0, bytes = 0) {
        this.#phase = phase;
        this.#total = total;
        this.#bytes = bytes;
        this.#samples = [[performance.now(), bytes]];
        this.#send();
    }

    /** More to do than was known. */
    expect(bytes) {
        this.#total += bytes;
    }

    add(bytes) {
        this.set(this.#bytes + bytes);
    }

    set(bytes, total = this.#total) {
        this.#bytes = bytes;
        this.#total = total;
        const now = performance.now();
        if (now - this.#told < INTERVAL) return;
        this.#samples.push([now, bytes]);
        while (this.#samples.length > 2 && now - this.#samples[0][0] > WINDOW) this.#samples.shift();
        this.#send(now);
    }

    /** All of it is done. */
    end() {
        // Files of unknown length count in bytes alone.
        this.#bytes = this.#total = Math.max(this.#total, this.#bytes);
        this.#send();
    }

    #send(now = performance.now()) {
        this.#told = now;
        const [[then, before]] = this.#samples;
        const seconds = (now - then) / 1000;
        const speed = seconds > 0 ? Math.max(0, this.#bytes - before) / seconds : 0;
        this.tell({
            phase: this.#phase,
            bytes: this.#bytes,
            total: Math.max(this.#total, this.#bytes),
            speed,
        });
    }
}
