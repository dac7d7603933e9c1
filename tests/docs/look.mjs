// Takes a screenshot of five pages of the documentation's site, in both themes and two sizes:
//   node tests/docs/look.mjs [FOLDER]
// Fails if a page is wider than the window, or asks another host for anything.
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { launch } from "../dashboard/browser.mjs";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
const PAGES = ["index", "getting-started", "concurrency", "architecture", "errors/limit_reached"];
const folder = process.argv[2] ?? join(ROOT, "target/screenshots/docs");
mkdirSync(folder, { recursive: true });
const browser = await launch();
const wrong = [];
try {
  for (const [size, width, height] of [["1280", 1280, 900], ["390", 390, 844]]) {
    for (const colorScheme of ["light", "dark"]) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme });
      const page = await context.newPage();
      page.on("request", (request) => {
        if (!request.url().startsWith("file:") && !request.url().startsWith("data:")) wrong.push(`asks for ${request.url()}`);
      });
      for (const name of PAGES) {
        await page.goto(pathToFileURL(join(ROOT, "target/site", `${name}.html`)).href);
        await page.locator("main h1").first().waitFor();
        await page.waitForTimeout(300);
        await page.screenshot({ path: join(folder, `${name.replace("/", "-")}-${size}-${colorScheme}.png`) });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (over > 0) wrong.push(`${name}, ${size}: ${over} px stick out`);
      }
      await context.close();
    }
  }
} finally {
  await browser.close();
}
console.log(`${PAGES.length} pages, two themes, two sizes: ${folder}`);
for (const line of wrong) console.error(line);
process.exitCode = wrong.length ? 1 : 0;
