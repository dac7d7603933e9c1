//! Every kind of input in every phase: what the run becomes, or why it is refused.

use super::*;

/// Where a run stands, without the details.
fn stands(run: &Run) -> &'static str {
    match &run.phase {
        Phase::Pending { .. } => "pending",
        Phase::Running { session: Transport::Capability, .. } => "running",
        Phase::Running { session: Transport::Token, .. } => "leased",
        Phase::Suspended => "suspended",
        Phase::Paused { why: PauseWhy::Problem(_) } => "paused",
        Phase::Paused { why: PauseWhy::Request } => "halted",
        Phase::Ended { how: End::Completed, .. } => "completed",
        Phase::Ended { how: End::Failed, .. } => "failed",
        Phase::Ended { how: End::Cancelled, .. } => "cancelled",
    }
}

fn phases() -> Vec<Bench> {
    let ended = |then| {
        let mut bench = Bench::running();
        bench.commit(vec![], then).expect("in turn");
        bench
    };
    let mut cancelled = Bench::running();
    cancelled.give(Input::Cancel).expect("it has not ended");
    let halted = |mut bench: Bench| {
        bench.give(Input::Pause).expect("it has not ended");
        bench
    };
    vec![
        Bench::start(None),
        Bench::running(),
        Bench::start(Some(TOKEN)),
        Bench::suspended(vec![wait("s", 0, None), sleep(0, 10)]),
        ended(Then::Pause { problem: problem() }),
        halted(Bench::suspended(vec![sleep(0, 10)])),
        halted(Bench::running()),
        ended(Then::Complete { output: Payload::null() }),
        ended(Then::Fail { failure: Failure::new("no") }),
        cancelled,
    ]
}

fn inputs(bench: &mut Bench) -> Vec<(&'static str, Input)> {
    let mut commit = |then| {
        let (commit, hash) = bench.next_commit(vec![], then);
        Input::Commit { commit, hash, homes: Vec::new() }
    };
    let (goes_on, suspends) = (commit(go_on()), commit(Then::Suspend { open: vec![sleep(1, 5)] }));
    let (completes, fails) = (
        commit(Then::Complete { output: Payload::null() }),
        commit(Then::Fail { failure: Failure::new("") }),
    );
    let yields = commit(Then::Yield { open: None });
    let anew = commit(Then::Anew { input: Payload::null(), keeps: vec![], keeps_bytes: 0 });
    let pauses = commit(Then::Pause { problem: problem() });
    let epoch = bench.run.epoch;
    let signal = |slot| Input::Signal { signal: Signal::new("s", Payload::null()), slot };
    let restart =
        |slot| Input::Restart { cuts: vec![], signals: vec![], dropped: None, keeps_progress: false, slot };
    vec![
        ("activate", Input::Activate(SLOT)),
        ("continue", goes_on),
        ("suspend", suspends),
        ("yield", yields),
        ("anew", anew),
        ("complete", completes),
        ("fail", fails),
        ("pause", pauses),
        ("signal", signal(None)),
        ("signal, slot", signal(Some(SLOT))),
        ("cancel", Input::Cancel),
        ("halt", Input::Pause),
        ("resume", Input::Resume { slot: None }),
        ("resume, slot", Input::Resume { slot: Some(SLOT) }),
        ("restart", restart(None)),
        ("restart, slot", restart(Some(SLOT))),
        ("wake", Input::Wake { slot: None }),
        ("wake, slot", Input::Wake { slot: Some(SLOT) }),
        ("returned", Input::ActivationEnded { epoch, end: CallEnd::Returned }),
        ("threw", Input::ActivationEnded { epoch, end: CallEnd::Threw("no".into()) }),
        ("lost", Input::ActivationEnded { epoch, end: CallEnd::Lost("no".into()) }),
        ("refused", Input::ActivationEnded { epoch, end: refused() }),
        ("reload", Input::Reload),
        ("heard", Input::Heard { epoch }),
        ("unreadable", Input::Unreadable),
    ]
}

#[test]
fn every_input_in_every_phase_has_its_one_result() {
    // Much later: whatever waits for a time is due. Halted: by request, at rest and with its program at work.
    let table = "
        input        pending   running   leased    suspended paused    halted    halted    completed failed    cancelled
        activate     running   running   leased    suspended paused    halted    halted    completed failed    cancelled
        continue     stale     running   leased    stale     stale     stale     halted    stale     stale     stale
        suspend      stale     suspended suspended stale     stale     stale     halted    stale     stale     stale
        yield        stale     pending   pending   stale     stale     stale     halted    stale     stale     stale
        anew         stale     pending   pending   stale     stale     stale     halted    stale     stale     stale
        complete     stale     completed completed stale     stale     stale     halted    stale     stale     stale
        fail         stale     failed    failed    stale     stale     stale     halted    stale     stale     stale
        pause        stale     paused    paused    stale     stale     stale     halted    stale     stale     stale
        signal       pending   running   leased    pending   paused    halted    halted    ended     ended     ended
        signal,slot  pending   running   leased    running   paused    halted    halted    ended     ended     ended
        cancel       cancelled cancelled cancelled cancelled cancelled cancelled cancelled ended     ended     cancelled
        halt         halted    halted    halted    halted    paused    halted    halted    ended     ended     ended
        resume       pending   running   leased    suspended pending   pending   pending   ended     ended     ended
        resume,slot  pending   running   leased    suspended running   running   running   ended     ended     ended
        restart      wrong     wrong     wrong     wrong     pending   pending   pending   pending   pending   pending
        restart,slot wrong     wrong     wrong     wrong     running   running   running   running   running   running
        wake         pending   running   pending   pending   paused    halted    halted    completed failed    cancelled
        wake,slot    running   running   pending   running   paused    halted    halted    completed failed    cancelled
        returned     pending   pending   pending   suspended paused    halted    halted    completed failed    cancelled
        threw        pending   pending   pending   suspended paused    halted    halted    completed failed    cancelled
        lost         pending   pending   pending   suspended paused    halted    halted    completed failed    cancelled
        refused      pending   pending   pending   suspended paused    halted    halted    completed failed    cancelled
        reload       pending   pending   leased    suspended paused    halted    halted    completed failed    cancelled
        heard        stale     running   leased    stale     stale     stale     halted    stale     stale     stale
        unreadable   paused    paused    paused    paused    paused    halted    halted    completed failed    cancelled
    ";
    let mut actual = vec![vec!["input".to_owned()]];
    for mut bench in phases() {
        bench.pass(1_000_000);
        actual[0].push(stands(&bench.run).to_owned());
        for (row, (name, input)) in inputs(&mut bench).into_iter().enumerate() {
            let mut after = bench.clone();
            let result = match after.give(input) {
                Ok(_) => stands(&after.run),
                Err(problem) if problem.code == Code::StaleEpoch => "stale",
                Err(problem) if problem.code == Code::RunEnded => "ended",
                Err(problem) if problem.code == Code::WrongStatus => "wrong",
                Err(problem) => panic!("{name}: {problem}"),
            };
            if actual.len() < row + 2 {
                actual.push(vec![name.replace(' ', "")]);
            }
            actual[row + 1].push(result.to_owned());
        }
    }
    let expected: Vec<Vec<_>> = table
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect();
    for (actual, expected) in actual.iter().zip(&expected) {
        assert_eq!(actual, expected);
    }
    assert_eq!(actual.len(), expected.len());
}
