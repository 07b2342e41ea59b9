// Where time, launches, bytes and spills go, by scope: each row splits the one above it.

/** @type {Record<string, {title: string, words: (value: number) => string}>} */
const MEASURES = {
  time_us: { title: "time", words: duration },
  bytes_moved: { title: "bytes", words: size },
  launches: { title: "launches", words: count },
  refused_bytes: { title: "not fused", words: size },
  spill_bytes: { title: "spills", words: size },
};

/** Those that `rows` know. @param {any[]} rows */
function measuresOf(rows) {
  return Object.keys(MEASURES).filter((name) => name !== "spill_bytes" || rows.some((row) => row.spill_bytes !== null));
}

/**
 * @param {any[]} rows  of `breakdown`, each followed by those below it
 * @param {string} measure
 * @param {(path: string[]) => void} choose
 */
function flame(rows, measure, choose) {
  const { words } = MEASURES[measure];
  const value = (/** @type {any} */ row) => row[measure] || 0;
  const total = rows.filter((row) => row.path.length === 1).reduce((sum, row) => sum + value(row), 0);
  const element = make("div", { class: "flame", role: "list", "aria-label": `${MEASURES[measure].title} by scope` });
  const next = [0]; // where the next one begins, by depth
  let deepest = 0;
  for (const row of rows) {
    const depth = row.path.length;
    const left = next[depth - 1];
    const width = total ? value(row) / total : 0;
    next[depth - 1] = left + width;
    next[depth] = left;
    if (width < 0.002 || depth > 12) continue;
    deepest = Math.max(deepest, depth);
    const name = row.path[depth - 1];
    const best = measure === "time_us" ? row.at_best_us : null;
    const share = [`${name}: ${words(value(row))}`, `${Math.round(100 * width)}%`, atBest(best)].filter(Boolean).join(", ");
    const part = make("button", { title: share, "aria-label": share, onclick: () => choose(row.path) }, width > 0.04 ? name : "");
    drawBar(part, 1, best === null ? null : best / value(row));
    part.style.left = `${100 * left}%`;
    part.style.width = `${100 * width}%`;
    part.style.top = `${(depth - 1) * 28}px`;
    element.append(make("div", { role: "listitem" }, part));
  }
  element.style.height = `${deepest * 28}px`;
  if (total) return element;
  return make("p", { class: "quiet" }, measure === "spill_bytes" ? "no kernel spills" : "nothing of this is known");
}
