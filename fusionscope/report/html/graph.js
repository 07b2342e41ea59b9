// The operations around a chosen one, in any stage: every operation keeps its place.

const [WIDE, HIGH, GAP, LAYER] = [168, 34, 14, 40];
const MOST = 240; // operations that are drawn; one counts for each kernel that computes it

/**
 * A module's picture, indexed by operation: what happens to it and to the edges from it, in the order of stages.
 * @typedef {object} Picture
 * @property {any[]} nodes @property {any[]} stages @property {number} quiet @property {any[]} boxes
 * @property {number[]} pairs @property {number[]} kernels
 * @property {Map<string, number>} pairOf  by the numbers of both ends
 * @property {Map<number, any[]>} spotsOf
 * @property {Map<number, {stage: number, kernel: number, isWritten: boolean | null}[]>} placesOf  null: it leaves the kernel
 * @property {Map<number, {stage: number, reader: number, isThere: boolean}[]>} edgesOf
 * @property {Map<number, {stage: number, name: string}[]>} namesOf  by kernel
 * @property {Map<number, Set<number>>} linked  in any stage
 * @property {Set<string>} isApart  edges whose reader does not read what its kernel computes, by their ends and the kernel
 */

/** @template Key, Value @param {Map<Key, Value[]>} map @param {Key} key @param {Value} value */
function push(map, key, value) {
  const own = map.get(key);
  if (own) own.push(value);
  else map.set(key, [value]);
}

/** @param {any} picture @param {any} module @returns {Picture} */
function readPicture(picture, module) {
  /** @type {Picture["pairOf"]} */
  const pairOf = new Map();
  for (let number = 0; number < module.pairs.length; number++) {
    const [read, reader] = [picture.pairs[2 * number], picture.pairs[2 * number + 1]];
    if (read >= 0 && !pairOf.has(`${read},${reader}`)) pairOf.set(`${read},${reader}`, number);
  }
  /** @type {Picture["spotsOf"]} */
  const spotsOf = new Map();
  for (const spot of picture.spots) push(spotsOf, spot.node, spot);
  /** @type {Picture["placesOf"]} */
  const placesOf = new Map();
  /** @type {Picture["edgesOf"]} */
  const edgesOf = new Map();
  /** @type {Picture["namesOf"]} */
  const namesOf = new Map();
  /** @type {Picture["linked"]} */
  const linked = new Map();
  picture.stages.forEach((/** @type {any} */ { removed, added, edges_removed: lost, edges_added: gained, names }, /** @type {number} */ stage) => {
    for (let i = 0; i < removed.length; i += 3) push(placesOf, removed[i], { stage, kernel: removed[i + 1], isWritten: null });
    for (let i = 0; i < added.length; i += 3) push(placesOf, added[i], { stage, kernel: added[i + 1], isWritten: added[i + 2] === 1 });
    for (let i = 0; i < lost.length; i += 2) push(edgesOf, lost[i], { stage, reader: lost[i + 1], isThere: false });
    for (let i = 0; i < gained.length; i += 2) {
      const [read, reader] = [gained[i], gained[i + 1]];
      push(edgesOf, read, { stage, reader, isThere: true });
      for (const [from, to] of [[read, reader], [reader, read]]) {
        if (!linked.has(from)) linked.set(from, new Set());
        linked.get(from)?.add(to);
      }
    }
    for (const each of names) push(namesOf, each.kernel, { stage, name: each.name });
  });
  /** @type {Picture["isApart"]} */
  const isApart = new Set();
  for (let i = 0; i < picture.apart.length; i += 3) isApart.add(picture.apart.slice(i, i + 3).join());
  return { ...picture, isApart, pairOf, spotsOf, placesOf, edgesOf, namesOf, linked };
}

/**
 * What one stage has of some operations: their kernels, each with whether it writes the operation, and the edges between.
 * @param {Picture} picture @param {number} last @param {Iterable<number>} nodes
 */
