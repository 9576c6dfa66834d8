// Texts into paragraphs of a size that embeds well. Long ones are cut between sentences, and the pieces overlap, so
// that what is said across a cut is found too.

/** Characters: about 200 tokens, within every embedding model's limit. */
const MOST = 800;
const OVERLAP = 150;
/** Shorter ones, such as headings, are joined with what follows. */
const LEAST = 60;

/** Sentences of a paragraph; nothing of it is lost. */
export function sentences(text) {
    const found = text.match(/[^.!?。！？]+(?:[.!?。！？]+["'”’)\]]*\s*|$)|[.!?。！？]+\s*/g) ?? [];
    return found.filter((sentence) => sentence.trim());
}

/** A sentence that is too long by itself, cut between words. */
function* cut(sentence) {
    while (sentence.length > MOST) {
        const space = sentence.lastIndexOf(" ", MOST);
        const end = space > MOST / 2 ? space + 1 : MOST;
        yield sentence.slice(0, end);
        sentence = sentence.slice(end);
    }
    yield sentence;
}

/** The pieces of one paragraph. */
function* pieces(paragraph) {
    if (paragraph.length <= MOST) {
        yield paragraph;
        return;
    }
    let piece = "";
    let fresh = false;
    for (const sentence of sentences(paragraph).flatMap((whole) => [...cut(whole)])) {
        if (fresh && piece.length + sentence.length > MOST) {
            yield piece.trim();
            // The last words again, from the beginning of one.
            const tail = piece.slice(-OVERLAP);
            piece = tail.slice(tail.indexOf(" ") + 1);
            if (piece.length + sentence.length > MOST) piece = "";
            fresh = false;
        }
        piece += sentence;
        fresh = true;
    }
    if (fresh) yield piece.trim();
}

/**
 * @param {string} text
 * @returns {string[]}
 */
export function split(text) {
    const found = [];
    let waiting = "";
    for (const raw of text.replace(/\r\n?/g, "\n").split(/\n\s*\n/)) {
        const paragraph = raw.replace(/\s+/g, " ").trim();
        if (!paragraph) continue;
        const whole = waiting ? `${waiting} ${paragraph}` : paragraph;
        if (whole.length < LEAST) {
            waiting = whole;
            continue;
        }
        waiting = "";
        found.push(...pieces(whole));
    }
    if (waiting) found.push(waiting);
    return found;
}
