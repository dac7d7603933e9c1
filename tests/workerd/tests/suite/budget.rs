//! Activations that end before the platform ends them, on the real workerd.

use std::time::Duration;

use serde_json::json;
use stepwell_workerd_tests::{
    Config, TestResult, Worker, Workerd, bundle,
    engine::{APP_KEY, Engine, Form, KEY},
    size::{hung, live, long, sleeping},
};

/// What an invocation of the free plan may call.
const FREE_CALLS_MAX: usize = 50;

/// Stands between engine and app, and writes down how many calls each activation makes on its session.
const COUNTER: &str = r#"
import { RpcTarget, WorkerEntrypoint } from "cloudflare:workers";
class Counted extends RpcTarget {
  constructor(session) { super(); this.session = session; this.calls = 0; }
  commit(text) { this.calls += 1; return this.session.commit(text); }
  page(after) { this.calls += 1; return this.session.page(after); }
  listen(after) { this.calls += 1; return this.session.listen(after); }
}
export default class extends WorkerEntrypoint {
  describe() { return this.env.REAL.describe(); }
  async activate(activation, session) {
    const counted = new Counted(session.dup());
    try {
      await this.env.REAL.activate(activation, counted);
    } finally {
      console.log(`session calls: ${counted.calls}.`);
    }
  }
}
"#;

/// An engine with these variables, whose app is called through the counter.
async fn counted(variables: &[(&str, &str)]) -> anyhow::Result<(Engine, Workerd)> {
    let app = Workerd::start(
        &Config::serving("app")
            .worker(Worker::bundle("app", &bundle("test-app")?).text("STEPWELL_APP_KEY", APP_KEY)),
    )
    .await?;
    let engine = Worker::bundle("engine", &bundle("engine")?)
        .durable_object("CELL", "Cell")
        .text("STEPWELL_KEY", KEY)
        .text("STEPWELL_APP_KEY", APP_KEY)
        .service("APP", "counter");
    let engine = variables.iter().fold(engine, |engine, (name, value)| engine.text(name, value));
    let config = Config::serving("engine")
        .worker(engine)
        .worker(Worker::inline("counter", [("index.js", COUNTER)]).service("REAL", "app"))
        .external("app", &app.address());
    Ok((Engine::of(Workerd::start(&config).await?), app))
}

/// The calls of each activation, once so many have ended.
async fn calls(engine: &Engine, activations: u64) -> Vec<usize> {
    loop {
        let log = engine.engine.log();
        let counts = log.lines().filter_map(|line| line.split("session calls: ").nth(1));
        let calls: Vec<_> = counts.filter_map(|count| count.split('.').next()?.parse().ok()).collect();
        if calls.len() as u64 >= activations {
            return calls;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn in_the_free_profile_no_activation_makes_more_calls_than_the_free_plan_allows() -> TestResult {
    let (engine, _app) = counted(&[("STEPWELL_PROFILE", "free")]).await?;
    let client = engine.client();
    // Pages of a long journal are calls too: with these results, 200 steps take four of them.
    let mut activations = 0;
    for bytes in [10, 20_000] {
        let run = client.start("many", &json!([200, bytes]), None, 25).await?.json()?;
        assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &json!(200 * bytes)), "{run}");
        activations += run["activations"].as_u64().unwrap_or_default();
        assert!(run["id"].as_str().is_some_and(|id| id.starts_with("default-1-0-")), "there is one cell");
    }
    let mut calls = calls(&engine, activations).await;
    println!("calls of each activation: {calls:?}");
    assert!(calls.iter().sum::<usize>() >= 400, "each step is a call at least: {calls:?}");
    calls.sort_unstable();
    assert!(calls.last().is_some_and(|&most| most <= FREE_CALLS_MAX), "{calls:?}");
    Ok(())
}

#[tokio::test]
async fn what_is_set_counts_more_than_the_profile() -> TestResult {
    let (engine, _app) = counted(&[("STEPWELL_PROFILE", "free"), ("STEPWELL_COMMITS", "5")]).await?;
    let run = engine.client().start("many", &json!([12, 1]), None, 10).await?.json()?;
    // Four steps and the last word, twice; the last step of all is the last word.
    assert_eq!((&run["status"], &run["activations"]), (&json!("completed"), &json!(3)), "{run}");
    assert_eq!(calls(&engine, 3).await, [5, 5, 4]);
    Ok(())
}

#[tokio::test]
async fn a_run_that_changes_programs_survives_a_kill() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        println!("{}: {}", form.name(), long::run(form, 1_000, Some(100), long::HEAP_MIB, true).await?);
    }
    Ok(())
}

#[tokio::test]
async fn many_live_runs_all_end() -> TestResult {
    println!("{}", live::run(200, 4, 40).await?);
    Ok(())
}

#[tokio::test]
async fn a_cell_does_not_read_all_who_sleep_in_it() -> TestResult {
    println!("{}", sleeping::run(2_500).await?);
    Ok(())
}

#[tokio::test]
async fn workflows_that_hang_leave_a_place_for_others() -> TestResult {
    println!("{}", hung::run().await?);
    Ok(())
}
