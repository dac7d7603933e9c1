// What must hold, a function for each. A name is a fact; what a function returns is the figure that is printed.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import { accessible, open, signIn } from "./browser.mjs";
import { fill } from "./demo.mjs";
import { KEY, ROOT, Server } from "./server.mjs";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const runPath = (id) => `/dash/runs/${id}`;
const status = (page, word) => page.locator(`.title .status[data-status=${word}]`);
const row = (page, id) => page.locator(".row", { has: page.locator(`a[href="${runPath(id)}"]`) });
const p95 = (times) => times.sort((a, b) => a - b)[Math.ceil(times.length * 0.95) - 1];

/** A key of the namespace `default` with these scopes. */
const key = async (server, ...scopes) => server.call("POST", "/api/keys", JSON.stringify({ name: `test ${Math.random()}`, scopes }));

/** Texts that would do something if they were anything but text. */
const CANARIES = [
  `<img src=x onerror="window.hit=1"><script>window.hit=1</script>`,
  `javascript:window.hit=1`,
  `"><svg onload=window.hit=1>`,
  `a\u202Eb\u2066c`,
  `line\u2028sep\u2029end`,
  `{{constructor.constructor('window.hit=1')()}}`,
];

export const tests = {
  async "the files have their types, policies and caches"({ server }) {
    const page = await fetch(`${server.address}/dash/runs/x`);
    const policy = page.headers.get("content-security-policy");
    assert.equal(page.status, 200);
    assert(policy.includes("default-src 'none'") && policy.includes("frame-ancestors 'none'") && !policy.includes("unsafe-inline"), policy);
    assert.equal(page.headers.get("content-type"), "text/html; charset=utf-8");
    assert.equal(page.headers.get("cache-control"), "no-store");
    const text = await page.text();
    const files = [...text.matchAll(/\/dash\/assets\/[\w.-]+/g)].map(([file]) => file);
    assert(files.length >= 4, text);
    for (const file of files) {
      const response = await fetch(server.address + file);
      assert.equal(response.status, 200, file);
      assert.equal(response.headers.get("x-content-type-options"), "nosniff");
      assert.match(response.headers.get("cache-control"), /immutable/);
      const type = { js: "text/javascript", css: "text/css", wasm: "application/wasm", svg: "image/svg+xml" }[file.split(".").pop()];
      assert(response.headers.get("content-type").startsWith(type), file);
    }
    for (const path of ["/dash/assets/../page.htm", "/dash/assets/none.js", "/dash/assets/", "/dash/assets/..%2f..%2fx.js"]) {
      const response = await fetch(server.address + path);
      // The first one is another address by the time that it is sent.
      assert(path.includes("..") && response.status === 200 ? (await response.text()) === text : response.status === 404, path);
    }
    const outdated = await fetch(`${server.address}/dash/assets/dashboard-0123456789abcdef.js`);
    assert.equal(outdated.status, 404);
    assert.match(await outdated.text(), /reload the page/);
    assert.equal((await fetch(`${server.address}/dash`, { redirect: "manual" })).headers.get("location"), "/dash/");
    assert.equal((await fetch(`${server.address}/dash/`, { method: "POST" })).status, 401);
    assert.equal((await fetch(`${server.address}/dashboard`)).status, 401);
    return `${files.length} files`;
  },

  async "a deployment without the files says how to get them"() {
    const bare = await Server.start({ assets: null });
    try {
      const response = await fetch(`${bare.address}/dash/`);
      assert.equal(response.status, 404);
      assert.match(await response.text(), /npm install @stepwell\/dashboard/);
    } finally {
      bare.stop();
    }
    return "404 with the commands";
  },

  async "what a browser loads is small"() {
    const folder = join(ROOT, "target/dashboard/dash");
    const files = [join(folder, "page.htm"), ...readdirSync(join(folder, "assets")).map((file) => join(folder, "assets", file))];
    const bytes = files.map((file) => brotliCompressSync(readFileSync(file)).length).reduce((a, b) => a + b);
    assert(bytes <= 350 * 1024, `${bytes}`);
    return `${bytes} bytes of brotli`;
  },

  async "a key signs in, and is nowhere afterwards"({ server, browser }) {
    const page = await open(browser, server, { key: null });
    await page.getByLabel("API key").fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("This key is not valid here").waitFor();
    await signIn(page, KEY);
    await page.reload();
    await page.getByRole("button", { name: "Sign out" }).waitFor();
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML]));
    assert(!kept.includes(KEY), kept);
    assert.equal(await page.evaluate(() => document.cookie), "");
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.getByLabel("API key").waitFor();
    await page.reload();
    await page.getByLabel("API key").waitFor();
    return "in, reloaded, out";
  },

  async "runs are listed, filtered by text, chip and address"({ server, browser }) {
    await fill(server);
    const page = await open(browser, server);
    await page.locator(".row").first().waitFor();
    const all = page.locator(".chip").first().locator(".num");
    await page.waitForFunction(() => document.querySelector(".chip .num").textContent !== "");
    const counted = Number(await all.textContent());
    // The last change is counted too, at the latest ten seconds after the count before it.
    await server.start("ten", null);
    await server.start("ten", null);
    await page.waitForFunction((least) => Number(document.querySelector(".chip .num").textContent) >= least, counted + 2, { timeout: 15_000 });
    await page.locator(".chip[data-status=failed]").click();
    await page.waitForFunction(() => [...document.querySelectorAll(".row .status")].length > 0 && [...document.querySelectorAll(".row .status")].every((one) => one.textContent === "failed"));
    assert.equal(new URL(page.url()).searchParams.get("q"), "status:failed");
    assert.equal(await page.locator("#filter").inputValue(), "status:failed");
    await page.keyboard.press("/");
    await page.locator("#filter").fill("workflow:found attr:customer=acme");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelectorAll(".row").length === 1);
    assert.match(await page.locator(".row .labels").textContent(), /customer=acme/);
    assert.equal(await page.locator("#workflow").inputValue(), "found");
    // Nobody counts the runs that have an attribute.
    assert.equal(await all.textContent(), "");
    await page.locator("#filter").fill("colour:red");
    await page.keyboard.press("Enter");
    await page.getByText("There is no field 'colour'").waitFor();
    await page.goBack();
    await page.goBack();
    await page.waitForFunction(() => document.querySelector("#filter").value === "status:failed");
    for (const none of ["tag:nowhere", "order/o-20"]) {
      await page.goto(`${server.address}/dash/?q=${none}`);
      await page.getByText("No run matches this filter").waitFor();
    }
    // A status that changes is counted, too. A filter that was wrong in the middle of a burst leaves nothing behind.
    await page.goto(`${server.address}/dash/`);
    await page.locator(".row").first().waitFor();
    await page.waitForFunction(() => document.querySelector(".chip .num").textContent !== "");
    const count = (status) => page.locator(`.chip[data-status=${status}] .num`).textContent().then(Number);
    const completed = await count("completed");
    const { id } = await server.start("wait", 600_000);
    await row(page, id).locator("[data-status=waiting]").waitFor();
    const burst = Array.from({ length: 40 }, (_, n) => pause(n * 50).then(() => server.start("paced", [3, 200])));
    for (const text of ["colour:red", "workflow:wait", "colour:blue", ""]) {
      await pause(300);
      await page.locator("#filter").fill(text);
      await page.keyboard.press("Enter");
    }
    const latest = (await Promise.all(burst)).at(-1);
    await row(page, latest.id).locator("[data-status=completed]").waitFor();
    // Its row is far down by now.
    await server.call("POST", `/api/executions/${id}/signals/go`, '"x"');
    for (let n = 0; n < 150 && (await count("completed")) < completed + 41; n++) await pause(100);
    assert((await count("completed")) >= completed + 41, "the last one is not counted");
    return "text, chip, back, a burst";
  },

  async "a long list draws few rows and gets its pages as one scrolls"({ server, browser }) {
    const many = 300;
    for (let n = 0; n < many; n += 50) await Promise.all(Array.from({ length: 50 }, () => server.start("ten", null, { query: "?tag=long" })));
    const page = await open(browser, server, { path: "/dash/?q=tag:long" });
    await page.locator(".row").first().waitFor();
    const seen = new Set();
    let most = 0;
    for (let n = 0; n < 200 && seen.size < many; n++) {
      const ids = await page.locator(".row a").allTextContents();
      most = Math.max(most, ids.length);
      ids.forEach((id) => seen.add(id));
      await page.locator(".table .scroll").evaluate((node) => node.scrollBy(0, 600));
      await page.waitForTimeout(30);
    }
    assert.equal(seen.size, many);
    assert(most <= 150, `${most} rows`);
    await page.getByText("No older runs.").waitFor();
    return `${many} runs, at most ${most} rows drawn`;
  },

  async "a change is visible within a second"({ server, browser }) {
    const page = await open(browser, server, { path: "/dash/?q=workflow:wait" });
    await page.locator(".link[data-link=live]").waitFor();
    const [fresh, changed] = [[], []];
    for (let n = 0; n < 20; n++) {
      const began = performance.now();
      const { id } = await server.start("wait", 600_000);
      await row(page, id).waitFor();
      fresh.push(performance.now() - began);
      await row(page, id).locator("[data-status=waiting]").waitFor();
      const sent = performance.now();
      await server.call("POST", `/api/executions/${id}/signals/go`, '"x"');
      await row(page, id).locator("[data-status=completed]").waitFor();
      changed.push(performance.now() - sent);
    }
    const [one, other] = [p95(fresh), p95(changed)];
    assert(one <= 1_000 && other <= 1_000, `${one} ms, ${other} ms`);
    return `p95 of 20: a new run ${one.toFixed(0)} ms, a status ${other.toFixed(0)} ms after the request was sent`;
  },

  async "a run shows its timeline, events, logs and payloads as they come"({ server, browser }) {
    const { id } = await server.start("chatty", [5, 2, 150]);
    const page = await open(browser, server, { path: runPath(id) });
    await status(page, "completed").waitFor();
    await page.getByText("5", { exact: true }).first().waitFor();
    const history = await server.get(`/api/executions/${id}/history`);
    await page.waitForFunction((count) => document.querySelectorAll("[aria-label=Events] .event").length === count, history.events.length);
    const shown = await page.locator("[aria-label=Events] .seq").allTextContents();
    assert.deepEqual(shown.map(Number), history.events.map((event) => event.seq));
    await page.getByText("before 4").waitFor();
    await page.locator(".bar .label", { hasText: "talk" }).first().click();
    await page.getByRole("region", { name: "Selected" }).getByText("attempt 1").waitFor();
    assert.equal(new URL(page.url()).searchParams.get("step"), "step:0:talk");
    await page.reload();
    await page.getByRole("region", { name: "Selected" }).waitFor();
    return `${history.events.length} events`;
  },

  async "parents and children lead to each other"({ server, browser }) {
    const family = { ledger: null, name: "root", children: [2], lives: 0, child_lives: null };
    const { id } = await server.start("family", family, { prefer: "wait=10" });
    const page = await open(browser, server, { path: runPath(id) });
    await page.locator(".bar .label", { hasText: "child" }).first().click();
    await page.locator(".detail a").click();
    await page.locator(".facts a", { hasText: id }).click();
    await page.waitForURL(server.address + runPath(id));
    await page.locator(".title code", { hasText: id }).waitFor();
    return "down and up";
  },

  async "actions do what they say"({ server, browser }) {
    const { id } = await server.start("wait", 600_000);
    const page = await open(browser, server, { path: runPath(id) });
    const act = async (name) => {
      await page.locator(".actions").getByRole("button", { name, exact: true }).click();
      await page.locator("dialog[open]").getByRole("button", { name, exact: true }).click();
    };
    await status(page, "waiting").waitFor();
    await act("Pause");
    await status(page, "paused").waitFor();
    await act("Resume");
    await status(page, "waiting").waitFor();
    await page.locator(".actions").getByRole("button", { name: "Signal" }).click();
    const dialog = page.locator("dialog[open]");
    assert.equal(await dialog.getByLabel("Name").inputValue(), "go");
    await dialog.getByLabel("Payload").fill("7");
    await dialog.getByRole("button", { name: "Signal" }).click();
    await dialog.getByRole("alert").filter({ hasText: /./ }).waitFor();
    await dialog.getByLabel("Payload").fill('"from the page"');
    await dialog.getByRole("button", { name: "Signal" }).click();
    await status(page, "completed").waitFor();
    await act("Restart");
    await status(page, "waiting").or(status(page, "completed")).first().waitFor();
    const failed = (await server.start("fail", "terminal", { prefer: "wait=10" })).id;
    await page.goto(server.address + runPath(failed));
    await act("Retry");
    await page.locator("[aria-label=Events] .event.cut").waitFor();
    const nap = (await server.start("nap", 600_000)).id;
    await page.goto(server.address + runPath(nap));
    // By the keyboard alone.
    await status(page, "sleeping").waitFor();
    await page.keyboard.press("a");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.locator("dialog[open]").waitFor();
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await status(page, "cancelled").waitFor();
    const run = await server.get(`/api/executions/${nap}`);
    assert.match(run.acts[0].by, /^session:/);
    return "pause, resume, signal, restart, retry, cancel";
  },

  async "after a kill the page says so, comes back, and has each event once"({ server, browser }) {
    const { id } = await server.start("paced", [40, 120]);
    const page = await open(browser, server, { path: runPath(id) });
    await page.locator("[aria-label=Events] .event").nth(5).waitFor();
    server.kill();
    const killed = performance.now();
    await page.locator(".link[data-link=reconnecting]").waitFor();
    const said = performance.now() - killed;
    await pause(1_500);
    await server.serve();
    const served = performance.now();
    await page.locator(".link[data-link=live]").waitFor();
    const back = performance.now() - served;
    await page.locator(".title .status[data-status=completed]").waitFor({ timeout: 60_000 });
    const { events } = await server.get(`/api/executions/${id}/history`);
    await page.waitForFunction((count) => document.querySelector("[aria-label=Events]").closest("section").querySelector("h2 .num").textContent === String(count), events.length);
    const seen = new Set();
    for (let n = 0; n < 60; n++) {
      const shown = await page.locator("[aria-label=Events] .seq").allTextContents();
      assert.equal(new Set(shown).size, shown.length);
      shown.forEach((seq) => seen.add(Number(seq)));
      await page.locator("[aria-label=Events]").evaluate((node) => node.scrollBy(0, 200));
      await page.waitForTimeout(20);
    }
    assert.deepEqual([...seen].sort((a, b) => a - b), events.map((event) => event.seq));
    return `${events.length} events; said after ${said.toFixed(0)} ms, back ${back.toFixed(0)} ms after the restart`;
  },

  async "a hidden tab closes its stream"({ server, browser }) {
    const page = await open(browser, server);
    let open_ = 0;
    page.on("websocket", (socket) => {
      open_ += 1;
      socket.on("close", () => (open_ -= 1));
    });
    await page.reload();
    await page.locator(".link[data-link=live]").waitFor();
    assert.equal(open_, 1);
    const hide = (state) =>
      page.evaluate((state) => {
        Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
        document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
      }, state);
    await hide("hidden");
    await page.locator(".link[data-link=paused]").waitFor();
    await pause(300);
    assert.equal(open_, 0);
    const { id } = await server.start("ten", null);
    await pause(300);
    assert.equal(await row(page, id).count(), 0);
    await hide("visible");
    await row(page, id).waitFor();
    return "0 sockets while hidden";
  },

  async "text of others stays text"({ server, browser }) {
    const ids = [];
    for (const canary of CANARIES) {
      // The engine refuses tags and names of signals with characters that cannot be seen.
      const tag = canary.replace(/[\u2000-\u2fff]/g, "").slice(0, 60);
      ids.push((await server.start("found", [["customer", canary.slice(0, 60)]], { query: `?tag=${encodeURIComponent(tag)}` })).id);
      ids.push((await server.start("fail", canary)).id);
      const { id } = await server.start("wait", 600_000);
      await server.call("POST", `/api/executions/${id}/signals/${encodeURIComponent(tag)}`, JSON.stringify(canary));
      ids.push(id);
    }
    const page = await open(browser, server);
    const harmless = async (where) => {
      assert.equal(await page.evaluate(() => window.hit), undefined, where);
      const foreign = await page.evaluate(() => document.querySelectorAll("main img, main script, main svg, main iframe, main [onerror], main [onload], a[href^='javascript']").length);
      assert.equal(foreign, 0, where);
      const hidden = await page.evaluate(() => /[\u202a-\u202e\u2066-\u2069\u2028\u2029]/.test(document.querySelector("main").textContent));
      assert(!hidden, `${where}: a character that turns text around`);
    };
    await page.locator(".row").first().waitFor();
    await harmless("the list");
    for (const id of ids) {
      await page.goto(server.address + runPath(id));
      await page.locator(".payload pre").first().waitFor();
      const first = page.locator(".bar .label").first();
      if (await first.count()) await first.click();
      await pause(50);
      await harmless(id);
    }
    for (const canary of CANARIES) {
      await page.goto(`${server.address}/dash/?q=${encodeURIComponent(`tag:"${canary.replaceAll('"', '\\"')}"`)}`);
      await page.locator("#filter").waitFor();
      await harmless("the filter");
      await page.goto(`${server.address}/dash/runs/${encodeURIComponent(canary)}`);
      await page.locator(".notice").waitFor();
      await harmless("an address");
    }
    return `${CANARIES.length} texts in ${ids.length} runs, filters and addresses`;
  },

  async "a large and a deep payload can be looked at and downloaded"({ server, browser }) {
    const deep = "[".repeat(1_000) + "]".repeat(1_000);
    const large = JSON.stringify({ text: "x".repeat(1_900_000), end: "\u{1F600}" });
    let slowest = 0;
    for (const body of [large, deep]) {
      const { id } = await server.call("POST", "/api/workflows/nap/start", body);
      const began = performance.now();
      const page = await open(browser, server, { path: runPath(id) });
      await page.locator(".payload pre").first().waitFor();
      slowest = Math.max(slowest, performance.now() - began);
      assert((await page.locator(".payload pre").first().textContent()).length < 100_000);
      const [download] = await Promise.all([page.waitForEvent("download"), page.locator(".payload").first().getByRole("button", { name: "Download" }).click()]);
      assert.equal(readFileSync(await download.path(), "utf8"), body);
      await page.context().close();
    }
    return `byte-equal; the slower one was shown ${slowest.toFixed(0)} ms after the page was opened, with signing in`;
  },

  async "a key sees what it may see, and does what it may do"({ server, browser }) {
    const waiting = (await server.start("wait", 600_000)).id;
    const other = (await server.start("ten", null, { prefer: "wait=5" })).id;
    const reader = await key(server, "read");
    const page = await open(browser, server, { key: reader.key, path: runPath(waiting) });
    await status(page, "waiting").waitFor();
    await page.locator(".bar .label").first().click();
    assert.equal(await page.locator(".actions button, dialog button.main").count(), 0);
    await page.goto(server.address + runPath(other));
    await page.locator(".bar .label").first().click();
    await page.getByRole("region", { name: "Selected" }).waitFor();
    assert.equal(await page.getByRole("button", { name: /Restart|Retry|Cancel|Pause|Signal/ }).count(), 0);
    const narrow = await key(server, "write:wait");
    const own = await open(browser, server, { key: narrow.key });
    await row(own, waiting).waitFor();
    assert.deepEqual([...new Set(await own.locator(".row .name").allTextContents())], ["wait"]);
    await own.locator(".link[data-link=live]").waitFor();
    await own.goto(server.address + runPath(other));
    await own.getByText("There is no such run").waitFor();
    await own.locator(".link[data-link=ended]").waitFor({ state: "attached" });
    await own.goto(server.address + runPath(waiting));
    await own.locator(".actions").getByRole("button", { name: "Cancel" }).waitFor();
    const revoked = performance.now();
    await server.call("POST", `/api/keys/${narrow.id}/revoke`);
    await own.getByLabel("API key").waitFor();
    const out = performance.now() - revoked;
    assert(out <= 2_000, `${out} ms`);
    return `a revoked key was out after ${out.toFixed(0)} ms`;
  },

  async "bars of parallel steps are as long as their calls, and steps under way are drawn"({ server, browser }) {
    // The answer to the first one tells the program that somebody follows.
    const delays = [3_000, 6_000];
    const called = [];
    const slow = createServer((_, response) => {
      const [at, delay] = [performance.now(), delays[called.length]];
      const call = { took: undefined };
      called.push(call);
      setTimeout(() => response.end("ok", () => (call.took = performance.now() - at)), delay);
    });
    await new Promise((resolve) => slow.listen(0, "127.0.0.1", resolve));
    try {
      const { id } = await server.start("gather", [`http://127.0.0.1:${slow.address().port}/`, 0]);
      const page = await open(browser, server, { path: runPath(id) });
      await page.locator(".bar", { has: page.locator(".label[data-mark=open] .name", { hasText: /^(one|other)$/ }) }).waitFor();
      const under = performance.now();
      await status(page, "completed").waitFor();
      assert(performance.now() - under > 500, "it was drawn while it was under way");
      // The axis begins and ends with the run; a bar is as wide as its part of it.
      const { created_at: from, ended_at: to } = await server.get(`/api/executions/${id}`);
      const bars = await page.locator(".bar[role=listitem]").evaluateAll((nodes) =>
        nodes.map((node) => ({ name: node.querySelector(".name").textContent, pieces: [...node.querySelectorAll(".piece[data-kind=work]")].map((piece) => [piece.style.left, piece.style.width].map((text) => Number.parseFloat(text) / 100)) })),
      );
      let worst = 0;
      const calls = called.map((call) => call.took).sort((a, b) => a - b);
      const drawn = ["one", "other"].map((name) => bars.find((bar) => bar.name === name).pieces[0]).sort((a, b) => a[1] - b[1]);
      for (const [n, [left, width]] of drawn.entries()) {
        worst = Math.max(worst, Math.abs(width * (to - from) - calls[n]), Math.abs(left * (to - from)));
      }
      const figure = `two parallel calls of ${calls.map((ms) => ms.toFixed(0)).join(" and ")} ms: bars are off by at most ${worst.toFixed(0)} ms`;
      assert(worst <= 50, `${figure}: ${JSON.stringify([bars, from, to])}`);
      return figure;
    } finally {
      slow.close();
    }
  },

  async "times agree with the zone that was chosen"({ server, browser }) {
    const { id, created_at: at } = await server.start("ten", null, { prefer: "wait=5" });
    const shown = async (timezoneId) => {
      const page = await open(browser, server, { timezoneId, path: runPath(id) });
      const fact = page.locator(".facts time").first();
      const local = await fact.textContent();
      const wanted = await page.evaluate((at) => new Date(at).toLocaleString("sv-SE"), at);
      assert(local.startsWith(wanted), `${timezoneId}: ${local}, not ${wanted}`);
      await page.keyboard.press("u");
      await page.waitForFunction(() => document.querySelector(".facts time").textContent.endsWith("UTC"));
      assert(new Date(at).toISOString().replace("T", " ").startsWith((await fact.textContent()).slice(0, 19)));
    };
    for (const zone of ["Asia/Kathmandu", "America/New_York", "UTC"]) await shown(zone);
    return "3 zones and UTC";
  },

  async "the keyboard is enough"({ server, browser }) {
    const page = await open(browser, server);
    await page.locator(".row").first().waitFor();
    await page.keyboard.press("?");
    await page.locator("dialog[open]").getByText("next and previous row").waitFor();
    await page.keyboard.press("Escape");
    await page.locator("body").click({ position: { x: 5, y: 5 } });
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    const id = await page.locator(".row.selected a").getAttribute("href");
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => url.pathname === id);
    await page.keyboard.press("b");
    await page.locator("#filter").waitFor();
    await page.keyboard.press("t");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
    return "?, j, Enter, b, t";
  },

  async "axe finds nothing in either theme, and nothing sticks out"({ server, browser }) {
    const ids = await fill(server);
    let looked = 0;
    for (const [width, colorScheme] of [[1280, "light"], [1280, "dark"], [320, "light"], [390, "dark"], [1920, "dark"]]) {
      const page = await open(browser, server, { width, colorScheme, key: null });
      const check = async (what) => {
        await accessible(page, `${what}, ${width} px, ${colorScheme}`);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert(over <= 0, `${what}, ${width} px: ${over} px stick out`);
        looked += 1;
      };
      await page.getByLabel("API key").waitFor();
      await check("sign-in");
      // A key signs in once a second.
      await pause(1_100);
      await signIn(page, KEY);
      const see = async (what, path, selector) => {
        await page.goto(server.address + path);
        await page.locator(selector).first().waitFor();
        await check(what);
      };
      await see("runs", "/dash/", ".row");
      await see("no runs", "/dash/?q=tag:none", ".notice");
      await see("a wrong filter", "/dash/?q=nothing", "#filter-wrong:not(:empty)");
      await see("a run", runPath(ids.chatty), ".bar .label");
      await see("a failed run", `${runPath(ids.failed)}?step=step:0:r`, ".detail");
      await see("no run", runPath("default-1-1-1-000000000000"), ".notice");
      await see("workflows", "/dash/workflows", "tbody tr");
      await see("schedules", "/dash/schedules", ".nothing, tbody tr");
      await see("nowhere", "/dash/nowhere", ".notice");
      await see("a waiting run", runPath(ids.waiting), ".actions button");
      await page.getByRole("button", { name: "Signal" }).click();
      await page.locator("dialog[open]").waitFor();
      await check("a dialog");
      await page.context().close();
    }
    return `${looked} pages without a violation`;
  },
};
