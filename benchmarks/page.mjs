// How fast pages of `fusionscope report` are in Chromium.
//
//   npm install --no-save playwright-core
//   node benchmarks/page.mjs PAGES...
//
// Each page is opened five times. Prints medians in ms, by the page's own timer: until something is
// painted, until all of it is there, and from typing a filter, moving the slider, choosing a pair and
// choosing a radius to the frame that shows it (and the slowest of all). CHROMIUM names the browser,
// /usr/bin/chromium if it is not set.

import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(resolve("package.json"));
const { chromium } = require("playwright-core");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});
const RUNS = 5;
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];

/** Runs in the page. */
async function measure() {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const timed = async (action) => {
    await frame();
    const start = performance.now();
    action();
    await frame();
    return performance.now() - start;
  };
  const set = (element, value, kind) => {
    element.value = value;
    element.dispatchEvent(new Event(kind, { bubbles: true }));
  };
  const search = document.querySelector("input[type=search]");
  const slider = document.querySelector("input[type=range]");
  const radius = document.querySelector("select[aria-label=radius]");
  const found = { filter: [], slider: [], pair: [], radius: [] };
  for (const words of ["n", "no", "not-fused", "not-fused add", "dot", ""]) {
    found.filter.push(await timed(() => set(search, words, "input")));
  }
  const rows = Math.min(12, document.querySelectorAll("[data-pair]").length);
  for (let row = 0; row < rows; row++) {
    found.pair.push(await timed(() => document.querySelectorAll("[data-pair]")[row].click()));
    for (let step = 0; step <= Number(slider.max); step++) {
      found.slider.push(await timed(() => set(slider, String(step), "input")));
    }
  }
  for (const size of ["2", "3", "4"]) {
    found.radius.push(await timed(() => set(radius, size, "change")));
    for (let step = 0; step <= Number(slider.max); step++) {
      found.slider.push(await timed(() => set(slider, String(step), "input")));
    }
  }
  const paint = performance.getEntriesByName("first-contentful-paint")[0].startTime;
  return { paint, ...found };
}

console.log("| page | MB | pairs | painted | complete | filter | slider | pair | radius |");
console.log("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
for (const file of process.argv.slice(2)) {
  const all = { paint: [], complete: [], filter: [], slider: [], pair: [], radius: [] };
  let pairs = "";
  for (let run = 0; run < RUNS; run++) {
    const page = await (await browser.newContext({ bypassCSP: true })).newPage();
    await page.goto(pathToFileURL(resolve(file)).href);
    await page.waitForSelector("[role=grid]");
    all.complete.push(await page.evaluate(() => performance.now()));
    const found = await page.evaluate(measure);
    all.paint.push(found.paint);
    for (const name of ["filter", "slider", "pair", "radius"]) all[name].push(...found[name]);
    pairs = await page.locator("[role=status]").first().textContent();
    await page.close();
  }
  const both = (values) => `${median(values).toFixed(0)} (${Math.max(...values).toFixed(0)})`;
  const cells = [
    basename(file), (statSync(file).size / 1e6).toFixed(1), pairs.split(" ")[0], median(all.paint).toFixed(0),
    median(all.complete).toFixed(0), both(all.filter), both(all.slider), both(all.pair), both(all.radius),
  ];
  console.log(`| ${cells.join(" | ")} |`);
}
await browser.close();
