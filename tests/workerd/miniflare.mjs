// Runs Workers under Miniflare, which has what workerd alone has not: queues. They live in memory, and one batch
// is delivered at a time. The one argument is a file with what to run; `ready` is printed when it can be asked.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as miniflare from "miniflare";

const { port, folder, workers } = JSON.parse(readFileSync(process.argv[2], "utf8"));

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
  workers: workers.map(({ name, bundle, compatibilityDate, texts, cells, queue, services }) => ({
    name,
    compatibilityDate,
    modules: [module(bundle, "ESModule", "index.js"), module(bundle, "CompiledWasm", "index_bg.wasm")],
    bindings: texts,
    serviceBindings: services,
    durableObjects: cells ? { CELL: { className: "Cell", useSQLite: true }, STATION: { className: "Station", useSQLite: true } } : {},
    queueProducers: queue ? { DISPATCH: { queueName: queue } } : {},
    queueConsumers: queue ? { [queue]: { maxBatchSize: 100, maxBatchTimeout: 0, maxRetries: 3 } } : {},
  })),
};

// From its fifth version on, Miniflare has options of another form.
const convert = miniflare.convertV4MiniflareOptions ?? ((same) => same);
await new miniflare.Miniflare(convert(options)).ready;
console.log("ready");
