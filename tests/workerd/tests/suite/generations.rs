//! Pools that grow.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Engine, Form},
    growth::{self, Plan},
};

#[tokio::test]
async fn a_key_has_one_run_while_the_pool_grows() -> TestResult {
    let plan = Plan { starts: 400, duplicates: 10, at_once: 32, kills: 1, seed: 7 };
    let report = growth::run(&plan).await?;
    println!("{report}");
    assert_eq!((report.keys, report.runs), (40, 40));
    assert!(report.grown > 0 && report.grown < 40, "both generations have runs: {}", report.grown);
    Ok(())
}

#[tokio::test]
async fn a_setting_that_makes_no_sense_is_refused_by_every_request() -> TestResult {
    for (name, value, why) in [
        ("STEPWELL_CELLS", "16;64", "'16;64' is no number of cells from 1 to 4096"),
        ("STEPWELL_CELLS", "16,64@soon", "'soon' is no day such as 2026-12-01"),
        ("STEPWELL_KEY_DAYS", "a week", "STEPWELL_KEY_DAYS is 'a week'"),
        ("STEPWELL_RETENTION_DAYS", "-1", "STEPWELL_RETENTION_DAYS is '-1'"),
        ("STEPWELL_CELL_BYTES", "10GB", "STEPWELL_CELL_BYTES is '10GB'"),
        ("STEPWELL_WINDOW", "many", "STEPWELL_WINDOW is 'many'"),
        ("STEPWELL_COMMITS", "0", "STEPWELL_COMMITS is '0'"),
    ] {
        let engine = Engine::start_with(Form::AllInOne, &[(name, value)]).await?;
        let client = engine.client();
        for answer in [
            client.start("ten", &Value::Null, None, 0).await?,
            client.get("/api/executions").await?,
            client.show("default-1-0-1-0123456789ab", 0).await?,
        ] {
            assert_eq!((answer.status, answer.body.contains(why)), (500, true), "{value}: {}", answer.body);
        }
        let answer = engine.engine.http().get("/api/executions").await?;
        let tells = answer.body.contains(name);
        assert_eq!(
            (answer.status, tells),
            (500, false),
            "only the holder of the key is told why: {}",
            answer.body
        );
    }
    Ok(())
}

#[tokio::test]
async fn runs_of_all_generations_are_found_and_listed_and_new_ones_go_to_the_latest() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", "2")]).await?;
    let client = engine.client();
    let mut ids = Vec::new();
    for n in 0..6 {
        let key = format!("k{n}");
        ids.push(client.start("nap", &json!(1), Some(&key), 0).await?.json()?["id"].clone());
    }
    redeploy(&mut engine, "2", "2,3").await?;
    for (n, id) in ids.iter().enumerate() {
        let key = format!("k{n}");
        let again = client.start("nap", &json!(1), Some(&key), 0).await?;
        assert_eq!((again.status, &again.json()?["id"]), (200, id), "a key of before the growth");
        assert_eq!(client.start("nap", &json!(2), Some(&key), 0).await?.status, 422);
        assert_eq!(client.show(id.as_str().unwrap_or_default(), 0).await?.status, 200);
    }
    for n in 0..6 {
        let key = (n % 2 == 0).then(|| format!("new{n}"));
        let id = client.start("nap", &json!(1), key.as_deref(), 0).await?.json()?["id"].clone();
        assert!(id.as_str().is_some_and(|id| id.starts_with("default-2-")), "{id}");
        ids.push(id);
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/api/executions?limit=5{cursor}")).await?.json()?;
        let runs = page["executions"].as_array().cloned().unwrap_or_default();
        found.extend(runs.iter().map(|run| run["id"].clone()));
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
        assert!(found.len() <= ids.len(), "pages repeat: {found:?}");
    }
    let sorted = |mut ids: Vec<Value>| {
        ids.sort_by_key(ToString::to_string);
        ids
    };
    assert_eq!(sorted(found), sorted(ids));
    // A cursor from before pools could grow: `{"0":9,"1":9}`, the cells of the first generation.
    let old = client.get("/api/executions?cursor=eyIwIjo5LCIxIjo5fQ").await?.json()?;
    let old = old["executions"].as_array().cloned().unwrap_or_default();
    assert_eq!(old.len(), 6, "{old:?}");
    Ok(())
}

