// Opens pages of `fusionscope report` in Chromium and looks for what keeps people from using them.
//
//   npm install --no-save axe-core playwright-core
//   node tools/conformance/page_audit.mjs PAGES...
//
// Each page is opened in light and dark, 1,280 and 390 pixels wide. Prints what axe-core finds, what
// the page writes to the console, and what it requests besides itself. Exit code 1 if there is any.
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
