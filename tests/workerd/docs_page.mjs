// The page of the API in a real browser: opened, searched, a route tried with a key, looked at in every theme and size.
//   node docs_page.mjs ADDRESS KEY WORKFLOW SCREENSHOTS
// Prints what it saw. Ends with 1 at the first thing that is wrong.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [address, key, workflow, screenshots] = process.argv.slice(2);
const known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = [process.env.CHROMIUM_BIN, ...known].find((path) => path && existsSync(path));
assert(executablePath, "Chromium is missing: run `just setup`, or set CHROMIUM_BIN");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(screenshots, { recursive: true });

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const complaints = [];
const visit = async (viewport, colorScheme) => {
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"] });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !request.url().startsWith("data:")) complaints.push(`asks ${request.url()}`);
  });
  await page.goto(`${address}/api/docs`);
  await page.locator("#startRun").waitFor();
  return page;
};
// A script of its own world: the page's policy stays as it is.
const accessible = async (page, what) => {
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId: contextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  await session.send("Runtime.evaluate", { expression: axe, contextId });
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const expression = `axe.run({ runOnly: ${JSON.stringify(tags)} }).then((it) => JSON.stringify(it.violations.map((one) => [one.id, one.help, one.nodes.slice(0, 5).map((node) => node.html.slice(0, 200))])))`;
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", { expression, contextId, awaitPromise: true, returnByValue: true });
  assert(!exceptionDetails, JSON.stringify(exceptionDetails));
  assert.deepEqual(JSON.parse(result.value), [], `axe, ${what}`);
};

const page = await visit({ width: 1280, height: 900 }, "light");
const routes = await page.locator(".route").count();
assert(routes > 50, `${routes} routes`);

// Found by the keyboard alone: `/`, words, Enter.
await page.keyboard.press("/");
await page.keyboard.type("starts run workflow post");
assert.match(await page.locator("#count").textContent(), /^\d found$/);
assert(await page.locator("#listKeys").isHidden());
await page.locator("#find").fill("workflow /start");
await page.keyboard.press("Enter");
const route = page.locator("#startRun");
await route.getByRole("button", { name: "Send" }).waitFor();
assert.equal(new URL(page.url()).hash, "#startRun");

// Without a key it says which problem that is, with a link to its page.
await route.getByLabel("workflow").fill(workflow);
await route.getByLabel("body").fill("2");
await route.getByRole("button", { name: "Send" }).click();
const refused = route.locator("p[role=status] a");
assert.equal(await refused.textContent(), "unauthorized");
assert.match(await refused.getAttribute("href"), /docs\/errors\/unauthorized\.md$/);
complaints.splice(0, complaints.length, ...complaints.filter((one) => !one.includes("401")));

// With one, the run is started and shown, and its id is offered to the other routes.
await page.locator("#key").fill(key);
await page.locator("#key").blur();
await route.getByRole("button", { name: "Send" }).click();
await route.locator("p[role=status] strong", { hasText: "201" }).waitFor();
const run = JSON.parse(await route.locator("form pre").last().textContent());
assert.equal(run.workflow, workflow);

// The command has no secret in it, and what people type cannot end its quotes.
await route.getByLabel("body").fill(`{"it's": 1}`);
await route.getByRole("button", { name: "Copy as curl" }).click();
const command = await page.evaluate(() => navigator.clipboard.readText());
assert(!command.includes(key), command);
assert(command.includes(`-d '{"it'\\''s": 1}'`) && command.includes("Bearer $STEPWELL_KEY"), command);
assert.equal(await page.evaluate(() => localStorage.length + sessionStorage.length + document.cookie.length), 0);

// A stream is shown as it comes, and stopped.
await page.locator("#find").fill("");
await page.locator("#followAll > summary").click();
const stream = page.locator("#followAll");
await stream.getByRole("button", { name: "Send" }).click();
await stream.locator("p[role=status] strong", { hasText: "200" }).waitFor();
await stream.getByRole("button", { name: "Stop" }).click();
await stream.getByText("… Stopped.").waitFor();

// The schemas open as far as one likes: a run's failure is two below its answer.
await page.locator("#showRun > summary").click();
const shown = page.locator("#showRun");
assert.equal(await shown.getByLabel("id").inputValue(), run.id);
await shown.getByText("Fields", { exact: true }).click();
await shown.locator("li > details > summary", { hasText: "Why it failed." }).click();
await shown.locator("li li code", { hasText: "message" }).first().waitFor();
await shown.getByText("Problems", { exact: true }).click();
await accessible(page, "with open routes");

for (const [name, width, scheme] of [["light", 1280, "light"], ["dark", 1280, "dark"], ["narrow", 360, "light"], ["narrow-dark", 360, "dark"]]) {
  const looked = await visit({ width, height: 900 }, scheme);
  await looked.screenshot({ path: join(screenshots, `${name}.png`) });
  await looked.locator("#putSchedule > summary").click();
  const form = looked.locator("#putSchedule");
  await form.getByText("Fields of the body").click();
  await form.getByText("Example", { exact: true }).first().click();
  await form.getByText("Problems", { exact: true }).click();
  await form.screenshot({ path: join(screenshots, `${name}-route.png`) });
  const over = await looked.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert(over <= 0, `${name}: ${over} px stick out`);
  assert(!(await looked.locator("body").textContent()).includes("[object"), "a part that is no text");
  await accessible(looked, name);
  await looked.context().close();
}
await browser.close();
assert.deepEqual(complaints, []);
console.log(`docs-page: ${routes} routes; a request refused and one answered; no violation in 2 themes and 2 sizes`);
