//! Streams on the real workerd: what a run tells, to whoever follows it.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use stepwell_workerd_tests::{
    TestResult,
    engine::{Build, Engine, Form},
    following::{Follower, Seen, Way},
    miniflare::{Miniflare, Setup},
};

/// The texts of the log lines and chunks among events, in order.
fn told(events: &[Seen]) -> Vec<String> {
    let text = |event: &Seen| match event.kind.as_str() {
        "log" => event.data["message"].as_str().map(str::to_owned),
        "chunk" => event.data["value"].as_str().map(str::to_owned),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// What a run of the journal is among events.
fn records(events: &[Seen]) -> Vec<Value> {
    let kinds = ["step", "timer", "signal"];
    events
        .iter()
        .filter(|event| kinds.contains(&event.kind.as_str()))
        .map(|event| event.data.clone())
        .collect()
}

fn path(run: &str) -> String {
    format!("/api/executions/{run}/stream")
}

#[tokio::test]
async fn a_run_is_followed_from_its_beginning_to_its_end() -> TestResult {
    for (form, way) in
        [(Form::AllInOne, Way::Events), (Form::AllInOne, Way::Socket), (Form::Split, Way::Socket)]
    {
        let engine = Engine::start(form, 2).await?;
        let (client, http) = (engine.client(), engine.engine.http());
        let run = client.start_id("chatty", json!([3, 4, 50])).await?;
        let mut follower = Follower::open(&http, &path(&run), way, None).await?;
        let events = follower.rest().await?;
        let wanted: Vec<_> = (0..3)
            .flat_map(|n| {
                let chunks = (0..4).map(move |chunk| format!("{n}-{chunk}"));
                [format!("before {n}"), format!("within {n}")].into_iter().chain(chunks)
            })
            .chain(["done".into()])
            .collect();
        assert!(told(&events) == wanted, "{way:?}: {:?}", told(&events));
        assert!(records(&events) == client.history(&run).await?, "{way:?}: {events:#?}");
        let last = events.last().context("it has an end")?;
        assert!(last.kind == "end" && last.data["output"] == 3, "{last:?}");
        assert!(last.data == client.show(&run, 0).await?.json()?, "{last:?}");
        let progress: Vec<_> = events.iter().filter(|event| event.kind == "progress").collect();
        let last = progress.last().context("it made progress")?;
        assert!(
            last.data["percent"] == 100.0 && last.data["units"] == json!({"done": 3, "total": 3}),
            "{last:?}"
        );
        // What was overtaken before anybody could see it is left out; the last one is not.
        let statuses = events.iter().filter(|event| event.kind == "status");
        let statuses: Vec<_> = statuses.map(|event| &event.data["status"]).collect();
        assert!(
            statuses.first() != statuses.last() && **statuses.last().context("it has one")? == "completed"
        );
        if way == Way::Socket {
            assert!(follower.closed() == Some((1000, "completed".into())), "{:?}", follower.closed());
        }
        // Whoever comes late sees the same.
        let late = Follower::open(&http, &path(&run), way, None).await?.rest().await?;
        assert!(told(&late) == wanted && records(&late) == records(&events), "{late:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_step_under_way_is_shown_soon_to_whoever_follows() -> TestResult {
    for form in [Form::AllInOne, Form::Split] {
        let engine = Engine::start(form, 2).await?;
        let (client, http) = (engine.client(), engine.engine.http());
        let run = client.start_id("chatty", json!([3, 2, 900])).await?;
        let path = format!("{}?types=working,step", path(&run));
        let events = Follower::open(&http, &path, Way::Socket, None).await?.rest().await?;
        // The first step may have begun before anybody followed.
        for op in ["step:1:talk", "step:2:talk"] {
            let shown = |event: &&Seen| event.kind == "working" && event.data["steps"][0]["op"] == op;
            let times: Vec<_> = events.iter().filter(shown).collect();
            let [working] = times.as_slice() else { panic!("{op} in {form:?}: {events:#?}") };
            let step = &working.data["steps"][0];
            let waited = working.came_at - step["since"].as_u64().context("it has begun")?;
            assert!((400..1_700).contains(&waited), "{op} in {form:?} is shown after {waited} ms");
            assert_eq!(step["attempt"], 1);
        }
        let ended = client.show(&run, 0).await?.json()?;
        assert!(ended["working"].is_null() && ended["current_step"].is_null(), "{ended}");
    }
    Ok(())
}

#[tokio::test]
async fn whoever_comes_back_with_any_cursor_goes_on_after_it() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let run = client.start_id("chatty", json!([4, 2, 5])).await?;
    client.until(&run, "completed").await?;
    let whole = Follower::open(&http, &path(&run), Way::Socket, None).await?.rest().await?;
    for (index, event) in whole.iter().enumerate() {
        let way = Way::ALL[index % 2];
        let rest = Follower::open(&http, &path(&run), way, Some(&event.id)).await?.rest().await?;
        let of = |events: &[Seen]| {
            events.iter().map(|event| (event.id.clone(), event.data.clone())).collect::<Vec<_>>()
        };
        // The end is shown to everybody.
        let wanted = if index + 1 == whole.len() { &whole[index..] } else { &whole[index + 1..] };
        assert!(of(&rest) == of(wanted), "after {index}: {rest:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn filters_leave_out_what_nobody_wants() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let run = client.start_id("chatty", json!([2, 2, 5])).await?;
    for way in Way::ALL {
        let path = format!("{}?types=step,log", path(&run));
        let events = Follower::open(&http, &path, way, None).await?.rest().await?;
        let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
        assert!(kinds.iter().all(|kind| ["step", "log", "end"].contains(kind)), "{kinds:?}");
        assert!(kinds.iter().filter(|kind| **kind == "step").count() == 2, "{kinds:?}");
        assert!(kinds.iter().filter(|kind| **kind == "log").count() == 5, "{kinds:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_both_ways() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let run = client.start_id("wait", json!(60_000)).await?;
    let gone = format!("{}x", &run[..run.len() - 1]);
    let bad = [
        (format!("{}?types=steps", path(&run)), "400"),
        (format!("{}?cursor=nonsense", path(&run)), "400"),
        (format!("{}?unknown=1", path(&run)), "400"),
        (path(&gone), "404"),
        (path("nothing"), "404"),
        ("/api/stream?cursor=1.2.3".into(), "400"),
        ("/api/stream?types=step".into(), "400"),
    ];
    for (path, status) in bad {
        for way in Way::ALL {
            let Err(error) = Follower::open(&http, &path, way, None).await else {
                panic!("{path} was opened");
            };
            assert!(error.to_string().starts_with(&format!("status {status}")), "{path}: {error}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn one_that_waits_is_told_when_it_goes_on() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let run = client.start_id("wait", json!(60_000)).await?;
    client.until(&run, "waiting").await?;
    let mut followers = Vec::new();
    for way in [Way::Events, Way::Socket, Way::Socket] {
        let mut follower = Follower::open(&http, &path(&run), way, None).await?;
        let first = follower.next().await?.context("its status")?;
        assert!(first.data["status"] == "waiting", "{first:?}");
        followers.push(follower);
    }
    followers[1].say("ping").await?;
    assert!(followers[1].next_text().await? == "pong");
    let name = client.show(&run, 0).await?.json()?["waits_for"][0].as_str().context("a signal")?.to_owned();
    client.signal(&run, &name, &json!("on"), None).await?;
    for mut follower in followers {
        let rest = follower.rest().await?;
        assert!(rest.iter().any(|event| event.kind == "signal"), "{rest:#?}");
        assert!(rest.last().is_some_and(|event| event.kind == "end"), "{rest:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn all_runs_are_followed_over_all_cells() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 4).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    for way in Way::ALL {
        let before = client.start_id("ten", json!(null)).await?;
        client.until(&before, "completed").await?;
        let mut follower = Follower::open(&http, "/api/stream", way, None).await?;
        let ready = follower.next().await?.context("it is ready")?;
        assert!(ready.kind == "ready", "{ready:?}");
        let mut runs = Vec::new();
        for _ in 0..8 {
            runs.push(client.start_id("ten", json!(null)).await?);
        }
        let (mut seen, mut ended) = (Vec::new(), 0);
        while ended < runs.len() {
            let event = follower.next().await?.context("it goes on")?;
            assert!(event.kind == "status", "{event:?}");
            ended += usize::from(event.data["status"] == "completed");
            seen.push(event);
        }
        assert!(seen.iter().all(|event| event.data["id"] != before.as_str()), "{before} was over before");
        // Coming back with the first cursor, each run is seen again; with the last one, nothing is.
        let mut again = Follower::open(&http, "/api/stream", way, Some(&ready.id)).await?;
        let mut ends = Vec::new();
        while ends.len() < runs.len() {
            let event = again.next().await?.context("it goes on")?;
            if event.data["status"] == "completed" {
                ends.push(event.data["id"].as_str().context("an id")?.to_owned());
            }
        }
        ends.sort_unstable();
        runs.sort_unstable();
        assert!(ends == runs, "{ends:?} {runs:?}");
        let last = seen.last().context("there were some")?;
        let mut nothing = Follower::open(&http, "/api/stream", way, Some(&last.id)).await?;
        assert!(nothing.next().await?.context("it is ready")?.kind == "ready");
        let more = nothing.next_within(Duration::from_millis(300)).await?;
        assert!(more.is_none(), "{more:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_of_all_runs_shows_only_what_was_asked_for() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 3).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let mut wanted = Vec::new();
    for way in Way::ALL {
        let path = "/api/stream?workflow=ten&status=completed";
        let mut follower = Follower::open(&http, path, way, None).await?;
        assert_eq!(follower.next().await?.context("it is ready")?.kind, "ready");
        let mut seen = Vec::new();
        for _ in 0..3 {
            client.start("fail", &json!("terminal"), None, 10).await?;
            let run = client.start("ten", &json!(null), None, 10).await?.json()?;
            let event = follower.next().await?.context("it goes on")?;
            assert_eq!((&event.data["id"], &event.data["status"]), (&run["id"], &json!("completed")));
            seen.push(run["id"].clone());
        }
        wanted.append(&mut seen);
        let mut again = Follower::open(&http, path, way, Some("start")).await?;
        let mut ends = Vec::new();
        while ends.len() < wanted.len() {
            let event = again.next().await?.context("it goes on")?;
            if event.kind == "status" {
                ends.push(event.data["id"].clone());
            }
        }
        assert!(wanted.iter().all(|id| ends.contains(id)), "{ends:?} {wanted:?}");
    }
    let long = format!("workflow={}", "w".repeat(300));
    for query in ["status=done", "types=step", "status=running&colour=red", &long] {
        let answer = client.request("GET", &format!("/api/stream?{query}"), "").await?;
        assert_eq!(answer.problem()?, (400, "invalid_request".into()), "{query}");
    }
    Ok(())
}

#[tokio::test]
async fn a_run_that_tells_something_pays_one_row_and_one_that_does_not_pays_none() -> TestResult {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let client = engine.client();
    let first = client.start_id("ten", json!(null)).await?;
    client.until(&first, "completed").await?;
    let written = || async {
        let answer = client.show(&first, 0).await?;
        let header = answer.headers.get("stepwell-rows-written").context("it is metered")?;
        anyhow::Ok(header.to_str()?.parse::<u64>()?)
    };
    let before = written().await?;
    let quiet = client.start("ten", &json!(null), None, 15).await?.json()?;
    assert!(quiet["status"] == "completed", "{quiet}");
    let rows = written().await? - before;
    assert!(rows <= 16, "{rows} rows");
    // Three hundred milliseconds of talk and no sleep that ends it: the batch is stored once, with the end.
    let run = client.start("chatty", &json!([1, 3, 5]), None, 15).await?.json()?;
    let rows = run["meter"]["rows_written"].as_u64().context("it has a meter")?;
    // Start 2, step 1, progress 1, suspension 2, timer 1 and activation 2, end 1 or 2; and what it said: one row before
    // each last word of its program.
    assert!(rows <= 14, "{run}");
    Ok(())
}

#[tokio::test]
async fn a_reader_that_does_not_follow_gets_no_more_than_its_window() -> TestResult {
    let engine = Engine::start(Form::AllInOne, 1).await?;
    let (client, http) = (engine.client(), engine.engine.http());
    let run = client.start_id("many", json!([30, 100_000])).await?;
    client.until(&run, "completed").await?;
    let mut slow = Follower::open(&http, &path(&run), Way::Socket, None).await?;
    let mut bytes = 0;
    loop {
        let text = slow.next_text().await?;
        if text.contains(r#""type":"ack""#) {
            break;
        }
        bytes += text.len();
    }
    assert!((500_000..700_000).contains(&bytes), "{bytes} bytes came before it was asked");
    let more = slow.next_within(Duration::from_millis(500)).await?;
    assert!(more.is_none(), "{more:?}");
    slow.say("go on").await?;
    let rest = slow.rest().await?;
    assert!(records(&rest).len() < 30 && rest.last().is_some_and(|event| event.kind == "end"));
    // The Worker asks for more as its client reads.
    let events = Follower::open(&http, &path(&run), Way::Events, None).await?.rest().await?;
    assert_eq!(records(&events), client.history(&run).await?);
    Ok(())
}

#[tokio::test]
async fn what_a_run_has_told_is_deleted_with_it() -> TestResult {
    let engine = Engine::start_metered(Form::AllInOne, 1).await?;
    let client = engine.client();
    let kept = client.start_id("wait", json!(60_000)).await?;
    let written = || async {
        let answer = client.show(&kept, 0).await?;
        anyhow::Ok(answer.headers["stepwell-rows-written"].to_str()?.parse::<u64>()?)
    };
    // One row of what it says before each of its sleeps, and one at its end.
    let run = client.start("soon_gone_chatty", &json!([20, 0, 0]), None, 15).await?.json()?;
    let before = written().await?;
    let id = run["id"].as_str().context("an id")?;
    let began = std::time::Instant::now();
    while client.show(id, 0).await?.status != 404 {
        assert!(began.elapsed() < Duration::from_secs(20), "{id} is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let deleted = written().await? - before;
    // 40 events, 21 rows of what it said, its own; and what the alarms write.
    assert!((62..=66).contains(&deleted), "{deleted} rows");
    Ok(())
}

#[tokio::test]
async fn a_program_behind_a_queue_publishes_too() -> TestResult {
    let setup = Setup { form: Form::AllInOne, build: Build::Abort, cells: 1, window: 12 };
    let miniflare = Miniflare::start(setup).await?;
    let client = miniflare.client();
    let run = client.start_id("chatty_queued", json!([2, 20, 100])).await?;
    let mut follower = Follower::open(client.http(), &path(&run), Way::Events, None).await?;
    let events = follower.rest().await?;
    let chunks = told(&events).into_iter().filter(|text| text.contains('-')).count();
    assert_eq!(chunks, 40, "{:?}", told(&events));
    // Those of a step that takes two seconds come while it is under way.
    let step = events.iter().position(|event| event.kind == "step").context("it has steps")?;
    assert!(events[..step].iter().filter(|event| event.kind == "chunk").count() > 5, "{events:#?}");
    assert_eq!(records(&events), client.history(&run).await?);
    Ok(())
}

#[tokio::test]
async fn an_idle_socket_lets_its_cell_sleep() -> TestResult {
    stepwell_workerd_tests::streams::asleep().await?;
    Ok(())
}
