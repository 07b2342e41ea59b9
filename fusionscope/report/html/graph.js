// The operations around a chosen one, in any stage: every operation keeps its place.

const [WIDE, HIGH, GAP, LAYER] = [168, 34, 14, 40];
const MOST = 240; // operations that are drawn

/** A module's picture, indexed. @typedef {ReturnType<typeof readPicture>} Picture */

/** @param {any} picture @param {any} module */
function readPicture(picture, module) {
  /** @type {Map<string, number>} */
  const pairOf = new Map();
  for (let number = 0; number < module.pairs.length; number++) {
    const [read, reader] = picture.pairs.slice(2 * number, 2 * number + 2);
    if (read >= 0 && !pairOf.has(`${read},${reader}`)) pairOf.set(`${read},${reader}`, number);
  }
  /** @type {Map<number, any[]>} */
  const spots = new Map();
  for (const spot of picture.spots) {
    if (!spots.has(spot.node)) spots.set(spot.node, []);
    spots.get(spot.node)?.push(spot);
  }
  return { ...picture, pairOf, spotsOf: spots };
}

/** What one stage has. @param {Picture} picture @param {number} last */
function contents(picture, last) {
  /** @type {Map<number, Map<number, boolean>>} */
  const kernels = new Map(); // by operation, with whether the kernel writes it
  /** @type {Set<string>} */
  const edges = new Set();
  /** @type {Map<number, string>} */
  const names = new Map();
  for (const stage of picture.stages.slice(0, last + 1)) {
    for (let i = 0; i < stage.removed.length; i += 3) kernels.get(stage.removed[i])?.delete(stage.removed[i + 1]);
    for (let i = 0; i < stage.added.length; i += 3) {
      const [node, kernel, written] = stage.added.slice(i, i + 3);
      if (!kernels.has(node)) kernels.set(node, new Map());
      kernels.get(node)?.set(kernel, written === 1);
    }
    for (let i = 0; i < stage.edges_removed.length; i += 2) edges.delete(`${stage.edges_removed[i]},${stage.edges_removed[i + 1]}`);
    for (let i = 0; i < stage.edges_added.length; i += 2) edges.add(`${stage.edges_added[i]},${stage.edges_added[i + 1]}`);
    for (const each of stage.names) names.set(each.kernel, each.name);
  }
  const links = [...edges].map((edge) => edge.split(",").map(Number));
  return { kernels, links, names };
}

/**
 * The operations up to `radius` edges away in any stage, the nearest first.
 * @param {Picture[]} pictures @param {number[]} chosen @param {number} radius
 */
function neighbours(pictures, chosen, radius) {
  /** @type {Map<number, Set<number>>} */
  const linked = new Map();
  for (const stage of pictures.flatMap((picture) => picture.stages)) {
    for (let i = 0; i < stage.edges_added.length; i += 2) {
      const [a, b] = stage.edges_added.slice(i, i + 2);
      for (const [from, to] of [[a, b], [b, a]]) {
        if (!linked.has(from)) linked.set(from, new Set());
        linked.get(from)?.add(to);
      }
    }
  }
  const found = new Set(chosen);
  let edge = [...found];
  for (let step = 0; step < radius; step++) {
    edge = edge.flatMap((node) => [...(linked.get(node) ?? [])].filter((next) => !found.has(next) && found.add(next)));
  }
  return [...found];
}

/** The numbers of the stages that changed one of `nodes`. @param {Picture} picture @param {Set<number>} nodes */
function stagesThatChanged(picture, nodes) {
  return [...picture.stages.keys()].filter((number) => changedBy(picture, number).some((node) => nodes.has(node)));
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
    const only = pictures.length > acting.length ? (first ? " (now)" : " (before)") : "";
    steps.push({ name: pass + only, label, stages: [...stages], changed: pictures.map((_, side) => acting.includes(side)) });
  }
  return steps;
}

/** @param {Picture} picture @param {number} number */
function changedBy(picture, number) {
  const { added, removed } = picture.stages[number];
  const starts = (/** @type {number[]} */ flat) => flat.filter((_, place) => place % 3 === 0);
  return [...starts(added), ...starts(removed)];
}

/**
 * @param {Picture} picture @param {any} module @param {number[]} nodes @param {number[]} chosen
 * @param {number} stage @param {boolean} isMarked  what the stage changed @param {(node: number) => void} choose
 */
