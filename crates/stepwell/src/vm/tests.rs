//! The VM by itself, message by message. Whole workflows on the real run machine are in `tests/replay`.

mod children;
mod inbox;
mod links;

use std::{
    cell::Cell,
    future::{pending, poll_fn},
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::Wake,
    time::Duration,
};

use futures::future::{Either, select};
use stepwell_protocol::{
    Event, Failure, Op, OpKind, Outcome, PROTOCOL, Timestamp, program::Page, stream::Item,
};

use super::*;
use crate::{Error, app::Workflow as Definition};

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A VM, and whoever drives it.
struct Bench {
    vm: Vm,
    wakes: Arc<Wakes>,
    waker: Waker,
}

impl Bench {
    fn new(define: fn() -> Definition<()>, events: Vec<Event>) -> Self {
        Self::with_page(define, events, false)
    }

    /// One that has to ask for the rest of its journal, whether there is any or not.
    fn with_page(define: fn() -> Definition<()>, events: Vec<Event>, more: bool) -> Self {
        let app = App::new().workflow(define);
        let activation = Activation {
            protocol: PROTOCOL,
            run: "default-1-0-1-000000000000".parse().expect("it is an id"),
            workflow: "w".into(),
            epoch: Epoch(3),
            seed: "00000000000000ff".into(),
            now: at(0),
            started_at: at(0),
            life: None,
            input: Payload::null(),
            tokens: Some(Box::default()),
            budget: None,
            let_in: None,
            trace: None,
            followed: false,
            patches: vec![],
            attributes: [].into(),
            journal: Page { events: records(events, 1), more },
            signature: None,
        };
        let wakes = Arc::new(Wakes::default());
        Self { vm: Vm::new(&app, activation), waker: Waker::from(wakes.clone()), wakes }
    }

    fn poll(&mut self) -> Poll<Order> {
        self.vm.poll(&mut Context::from_waker(&self.waker))
    }

    fn commit(&mut self) -> Commit {
        let Poll::Ready(Order::Commit(commit)) = self.poll() else { panic!("it has something to say") };
        commit
    }

    /// How often the driver was woken since this was last asked.
    fn wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::Relaxed)
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + ms)
}

fn records(events: Vec<Event>, first: u32) -> Vec<Record> {
    let records = events.into_iter().zip(first..);
    records.map(|(event, seq)| Record { seq: Seq(seq), at: at(seq.into()), event }).collect()
}

fn signal(n: u32) -> Event {
    Event::SignalReceived {
        name: "s".into(),
        id: None,
        payload: Payload::encode(&n).expect("a number is JSON"),
        by: None,
        since: None,
        to: None,
    }
}

fn fired(occurrence: u32) -> Event {
    Event::TimerFired { op: Op { kind: OpKind::Sleep, name: "sleep".into(), occurrence }, since: None }
}

fn go(events: Vec<Event>, first: u32) -> Answer {
    Answer::go(at(0), records(events, first).into_iter().map(News::Record).collect())
}

fn two_signals() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        let work = ctx.step("work", pending::<Result<()>>);
        let signals = async {
            let first: u32 = ctx.wait("s").await?;
            let second: u32 = ctx.wait("s").await?;
            Ok::<_, Error>((first, second))
        };
        match select(pin!(work), pin!(signals)).await {
            Either::Left(_) => Ok(Payload::null()),
            Either::Right((signals, _)) => Ok(Payload::encode(&signals?)?),
        }
    })
}

#[test]
fn an_event_that_comes_twice_counts_once() {
    let mut bench = Bench::new(two_signals, vec![]);
    assert!(matches!(bench.commit().then, Then::Continue { open: Some(open) } if open.len() == 1));
    // A listener and the answer to a commit bring the same event, in either order.
    assert!(bench.vm.heard(go(vec![signal(1)], 1)));
    assert_eq!(bench.poll(), Poll::Pending, "one commit at a time");
    assert!(bench.vm.answered(go(vec![signal(1)], 1)));
    let commit = bench.commit();
    assert_eq!(commit.base, Seq(1));
    assert!(matches!(&commit.then, Then::Continue { open: Some(open) } if open[0].op().occurrence == 1));
    assert!(bench.vm.answered(go(vec![signal(2)], 2)));
    assert!(matches!(bench.commit().then, Then::Complete { output } if output.text() == "[1,2]"));
}

