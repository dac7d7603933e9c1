//! What programs get: activations, pages, answers, and journals that somebody has exported.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use futures::future::select;
use serde_json::Value;
use stepwell::{
    prelude::*,
    testing::{Outcome, Test, replay},
    vm::{Order, Vm},
};
use stepwell_protocol::{
    Payload, Record, RunId, Seq, Timestamp,
    export::{Export, FORMAT, ReplayFacts, ReplayReport},
    journal::Event,
    manifest::Manifest,
    program::{Activation, Answer, Commit, CutShort, News, Page, is_reserved},
    rest::{Meter, RunView, Status},
};

use crate::{json, text};

/// How often a program is asked what to do next.
const TURNS_MAX: usize = 24;

#[workflow]
async fn order(ctx: Ctx, input: Value) -> Result<Value> {
    ctx.step("reserve", async || Ok(())).await?;
    if ctx.patched("by mail") {
        ctx.step("mail", async || Ok("sent".to_owned())).await?;
    }
    let sleep = pin!(ctx.sleep("sleep", Duration::from_secs(60)));
    let decision = pin!(ctx.wait::<Value>("decision"));
    select(sleep, decision).await;
    ctx.progress(50.0, "half way");
    let (left, right) = futures::join!(
        ctx.step("both", async || Ok(ctx.random())).attempts(2),
        ctx.step("both", async || Err::<(), _>(Error::msg("no luck"))).attempts(1).or_none(),
    );
    let (_, None) = (left?, right) else { return Err(Error::msg("the other one had luck")) };
    ctx.set_attribute("stage", "end");
    ctx.step("charge", async || Ok(())).at_most_once().await?;
    Ok(input)
}

fn app() -> App {
    App::new().workflow(order)
}

/// An activation, and in the next lines the pages and answers that its program gets.
pub fn activation(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut lines = text.lines();
    let Some(activation) = lines.next().and_then(json::read_back::<Activation>) else { return };
    let mut now = activation.now;
    let mut vm = Vm::new(&app(), activation);
    for _ in 0..TURNS_MAX {
        match vm.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Order::Page(after)) => {
                // It may read a signal again that it had no room for.
                assert!(after <= vm.known());
                if !vm.page(lines.next().and_then(json::read_back::<Page>).unwrap_or_default()) {
                    return;
                }
            }
            Poll::Ready(Order::Commit(commit)) => {
                assert!(json::read_back::<Commit>(&json::write(&commit)).is_some());
                assert!(commit.base <= vm.known());
                let answer = lines.next().and_then(json::read_back::<Answer>);
                now = now.plus_millis(1);
                let answer = answer.unwrap_or_else(|| recorded(now, &commit));
                if !vm.answered(answer) {
                    return;
                }
            }
            Poll::Pending => {
                let Some(answer) = lines.next().and_then(json::read_back::<Answer>) else { return };
                if !vm.heard(answer) {
                    return;
                }
            }
        }
    }
}

/// The answer of an engine that has recorded all of it. A program that has come to the end of all positions gets none.
fn recorded(now: Timestamp, commit: &Commit) -> Answer {
    let is_over =
        u32::try_from(commit.told()).ok().and_then(|told| commit.base.0.checked_add(told + 1)).is_none();
    if is_over { Answer::Stop } else { Answer::from_short(now, commit.base, commit.told()) }
}

/// What an engine answers, and what that is in short.
pub fn answer(data: &[u8]) {
    let Some(text) = text(data) else { return };
    json::check::<Page>(text);
    json::check::<CutShort>(text);
    let Some(answer) = json::read_back::<Answer>(text) else { return };
    let Answer::Go { news, now, .. } = &answer else {
        assert_eq!(answer.in_short(Seq(0), 0), None);
        return;
    };
    let first = news.first().map_or(1, |news| match news {
        News::Yours { seq, .. } | News::Record(Record { seq, .. }) => seq.0,
        News::More => 1,
    });
    let base = Seq(first.saturating_sub(1).min(u32::MAX / 2));
    let all_mine = news.iter().all(|news| matches!(news, News::Yours { .. }));
    let whole = Answer::from_short(*now, base, news.len());
    let short = answer.in_short(base, news.len());
    assert_eq!(short.is_some(), whole == answer);
    assert!(short.is_none() || all_mine, "news from outside was left out");
    assert_eq!(answer.in_short(base, news.len() + 1), None, "a command was left out");
}

/// What an app says about itself.
pub fn description(data: &[u8]) {
    let Some(text) = text(data) else { return };
    assert_eq!(is_reserved(text), text.starts_with("stepwell."));
    let Some(manifest) = json::read_back::<Manifest>(text) else { return };
    let sealed = manifest.clone().sealed();
    assert_eq!(json::read_back::<Manifest>(&json::write(&sealed)).map(Manifest::sealed), Some(sealed));
    for workflow in manifest.workflows {
        assert_eq!(json::read_back(&json::write(&workflow)), Some(workflow));
    }
}

/// An exported run, replayed on code that it may or may not fit. What is none is given to a workflow instead, whose run
/// is exported: it replays as the same.
pub fn export(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(export) = json::read_back::<Export>(text) {
        let report = replay(&app(), &export);
        assert_eq!(report.events, export.counted().count());
        assert_eq!(replay(&app(), &export), report, "a replay differs from itself");
        assert_eq!(json::read_back::<ReplayReport>(&json::write(&report)), Some(report));
        return;
    }
    let Ok(input) = serde_json::from_str::<Value>(text) else { return };
    let scenario = Test::new(app()).signal_after(Duration::from_secs(data.len() as u64), "decision", &input);
    let exported = json::write(&exported(&input, &scenario.run("order", &input)));
    let report = replay(&app(), &json::read_back(&exported).expect("it was written"));
    assert_eq!(report.difference, None, "{exported}");
}

/// The run as `stepwell export` would write it. The seed is the one that every test has.
fn exported(input: &Value, outcome: &Outcome) -> Export {
    assert_eq!(outcome.status(), Status::Completed);
    let events = outcome.history().to_vec();
    assert!(events.iter().any(|record| matches!(record.event, Event::StepFinished { .. })));
    let run = RunView {
        id: format!("default-1-0-1-{}", RunId::suffix_from(7)).parse().expect("an id"),
        workflow: "order".into(),
        status: outcome.status(),
        created_at: Timestamp::from_millis(1_700_000_000_000),
        ended_at: None,
        starts_at: None,
        wakes_at: None,
        waits_for: Vec::new(),
        retrying: Vec::new(),
        output: Some(outcome.output::<Payload>()),
        error: None,
        problem: None,
        last_error: None,
        progress: None,
        deadline: None,
        expires_at: None,
        head: events.last().expect("it has events").seq,
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
    let replay = ReplayFacts {
        seed: "000000000000feed".into(),
        patches: vec!["by mail".into()],
        ..ReplayFacts::default()
    };
    Export {
        format: FORMAT,
        run,
        input: Payload::encode(input).expect("it is JSON"),
        replay: Some(replay),
        events,
    }
}
