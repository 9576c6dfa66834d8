// Turns for the browser between pieces of work, so that none of them keeps the page waiting.

/** @returns {Promise<void>} in a task of its own */
export const turn = () =>
    "scheduler" in globalThis && "yield" in globalThis.scheduler ? globalThis.scheduler.yield() : new Promise((resolve) => setTimeout(resolve));