#[test]
fn what_was_said_while_there_was_news_is_said_again() {
    let mut bench = Bench::new(two_signals, vec![]);
    let first = bench.commit();
    let noise = Event::SignalReceived {
        name: "noise".into(),
        id: None,
        payload: Payload::null(),
        by: None,
        since: None,
        to: None,
    };
    assert!(bench.vm.answered(go(vec![noise], 1)));
    let again = bench.commit();
    assert_eq!((again.base, &again.then), (Seq(1), &first.then));
    assert!(bench.vm.answered(go(vec![], 2)));
    assert_eq!(bench.poll(), Poll::Pending, "once is enough when there is no news");
}

#[test]
fn stop_and_refusal_end_the_activation() {
    for answer in [
        Answer::Stop,
        Answer::Refused { problem: Problem::new(Code::StaleEpoch, "") },
        Answer::Refused { problem: Problem::new(Code::BaseMismatch, "") },
        Answer::Refused { problem: Problem::new(Code::RunEnded, "") },
        Answer::Refused { problem: Problem::new(Code::Internal, "") },
    ] {
        let mut bench = Bench::new(two_signals, vec![]);
        bench.commit();
        assert!(!bench.vm.answered(answer.clone()));
        assert!(!bench.vm.heard(answer));
    }
}

#[test]
fn a_commit_that_is_refused_for_what_it_says_fails_the_run() {
    for code in [Code::InvalidRequest, Code::PayloadTooLarge] {
        let mut bench = Bench::new(two_signals, vec![]);
        bench.commit();
        assert!(bench.vm.answered(Answer::Refused { problem: Problem::new(code, "no") }));
        let commit = bench.commit();
        assert!(commit.commands.is_empty());
        assert!(matches!(commit.then, Then::Fail { failure } if failure.message == "no"));
    }
}

fn sleeps_beside_a_loser() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        let mut slow = pin!(ctx.step("slow", pending::<Result<()>>));
        if let Either::Left(_) = select(slow.as_mut(), ctx.sleep("sleep", Duration::from_secs(1))).await {
            return Ok(Payload::null());
        }
        ctx.sleep("sleep", Duration::from_secs(9)).await;
        slow.await?;
        Ok(Payload::null())
    })
}

#[test]
fn a_step_that_nobody_polls_is_no_reason_to_wake_up() {
    let mut bench = Bench::new(sleeps_beside_a_loser, vec![fired(0)]);
    let commit = bench.commit();
    assert!(matches!(&commit.then, Then::Suspend { open } if open.len() == 1), "{:?}", commit.then);
    bench.wakes();
    for _ in 0..3 {
        assert_eq!(bench.poll(), Poll::Pending);
        assert_eq!(bench.wakes(), 0, "the driver would turn in circles");
    }
    assert!(bench.vm.answered(go(vec![fired(1)], 2)));
    assert_eq!(bench.poll(), Poll::Pending);
    assert!(bench.vm.state.borrow().has_running_step(), "when it is awaited again, it runs");
}

fn one_long_step() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        ctx.step("long", pending::<Result<()>>).await?;
        Ok(Payload::null())
    })
}

#[test]
fn a_step_under_way_does_not_wake_the_driver_by_itself() {
    let mut bench = Bench::new(one_long_step, vec![]);
    assert_eq!(bench.poll(), Poll::Pending);
    bench.wakes();
    for _ in 0..3 {
        assert_eq!(bench.poll(), Poll::Pending);
        assert_eq!(bench.wakes(), 0);
    }
}

thread_local! {
    static POLLS: Cell<usize> = const { Cell::new(0) };
}

