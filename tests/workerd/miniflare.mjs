// Runs Workers under Miniflare, which has what workerd alone has not: queues. They live in memory, and one batch
// is delivered at a time. The one argument is a file with what to run; `ready` is printed when it can be asked.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as miniflare from "miniflare";

const { port, folder, workers, deliveries } = JSON.parse(readFileSync(process.argv[2], "utf8"));

const module = (bundle, type, name) => ({ type, path: name, contents: readFileSync(join(bundle, name)) });

const options = {
  host: "127.0.0.1",
  port,
  // No word to anybody outside.
  cf: false,
  telemetry: { enabled: false },
  resourcePersistencePath: join(folder, "disk"),
  durableObjectsPersist: join(folder, "disk"),
  log: new miniflare.Log(miniflare.LogLevel.WARN),
  workers: workers.map(({ name, bundle, compatibilityDate, texts, cells, queue, services, sinks, sources }) => ({
    name,
    compatibilityDate,
    modules: [module(bundle, "ESModule", "index.js"), module(bundle, "CompiledWasm", "index_bg.wasm")],
    bindings: texts,
    serviceBindings: services,
    durableObjects: cells ? { CELL: { className: "Cell", useSQLite: true }, STATION: { className: "Station", useSQLite: true } } : {},
    queueProducers: { ...(queue ? { DISPATCH: { queueName: queue } } : {}), ...sinks },
    queueConsumers: { ...(queue ? { [queue]: { maxBatchSize: 100, maxBatchTimeout: 0, maxRetries: 3 } } : {}), ...sources },
  })),
};

// From its fifth version on, Miniflare has options of another form.
const convert = miniflare.convertV4MiniflareOptions ?? ((same) => same);
const served = new miniflare.Miniflare(convert(options));
await served.ready;
console.log("ready");

// What a queue would deliver, message by message as the test says it, and what the Worker says to the queue.
for (const { queue, messages } of deliveries ?? []) {
  const engine = await served.getWorker(workers[0].name);
  const timestamp = new Date();
  const batch = messages.map(({ id, body, bigint }) => ({ id, timestamp, attempts: 1, body: bigint ? 5n : body }));
  const { outcome, explicitAcks, retryMessages } = await engine.queue(queue, batch);
  console.log(`delivered ${JSON.stringify({ queue, outcome, explicitAcks, retryMessages })}`);
}
