// Lighthouse over the dashboard, signed in, as on a desktop.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import lighthouse, { desktopConfig } from "lighthouse";
import { launchAt, signIn } from "../browser.mjs";
import { KEY } from "../server.mjs";

/** What each page has to reach, of 100. */
const LEAST = { accessibility: 100, "best-practices": 95, performance: 90 };

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

export const audits = {
  async "lighthouse has little to say"({ server }) {
    const { id } = await server.start("ten", null, { prefer: "wait=5" });
    const [folder, port] = [mkdtempSync(join(tmpdir(), "stepwell-lighthouse-")), await freePort()];
    const context = await launchAt(folder, port);
    try {
      const page = await context.newPage();
      await page.goto(`${server.address}/dash/`);
      await signIn(page, KEY);
      const figures = [];
      for (const path of ["/dash/", `/dash/runs/${id}`, "/dash/workflows"]) {
        const flags = { port, output: "json", logLevel: "error", disableStorageReset: true, onlyCategories: Object.keys(LEAST) };
        const { lhr } = await lighthouse(server.address + path, flags, desktopConfig);
        const scores = Object.fromEntries(Object.entries(lhr.categories).map(([name, it]) => [name, Math.round(it.score * 100)]));
        const failed = Object.values(lhr.audits).filter((audit) => audit.score !== null && audit.score < 0.9 && audit.scoreDisplayMode !== "informative");
        const said = `${path.replace(id, "ID")}: ${JSON.stringify(scores)}`;
        figures.push(said);
        for (const [name, least] of Object.entries(LEAST)) assert(scores[name] >= least, `${said}: ${failed.map((audit) => `${audit.id} ${audit.displayValue ?? ""}`).join(", ")}`);
      }
      return figures.join("; ");
    } finally {
      await context.close();
      rmSync(folder, { recursive: true, force: true });
    }
  },
};
