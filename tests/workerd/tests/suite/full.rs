//! Cells that fill up.

use serde_json::json;
use stepwell_workerd_tests::{
    TestResult,
    engine::{Engine, Form},
};

#[tokio::test]
async fn a_full_cell_takes_no_new_runs_and_lets_those_that_it_has_go_on() -> TestResult {
    let variables = [("STEPWELL_CELLS", "1"), ("STEPWELL_CELL_BYTES", "1000000")];
    let engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let client = engine.client();
    let waiting = client.start("wait", &json!(60_000), Some("first"), 0).await?.json()?;
    let id = waiting["id"].as_str().unwrap_or_default();
    client.until(id, "waiting").await?;
    let large = "x".repeat(20_000);
    let mut started = 0;
    let refused = loop {
        let answer = client.start("fail", &json!(large), None, 10).await?;
        if answer.status != 201 {
            break answer;
        }
        started += 1;
        assert!(started < 100, "2 MB went into a cell of 1 MB");
    };
    assert_eq!((refused.status, refused.body.contains("\"cell_full\"")), (507, true), "{}", refused.body);
    println!("full after {started} runs of 20 kB");
    assert!(started >= 20, "full after {started} runs only");
    let keyed = client.start("ten", &json!(null), Some("new"), 0).await?;
    assert_eq!(keyed.status, 507, "{}", keyed.body);
    let known = client.start("wait", &json!(60_000), Some("first"), 0).await?;
    assert_eq!((known.status, &known.json()?["id"]), (200, &waiting["id"]));
    // Whatever is under way goes on to its end.
    assert_eq!(client.signal(id, "go", &json!("hello"), Some("s")).await?.status, 202);
    assert_eq!(client.show(id, 10).await?.json()?["output"], "hello");
    Ok(())
}

/// Of the keys k0, k1 and so on of the workflow `fail`, those that belong to the first of two cells.
const KEYS_OF_CELL_0: [u32; 64] = [
    2, 5, 7, 8, 10, 11, 14, 18, 20, 21, 22, 23, 24, 26, 27, 28, 30, 33, 40, 43, 44, 46, 47, 48, 49, 50, 51,
    52, 55, 58, 63, 64, 69, 73, 75, 76, 77, 78, 82, 83, 84, 86, 87, 88, 89, 90, 91, 92, 94, 95, 98, 100, 101,
    102, 105, 106, 107, 108, 113, 116, 117, 118, 119, 120,
];

#[tokio::test]
async fn a_run_without_a_key_goes_to_a_cell_that_has_room() -> TestResult {
    let variables = [("STEPWELL_CELLS", "2"), ("STEPWELL_CELL_BYTES", "1000000")];
    let engine = Engine::start_with(Form::AllInOne, &variables).await?;
    let client = engine.client();
    let large = "x".repeat(20_000);
    let mut full = None;
    for n in KEYS_OF_CELL_0 {
        let answer = client.start("fail", &json!(large), Some(&format!("k{n}")), 10).await?;
        if answer.status == 507 {
            full = Some(n);
            break;
        }
        let id = answer.json()?["id"].as_str().unwrap_or_default().to_owned();
        assert!(id.starts_with("default-1-0-"), "k{n}: {id}");
    }
    assert!(full.is_some(), "the cell was never full");
    let mut cells = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let run = client.start("nap", &json!(1), None, 10).await?.json()?;
        let id = run["id"].as_str().unwrap_or_default().to_owned();
        cells.insert(id.split('-').nth(2).unwrap_or_default().to_owned());
    }
    assert_eq!(cells.into_iter().collect::<Vec<_>>(), ["1"], "only that cell has room");
    Ok(())
}

// Only Linux sets limits of another process.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_storage_that_takes_nothing_any_more_loses_nothing_and_runs_go_on_when_it_does() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let client = engine.client();
    let waiting = client.start_id("wait", json!(60_000)).await?;
    client.until(&waiting, "waiting").await?;
    let busy = client.start_id("race", json!(1_500)).await?;
    let asleep = client.start_id("nap", json!(1_000)).await?;
    client.until(&asleep, "sleeping").await?;
    let kept = client.history(&waiting).await?;
    engine.engine.limit_files(Some(1))?;

    let mut refused = Vec::new();
    for n in 0..3 {
        let key = format!("s{n}");
        refused.push(client.signal(&waiting, "go", &json!("lost"), Some(&key)).await?);
        refused.push(client.start("ten", &json!(null), Some(&key), 0).await?);
    }
    for answer in &refused {
        println!("{} {}", answer.status, answer.body);
        assert_eq!(answer.status, 500, "{}", answer.body);
    }
    // The step of one and the sleep of the other are over by now, and could not be recorded.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    engine.engine.limit_files(None)?;

    assert_eq!(client.history(&waiting).await?, kept, "what was refused is not there");
    assert_eq!(client.signal(&waiting, "go", &json!("hello"), Some("s0")).await?.status, 202);
    assert_eq!(client.show(&waiting, 20).await?.json()?["output"], "hello");
    assert_eq!(client.show(&asleep, 20).await?.json()?["output"], "awake");
    assert_eq!(client.show(&busy, 20).await?.json()?["output"], "step");
    let run = client.start("ten", &json!(null), Some("s0"), 20).await?;
    assert_eq!((run.status, &run.json()?["output"]), (201, &json!(45)));
    Ok(())
}
