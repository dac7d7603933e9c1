//! `stepwell plan` against live runs: it names exactly those that a change of the code diverges.

use std::{collections::BTreeSet, env, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    cli::Terminal,
    engine::{Engine, Form},
    repository_root,
};

/// How many live runs there are, unless `STEPWELL_PLAN_RUNS` says otherwise: `just plan 500`.
const RUNS: usize = 40;

/// How many of them the change diverges.
const DIVERGING: usize = 3;

/// The first time, cargo builds the app natively.
const BUILD: Duration = Duration::from_secs(1_800);

#[tokio::test]
async fn plan_names_exactly_the_live_runs_that_a_change_diverges() -> TestResult {
    let runs: usize = env::var("STEPWELL_PLAN_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let engine = Engine::start(Form::Split, 4).await?;
    let client = engine.client();
    client.send_post("/api/sync", "").await?;
    let mut diverging = BTreeSet::new();
    for _ in 0..DIVERGING {
        let id = client.start_id("changing", Value::Null).await?;
        client.until(&id, "waiting").await?;
        diverging.insert(id);
    }
    let others: Vec<_> = (DIVERGING..runs).collect();
    for some in others.chunks(20) {
        let started = some.iter().map(|n| match n % 3 {
            0 => client.start_id("wait", json!(3_600_000)),
            1 => client.start_id("nap", json!(3_600_000)),
            _ => client.start_id("found", json!([])),
        });
        for id in join_all(started).await {
            let id = id?;
            let view = client.show(&id, 0).await?.json()?;
            assert!(view["ended_at"].is_null(), "{view}");
        }
    }
    let terminal = Terminal::open(&engine.engine.address())?;
    let project = repository_root().join("tests/workerd/app");
    let project = project.to_str().unwrap_or_default();
    let plan = async |arguments: &[&str]| {
        terminal
            .within(
                BUILD,
                &[&["plan", "--json", "--no-default-features", "--project", project], arguments].concat(),
            )
            .await
    };

    let same = plan(&[]).await?;
    assert_eq!(same.code, Some(0), "{}", same.stderr);
    let told: Value = serde_json::from_str(&same.stdout)?;
    assert_eq!(
        (&told["live"], &told["replayed"], &told["diverging"]),
        (&json!(runs), &json!(runs), &json!([]))
    );
    for part in ["added", "changed", "retired"] {
        assert_eq!(told["plan"][part], json!([]), "the same code declares the same");
    }

    let changed = plan(&["--features", "changed"]).await?;
    assert_eq!(changed.code, Some(7), "{}", changed.stderr);
    let told: Value = serde_json::from_str(&changed.stdout)?;
    let named = told["diverging"].as_array().into_iter().flatten().filter_map(|one| one["run"].as_str());
    assert_eq!(named.map(str::to_owned).collect::<BTreeSet<_>>(), diverging);
    assert_eq!(told["plan"]["retired"], json!([{"kind": "workflow", "name": "withdrawn"}]));
    println!("plan: {runs} live runs, {DIVERGING} diverge, and exactly these are named");

    let sampled = plan(&["--sample", "10"]).await?;
    let told: Value = serde_json::from_str(&sampled.stdout)?;
    assert_eq!((&told["live"], &told["replayed"]), (&json!(runs), &json!(10)));
    Ok(())
}
