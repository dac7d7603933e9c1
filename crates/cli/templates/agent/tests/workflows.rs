//! The agent in memory, with a model that follows a script: its phases, its approval, and a crash at every commit.

use std::time::Duration;

use example_agent::{Action, Report, Task, app};
use stepwell::testing::{Test, effect};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn task() -> Task {
    Task { goal: "invite Grace".into() }
}

/// An agent whose model searches, then wants to send a message, then has enough.
fn scripted() -> Test {
    Test::new(app())
        .mock("plan", |_| Ok("find her address, then write"))
        .mock("decide", |info| {
            // A step's key says how often the step came before.
            Ok(match info.idempotency_key.split(':').nth(1) {
                Some("0") => Action::Search { query: "address of Grace".into() },
                Some("1") => Action::Send { to: "grace@example.org".into(), text: "Come!".into() },
                _ => Action::Finish,
            })
        })
        .mock("search", |_| Ok("grace@example.org"))
        .mock("answer", |_| Ok("done"))
}

fn report(last: &str) -> Report {
    let first = "searched for 'address of Grace': grace@example.org";
    Report { answer: "done".into(), notes: vec![first.into(), last.into()] }
}

#[test]
fn it_sends_once_what_was_approved_whatever_crashes() {
    let sending = scripted().mock("send", |info| {
        effect(info, "sent");
        Ok(())
    });
    let outcome = sending.signal_when_waiting("approval", &true).crash_everywhere("agent", &task());
    assert_eq!(outcome.output::<Report>(), report("sent to grace@example.org: Come!"));
    assert_eq!(outcome.effects().len(), 1);
}

#[test]
fn it_sends_nothing_that_was_refused() {
    let outcome = scripted().signal_when_waiting("approval", &false).crash_everywhere("agent", &task());
    assert_eq!(outcome.output::<Report>(), report("a person refused the message to grace@example.org"));
    assert!(outcome.effects().is_empty());
}

#[test]
fn silence_means_no() {
    let outcome = scripted().run("agent", &task());
    assert_eq!(outcome.output::<Report>(), report("a person refused the message to grace@example.org"));
    assert_eq!(outcome.slept(), DAY * 2);
}

#[test]
fn a_model_that_never_has_enough_is_stopped() {
    let outcome =
        scripted().mock("decide", |_| Ok(Action::Search { query: "more".into() })).run("agent", &task());
    assert_eq!(outcome.output::<Report>().notes.len(), 8);
}
