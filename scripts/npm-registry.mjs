// A registry on loopback that has our npm packages before they are published. What it does not have it passes on to
// the registry that npm is configured with.
//   node scripts/npm-registry.mjs FOLDER_OF_TGZ [PORT]
// Prints its address once it listens.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { Readable } from "node:stream";

const [folder, port = "0"] = process.argv.slice(2);
const upstream = process.env.STEPWELL_UPSTREAM_REGISTRY?.replace(/\/$/, "");
if (!upstream) throw new Error("STEPWELL_UPSTREAM_REGISTRY is not set: `npm config get registry` prints it");

const packages = new Map();
const tarballs = new Map();
for (const file of readdirSync(folder).filter((name) => name.endsWith(".tgz"))) {
  const path = join(folder, file);
  const manifest = JSON.parse(execFileSync("tar", ["-xOzf", path, "package/package.json"], { encoding: "utf8" }));
  const bytes = readFileSync(path);
  const integrity = `sha512-${createHash("sha512").update(bytes).digest("base64")}`;
  tarballs.set(`/-/ours/${file}`, bytes);
  packages.set(manifest.name, { manifest, integrity, file });
}

function packument(name, host) {
  const { manifest, integrity, file } = packages.get(name);
  const dist = { integrity, tarball: `http://${host}/-/ours/${file}` };
  return { name, "dist-tags": { latest: manifest.version }, versions: { [manifest.version]: { ...manifest, dist } } };
}

const server = createServer(async (request, response) => {
  const name = decodeURIComponent(request.url.slice(1).split("?")[0]);
  if (packages.has(name)) {
    response.writeHead(200, { "content-type": "application/json" });
    return response.end(JSON.stringify(packument(name, request.headers.host)));
  }
  if (tarballs.has(request.url)) return response.writeHead(200).end(tarballs.get(request.url));
  // A platform that was not built here is as if its package did not exist.
  if (name.startsWith("@stepwell/")) return response.writeHead(404).end("{}");
  try {
    const accept = request.headers.accept ?? "*/*";
    const answer = await fetch(upstream + request.url, { method: request.method, headers: { accept } });
    const type = answer.headers.get("content-type") ?? "application/octet-stream";
    response.writeHead(answer.status, { "content-type": type });
    if (answer.body) Readable.fromWeb(answer.body).pipe(response);
    else response.end();
  } catch (error) {
    response.writeHead(502).end(JSON.stringify({ error: error.message }));
  }
});
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
