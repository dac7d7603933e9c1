// Pages of tables, facts and actions: each shows what the API says, and what is done there has its effect.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { accessible, open } from "./browser.mjs";
import { KEY } from "./server.mjs";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const json = (value) => JSON.stringify(value);

/** Asks until it is so. */
async function until(what, ask, ms = 15_000) {
  const end = performance.now() + ms;
  for (;;) {
    if (await ask()) return;
    assert(performance.now() < end, `in ${ms} ms, not so: ${what}`);
    await pause(100);
  }
}

const section = (page, title) => page.locator(".page section.panel", { has: page.locator("h2", { hasText: title }) });
const fact = (scope, name) => scope.locator(`dt:text-is("${name}") + dd`);
const title = (page, text) => page.locator(".page h1", { hasText: text }).waitFor();

/** Presses a button, fills in the dialog, and confirms. */
async function act(page, label, fields = {}, scope = page.locator(".top .actions")) {
  await scope.getByRole("button", { name: label, exact: true }).first().click();
  const dialog = page.locator("dialog[open]");
  await dialog.waitFor();
  for (const [name, value] of Object.entries(fields)) {
    const field = dialog.getByLabel(name, { exact: true });
    const tag = await field.evaluate((node) => node.tagName);
    if (tag === "SELECT") await field.selectOption(value);
    else if (typeof value === "boolean") await field.setChecked(value);
    else await field.fill(value);
  }
  await dialog.locator("button.main").click();
}

async function done(page) {
  await page.locator("dialog[open]").waitFor({ state: "detached" });
}