fn busy_step_beside_signals() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        let busy = ctx.step("busy", async || {
            poll_fn::<Result<()>, _>(|cx| {
                POLLS.set(POLLS.get() + 1);
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await
        });
        let signals = async {
            loop {
                let _: Result<u32, _> = ctx.wait("s").await;
            }
        };
        futures::join!(busy, signals).0?;
        Ok(Payload::null())
    })
}

#[test]
fn code_that_is_always_busy_is_not_polled_while_events_are_delivered() {
    let mut bench = Bench::new(busy_step_beside_signals, vec![]);
    bench.commit();
    POLLS.set(0);
    assert!(bench.vm.heard(go(vec![signal(1), signal(2), signal(3)], 1)));
    assert_eq!(bench.poll(), Poll::Pending);
    assert!((1..=TURNS_LIVE_MAX).contains(&POLLS.get()), "{} polls", POLLS.get());
    assert!(bench.wakes() > 0, "and then others get their turn");
}

fn failing_step() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        ctx.step("fails", async || Err::<(), _>(Error::msg("no"))).await?;
        Ok(Payload::null())
    })
}

#[test]
fn the_next_attempt_waits_for_the_engines_clock() {
    let mut bench = Bench::new(failing_step, vec![]);
    let op = Op { kind: OpKind::Step, name: "fails".into(), occurrence: 0 };
    let failure = Failure::new("no");
    assert!(matches!(&bench.commit().commands[..], [Command::StepFailed { attempt: 1, .. }]));
    let retrying =
        Event::StepRetrying { op: op.clone(), attempt: 1, failure, retry_at: at(500), took_ms: None };
    assert!(bench.vm.answered(go(vec![retrying], 1)));
    let suspend = bench.commit();
    assert_eq!(suspend.then, Then::Suspend { open: vec![Open::Retry { op, at: at(500) }] });
    assert!(suspend.commands.is_empty());
    assert!(bench.vm.answered(Answer::go(at(499), vec![])));
    assert!(bench.commit().commands.is_empty());
    assert!(bench.vm.answered(Answer::go(at(500), vec![])));
    assert!(matches!(&bench.commit().commands[..], [Command::StepFailed { attempt: 2, .. }]));
}

fn slips_after_a_sleep() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        ctx.sleep("sleep", Duration::from_secs(1)).await;
        panic!("it slipped")
    })
}

fn failure(commit: Commit) -> Failure {
    let Then::Fail { failure } = commit.then else { panic!("it fails: {:?}", commit.then) };
    failure
}

#[test]
fn a_panic_of_the_workflow_fails_the_run_with_what_it_said() {
    let mut bench = Bench::new(slips_after_a_sleep, vec![fired(0)]);
    let failure = failure(bench.commit());
    assert_eq!(failure.code, Some(Code::Panicked));
    assert!(failure.message.starts_with("the code panicked: it slipped"), "{}", failure.message);
}

#[test]
fn the_last_words_of_a_workflow_count_where_they_were_spoken() {
    let words = || LastWords {
        delivered: Seq(1),
        step: None,
        message: "what the one before said".into(),
        published: vec![Item::LeftOut { count: 3 }],
    };
    let mut bench = Bench::new(slips_after_a_sleep, vec![]);
    bench.vm = bench.vm.with_last_words(words());
    assert!(matches!(bench.commit().then, Then::Suspend { .. }), "it was somewhere else");
    let mut bench = Bench::new(slips_after_a_sleep, vec![fired(0)]);
    bench.vm = bench.vm.with_last_words(words());
    let commit = bench.commit();
    assert_eq!(commit.published.items, [Item::LeftOut { count: 3 }], "nothing that it published is lost");
    assert_eq!(failure(commit).message, "the code panicked: what the one before said");
}

