// Sections of a report: the values of fusionscope/words/section.py.

/** @param {[string, string?][]} spans */
function spansOf(spans) {
  return spans.map(([text, tone]) => make(tone === "strong" ? "b" : "span", tone ? { class: tone } : {}, text));
}

/** @param {string} word  of a command, as a shell takes it */
function quoted(word) {
  return /^[\w@%+=:,.\/-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** @param {any} line */
function lineOf({ spans, is_command: isCommand }) {
  if (!isCommand) return make("div", {}, spansOf(spans));
  return make("code", {}, spans.map((/** @type {[string]} */ [word]) => quoted(word)).join(" "));
}

/** @param {any} entry @param {(pair: {producer: string, consumer: string}) => void} choose */
function entryOf({ label, name = [], figures = [], lines = [], pairs = [] }, choose) {
  const words = figures.filter(Boolean).join(", ");
  return make("li", {}, make("span", { class: "quiet" }, `${label} `), spansOf(name), words ? ` ${words}` : null, ...lines.map(lineOf),
    make("div", { class: "passes" }, ...pairs.slice(0, 4).map((/** @type {[string, string]} */ [producer, consumer]) =>
      make("button", { onclick: () => choose({ producer, consumer }) }, `${shorten(producer, 40)} → ${shorten(consumer, 40)}`))));
}

/** @param {any} table */
function tableOf({ columns, rows }) {
  const cells = (/** @type {string} */ tag, /** @type {any[]} */ row) => make("tr", {}, ...row.map((cell, place) =>
    make(tag, { class: columns[place].is_number ? "number" : null }, typeof cell === "string" ? cell : spansOf([cell]))));
  return make("table", {}, make("thead", {}, cells("th", columns.map((/** @type {any} */ column) => column.title))),
    make("tbody", {}, ...rows.map((/** @type {any[]} */ row) => cells("td", row))));
}

/** @param {any} plot */
function plotOf({ caption, bytes }) {
  const [wide, high] = [1000, 120];
  const most = Math.max(...bytes, 1);
  const points = bytes.map((/** @type {number} */ value, /** @type {number} */ place) =>
    `H${(place * wide / bytes.length).toFixed(1)} V${(high - (value / most) * high).toFixed(1)}`).join(" ");
  return draw("svg", { viewBox: `0 0 ${wide} ${high}`, width: "100%", height: high, preserveAspectRatio: "none", role: "img", "aria-label": `${caption}, at most ${size(most)}` },
    draw("path", { class: "area", d: `M0,${high} ${points} H${wide} V${high} Z` }));
}

/** @param {any} block @param {(pair: {producer: string, consumer: string}) => void} choose @returns {Element[]} */
function blockOf(block, choose) {
  const hidden = block.hidden ? [make("p", { class: "quiet" }, `… and ${count(block.hidden)} more`)] : [];
  switch (block.type) {
    case "lines": return block.lines.map((/** @type {any} */ line) => make("p", {}, lineOf(line)));
    case "entries": return [make("ul", { class: "entries" }, ...block.entries.map((/** @type {any} */ entry) => entryOf(entry, choose))), ...hidden];
    case "table": return [make("div", { class: "scroll", tabindex: "0" }, tableOf(block)), ...hidden];
    default: return block.bytes.length ? [plotOf(block)] : [];
  }
}

/** @param {any} section @param {string} id @param {(pair: {producer: string, consumer: string}) => void} choose */
function sectionOf({ title = "", summary = [], blocks = [], is_minor: isMinor = false }, id, choose) {
  const content = blocks.flatMap((/** @type {any} */ block) => blockOf(block, choose));
  const words = summary.length ? [make("p", {}, spansOf(summary))] : [];
  if (isMinor) return make("section", { class: "card" }, make("details", {}, make("summary", {}, title), ...words, ...content));
  return make("section", { class: "card", "aria-labelledby": id }, make("h2", { id }, title), ...words, ...content);
}
