// The dashboard in a real Chromium on the real workerd, with its objects on a disk:
//   node tests/dashboard/run.mjs [--quick] [WORD...]
// Runs all tests, or those whose name has one of these words; with `--quick` none at a size, which take minutes. Prints what each has measured; ends with 1 if one fails.
import { launch, complaints } from "./browser.mjs";
import { Server } from "./server.mjs";
import { pageTests } from "./pages.mjs";
import { sizes } from "./sizes.mjs";
import { tests } from "./tests.mjs";

const wanted = process.argv.slice(2).filter((word) => word !== "--quick");
const small = { ...tests, ...pageTests };
const isQuick = process.argv.includes("--quick");
// As deployed by default.
const server = await Server.start(isQuick ? {} : { variables: { STEPWELL_CELLS: "16" } });
const all = isQuick ? small : { ...small, ...sizes, ...(await import("./lighthouse/audit.mjs")).audits };
let browser;
let failed = 0;
try {
  browser = await launch();
  for (const [name, test] of Object.entries(all)) {
    if (wanted.length > 0 && !wanted.some((word) => name.includes(word))) continue;
    const began = performance.now();
    try {
      const figure = await test({ server, browser });
      if (complaints.length > 0) throw new Error(`the page complains: ${complaints.splice(0).join("; ")}`);
      console.log(`dashboard: ${name}: ${figure} (${((performance.now() - began) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      complaints.splice(0);
      console.log(`dashboard: ${name}: FAILED\n${error.stack}`);
    }
    for (const context of browser.contexts()) await context.close();
  }
} finally {
  await browser?.close();
  server.stop();
}
process.exit(failed > 0 ? 1 : 0);