#[tokio::test]
async fn runs_of_all_generations_are_found_by_their_keys_and_searches_leave_no_trace() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", "2")]).await?;
    let client = engine.client();
    let mut runs = Vec::new();
    for (generation, cells) in [(1, "2"), (2, "2,3")] {
        if generation == 2 {
            redeploy(&mut engine, "2", cells).await?;
        }
        for n in 0..6 {
            let key = format!("k{generation}-{n}");
            let run = client.start("ten", &Value::Null, Some(&key), 10).await?.json()?;
            let id = run["id"].as_str().unwrap_or_default().to_owned();
            assert!(id.starts_with(&format!("default-{generation}-")), "{run}");
            runs.push((key, id));
        }
    }
    // Workers of before the growth, of after it, and of the next one.
    for cells in ["2,3", "2", "2,3,5"] {
        redeploy(&mut engine, "2,3", cells).await?;
        for (key, id) in &runs {
            let found = client.get(&format!("/api/workflows/ten/by-key/{key}")).await?;
            assert_eq!((found.status, &found.json()?["id"]), (200, &json!(id)), "{cells}: {key}");
            let signal = format!("/api/workflows/ten/by-key/{key}/signals/go");
            assert_eq!(client.send_post(&signal, "").await?.problem()?, (409, "run_ended".into()));
        }
        for n in 0..6 {
            let unused = client.get(&format!("/api/workflows/ten/by-key/unused{n}")).await?;
            assert_eq!(unused.problem()?, (404, "run_not_found".into()), "{cells}");
        }
        redeploy(&mut engine, cells, "2,3").await?;
    }
    // A Worker of before the growth is not sent on: whoever looked for them has reserved nothing.
    redeploy(&mut engine, "2,3", "2").await?;
    for n in 0..6 {
        let run = client.start("ten", &Value::Null, Some(&format!("unused{n}")), 0).await?.json()?;
        assert!(run["id"].as_str().is_some_and(|id| id.starts_with("default-1-")), "{run}");
    }
    Ok(())
}

#[tokio::test]
async fn an_id_of_a_generation_that_is_not_there_makes_no_object() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", "2")]).await?;
    let client = engine.client();
    // The list asks all cells that there are.
    client.get("/api/executions").await?;
    let before = engine.engine.files()?;
    for place in ["2-0", "2-4095", "3-0", "16-0", "1-2"] {
        let path = format!("/api/executions/default-{place}-1-0123456789ab");
        for (method, rest) in [
            ("GET", ""),
            ("GET", "/why"),
            ("GET", "/history"),
            ("GET", "/stream?follow=false"),
            ("POST", "/cancel"),
            ("POST", "/signals/go"),
        ] {
            let answer = client.request(method, &format!("{path}{rest}"), "").await?;
            assert_eq!(answer.problem()?, (404, "run_not_found".into()), "{method} {place}{rest}");
        }
    }
    let made: Vec<_> = engine.engine.files()?.difference(&before).cloned().collect();
    let is_cell = |file: &PathBuf| file.parent().is_some_and(|folder| folder.ends_with("Cell"));
    assert!(!made.iter().any(is_cell), "{made:?}");

    redeploy(&mut engine, "2", "2,3").await?;
    let grown = client.start_id("ten", Value::Null).await?;
    assert!(grown.starts_with("default-2-"), "{grown}");
    redeploy(&mut engine, "2,3", "2").await?;
    assert_eq!(client.show(&grown, 0).await?.status, 200, "known to those who do not know of the growth");
    assert_eq!(client.show("default-2-3-1-0123456789ab", 0).await?.status, 404, "it has three cells");
    Ok(())
}