function neighbourhood(picture, module, nodes, chosen, stage, isMarked, choose) {
  const shown = new Set(nodes.slice(0, MOST));
  const { kernels, links, names } = contents(picture, stage);
  const changed = new Set(isMarked ? changedBy(picture, stage) : []);
  /** @type {Map<number, any[]>} */
  const boxes = new Map();
  for (const node of shown) {
    for (const spot of picture.spotsOf.get(node) ?? []) {
      if (!boxes.has(spot.box)) boxes.set(spot.box, []);
      boxes.get(spot.box)?.push(spot);
    }
  }
  /** @type {Map<string, {x: number, y: number}>} */
  const at = new Map(); // by operation and box
  const layers = [...new Set([...boxes.keys()].map((box) => picture.boxes[box].layer))].sort((a, b) => a - b);
  const columnsOf = (/** @type {number} */ box) => {
    const rows = (boxes.get(box) ?? []).map((spot) => spot.row);
    return Math.max(...rows.map((row) => rows.filter((each) => each === row).length));
  };
  const width = (/** @type {number} */ layer) => [...boxes.keys()].filter((box) => picture.boxes[box].layer === layer)
    .reduce((sum, box) => sum + columnsOf(box) * (WIDE + GAP) + 2 * GAP, GAP);
  const widest = Math.max(0, ...layers.map((layer) => width(layer)));
  let top = LAYER / 2;
  for (const layer of layers) {
    let [left, deepest] = [GAP + (widest - width(layer)) / 2, 0];
    const row = [...boxes.keys()].filter((box) => picture.boxes[box].layer === layer)
      .sort((a, b) => picture.boxes[a].order - picture.boxes[b].order);
    for (const box of row) {
      const spots = boxes.get(box) ?? [];
      const rows = [...new Set(spots.map((spot) => spot.row))].sort((a, b) => a - b);
      let columns = 0;
      rows.forEach((number, place) => {
        const own = spots.filter((spot) => spot.row === number).sort((a, b) => a.column - b.column);
        const indent = (columnsOf(box) - own.length) / 2;
        own.forEach((spot, column) => at.set(`${spot.node},${box}`, {
          x: left + (column + indent) * (WIDE + GAP), y: top + place * (HIGH + GAP + 8),
        }));
        columns = Math.max(columns, own.length);
      });
      left += columns * (WIDE + GAP) + 2 * GAP;
      deepest = Math.max(deepest, rows.length * (HIGH + GAP + 8));
    }
    top += deepest + LAYER;
  }
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
    if (!groups.has(group)) groups.set(group, { name: names.get(kernel) ?? "", places: [] });
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
    if (!shown.has(read) || !shown.has(reader)) continue;
    for (const { box } of picture.spotsOf.get(reader) ?? []) {
      const to = at.get(`${reader},${box}`);
      const sources = picture.spotsOf.get(read) ?? [];
      const own = sources.find((/** @type {any} */ spot) => spot.box === box)
        ?? sources.find((/** @type {any} */ spot) => kernels.get(read)?.get(picture.boxes[spot.box].kernel)) ?? sources[0];
      const from = own && at.get(`${read},${own.box}`);
      if (!to || !from) continue;
      const pair = module.pairs[picture.pairOf.get(`${read},${reader}`) ?? -1];
      const isRefused = pair?.outcome === "not-fused";
      const wide = pair ? 1 + Math.min(5, Math.log10(1 + pair.bytes_saved / 1e4)) : 1;
      const [x1, y1, x2, y2] = [from.x + WIDE / 2, from.y + HIGH, to.x + WIDE / 2, to.y];
      const bend = Math.max(16, Math.abs(y2 - y1) / 2);
      edges.push(draw("path", {
        class: isRefused ? "edge not-fused" : "edge", "stroke-width": wide.toFixed(1),
        d: `M${x1},${y1} C${x1},${y1 + bend} ${x2},${y2 - bend} ${x2},${y2}`,
      }, draw("title", {}, pair ? `${pair.producer.name} → ${pair.consumer.name}: ${pair.outcome}${pair.reason ? `, ${pair.reason}` : ""}` : "no pair before fusion")));
      const [x, y] = [x1 + (x2 - x1) * 0.2, y1 + 18];
      if (isRefused && !placed.some((each) => Math.abs(each.x - x) < 80 && Math.abs(each.y - y) < 12)) {
        placed.push({ x, y });
        reasons.push(draw("text", { class: "why", x, y, "text-anchor": "middle" }, pair.reason ?? "unknown"));
      }
    }
  }
  const operations = [...at].map(([key, { x, y }]) => {
    const node = Number(key.split(",")[0]);
    const each = picture.nodes[node];
    const kinds = ["operation", changed.has(node) ? "changed" : "", chosen.includes(node) ? "chosen" : ""].join(" ");
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
  return { svg, left: nodes.length - shown.size };
}
