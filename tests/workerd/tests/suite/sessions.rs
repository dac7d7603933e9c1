//! What a session does that an object hands to a program by RPC.

use std::time::Duration;

use rand::Rng;
use stepwell_workerd_tests::{Config, Listener, Object, TestResult, Worker, Workerd, probe, probe_with_app};

#[tokio::test]
async fn a_session_commits_rows_from_a_second_worker() -> TestResult {
    let workerd = Workerd::start(&probe_with_app()?).await?;
    let object = Object::new(&workerd, "a");
    let answer = object.activate("APP", 3, 0, None).await?;
    assert_eq!(answer["ok"], "committed 3", "{answer}");
    let rows = object.rows("SELECT text FROM numbers ORDER BY n").await?;
    assert_eq!(rows, [["1"], ["2"], ["3"]]);
    Ok(())
}

#[tokio::test]
async fn a_session_of_an_old_epoch_cannot_commit() -> TestResult {
    let workerd = Workerd::start(&probe_with_app()?).await?;
    let object = Object::new(&workerd, "a");
    let mut reports = Listener::start().await?;
    let url = reports.url().to_owned();
    let (answer, refusal) = tokio::try_join!(object.activate("APP", 2, 0, Some(&url)), async {
        let first = reports.next().await;
        assert_eq!(first.query["acknowledged"], "1");
        object.ask("raise-epoch", "").await?;
        first.answer();
        let second = reports.next().await;
        let refusal = second.query["refused"].clone();
        second.answer();
        Ok(refusal)
    })?;
    // The text of an error thrown by the closure arrives whole on the other side.
    assert_eq!(refusal, "Error: epoch 0 is over [remote]");
    assert_eq!(answer["ok"], format!("refused at 2: {refusal}"));
    let rows = object.rows("SELECT text FROM numbers").await?;
    assert_eq!(rows, [["1"]]);
    Ok(())
}

#[tokio::test]
async fn the_workers_own_entrypoint_is_in_ctx_exports() -> TestResult {
    let workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "a");
    let answer = object.activate("exports", 2, 0, None).await?;
    assert_eq!(answer["ok"], "committed 2", "{answer}");
    let rows = object.rows("SELECT text FROM numbers ORDER BY n").await?;
    assert_eq!(rows, [["1"], ["2"]]);
    Ok(())
}

#[tokio::test]
async fn an_acknowledged_session_commit_survives_sigkill() -> TestResult {
    const KILLS: u32 = 4;
    let mut workerd = Workerd::start(&probe_with_app()?).await?;
    let mut acknowledged_in_all = 0;
    for round in 0..KILLS {
        let object = Object::new(&workerd, &format!("round-{round}"));
        let mut reports = Listener::start().await?;
        let url = reports.url().to_owned();
        let activation = {
            let object = object.clone();
            tokio::spawn(async move { object.activate("APP", 1_000_000, 0, Some(&url)).await })
        };
        // The clock runs from the first commit on: loading takes a while on a busy machine.
        let first = tokio::time::timeout(Duration::from_secs(30), reports.next()).await?;
        let mut acknowledged: i64 = first.query["acknowledged"].parse()?;
        first.answer();
        let kill_in = Duration::from_millis(rand::rng().random_range(200..500));
        let deadline = tokio::time::Instant::now() + kill_in;
        while let Ok(call) = tokio::time::timeout_at(deadline, reports.next()).await {
            acknowledged = call.query["acknowledged"].parse()?;
            call.answer();
        }
        workerd.kill();
        activation.await?.expect_err("the caller's connection went with the process");
        workerd.restart().await?;
        let rows = object.rows("SELECT count(*), max(CAST(text AS INTEGER)) FROM numbers").await?;
        let (count, highest) = (rows[0][0].as_i64(), rows[0][1].as_i64());
        assert_eq!(count, highest, "a commit in the middle is missing");
        assert!(count >= Some(acknowledged), "{acknowledged} acknowledged, {count:?} stored");
        acknowledged_in_all += acknowledged;
    }
    println!("{acknowledged_in_all} acknowledged commits over {KILLS} kills, none lost");
    Ok(())
}

/// An object calls a program that says something every 50 ms and never returns, and disposes the call.
const CALLER: &str = r#"
import { DurableObject, RpcTarget } from "cloudflare:workers";
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
class Session extends RpcTarget {
  heard = 0;
  hear() { this.heard += 1; }
}
export class Caller extends DurableObject {
  async disposeCall() {
    const session = new Session();
    const call = this.env.PROGRAM.talk(session);
    await pause(500);
    const before = session.heard;
    call[Symbol.dispose]();
    await pause(1_000);
    return { before, after: session.heard };
  }
}
export default {
  async fetch(_, env) { return Response.json(await env.CALLER.getByName("a").disposeCall()); },
};
"#;

const PROGRAM: &str = r#"
import { WorkerEntrypoint } from "cloudflare:workers";
export default class extends WorkerEntrypoint {
  async talk(session) {
    while (true) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      await session.hear();
    }
  }
}
"#;

#[tokio::test]
async fn a_call_goes_on_when_its_promise_is_disposed() -> TestResult {
    let caller = Worker::inline("caller", [("main.js", CALLER)])
        .durable_object("CALLER", "Caller")
        .service("PROGRAM", "program");
    let program = Worker::inline("program", [("main.js", PROGRAM)]);
    let workerd = Workerd::start(&Config::serving("caller").worker(caller).worker(program)).await?;
    let heard = workerd.http().get("/").await?.json()?;
    assert!(heard["before"].as_u64() > Some(2), "{heard}");
    assert!(heard["after"].as_u64() > heard["before"].as_u64().map(|before| before + 5), "{heard}");
    Ok(())
}
