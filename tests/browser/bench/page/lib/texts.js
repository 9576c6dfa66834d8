// Texts of exactly so many tokens.

/** Words that tokenizers of English keep whole. */
const WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem " +
    "hand part place case week company system program question work government number night point home water room " +
    "mother area money story fact month lot right study book eye job word business issue side kind head house " +
    "service friend father power hour game line end member law car city name president team minute idea body " +
    "information back parent face others level office door health person art war history party result change " +
    "morning reason research girl guy moment air teacher force education"
).split(" ");

/**
 * `count` different texts of exactly `tokens` tokens, special tokens included; the same for every engine that
 * tokenizes alike.
 * @param {(text: string) => Promise<ArrayLike<number>>} tokenize
 */
export async function texts(tokenize, count, tokens) {
    const made = [];
    let seed = tokens;
    const word = () => WORDS[(seed = (seed * 48271) % 2147483647) % WORDS.length];
    for (let at = 0; at < count; at++) {
        const words = Array.from({ length: tokens }, word);
        for (;;) {
            const { length } = await tokenize(words.join(" "));
            if (length === tokens) break;
            if (length > tokens) words.splice(words.length - Math.max(1, (length - tokens) >> 1));
            else words.push("time");
            if (words.length === 0) throw new Error(`no text has ${tokens} tokens`);
        }
        made.push(words.join(" "));
    }
    if (new Set(made).size < count) throw new Error(`texts of ${tokens} tokens are not different`);
    return made;
}

/** So many words, each a token or little more; `salt` makes another text, which begins differently. */
export function words(count, salt = 0) {
    let seed = salt + 1;
    for (let i = 0; i < 5; i++) seed = (seed * 48271) % 2147483647;
    const word = () => WORDS[(seed = (seed * 48271) % 2147483647) % WORDS.length];
    return Array.from({ length: count }, word).join(" ");
}

/**
 * Ids of a prompt, those of the other benches' peers; `salt` makes another prompt, which shares no beginning.
 * @param {number} length
 * @param {number} vocabulary
 */
export function promptIds(length, vocabulary, salt = 0) {
    const from = vocabulary > 2000 ? 1000 : 0;
    const range = Math.min(20000, vocabulary - from);
    return Array.from({ length }, (_, i) => from + (((i + salt * 131) * 7919) % range));
}