function contents(picture, last, nodes) {
  const shown = new Set(nodes);
  /** @type {Map<number, Map<number, boolean>>} */
  const kernels = new Map();
  /** @type {[number, number][]} */
  const links = [];
  for (const node of shown) {
    const own = new Map();
    for (const { stage, kernel, isWritten } of picture.placesOf.get(node) ?? []) {
      if (stage > last) break;
      if (isWritten === null) own.delete(kernel);
      else own.set(kernel, isWritten);
    }
    kernels.set(node, own);
    /** @type {Set<number>} */
    const readers = new Set();
    for (const { stage, reader, isThere } of picture.edgesOf.get(node) ?? []) {
      if (stage > last) break;
      if (!isThere) readers.delete(reader);
      else if (shown.has(reader)) readers.add(reader);
    }
    for (const reader of readers) links.push([node, reader]);
  }
  return { kernels, links };
}

/** The name of a kernel in a stage. @param {Picture} picture @param {number} kernel @param {number} last */
function kernelName(picture, kernel, last) {
  return picture.namesOf.get(kernel)?.findLast((each) => each.stage <= last)?.name ?? "";
}

/**
 * The operations up to `radius` edges away in any stage, the nearest first.
 * @param {Picture[]} pictures @param {number[]} chosen @param {number} radius
 */
function neighbours(pictures, chosen, radius) {
  const found = new Set(chosen);
  let edge = [...found];
  for (let step = 0; step < radius; step++) {
    edge = edge.flatMap((node) => pictures.flatMap(({ linked }) =>
      [...(linked.get(node) ?? [])].filter((next) => !found.has(next) && found.add(next))));
  }
  return [...found];
}

/** The numbers of the stages that changed one of `nodes`. @param {Picture} picture @param {Set<number>} nodes */
function stagesThatChanged(picture, nodes) {
  const found = new Set([...nodes].flatMap((node) => (picture.placesOf.get(node) ?? []).map((each) => each.stage)));
  return [...found].sort((a, b) => a - b);
}

/**
 * The steps of the slider: the stage that each picture shows, and which of them it changed. Passes of the same name
 * act in one step.
 * @typedef {{name: string, label: string, stages: number[], changed: boolean[]}} Step
 * @param {Picture[]} pictures @param {Set<number>} nodes @returns {Step[]}
 */
function stepsOf(pictures, nodes) {
  const left = pictures.map((picture) => stagesThatChanged(picture, nodes).filter((number) => number > 0));
  const name = (/** @type {number} */ side, /** @type {number} */ place = 0) => pictures[side].stages[left[side][place]]?.pass;
  const isLater = (/** @type {string} */ pass, /** @type {number} */ side) =>
    left[side].some((_, place) => name(side, place) === pass);
  const stages = pictures.map(() => 0);
  const { pass, label } = pictures[0].stages[0];
  const steps = [{ name: pass, label, stages: [...stages], changed: pictures.map(() => false) }];
  while (left.some((own) => own.length)) {
    const waiting = [...left.keys()].filter((side) => left[side].length);
    const first = waiting.find((side) => waiting.every((other) => other === side || !isLater(name(side), other) || name(other) === name(side))) ?? waiting[0];
    const acting = waiting.filter((side) => name(side) === name(first));
    const { pass, label } = pictures[first].stages[left[first][0]];
    for (const side of acting) stages[side] = /** @type {number} */ (left[side].shift());
    const only = pictures.length > acting.length ? (first ? " (after)" : " (before)") : "";
    steps.push({ name: pass + only, label, stages: [...stages], changed: pictures.map((_, side) => acting.includes(side)) });
  }
  return steps;
}

/**
 * Where operations are drawn, by operation and box: layers below each other, the boxes of a layer side by side.
 * @param {Picture} picture @param {Set<number>} shown
 */
