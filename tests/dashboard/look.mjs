// Takes a screenshot of each page in both themes and four sizes:
//   node tests/dashboard/look.mjs [FOLDER | --docs]
// With `--docs`, only those of the documentation, into docs/images.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { launch, open } from "./browser.mjs";
import { fill } from "./demo.mjs";
import { furnish, pages } from "./pages.mjs";
import { ROOT, Server } from "./server.mjs";

const forDocs = process.argv[2] === "--docs";
const folder = (forDocs ? join(ROOT, "docs/images") : process.argv[2]) ?? join(ROOT, "target/screenshots/dashboard");
mkdirSync(folder, { recursive: true });
const server = await Server.start();
const browser = await launch();
try {
  const ids = await fill(server);
  const furniture = await furnish(server);
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  if (forDocs) {
    for (const [colorScheme, suffix] of [["light", ""], ["dark", "-dark"]]) {
      const page = await open(browser, server, { width: 1200, height: 620, timezoneId: "UTC", colorScheme });
      for (const [name, path, ready] of [["runs", "/dash/", ".row"], ["run", `/dash/runs/${ids.chatty}`, ".bar .label"], ["queue", "/dash/queues/mails", "tbody tr"]]) {
        await page.goto(server.address + path);
        await page.locator(ready).first().waitFor();
        await page.waitForTimeout(600);
        await page.screenshot({ path: join(folder, `dashboard-${name}${suffix}.png`) });
      }
      // A key signs in once a second.
      await page.waitForTimeout(1_000);
    }
  }
  for (const [size, width, height] of forDocs ? [] : [["1280", 1280, 800], ["1920", 1920, 1080], ["390", 390, 844], ["320", 320, 640]]) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(browser, server, { width, height, colorScheme });
      const shoot = (name) => page.screenshot({ path: join(folder, `${name}-${size}-${colorScheme}.png`) });
      const see = async (name, path) => {
        await page.goto(server.address + path);
        await page.locator("h1").first().waitFor();
        await page.waitForTimeout(600);
        await shoot(name);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (over > 0) console.log(`${name}, ${size}: ${over} px stick out`);
      };
      await see("runs", "/dash/");
      await see("run", `/dash/runs/${ids.chatty}`);
      await see("failed", `/dash/runs/${ids.failed}?step=step:0:r`);
      await see("waiting", `/dash/runs/${ids.waiting}`);
      for (const [name, path] of pages(furniture)) await see(name.replaceAll(" ", "-"), path);
      if (size === "1280") {
        await see("empty", "/dash/?q=tag:none");
        await page.goto(`${server.address}/dash/schedules/nightly`);
        await page.getByRole("button", { name: "Edit" }).click();
        await shoot("form");
        await page.getByRole("button", { name: "Close" }).click();
        await see("waiting", `/dash/runs/${ids.waiting}`);
        await page.getByRole("button", { name: "Signal" }).click();
        await shoot("signal");
        await page.getByRole("button", { name: "Close" }).click();
        await page.getByRole("button", { name: "Sign out" }).click();
        await page.getByLabel("API key").waitFor();
        await shoot("sign-in");
      }
      await page.context().close();
    }
  }
  console.log(`screenshots: ${folder}`);
} finally {
  await browser.close();
  server.stop();
}
