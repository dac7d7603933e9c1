// Measures graphile-worker or pg-boss with their defaults, on the PostgreSQL that `DATABASE_URL` names.
// run.mjs PEER SECONDS RATE: prints one line of JSON.

import { performance } from "node:perf_hooks";

const [peer, seconds, rate] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const connectionString = process.env.DATABASE_URL;
const AT_ONCE = 16;

// Each peer: send(body), consume(handler), stop().
async function graphile() {
  const { makeWorkerUtils, run, Logger } = await import("graphile-worker");
  const logger = new Logger(() => () => {});
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  let runner;
  return {
    send: (body) => utils.addJob("bench", body),
    consume: async (handler) => {
      runner = await run({ connectionString, logger, noHandleSignals: true, taskList: { bench: async (body) => handler(body) } });
    },
    stop: async () => { await runner?.stop(); await utils.release(); },
  };
}

async function boss() {
  const { default: PgBoss } = await import("pg-boss");
  const boss = new PgBoss(connectionString);
  boss.on("error", () => {});
  await boss.start();
  await boss.createQueue("bench");
  return {
    send: (body) => boss.send("bench", body),
    consume: (handler) => boss.work("bench", async (jobs) => { for (const job of jobs) handler(job.data); }),
    stop: () => boss.stop({ graceful: false, wait: false }),
  };
}

const percentile = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? null;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const system = await (peer === "graphile-worker" ? graphile() : boss());
let sent = 0;
let until = performance.now() + seconds * 1000;
const began = performance.now();
await Promise.all(Array.from({ length: AT_ONCE }, async () => {
  while (performance.now() < until) { await system.send({ at: performance.now() }); sent += 1; }
}));
const enqueued = sent / ((performance.now() - began) / 1000);

// What is queued is worked off, while more is sent: jobs per second from the first to the last.
let done = 0;
let latencies = [];
await system.consume((job) => { done += 1; latencies.push(performance.now() - job.at); });
const first = performance.now();
until = first + seconds * 1000;
await Promise.all(Array.from({ length: AT_ONCE }, async () => {
  while (performance.now() < until) { await system.send({ at: performance.now() }); sent += 1; }
}));
const finished = done / ((performance.now() - first) / 1000);
// A library that works off less than it is sent has no time from send to handler that would say anything.
const give_up = performance.now() + 10_000;
while (done < sent && performance.now() < give_up) await sleep(20);
const drained = done >= sent;

// At a rate that it can keep: from send to handler.
latencies = [];
for (let number = 0; drained && number < rate * seconds; number++) {
  await Promise.all([system.send({ at: performance.now() }), sleep(1000 / rate)]);
}
await sleep(3000);
latencies.sort((one, two) => one - two);
console.log(JSON.stringify({ enqueued, finished, p50_ms: percentile(latencies, 0.5), p99_ms: percentile(latencies, 0.99) }));
await system.stop();
process.exit(0);
