# The quickstart on your own machine, engine and app in one Worker: `just dev`.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main),
    (name = "disk", disk = (path = "disk", writable = true)),
  ],
  sockets = [(name = "http", address = "127.0.0.1:8787", http = (), service = "main")],
);

const main :Workerd.Worker = (
  modules = [
    (name = "index.js", esModule = embed "../../../target/bundles/quickstart/index.js"),
    (name = "./index_bg.wasm", wasm = embed "../../../target/bundles/quickstart/index_bg.wasm"),
  ],
  compatibilityDate = "2026-04-01",
  durableObjectNamespaces = [
    (className = "Cell", uniqueKey = "stepwell-cell", enableSql = true),
    (className = "Station", uniqueKey = "stepwell-station", enableSql = true),
  ],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [
    (name = "CELL", durableObjectNamespace = "Cell"),
    (name = "STATION", durableObjectNamespace = "Station"),
    (name = "STEPWELL_KEY", fromEnvironment = "STEPWELL_KEY"),
    # Only requests for a loopback host are answered.
    (name = "STEPWELL_DEV", text = "1"),
  ],
);
