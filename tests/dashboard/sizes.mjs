// What must hold at a size. Takes minutes: `just dashboard-test --quick` leaves it out.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { open } from "./browser.mjs";
import { DATEFUDGE, KEY, Server } from "./server.mjs";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const percentile = (numbers, part) => numbers.sort((a, b) => a - b)[Math.ceil(numbers.length * part) - 1];
const count = (name, otherwise) => Number(process.env[name] ?? otherwise);

/** Calls something so often, so many at once. */
async function often(times, atOnce, call) {
  let next = 0;
  const one = async () => {
    while (next < times) await call(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, one));
}

/** Scrolls an element for so long, and gives the times of frames and of long tasks. */
const scrolled = (page, selector, ms, step) =>
  page.evaluate(
    ([selector, ms, step]) =>
      new Promise((resolve) => {
        const tasks = [];
        const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)));
        observer.observe({ type: "longtask" });
        const node = document.querySelector(selector);
        const frames = [];
        let [last, rows] = [performance.now(), 0];
        const began = last;
        const frame = (now) => {
          frames.push(now - last);
          last = now;
          rows = Math.max(rows, node.querySelectorAll(".row, .bar, .event").length);
          node.scrollBy(0, step);
          if (now - began < ms) requestAnimationFrame(frame);
          else resolve({ frames: frames.slice(1), tasks, rows, top: node.scrollTop });
        };
        requestAnimationFrame(frame);
      }),
    [selector, ms, step],
  );