#[test]
fn the_last_words_of_a_step_are_its_attempt() {
    let define = || {
        Definition::new("w", |ctx: Ctx, ()| async move {
            ctx.step("a", async || Ok(())).await?;
            Ok(Payload::null())
        })
    };
    let op = Op { kind: OpKind::Step, name: "a".into(), occurrence: 0 };
    for (attempt, fails) in [(1, true), (2, false)] {
        let step = Some((op.clone(), attempt));
        let mut bench = Bench::new(define, vec![]);
        let words = LastWords { delivered: Seq(0), step, message: "no".into(), published: vec![] };
        bench.vm = bench.vm.with_last_words(words);
        let commit = bench.commit();
        let failed = matches!(&commit.commands[..], [Command::StepFailed { attempt: 1, failure, .. }]
            if failure.code == Some(Code::Panicked) && !failure.terminal);
        assert_eq!(failed, fails, "attempt {attempt}: {:?}", commit.commands);
    }
}

#[test]
fn where_a_page_ends_says_nothing_about_where_the_code_has_been() {
    fn patched() -> Definition<()> {
        Definition::new("w", |ctx: Ctx, ()| async move {
            let first = if ctx.patched("first") { "new" } else { "old" };
            ctx.step("a", async || Ok(())).await?;
            let second = if ctx.patched("second") { "new" } else { "old" };
            Ok(Payload::encode(&[first, second])?)
        })
    }
    let finished = Event::StepFinished {
        op: Op { kind: OpKind::Step, name: "a".into(), occurrence: 0 },
        attempt: 1,
        outcome: Outcome::Ok(Payload::null()),
        took_ms: None,
    };
    let done = |mut bench: Bench| {
        assert!(matches!(bench.poll(), Poll::Ready(Order::Page(_))), "it asks for the rest");
        bench.vm.page(Page::default());
        bench.commit()
    };
    let commit = done(Bench::with_page(patched, vec![finished], true));
    assert_eq!(commit.patches, ["second"], "the code was never there: {commit:?}");
    let commit = done(Bench::with_page(patched, vec![], true));
    assert_eq!(commit.patches, ["first"], "the code was nowhere: {commit:?}");
}

/// Two steps, with the time between them.
fn two_steps() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        ctx.step("one", async || Ok(1)).await?;
        let between = ctx.now().as_millis();
        ctx.step("two", async || Ok(2)).await?;
        Ok(Payload::encode(&between)?)
    })
}

fn with_clock(mut bench: Bench, ms: Rc<Cell<u64>>) -> Bench {
    bench.vm = bench.vm.with_clock(Rc::new(move || ms.get()));
    bench
}

#[test]
fn the_last_step_and_the_end_are_one_commit() {
    let ms = Rc::new(Cell::new(70));
    let mut bench = with_clock(Bench::new(two_steps, vec![]), ms.clone());
    ms.set(74);
    let first = bench.commit();
    assert_eq!(first.foresees, Some(at(4)));
    assert_eq!(first.then, Then::Continue { open: None });
    assert!(bench.poll().is_pending(), "the second step waits until the first is on record");
    assert!(bench.vm.answered(Answer::go(at(9), vec![])));
    ms.set(75);
    let second = bench.commit();
    assert_eq!((second.base, second.foresees, second.commands.len()), (Seq(1), Some(at(10)), 1));
    let output = Payload::encode(&at(4).as_millis()).expect("a number is JSON");
    assert_eq!(second.then, Then::Complete { output }, "the time that is on record for the first");
    assert!(!bench.vm.answered(Answer::Stop));
}

#[test]
fn what_is_open_to_something_else_is_not_foreseen() {
    let beside_a_wait: fn() -> Definition<()> = || {
        Definition::new("w", |ctx: Ctx, ()| async move {
            let signal = pin!(ctx.wait::<u32>("s"));
            let step = pin!(ctx.step("one", async || Ok(1)));
            let _ = futures::future::join(step, signal).await;
            Ok(Payload::null())
        })
    };
    let beside_a_step: fn() -> Definition<()> = || {
        Definition::new("w", |ctx: Ctx, ()| async move {
            let other = pin!(ctx.step("other", pending::<Result<()>>));
            let step = pin!(ctx.step("one", async || Ok(1)));
            let _ = futures::future::join(step, other).await;
            Ok(Payload::null())
        })
    };
    for define in [beside_a_wait, beside_a_step] {
        let mut bench = with_clock(Bench::new(define, vec![]), Rc::default());
        let commit = bench.commit();
        assert_eq!((commit.foresees, commit.commands.len()), (None, 1));
    }
}