function positions(picture, shown) {
  /** @type {Map<number, Map<number, any[]>>} */
  const boxes = new Map(); // rows of spots, by box
  for (const node of shown) {
    for (const spot of picture.spotsOf.get(node) ?? []) {
      let rows = boxes.get(spot.box);
      if (!rows) boxes.set(spot.box, rows = new Map());
      push(rows, spot.row, spot);
    }
  }
  /** @type {Map<number, {order: number, columns: number, rows: any[][]}[]>} */
  const layers = new Map();
  for (const [box, own] of boxes) {
    const rows = [...own].sort(([a], [b]) => a - b).map(([, spots]) => spots.sort((a, b) => a.column - b.column));
    const { layer, order } = picture.boxes[box];
    push(layers, layer, { order, columns: Math.max(...rows.map((row) => row.length)), rows });
  }
  const widthOf = (/** @type {{columns: number}[]} */ row) => row.reduce((sum, { columns }) => sum + columns * (WIDE + GAP) + 2 * GAP, GAP);
  const widest = Math.max(0, ...[...layers.values()].map(widthOf));
  /** @type {Map<string, {x: number, y: number}>} */
  const at = new Map();
  let top = LAYER / 2;
  for (const [, row] of [...layers].sort(([a], [b]) => a - b)) {
    let left = GAP + (widest - widthOf(row)) / 2;
    for (const { columns, rows } of row.sort((a, b) => a.order - b.order)) {
      rows.forEach((spots, number) => spots.forEach((spot, column) => at.set(`${spot.node},${spot.box}`, {
        x: left + (column + (columns - spots.length) / 2) * (WIDE + GAP), y: top + number * (HIGH + GAP + 8),
      })));
      left += columns * (WIDE + GAP) + 2 * GAP;
    }
    top += Math.max(...row.map(({ rows }) => rows.length)) * (HIGH + GAP + 8) + LAYER;
  }
  return { at, widest, top };
}

/** The nearest of `nodes` that fit, and the first `least` anyway. @param {Picture} picture @param {number[]} nodes @param {number} least */
function nearest(picture, nodes, least) {
  const shown = new Set(nodes.slice(0, least));
  let drawn = 0;
  for (const node of nodes) {
    const copies = picture.spotsOf.get(node)?.length ?? 0;
    if (drawn + copies > MOST) continue;
    drawn += copies;
    shown.add(node);
  }
  return shown;
}

/**
 * @param {Picture} picture @param {any} module @param {number[]} nodes @param {number[]} chosen
 * @param {number} stage @param {boolean} isMarked  what the stage changed @param {(node: number) => void} choose
 */
