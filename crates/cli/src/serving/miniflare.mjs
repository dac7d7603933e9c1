// Serves Workers under Miniflare. The one argument is a file that says how; the key of the first one, which answers
// requests, comes by the environment.
// Prints the line that workerd itself would print once it listens.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { miniflare, port, data, workers } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { Log, LogLevel, Miniflare, convertV4MiniflareOptions } = await import(pathToFileURL(miniflare));

const module = (folder, type, name) => ({ type, path: name, contents: readFileSync(join(folder, name)) });

const all = {
  host: "127.0.0.1",
  port,
  // Nothing is fetched from or sent to Cloudflare.
  cf: false,
  telemetry: { enabled: false },
  resourcePersistencePath: data,
  log: new Log(LogLevel.WARN),
  workers: workers.map(({ folder, bindings, ...options }, index) => ({
    ...options,
    bindings: index === 0 ? { ...bindings, STEPWELL_KEY: process.env.STEPWELL_KEY } : bindings,
    modules: [module(folder, "ESModule", "index.js"), module(folder, "CompiledWasm", "index_bg.wasm")],
  })),
};

// Versions before the fifth take these options as they are, and one folder for each kind of data.
const folders = Object.fromEntries(
  Object.entries({ durableObjects: "do", kv: "kv", r2: "r2", d1: "d1" }).map(([kind, name]) => [`${kind}Persist`, join(data, name)]),
);
await new Miniflare(convertV4MiniflareOptions ? convertV4MiniflareOptions(all) : { ...all, ...folders }).ready;
console.log('{"event":"listen"}');
