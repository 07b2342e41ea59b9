// Writes docs/images/*.webp: pages of `fusionscope report`, light and dark, on a wide and on a narrow screen.
//
//   npm install --no-save playwright-core
//   node docs/make_images.mjs [DIRECTORY]
//
// The environment needs fusionscope, jax for CUDA, flax and optax: a ResNet step is compiled, the other
// dumps are samples. With DIRECTORY, every page is also written there in full length in each of the four
// ways, as PNG. CHROMIUM names the browser, /usr/bin/chromium if it is not set.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const require = createRequire(resolve("package.json"));
const { chromium } = require("playwright-core");
const everything = process.argv[2] && resolve(process.argv[2]);
const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);

const WIDE = 1280;
const NARROW = 390;
const SAMPLES = "samples/dumps/h100";
const RESNET = "build/resnet";
const PAGES = {
  concatenate: [`${SAMPLES}/concatenate`],
  cartpole: [`${SAMPLES}/cartpole`],
  attention: [`${SAMPLES}/attention`],
  resnet: [RESNET, "--resources"],
  difference: [`${SAMPLES}-without-triton-softmax/softmax`, `${SAMPLES}/softmax`],
};
// From the card with one title to the card with another; without the first, from the top.
const IMAGES = [
  { page: "attention", width: WIDE, scheme: "dark", first: "graph", last: "source" },
  { page: "resnet", width: WIDE, scheme: "light", last: "try" },
  { page: "difference", width: WIDE, scheme: "dark", last: "changes" },
];

/** Where the cards are in the page. Runs in the page. @param {{first?: string, last: string}} cards */
function span({ first, last }) {
  const card = (id) => document.getElementById(id).closest(".card").getBoundingClientRect();
  const top = first ? card(first).top - 12 : 0;
  return { x: 0, y: top, width: innerWidth, height: card(last).bottom + 12 - top };
}

function fusionscope(...words) {
  const environment = { ...process.env, JAX_HLO_SOURCE_FILE_CANONICALIZATION_REGEX: root }; // paths as in the samples
  execFileSync("fusionscope", words, { stdio: ["ignore", "ignore", "inherit"], env: environment });
}

const work = mkdtempSync(join(tmpdir(), "images-"));
try {
  rmSync(RESNET, { recursive: true, force: true });
  fusionscope("capture", "tools/conformance/programs/resnet.py:step", "--device", "h100",
    "--flag", "xla_dump_emitter_re=.*", "--no-explain", "--output", RESNET);
  for (const [name, words] of Object.entries(PAGES)) fusionscope("report", ...words, "--output", join(work, `${name}.html`));

  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"],
  });
  const open = async (name, width, colorScheme) => {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    await page.goto(pathToFileURL(join(work, `${name}.html`)).href);
    await page.waitForSelector("#rules");
    return page;
  };
  for (const { page: name, width, scheme, ...cards } of IMAGES) {
    const page = await open(name, width, scheme);
    const session = await page.context().newCDPSession(page); // playwright itself writes no WebP
    const clip = { ...await page.evaluate(span, cards), scale: width === WIDE ? 1 : 1.5 };
    const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality: 70, clip, captureBeyondViewport: true });
    writeFileSync(`docs/images/${name}-${width}-${scheme}.webp`, Buffer.from(data, "base64"));
    await page.close();
  }
  if (everything) {
    mkdirSync(everything, { recursive: true });
    for (const name of Object.keys(PAGES)) for (const width of [WIDE, NARROW]) for (const scheme of ["light", "dark"]) {
      const page = await open(name, width, scheme);
      await page.screenshot({ path: join(everything, `${name}-${width}-${scheme}.png`), fullPage: true });
      await page.close();
    }
  }
  await browser.close();
} finally {
  rmSync(work, { recursive: true });
}