#[test]
fn a_result_that_is_refused_fails_the_run_from_where_it_was() {
    let mut bench = with_clock(Bench::new(two_steps, vec![]), Rc::default());
    assert_eq!(bench.commit().base, Seq(0));
    let problem = Problem::new(Code::PayloadTooLarge, "It is too large.");
    assert!(bench.vm.answered(Answer::Refused { problem }));
    let last = bench.commit();
    assert_eq!((last.base, last.commands.len()), (Seq(0), 0));
    assert!(matches!(last.then, Then::Fail { .. }));
}

#[test]
fn what_was_foreseen_may_be_recorded_further_on() {
    let mut bench = with_clock(Bench::new(two_steps, vec![]), Rc::default());
    assert_eq!(bench.commit().base, Seq(0));
    let yours = News::Yours { seq: Seq(5), at: at(0), command: 0 };
    assert!(bench.vm.answered(Answer::go(at(0), vec![yours])));
    let second = bench.commit();
    assert_eq!((second.base, second.foresees), (Seq(5), Some(at(0))));
}

/// Goes on without its first step if that fails; then it takes two, side by side.
fn side_by_side() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        let _ = ctx.step("first", pending::<Result<()>>).await;
        let (left, right) =
            (ctx.step("left", pending::<Result<()>>), ctx.step("right", pending::<Result<()>>));
        let (left, right) = futures::future::join(left, right).await;
        left?;
        right?;
        Ok(Payload::null())
    })
}

#[test]
fn a_workflow_that_fails_says_which_steps_failed_side_by_side() {
    let ended = |name: &str, outcome: Outcome| {
        let op = Op { kind: OpKind::Step, name: name.into(), occurrence: 0 };
        Event::StepFinished { op, attempt: 1, outcome, took_ms: None }
    };
    let failed = |name| ended(name, Outcome::Err(Failure::new("no")));
    let fine = |name| ended(name, Outcome::Ok(Payload::null()));
    for (events, since) in [
        (vec![failed("first"), failed("left"), failed("right")], 2),
        (vec![failed("first"), failed("right"), fine("left")], 2),
        (vec![failed("first"), fine("left"), failed("right")], 3),
        (vec![fine("first"), failed("left"), failed("right")], 2),
    ] {
        let commit = Bench::new(side_by_side, events).commit();
        assert!(matches!(commit.then, Then::Fail { .. }), "{:?}", commit.then);
        assert_eq!(commit.failed_since, Some(Seq(since)));
    }
}

fn more(events: Vec<Event>, first: u32) -> Answer {
    let news = records(events, first).into_iter().map(News::Record).chain([News::More]).collect();
    Answer::go(at(0), news)
}

#[test]
fn what_does_not_fit_into_an_answer_is_read_by_pages_before_anything_else_is_said() {
    let mut bench = Bench::new(two_signals, vec![]);
    bench.commit();
    let noise = Event::SignalReceived {
        name: "noise".into(),
        id: None,
        payload: Payload::null(),
        by: None,
        since: None,
        to: None,
    };
    // Also if a listener brings it while a commit has no answer yet: there is one call at a time.
    assert!(bench.vm.heard(more(vec![noise.clone()], 1)));
    assert_eq!(bench.poll(), Poll::Pending);
    assert!(bench.vm.answered(more(vec![noise.clone(), signal(1)], 1)));
    assert_eq!(bench.poll(), Poll::Ready(Order::Page(Seq(2))));
    assert_eq!(bench.poll(), Poll::Pending, "it waits for the page");
    bench.vm.page(Page { events: records(vec![noise, signal(2)], 3), more: false });
    let commit = bench.commit();
    assert!(matches!(&commit.then, Then::Complete { output } if output.text() == "[1,2]"));
    assert_eq!((commit.base, commit.unread), (Seq(4), 2), "nobody takes the noise");
}
