//! Children, message by message.

use stepwell_protocol::{Awaits, Invocation, OnClose, RunId};

use super::*;

fn child(workflow: &str, occurrence: u32) -> Op {
    Op { kind: OpKind::Child, name: workflow.into(), occurrence }
}

fn run_id(number: u64) -> RunId {
    format!("default-1-0-{number}-000000000000").parse().expect("it is an id")
}

fn invoked(op: Op) -> Event {
    let (workflow, to) = (op.name.clone(), "default-1-0".parse().expect("it is a place"));
    Event::ChildInvoked { op, workflow, to, detached: false, on_close: OnClose::Cancel }
}

fn invoked_detached(op: Op) -> Event {
    let (workflow, to) = (op.name.clone(), "default-1-0".parse().expect("it is a place"));
    Event::ChildInvoked { op, workflow, to, detached: true, on_close: OnClose::Abandon }
}

fn started(op: Op, invoked: u32) -> Event {
    Event::ChildStarted { op, invoked: Seq(invoked), run: run_id(7), abandoned: true }
}

fn gave(op: Op, invoked: u32, value: u32) -> Event {
    let outcome = Outcome::Ok(Payload::encode(&value).expect("a number is JSON"));
    Event::ChildFinished { op, invoked: Seq(invoked), run: Some(run_id(7)), outcome }
}

fn failed(op: Op, invoked: u32, failure: Failure) -> Event {
    Event::ChildFinished { op, invoked: Seq(invoked), run: Some(run_id(7)), outcome: Outcome::Err(failure) }
}

fn output(commit: Commit) -> String {
    let Then::Complete { output } = commit.then else { panic!("it returns: {:?}", commit.then) };
    output.text().to_owned()
}

fn invocation(commit: &Commit) -> &Invocation {
    let [Command::ChildInvoked { invocation, .. }] = &commit.commands[..] else {
        panic!("it invokes one child: {:?}", commit.commands)
    };
    invocation
}

fn invoked_op(command: &Command) -> Op {
    let Command::ChildInvoked { op, .. } = command else { panic!("it invokes a child: {command:?}") };
    op.clone()
}

fn waits_for(op: Op, invoked: u32) -> Open {
    Open::Child { op, invoked: Seq(invoked), awaits: Awaits::Finished, timeout_ms: None }
}

/// Gives what its child gives, or what went wrong.
fn awaits_one() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        match ctx.invoke_named::<_, u32>("a", 5).timeout("10m").await {
            Ok(value) => Ok(Payload::encode(&value)?),
            Err(error) => {
                let run = error.child().and_then(|child| child.run.clone());
                Ok(Payload::encode(&(error.code(), error.message(), run))?)
            }
        }
    })
}

#[test]
fn an_awaited_child_is_invoked_waited_for_and_gives_its_output() {
    let mut bench = Bench::new(awaits_one, vec![]);
    let first = bench.commit();
    assert_eq!(first.then, Then::Continue { open: None });
    let Invocation { workflow, input, detached, on_close, .. } = invocation(&first);
    assert_eq!((workflow.as_str(), input.text(), *detached, *on_close), ("a", "5", false, OnClose::Cancel));
    assert!(bench.vm.answered(go(vec![invoked(child("a", 0))], 1)));
    let second = bench.commit();
    let open = Open::Child {
        op: child("a", 0),
        invoked: Seq(1),
        awaits: Awaits::Finished,
        timeout_ms: Some(600_000),
    };
    assert_eq!((second.commands.len(), second.then), (0, Then::Suspend { open: vec![open] }));
    assert!(bench.vm.answered(go(vec![gave(child("a", 0), 1, 8)], 2)));
    assert_eq!(output(bench.commit()), "8");
}

#[test]
fn a_child_that_ends_before_its_parent_has_said_that_it_waits_is_heard() {
    let mut bench = Bench::new(awaits_one, vec![]);
    bench.commit();
    assert!(bench.vm.answered(go(vec![invoked(child("a", 0)), gave(child("a", 0), 1, 8)], 1)));
    assert_eq!(output(bench.commit()), "8");
}

#[test]
fn a_replay_takes_the_end_of_a_child_from_the_journal() {
    let mut bench = Bench::new(awaits_one, vec![invoked(child("a", 0)), gave(child("a", 0), 1, 8)]);
    let commit = bench.commit();
    assert!(commit.commands.is_empty());
    assert_eq!(output(commit), "8");
}

#[test]
fn a_replay_waits_for_the_child_that_was_invoked_before() {
    let mut bench = Bench::new(awaits_one, vec![signal(1), invoked(child("a", 0))]);
    let commit = bench.commit();
    assert!(commit.commands.is_empty(), "{:?}", commit.commands);
    assert!(
        matches!(&commit.then, Then::Suspend { open } if matches!(open[..], [Open::Child { invoked: Seq(2), .. }]))
    );
}

