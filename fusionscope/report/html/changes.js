// What differs between two dumps, the worst first.

const MOST_FIELDS = 3; // of an instruction: the configuration of a kernel has dozens

/** @param {any} pair */
function endsOf(pair) {
  return `${pair.producer.name} → ${pair.consumer.name}`;
}

/** @param {any} pair */
function outcomeAndReason(pair) {
  return pair.reason ? `${pair.outcome}, ${pair.reason}` : pair.outcome;
}

/** The name of the pass that a stage is after. @param {string | null} stage */
function passOf(stage) {
  const found = /\.after_(.+?)(?:\.before_|$)/.exec(stage ?? "");
  return found ? found[1] : stage ?? "";
}

/** @param {number} bytes */
function signed(bytes) {
  return `${bytes < 0 ? "−" : "+"}${size(Math.abs(bytes))}`;
}

/** @param {any} module  of `diff` @param {(pair: any) => void} choose */
function moduleChanges(module, choose) {
  const { first_divergence: divergence, memory } = module;
  const lines = [...texts(module.header), ...texts(module.flags, "flag ")];
  if (divergence) {
    const passes = [...new Set([divergence.before, divergence.after].filter(Boolean).map(passOf))].join(", ");
    const same = divergence.last_same ? `the same up to ${passOf(divergence.last_same)}; ` : "";
    lines.push(passes ? `${same}first difference after ${passes}` : "the same in every stage but for annotations");
  }
  const outcomes = module.outcomes.map((/** @type {any} */ each) => make("tr", {},
    make("td", {}, make("button", { onclick: () => choose(each.after) }, shorten(endsOf(each.after), 80)),
      each.count > 1 ? ` ×${count(each.count)}` : ""),
    make("td", { class: each.before.outcome === "not-fused" ? "refused" : "" }, outcomeAndReason(each.before)),
    make("td", { class: each.after.outcome === "not-fused" ? "refused" : "" }, outcomeAndReason(each.after)),
    make("td", { class: "number" }, size(each.count * Math.max(each.before.bytes_saved, each.after.bytes_saved)))));
  const names = (/** @type {any[]} */ side) => side.map((each) => each.name).join(", ");
  const fusions = module.fusions.map((/** @type {any} */ each) => make("tr", {},
    make("td", {}, each.kind + (each.count > 1 ? ` ×${count(each.count)}` : "")),
    make("td", {}, shorten(names(each.before), 90)), make("td", {}, shorten(names(each.after), 90)),
    make("td", { class: "quiet" }, [...new Set([...each.passes.before, ...each.passes.after])].join(", "))));
  const buffers = (memory?.buffers ?? []).slice(0, 8).map((/** @type {any} */ each) =>
    make("li", {}, [signed(each.bytes_after - each.bytes_before), each.name, each.cause, each.reason, fileAndLine(each.source)].filter(Boolean).join(", ")));
  const edits = module.edits.slice(0, 20).map((/** @type {any} */ each) => {
    const at = each.after ?? each.before;
    const fields = Object.entries(each.fields).map(([name, [was, is]]) => `${name} ${shorten(was, 60) || "none"} → ${shorten(is, 60) || "none"}`);
    return make("li", {}, `${each.kind} ${at?.opcode ?? ""} ${shorten(at?.name ?? "", 60)}${each.count > 1 ? ` ×${count(each.count)}` : ""}`,
      fields.length ? `: ${fields.slice(0, MOST_FIELDS).join(", ")}` : "",
      fields.length > MOST_FIELDS ? `, and ${count(fields.length - MOST_FIELDS)} more` : "");
  });
  return [
    ...lines.map((line) => make("p", {}, line)),
    ...changeTable("Pairs that ended otherwise", ["pair", "before", "now", "bytes"], outcomes),
    ...changeTable("Fusions", ["what", "before", "now", "passes"], fusions),
    ...changeList("Memory at the peak", buffers), ...changeList("Instructions", edits),
  ];
}

/** @param {Record<string, string[]>} fields @param {string} [begin] */
function texts(fields, begin = "") {
  return Object.entries(fields).map(([name, [was, is]]) =>
    `${begin}${name}: ${shorten(was, 120) || "not set"} → ${shorten(is, 120) || "not set"}`);
}

/** @param {string} title @param {string[]} heads @param {HTMLElement[]} rows */
function changeTable(title, heads, rows) {
  if (!rows.length) return [];
  return [make("h3", {}, `${title} (${count(rows.length)})`),
    make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": title }, make("table", {},
      make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...rows)))];
}

/** @param {string} title @param {HTMLElement[]} items */
function changeList(title, items) {
  return items.length ? [make("h3", {}, title), make("ul", {}, ...items)] : [];
}

/**
 * @param {any} difference  the document of `diff` @param {any} module  the one that is shown, or undefined
 * @param {(pair: any) => void} choose
 */
function changes(difference, module, choose) {
  const others = (/** @type {string} */ words, /** @type {string[]} */ names) =>
    names.length ? [make("p", { class: "quiet" }, `${words}: ${shorten(names.join(", "), 200)}`)] : [];
  return make("section", { class: "card", "aria-labelledby": "changes" }, make("h2", { id: "changes" }, "What changed"),
    ...(module ? moduleChanges(module, choose) : [make("p", {}, "Nothing but names, metadata, notation and order.")]),
    ...others("the same in both", difference.same), ...others("only before", difference.only_before),
    ...others("only now", difference.only_after));
}
