// What is shown. It is in the address, so that a link leads back to it.

/** @typedef {{module: number, pair: number | null, kernel: string | null, radius: number,
 *   stage: number | null, query: string, by: string}} State */

/** @returns {State} */
function readState() {
  const words = new URLSearchParams(location.hash.slice(1));
  const number = (/** @type {string} */ name) => {
    const text = words.get(name);
    return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;
  };
  return {
    module: number("module") ?? 0,
    pair: number("pair"),
    kernel: words.get("kernel"),
    radius: Math.min(4, Math.max(1, number("radius") ?? 1)),
    stage: number("stage"),
    query: words.get("query") ?? "",
    by: words.get("by") ?? "",
  };
}

/** @param {State} state */
function writeState(state) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(state)) {
    if (value !== null && value !== "") words.set(name, String(value));
  }
  history.replaceState(null, "", `#${words}`);
}