function neighbourhood(picture, module, nodes, chosen, stage, isMarked, choose) {
  const shown = nearest(picture, nodes, chosen.length);
  const { kernels, links } = contents(picture, stage, shown);
  const isChanged = (/** @type {number} */ node) => isMarked && (picture.placesOf.get(node) ?? []).some((each) => each.stage === stage);
  const { at, widest, top } = positions(picture, shown);
  /** The kernel of this stage that an operation is in, at its place in a box. @param {number} node @param {number} box */
  const kernelAt = (node, box) => {
    const own = [...(kernels.get(node)?.keys() ?? [])];
    const final = picture.boxes[box].kernel;
    return own.includes(final) ? final : own[0] ?? null;
  };
  /** @type {Map<string, {name: string, places: {x: number, y: number}[]}>} */
  const groups = new Map();
  for (const [key, place] of at) {
    const [node, box] = key.split(",").map(Number);
    const kernel = kernelAt(node, box);
    if (kernel === null) continue;
    const group = `${kernel},${box}`;
    if (!groups.has(group)) groups.set(group, { name: kernelName(picture, kernel, stage), places: [] });
    groups.get(group)?.places.push(place);
  }
  const frames = [...groups.values()].filter((group) => group.places.length > 1).map(({ name, places }) => {
    const [x, y] = [Math.min(...places.map((p) => p.x)) - 7, Math.min(...places.map((p) => p.y)) - 18];
    const width = Math.max(...places.map((p) => p.x)) + WIDE + 7 - x;
    const height = Math.max(...places.map((p) => p.y)) + HIGH + 7 - y;
    return draw("g", {}, draw("rect", { class: "kernel", x, y, width, height, rx: 8 }),
      draw("text", { class: "small", x: x + 8, y: y + 13 }, shorten(name, Math.floor(width / 7))));
  });
  /** @type {SVGElement[]} */
  const edges = [];
  /** @type {SVGElement[]} */
  const reasons = [];
  /** @type {{x: number, y: number}[]} */
  const placed = []; // where a reason is, which others would cover
  for (const [read, reader] of links) {
    for (const { box } of picture.spotsOf.get(reader) ?? []) {
      const to = at.get(`${reader},${box}`);
      const pair = module.pairs[picture.pairOf.get(`${read},${reader}`) ?? -1];
      const isRefused = pair?.outcome === "not-fused";
      const isApart = picture.isApart.has(`${read},${reader},${picture.boxes[box].kernel}`);
      const sources = (picture.spotsOf.get(read) ?? []).filter((/** @type {any} */ spot) => !isApart || spot.box !== box);
      const own = sources.find((/** @type {any} */ spot) => spot.box === box)
        ?? sources.find((/** @type {any} */ spot) => kernels.get(read)?.get(picture.boxes[spot.box].kernel)) ?? sources[0];
      const from = own && at.get(`${read},${own.box}`);
      if (!to || !from) continue;
      const wide = pair ? 1 + Math.min(5, Math.log10(1 + pair.bytes_saved / 1e4)) : 1;
      const [x1, y1, x2, y2] = [from.x + WIDE / 2, from.y + HIGH, to.x + WIDE / 2, to.y];
      const bend = Math.max(16, Math.abs(y2 - y1) / 2);
      edges.push(draw("path", {
        class: isRefused ? "edge not-fused" : "edge", "stroke-width": wide.toFixed(1),
        d: `M${x1},${y1} C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}`,
      }, draw("title", {}, pair ? `${pair.producer.name} → ${pair.consumer.name}: ${pair.outcome}${pair.reason ? `, ${pair.reason}` : ""}` : "no pair before fusion")));
      const isClose = y2 - y1 < LAYER; // there is only the line with the name of the kernel between them
      const [x, y] = isClose ? [x2 + WIDE / 2, y2 - 5] : [x1 + (x2 - x1) * 0.2, y1 + 18];
      if (isRefused && !placed.some((each) => Math.abs(each.x - x) < 80 && Math.abs(each.y - y) < 12)) {
        placed.push({ x, y });
        reasons.push(draw("text", { class: "why", x, y, "text-anchor": isClose ? "end" : "middle" }, pair.reason ?? "unknown"));
      }
    }
  }
  const operations = [...at].map(([key, { x, y }]) => {
    const node = Number(key.split(",")[0]);
    const each = picture.nodes[node];
    const kinds = ["operation", isChanged(node) ? "changed" : "", chosen.includes(node) ? "chosen" : ""].join(" ");
    const own = () => choose(node);
    const isThere = Boolean(kernels.get(node)?.size);
    return draw("g", {
      role: "button", tabindex: 0, "aria-label": `${shorten(each.opcode, 21)} ${shorten(each.shape, 22)} ${shorten(each.name, 80)}`, onclick: own,
      opacity: isThere ? null : 0.35,
      onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); own(); } },
    }, draw("rect", { class: kinds, x, y, width: WIDE, height: HIGH, rx: 5 }),
      draw("text", { x: x + 8, y: y + 14 }, `${shorten(each.opcode, 21)} `),
      draw("text", { class: "small", x: x + 8, y: y + 28 }, shorten(each.shape, 22)),
      draw("title", {}, `${each.name}\n${each.shape}\n${each.op_name ?? ""}\n${each.source ?? ""}`));
  });
  const svg = draw("svg", { width: widest, height: top, role: "group", "aria-label": "operations, producers above consumers" },
    ...frames, ...edges, ...operations, ...reasons);
  const center = [...at].find(([key]) => chosen.includes(Number(key.split(",")[0])))?.[1] ?? { x: 0, y: 0 };
  return { svg, center, left: nodes.length - shown.size };
}
