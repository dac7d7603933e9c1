// A bank for development and tests. It knows one key, does each idempotency key once, and is rate limited at first:
// the first charge of an order is answered with 429 and `Retry-After: 1`.
//   node stand-in/bank.mjs 8799 bank-key-for-development
// GET /ledger shows what it has done.
import { createServer } from "node:http";

const [port = "8799", key = "bank-key-for-development"] = process.argv.slice(2);
const BODY_BYTES_MAX = 64 * 1024;
const done = new Map();
const refused = new Set();

async function read(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > BODY_BYTES_MAX) throw new Error("too large");
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString());
}

async function answer(request) {
  if (request.url === "/ledger") return [200, [...done.values()]];
  if (request.headers.authorization !== `Bearer ${key}`) return [401, { error: "no such key" }];
  const id = request.headers["idempotency-key"];
  if (!id) return [400, { error: "no idempotency key" }];
  const body = await read(request);
  if (request.url === "/charges" && !refused.has(id)) {
    refused.add(id);
    return [429, { error: "slow down" }, { "retry-after": "1" }];
  }
  if (!done.has(id)) done.set(id, { id: `${request.url.slice(1, 3)}_${done.size + 1}`, what: request.url, body });
  return [200, done.get(id)];
}

const server = createServer(async (request, response) => {
  const [status, body, headers = {}] = await answer(request).catch((error) => [400, { error: error.message }]);
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
});
server.listen(Number(port), "127.0.0.1", () => console.log(`bank: http://127.0.0.1:${server.address().port}`));
