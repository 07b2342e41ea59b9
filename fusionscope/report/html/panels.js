// The parts of the page that only show: tiles, rules, source.

/** @param {any} module @param {any} other  the same in the dump before, or null */
function tiles(module, other) {
  const { summary, memory } = module;
  if (other) return bothTiles(module, other);
  const [time, before] = [summary.time?.microseconds ?? null, summary.time_before?.microseconds ?? null];
  const tile = (/** @type {string} */ title, /** @type {string} */ value, /** @type {string} */ more) =>
    make("div", { class: "tile" }, make("span", { class: "quiet" }, title), make("b", {}, value), make("span", { class: "quiet" }, more));
  return make("div", { class: "tiles" },
    time === null ? null : tile("estimated time", duration(time), [atBest(summary.at_best_us), before === null ? "" : `unfused ${duration(before)}`].filter(Boolean).join(", ")),
    tile("launches", count(summary.launches), `unfused ${count(summary.launches_before)}`),
    tile("bytes moved", size(summary.bytes_moved), `unfused ${size(summary.bytes_before)}`),
    memory?.peak_bytes ? tile("peak of memory", size(memory.peak_bytes), `at ${shorten(memory.peak_instruction ?? "", 40)}`) : null,
    tile("pairs not fused", count(summary.outcomes["not-fused"] ?? 0), `${count(module.pairs.length)} ${module.pairs.length === 1 ? "pair" : "pairs"}`));
}

/** @param {number} was @param {number} is */
function changeInPercent(was, is) {
  const share = Math.abs(100 * (is / was - 1));
  if (share < 0.01) return "±0%";
  return `${is > was ? "+" : "−"}${share < 9.95 ? Number(share.toPrecision(2)) : count(Math.round(share))}%`;
}

/** @param {any} now @param {any} before */
function bothTiles(now, before) {
  const tile = (/** @type {string} */ title, /** @type {(module: any) => number | null | undefined} */ of, /** @type {(value: number) => string} */ words) => {
    const [was, is] = [of(before), of(now)];
    if (was === null || was === undefined || is === null || is === undefined) return null;
    const change = was === is ? "the same" : was ? changeInPercent(was, is) : "";
    return make("div", { class: "tile" }, make("span", { class: "quiet" }, title), make("b", {}, `${words(was)} → ${words(is)}`),
      make("span", { class: "quiet" }, change));
  };
  return make("div", { class: "tiles" },
    tile("estimated time", ({ summary }) => summary.time?.microseconds, duration),
    tile("launches", ({ summary }) => summary.launches, count),
    tile("bytes moved", ({ summary }) => summary.bytes_moved, size),
    tile("peak of memory", ({ memory }) => memory?.peak_bytes, size),
    tile("pairs not fused", ({ summary }) => summary.outcomes["not-fused"] ?? 0, count));
}

/** What a kernel takes of the GPU, each with its title. @param {any} kernel @returns {[string, string][]} */
function resourcesOf({ resources, runs }) {
  if (!resources) return [];
  const { registers, shared_bytes: shared, spill_store_bytes: stored, spill_load_bytes: loaded, blocks, threads_per_block: threads } = resources;
  const spilled = (stored + loaded) * blocks * threads * runs;
  return [
    ["registers", count(registers)],
    ["spills", spilled ? `${size(spilled)}: each thread stores ${count(stored)} bytes and loads ${count(loaded)}` : "none"],
    ["shared memory", shared === null ? "unknown" : shared ? `${size(shared)} a block` : "none"],
    ["blocks", `${count(blocks)} of ${count(threads)} ${threads === 1 ? "thread" : "threads"}`],
    ["occupancy", resources.occupancy === null ? "unknown" : `${Number((100 * resources.occupancy).toPrecision(3))}%, limited by ${resources.occupancy_limit}`],
  ];
}

/** @param {string} id */
function openRule(id) {
  const page = /** @type {HTMLDetailsElement | null} */ (document.getElementById(`rule-${id}`));
  if (!page) return;
  page.open = true;
  page.querySelector("summary")?.focus();
  page.scrollIntoView();
}

/** @param {any[]} rules */
function rulePages(rules) {
  return make("section", { class: "card", "aria-labelledby": "rules" }, make("h2", { id: "rules" }, "Rules that refused"),
    ...rules.map((rule) => make("details", { id: `rule-${rule.id}` },
      make("summary", {}, make("code", {}, rule.id), ` ${rule.title ?? ""}`),
      make("p", {}, rule.what), rule.why ? make("p", {}, `Because ${rule.why}.`) : null,
      rule.try ? make("p", {}, `You can ${rule.try}.`) : null, make("p", { class: "quiet" }, `${rule.pass}; ${rule.source}`))));
}

/**
 * What comes from each line of the program.
 * @param {any} module @returns {Map<string, {pairs: number, refused: number, bytes: number, kernels: number, us: number}>}
 */
function costsByLine(module) {
  /** @type {ReturnType<typeof costsByLine>} */
  const found = new Map();
  const at = (/** @type {string} */ place) => {
    let own = found.get(place);
    if (!own) found.set(place, own = { pairs: 0, refused: 0, bytes: 0, kernels: 0, us: 0 });
    return own;
  };
  for (const pair of module.pairs) {
    const { producer, consumer } = pair.source;
    for (const place of new Set([producer, consumer])) if (place) at(place).pairs += 1;
    const place = producer ?? consumer;
    if (!place || pair.outcome !== "not-fused") continue;
    at(place).refused += 1;
    at(place).bytes += pair.bytes_saved;
  }
  for (const kernel of module.kernels) {
    if (!kernel.source) continue;
    at(kernel.source).kernels += 1;
    at(kernel.source).us += (kernel.time_ns ?? 0) * kernel.runs / 1000;
  }
  return found;
}

/** @param {NonNullable<ReturnType<ReturnType<typeof costsByLine>["get"]>>} cost */
function costWords({ refused, bytes, kernels, us }) {
  const kernel = kernels && `${count(kernels)} ${kernels === 1 ? "kernel" : "kernels"}${us ? `, ${duration(us)}` : ""}`;
  return [kernel, refused && `${count(refused)} not fused, ${size(bytes)}`].filter(Boolean).join("; ");
}

/** @param {any[]} sources @param {ReturnType<typeof costsByLine>} costs @param {(place: string) => void} choose */
function sourceLines(sources, costs, choose) {
  if (!sources.length) return null;
  return make("section", { class: "card", "aria-labelledby": "source" }, make("h2", { id: "source" }, "Source"),
    ...sources.map((each) => make("details", { open: sources.length < 4 }, make("summary", {}, `${each.file}:${each.first}`),
      make("div", { class: "lines code", tabindex: 0, role: "region", "aria-label": `${each.file}:${each.first}` },
        ...each.lines.map((/** @type {string} */ line, /** @type {number} */ place) => {
          const where = `${each.file}:${each.first + place}`;
          const cost = costs.get(where);
          const text = `${String(each.first + place).padStart(5)}  ${shorten(line, 300)}`;
          if (!cost) return make("div", {}, text);
          const words = costWords(cost);
          return make("div", { class: "used", role: "button", tabindex: 0, title: `${count(cost.pairs)} ${cost.pairs === 1 ? "pair" : "pairs"}`, onclick: () => choose(where),
            onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") choose(where); } },
          text, words ? make("span", { class: "quiet" }, `   ${words}`) : null);
        })))));
}
