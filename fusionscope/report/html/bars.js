// Bars of time, with the time at best as an edge inside.

/**
 * Draws a bar behind `element`: where it ends, and where the time at best does, as shares of the width.
 * @template {HTMLElement} Bar
 * @param {Bar} element @param {number} end @param {number | null} bound
 */
function drawBar(element, end, bound) {
  element.classList.add(bound === null ? "whole" : "bounded");
  element.style.setProperty("--end", `${100 * end}%`);
  element.style.setProperty("--bound", `${100 * Math.min(bound ?? end, end)}%`);
  return element;
}

/** @param {number | null | undefined} us */
function atBest(us) {
  return us === null || us === undefined ? "" : `at best ${duration(us)}`;
}

/**
 * The heaviest kernels, each a bar of its time.
 * @param {any[]} kernels @param {string | null} chosen @param {(name: string) => void} choose
 */
function kernelBars(kernels, chosen, choose) {
  const time = (/** @type {any} */ kernel) => (kernel.time_ns ?? 0) * kernel.runs / 1000;
  const longest = Math.max(...kernels.map(time));
  return make("div", { class: "kernels", role: "list", "aria-label": "heaviest kernels" }, ...kernels.map((kernel) => {
    const text = `${shorten(kernel.name, 40)}${longest ? ` ${duration(time(kernel))}` : ""}`;
    const words = [text, atBest(kernel.at_best_us)].filter(Boolean).join(", ");
    const bar = make("button", {
      "aria-pressed": kernel.name === chosen, "aria-label": words, title: words, onclick: () => choose(kernel.name),
    }, text);
    if (longest) drawBar(bar, time(kernel) / longest, kernel.at_best_us === null ? null : kernel.at_best_us / longest);
    return make("div", { role: "listitem" }, bar);
  }));
}

