//! A Worker that is bound to the engine and to the app like any other, and calls what it likes there.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stepwell_protocol::{
    Epoch, PROTOCOL, Payload, Timestamp,
    program::{Activation, Page},
    signature::{Key, Purpose},
};

use crate::{
    Config, Http, Worker,
    engine::{Engine, Form},
};

/// Who an activation is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The engine's own program.
    Own,
    /// The app.
    App,
}

/// Calls what it is told, with a session of its own. As the engine's app, it passes everything on to the real one, and
/// remembers what it was called with.
const CODE: &str = r#"
import { RpcTarget, WorkerEntrypoint } from "cloudflare:workers";

let tapped;
let mute = 0;

// Takes every commit and has always another page, as often as it is told, and counts.
class Session extends RpcTarget {
  calls = 0;
  constructor(most) { super(); this.most = most; }
  answer(text) {
    this.calls += 1;
    if (this.calls > this.most) throw new Error("enough");
    return text;
  }
  commit() { return this.answer(JSON.stringify({ go: { now: Date.now(), news: [] } })); }
  listen() { return this.commit(); }
  publish() { return this.commit(); }
  page() { return this.answer(JSON.stringify({ events: [], more: true })); }
}

export default class extends WorkerEntrypoint {
  describe() { return this.env.APP.describe(); }

  async activate(activation, session) {
    tapped = JSON.parse(activation);
    // Not even a beat. A timer, because the runtime ends a call that nothing can ever answer.
    if (mute-- > 0) await new Promise((resolve) => setTimeout(resolve, 600_000));
    return this.env.APP.activate(activation, session.dup());
  }

  async fetch(request) {
    const { service, method, activation, most, more, silences } = await request.json();
    if (silences !== undefined) {
      mute = silences;
      return new Response();
    }
    const session = new Session(most);
    if (activation.upload) {
      const { url, key, announced = "10", megabytes = 0, pieces } = activation.upload;
      const texts = pieces?.map((piece) => new TextEncoder().encode(piece));
      let left = megabytes;
      const next = () => (texts ? texts.shift() : left-- > 0 ? new Uint8Array(1 << 20) : undefined);
      const body = new ReadableStream({
        type: "bytes",
        pull(controller) {
          const piece = next();
          piece ? controller.enqueue(piece) : controller.close();
        },
      });
      const headers = { authorization: `Bearer ${key}`, "content-length": announced };
      const answer = await this.env[service].fetch(url, { method, body, headers });
      return Response.json({ answer: answer.status, said: await answer.text(), calls: 0 });
    }
    const text = activation.plain ?? JSON.stringify(activation.tapped ? { ...tapped, ...activation.tapped } : activation);
    try {
      const answer = await this.env[service][method](text, session, ...more);
      return Response.json({ answer: answer ?? null, calls: session.calls });
    } catch (error) {
      return Response.json({ thrown: error.message, calls: session.calls });
    }
  }
}
"#;

/// Puts it beside the engine, at a socket of its own.
pub fn beside(form: Form) -> impl Fn(Config) -> Config + Sync {
    let app = match form {
        Form::AllInOne => "engine",
        Form::Split => "app",
    };
    move |config| {
        let worker =
            Worker::inline("evil", [("main.js", CODE)]).service("ENGINE", "engine").service("APP", app);
        config.worker(worker).also_serving("evil")
    }
}

/// What came of a call.
#[derive(Debug)]
pub struct Outcome {
    /// What it gave or threw.
    pub answer: Value,
    /// How often its session was called.
    pub calls: u64,
}

impl Outcome {
    /// The code of the problem that it was refused with.
    pub fn refused(&self) -> Option<String> {
        let answer: Value = serde_json::from_str(self.answer["answer"].as_str()?).ok()?;
        Some(answer["refused"]["code"].as_str()?.to_owned())
    }
}

/// Lets it be silent about its next calls, so many of them: see [`Engine::start_with_tap`].
pub async fn silence(engine: &Engine, calls: u32) -> Result<()> {
    let answer = engine.engine.http_at(1).post("/", json!({ "silences": calls }).to_string()).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    Ok(())
}

/// Lets it call a program; its session answers `most` times.
pub async fn call(engine: &Engine, target: Target, activation: &Value, most: u32) -> Result<Outcome> {
    let (service, method) = match target {
        Target::Own => ("ENGINE", "stepwellActivate"),
        Target::App => ("APP", "activate"),
    };
    call_method(engine, service, method, activation, most, &[]).await
}

/// Lets it call any method of a service.
pub async fn call_method(
    engine: &Engine,
    service: &str,
    method: &str,
    activation: &Value,
    most: u32,
    more: &[&str],
) -> Result<Outcome> {
    let http: Http = engine.engine.http_at(1);
    let body = json!({
        "service": service, "method": method, "activation": activation, "most": most, "more": more,
    });
    let answer = http.post("/", body.to_string()).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
    let answer = answer.json()?;
    let calls = answer["calls"].as_u64().context("it counts")?;
    Ok(Outcome { answer, calls })
}

/// An activation that no cell has made.
pub fn forged(workflow: &str, input: &Value) -> Result<Activation> {
    let now = now()?;
    Ok(Activation {
        protocol: PROTOCOL,
        run: "default-1-0-1-000000000000".parse().context("it is an id")?,
        workflow: workflow.into(),
        epoch: Epoch(1),
        life: None,
        seed: "00000000000000ff".into(),
        now,
        started_at: now,
        input: Payload::encode(input)?,
        patches: Vec::new(),
        attributes: [].into(),
        tokens: None,
        budget: None,
        let_in: None,
        trace: None,
        followed: false,
        journal: Page::default(),
        signature: None,
    })
}

/// The same, signed so many milliseconds ago by somebody who knows a secret.
pub fn signed(
    activation: &Activation,
    secret: &str,
    purpose: Purpose,
    namespace: &str,
    ago_ms: u64,
) -> Result<Activation> {
    let at = Timestamp::from_millis(now()?.as_millis() - ago_ms);
    let signature = Key::derive(secret, purpose).sign(activation, namespace, at);
    Ok(Activation { signature: Some(signature), ..activation.clone() })
}

fn now() -> Result<Timestamp> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(Timestamp::from_millis(u64::try_from(since.as_millis())?))
}
