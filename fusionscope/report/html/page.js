// The page: reads its data, builds the sections, and ties them together by one state.

/** @param {any} pair */
function endsOf(pair) {
  return `${pair.producer.name} → ${pair.consumer.name}`;
}

/** @param {any} pair */
function outcomeAndReason(pair) {
  return pair.reason ? `${pair.outcome}, ${pair.reason}` : pair.outcome;
}

/** @returns {Promise<any>} */
async function readData() {
  const packed = atob(document.getElementById("data")?.textContent ?? "");
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(unpacked).text());
}

/** @param {any} data */
function showPage(data) {
  const state = readState();
  const { modules } = data.now.explanation;
  if (state.module >= modules.length) state.module = 0;
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  const module = modules[state.module];
  const sides = [data.before, data.now].filter(Boolean).map((side) => {
    const own = side.explanation.modules[state.module];
    const picture = side.pictures[state.module];
    return { module: own, picture: picture && readPicture(picture, own), box: make("div", {
      class: "picture", tabindex: 0, role: "region",
      "aria-label": `graph of the neighbourhood${data.before ? (side === data.now ? ", now" : ", before") : ""}`,
    }) };
  });
  const now = sides[sides.length - 1];
  const before = sides.length > 1 ? sides[0] : null;
  const { picture } = now;

  /** @type {Map<string, string>} */
  const outcomes = new Map(data.difference?.modules[state.module]?.outcomes
    .map((/** @type {any} */ each) => [endsOf(each.after), outcomeAndReason(each.before)]));
  const table = pairTable(module.pairs, (number) => set({ pair: number, kernel: null, stage: null }), outcomeBefore);
  const search = /** @type {HTMLInputElement} */ (make("input", {
    type: "search", placeholder: "outcome, reason, name, opcode, scope, file …", "aria-label": "filter pairs",
    oninput: () => set({ query: search.value }),
  }));
  const flameBox = make("div");
  const rows = module.breakdown?.rows ?? [];
  const measures = measuresOf(rows).map((name) =>
    make("button", { "data-by": name, onclick: () => set({ by: name }) }, MEASURES[name].title));
  const whole = picture && overview(picture, module, (kernel) => set({ kernel: kernel.name, pair: null, stage: null }));
  const kernelBox = make("div");
  const passBox = make("div", { class: "passes" });
  const facts = make("div", { "aria-live": "polite" });
  const slider = /** @type {HTMLInputElement} */ (make("input", {
    type: "range", min: 0, "aria-label": "pass", oninput: () => set({ stage: Number(slider.value) }),
  }));
  const radius = make("select", { "aria-label": "radius", onchange: (/** @type {any} */ event) => set({ radius: Number(event.target.value), stage: null }) },
    ...[1, 2, 3, 4].map((each) => make("option", { value: each, selected: each === state.radius }, `radius ${each}`)));
  /** The outcome of a pair in the other dump, if it is another. @param {any} pair */
  function outcomeBefore(pair) {
    return outcomes.get(endsOf(pair)) ?? null;
  }

  /** @param {Partial<State>} change */
  function set(change) {
    Object.assign(state, change);
    writeState(state);
    update(change);
  }

  /** @param {Partial<State>} change */
  function update(change) {
    if ("query" in change) table.filter(state.query);
    if ("query" in change || "kernel" in change || "pair" in change) showKernels();
    if ("by" in change) {
      const by = measures.some((each) => each.dataset.by === state.by) ? state.by : module.summary.time ? "time_us" : "bytes_moved";
      measures.forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.by === by)));
      flameBox.replaceChildren(flame(rows, by, (path) => {
        search.value = path[path.length - 1];
        set({ query: search.value });
      }));
    }
    if ("pair" in change || "kernel" in change || "radius" in change || "stage" in change) {
      table.select(state.pair);
      showGraph(!("pair" in change || "kernel" in change || "radius" in change));
    }
  }

  function chosenNodes() {
    if (state.pair !== null && state.pair < module.pairs.length) {
      return picture.pairs.slice(2 * state.pair, 2 * state.pair + 2).filter((/** @type {number} */ node) => node >= 0);
    }
    const kernel = module.kernels.findIndex((/** @type {any} */ each) => each.name === state.kernel);
    const number = kernel < 0 ? -1 : picture.kernels[kernel];
    const final = contents(picture, picture.stages.length - 1, picture.placesOf.keys());
    return [...final.kernels].filter(([, own]) => own.has(number)).map(([node]) => node);
  }

  /** The final kernel that has the first of these operations. @param {number[]} nodes */
  function kernelWith(nodes) {
    const own = contents(picture, picture.stages.length - 1, nodes.slice(0, 1)).kernels.get(nodes[0]);
    const number = picture.kernels.findIndex((/** @type {number} */ each) => own?.has(each));
    return number < 0 ? null : module.kernels[number].name;
  }

  /** @param {boolean} isStep  of the slider: what one looks at stays where it is */
  function showGraph(isStep) {
    facts.replaceChildren(...describe());
    if (!picture) return now.box.replaceChildren(make("p", {}, "no stage of this module can be followed"));
    const chosen = chosenNodes();
    const chosenPair = state.pair === null ? null : module.pairs[state.pair];
    whole?.select(new Set(chosenPair ? [chosenPair.kernel, kernelWith(chosen)] : [state.kernel]));
    const pictures = sides.map((side) => side.picture);
    const nodes = neighbours(pictures, chosen, state.radius);
    const steps = stepsOf(pictures, new Set(nodes));
    const place = Math.min(state.stage ?? steps.length, steps.length - 1);
    slider.max = String(steps.length - 1);
    slider.value = String(place);
    const quiet = sides.map((side, number) =>
      side.picture.stages.length + side.picture.quiet - new Set(steps.map((step) => step.stages[number])).size);
    passBox.replaceChildren(...steps.map((step, number) => make("button", {
      "aria-pressed": number === place, title: step.label, onclick: () => set({ stage: number }),
    }, shorten(step.name, 44))),
    make("span", { class: "quiet" }, quiet.some(Boolean) ? `${quiet.map(count).join(" and ")} other stages changed nothing here` : ""));
    sides.forEach((side, number) => {
      const { svg, center, left } = neighbourhood(side.picture, side.module, nodes, chosen, steps[place].stages[number], steps[place].changed[number], (node) => {
        const pair = module.pairs.findIndex((/** @type {any} */ _, /** @type {number} */ each) =>
          picture.pairs[2 * each] === node || picture.pairs[2 * each + 1] === node);
        if (pair >= 0) set({ pair, kernel: null, stage: null });
      });
      side.box.replaceChildren(chosen.length ? svg : make("p", { class: "quiet" }, "not drawn: the graph has no such operation"));
      if (!isStep) side.box.scrollTo(center.x + WIDE / 2 - side.box.clientWidth / 2, center.y - side.box.clientHeight / 3);
      if (left) side.box.append(make("p", { class: "quiet" }, `${count(left)} operations further away are not drawn`));
    });
    if (before) {
      before.box.onscroll = () => now.box.scrollTo(before.box.scrollLeft, before.box.scrollTop);
      now.box.onscroll = () => before.box.scrollTo(now.box.scrollLeft, now.box.scrollTop);
    }
  }

  /** @returns {HTMLElement[]} */
  function describe() {
    const line = (/** @type {string} */ title, /** @type {any} */ value) =>
      value === null || value === undefined || value === "" ? [] : [make("dt", {}, title), make("dd", {}, String(value))];
    if (state.pair === null || state.pair >= module.pairs.length) {
      const kernel = module.kernels.find((/** @type {any} */ each) => each.name === state.kernel);
      return kernel ? [make("h2", {}, shorten(kernel.name, 80)), make("dl", {},
        ...line("kind", kernel.emitter ?? kernel.kind), ...line("runs", count(kernel.runs)),
        ...line("bytes", size(kernel.bytes_read + kernel.bytes_written)),
        ...line("time", kernel.time_ns === null ? null : duration(kernel.time_ns / 1000)),
        ...line("all runs at best", kernel.at_best_us === null ? null : duration(kernel.at_best_us)), ...line("limited by", kernel.limited_by), ...resourcesOf(kernel).flatMap((each) => line(...each)),
        ...line("source", kernel.source))] : [];
    }
    const pair = module.pairs[state.pair];
    const numbers = Object.entries(pair.numbers).map(([name, value]) => `${name} ${value}`).join(", ");
    return [make("h2", {}, shorten(`${pair.producer.name} → ${pair.consumer.name}`, 120)), make("dl", {},
      ...line("before", outcomeBefore(pair)), ...line("outcome", pair.outcome), ...line("kernel", pair.kernel), ...line("since", pair.stage),
      ...(pair.reason ? [make("dt", {}, "reason"), make("dd", {}, make("button", { onclick: () => openRule(pair.reason) }, pair.reason),
        ` ${module.summary.reasons[pair.reason]?.title ?? ""}`)] : []),
      ...line("the compiler", pair.message), ...line("numbers", numbers), ...line("evidence", pair.evidence),
      ...line("bytes", size(pair.bytes_saved)), ...line("producer", pair.producer.shape),
      ...line("scope", pair.producer.op_name), ...line("source", pair.source.producer))];
  }

  const choosePair = (/** @type {{producer: any, consumer: any}} */ { producer, consumer }) => {
    const number = module.pairs.findIndex((/** @type {any} */ pair) => pair.producer.name === producer && pair.consumer.name === consumer);
    if (number >= 0) set({ pair: number, kernel: null, stage: null });
  };
  const kernels = [...module.kernels].sort((a, b) => (b.time_ns ?? 0) * b.runs - (a.time_ns ?? 0) * a.runs
    || b.bytes_read + b.bytes_written - a.bytes_read - a.bytes_written);
  /** The heaviest kernels that have all words of the query. */
  function showKernels() {
    const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
    const texts = (/** @type {any} */ each) => [each.name, each.emitter, each.op_name, each.source, ...each.members].join(" ").toLowerCase();
    const found = kernels.filter((each) => words.every((word) => texts(each).includes(word)));
    kernelBox.replaceChildren(make("p", { class: "quiet" }, found.length > 12 ? `heaviest of ${count(found.length)} kernels` : "kernels"),
      kernelBars(found.slice(0, 12), state.kernel, (name) => set({ kernel: name, pair: null, stage: null })));
  }
  const switcher = make("select", { "aria-label": "module", onchange: (/** @type {any} */ event) => {
    writeState({ ...state, module: Number(event.target.value), pair: null, kernel: null, stage: null });
    showPage(data);
  } }, ...modules.map((/** @type {any} */ each, /** @type {number} */ place) =>
    make("option", { value: place, selected: place === state.module }, shorten(each.name, 60))));

  page.replaceChildren(
    make("div", { class: "bar" }, make("h1", {}, module.name), modules.length > 1 ? switcher : null),
    make("div", { class: "quiet" }, [module.device, module.rules?.version, [data.before, data.now].filter(Boolean).map((side) => side.explanation.path).join(" → ")].filter(Boolean).join(" · ")),
    ...module.notes.map((/** @type {string} */ note) => make("div", { class: "quiet" }, note)),
    tiles(module, before && before.module),
    ...(data.changes[state.module] || []).map((/** @type {any} */ section, /** @type {number} */ place) =>
      sectionOf({ ...section, title: place ? `What changed: ${section.title}` : "What changed" }, place ? `changed-${place}` : "changes", choosePair)),
    data.same.length ? make("section", { class: "card" }, ...data.same.map((/** @type {string} */ line) => make("p", { class: "quiet" }, line))) : "",
    make("section", { class: "card", "aria-labelledby": "where" }, make("h2", { id: "where" }, "Where it goes"),
      make("div", { class: "bar", role: "group", "aria-label": "measure" }, ...measures), flameBox,
      rows.some((/** @type {any} */ row) => row.at_best_us !== null)
        ? make("p", { class: "quiet" }, "The line in a bar of time is the least that one kernel with the same results takes") : null,
      whole ? [make("p", { class: "quiet" }, `All kernels, from the first to the last; the stronger the colour, the more ${module.summary.time ? "time" : "bytes"}`), whole.element] : null,
      kernelBox),
    ...data.now.tried[state.module].map((/** @type {any} */ section, /** @type {number} */ place) => sectionOf(section, `try-${place}`, choosePair)),
    make("section", { class: "card", "aria-labelledby": "pairs" }, make("h2", { id: "pairs" }, "Pairs"),
      make("div", { class: "bar" }, search, table.found), table.element),
    make("section", { class: "card", "aria-labelledby": "graph" }, make("h2", { id: "graph" }, "How it was fused"),
      make("div", { class: "bar" }, radius, slider), passBox,
      before
        ? [make("div", { class: "sides" }, ...sides.map((side, number) =>
          make("div", {}, make("h3", {}, number ? "after" : "before"), side.box))), facts]
        : make("div", { class: "split" }, now.box, facts)),
    sourceLines(data.sources, costsByLine(module), (place) => { search.value = place; set({ query: place }); }) ?? "",
    ...data.now.findings[state.module].map((/** @type {any} */ section, /** @type {number} */ place) => sectionOf(section, `finding-${place}`, choosePair)),
    rulePages(data.rules));

  search.value = state.query;
  if (state.pair === null && state.kernel === null && module.pairs.length) {
    const refused = [...module.pairs.keys()].filter((number) => module.pairs[number].outcome === "not-fused")
      .sort((a, b) => module.pairs[b].bytes_saved - module.pairs[a].bytes_saved);
    state.pair = refused[0] ?? 0;
  }
  update({ query: "", by: "", pair: 0 });
}

readData().then((data) => {
  showPage(data);
  addEventListener("hashchange", () => showPage(data));
});