#[test]
fn what_went_wrong_with_a_child_is_an_error_that_names_it() {
    for (code, text) in [
        (None, "null"),
        (Some(Code::ChildCancelled), r#""child_cancelled""#),
        (Some(Code::ChildTimedOut), r#""child_timed_out""#),
    ] {
        let failure = Failure { code, ..Failure::terminal("no") };
        let events = vec![invoked(child("a", 0)), failed(child("a", 0), 1, failure)];
        let replayed = output(Bench::new(awaits_one, events.clone()).commit());
        assert_eq!(replayed, format!(r#"[{text},"no","{}"]"#, run_id(7)));
        let mut bench = Bench::new(awaits_one, vec![]);
        bench.commit();
        assert!(bench.vm.answered(go(events, 1)));
        assert_eq!(output(bench.commit()), replayed, "live as on replay");
    }
}

#[test]
fn a_child_that_is_one_too_many_fails_in_place_of_its_invocation() {
    let failure = Failure::coded(Code::TooManyChildren, "too many");
    let refused = Event::ChildFinished {
        op: child("a", 0),
        invoked: Seq(1),
        run: None,
        outcome: Outcome::Err(failure),
    };
    let expected = r#"["too_many_children","too many",null]"#;
    let mut bench = Bench::new(awaits_one, vec![]);
    bench.commit();
    assert!(bench.vm.answered(go(vec![refused.clone()], 1)));
    assert_eq!(output(bench.commit()), expected);
    assert_eq!(output(Bench::new(awaits_one, vec![refused]).commit()), expected, "on replay");
}

fn fails_with_its_child() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        ctx.invoke_named::<_, u32>("a", 5).name("deposit").await?;
        Ok(Payload::null())
    })
}

#[test]
fn a_run_that_fails_with_its_child_says_since_when() {
    let (op, place) = (child("deposit", 0), "default-1-0".parse().expect("it is a place"));
    let invoked = Event::ChildInvoked {
        op: op.clone(),
        workflow: "a".into(),
        to: place,
        detached: false,
        on_close: OnClose::Cancel,
    };
    for (code, kept) in [
        (Code::ChildTimedOut, Some(Code::ChildTimedOut)),
        // That the child took too long says nothing about how long its parent took.
        (Code::RunTimedOut, None),
    ] {
        let events = vec![invoked.clone(), failed(op.clone(), 1, Failure::coded(code, "no"))];
        let commit = Bench::new(fails_with_its_child, events).commit();
        assert_eq!(commit.failed_since, Some(Seq(2)));
        let failure = failure(commit);
        assert_eq!((failure.message.as_str(), failure.code), ("child 'deposit' failed: no", kept));
    }
}

#[test]
fn what_was_cut_out_of_the_journal_is_invoked_again() {
    let mut bench = Bench::new(awaits_one, vec![]);
    bench.vm.page(Page { events: records(vec![signal(1)], 6), more: false });
    let commit = bench.commit();
    assert_eq!((commit.base, invocation(&commit).workflow.as_str()), (Seq(6), "a"));
    assert!(bench.vm.answered(go(vec![invoked(child("a", 0))], 7)));
    bench.commit();
    // What the child of before gave is not for the new one.
    assert!(bench.vm.answered(go(vec![gave(child("a", 0), 2, 1)], 8)));
    bench.commit();
    assert!(bench.vm.answered(go(vec![gave(child("a", 0), 7, 8)], 9)));
    assert_eq!(output(bench.commit()), "8");
}

fn starts_one() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        let run = ctx.invoke_named::<_, u32>("a", 5).detached().await;
        ctx.wait::<u32>("s").await?;
        Ok(Payload::encode(&run.map_err(|error| error.message().to_owned()))?)
    })
}

#[test]
fn a_detached_child_gives_its_id_and_its_end_is_only_history() {
    let mut bench = Bench::new(starts_one, vec![]);
    let first = bench.commit();
    let Invocation { detached, on_close, .. } = invocation(&first);
    assert_eq!((*detached, *on_close), (true, OnClose::Abandon));
    assert!(bench.vm.answered(go(vec![invoked_detached(child("a", 0))], 1)));
    let open = Open::Child { op: child("a", 0), invoked: Seq(1), awaits: Awaits::Started, timeout_ms: None };
    assert_eq!(bench.commit().then, Then::Suspend { open: vec![open] });
    let rest = [started(child("a", 0), 1), gave(child("a", 0), 1, 8), signal(1)];
    assert!(bench.vm.answered(go(rest.to_vec(), 2)));
    let expected = format!(r#"{{"Ok":"{}"}}"#, run_id(7));
    assert_eq!(output(bench.commit()), expected);
    let journal = [invoked_detached(child("a", 0))].into_iter().chain(rest).collect();
    assert_eq!(output(Bench::new(starts_one, journal).commit()), expected, "on replay");
}

#[test]
fn a_detached_child_that_cannot_be_started_is_an_error() {
    let end = failed(child("a", 0), 1, Failure::terminal("no such workflow"));
    let events = vec![invoked_detached(child("a", 0)), end, signal(1)];
    assert_eq!(output(Bench::new(starts_one, events).commit()), r#"{"Err":"no such workflow"}"#);
}

#[test]
fn another_workflow_in_the_journal_is_a_divergence() {
    let place = "default-1-0".parse().expect("it is a place");
    let other = Event::ChildInvoked {
        op: child("a", 0),
        workflow: "b".into(),
        to: place,
        detached: false,
        on_close: OnClose::Cancel,
    };
    for event in [other, invoked_detached(child("a", 0)), invoked(child("c", 0)), invoked(child("a", 1))] {
        let commit = Bench::new(awaits_one, vec![event.clone()]).commit();
        let Then::Pause { problem } = commit.then else { panic!("{event:?}: {:?}", commit.then) };
        assert_eq!(problem.code, Code::Diverged, "{event:?}");
    }
}

fn two_at_once() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        let (one, two) =
            futures::join!(ctx.invoke_named::<_, u32>("a", 1), ctx.invoke_named::<_, u32>("a", 2));
        Ok(Payload::encode(&(one?, two?))?)
    })
}