/** A server that keeps whoever asks waiting until it is let go. */
async function holder() {
  let waiting = [];
  const server = createServer((_, response) => waiting.push(response));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    address: `http://127.0.0.1:${server.address().port}/`,
    count: () => waiting.length,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Data for every page. Made once. */
let made;
export async function furnish(server) {
  if (made) return made;
  const call = (method, path, body) => server.call(method, path, body === undefined ? undefined : json(body), { "content-type": "application/json" });
  await server.start("fail", "terminal", { prefer: "wait=10" });
  await call("PUT", "/api/schedules/nightly", { workflow: "ten", when: "every weekday at 9:00 in Europe/Berlin", input: 3, tags: ["nightly"] });
  await call("PUT", "/api/triggers/order/charge", { on: "order/*", workflow: "echo", when: "event.data.id > 0" });
  await call("POST", "/api/events", { name: "order/paid", id: "evt_1", data: { id: 7 } });
  await call("PUT", "/api/webhooks/shop/orders", { kind: "hmac", header: "x-signature", event: "shop/order", secret: "a-secret-of-the-shop" });
  const { url } = await server.get("/api/webhooks/shop/orders");
  const body = json({ id: 9 });
  const signed = createHmac("sha256", "a-secret-of-the-shop").update(body).digest("hex");
  const path = new URL(url, server.address).pathname;
  const delivered = await fetch(server.address + path, { method: "POST", body, headers: { "x-signature": signed } });
  assert.equal(delivered.status, 200, await delivered.text());
  await fetch(server.address + path, { method: "POST", body, headers: { "x-signature": "00" } });
  await call("POST", "/api/queues/mails/jobs", { body: { to: "ada@example.com" } });
  await call("POST", "/api/queues/mails/jobs", { body: { to: "bob@example.com" } });
  const { jobs } = await call("POST", "/api/queues/mails/claim", { limit: 1 });
  await call("POST", "/api/queues/mails/nack", { leases: [jobs[0].lease], dead: true, reason: "no such address" });
  await call("PUT", "/api/alerts/fails", { on: "failures", workflow: "fail", url: "https://ops.example.com/stepwell" });
  await until("the event has started a run", async () => (await server.get("/api/executions?workflow=echo")).executions.length > 0);
  const { deliveries } = await server.get("/api/webhooks/shop/orders/deliveries");
  made = { dead: jobs[0].id, delivery: deliveries.find((one) => one.status === "accepted").id };
  return made;
}

/** Every page, with what shows that it is there. */
export const pages = ({ dead, delivery }) => [
  ["workflows", "/dash/workflows", "tbody tr"],
  ["a workflow", "/dash/workflows/fail", "h2:has-text('Failures')"],
  ["a workflow with limits", "/dash/workflows/limited", "h2:has-text('Limits set by hand')"],
  ["schedules", "/dash/schedules", "tbody tr"],
  ["a schedule", "/dash/schedules/nightly", "tbody tr"],
  ["topics", "/dash/events", "tbody tr"],
  ["a topic", "/dash/events/order", "tbody tr"],
  ["an event", "/dash/events/order/evt_1", "tbody tr"],
  ["a trigger", "/dash/triggers/order/charge", ".facts"],
  ["a webhook", "/dash/webhooks/shop/orders", "tbody tr"],
  ["a delivery", `/dash/webhooks/shop/orders/${delivery}`, ".payload"],
  ["lanes", "/dash/lanes", "tbody tr"],
  ["a lane", "/dash/lanes/asks", "h2:has-text('Waiting')"],
  ["queues", "/dash/queues", "tbody tr"],
  ["a queue", "/dash/queues/mails", "tbody tr"],
  ["a job", `/dash/queues/mails/jobs/${dead}`, ".payload"],
  ["outbox", "/dash/outbox", ".nothing"],
  ["metrics", "/dash/metrics", "svg"],
  ["failures", "/dash/failures", "tbody tr"],
  ["cells", "/dash/cells", "tbody tr"],
  ["alerts", "/dash/alerts", "tbody tr"],
  ["keys", "/dash/keys", "h1:has-text('Keys')"],
  ["sessions", "/dash/sessions", "tbody tr"],
  ["settings", "/dash/settings", ".facts"],
  ["audit log", "/dash/audit", "tbody tr"],
  ["namespaces", "/dash/namespaces", "h2"],
  ["no schedule", "/dash/schedules/none", ".notice"],
];

export const pageTests = {
  async "pages: a workflow shows what the API says, starts, pauses and changes"({ server, browser }) {
    await furnish(server);
    const page = await open(browser, server, { path: "/dash/workflows" });
    await page.locator("tbody th a", { hasText: /^fail$/ }).click();
    await title(page, "fail");
    const { workflows } = await server.get("/api/metrics?workflow=fail");
    assert.equal(await fact(section(page, "Runs"), "failed").textContent(), String(workflows.fail.failed));
    const failures = section(page, "Failures");
    const [latest] = (await server.get("/api/failures?workflow=fail&limit=1")).failures;
    await failures.locator(`a[href="/dash/runs/${latest.runs[0]}"]`).waitFor();
    await failures.getByText(latest.message).first().waitFor();
    await act(page, "Pause");
    await done(page);
    await page.locator(".title .status", { hasText: "paused by" }).waitFor();
    assert.equal((await server.get("/api/workflows/fail")).status, "paused");
    await act(page, "Resume");
    await done(page);
    await page.locator(".title .status", { hasText: "active" }).waitFor();
    assert.equal((await server.get("/api/workflows/fail")).status, "active");
    await act(page, "Change", { Timeout: "soon" }, section(page, "Settings"));
    await page.locator("dialog[open] [role=alert]", { hasText: "not a length of time" }).waitFor();
    await page.locator("dialog[open]").getByLabel("Timeout").fill("10m");
    await page.locator("dialog[open] button.main").click();
    await done(page);
    await section(page, "Settings").getByText("10 minutes").first().waitFor();
    assert.equal((await server.get("/api/workflows/fail")).effective.timeout_ms, 600_000);
    await act(page, "Remove changes", {}, section(page, "Settings"));
    await done(page);
    await until("the settings are gone", async () => !(await server.get("/api/workflows/fail")).changed);
    await page.goto(`${server.address}/dash/workflows/nap`);
    await act(page, "Start a run", { [await inputLabel(server, "nap")]: "1", "Idempotency key": "by-page", Tag: "by-hand" });
    await page.waitForURL((url) => url.pathname.startsWith("/dash/runs/"));
    const id = new URL(page.url()).pathname.split("/").pop();
    const run = await server.get(`/api/executions/${id}`);
    assert.deepEqual([run.workflow, run.tags], ["nap", ["by-hand"]]);
    assert.equal((await server.get("/api/workflows/nap/by-key/by-page")).id, id);
    return "started, paused, resumed, changed";
  },

  async "pages: a schedule ticks, pauses, is edited, triggered and filled"({ server, browser }) {
    await furnish(server);
    const page = await open(browser, server, { path: "/dash/schedules" });
    await page.locator("tbody th a", { hasText: "nightly" }).click();
    await title(page, "nightly");
    const { ticks } = await server.get("/api/schedules/nightly/next");
    await page.keyboard.press("u");
    const shown = section(page, "Next ticks").locator("tbody th time");
    await shown.first().waitFor();
    const first = new Date(ticks[0]).toISOString().replace("T", " ").slice(0, 19);
    await until("ticks in UTC", async () => (await shown.first().textContent()).startsWith(first));
    assert.equal(await shown.count(), ticks.length);
    await act(page, "Pause");
    await done(page);
    await page.locator(".title .status", { hasText: "paused by" }).waitFor();
    assert((await server.get("/api/schedules/nightly")).paused);
    await act(page, "Resume");
    await done(page);
    await act(page, "Trigger now");
    await done(page);
    const own = async () => (await server.get("/api/executions?workflow=ten&limit=100")).executions.filter((run) => run.started_by === "schedule:nightly");
    await until("a run was started", async () => (await own()).length === 1);
    const [run] = await own();
    assert.deepEqual(run.tags.filter((tag) => tag === "nightly"), ["nightly"]);
    await page.getByRole("button", { name: "Refresh" }).click();
    await section(page, "Latest runs").locator(`a[href="/dash/runs/${run.id}"]`).waitFor();
    await act(page, "Edit", { "When *": "every blue moon" });
    await page.locator("dialog[open] [role=alert]", { hasText: /./ }).waitFor();
    await page.locator("dialog[open]").getByLabel("When *").fill("every 2 hours");
    await page.locator("dialog[open] button.main").click();
    await done(page);
    await fact(section(page, "Schedule"), "When").getByText("every 2 hours").waitFor();
    const { spec } = await server.get("/api/schedules/nightly");
    assert.deepEqual([spec.when, spec.input, spec.tags], ["every 2 hours", 3, ["nightly"]]);
    const from = new Date(Date.now() - 5 * 3_600_000).toISOString().slice(0, 16);
    await act(page, "Backfill", { "From *": from, "To *": new Date().toISOString().slice(0, 16) });
    await done(page);
    await until("past ticks have started runs", async () => (await own()).length >= 3);
    await page.goto(`${server.address}/dash/schedules`);
    await act(page, "Create a schedule", { "Id *": "weekly", "Workflow *": "ten", "When *": "every monday at 6:00", "Input, as JSON": "1" });
    await done(page);
    await page.locator("tbody th a", { hasText: "weekly" }).click();
    await act(page, "Delete");
    await page.waitForURL(`${server.address}/dash/schedules`);
    await until("it is deleted", async () => !(await server.get("/api/schedules")).schedules.some((one) => one.id === "weekly"));
    return "ticks, pause, resume, trigger, edit, backfill, create, delete";
  },

  async "pages: events lead to runs, triggers and webhooks"({ server, browser }) {
    await furnish(server);
    const page = await open(browser, server, { path: "/dash/events" });
    await page.getByLabel("Topic", { exact: true }).fill("order");
    await page.getByRole("button", { name: "Show events" }).click();
    await title(page, "order");
    await act(page, "Send an event", { "Name *": "order/shipped", Id: "evt_2", "Data, as JSON": '{"id": 8}' });
    await done(page);
    await section(page, "Events").locator("tbody th a", { hasText: "evt_2" }).click();
    await title(page, "evt_2");
    const sent = await server.get("/api/events/order/evt_2");
    assert.deepEqual(sent.data, { id: 8 });
    await until("it has started a run", async () => (await server.get(`/api/executions?tag=${encodeURIComponent(sent.tag)}`)).executions.length === 1);
    await page.getByRole("button", { name: "Refresh" }).click();
    const [run] = (await server.get(`/api/executions?tag=${encodeURIComponent(sent.tag)}`)).executions;
    await section(page, "Runs that it started").locator(`a[href="/dash/runs/${run.id}"]`).waitFor();
    await page.goto(`${server.address}/dash/triggers/order/charge`);
    await act(page, "Pause");
    await done(page);
    assert((await server.get("/api/triggers/order/charge")).paused);
    await act(page, "Resume");
    await done(page);
    assert(!(await server.get("/api/triggers/order/charge")).paused);
    await page.goto(`${server.address}/dash/webhooks/shop/orders`);
    const deliveries = section(page, "Latest deliveries");
    await deliveries.locator(".status", { hasText: "refused" }).waitFor();
    const before = (await server.get("/api/events?topic=shop")).events.length;
    await act(page, "Redeliver", {}, deliveries.locator("tr", { has: page.locator(".status", { hasText: "accepted" }) }));
    await done(page);
    await until("there is another event", async () => (await server.get("/api/events?topic=shop")).events.length === before + 1);
    await deliveries.locator("tr", { has: page.locator(".status", { hasText: "accepted" }) }).locator("th a").first().click();
    await page.locator(".payload pre", { hasText: "9" }).waitFor();
    await section(page, "Headers").locator("tbody tr").first().waitFor();
    return "sent, paused, resumed, redelivered";
  },

  async "pages: failures, cells and costs are what the API says, and filters find runs by them"({ server, browser }) {
    await furnish(server);
    const long = `say connection refused by https://payments.example.com/${"path".repeat(60)} at the first attempt`;
    await server.start("fail", long, { prefer: "wait=10" });
    const page = await open(browser, server, { path: "/dash/failures" });
    await page.locator("td.long").first().waitFor();
    // Nothing is printed over the next column.
    const over = await page.evaluate(() => [...document.querySelectorAll("td, tbody th")].filter((cell) => [...cell.querySelectorAll("*")].some((one) => one.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1)).length);
    assert.equal(over, 0);
    const [group] = (await server.get("/api/failures?limit=1")).failures;
    const row = page.locator("tbody tr", { hasText: group.message }).first();
    await row.locator(`a[href="/dash/runs/${group.runs[0]}"]`).waitFor();
    await page.goto(`${server.address}/dash/cells`);
    const { cells } = await server.get("/api/cells");
    await until("each cell has a row", async () => (await page.locator("tbody tr").count()) === cells.length);
    await page.locator("tbody tr", { hasText: cells[0].cell }).getByText("% full").waitFor();
    await until("costs are counted", async () => (await server.get("/api/metrics/workflows?minutes=60")).workflows.some((one) => one.workflow === "fail"), 90_000);
    await page.goto(`${server.address}/dash/metrics`);
    const costs = section(page, "By workflow").locator("tbody tr", { hasText: "fail" });
    await costs.getByText("$").waitFor();
    const found = async (filter) => {
      await page.goto(`${server.address}/dash/?q=${encodeURIComponent(filter)}`);
      await page.locator(".row, .notice, .nothing").first().waitFor();
      return page.locator(".row").count();
    };
    assert.equal(await found(`error:"${group.message.slice(0, 8)}" status:failed,cancelled since:1h id:${group.runs[0]}`), 1);
    assert((await found("workflow:fail status:failed,paused ended-since:1h")) > 0);
    assert.equal(await found("workflow:fail longer:3h"), 0);
    assert.equal(await found("workflow:fail is:retrying"), 0);
    return `${cells.length} cells, ${group.count} failures in a group`;
  },

  async "pages: a lane shows who works and who waits, and its limits change"({ server, browser }) {
    const work = await holder();
    try {
      for (let n = 0; n < 4; n++) await server.start("limited", { customer: "acme", address: work.address, steps: 1 });
      await until("two work", () => work.count() === 2);
      const page = await open(browser, server, { path: "/dash/workflows/limited" });
      const lane = await server.get("/api/workflows/limited/lane");
      const waiting = lane.runs.filter((run) => run.waits_for).map((run) => `/dash/runs/${run.run}`);
      assert.equal(waiting.length, 2);
      for (const href of waiting) await section(page, "Waiting").locator(`a[href="${href}"]`).waitFor();
      assert.equal(await section(page, "Working").locator("tbody tr").count(), 2);
      await act(page, "Change a limit", { "Which limit": "input.customer", "For this key only": "acme", "Limit *": "3" }, section(page, "Limits set by hand"));
      await done(page);
      await until("three work", () => work.count() === 3);
      const { set } = await server.get("/api/workflows/limited/lane");
      assert.deepEqual(set.map((one) => [one.by, one.key, one.max]), [["input.customer", "acme", 3]]);
      await act(page, "Reset", {}, section(page, "Limits set by hand").locator("tbody"));
      await done(page);
      await until("it is reset", async () => !((await server.get("/api/workflows/limited/lane")).set ?? []).length);
      await server.start("limited_steps", { customer: "acme", address: work.address, steps: 2 });
      await page.goto(`${server.address}/dash/lanes`);
      await page.getByLabel("Lane of steps", { exact: true }).fill("asks");
      await page.getByRole("button", { name: "Show lane" }).click();
      await section(page, "Working").locator("tbody tr").nth(1).waitFor();
      await page.goto(`${server.address}/dash/lanes`);
      await section(page, "Lanes of steps").locator("a", { hasText: "asks" }).waitFor();
    } finally {
      work.close();
    }
    return "two worked, two waited, then three worked";
  },

  async "pages: a queue pauses, and its dead letters are edited, redriven and discarded"({ server, browser }) {
    const { dead } = await furnish(server);
    const page = await open(browser, server, { path: "/dash/queues" });
    await page.locator("tbody th a", { hasText: "mails" }).click();
    await title(page, "mails");
    const { counts } = await server.get("/api/queues/mails");
    assert.equal(await fact(section(page, "Jobs"), "Waiting").textContent(), String(counts.depth));
    for (const [label, state] of [["Pause", "paused"], ["Resume", "active"], ["Drain", "draining"], ["Resume", "active"]]) {
      await act(page, label);
      await done(page);
      await page.locator(".title .status", { hasText: state }).waitFor();
      assert.equal((await server.get("/api/queues/mails")).settings.state, state);
    }
    await act(page, "Send a job", { "Body, as JSON *": '{"to": "cy@example.com"}' });
    await done(page);
    await until("it is there", async () => (await server.get("/api/queues/mails")).counts.depth === counts.depth + 1);
    await act(page, "Change", { Attempts: "7" }, section(page, "Settings"));
    await done(page);
    await until("it has changed", async () => (await server.get("/api/queues/mails")).settings.max_attempts === 7);
    const letters = section(page, "Dead letters");
    await letters.getByText("no such address").waitFor();
    await letters.locator("th a", { hasText: dead }).click();
    await page.locator(".payload pre", { hasText: "@example.com" }).waitFor();
    await act(page, "Edit", { "Body, as JSON *": '{"to": "ada@example.org"}' });
    await done(page);
    await page.locator(".payload pre", { hasText: "example.org" }).waitFor();
    await act(page, "Redrive");
    await done(page);
    await page.locator(".title .status", { hasText: "queued" }).waitFor();
    assert.equal((await server.get(`/api/queues/mails/jobs/${dead}`)).status, "queued");
    // For the pages that are looked at later, and one to discard.
    for (const reason of ["gone", "kept"]) {
      const { jobs } = await server.call("POST", "/api/queues/mails/claim", json({ limit: 1 }));
      // All were sent as JSON, also by the page.
      assert.match(jobs[0].body.to, /@example/);
      await server.call("POST", "/api/queues/mails/nack", json({ leases: [jobs[0].lease], dead: true, reason }));
      if (reason === "kept") made.dead = jobs[0].id;
    }
    await page.goto(`${server.address}/dash/queues/mails`);
    await act(page, "Discard", {}, letters.locator("tr", { hasText: "gone" }));
    await done(page);
    await until("it is gone", async () => (await server.get("/api/queues/mails")).counts.dead === 1);
    await letters.locator("tr", { hasText: "gone" }).waitFor({ state: "detached" });
    await letters.locator("tr", { hasText: "kept" }).waitFor();
    return "paused, drained, sent, changed, edited, redriven, discarded";
  },

  async "pages: metrics are those of the API, and alerts can be made"({ server, browser }) {
    await furnish(server);
    await until("minutes are stored", async () => (await server.get("/api/metrics/minutes?minutes=60")).minutes.some((one) => one.started > 0), 90_000);
    const page = await open(browser, server, { path: "/dash/metrics" });
    const { minutes } = await server.get("/api/metrics/minutes?minutes=60");
    const started = minutes.reduce((sum, minute) => sum + (minute.started ?? 0), 0);
    const said = Number((await section(page, "Runs started").locator("figcaption .status").textContent()).replace(/\D/g, ""));
    assert(Math.abs(said - started) <= 3, `${said} on the page, ${started} in the API`);
    assert((await section(page, "Runs started").locator("path").getAttribute("d")).startsWith("M"));
    assert((await section(page, "In numbers").locator("tbody tr").count()) > 0);
    await page.getByLabel("Workflow", { exact: true }).fill("fail");
    await page.getByRole("button", { name: "Show metrics" }).click();
    await page.waitForURL((url) => url.searchParams.get("workflow") === "fail");
    await page.goto(`${server.address}/dash/alerts`);
    await page.locator("tbody tr", { hasText: "fails" }).waitFor();
    await act(page, "Waiting jobs", { "Id *": "mails-pile-up", "Queue *": "mails", "More than so many jobs *": "500", "Address to tell *": "https://ops.example.com/mails" }, section(page, "Create an alert"));
    await done(page);
    const row = page.locator("tbody tr", { hasText: "mails-pile-up" });
    await row.waitFor();
    const alert = await server.get("/api/alerts/mails-pile-up");
    assert.deepEqual([alert.on, alert.queue, alert.above], ["backlog", "mails", 500]);
    await act(page, "Edit", { "More than so many jobs *": "600" }, row);
    await done(page);
    await until("it has changed", async () => (await server.get("/api/alerts/mails-pile-up")).above === 600);
    await act(page, "Delete", {}, row);
    await done(page);
    await row.waitFor({ state: "detached" });
    assert.equal((await server.get("/api/alerts")).alerts.length, 1);
    return `${said} runs started`;
  },

  async "pages: keys are shown once, and sessions, settings and the log are looked after"({ server, browser }) {
    await furnish(server);
    const page = await open(browser, server, { path: "/dash/keys" });
    await act(page, "Create a key", { "Name *": "by-page", "Scopes *": "read\nwrite:ten" });
    const text = (await page.locator("dialog[open] .answer pre").textContent()).trim();
    assert.match(text, /^sw_live_/);
    const session = await fetch(`${server.address}/api/session`, { headers: { authorization: `Bearer ${text}` } });
    assert.notEqual(session.status, 401);
    await page.locator("dialog[open]").getByRole("button", { name: "Close" }).click();
    const row = page.locator("tbody tr", { hasText: "by-page" }).filter({ hasText: "active" });
    await row.waitFor();
    assert(!(await page.content()).includes(text), "the key is still there");
    assert(!(await page.evaluate(() => JSON.stringify({ ...localStorage }))).includes(text));
    await act(page, "Rotate", { Overlap: "0s" }, row);
    await page.locator("dialog[open] .answer pre").waitFor();
    await page.locator("dialog[open]").getByRole("button", { name: "Close" }).click();
    await act(page, "Revoke", {}, row);
    await done(page);
    await until("none is active", async () => !(await server.get("/api/keys")).keys.some((key) => key.name === "by-page" && key.status === "active"));
    const { token } = await (await fetch(`${server.address}/api/session`, { method: "POST", headers: { authorization: `Bearer ${(await server.call("POST", "/api/keys", json({ name: "other", scopes: ["read"] }))).key}` } })).json();
    await page.goto(`${server.address}/dash/sessions`);
    const own = page.locator("tbody tr", { hasText: "yours" });
    await own.waitFor();
    const others = (await server.get("/api/sessions")).sessions;
    const other = others.find((one) => one.scopes.length === 1 && one.scopes[0] === "read");
    await act(page, "End", {}, page.locator("tbody tr", { hasText: other.id }));
    await done(page);
    await until("it has ended", async () => (await fetch(`${server.address}/api/executions`, { headers: { authorization: `Bearer ${token}` } })).status === 401);
    await page.goto(`${server.address}/dash/settings`);
    await act(page, "Change", { "Kept after the end": "30d" }, section(page, "For all runs"));
    await done(page);
    await fact(section(page, "For all runs"), "Kept after the end").getByText("30 days").waitFor();
    assert.equal((await server.get("/api/settings")).runs.retention_ms, 30 * 86_400_000);
    await page.goto(`${server.address}/dash/audit`);
    const { records } = await server.get("/api/audit");
    await page.locator("tbody tr").first().waitFor();
    assert.equal(await page.locator("tbody tr").count(), records.length);
    await page.locator("tbody tr", { hasText: "retention_ms" }).first().waitFor();
    return `${records.length} entries`;
  },

  async "pages: namespaces take the deployment's own key, which is nowhere afterwards"({ server, browser }) {
    const page = await open(browser, server, { path: "/dash/namespaces" });
    const field = page.getByLabel("The deployment's own key", { exact: true });
    await field.fill("wrong");
    await page.getByRole("button", { name: "Use this key" }).click();
    await page.getByText(/not the deployment's own key|needs the deployment's own key/).first().waitFor();
    await field.fill(KEY);
    await page.getByRole("button", { name: "Use this key" }).click();
    await page.getByRole("button", { name: "Create a namespace" }).waitFor();
    await act(page, "Create a namespace", { "Name *": "acme" });
    assert.match(await page.locator("dialog[open] .answer pre").textContent(), /^sw_live_acme_/);
    await page.locator("dialog[open]").getByRole("button", { name: "Close" }).click();
    await page.locator("tbody th a", { hasText: "acme" }).click();
    await title(page, "acme");
    await act(page, "Change", { "Runs that have not ended": "100" }, section(page, "Limits"));
    await done(page);
    await until("it has a limit", async () => (await server.get("/api/namespaces/acme")).limits.live_runs === 100);
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.documentElement.outerHTML]));
    assert(!kept.includes(KEY));
    await page.getByRole("link", { name: "Runs", exact: true }).click();
    await page.locator("#filter").waitFor();
    await page.goBack();
    await field.waitFor();
    return "asked for again after leaving";
  },

  async "pages: a read key sees no action, and a key for one workflow only that one"({ server, browser }) {
    const data = await furnish(server);
    const reader = await server.call("POST", "/api/keys", json({ name: "reader", scopes: ["read"] }));
    const page = await open(browser, server, { key: reader.key });
    let count = 0;
    for (const [name, path, ready] of pages(data)) {
      if (["outbox", "keys", "sessions", "audit log", "namespaces"].includes(name)) continue;
      await page.goto(server.address + path);
      await page.locator(".page").locator(ready).first().waitFor().catch((error) => assert.fail(`${name}: ${error.message}`));
      const buttons = await page.locator("main button").allTextContents();
      const harmless = ["Refresh", "Copy", "Download", "Show events", "Show lane", "Show queue", "Show job", "Show metrics", "Try again"];
      assert.deepEqual(buttons.filter((text) => !harmless.includes(text)), [], name);
      count += 1;
    }
    assert.equal(await page.locator("nav a", { hasText: "Keys" }).count(), 0);
    const narrow = await server.call("POST", "/api/keys", json({ name: "narrow", scopes: ["write:fail"] }));
    const own = await open(browser, server, { key: narrow.key, path: "/dash/workflows" });
    await own.locator("tbody tr").first().waitFor();
    assert.deepEqual(await own.locator("tbody th").allTextContents(), ["fail"]);
    assert.equal(await own.locator("nav a", { hasText: /Schedules|Queues|Lanes|Alerts|Settings/ }).count(), 0);
    await own.locator("tbody th a").click();
    await own.locator(".top").getByRole("button", { name: "Start a run" }).waitFor();
    assert.equal(await own.getByRole("button", { name: "Pause" }).count(), 0);
    await own.goto(`${server.address}/dash/metrics`);
    await own.locator("svg").first().waitFor();
    await own.goto(`${server.address}/dash/schedules`);
    await own.locator(".notice").waitFor();
    return `${count} pages without an action`;
  },

  async "pages: filters are saved, runs are acted on together, started again and exported"({ server, browser }) {
    await furnish(server);
    const ids = [];
    for (let n = 0; n < 3; n++) ids.push((await server.start("wait", 600_000, { query: "?tag=together" })).id);
    const page = await open(browser, server, { path: "/dash/?q=tag:together" });
    await page.locator(".row").nth(2).waitFor();
    await page.getByRole("button", { name: "Save this view" }).click();
    await page.goto(`${server.address}/dash/`);
    await page.locator(".view a", { hasText: "tag:together" }).click();
    await page.waitForURL((url) => url.searchParams.get("q") === "tag:together");
    // Those that are checked, and no other.
    await page.getByLabel(`Select ${ids[1]}`).check();
    await page.getByLabel(`Select ${ids[2]}`).check();
    await page.getByLabel(`Select ${ids[2]}`).uncheck();
    await act(page, "Cancel selected", {}, page.locator(".views"));
    await page.waitForURL((url) => url.pathname.startsWith("/dash/runs/"));
    await until(`${ids[1]} is cancelled`, async () => (await server.get(`/api/executions/${ids[1]}`)).status === "cancelled");
    assert.equal((await server.get(`/api/executions?id=${ids[0]},${ids[2]}&status=waiting`)).executions.length, 2);
    await page.goto(`${server.address}/dash/?q=tag:together`);
    await act(page, "Cancel all", {}, page.locator(".views"));
    await page.waitForURL((url) => url.pathname.startsWith("/dash/runs/"));
    for (const id of ids) await until(`${id} is cancelled`, async () => (await server.get(`/api/executions/${id}`)).status === "cancelled");
    await page.goto(`${server.address}/dash/`);
    await page.getByRole("button", { name: "Remove tag:together" }).click();
    await page.locator(".view").waitFor({ state: "detached" });
    const { id } = await server.start("found", [["customer", "acme"]], { prefer: "wait=10" });
    await page.goto(`${server.address}/dash/runs/${id}`);
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export as JSON" }).click()]);
    const exported = JSON.parse(readFileSync(await download.path(), "utf8"));
    assert.equal(exported.run.id, id);
    assert.deepEqual(exported.history.flatMap((one) => one.events), (await server.get(`/api/executions/${id}/history`)).events);
    await page.locator(".actions").getByRole("button", { name: "Start again" }).click();
    const field = page.locator("dialog[open] textarea").first();
    assert.deepEqual(JSON.parse(await field.inputValue()), [["customer", "acme"]]);
    await field.fill('[["customer", "other"]]');
    await page.locator("dialog[open] button.main").click();
    await page.waitForURL((url) => url.pathname.startsWith("/dash/runs/") && !url.pathname.endsWith(id));
    const again = new URL(page.url()).pathname.split("/").pop();
    assert.deepEqual((await server.get(`/api/executions/${again}/history`)).input, [["customer", "other"]]);
    const reader = await server.call("POST", "/api/keys", json({ name: "reader of runs", scopes: ["read"] }));
    const other = await open(browser, server, { key: reader.key, path: "/dash/?q=tag:together" });
    await other.locator(".row").first().waitFor();
    assert.equal(await other.locator(".row input").count(), 0);
    assert.equal(await other.getByRole("button", { name: /all$/ }).filter({ hasText: /Cancel|Retry|Restart/ }).count(), 0);
    return "saved, cancelled together, exported, started again";
  },

  async "pages: keys of the keyboard lead to them"({ server, browser }) {
    await furnish(server);
    const page = await open(browser, server);
    await page.locator("#filter").waitFor();
    for (const [key, path] of [["w", "workflows"], ["s", "schedules"], ["e", "events"], ["q", "queues"], ["l", "lanes"], ["m", "metrics"], ["a", "alerts"], ["k", "keys"], ["t", "settings"], ["u", "audit"]]) {
      await page.keyboard.press("g");
      await page.keyboard.press(key);
      await page.waitForURL(`${server.address}/dash/${path}`);
    }
    await page.goto(`${server.address}/dash/schedules`);
    await page.locator("tbody tr").first().waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.waitForURL((url) => url.pathname.startsWith("/dash/schedules/"));
    await page.keyboard.press("?");
    await page.locator("dialog[open]").getByText("Audit log").waitFor();
    return "10 pages";
  },

  async "pages: axe finds nothing in either theme, and nothing sticks out"({ server, browser }) {
    const data = await furnish(server);
    let looked = 0;
    for (const [width, colorScheme] of [[1280, "light"], [1280, "dark"], [320, "light"], [320, "dark"]]) {
      // A key signs in once a second.
      await pause(1_100);
      const page = await open(browser, server, { width, colorScheme });
      const check = async (what) => {
        await accessible(page, `${what}, ${width} px, ${colorScheme}`);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert(over <= 0, `${what}, ${width} px: ${over} px stick out`);
        looked += 1;
      };
      for (const [name, path, ready] of pages(data)) {
        await page.goto(server.address + path);
        await page.locator(".page").locator(ready).first().waitFor().catch((error) => assert.fail(`${name}: ${error.message}`));
        await check(name);
      }
      await page.goto(`${server.address}/dash/schedules/nightly`);
      await page.getByRole("button", { name: "Edit" }).click();
      await page.locator("dialog[open]").waitFor();
      await check("a form");
      await page.keyboard.press("Escape");
      if (width < 800) {
        await page.locator("nav .burger").click();
        await page.locator("nav a", { hasText: "Queues" }).waitFor();
      } else {
        await page.locator("nav button", { hasText: "Queues" }).click();
      }
      await check("the menu");
      await page.context().close();
    }
    return `${looked} pages without a violation`;
  },
};

/** What the field of a plain input is called, or that of any other. */
async function inputLabel(server, workflow) {
  const { input_schema: schema } = await server.get(`/api/workflows/${workflow}`);
  return ["integer", "number", "string"].includes(schema?.type) ? "Input *" : "Input, as JSON";
}
