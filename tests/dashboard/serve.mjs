// The dashboard with data on every page, to look at and to click through, until Ctrl-C:
//   node tests/dashboard/serve.mjs
import { fill } from "./demo.mjs";
import { furnish } from "./pages.mjs";
import { KEY, Server } from "./server.mjs";

const server = await Server.start();
const stop = () => {
  server.stop();
  process.exit(0);
};
process.on("SIGINT", stop);
process.on("SIGTERM", stop);
try {
  await fill(server);
  await furnish(server);
} catch (error) {
  server.stop();
  throw error;
}
console.log(`${server.address}/dash/ shows it; sign in with ${KEY}. Ctrl-C ends it.`);
setInterval(() => {}, 60_000);
