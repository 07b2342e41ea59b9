// The whole module at a glance: a box for each kernel, data flows from left to right.

const SHADES = 5; // of boxes, by their share of the time or bytes
const [LONG, SHORT] = [1240, 160]; // pixels

/**
 * @param {Picture} picture @param {any} module
 * @param {(kernel: any) => void} choose
 */
function overview(picture, module, choose) {
  /** @type {Map<number, any>} */
  const kernels = new Map(module.kernels.map((/** @type {any} */ each, /** @type {number} */ place) => [picture.kernels[place], each]));
  const cost = (/** @type {any} */ kernel) => kernel.runs * (module.summary.time ? kernel.time_ns ?? 0 : kernel.bytes_read + kernel.bytes_written);
  /** @type {Map<number, {kernel: any, order: number}[]>} */
  const layers = new Map();
  for (const { kernel, layer, order } of picture.boxes) {
    if (kernels.has(kernel)) push(layers, layer, { kernel: kernels.get(kernel), order });
  }
  if (!layers.size) return null;
  const columns = [...layers].sort(([a], [b]) => a - b).map(([, row]) => row.sort((a, b) => a.order - b.order));
  const deepest = Math.max(...columns.map((row) => row.length));
  const most = Math.max(...[...kernels.values()].map(cost), 1);
  const wide = Math.min(28, LONG / columns.length);
  const high = Math.min(16, SHORT / deepest);
  /** @type {string[]} */
  const shades = Array(SHADES).fill("");
  columns.forEach((row, column) => row.forEach(({ kernel }, place) => {
    const shade = Math.min(SHADES - 1, Math.floor(SHADES * Math.sqrt(cost(kernel) / most)));
    const top = (deepest - row.length) / 2 + place;
    shades[shade] += `M${(column * wide).toFixed(1)},${(top * high).toFixed(1)}h${(0.8 * wide).toFixed(1)}v${(0.8 * high).toFixed(1)}h${(-0.8 * wide).toFixed(1)}z`;
  }));
  const mark = draw("rect", { class: "here", width: 0.8 * wide, height: 0.8 * high, visibility: "hidden" });
  const what = module.summary.time ? "time" : "bytes";
  const svg = draw("svg", {
    class: "overview", viewBox: `-2 -2 ${columns.length * wide + 4} ${deepest * high + 4}`, width: columns.length * wide + 4, role: "img",
    "aria-label": `${count(kernels.size)} kernels; the stronger the colour, the more ${what}`,
    onclick: (/** @type {MouseEvent} */ event) => {
      const shape = /** @type {any} */ (svg);
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(shape.getScreenCTM().inverse());
      const row = columns[Math.min(columns.length - 1, Math.max(0, Math.floor(point.x / wide)))];
      const place = Math.floor(point.y / high - (deepest - row.length) / 2);
      choose(row[Math.min(row.length - 1, Math.max(0, place))].kernel);
    },
  }, ...shades.map((path, shade) => draw("path", { class: "share", d: path, "fill-opacity": ((shade + 1) / SHADES).toFixed(2) })), mark);
  return {
    element: svg,
    /** @param {Set<string>} names */
    select(names) {
      for (const [column, row] of columns.entries()) {
        const place = row.findIndex(({ kernel }) => names.has(kernel.name));
        if (place < 0) continue;
        mark.setAttribute("x", String(column * wide));
        mark.setAttribute("y", String(((deepest - row.length) / 2 + place) * high));
        mark.setAttribute("visibility", "visible");
        return;
      }
      mark.setAttribute("visibility", "hidden");
    },
  };
}