#[tokio::test]
async fn a_number_that_was_changed_starts_no_run_in_the_wrong_cells() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", "2,3")]).await?;
    let client = engine.client();
    let run = client.start_id("ten", Value::Null).await?;
    for (before, after) in [("2,3", "2,4"), ("2,4", "3,3"), ("3,3", "4,3,5")] {
        redeploy(&mut engine, before, after).await?;
        for key in [None, Some("k")] {
            let refused = client.start("ten", &Value::Null, key, 0).await?;
            let why = format!("The variable STEPWELL_CELLS is '{after}', but it was '2,3'");
            assert_eq!((refused.status, refused.body.contains(&why)), (500, true), "{}", refused.body);
        }
    }
    redeploy(&mut engine, "4,3,5", "2,3,5").await?;
    assert!(client.start_id("ten", Value::Null).await?.starts_with("default-3-"));
    assert_eq!(client.show(&run, 0).await?.status, 200);
    let audit = client.get("/api/audit").await?.json()?;
    let lines = audit["records"].as_array().into_iter().flatten();
    let grown = lines.filter(|line| line["action"] == "pool_grown").map(|line| &line["subject"]);
    let grown: Vec<_> = grown.collect();
    assert_eq!(grown, ["pool:2,3,5", "pool:2,3"], "{audit}");
    Ok(())
}

#[tokio::test]
async fn a_single_number_that_was_changed_is_refused() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", "2")]).await?;
    let client = engine.client();
    let mut runs = Vec::new();
    for n in 0..8 {
        let key = format!("k{n}");
        runs.push(client.start("ten", &Value::Null, Some(&key), 0).await?.json()?["id"].clone());
    }
    for (before, after) in [("2", "1"), ("1", "3"), ("3", "3,4")] {
        redeploy(&mut engine, before, after).await?;
        let why = "has 2 cells".replace('2', &after[..1]);
        let refused = [
            client.start("ten", &Value::Null, Some("k1"), 0).await?,
            client.get("/api/workflows/ten/by-key/k1").await?,
            client.get("/api/executions").await?,
            client.get("/api/metrics").await?,
        ];
        for answer in refused {
            let is_loud = answer.body.contains(&why) && answer.body.contains("started with 2.");
            assert_eq!((answer.status, is_loud), (500, true), "{after}: {}", answer.body);
        }
    }
    redeploy(&mut engine, "3,4", "2").await?;
    for (n, run) in runs.iter().enumerate() {
        let again = client.start("ten", &Value::Null, Some(&format!("k{n}")), 0).await?;
        assert_eq!((again.status, &again.json()?["id"]), (200, run));
    }
    Ok(())
}

#[tokio::test]
async fn a_pool_does_not_grow_without_a_catalog() -> TestResult {
    let mut engine = Engine::start_with(Form::AllInOne, &[("STEPWELL_CELLS", "2")]).await?;
    rewrite(&mut engine, "name = \"STATION\"", "name = \"OTHER\"").await?;
    let client = engine.client();
    assert_eq!(client.start("ten", &Value::Null, None, 5).await?.status, 201);
    assert_eq!(client.show("default-2-0-1-0123456789ab", 0).await?.status, 404);
    redeploy(&mut engine, "2", "2,3").await?;
    let refused = client.start("ten", &Value::Null, None, 0).await?;
    let why = "A pool that grows takes a catalog: bind the class Station as STATION.";
    assert_eq!((refused.status, refused.body.contains(why)), (500, true), "{}", refused.body);
    Ok(())
}

/// The next deployment, over the same storage.
async fn redeploy(engine: &mut Engine, before: &str, after: &str) -> anyhow::Result<()> {
    rewrite(engine, &format!("text = \"{before}\""), &format!("text = \"{after}\"")).await
}

/// Restarts it with another text in its configuration.
async fn rewrite(engine: &mut Engine, before: &str, after: &str) -> anyhow::Result<()> {
    let config = engine.engine.folder().join("config.capnp");
    let text = fs::read_to_string(&config)?;
    anyhow::ensure!(text.contains(before), "the configuration has no {before}");
    fs::write(&config, text.replace(before, after))?;
    engine.engine.restart().await
}
