// What differs between two dumps, in the words of `fusionscope diff`.

const MOST_ROWS = 200; // of a table

/** @param {any} pair */
function endsOf(pair) {
  return `${pair.producer.name} → ${pair.consumer.name}`;
}

/** @param {any} pair */
function outcomeAndReason(pair) {
  return pair.reason ? `${pair.outcome}, ${pair.reason}` : pair.outcome;
}

/**
 * One table. The cells of the first two columns of pairs choose the pair.
 * @param {any} table  of a sheet @param {any[] | null} pairs @param {(pair: any) => void} choose
 */
function changeTable(table, pairs, choose) {
  const rows = table.rows.slice(0, MOST_ROWS).map((/** @type {string[]} */ row, /** @type {number} */ place) =>
    make("tr", {}, ...row.map((text, column) => make("td", {},
      pairs && column < 2 ? make("button", { onclick: () => choose(pairs[place].after) }, text) : text))));
  const hidden = table.rows.length - rows.length;
  return [make("h3", {}, table.title),
    make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": table.title }, make("table", {},
      make("thead", {}, make("tr", {}, ...table.heads.map((/** @type {string} */ head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...rows))),
    hidden > 0 ? make("p", { class: "quiet" }, `… and ${count(hidden)} more`) : null];
}

/**
 * @param {any} sheet  of the module that is shown, or undefined @param {any} module  its document
 * @param {string[]} same  the lines on modules that did not change
 * @param {(pair: any) => void} choose
 */
function changes(sheet, module, same, choose) {
  const content = sheet
    ? [...sheet.warnings.map((/** @type {string} */ line) => make("p", { class: "refused" }, line)),
      make("p", {}, sheet.lines[0]),
      ...sheet.tables.flatMap((/** @type {any} */ table, /** @type {number} */ place) => [
        ...changeTable(table, place === sheet.pairs ? module.outcomes : null, choose),
        ...(place === 0 ? sheet.lines.slice(1) : []).map((/** @type {string} */ line) => make("p", {}, line)),
      ]),
      ...sheet.notes.map((/** @type {string} */ note) => make("p", { class: "quiet" }, note)),
      ...(sheet.tables.length ? [] : sheet.lines.slice(1)).map((/** @type {string} */ line) => make("p", {}, line))]
    : [];
  return make("section", { class: "card", "aria-labelledby": "changes" }, make("h2", { id: "changes" }, "What changed"),
    ...content, ...same.map((line) => make("p", { class: "quiet" }, line)));
}
