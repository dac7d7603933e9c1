//! Journals from elsewhere on code that does the same, and on code that does not.

use stepwell::{
    prelude::*,
    testing::{Outcome, Test, replay},
};
use stepwell_protocol::{
    Payload, RunId, Timestamp,
    export::{CutView, Difference, Export, FORMAT, ReplayFacts, ReplayReport},
    rest::{Meter, RunView, Status},
};

#[workflow(name = "order")]
async fn first(ctx: Ctx, item: String) -> Result<String> {
    ctx.step("reserve", async || Ok(())).await?;
    ctx.sleep("sleep", Duration::from_secs(60)).await;
    let chance = ctx.random();
    ctx.step("charge", async || Ok(())).await?;
    Ok(format!("{item} {chance}"))
}

#[workflow(name = "order")]
async fn renamed(ctx: Ctx, item: String) -> Result<String> {
    ctx.step("reserve", async || Ok(())).await?;
    ctx.sleep("sleep", Duration::from_secs(60)).await;
    ctx.step("bill", async || Ok(())).await?;
    Ok(item)
}

#[workflow(name = "order")]
async fn shorter(ctx: Ctx, item: String) -> Result<String> {
    ctx.step("reserve", async || Ok(())).await?;
    Ok(item)
}

#[workflow(name = "order")]
async fn longer(ctx: Ctx, item: String) -> Result<String> {
    ctx.step("reserve", async || Ok(())).await?;
    ctx.sleep("sleep", Duration::from_secs(60)).await;
    ctx.step("charge", async || Ok(())).await?;
    ctx.step::<(), _>("thank", async || panic!("a replay runs no step")).await?;
    Ok(item)
}

/// The run as `stepwell export` would write it. The seed is the one that every test has.
fn exported(outcome: &Outcome) -> Export {
    let id: RunId = format!("default-1-0-1-{}", RunId::suffix_from(7)).parse().expect("an id");
    let output = (outcome.status() == Status::Completed).then(|| outcome.output::<Payload>());
    let run = RunView {
        id,
        workflow: "order".into(),
        status: outcome.status(),
        created_at: Timestamp::from_millis(1_700_000_000_000),
        ended_at: None,
        starts_at: None,
        wakes_at: None,
        waits_for: Vec::new(),
        retrying: Vec::new(),
        output,
        error: None,
        problem: None,
        last_error: None,
        progress: None,
        deadline: None,
        expires_at: None,
        head: outcome.history().last().expect("it has events").seq,
        life: None,
        parent: None,
        callback: None,
        children: 0,
        activations: 2,
        tags: Vec::new(),
        attributes: [].into(),
        started_by: None,
        acts: Vec::new(),
        meter: Meter::default(),
        current_step: None,
        working: Vec::new(),
    };
    let export = Export {
        format: FORMAT,
        run,
        input: Payload::encode("tea").expect("a text"),
        replay: Some(ReplayFacts { seed: "000000000000feed".into(), ..ReplayFacts::default() }),
        events: outcome.history().to_vec(),
    };
    // As a file has it.
    let text = serde_json::to_string(&export).expect("it can be written");
    serde_json::from_str(&text).expect("it can be read")
}

fn on<O>(define: fn() -> stepwell::Workflow<String, O>, export: &Export) -> ReplayReport {
    replay(&App::new().workflow(define), export)
}

fn run() -> Export {
    exported(&Test::new(App::new().workflow(first)).run("order", "tea"))
}

fn differs(seq: Option<u32>, expected: &str, actual: &str) -> Difference {
    let seq = seq.map(stepwell_protocol::Seq);
    Difference { seq, expected: expected.into(), actual: actual.into() }
}

#[test]
fn the_same_code_does_the_same() {
    assert_eq!(on(first, &run()), ReplayReport { events: 3, difference: None, next: Vec::new() });
}

#[workflow(name = "order")]
async fn gives_nothing(ctx: Ctx, _item: String) -> Result<()> {
    ctx.step("reserve", async || Ok(())).await?;
    Ok(())
}

#[test]
fn a_run_that_gave_nothing_does_the_same() {
    let outcome = Test::new(App::new().workflow(gives_nothing)).run("order", "tea");
    let mut export = exported(&outcome);
    assert_eq!(on(gives_nothing, &export), ReplayReport { events: 1, difference: None, next: Vec::new() });
    export.run.output = Some(Payload::encode("something").expect("a text"));
    assert!(on(gives_nothing, &export).difference.is_some());
}

#[test]
fn a_file_whose_numbers_are_at_their_ends_is_replayed() {
    let mut export = run();
    export.run.activations = u32::MAX;
    assert_eq!(on(first, &export).difference, None);
    let last = export.events.last_mut().expect("it has events");
    let op = "step:4294967295:charge".parse().expect("an operation");
    last.event = stepwell_protocol::Event::StepBegun { op };
    let difference = on(first, &export).difference.expect("no code has so many steps");
    assert_eq!(difference.expected, "step 'charge' #4294967296 began");
}

#[test]
fn a_renamed_step_is_found_at_its_place() {
    let report = on(renamed, &run());
    assert_eq!(
        report.difference,
        Some(differs(Some(3), "step 'charge' ended", "the code waits for step 'bill'"))
    );
}

#[test]
fn code_that_returns_too_early_is_found_at_its_place() {
    let report = on(shorter, &run());
    assert_eq!(
        report.difference,
        Some(differs(Some(2), "sleep 'sleep' was over", "the workflow has returned"))
    );
}

#[test]
fn code_that_goes_on_after_the_end_is_found_and_its_step_does_not_run() {
    let export = run();
    let output = export.run.output.as_ref().expect("it returned").text().to_owned();
    let expected = format!("the workflow returned {output}");
    let report = on(longer, &export);
    assert_eq!(report.difference, Some(differs(None, &expected, "the code goes on with step 'thank'")));
}

#[test]
fn another_seed_gives_another_end() {
    let mut export = run();
    export.replay = Some(ReplayFacts { seed: "0000000000000001".into(), ..ReplayFacts::default() });
    assert!(on(first, &export).difference.is_some());
}

#[test]
fn a_run_under_way_says_what_comes_next() {
    let mut export = run();
    export.events.truncate(1);
    export.run.status = Status::Sleeping;
    export.run.output = None;
    let report = on(first, &export);
    assert_eq!(report, ReplayReport { events: 1, difference: None, next: vec!["sleep 'sleep'".into()] });
}

#[test]
fn what_no_longer_counts_is_left_out() {
    let mut export = run();
    let other = renamed_charge(&export);
    let facts = export.replay.as_mut().expect("it has some");
    facts.cuts = vec![CutView { after: other.seq, through: other.seq.next() }];
    export.events.insert(3, stepwell_protocol::Record { seq: other.seq.next(), ..other });
    assert_eq!(on(first, &export).difference, None);
    export.replay.as_mut().expect("it has some").cuts.clear();
    assert!(on(first, &export).difference.is_some(), "the cut made no difference");
}

/// The last event, of a step that the code does not know.
fn renamed_charge(export: &Export) -> stepwell_protocol::Record {
    let mut record = export.events.last().expect("it has events").clone();
    if let stepwell_protocol::Event::StepFinished { op, .. } = &mut record.event {
        op.name = "unknown".into();
    }
    record
}
