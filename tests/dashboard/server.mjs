// The test Worker on the real workerd, with the dashboard's files on a disk beside it.
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
export const KEY = "test-key-0123456789abcdef0123456789abcdef";

const freePort = () =>
  new Promise((resolve, reject) => {
    const server = createServer();
    server.on("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/** Debian's datefudge, which moves the clock of a process; nothing where it is not installed. */
export const DATEFUDGE = ["x86_64", "aarch64"].map((machine) => `/usr/lib/${machine}-linux-gnu/datefudge/datefudge.so`).find(existsSync);

export class Server {
  static async start({ clock, bundle = join(ROOT, "target/bundles/test-all-in-one"), assets = join(ROOT, "target/dashboard"), variables = {} } = {}) {
    const server = new Server();
    server.folder = mkdtempSync(join(tmpdir(), "stepwell-dashboard-"));
    server.port = await freePort();
    server.address = `http://127.0.0.1:${server.port}`;
    mkdirSync(join(server.folder, "disk"));
    for (const file of ["index.js", "index_bg.wasm"]) cpSync(join(bundle, file), join(server.folder, file));
    const hasAssets = assets && existsSync(assets);
    if (assets && !hasAssets) throw new Error(`${assets} is missing: run scripts/build-dashboard`);
    const texts = { STEPWELL_KEY: KEY, STEPWELL_CELLS: "4", STEPWELL_URL: "https://flows.example.com", ...variables };
    const bindings = Object.entries(texts).map(([name, value]) => `(name = "${name}", text = ${JSON.stringify(value)}),`);
    writeFileSync(
      join(server.folder, "config.capnp"),
      `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main),
    (name = "disk", disk = (path = "disk", writable = true)),
    ${hasAssets ? `(name = "assets", disk = (path = ${JSON.stringify(assets)})),` : ""}
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:${server.port}", http = (), service = "main")],
);
const main :Workerd.Worker = (
  modules = [
    (name = "index.js", esModule = embed "index.js"),
    (name = "./index_bg.wasm", wasm = embed "index_bg.wasm"),
  ],
  compatibilityDate = "2026-04-01",
  durableObjectStorage = (localDisk = "disk"),
  durableObjectNamespaces = [
    (className = "Cell", uniqueKey = "Cell", enableSql = true),
    (className = "Station", uniqueKey = "Station", enableSql = true),
  ],
  bindings = [
    (name = "CELL", durableObjectNamespace = "Cell"),
    (name = "STATION", durableObjectNamespace = "Station"),
    ${hasAssets ? `(name = "ASSETS", service = "assets"),` : ""}
    ${bindings.join("\n    ")}
  ],
);
`,
    );
    await server.serve(clock);
    return server;
  }

  /** Starts workerd; with its clock at another time, if one is given. */
  async serve(clock) {
    const workerd = process.env.WORKERD_BIN ?? join(ROOT, "node_modules/.bin/workerd");
    const behind = clock && Math.round((Date.now() - Date.parse(`${clock}Z`)) / 1_000);
    const moved = clock && { LD_PRELOAD: DATEFUDGE, DATEFUDGE: String(behind) };
    this.child = spawn(workerd, ["serve", "config.capnp"], { cwd: this.folder, env: { ...process.env, ...moved }, stdio: ["ignore", "ignore", process.env.VERBOSE ? "inherit" : "ignore"], detached: true });
    for (let n = 0; n < 300; n++) {
      try {
        if ((await fetch(`${this.address}/api/health`)).ok) return;
      } catch {
        // It does not listen yet.
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error("workerd does not answer");
  }

  /** As a crash would: nothing is written any more. The group, because the command may be a script that starts it. */
  kill() {
    try {
      process.kill(-this.child.pid, "SIGKILL");
    } catch {
      // It has ended.
    }
  }

  stop() {
    this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async call(method, path, body, headers = {}) {
    const response = await fetch(this.address + path, { method, body, headers: { authorization: `Bearer ${KEY}`, ...headers } });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }

  get(path) {
    return this.call("GET", path);
  }

  start(workflow, input, { query = "", ...headers } = {}) {
    return this.call("POST", `/api/workflows/${encodeURIComponent(workflow)}/start${query}`, JSON.stringify(input), headers);
  }
}
