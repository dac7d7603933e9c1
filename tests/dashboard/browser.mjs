// Chromium, and a page that is signed in. Complaints of the page are kept: none is allowed at the end.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { KEY } from "./server.mjs";

const known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = [process.env.CHROMIUM_BIN, ...known].find((path) => path && existsSync(path));
assert(executablePath, "Chromium is missing: run `just setup`, or set CHROMIUM_BIN");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const complaints = [];
// What a test provokes: refused requests, and a server that is killed.
const EXPECTED = [/status of 4\d\d/, /ERR_CONNECTION_REFUSED/, /WebSocket connection to/, /ERR_CONNECTION_RESET/, /ERR_EMPTY_RESPONSE/, /status of 502/];

// No host but this machine can be reached: nothing comes from a third party.
const args = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"];

export const launch = () => chromium.launch({ executablePath, args });

/** With a profile of its own, for a tool that connects to it by its port. */
export const launchAt = (folder, port) => chromium.launchPersistentContext(folder, { executablePath, args: [...args, `--remote-debugging-port=${port}`] });

export async function open(browser, server, { width = 1280, height = 800, colorScheme = "light", timezoneId, path = "/dash/", key = KEY } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme, timezoneId, reducedMotion: "reduce", permissions: ["clipboard-read", "clipboard-write"] });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on("console", (message) => {
    if (message.type() === "error" && !EXPECTED.some((one) => one.test(message.text()))) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("dialog", (dialog) => (complaints.push(`a dialog: ${dialog.message()}`), dialog.dismiss()));
  page.on("request", (request) => {
    if (!request.url().startsWith(server.address) && !request.url().startsWith("blob:")) complaints.push(`asks ${request.url()}`);
  });
  await page.goto(server.address + path);
  if (key) await signIn(page, key);
  return page;
}

export async function signIn(page, key) {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("button", { name: "Sign out" }).waitFor();
}

// A script of its own world: the page's policy stays as it is.
export async function accessible(page, what) {
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId: contextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  await session.send("Runtime.evaluate", { expression: axe, contextId });
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
  const expression = `axe.run({ runOnly: ${JSON.stringify(tags)} }).then((it) => JSON.stringify(it.violations.map((one) => [one.id, one.help, one.nodes.slice(0, 5).map((node) => node.html.slice(0, 200) + " " + (node.any[0]?.message ?? ""))])))`;
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", { expression, contextId, awaitPromise: true, returnByValue: true });
  assert(!exceptionDetails, JSON.stringify(exceptionDetails));
  assert.deepEqual(JSON.parse(result.value), [], `axe, ${what}`);
  await session.detach();
}
