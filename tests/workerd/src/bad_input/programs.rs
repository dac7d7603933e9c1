//! Programs that do not keep to the protocol: an app in JavaScript, whose answers and reports are what they are told to
//! be. The engine takes its runs, shows them, and lets people end them, whatever their program says.

use std::{fmt::Write as _, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use stepwell_protocol::{Timestamp, rest::Status};

use super::{
    bench::{Bench, expect_success, run_id, shown},
    case::{Case, Kind},
    wire::Request,
};
use crate::{Config, Worker, Workerd, bundle, engine::KEY};

/// What becomes of a run whose program does this.
#[derive(Clone, Copy)]
enum Then {
    /// It is tried again after a while, until there were too many tries.
    TriedAgain,
    /// It gets to a status.
    Is(Status),
    /// It may be anything.
    Anything,
}

/// What a program does, as JavaScript, and what becomes of its run. `a` is the activation and `s` the session; `commit`
/// makes a report of what is done next, of commands and of whatever else is in one.
const ACTS: &[(&str, &str, Then)] = &[
    // What it answers.
    ("answers-nothing", "return", Then::TriedAgain),
    ("answers-null", "return null", Then::TriedAgain),
    ("answers-a-number", "return 42", Then::TriedAgain),
    ("answers-no-json", "return 'CANARY'", Then::TriedAgain),
    ("answers-an-object", "return { beside: true }", Then::TriedAgain),
    ("answers-at-length", "return 'x'.repeat(4 << 20)", Then::TriedAgain),
    ("answers-as-if-cut-short", "return JSON.stringify('beside')", Then::TriedAgain),
    ("answers-with-a-function", "return () => 1", Then::TriedAgain),
    ("answers-with-the-session", "return s", Then::TriedAgain),
    ("throws", "throw new Error('no')", Then::TriedAgain),
    ("throws-a-text", "throw 'no'", Then::TriedAgain),
    ("throws-nothing", "throw undefined", Then::TriedAgain),
    ("throws-at-length", "throw new Error('x'.repeat(1 << 20))", Then::TriedAgain),
    ("throws-as-if-lost", "const e = new Error('no'); e.retryable = true; throw e", Then::TriedAgain),
    ("never-answers", "await new Promise((r) => setTimeout(r, 20_000))", Then::Is(Status::Running)),
    // Reports that are none.
    ("reports-nothing", "await s.commit()", Then::TriedAgain),
    ("reports-null", "await s.commit(null)", Then::TriedAgain),
    ("reports-a-number", "await s.commit(5)", Then::TriedAgain),
    ("reports-an-object", "await s.commit({ then: 1 })", Then::TriedAgain),
    ("reports-an-empty-text", "await s.commit('')", Then::TriedAgain),
    ("reports-no-json", "await s.commit('{')", Then::TriedAgain),
    ("reports-a-list", "await s.commit('[]')", Then::TriedAgain),
    ("reports-no-fields", "await s.commit('{}')", Then::TriedAgain),
    ("reports-at-length", "await s.commit(' '.repeat(8 << 20))", Then::TriedAgain),
    ("reports-deep", "await s.commit('['.repeat(100_000))", Then::TriedAgain),
    ("reports-half-a-pair", "await s.commit('\\ud800')", Then::TriedAgain),
    ("does-what-nobody-does", "await s.commit(commit(a, { dance: {} }))", Then::TriedAgain),
    (
        "commands-what-nobody-does",
        "await s.commit(commit(a, { continue: {} }, [{ dance: {} }]))",
        Then::TriedAgain,
    ),
    // Of another activation, or of another place.
    (
        "of-another-activation",
        "await s.commit(commit(a, done, [], { epoch: 99 }))",
        Then::Is(Status::Completed),
    ),
    ("of-a-negative-activation", "await s.commit(commit(a, done, [], { epoch: -1 }))", Then::TriedAgain),
    ("of-the-future", "await s.commit(commit(a, done, [], { base: 5 }))", Then::TriedAgain),
    ("of-the-end-of-time", "await s.commit(commit(a, done, [], { base: 4294967295 }))", Then::TriedAgain),
    ("of-no-place", "await s.commit(commit(a, done, [], { base: -1 }))", Then::TriedAgain),
    ("foresees-the-past", "await s.commit(commit(a, done, [], { foresees: 0 }))", Then::Anything),
    ("foresees-the-future", "await s.commit(commit(a, done, [], { foresees: 9e18 }))", Then::Anything),
    (
        "counts-its-turns-down",
        "await s.commit(commit(a, go, [], { turn: 9 })); await s.commit(commit(a, done, [], { turn: 1 }))",
        Then::TriedAgain,
    ),
    (
        "after-its-end",
        "await s.commit(commit(a, done)); await s.commit(commit(a, done)); await s.commit(commit(a, go))",
        Then::Is(Status::Completed),
    ),
    (
        "by-an-old-session",
        "const old = kept.get(a.run); if (old) { await old.commit(commit(a, done)); } else { kept.set(a.run, s.dup()); }",
        Then::TriedAgain,
    ),
    // Steps that are none.
    ("step-of-no-kind", "await s.commit(commit(a, done, [step({ op: 'jump:0:x' })]))", Then::TriedAgain),
    ("step-without-a-name", "await s.commit(commit(a, done, [step({ op: 'step:0:' })]))", Then::TriedAgain),
    ("step-without-a-number", "await s.commit(commit(a, done, [step({ op: 'step:x' })]))", Then::TriedAgain),
    (
        "step-with-a-long-name",
        "await s.commit(commit(a, done, [step({ op: 'step:0:' + 'x'.repeat(257) })]))",
        Then::TriedAgain,
    ),
    (
        "step-with-nul",
        "await s.commit(commit(a, done, [step({ op: 'step:0:a\\0b' })]))",
        Then::Is(Status::Completed),
    ),
    ("attempt-0", "await s.commit(commit(a, done, [step({ attempt: 0 })]))", Then::Is(Status::Completed)),
    ("attempt-negative", "await s.commit(commit(a, done, [step({ attempt: -1 })]))", Then::TriedAgain),
    (
        "attempt-4294967295",
        "await s.commit(commit(a, done, [step({ attempt: 4294967295 })]))",
        Then::Is(Status::Completed),
    ),
    (
        "attempt-4294967296",
        "await s.commit(commit(a, done, [step({ attempt: 4294967296 })]))",
        Then::TriedAgain,
    ),
    ("same-step-twice", "await s.commit(commit(a, done, [step({}), step({})]))", Then::Is(Status::Completed)),
    (
        "a-thousand-steps",
        "await s.commit(commit(a, done, Array.from({ length: 1000 }, (_, n) => step({ op: `step:${n}:x` }))))",
        Then::Is(Status::Completed),
    ),
    (
        "large-result",
        "await s.commit(commit(a, done, [step({ output: 'x'.repeat(2_000_000) })]))",
        Then::TriedAgain,
    ),
    (
        "deep-result",
        "await s.commit(deep(commit(a, done, [step({ output: 'DEEP' })]), 100_000))",
        Then::Is(Status::Completed),
    ),
    (
        "large-output",
        "await s.commit(commit(a, { complete: { output: 'x'.repeat(2_000_000) } }))",
        Then::TriedAgain,
    ),
    (
        "deep-output",
        "await s.commit(deep(commit(a, { complete: { output: 'DEEP' } }), 100))",
        Then::Is(Status::Completed),
    ),
    ("no-output", "await s.commit(commit(a, { complete: {} }))", Then::TriedAgain),
    // Failures at length, and policies that make no sense.
    (
        "large-failure",
        "await s.commit(commit(a, { fail: { failure: { message: 'x'.repeat(3 << 20) } } }))",
        Then::Is(Status::Failed),
    ),
    (
        "large-failure-of-a-step",
        "await s.commit(commit(a, done, [failed({ failure: { message: 'x'.repeat(3 << 20), terminal: true } })]))",
        Then::Is(Status::Completed),
    ),
    (
        "large-failure-of-an-attempt",
        "await s.commit(commit(a, done, [failed({ failure: { message: 'x'.repeat(3 << 20) } })]))",
        Then::Is(Status::Completed),
    ),
    (
        "failure-of-no-code",
        "await s.commit(commit(a, { fail: { failure: { message: 'x', code: 'CANARY' } } }))",
        // It may be a code of a later release.
        Then::Is(Status::Failed),
    ),
    (
        "no-attempts",
        "await s.commit(commit(a, done, [failed({ retry: { ...policy, attempts: 0 } })]))",
        Then::Is(Status::Completed),
    ),
    (
        "endless-delays",
        "await s.commit(commit(a, done, [failed({ retry: { ...policy, initial_ms: 1e19, max_ms: 1e19, factor: 1e308 } })]))",
        Then::Anything,
    ),
    (
        "negative-delays",
        "await s.commit(commit(a, done, [failed({ retry: { ...policy, initial_ms: -1 } })]))",
        Then::TriedAgain,
    ),
    (
        "odd-policy",
        "await s.commit(commit(a, done, [failed({ retry: { ...policy, factor: -5, jitter: 99 } })]))",
        Then::Is(Status::Completed),
    ),
    (
        "large-problem",
        "await s.commit(commit(a, { pause: { problem: { code: 'diverged', title: 'x', detail: 'x'.repeat(3 << 20), status: 500 } } }))",
        Then::Is(Status::Paused),
    ),
    (
        "problem-of-no-status",
        "await s.commit(commit(a, { pause: { problem: { code: 'diverged', title: 'x', detail: 'y', status: 0 } } }))",
        Then::Is(Status::Paused),
    ),
    // Waits that are none.
    ("waits-for-nothing", "await s.commit(commit(a, { suspend: { open: [] } }))", Then::TriedAgain),
    (
        "waits-for-too-much",
        "await s.commit(commit(a, { suspend: { open: Array.from({ length: 10_001 }, (_, n) => sleep(n, 1e6)) } }))",
        Then::TriedAgain,
    ),
    (
        "sleeps-for-ever",
        "await s.commit(commit(a, { suspend: { open: [sleep(0, 'MAX')] } }))",
        Then::Is(Status::Sleeping),
    ),
    (
        "sleeps-negatively",
        "await s.commit(commit(a, { suspend: { open: [sleep(0, -1)] } }))",
        Then::TriedAgain,
    ),
    (
        "sleeps-until-the-end",
        "await s.commit(commit(a, { suspend: { open: [{ sleep_until: { op: 'sleep:0:x', at: 'MAX' } }] } }))",
        Then::Is(Status::Sleeping),
    ),
    (
        "sleeps-until-no-date",
        "await s.commit(commit(a, { suspend: { open: [{ sleep_until: { op: 'sleep:0:x', at: 9e15 } }] } }))",
        Then::Is(Status::Sleeping),
    ),
    (
        "sleeps-as-a-step",
        "await s.commit(commit(a, { suspend: { open: [{ sleep: { op: 'step:0:x', ms: 3600000 } }] } }))",
        Then::Anything,
    ),
    (
        "waits-for-a-long-name",
        "await s.commit(commit(a, { suspend: { open: [{ wait: { op: 'wait:0:x', signal: 'x'.repeat(3 << 20) } }] } }))",
        Then::TriedAgain,
    ),
    (
        "retries-at-the-end",
        "await s.commit(commit(a, { suspend: { open: [{ retry: { op: 'step:0:x', at: 'MAX' } }] } }))",
        Then::Is(Status::Sleeping),
    ),
    ("goes-on-later", "await s.commit(commit(a, { yield: {} }))", Then::TriedAgain),
    // What is said beside.
    (
        "progress-below",
        "await s.commit(commit(a, done, [], { progress: { percent: -5 } }))",
        Then::Is(Status::Completed),
    ),
    (
        "progress-beyond",
        "await s.commit(commit(a, done, [], { progress: { percent: 1e308, ends_at: 'MAX' } }))",
        Then::Is(Status::Completed),
    ),
    (
        "progress-at-length",
        "await s.commit(commit(a, done, [], { progress: { percent: 1, message: 'x'.repeat(1025) } }))",
        Then::TriedAgain,
    ),
    (
        "too-many-attributes",
        "await s.commit(commit(a, done, [], { attributes: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`a${n}`, 'x'])) }))",
        Then::TriedAgain,
    ),
    (
        "attribute-with-a-colon",
        "await s.commit(commit(a, done, [], { attributes: { 'a:b': 'x' } }))",
        Then::TriedAgain,
    ),
    (
        "attribute-at-length",
        "await s.commit(commit(a, done, [], { attributes: { a: 'x'.repeat(257) } }))",
        Then::TriedAgain,
    ),
    (
        "attribute-that-is-none",
        "await s.commit(commit(a, done, [], { attributes: { a: 1 } }))",
        Then::TriedAgain,
    ),
    (
        "too-many-patches",
        "await s.commit(commit(a, done, [], { patches: Array.from({ length: 1001 }, (_, n) => `p${n}`) }))",
        Then::TriedAgain,
    ),
    ("patch-without-a-name", "await s.commit(commit(a, done, [], { patches: [''] }))", Then::TriedAgain),
    (
        "publishes-no-json",
        "await s.publish('CANARY'); await s.commit(commit(a, done))",
        Then::Is(Status::Completed),
    ),
    ("publishes-nothing", "await s.publish(); await s.commit(commit(a, done))", Then::Anything),
    (
        "publishes-at-length",
        "await s.publish(JSON.stringify({ first: 0, items: [{ log: { level: 'info', message: 'x'.repeat(3 << 20) } }] })); await s.commit(commit(a, done))",
        Then::Is(Status::Completed),
    ),
    (
        "publishes-from-the-end",
        "await s.publish(JSON.stringify({ first: 4294967295, items: [chunk, chunk] })); await s.commit(commit(a, done))",
        Then::Is(Status::Completed),
    ),
    (
        "publishes-too-much",
        "await s.publish(JSON.stringify({ first: 0, items: Array.from({ length: 20_000 }, () => chunk) })); await s.commit(commit(a, done))",
        Then::Is(Status::Completed),
    ),
    (
        "publishes-what-nobody-does",
        "await s.commit(commit(a, done, [], { published: { first: 0, items: [{ dance: 1 }] } }))",
        Then::TriedAgain,
    ),
    // Other methods of its session.
    ("page-before-all", "await s.page(-1); await s.commit(commit(a, done))", Then::Is(Status::Completed)),
    (
        "page-of-nothing",
        "await s.page('CANARY'); await s.page(); await s.page(1e99); await s.commit(commit(a, done))",
        Then::Is(Status::Completed),
    ),
    (
        "page-of-an-object",
        "await s.page({ toString: null }); await s.commit(commit(a, done))",
        Then::Anything,
    ),
    ("a-method-that-is-none", "await s.dance('CANARY')", Then::TriedAgain),
    ("its-own-call", "await s.call(0, 1, 1, '')", Then::TriedAgain),
    (
        "reports-all-the-time",
        "for (let n = 0; n < 300; n++) await s.commit(commit(a, go)); await s.commit(commit(a, done))",
        Then::Is(Status::Completed),
    ),
    (
        "listens-all-the-time",
        "for (let n = 0; n < 50; n++) s.listen(0).catch(() => 0); await s.commit(commit(a, done))",
        Then::Is(Status::Completed),
    ),
];

const HELP: &str = r#"
import { WorkerEntrypoint } from "cloudflare:workers";
const kept = new Map();
const done = { complete: { output: "done" } };
const go = { continue: {} };
const policy = { attempts: 3, initial_ms: 1000, factor: 2, max_ms: 60000, jitter: 0 };
const chunk = { chunk: { name: "c", value: "x".repeat(100) } };
// JavaScript cannot write the largest number of 64 bits.
const text = (value) => JSON.stringify(value).replaceAll('"MAX"', "18446744073709551615");
const deep = (text, depth) => text.replace('"DEEP"', "[".repeat(depth) + "]".repeat(depth));
const sleep = (n, ms) => ({ sleep: { op: `sleep:${n}:sleep`, ms } });
const step = (more) => ({ step_succeeded: { op: "step:0:x", attempt: 1, output: 1, ...more } });
const failed = (more) =>
  ({ step_failed: { op: "step:0:x", attempt: 1, failure: { message: "no" }, retry: policy, ...more } });
const commit = (a, then, commands = [], more = {}) =>
  text({ epoch: a.epoch, base: a.journal.events.at(-1)?.seq ?? 0, commands, then, ...more });
"#;

/// An engine with such an app.
pub async fn engine() -> Result<Workerd> {
    let mut acts = String::new();
    for (name, act, _) in ACTS {
        writeln!(acts, "  {name:?}: async (a, s) => {{ {act} }},")?;
    }
    let code = format!(
        r#"{HELP}
const ACTS = {{
{acts}}};
export default class extends WorkerEntrypoint {{
  describe() {{ return JSON.stringify({{ protocol: 1, workflows: [{{ name: "echo" }}, {{ name: "odd" }}] }}); }}
  async activate(activation, session) {{
    const a = JSON.parse(activation);
    if (a.workflow === "odd") return ACTS[a.input.does](a, session);
    await session.commit(commit(a, {{ complete: {{ output: a.input }} }}));
  }}
}}
"#
    );
    let engine = Worker::bundle("engine", &bundle("test-all-in-one")?)
        .durable_object("CELL", "Cell")
        .durable_object("STATION", "Station")
        .text("STEPWELL_KEY", KEY)
        .text("STEPWELL_CELLS", "1")
        .service("APP", "app");
    let config =
        Config::serving("engine").worker(engine).worker(Worker::inline("app", [("main.js", code.as_str())]));
    Workerd::start(&config).await
}

/// All of them.
pub fn make(_: &Bench) -> Vec<Case> {
    ACTS.iter()
        .map(|(name, _, then)| {
            let (name, then) = (*name, *then);
            Case::new(Kind::Either, name, move |bench| async move { does(&bench, name, then).await })
        })
        .collect()
}

async fn does(bench: &Arc<Bench>, name: &str, then: Then) -> Result<()> {
    let input = json!({ "does": name, "canary": super::bench::CANARY }).to_string();
    let started = bench.ask(&Request::post("/api/workflows/odd/start", input)).await?;
    expect_success(&started)?;
    let run = run_id(&started)?;
    let view = match then {
        Then::Is(status) => bench.admin.until(&run, status.as_str()).await?,
        Then::TriedAgain => tried_again(bench, &run).await?,
        Then::Anything => {
            // Long enough for its program to be called, and to have said what it says.
            bench.admin.show(&run, 1).await?.json()?
        }
    };
    let latest = Timestamp::MAX.as_millis();
    for time in ["wakes_at", "ended_at", "expires_at", "created_at"] {
        let is_sane = view.get(time).is_none_or(|at| at.as_u64().is_some_and(|at| at <= latest));
        ensure!(is_sane, "`{time}` is {}", view[time]);
    }
    ensure!(
        view.to_string().len() < 100_000 || name.contains("output"),
        "it is shown in {} bytes",
        view.to_string().len()
    );
    let path = format!("/api/executions/{run}");
    for what in ["", "/why", "/history", "/stream"] {
        let answer = bench.ask(&Request::get(format!("{path}{what}"))).await?;
        expect_success(&answer).with_context(|| format!("after it, `{what}`"))?;
    }
    let ended = bench.ask(&Request::post(format!("{path}/cancel"), "")).await?;
    ensure!([200, 409].contains(&ended.status), "{} {}", ended.status, shown(&ended.body));
    Ok(())
}

/// Waits until a run was called in vain.
async fn tried_again(bench: &Bench, run: &str) -> Result<serde_json::Value> {
    for _ in 0..200 {
        let why = bench.ask(&Request::get(format!("/api/executions/{run}/why"))).await?.json()?;
        let trouble = &why["trouble"];
        let count = |what: &str| trouble[what].as_u64().unwrap_or_default();
        if count("strikes") + count("losses") > 0 {
            return bench.admin.show(run, 0).await?.json();
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    let view = bench.admin.show(run, 0).await?.json()?;
    anyhow::bail!("nothing is held against it: {}", shown(&view.to_string()))
}