export const sizes = {
  async "a list of very many runs appears at once and scrolls smoothly"({ server, browser }) {
    const many = count("STEPWELL_DASHBOARD_RUNS", 50_000);
    await often(many, 64, () => server.start("nap", 36_000_000));
    // The first list after a start loads the cells.
    await server.get("/api/executions?limit=1");
    const page = await open(browser, server);
    await page.locator(".row").first().waitFor();
    const shown = await page.evaluate(async () => {
      const response = performance.now();
      await fetch("/api/executions?limit=100");
      return performance.now() - response;
    });
    const began = performance.now();
    await page.reload();
    await page.locator(".row").first().waitFor();
    const first = performance.now() - began;
    const { frames, tasks, rows, top } = await scrolled(page, ".table .scroll", 30_000, 400);
    const [p95, longest] = [percentile(frames, 0.95), Math.max(0, ...tasks)];
    const figure = `${many} runs: first rows after ${first.toFixed(0)} ms (the API alone: ${shown.toFixed(0)} ms); 30 s of scrolling over ${Math.round(top / 32)} rows: p95 frame ${p95.toFixed(0)} ms, longest task ${longest.toFixed(0)} ms, at most ${rows} rows drawn`;
    assert(first <= 1_000 && p95 <= 34 && longest <= 200 && rows <= 150, figure);
    return figure;
  },

  async "a run of very many steps is drawn soon and scrolls smoothly"({ server, browser }) {
    const steps = count("STEPWELL_DASHBOARD_STEPS", 10_000);
    const { id } = await server.start("many", [steps, 20]);
    for (let n = 0; n < 600; n++) {
      if ((await server.get(`/api/executions/${id}`)).status === "completed") break;
      await pause(500);
    }
    const page = await open(browser, server);
    await page.locator(".row").first().waitFor();
    const began = performance.now();
    await page.goto(`${server.address}/dash/runs/${id}`);
    await page.locator(".bar .label").first().waitFor();
    const painted = performance.now() - began;
    await page.waitForFunction((steps) => document.querySelector(".waterfall h2 .num").textContent === String(steps), steps);
    const whole = performance.now() - began;
    const { frames, tasks, rows } = await scrolled(page, ".waterfall .scroll", 10_000, 300);
    const clicked = performance.now();
    await page.locator(".bar .label").nth(10).click();
    await page.locator(".detail").waitFor();
    const detail = performance.now() - clicked;
    const [p95, longest] = [percentile(frames, 0.95), Math.max(0, ...tasks)];
    const figure = `${steps} steps: painted after ${painted.toFixed(0)} ms, all of them after ${whole.toFixed(0)} ms; scrolling: p95 frame ${p95.toFixed(0)} ms, longest task ${longest.toFixed(0)} ms, at most ${rows} rows drawn; a detail after ${detail.toFixed(0)} ms`;
    assert(painted <= 1_500 && detail <= 300 && p95 <= 34 && longest <= 200 && rows <= 150, figure);
    return figure;
  },

  async "a run of forty thousand events does not bring the page down"({ server, browser }) {
    const steps = count("STEPWELL_DASHBOARD_EVENTS", 40_000);
    const { id } = await server.start("many", [steps, 20]);
    for (let n = 0; n < 1_200; n++) {
      if ((await server.get(`/api/executions/${id}`)).status === "completed") break;
      await pause(500);
    }
    const outline = await fetch(`${server.address}/api/executions/${id}/history?outline=true`, { headers: { authorization: `Bearer ${KEY}` } });
    const first = (await outline.text()).length;
    const page = await open(browser, server, { path: `/dash/runs/${id}` });
    const began = performance.now();
    await page.waitForFunction((steps) => document.querySelector(".waterfall h2 .num")?.textContent === String(steps), steps, { timeout: 60_000 });
    const whole = performance.now() - began;
    const { frames, tasks, rows } = await scrolled(page, ".waterfall .scroll", 10_000, 2_000);
    const memory = await page.evaluate(() => performance.memory.usedJSHeapSize / 1_048_576);
    const figure = `${steps} events: all of them after ${whole.toFixed(0)} ms, the first page of the outline ${(first / 1_024).toFixed(0)} KiB; scrolling: p95 frame ${percentile(frames, 0.95).toFixed(0)} ms, longest task ${Math.max(0, ...tasks).toFixed(0)} ms, at most ${rows} rows drawn; ${memory.toFixed(0)} MiB of JavaScript`;
    assert(percentile(frames, 0.95) <= 34 && rows <= 150 && first <= 1_572_864, figure);
    return figure;
  },

  async "a sleep of three days is collapsed, and times follow the clocks when they change"({ browser }) {
    assert(DATEFUDGE, "Debian's datefudge is missing: apt-get install datefudge");
    // The clocks of New York go back on the first of November.
    const server = await Server.start({ clock: "2026-10-31 12:00:00" });
    // Work before the sleep and after it.
    const mails = createServer((_, response) => setTimeout(() => response.end("ok"), 300));
    await new Promise((resolve) => mails.listen(0, "127.0.0.1", resolve));
    try {
      const to = `http://127.0.0.1:${mails.address().port}/`;
      const { id } = await server.start("approve", { to, expires_ms: 86_400_000, pause_ms: 3 * 86_400_000 });
      for (let n = 0; n < 100 && (await server.get(`/api/executions/${id}`)).status !== "sleeping"; n++) await pause(50);
      server.kill();
      await server.serve("2026-11-03 12:00:30");
      let run;
      for (let n = 0; n < 400; n++) {
        run = await server.get(`/api/executions/${id}`);
        if (run.status === "completed") break;
        await pause(50);
      }
      assert.equal(run.status, "completed");
      const shown = {};
      for (const timezoneId of ["America/New_York", "Asia/Kathmandu", "UTC"]) {
        const page = await open(browser, server, { timezoneId, path: `/dash/runs/${id}` });
        await page.locator(".bar .label").first().waitFor();
        const wanted = await page.evaluate((times) => times.map((at) => new Date(at).toLocaleString("sv-SE")), [run.created_at, run.ended_at]);
        const text = await page.locator("main").innerText();
        for (const time of wanted) assert(text.includes(time), `${timezoneId}: ${time} is not in\n${text}`);
        shown[timezoneId] = wanted.map((time) => time.slice(5, 16)).join(" to ");
        const pauses = await page.locator(".bar .piece[data-kind=pause]").evaluateAll((nodes) => nodes.map((node) => Number.parseFloat(node.style.width)));
        assert(pauses.length > 0 && Math.max(...pauses) < 50, `three days take ${Math.max(...pauses)} % of the axis`);
        await page.context().close();
      }
      assert(shown["America/New_York"] === "10-31 08:00 to 11-03 07:00", JSON.stringify(shown));
      return Object.entries(shown).map(([zone, times]) => `${zone} ${times}`).join("; ");
    } finally {
      server.stop();
      mails.close();
    }
  },

  async "eight tabs see changes within a second while 200 runs are live"({ server, browser }) {
    const pages = [];
    const first = await open(browser, server, { path: "/dash/?q=workflow:wait" });
    pages.push(first);
    for (let n = 1; n < 8; n++) {
      const page = await first.context().newPage();
      await page.goto(`${server.address}/dash/`);
      pages.push(page);
    }
    for (const page of pages) await page.locator(".link[data-link=live]").waitFor();
    await first.bringToFront();
    await often(200, 20, () => server.start("paced", [40, 1_000]));
    const [times, answers] = [[], []];
    for (let n = 0; n < 30; n++) {
      const { id } = await server.start("wait", 600_000);
      const row = first.locator(".row", { has: first.locator(`a[href="/dash/runs/${id}"]`) });
      await row.locator("[data-status=waiting]").waitFor();
      const sent = performance.now();
      await server.call("POST", `/api/executions/${id}/signals/go`, '"x"');
      answers.push(performance.now() - sent);
      await row.locator("[data-status=completed]").waitFor();
      // Browser, engine and test have one clock.
      const seen = Date.now();
      times.push(seen - (await server.get(`/api/executions/${id}`)).ended_at);
    }
    const [p50, p95] = [percentile(times, 0.5), percentile(times, 0.95)];
    const figure = `from its commit, a status was visible after ${p50.toFixed(0)} ms (median) and ${p95.toFixed(0)} ms (p95 of 30); a signal was answered after ${percentile(answers, 0.95).toFixed(0)} ms (p95)`;
    assert(p95 <= 1_000, figure);
    return figure;
  },
};
