// A table of pairs: it filters as one types, sorts by any column, and has rows only where one looks.

const ROW = 28;

const COLUMNS = [
  { title: "outcome", text: (/** @type {any} */ pair, /** @type {string | null} */ before = null) =>
    before ? `${before.split(",")[0]} → ${pair.outcome}` : pair.outcome },
  { title: "producer", text: (/** @type {any} */ pair) => pair.producer.name },
  { title: "consumer", text: (/** @type {any} */ pair) => pair.consumer.name },
  { title: "reason", text: (/** @type {any} */ pair) => pair.reason ?? "" },
  { title: "bytes", number: (/** @type {any} */ pair) => pair.bytes_saved },
  { title: "source", text: (/** @type {any} */ pair) => pair.source.producer ?? "" },
];

/** @param {any} pair @param {string | null} before */
function searchable(pair, before) {
  const ends = [pair.producer, pair.consumer].flatMap((end) => [end.name, end.opcode, end.op_name]);
  const rest = [pair.outcome, pair.reason, pair.kernel, pair.source.producer, pair.source.consumer, before && `changed ${before}`];
  return [...ends, ...rest].join(" ").toLowerCase();
}

/**
 * @param {any[]} pairs
 * @param {(number: number) => void} choose
 * @param {(pair: any) => string | null} outcomeBefore  in another dump, if it is another
 */
function pairTable(pairs, choose, outcomeBefore) {
  const texts = pairs.map((pair) => searchable(pair, outcomeBefore(pair)));
  /** @type {number[]} */
  let rows = [];
  let [column, descending] = [0, true]; // what was not fused, the most bytes first
  /** @type {number | null} */
  let chosen = null;
  const body = make("div", { class: "body", role: "rowgroup" });
  const titles = COLUMNS.map((each, place) =>
    make("div", { role: "columnheader" }, make("button", { onclick: () => sort(place) }, each.title)));
  const head = make("div", { class: "row head", role: "row" }, ...titles);
  const grid = make("div", {
    class: pairs.some(outcomeBefore) ? "grid both" : "grid", role: "grid", tabindex: 0, "aria-label": "pairs", onscroll: () => show(),
    onkeydown: (/** @type {KeyboardEvent} */ event) => move(event),
  }, head, body);
  const found = make("span", { class: "quiet", role: "status" });

  /** @param {string} query */
  function filter(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    rows = [...pairs.keys()].filter((number) => words.every((word) => texts[number].includes(word)));
    order();
  }

  function order() {
    const { text, number } = COLUMNS[column];
    const sign = descending ? -1 : 1;
    rows.sort((a, b) => sign * (number ? number(pairs[a]) - number(pairs[b])
      : text(pairs[a]).localeCompare(text(pairs[b])))
      || pairs[b].bytes_saved - pairs[a].bytes_saved || a - b);
    titles.forEach((title, place) => title.setAttribute("aria-sort",
      place !== column ? "none" : descending ? "descending" : "ascending"));
    found.textContent = `${count(rows.length)} of ${count(pairs.length)} ${pairs.length === 1 ? "pair" : "pairs"}`;
    grid.setAttribute("aria-rowcount", String(rows.length + 1));
    body.style.height = `${rows.length * ROW}px`;
    show();
  }

  /** @param {number} place */
  function sort(place) {
    [column, descending] = [place, place === column ? !descending : place === 4];
    order();
  }

  function show() {
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW) - 5);
    body.replaceChildren(...rows.slice(first, first + 30).map((number, place) => {
      const pair = pairs[number];
      const row = make("div", {
        class: "row", role: "row", "aria-rowindex": first + place + 2, "data-pair": number,
        "aria-selected": number === chosen, onclick: () => choose(number),
      }, ...COLUMNS.map((each) => {
        const text = each.number ? size(each.number(pair)) : each.text(pair, outcomeBefore(pair));
        const kind = each.number ? "number" : pair.outcome === "not-fused" && each.title === "outcome" ? "refused" : "";
        return make("span", { role: "gridcell", class: kind, title: text }, shorten(each.title === "source" ? fileAndLine(text) : text, 120));
      }));
      row.style.top = `${(first + place) * ROW}px`;
      return row;
    }));
  }

  /** @param {KeyboardEvent} event */
  function move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12 }[event.key];
    if (step === undefined || !rows.length) return;
    event.preventDefault();
    const place = chosen === null ? -1 : rows.indexOf(chosen);
    const next = Math.min(rows.length - 1, Math.max(0, place + step));
    grid.scrollTop = Math.max(0, Math.min(next * ROW, Math.max(grid.scrollTop, (next - 11) * ROW)));
    choose(rows[next]);
  }

  return {
    element: grid, found, filter,
    /** @param {number | null} number */
    select(number) {
      chosen = number;
      show();
    },
  };
}
