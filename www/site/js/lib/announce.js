// What screen readers are told. Streamed text is told in whole sentences, a few seconds apart.

const PAUSE = 4000;

const region = () => document.getElementById("live");

/** @param {string} text */
export function announce(text) {
    const target = region();
    const line = document.createElement("p");
    line.textContent = text;
    target.append(line);
    // Old lines are of no use; those just told may still be read out.
    while (target.childElementCount > 3) target.firstElementChild.remove();
}

/** Tells a text while it grows. */
export class Narrator {
    #told = 0;
    #last = performance.now();

    /** @param {string} text all of it so far */
    grow(text) {
        if (performance.now() - this.#last < PAUSE) return;
        const end = Math.max(...[". ", "! ", "? ", "\n", ": "].map((mark) => text.lastIndexOf(mark) + 1));
        if (end > this.#told) this.#tell(text.slice(this.#told, end), end);
    }

    /** @param {string} text all of it */
    end(text, after) {
        this.#tell(`${text.slice(this.#told)} ${after}`, text.length);
    }

    #tell(text, end) {
        this.#told = end;
        this.#last = performance.now();
        announce(text.replace(/```[^]*?(```|$)/g, " code. ").replace(/[*_`#>]/g, "").trim());
    }
}
