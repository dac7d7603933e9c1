//! Waits with links that end without an answer: the engine hears of it, or it would take one that nobody reads.

use super::*;

/// Does this, then a step without an end.
macro_rules! then_work {
    ($ctx:ident => $first:expr) => {
        || {
            Definition::new("w", |$ctx: Ctx, ()| async move {
                $ctx.sleep("sleep", Duration::from_secs(1)).await;
                $first;
                $ctx.step("work", pending::<Result<()>>).await?;
                Ok(Payload::null())
            })
        }
    };
}

fn link(occurrence: u32) -> Op {
    Op { kind: OpKind::Wait, name: "s".into(), occurrence }
}

/// An answer by the link of the first wait.
fn answered() -> Event {
    let Event::SignalReceived { name, id, payload, by, since, .. } = signal(1) else { unreachable!() };
    Event::SignalReceived { name, id, payload, by, since, to: Some(0) }
}

#[test]
fn one_that_takes_a_signal_that_was_there_is_said_to_be_over_at_once() {
    let mut bench =
        Bench::new(then_work!(ctx => { ctx.token::<u32>("s").await?; }), vec![signal(1), fired(0)]);
    let commit = bench.commit();
    assert!(matches!(commit.then, Then::Continue { .. }), "{:?}", commit.then);
    assert_eq!(commit.over, [link(0)]);
    assert!(bench.vm.answered(go(vec![], 3)));
    assert_eq!(bench.poll(), Poll::Pending, "it is said once");
}

#[test]
fn a_large_signal_ends_it_as_a_small_one_does() {
    let payload = Payload::encode(&"x".repeat(2_000)).expect("a text is JSON");
    let large =
        Event::SignalReceived { name: "s".into(), id: None, payload, by: None, since: None, to: None };
    let mut bench =
        Bench::new(then_work!(ctx => { ctx.token::<String>("s").await?; }), vec![large, fired(0)]);
    assert_eq!(bench.commit().over, [link(0)]);
}

#[test]
fn one_that_is_dropped_is_over_whether_it_was_polled_or_not() {
    for define in [
        then_work!(ctx => {
            let link = pin!(ctx.token::<u32>("s").wait());
            let sleep = pin!(ctx.sleep("sleep", Duration::from_secs(1)));
            assert!(matches!(select(link, sleep).await, Either::Right(_)));
        }),
        then_work!(ctx => {
            let link = ctx.token::<u32>("s");
            ctx.sleep("sleep", Duration::from_secs(1)).await;
            drop(link);
        }),
        then_work!(ctx => {
            let link = ctx.token::<u32>("s").wait();
            ctx.sleep("sleep", Duration::from_secs(1)).await;
            drop(link);
        }),
    ] {
        let commit = Bench::new(define, vec![fired(0), fired(1)]).commit();
        assert!(matches!(commit.then, Then::Continue { .. }), "{:?}", commit.then);
        assert_eq!(commit.over, [link(0)]);
    }
}

#[test]
fn one_that_its_link_has_completed_is_not_said_to_be_over() {
    let mut bench =
        Bench::new(then_work!(ctx => { ctx.token::<u32>("s").await?; }), vec![answered(), fired(0)]);
    assert_eq!(bench.poll(), Poll::Pending, "there is nothing to say");
}

#[test]
fn a_replay_says_it_with_whatever_else_there_is_to_say() {
    let define = then_work!(ctx => {
        ctx.token::<u32>("s").await?;
        ctx.sleep("sleep", Duration::from_secs(1)).await;
    });
    let mut bench = Bench::new(define, vec![signal(1), fired(0), fired(1)]);
    assert_eq!(bench.poll(), Poll::Pending, "it is worth no commit of its own");
    let mut bench = Bench::new(define, vec![signal(1), fired(0)]);
    let commit = bench.commit();
    assert!(matches!(commit.then, Then::Suspend { .. }), "{:?}", commit.then);
    assert_eq!(commit.over, [link(0)], "it goes along with that");
}

#[test]
fn a_workflow_that_is_over_says_nothing_of_its_links() {
    fn ends() -> Definition<()> {
        Definition::new("w", |ctx: Ctx, ()| async move {
            let _link = ctx.token::<u32>("s");
            Ok(Payload::null())
        })
    }
    assert_eq!(Bench::new(ends, vec![]).commit().over, []);
}
