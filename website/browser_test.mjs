/* Tries the built site in a real browser: node website/browser_test.mjs SITE [FOLDER FOR PICTURES]

Needs Chromium (CHROMIUM, or chromium on PATH) and two packages of npm, playwright-core and axe-core, beside this file or
in NODE_PATH. Pages are opened as files, so nothing but the folder is needed. Requests to a network fail the test. */
import {createRequire} from "node:module";
import {existsSync, readFileSync, mkdirSync} from "node:fs";
import {join, resolve} from "node:path";
import {pathToFileURL} from "node:url";

const require = createRequire(join(process.env.NODE_MODULES || process.cwd(), "x.js"));
const {chromium} = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [site, pictures] = process.argv.slice(2).map((path) => resolve(path));
const executablePath = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => path && existsSync(path));
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const faults = [];
let checks = 0;

function check(condition, text) {
  checks += 1;
  if (!condition) { faults.push(text); }
}

const browser = await chromium.launch({executablePath, args: flags});

async function open(path, {width = 1280, height = 900, scheme = "light"} = {}) {
  const page = await browser.newPage({viewport: {width, height}, colorScheme: scheme});
  page.on("console", (message) => { if (message.type() === "error") { faults.push(`${path}: ${message.text()}`); } });
  page.on("pageerror", (error) => faults.push(`${path}: ${error.message}`));
  page.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) { faults.push(`${path} asks for ${request.url()}`); }
  });
  const [file, query] = path.split("?");
  await page.goto(pathToFileURL(join(site, file)).href + (query ? "?" + query : ""));
  return page;
}

async function picture(page, name) {
  if (pictures) {
    mkdirSync(pictures, {recursive: true});
    await page.screenshot({path: join(pictures, name + ".png")});
  }
}

async function accessible(page, name) {
  await page.evaluate(axe);
  const {violations} = await page.evaluate(() => window.axe.run(document, {resultTypes: ["violations"], preload: false}));
  for (const each of violations.filter((found) => ["serious", "critical"].includes(found.impact))) {
    faults.push(`${name}: ${each.impact}: ${each.help}: ${each.nodes.slice(0, 3).map((node) => node.target).join(" | ")}`);
  }
  checks += 1;
}

const text = (page, selector) => page.locator(selector).innerText();
const fits = (page) => page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);

// The map: hover, keyboard, filters.
let page = await open("map.html");
const squares = page.locator("#parity-map td");
const all = await squares.count();
check(all > 1000, `the map has ${all} squares`);
await page.locator('td[aria-label^="AdamW in py39-tf2.10:"]').hover();
check(/^AdamW in py39-tf2\.10: [\d.]+ % of its bound/.test(await text(page, ".details")), "hovering shows the figures");
check((await text(page, ".details")).includes("tensorflow 2.10.1"), "hovering shows the versions");
await picture(page, "map");
await page.locator("#parity-map td[tabindex='0']").focus();
const before = await text(page, ".details");
await page.keyboard.press("ArrowRight");
await page.keyboard.press("ArrowDown");
check((await text(page, ".details")) !== before, "arrow keys move to another square");
await page.locator("select[name=api]").selectOption("get_updates");
const some = await squares.count();
check(some > 0 && some < all, `a filter by API leaves ${some} of ${all} squares`);
check(await page.locator('td[aria-label*="py39-tf2.10:"]').count() === 0, "TF 2.10 has no get_updates");
await page.locator("select[name=rows]").selectOption("Adagrad");
check(await squares.count() < some, "a filter by family of definitions leaves fewer");
await page.locator("select[name=api]").selectOption("");
await page.locator("select[name=rows]").selectOption("");
await page.locator("select[name=family]").selectOption("Keras 3");
check(await page.locator('thead th span', {hasText: "py313-k3jax"}).count() === 1, "Keras 3 has the cell of JAX");
check(await page.locator('thead th span', {hasText: "tf1."}).count() === 0, "Keras 3 has no TF 1");
await page.locator("select[name=kind]").selectOption("float16");
await accessible(page, "map");

// The chooser: selects, pasted JSON, nonsense.
page = await open("which.html");
check((await text(page, ".answer")).includes("tf.keras speaks update_step"), "TF 2.15: new-style Keras");
await page.locator("select[name=tensorflow]").selectOption("1.15");
await page.locator("select[name=python]").selectOption("3.7");
await page.locator("select[name=keras]").selectOption("2.3");
const old = await text(page, ".answer");
for (const line of ["tf.train speaks tf_train", "tf.keras speaks optimizer_v2", "keras speaks get_updates", "py37-tf1.15-k2.3"]) {
  check(old.includes(line), `TF 1.15 and Keras 2.3: ${line}`);
}
await page.locator("textarea").fill(JSON.stringify({everstep: "0.1.0", packages: [
  {name: "python", version: "3.13.0", broken: null}, {name: "keras", version: "3.15.1", broken: null},
  {name: "keras runs on", version: "jax", broken: null}, {name: "tensorflow", version: null, broken: null}]}));
const jax = await text(page, ".answer");
check(jax.includes("keras speaks keras3") && jax.includes("py313-k3jax") && !jax.includes("tf.keras"), "Keras 3 on JAX");
await picture(page, "which");
await accessible(page, "which");
await page.locator("textarea").fill("no JSON");
check((await text(page, ".answer")).includes("not what everstep doctor"), "nonsense is told");

// Search works without a server.
page = await open("search.html?q=catch_up");
await page.waitForSelector("#search-results li a", {timeout: 20000});
check((await page.locator("#search-results li").count()) > 2, "search finds pages");
check((await text(page, "#search-results")).toLowerCase().includes("sparse"), "search finds the page on sparse gradients");

// Pages in both schemes, on a desktop and a phone.
for (const name of ["index", "definitions/index", "definitions/adam", "map", "which", "api"]) {
  for (const scheme of ["light", "dark"]) {
    page = await open(name + ".html", {width: 390, height: 844, scheme});
    check(await fits(page), `${name} is wider than a phone`);
    await picture(page, `phone-${scheme}-${name.replace("/", "-")}`);
    if (name !== "api") { await accessible(page, `${name}, phone, ${scheme}`); }
    await page.close();
  }
  page = await open(name + ".html");
  check(await fits(page), `${name} is wider than a desktop`);
  await picture(page, "desktop-" + name.replace("/", "-"));
  await page.close();
}

await browser.close();
console.log(faults.length ? [...new Set(faults)].join("\n") : `${checks} checks in Chromium`);
process.exit(faults.length ? 1 : 0);
