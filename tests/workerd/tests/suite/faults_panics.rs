//! What a panic in a user's code does: to its own run, to its neighbours, to whoever waits. In both forms, and in
//! both builds: in one a panic is caught, in the other it stops the wasm instance that all share.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Build, Client, Engine, Form},
};

/// Longer than the dead man's switch of a cell, which is the longest that anyone waits for its next instance.
const RECOVERED_WITHIN: Duration = Duration::from_secs(12);

/// How long a client may be kept waiting by a panic that is not its own.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// How soon the metrics have what has happened.
const COUNTED_WITHIN: Duration = Duration::from_secs(45);

const EVERYWHERE: [(Form, Build); 4] = [
    (Form::AllInOne, Build::Unwind),
    (Form::Split, Build::Unwind),
    (Form::AllInOne, Build::Abort),
    (Form::Split, Build::Abort),
];

/// Starts a run under a key, again if the answer is that the Worker was stopped: the run may be the one that stops
/// it, before its own start is answered.
async fn start(client: &Client, workflow: &str, input: Value, key: &str) -> Result<String> {
    for _ in 0..5 {
        let answer = client.start(workflow, &input, Some(key), 0).await?;
        if answer.status < 500 {
            return Ok(answer.json()?["id"].as_str().unwrap_or_default().to_owned());
        }
        anyhow::ensure!(answer.body.contains(r#""code":"internal""#), "{}", answer.body);
    }
    anyhow::bail!("{key} was never started")
}

/// Waits for a run's end, asking again whenever an answer is that the Worker was stopped.
async fn end(client: &Client, run: &str) -> Result<Value> {
    let began = Instant::now();
    loop {
        let answer = client.show(run, 2).await?;
        anyhow::ensure!(began.elapsed() < RECOVERED_WITHIN, "{run} has not ended: {}", answer.body);
        if answer.status >= 500 {
            continue;
        }
        let view = answer.json()?;
        if view.get("ended_at").is_some() {
            return Ok(view);
        }
    }
}

/// How often a run has logged this.
async fn logged(client: &Client, run: &str, message: &str) -> Result<usize> {
    let told = client.get(&format!("/api/executions/{run}/stream?follow=false&types=log")).await?;
    anyhow::ensure!(told.status == 200, "{}", told.body);
    Ok(told.body.matches(message).count())
}

fn said(view: &Value) -> (&str, &str) {
    let of = |name: &str| view["error"][name].as_str().unwrap_or_default();
    (of("code"), of("message"))
}

#[tokio::test]
async fn a_panic_in_a_workflow_fails_its_run_with_its_message() -> TestResult {
    for (form, build) in EVERYWHERE {
        let engine = Engine::start_build(form, build, 2).await?;
        let client = engine.client();
        let run = start(&client, "clumsy", json!("workflow"), "run 1").await?;
        let view = end(&client, &run).await?;
        let at = format!("{} {}: {view}", form.name(), build.name());
        let (code, message) = said(&view);
        assert_eq!((&view["status"], code), (&json!("failed"), "panicked"), "{at}");
        assert!(message.contains("the workflow slipped, at ") && message.contains("trouble.rs"), "{at}");
        let activations = view["activations"].as_u64().unwrap_or_default();
        assert!(activations <= if build == Build::Unwind { 1 } else { 3 }, "{at}");
        assert_eq!(logged(&client, &run, "about to slip").await?, 1, "{at}");
    }
    Ok(())
}

#[tokio::test]
async fn a_panic_after_a_wait_fails_its_run_and_leaves_what_was_recorded() -> TestResult {
    for (form, build) in EVERYWHERE {
        let engine = Engine::start_build(form, build, 1).await?;
        let client = engine.client();
        let run = start(&client, "clumsy", json!("after a wait"), "run 2").await?;
        client.until(&run, "waiting").await?;
        // Perhaps it is told that the Worker was stopped, by the very run that it has woken.
        client.signal(&run, "go", &Value::Null, Some("go")).await?;
        let view = end(&client, &run).await?;
        assert!(said(&view).1.contains("slipped after a wait"), "{} {}: {view}", form.name(), build.name());
        assert_eq!(client.history(&run).await?.len(), 2, "{} {}", form.name(), build.name());
    }
    Ok(())
}

#[tokio::test]
async fn a_panic_in_a_step_is_a_failed_attempt() -> TestResult {
    for (form, build) in EVERYWHERE {
        let engine = Engine::start_build(form, build, 2).await?;
        let client = engine.client();
        let (twice, always) = (
            start(&client, "clumsy", json!("twice in a step"), "run 3").await?,
            start(&client, "clumsy", json!("always in a step"), "run 4").await?,
        );
        let at = format!("{} {}", form.name(), build.name());
        let view = end(&client, &twice).await?;
        assert_eq!(
            (&view["status"], &view["output"]),
            (&json!("completed"), &json!("attempt 3")),
            "{at}: {view}"
        );
        let view = end(&client, &always).await?;
        let output = view["output"].as_str().unwrap_or_default();
        assert!(
            output.starts_with("step 'slips' failed: the code panicked: the step slipped"),
            "{at}: {view}"
        );
        assert_eq!(logged(&client, &always, "about to slip").await?, 3, "{at}");
        let history = client.history(&always).await?;
        let attempts: Vec<_> = history
            .iter()
            .filter_map(|record| {
                let event = &record["event"];
                event.get("step_retrying").or(event.get("step_finished"))
            })
            .filter(|event| event["op"] == "step:0:slips")
            .map(|event| event["attempt"].clone())
            .collect();
        assert_eq!(attempts, [json!(1), json!(2), json!(3)], "{at}: {history:?}");
    }
    Ok(())
}

#[tokio::test]
async fn neighbours_of_a_panic_complete_and_nobody_waits_for_long() -> TestResult {
    for (form, build) in EVERYWHERE {
        let at = format!("{} {}", form.name(), build.name());
        let engine = Engine::start_build(form, build, 2).await?;
        let client = engine.client();
        let mut neighbours = Vec::new();
        for n in 0..4 {
            neighbours.push(start(&client, "steady", json!(400), &format!("neighbour {n}")).await?);
        }
        let asleep = client.start_id("nap", json!(1_500)).await?;
        // Somebody waits for a neighbour in one long request when the panic comes.
        let waiting = {
            let (client, run) = (client.clone(), neighbours[0].clone());
            tokio::spawn(async move { (client.show(&run, 20).await, Instant::now()) })
        };
        let clumsy = start(&client, "clumsy", json!("workflow"), "run 6").await?;
        let slipped = Instant::now();

        // New runs are taken at once.
        start(&client, "ten", Value::Null, "fresh").await?;
        assert!(slipped.elapsed() < ANSWERED_WITHIN, "{at}: a start took {:?}", slipped.elapsed());

        let view = end(&client, &clumsy).await?;
        assert_eq!((&view["status"], said(&view).0), (&json!("failed"), "panicked"), "{at}: {view}");
        for run in neighbours.iter().chain([&asleep]) {
            let view = end(&client, run).await?;
            assert_eq!(view["status"], "completed", "{at}: {view}");
        }
        let (answer, answered) = waiting.await?;
        // The instance that it waited in was stopped, or its run ended: either way it is told.
        let answer = answer?;
        let took = answered.duration_since(slipped);
        println!("{at}: whoever waited was told {} after {took:?}", answer.status);
        assert!(
            answer.status == 200 || build == Build::Abort && answer.status == 500,
            "{at}: {}",
            answer.body
        );
        assert!(answer.status == 200 || took < ANSWERED_WITHIN, "{at}: it waited for {took:?}");
    }
    Ok(())
}

/// A run that fills the stack whenever it runs, beside one that does not.
async fn fills_the_stack(form: Form, build: Build) -> TestResult {
    let at = format!("{} {}", form.name(), build.name());
    let engine = Engine::start_build(form, build, 2).await?;
    let client = engine.client();
    let began = Instant::now();
    let diver = start(&client, "clumsy", json!("deep"), "run 7").await?;
    let steady = start(&client, "steady", json!(300), "run 8").await?;
    let mut runs = [(diver, None), (steady, None)];
    while runs.iter().any(|(_, view)| view.is_none()) {
        assert!(began.elapsed() < Duration::from_secs(150), "{at}: {runs:?}");
        for (run, view) in &mut runs {
            let answer = client.show(run, 1).await?;
            if answer.status < 300 && answer.body.contains("ended_at") {
                *view = Some(answer.json()?);
            }
        }
    }
    let [diver, steady] = runs.map(|(_, view)| view.unwrap_or_default());
    println!(
        "{at}: the run that fills the stack was failed after {:?} and {} activations; its neighbour had {}",
        began.elapsed(),
        diver["activations"],
        steady["activations"]
    );
    assert_eq!((&diver["status"], said(&diver).0), (&json!("failed"), "program_died"), "{at}: {diver}");
    assert_eq!(steady["status"], "completed", "{at}: {steady}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_fills_the_stack_is_failed_and_its_neighbour_is_not() -> TestResult {
    // All at once: most of it is waiting.
    let all = EVERYWHERE.map(|(form, build)| tokio::spawn(fills_the_stack(form, build)));
    for one in all {
        one.await??;
    }
    Ok(())
}

/// Where panics abort, one stops all cells of the isolate, whatever they were about to store.
#[tokio::test]
async fn a_panic_takes_no_counts_with_it() -> TestResult {
    let engine = Engine::start_build(Form::AllInOne, Build::Abort, 2).await?;
    let client = engine.client();
    for number in 1..=12 {
        let run = start(&client, "ten", Value::Null, &format!("ten {number}")).await?;
        end(&client, &run).await?;
    }
    let slipped = start(&client, "clumsy", json!("workflow"), "slips").await?;
    end(&client, &slipped).await?;
    let counted = [
        r#"stepwell_runs_started_total{namespace="default",workflow="ten"} 12"#,
        r#"stepwell_runs_ended_total{namespace="default",workflow="ten",status="completed"} 12"#,
        r#"stepwell_runs_ended_total{namespace="default",workflow="clumsy",status="failed"} 1"#,
    ];
    let starts = r#"stepwell_requests_total{namespace="default",route="POST /api/workflows/{workflow}/start",code="201"} "#;
    let began = Instant::now();
    loop {
        let text = client.get("/api/metrics/prometheus").await?.body;
        let missing: Vec<_> = counted.iter().filter(|line| !text.lines().any(|it| it == **line)).collect();
        // The last start may be answered with an error, and again.
        let started = text.lines().find_map(|line| line.strip_prefix(starts)?.parse::<u64>().ok());
        if missing.is_empty() && started.is_some_and(|count| count >= 12) {
            return Ok(());
        }
        assert!(
            began.elapsed() < COUNTED_WITHIN,
            "{missing:#?} are missing, or starts ({started:?}) in:\n{text}"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
