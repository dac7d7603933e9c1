// A model and its tools for development: it searches once, then wants to send a message, then answers word by word.
//   node stand-in/model.mjs 8798
// GET /sent shows the messages that went out.
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const [port = "8798"] = process.argv.slice(2);
const BODY_BYTES_MAX = 1024 * 1024;
const sent = new Map();

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

function say(system, user) {
  if (system.startsWith("Plan")) return "Look up the address, then send an invitation.";
  if (!user.includes("searched for")) return JSON.stringify({ action: "search", query: "address of Grace" });
  if (!/sent to|refused/.test(user)) return JSON.stringify({ action: "send", to: "grace@example.org", text: "Come!" });
  return JSON.stringify({ action: "finish" });
}

async function answer(request, response) {
  const json = (value) => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
  if (request.url === "/sent") return json([...sent.values()]);
  const body = await read(request);
  if (request.url === "/search") return response.writeHead(200).end("grace@example.org");
  if (request.url === "/messages") {
    sent.set(request.headers["idempotency-key"], body);
    return json({});
  }
  const [{ content: system }, { content: user }] = body.messages;
  if (!body.stream) return json({ choices: [{ message: { content: say(system, user) } }] });
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const word of ["Grace ", "is ", "invited."]) {
    response.write(`data: ${JSON.stringify({ choices: [{ delta: { content: word } }] })}\n\n`);
    await sleep(100);
  }
  response.end("data: [DONE]\n\n");
}

const server = createServer((request, response) =>
  answer(request, response).catch((error) => response.writeHead(400).end(error.message)),
);
server.listen(Number(port), "127.0.0.1", () => console.log(`model: http://127.0.0.1:${server.address().port}`));
