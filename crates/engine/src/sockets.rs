//! WebSockets: what of the runtime's hibernation API the cells use, and how the Workers in front pass on what comes
//! out of their sockets to a cell.
//!
//! The second part is JavaScript. A stream may be open for days, and must not end because code elsewhere in the
//! isolate has stopped the wasm instance.

use js_sys::Array;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    /// An object's state, as the one that has its sockets.
    pub type Sockets;

    /// From here on the runtime holds the socket, and the object may sleep.
    #[wasm_bindgen(method, catch, js_name = acceptWebSocket)]
    pub fn accept(this: &Sockets, socket: &Socket, tags: &Array) -> Result<(), JsValue>;

    #[wasm_bindgen(method, catch, js_name = getWebSockets)]
    pub fn all(this: &Sockets) -> Result<Array, JsValue>;

    #[wasm_bindgen(method, catch, js_name = getWebSockets)]
    pub fn tagged(this: &Sockets, tag: &str) -> Result<Array, JsValue>;

    /// One end of a WebSocket.
    #[derive(Clone)]
    pub type Socket;

    #[wasm_bindgen(method, catch)]
    pub fn send(this: &Socket, text: &str) -> Result<(), JsValue>;

    #[wasm_bindgen(method, catch)]
    pub fn close(this: &Socket, code: u16, reason: &str) -> Result<(), JsValue>;

    /// Keeps a value beside the socket, also while the object sleeps.
    #[wasm_bindgen(method, catch, js_name = serializeAttachment)]
    pub fn attach(this: &Socket, value: &JsValue) -> Result<(), JsValue>;

    #[wasm_bindgen(method, catch, js_name = deserializeAttachment)]
    pub fn attachment(this: &Socket) -> Result<JsValue, JsValue>;
}

#[wasm_bindgen(inline_js = r#"
const BEAT_MS = 15_000;
const WINDOW_BYTES = 512 * 1024;
const encoder = new TextEncoder();

export function newPair() {
  const { 0: client, 1: server } = new WebSocketPair();
  return [client, server];
}
export function upgraded(client) { return new Response(null, { status: 101, webSocket: client }); }
export function answerPings(state) {
  state.setWebSocketAutoResponse(new WebSocketRequestResponsePair("ping", "pong"));
}

// What one run's cell says is passed on as it is.
function asItIs(text) {
  const { id, type } = JSON.parse(text);
  return { id, type, text };
}

// What many cells say has a cursor for each of them. Nothing is passed on before all of them are there: until then no
// cursor is whole.
function joined(names) {
  const froms = new Map();
  return (text, index) => {
    const event = JSON.parse(text);
    froms.set(names[index], event.id);
    if (event.type === "ready" && froms.size < names.length) return undefined;
    event.id = names.map((name) => `${name}:${froms.get(name)}`).join(",");
    return { id: event.id, type: event.type, text: JSON.stringify(event) };
  };
}

// All that comes out of some sockets, in the order in which it comes. Cells stop after a while unless they hear that
// somebody reads: that is what bounds the queue.
class Inflow {
  #sockets; #read; #queue = []; #wake; #closed;
  constructor(sockets, names) {
    this.#sockets = sockets;
    this.#read = names.length === 0 ? asItIs : joined(names);
    sockets.forEach((socket, index) => {
      socket.addEventListener("message", ({ data }) => { this.#queue.push([data, index]); this.#wake?.(); });
      socket.addEventListener("close", ({ code, reason }) => this.#end(code, reason));
      socket.addEventListener("error", () => this.#end(1011, "the connection to a cell broke"));
      socket.accept();
    });
  }
  #end(code, reason) { this.#closed ??= { code, reason }; this.#wake?.(); }
  get closed() { return this.#closed; }
  // The next event; nothing after a while in which there is none, or when it is over.
  async next() {
    for (;;) {
      while (this.#queue.length > 0) {
        const [data, index] = this.#queue.shift();
        const event = this.#read(data, index);
        if (event?.type === "ack") this.#sockets[index].send("ack");
        else if (event !== undefined) return event;
      }
      if (this.#closed) return undefined;
      let timer;
      const beat = new Promise((resolve) => { timer = setTimeout(resolve, BEAT_MS, true); });
      const isBeat = await Promise.race([beat, new Promise((resolve) => { this.#wake = resolve; })]);
      clearTimeout(timer);
      if (isBeat === true) return undefined;
    }
  }
  close() {
    for (const socket of this.#sockets) try { socket.close(1000, "nobody reads any more"); } catch {}
  }
}

export function eventStream(sockets, names) {
  const inflow = new Inflow(sockets, names);
  const body = new ReadableStream({
    start(controller) { controller.enqueue(encoder.encode("retry: 1000\n\n")); },
    async pull(controller) {
      const event = await inflow.next();
      if (event !== undefined) {
        // JSON has line breaks only where they mean nothing.
        const text = event.text.replace(/\r\n|\r|\n/g, " ");
        controller.enqueue(encoder.encode(`id: ${event.id}\nevent: ${event.type}\ndata: ${text}\n\n`));
      } else if (inflow.closed) controller.close();
      else controller.enqueue(encoder.encode(":\n\n"));
    },
    cancel() { inflow.close(); },
  });
  const headers = { "content-type": "text/event-stream", "cache-control": "no-store" };
  return new Response(body, { headers });
}

export function socketStream(sockets, names) {
  const inflow = new Inflow(sockets, names);
  const { 0: client, 1: server } = new WebSocketPair();
  let [sent, heard, isOpen] = [0, undefined, true];
  server.addEventListener("message", ({ data }) => {
    if (data === "ping") return server.send("pong");
    sent = 0;
    heard?.();
  });
  const end = () => { isOpen = false; heard?.(); inflow.close(); };
  server.addEventListener("close", end);
  server.addEventListener("error", end);
  server.accept();
  (async () => {
    while (isOpen) {
      const event = await inflow.next();
      if (event !== undefined) {
        server.send(event.text);
        sent += event.text.length;
        if (sent >= WINDOW_BYTES) {
          server.send(JSON.stringify({ id: event.id, type: "ack", at: Date.now(), data: null }));
          await new Promise((resolve) => { heard = resolve; });
        }
      } else if (inflow.closed) {
        const { code, reason } = inflow.closed;
        isOpen = false;
        server.close(code >= 1000 && code <= 4999 && code !== 1005 && code !== 1006 ? code : 1011, reason);
      }
    }
  })().catch(end);
  return upgraded(client);
}
"#)]
extern "C" {
    /// Two ends of a new socket: the client's and the object's.
    #[wasm_bindgen(catch, js_name = newPair)]
    pub fn new_pair() -> Result<Array, JsValue>;

    /// The answer that hands over one end.
    #[wasm_bindgen(catch)]
    pub fn upgraded(client: &JsValue) -> Result<JsValue, JsValue>;

    /// Lets the runtime answer `ping`, without waking the object.
    #[wasm_bindgen(catch, js_name = answerPings)]
    pub fn answer_pings(state: &Sockets) -> Result<(), JsValue>;

    /// Server-sent events of all that comes out of sockets to cells. With names it is many cells, and a cursor has
    /// each of them.
    #[wasm_bindgen(catch, js_name = eventStream)]
    pub fn event_stream(sockets: &Array, names: &Array) -> Result<JsValue, JsValue>;

    /// The same over a WebSocket.
    #[wasm_bindgen(catch, js_name = socketStream)]
    pub fn socket_stream(sockets: &Array, names: &Array) -> Result<JsValue, JsValue>;
}