#[test]
fn children_side_by_side_are_one_commit_and_may_end_in_any_order() {
    let (first, second) = (child("a", 0), child("a", 1));
    let mut bench = Bench::new(two_at_once, vec![]);
    let commit = bench.commit();
    let ops: Vec<_> = commit.commands.iter().map(invoked_op).collect();
    assert_eq!(ops, [first.clone(), second.clone()]);
    assert!(bench.vm.answered(go(vec![invoked(first.clone()), invoked(second.clone())], 1)));
    let open = vec![waits_for(first.clone(), 1), waits_for(second.clone(), 2)];
    assert_eq!(bench.commit().then, Then::Suspend { open });
    assert!(bench.vm.answered(go(vec![gave(second.clone(), 2, 20)], 3)));
    assert_eq!(bench.commit().then, Then::Suspend { open: vec![waits_for(first.clone(), 1)] });
    assert!(bench.vm.answered(go(vec![gave(first.clone(), 1, 10)], 4)));
    assert_eq!(output(bench.commit()), "[10,20]");
    let journal =
        vec![invoked(first.clone()), invoked(second.clone()), gave(second, 2, 20), gave(first, 1, 10)];
    assert_eq!(output(Bench::new(two_at_once, journal).commit()), "[10,20]", "on replay");
}

fn three_hundred() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        let children = (0..300).map(|n| ctx.invoke_named::<_, u32>("a", n));
        futures::future::join_all(children).await;
        Ok(Payload::null())
    })
}

#[test]
fn many_children_are_invoked_by_several_commits() {
    let mut bench = Bench::new(three_hundred, vec![]);
    let mut counts = vec![];
    let mut known = 0;
    while known < 300 {
        let commit = bench.commit();
        counts.push(commit.commands.len());
        // While it waits for the answer it turns in no circles.
        let _ = bench.poll();
        bench.wakes();
        (0..3).for_each(|_| assert!(bench.poll().is_pending() && bench.wakes() == 0));
        let ops = commit.commands.iter().map(|command| invoked(invoked_op(command)));
        let first = known + 1;
        known += u32::try_from(commit.commands.len()).expect("they are few");
        assert!(bench.vm.answered(go(ops.collect(), first)));
    }
    assert_eq!(counts.iter().sum::<usize>(), 300);
    assert!(counts.len() > 2, "{counts:?}");
    assert!(matches!(bench.commit().then, Then::Suspend { open } if open.len() == 300));
}

fn races_its_child() -> Definition<()> {
    Definition::new("w", |ctx: Ctx, ()| async move {
        let lost = ctx.invoke_named::<_, u32>("a", 1);
        drop(select(lost, ctx.sleep("sleep", Duration::from_secs(1))).await);
        ctx.wait::<u32>("s").await?;
        Ok(Payload::null())
    })
}

#[test]
fn the_end_of_a_child_that_lost_a_race_is_only_history() {
    let op = child("a", 0);
    let journal = vec![invoked(op.clone()), fired(0), gave(op, 1, 8), signal(1)];
    assert_eq!(output(Bench::new(races_its_child, journal).commit()), "null");
}

#[test]
fn a_workflow_that_the_app_does_not_have_fails_the_run() {
    fn missing() -> Definition<u32, u32> {
        Definition::new("missing", |_: Ctx, _: u32| async move { Ok(Payload::null()) })
    }
    fn invokes_it() -> Definition<()> {
        Definition::new("w", |ctx: Ctx, ()| async move {
            let _ = ctx.invoke(missing, 1).await;
            Ok(Payload::null())
        })
    }
    let failure = failure(Bench::new(invokes_it, vec![]).commit());
    assert_eq!(failure.code, Some(Code::WorkflowNotFound));
    assert!(
        failure.terminal && failure.message.contains("invokes workflow 'missing'"),
        "{}",
        failure.message
    );
}
