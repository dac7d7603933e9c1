//! The storage under a cell is not what it was: alarms are gone, an older copy is back. And what a cell leaves open
//! when it has nothing to do: nothing.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult, Workerd,
    engine::{Client, Engine, Form},
    sqlite::{cells, databases, lose_alarms, sql},
};
use tokio::time::sleep;

const FORMS: [Form; 2] = [Form::AllInOne, Form::Split];

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        fs::copy(&path, to.join(path.file_name().context("a file has a name")?))?;
    }
    Ok(())
}

fn restore(from: &Path, to: &Path) -> Result<()> {
    fs::remove_dir_all(to)?;
    copy(from, to)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds().await? {
        ensure!(began.elapsed() < Duration::from_secs(40), "{what}: not within 40 s");
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
async fn lost_alarms_are_armed_again_at_the_next_request() -> TestResult {
    for form in FORMS {
        let mut engine = Engine::start(form, 1).await?;
        let client = engine.client();
        let naps = [client.start_id("nap", json!(4_000)).await?, client.start_id("nap", json!(5_000)).await?];
        for nap in &naps {
            client.until(nap, "sleeping").await?;
        }
        engine.engine.kill();
        lose_alarms(&engine.engine)?;
        engine.engine.restart().await?;
        // One request for one of them is enough for all.
        client.show(&naps[1], 0).await?.json()?;
        for nap in &naps {
            assert_eq!(client.show(nap, 15).await?.json()?["output"], "awake", "{}", form.name());
        }
    }
    Ok(())
}

#[tokio::test]
async fn lost_alarms_of_cells_that_nobody_asks_are_armed_again_by_the_sweep() -> TestResult {
    for form in FORMS {
        let mut engine = Engine::start_with_clock(form, 4).await?;
        let client = engine.client();
        let mut naps = Vec::new();
        for _ in 0..8 {
            naps.push(client.start_id("nap", json!(5_000)).await?);
        }
        let mut last = 0;
        for nap in &naps {
            last = last.max(client.until(nap, "sleeping").await?["wakes_at"].as_u64().unwrap_or_default());
        }
        engine.engine.kill();
        lose_alarms(&engine.engine)?;
        engine.engine.restart().await?;
        let due = UNIX_EPOCH + Duration::from_millis(last + 500);
        sleep(due.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let quiet = journals(&engine.engine)?;
        assert_eq!(quiet, 0, "{}: nobody woke them", form.name());
        engine.strike().await?;
        until("all wake", async || Ok(journals(&engine.engine)? == naps.len())).await?;
        for nap in &naps {
            assert_eq!(client.show(nap, 10).await?.json()?["output"], "awake", "{}", form.name());
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_sweep_finds_nothing_where_nothing_is_lost_and_says_so() -> TestResult {
    let variables = [("STEPWELL_CELLS", "2"), ("STEPWELL_LOG", "info")];
    let mut engine = Engine::start_with_clock_and(Form::AllInOne, &variables).await?;
    let client = engine.client();
    for _ in 0..8 {
        let nap = client.start_id("nap", json!(60_000)).await?;
        client.until(&nap, "sleeping").await?;
    }
    engine.engine.kill();
    engine.engine.restart().await?;
    engine.strike().await?;
    // Two cells and a catalog.
    until("it says so", async || Ok(engine.engine.log().contains("touched 3 objects, of which 0 did not")))
        .await?;
    assert!(!engine.engine.log().contains("was missing"), "{}", engine.engine.log());
    Ok(())
}

#[tokio::test]
async fn the_sweep_writes_nothing_into_empty_cells() -> TestResult {
    let engine = Engine::start_with_clock(Form::AllInOne, 3).await?;
    engine.strike().await?;
    for path in databases(&engine.engine)? {
        let tables = sql(&path, "SELECT count(*) FROM sqlite_master WHERE name = 'runs'")?;
        assert_eq!(tables, "0", "{}", path.display());
    }
    Ok(())
}

/// How many events all runs of all cells have, without asking the engine.
fn journals(workerd: &Workerd) -> Result<usize> {
    let mut events = 0;
    for path in databases(workerd)? {
        if sql(&path, "SELECT count(*) FROM sqlite_master WHERE name = 'journal'")? == "1" {
            events += sql(&path, "SELECT count(*) FROM journal")?.parse::<usize>()?;
        }
    }
    Ok(events)
}

#[tokio::test]
async fn an_older_copy_of_a_cell_goes_on_from_there() -> TestResult {
    for form in FORMS {
        let mut engine = Engine::start(form, 1).await?;
        let client = engine.client();
        let copies = tempfile::tempdir()?;
        let before = client.start_id("twice", json!(600_000)).await?;
        let asleep = client.start_id("nap", json!(4_000)).await?;
        client.until(&before, "waiting").await?;
        client.until(&asleep, "sleeping").await?;
        engine.engine.kill();
        copy(&cells(&engine.engine), copies.path())?;

        // It goes on: one run hears a signal and works, another is new.
        engine.engine.restart().await?;
        client.signal(&before, "go", &json!(1), None).await?.json()?;
        let after = client.start_id("nap", json!(10)).await?;
        let working = client.start_id("race", json!(600_000)).await?;
        client.until(&after, "completed").await?;
        client.until(&working, "running").await?;
        engine.engine.kill();
        restore(copies.path(), &cells(&engine.engine))?;
        engine.engine.restart().await?;

        // What was there then goes on from there.
        assert_eq!(client.show(&before, 0).await?.json()?["status"], "waiting", "{}", form.name());
        assert_eq!(client.show(&asleep, 15).await?.json()?["output"], "awake", "{}", form.name());
        for value in [5, 6] {
            client.signal(&before, "go", &json!(value), None).await?.json()?;
        }
        assert_eq!(client.show(&before, 15).await?.json()?["output"], json!([5, 6]), "{}", form.name());
        // What came later was never there, and its id is never given out again.
        assert_eq!(number(&after), 3);
        for gone in [&after, &working] {
            assert_eq!(client.show(gone, 0).await?.status, 404, "{}", form.name());
        }
        let fresh = client.start_id("nap", json!(10)).await?;
        assert_eq!(number(&fresh), 3, "the number is the same");
        assert_ne!(fresh, after, "the id is not");
        assert_eq!(client.show(&fresh, 10).await?.json()?["output"], "awake");
        assert_eq!(client.show(&after, 0).await?.status, 404);
    }
    Ok(())
}

/// The number in a run's id.
fn number(id: &str) -> u64 {
    id.split('-').nth(3).and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn a_program_from_the_future_of_an_older_copy_is_refused() -> TestResult {
    let mut engine = Engine::start(Form::Split, 1).await?;
    let client = engine.client();
    let copies = tempfile::tempdir()?;
    let run = client.start_id("twice", json!(600_000)).await?;
    client.until(&run, "waiting").await?;
    engine.engine.kill();
    copy(&cells(&engine.engine), copies.path())?;
    engine.engine.restart().await?;
    // A second activation begins, and its program stands still in the middle of a step's wait.
    let app = engine.app.as_ref().expect("the split form has an app");
    app.pause()?;
    client.signal(&run, "go", &json!(1), None).await?.json()?;
    until("it is called", async || Ok(client.show(&run, 0).await?.json()?["activations"] == 2)).await?;
    engine.engine.kill();
    restore(copies.path(), &cells(&engine.engine))?;
    engine.engine.restart().await?;
    assert_eq!(client.show(&run, 0).await?.json()?["activations"], 1, "the copy knows of one activation");
    engine.app.as_ref().expect("the split form has an app").resume()?;
    sleep(Duration::from_millis(500)).await;
    // Whatever that program had to say, nobody heard it.
    let view = client.show(&run, 0).await?.json()?;
    assert_eq!((&view["status"], &view["head"]), (&json!("waiting"), &json!(0)), "{view}");
    for value in [5, 6] {
        client.signal(&run, "go", &json!(value), None).await?.json()?;
    }
    assert_eq!(client.show(&run, 15).await?.json()?["output"], json!([5, 6]));
    Ok(())
}

async fn why(client: &Client, run: &str) -> Result<Value> {
    client.get(&format!("/api/executions/{run}/why")).await?.json()
}

#[tokio::test]
async fn a_year_long_sleep_leaves_no_open_work() -> TestResult {
    const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
    for form in FORMS {
        let engine = Engine::start_metered(form, 1).await?;
        let client = engine.client();
        let run = client.start_id("nap", json!(YEAR_MS)).await?;
        let view = client.until(&run, "sleeping").await?;
        let wakes_at = view["wakes_at"].as_u64().unwrap_or_default();
        assert_eq!(why(&client, &run).await?["next_wake"], wakes_at, "{}", form.name());

        let database = databases(&engine.engine)?.pop().context("the cell has a database")?;
        let open = database.with_extension("sqlite-wal");
        assert!(open.exists(), "{}: the database is not open", form.name());

        // The dead man's switch of its one activation is over; what is left is the alarm in a year.
        let metadata = cells(&engine.engine).join("metadata.sqlite");
        until("the alarm is in a year", async || {
            let due = sql(&metadata, "SELECT min(scheduled_time) FROM _cf_ALARM")?;
            Ok(due.parse::<u64>()? / 1_000_000 == wakes_at)
        })
        .await?;
        assert_eq!(sql(&database, "SELECT count(*) FROM runs WHERE wake_at < 4000000000000")?, "1");

        // Nothing keeps the object in memory: it is evicted, which closes its database, and its rows stay as they are.
        let rows = || {
            let alarm = sql(&metadata, "SELECT * FROM _cf_ALARM")?;
            Ok::<_, anyhow::Error>((
                alarm,
                sql(&database, "SELECT * FROM runs")?,
                sql(&database, "SELECT * FROM journal")?,
            ))
        };
        let before = rows()?;
        until("it is evicted", async || Ok(!open.exists())).await?;
        assert_eq!(rows()?, before, "{}: something was written", form.name());
        // An instance counts the rows that it has written since it was loaded: this one is new, and has armed once.
        let answer = client.show(&run, 0).await?;
        let rows: u64 = answer.headers["stepwell-rows-written"].to_str()?.parse()?;
        assert!(rows <= 1, "{}: the instance was not evicted: {rows} rows", form.name());
        assert_eq!(answer.json()?["status"], "sleeping");
    }
    Ok(())
}
