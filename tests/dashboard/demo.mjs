// Runs of many kinds, for screenshots and tests.
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// A parent with two children.
const FAMILY = { ledger: null, name: "root", children: [2], lives: 0, child_lives: null };

/** Starts runs, and gives the ids of some. */
export async function fill(server) {
  const ids = {};
  for (let n = 0; n < 30; n++) await server.start("ten", n, { query: n % 3 ? "?tag=nightly" : "?tag=vip&tag=eu" });
  ids.chatty = (await server.start("chatty", [6, 3, 60])).id;
  ids.failed = (await server.start("fail", "retries")).id;
  for (const how of ["terminal", "retries", "other"]) await server.start("fail", how);
  ids.waiting = (await server.start("wait", 86_400_000)).id;
  ids.found = (await server.start("found", [["customer", "acme"], ["region", "eu"]])).id;
  ids.nap = (await server.start("nap", 7_200_000)).id;
  ids.race = (await server.start("race", 900)).id;
  ids.paced = (await server.start("paced", [4, 800])).id;
  ids.family = (await server.start("family", FAMILY)).id;
  ids.paused = (await server.start("wait", 86_400_000)).id;
  await server.call("POST", `/api/executions/${ids.paused}/pause`);
  const cancelled = (await server.start("nap", 86_400_000)).id;
  await server.call("POST", `/api/executions/${cancelled}/cancel`);
  await pause(500);
  return ids;
}
