// Opens pages of `fusionscope report` in Chromium and looks for what keeps people from using them.
//
//   npm install --no-save axe-core playwright-core
//   node tools/conformance/page_audit.mjs PAGES...
//
// Each page is opened in light and dark, 1,280 and 390 pixels wide. Prints what axe-core finds, what
// the page writes to the console, what it requests besides itself, controls that the Tab key does not
// reach or whose focus does not show, and whether the page is wider than the window. Exit code 1 if
// there is any.
// CHROMIUM names the browser, /usr/bin/chromium if it is not set.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(resolve("package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu"],
});

/** Runs in the page. */
function layoutProblems() {
  const { scrollWidth, clientWidth } = document.documentElement;
  return scrollWidth > clientWidth ? [`layout: ${scrollWidth} pixels wide, ${clientWidth} shown`] : [];
}

async function keyboardProblems(page) {
  const total = await page.evaluate(() => {
    const controls = [...document.querySelectorAll("button, input, select, summary, a[href], [tabindex='0']")]
      .filter((each) => each.checkVisibility());
    controls.forEach((each, number) => (each.dataset.control = String(number)));
    document.activeElement?.blur();
    return controls.length;
  });
  const seen = new Set();
  const found = [];
  for (let press = 0; press < 3 * total + 10 && seen.size < total; press++) {
    await page.keyboard.press("Tab");
    const [number, shows] = await page.evaluate(() => {
      const active = document.activeElement;
      const { outlineStyle } = getComputedStyle(active);
      return [active.dataset?.control ?? null, outlineStyle !== "none"];
    });
    if (number === null) continue;
    if (!seen.has(number) && !shows) found.push(`keyboard: the focus of control ${number} does not show`);
    seen.add(number);
  }
  if (seen.size < total) found.push(`keyboard: Tab reaches ${seen.size} of ${total} controls`);
  return found;
}

let problems = 0;
let views = 0;
for (const file of process.argv.slice(2)) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const viewport = { width, height: 900 };
      const context = await browser.newContext({ colorScheme, viewport, bypassCSP: true });
      const page = await context.newPage();
      const found = [];
      page.on("console", (message) => found.push(`console: ${message.text()}`));
      page.on("pageerror", (error) => found.push(`error: ${error}`));
      const address = pathToFileURL(resolve(file)).href;
      page.on("request", (request) => {
        if (request.url() !== address) found.push(`request: ${request.url()}`);
      });
      await page.goto(address);
      await page.waitForSelector("[role=grid]");
      await page.evaluate(axe);
      for (const each of (await page.evaluate(() => globalThis.axe.run())).violations) {
        found.push(`${each.impact}: ${each.id}, ${each.nodes.length} x ${each.nodes[0].target}`);
      }
      found.push(...(await page.evaluate(layoutProblems)));
      const words = await page.evaluate(() => document.body.textContent ?? "");
      if (words.includes("[object ")) found.push("an element is shown as text");
      found.push(...(await keyboardProblems(page)));
      for (const each of found) console.log(`${file} ${colorScheme} ${width}: ${each}`);
      problems += found.length;
      views += 1;
      await context.close();
    }
  }
}
await browser.close();
console.log(`${views} views, ${problems} problems`);
process.exitCode = problems || !views ? 1 : 0;
