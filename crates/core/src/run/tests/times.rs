//! How long things took, and what went wrong last.

use stepwell_protocol::rest::{LastError, RunView};

use super::*;

#[test]
fn a_fired_timer_says_since_when_the_run_slept() {
    let mut bench = Bench::running();
    let began = bench.now;
    bench.commit(vec![], Then::Continue { open: Some(vec![sleep(0, 100)]) }).expect("in turn");
    bench.pass(40);
    bench.commit(vec![succeeded("a")], go_on()).expect("in turn");
    bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 100), sleep(1, 60)] }).expect("in turn");
    bench.crash();
    bench.pass(60);
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
    assert!(matches!(bench.events()[1..], [
        Event::TimerFired { since: Some(first), .. },
        Event::TimerFired { since: Some(second), .. },
    ] if *first == began && *second == began.plus_millis(40)));
}

#[test]
fn a_signal_says_since_when_the_run_waited_for_it() {
    let mut bench = Bench::running();
    bench.signal("early", None).expect("it is not over");
    bench.pass(10);
    let began = bench.now;
    // The program has to see the early one before it sleeps.
    let open = vec![wait("late", 0, None)];
    bench.commit(vec![], Then::Suspend { open }).expect("in turn");
    bench.pass(500);
    bench.signal("late", Some(SLOT)).expect("it waits for it");
    assert!(matches!(bench.events()[..], [
        Event::SignalReceived { since: None, .. },
        Event::SignalReceived { since: Some(since), .. },
    ] if *since == began));
}

#[test]
fn an_attempt_takes_its_time_into_the_journal() {
    let mut bench = Bench::running();
    let took = |command: Command, ms| match command {
        Command::StepSucceeded { op, attempt, output, .. } => {
            Command::StepSucceeded { op, attempt, output, took_ms: Some(ms) }
        }
        Command::StepFailed { op, attempt, failure, retry, retry_after_ms, .. } => {
            Command::StepFailed { op, attempt, failure, retry, retry_after_ms, took_ms: Some(ms) }
        }
        other @ (Command::StepBegun { .. }
        | Command::ChildInvoked { .. }
        | Command::Emitted { .. }
        | Command::JobSent { .. }) => other,
    };
    let fails = |attempt| failed("a", attempt, Failure::new("no"), &Retry::default());
    let commands = vec![took(fails(1), 5), took(fails(3), 6), took(succeeded("b"), 7)];
    bench.commit(commands, go_on()).expect("in turn");
    assert!(matches!(
        bench.events()[..],
        [
            Event::StepRetrying { took_ms: Some(5), .. },
            Event::StepFinished { took_ms: Some(6), .. },
            Event::StepFinished { took_ms: Some(7), .. },
        ]
    ));
}

#[test]
fn a_run_shows_its_last_error_with_its_time_and_how_many_there_were() {
    let mut bench = Bench::running();
    assert_eq!(RunView::from(&bench.run).last_error, None);
    for attempt in 1..=2 {
        bench.pass(10);
        let long = Failure { code: Some(Code::StepTimedOut), ..Failure::new("é".repeat(1_000)) };
        bench.commit(vec![failed("a", attempt, long, &Retry::default())], go_on()).expect("in turn");
    }
    let failed_at = bench.now;
    bench.commit(vec![], Then::Suspend { open: vec![sleep(0, 100)] }).expect("in turn");
    bench.crash();
    let expected = LastError {
        step: "a".into(),
        attempt: 2,
        message: "é".repeat(256),
        code: Some(Code::StepTimedOut),
        at: failed_at,
        count: 2,
    };
    assert_eq!(RunView::from(&bench.run).last_error, Some(expected));
}
