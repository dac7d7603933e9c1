//! What a commit does, and which ones are refused.

use stepwell_protocol::{
    Outcome,
    program::{PAYLOAD_BYTES_MAX, Progress},
};

use super::*;

#[test]
fn a_commit_appends_its_results_in_order() {
    let mut bench = Bench::running();
    let reply = bench.commit(vec![succeeded("a"), succeeded("b")], go_on());
    assert_eq!(reply, Ok(Reply::Go));
    assert_eq!(bench.run.head, Seq(2));
    assert!(matches!(bench.events()[..],
        [Event::StepFinished { op: a, .. }, Event::StepFinished { op: b, .. }] if a.name == "a" && b.name == "b"));
}

#[test]
fn an_identical_repeat_gets_the_same_answer_and_changes_nothing() {
    let ends = [
        (go_on(), Reply::Go),
        (Then::Continue { open: Some(vec![sleep(0, 5)]) }, Reply::Go),
        (Then::Suspend { open: vec![sleep(0, 5)] }, Reply::Go),
        (Then::Complete { output: Payload::null() }, Reply::Stop),
        (Then::Fail { failure: Failure::new("no") }, Reply::Stop),
        (Then::Pause { problem: problem() }, Reply::Stop),
    ];
    for (then, reply) in ends {
        let mut bench = Bench::running();
        let (commit, hash) = bench.next_commit(vec![succeeded("a")], then);
        assert_eq!(bench.send(&commit, hash), Ok(reply));
        let (run, head) = (bench.run.clone(), bench.journal.len());
        assert_eq!(bench.send(&commit, hash), Ok(reply), "{:?}", commit.then);
        assert_eq!((bench.run, bench.journal.len()), (run, head));
    }
}

#[test]
fn a_repeat_is_known_after_the_cell_came_back() {
    for then in [go_on(), Then::Continue { open: Some(vec![sleep(0, 5)]) }] {
        let mut bench = Bench::start(Some(TOKEN));
        let (commit, hash) = bench.next_commit(vec![succeeded("a")], then);
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
        bench.crash();
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
        assert_eq!(bench.journal.len(), 1);
    }
}

#[test]
fn the_latest_of_many_commits_is_known_after_the_cell_came_back() {
    // Marks are in the journal, in the row, or in both; whichever is the latest counts.
    let none = || Then::Continue { open: Some(vec![]) };
    let commits: [(Vec<Command>, Then); 5] = [
        (vec![succeeded("a")], go_on()),
        (vec![], none()),
        (vec![succeeded("b")], none()),
        (vec![], Then::Continue { open: Some(vec![sleep(0, 50)]) }),
        (vec![succeeded("c")], go_on()),
    ];
    let mut bench = Bench::start(Some(TOKEN));
    for (commands, then) in commits {
        let (commit, hash) = bench.next_commit(commands, then);
        bench.send(&commit, hash).expect("it continues the journal");
        bench.crash();
        let head = bench.run.head;
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
        assert_eq!(bench.run.head, head);
    }
}

#[test]
fn a_copy_that_comes_late_does_not_bring_back_what_was_said_before() {
    let waits = |occurrence| Then::Continue { open: Some(vec![sleep(occurrence, 50)]) };
    let mut bench = Bench::start(Some(TOKEN));
    // Neither leaves a record, so both continue the same position.
    let (first, one) = bench.next_commit(vec![], waits(0));
    let first = Commit {
        turn: 1,
        progress: Some(Box::new(Progress { percent: 1.0, ..Progress::default() })),
        ..first
    };
    let (second, two) = bench.next_commit(vec![], waits(1));
    let second = Commit {
        turn: 2,
        progress: Some(Box::new(Progress { percent: 2.0, ..Progress::default() })),
        ..second
    };
    assert_eq!(bench.send(&first, one), Ok(Reply::Go));
    assert_eq!(bench.send(&second, two), Ok(Reply::Go));
    for crashes in [false, true] {
        if crashes {
            bench.crash();
        }
        assert_eq!(bench.refused(&first, one), Code::BaseMismatch);
        assert_eq!(bench.send(&second, two), Ok(Reply::Go), "the latest is known as a repeat");
    }
    // The next activation counts anew.
    bench.pass(LEASE_MS);
    bench.give(Input::Wake { slot: None }).expect("it is never refused");
    bench.activate(TOKEN);
    let (third, three) = bench.next_commit(vec![], waits(2));
    assert_eq!(bench.send(&Commit { turn: 1, ..third }, three), Ok(Reply::Go));
}

#[test]
fn what_is_said_beside_news_is_known_as_said() {
    let mut bench = Bench::start(Some(TOKEN));
    let progress = |percent| Some(Box::new(Progress { percent, ..Progress::default() }));
    let (first, one) = bench.next_commit(vec![], Then::Continue { open: Some(vec![sleep(0, 50)]) });
    bench.signal("s", None).expect("it is kept");
    let first = Commit { turn: 1, progress: progress(1.0), ..first };
    let second = Commit { turn: 2, progress: progress(2.0), ..first.clone() };
    assert_eq!(bench.send(&first, one), Ok(Reply::Go));
    assert_eq!(bench.send(&second, one + 100), Ok(Reply::Go));
    assert_eq!(bench.refused(&first, one), Code::BaseMismatch);
    assert_eq!(bench.run.progress.map(|progress| progress.percent), Some(2.0));
}

#[test]
fn another_commit_at_a_base_that_was_written_past_is_refused() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    bench.send(&commit, hash).expect("it continues the journal");
    let other = Commit { commands: vec![succeeded("b")], ..commit };
    assert_eq!(bench.refused(&other, hash + 1), Code::BaseMismatch);
}

#[test]
fn a_base_beyond_the_journal_is_refused() {
    let mut bench = Bench::running();
    let (mut commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    commit.base = Seq(1);
    assert_eq!(bench.refused(&commit, hash), Code::BaseMismatch);
}

#[test]
fn news_between_the_base_and_the_head_is_no_obstacle() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    bench.signal("s", None).expect("it is kept");
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go));
    assert!(matches!(bench.events()[..], [Event::SignalReceived { .. }, Event::StepFinished { .. }]));
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Go), "its repeat is known");
    assert_eq!(bench.journal.len(), 2);
}

#[test]
fn a_superseded_attempt_is_refused() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    bench.crash();
    assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch, "before the next activation");
    bench.activate(SLOT);
    assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch, "and after it");
}

#[test]
fn a_recorded_commit_of_a_superseded_activation_is_refused_too() {
    let mut bench = Bench::running();
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], go_on());
    bench.send(&commit, hash).expect("it continues the journal");
    bench.crash();
    bench.activate(SLOT);
    assert_eq!(bench.refused(&commit, hash), Code::StaleEpoch);
}

#[test]
fn a_step_is_tried_again_as_often_as_its_policy_says() {
    let retry = Retry { attempts: 3, initial_ms: 100, factor: 2.0, max_ms: 1_000, jitter: 0.0 };
    let mut bench = Bench::running();
    for attempt in 1..=3 {
        bench.commit(vec![failed("a", attempt, Failure::new("no"), &retry)], go_on()).expect("in turn");
    }
    let now = bench.now;
    assert!(matches!(bench.events()[..], [
        Event::StepRetrying { attempt: 1, retry_at: first, .. },
        Event::StepRetrying { attempt: 2, retry_at: second, .. },
        Event::StepFinished { attempt: 3, outcome: Outcome::Err(_), .. },
    ] if *first == now.plus_millis(100) && *second == now.plus_millis(200)));
}

#[test]
fn a_step_is_retried_after_1_s_and_2_s_unless_its_policy_says_otherwise() {
    let policy = Retry::default();
    assert_eq!(policy, Retry { attempts: 3, initial_ms: 1_000, factor: 2.0, max_ms: 60_000, jitter: 0.1 });
    let mut bench = Bench::running();
    for attempt in 1..=3 {
        bench.commit(vec![failed("a", attempt, Failure::new("no"), &policy)], go_on()).expect("in turn");
    }
    let now = bench.now;
    assert!(matches!(bench.events()[..], [
        Event::StepRetrying { attempt: 1, retry_at: first, .. },
        Event::StepRetrying { attempt: 2, retry_at: second, .. },
        Event::StepFinished { attempt: 3, outcome: Outcome::Err(_), .. },
    ] if (now.plus_millis(900)..=now.plus_millis(1_000)).contains(first)
        && (now.plus_millis(1_800)..=now.plus_millis(2_000)).contains(second)));
    // The delays of a policy with more attempts end at a minute.
    let endless = Retry { attempts: 100, jitter: 0.0, ..policy };
    let mut patient = Bench::running();
    for attempt in 1..=8 {
        patient.commit(vec![failed("a", attempt, Failure::new("no"), &endless)], go_on()).expect("in turn");
    }
    let now = patient.now;
    let delays: Vec<_> = patient
        .events()
        .iter()
        .map(|event| match event {
            Event::StepRetrying { retry_at, .. } => retry_at.as_millis() - now.as_millis(),
            Event::StepFinished { .. }
            | Event::StepBegun { .. }
            | Event::StepLetIn { .. }
            | Event::TimerFired { .. }
            | Event::SignalReceived { .. }
            | Event::ChildInvoked { .. }
            | Event::ChildStarted { .. }
            | Event::ChildFinished { .. } => 0,
        })
        .collect();
    assert_eq!(delays, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
}

#[test]
fn an_error_says_when_its_step_is_retried_up_to_30_days() {
    let month_ms = 30 * 86_400_000;
    for (asked_ms, waits_ms) in [(0, 0), (90_000, 90_000), (month_ms, month_ms), (u64::MAX, month_ms)] {
        let mut bench = Bench::running();
        let failed = Command::StepFailed {
            op: op(OpKind::Step, "a", 0),
            attempt: 1,
            failure: Failure::new("rate limited"),
            retry: Retry::default(),
            retry_after_ms: Some(asked_ms),
            took_ms: None,
        };
        bench.commit(vec![failed], go_on()).expect("in turn");
        let retry_at_expected = bench.now.plus_millis(waits_ms);
        assert!(
            matches!(bench.events()[..], [Event::StepRetrying { retry_at, .. }] if *retry_at == retry_at_expected),
            "{asked_ms}"
        );
    }
}

#[test]
fn an_error_that_asks_for_a_retry_spends_its_attempt_all_the_same() {
    let mut bench = Bench::running();
    let failed = Command::StepFailed {
        op: op(OpKind::Step, "a", 0),
        attempt: 3,
        failure: Failure::new("rate limited"),
        retry: Retry::default(),
        retry_after_ms: Some(1),
        took_ms: None,
    };
    bench.commit(vec![failed], go_on()).expect("in turn");
    assert!(matches!(bench.events()[..], [Event::StepFinished { outcome: Outcome::Err(_), .. }]));
}

#[test]
fn a_terminal_failure_ends_a_step_at_once() {
    let mut bench = Bench::running();
    bench.commit(vec![failed("a", 1, Failure::terminal("no"), &Retry::default())], go_on()).expect("in turn");
    assert!(matches!(bench.events()[..], [Event::StepFinished { outcome: Outcome::Err(_), .. }]));
}

#[test]
fn a_policy_without_attempts_still_has_one() {
    let mut bench = Bench::running();
    let retry = Retry { attempts: 0, ..Retry::default() };
    bench.commit(vec![failed("a", 1, Failure::new("no"), &retry)], go_on()).expect("in turn");
    assert!(matches!(bench.events()[..], [Event::StepFinished { outcome: Outcome::Err(_), .. }]));
}

#[test]
fn texts_for_people_are_cut_to_what_is_kept() {
    let most = Failure::MESSAGE_LENGTH_MAX;
    let long = || Failure { message: "x".repeat(most + 1), terminal: true, code: None };
    let mut bench = Bench::running();
    let failed = Command::StepFailed {
        op: op(OpKind::Step, "a", 0),
        attempt: 1,
        failure: long(),
        retry: Retry::default(),
        retry_after_ms: None,
        took_ms: None,
    };
    assert_eq!(bench.commit(vec![failed], go_on()), Ok(Reply::Go));
    assert!(matches!(bench.events()[..],
        [Event::StepFinished { outcome: Outcome::Err(failure), .. }] if failure.message.len() == most));
    let mut paused = Bench::running();
    let wordy = Problem { detail: "x".repeat(most + 1), ..problem() };
    assert_eq!(paused.commit(vec![], Then::Pause { problem: wordy }), Ok(Reply::Stop));
    assert!(matches!(&paused.run.phase,
        Phase::Paused { why: PauseWhy::Problem(problem), .. } if problem.detail.len() == most));
    let (commit, hash) = bench.next_commit(vec![], Then::Fail { failure: long() });
    let decision =
        bench.give(Input::Commit { commit, hash, homes: Vec::new() }).expect("a failure is recorded");
    assert!(
        decision
            .entries
            .iter()
            .any(|entry| { matches!(entry, Entry::Failed { failure, .. } if failure.message.len() == most) })
    );
}

#[test]
fn what_could_not_be_stored_is_refused() {
    let large =
        || Payload::from_text(format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX))).expect("a string is JSON");
    let output =
        Command::StepSucceeded { op: op(OpKind::Step, "a", 0), attempt: 1, output: large(), took_ms: None };
    let many = (0..=u32::try_from(OPEN_MAX).expect("it is small")).map(|n| sleep(n, 1)).collect();
    let long = "x".repeat(Op::NAME_LENGTH_MAX + 1);
    let long_signal = Open::Wait {
        op: op(OpKind::Wait, "a", 0),
        signal: long.clone(),
        timeout_ms: None,
        shape: Shape::Any,
        asked: None,
        event: None,
    };
    let cases = [
        (vec![output], go_on(), Code::PayloadTooLarge),
        (vec![], Then::Complete { output: large() }, Code::PayloadTooLarge),
        (vec![succeeded("")], go_on(), Code::InvalidRequest),
        (vec![succeeded(&long)], go_on(), Code::InvalidRequest),
        (vec![], Then::Suspend { open: vec![wait("", 0, None)] }, Code::InvalidRequest),
        (vec![], Then::Suspend { open: many }, Code::InvalidRequest),
        (vec![], Then::Suspend { open: vec![] }, Code::InvalidRequest),
        (vec![], Then::Suspend { open: vec![long_signal] }, Code::InvalidRequest),
    ];
    for (commands, then, code) in cases {
        let mut bench = Bench::running();
        let (commit, hash) = bench.next_commit(commands, then);
        assert_eq!(bench.refused(&commit, hash), code);
    }
}

#[test]
fn a_finished_run_keeps_its_way_of_ending() {
    let ends = [
        (Then::Complete { output: Payload::null() }, End::Completed),
        (Then::Fail { failure: Failure::new("no") }, End::Failed),
    ];
    for (then, end) in ends {
        let mut bench = Bench::running();
        let (commit, hash) = bench.next_commit(vec![succeeded("a")], then);
        let decision =
            bench.give(Input::Commit { commit, hash, homes: Vec::new() }).expect("nothing is in its way");
        assert_eq!(decision.effects, [Effect::TellEnd]);
        assert_eq!(bench.run.phase, Phase::Ended { how: end, at: bench.now });
        assert_eq!(bench.give(Input::Cancel).expect_err("it is over").code, Code::RunEnded);
    }
}

/// A commit of a program that has gone on as if its step were recorded now, and has come to its end.
fn foreseen(bench: &mut Bench) -> (Commit, u64) {
    let then = Then::Complete { output: Payload::null() };
    let (commit, hash) = bench.next_commit(vec![succeeded("a")], then);
    (Commit { foresees: Some(bench.now), ..commit }, hash)
}

#[test]
fn a_step_and_the_end_that_was_foreseen_are_one_commit() {
    let mut bench = Bench::running();
    let (commit, hash) = foreseen(&mut bench);
    bench.pass(5);
    assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
    assert_eq!((bench.run.status(), bench.run.head), (Status::Completed, Seq(1)));
}

#[test]
fn whoever_foresaw_something_else_is_activated_again() {
    let news = |bench: &mut Bench, _: &mut Commit| drop(bench.signal("s", None).expect("it is kept"));
    let clock_ahead = |bench: &mut Bench, commit: &mut Commit| {
        commit.foresees = Some(bench.now.plus_millis(1));
    };
    let clock_behind = |bench: &mut Bench, commit: &mut Commit| {
        commit.foresees = Some(Timestamp::from_millis(bench.run.created_at.as_millis() - 1));
    };
    let others: [fn(&mut Bench, &mut Commit); 3] = [news, clock_ahead, clock_behind];
    for other in others {
        let mut bench = Bench::running();
        let (mut commit, hash) = foreseen(&mut bench);
        other(&mut bench, &mut commit);
        let (head, epoch) = (bench.run.head, bench.run.epoch);
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop));
        assert_eq!(bench.run.status(), Status::Pending, "the end does not count");
        assert_eq!(bench.run.head, Seq(head.0 + 1), "the step does");
        bench.crash();
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop), "a repeat is known");
        bench.activate(Slot { session: Transport::Capability, alone: false });
        assert_eq!(bench.run.epoch, epoch.next());
        assert_eq!(bench.send(&commit, hash), Ok(Reply::Stop), "and still is");
        assert_eq!(bench.run.head, Seq(head.0 + 1));
    }
}

#[test]
fn what_a_run_waits_for_has_to_fit_beside_its_input() {
    let shape = Shape::OneOf { names: vec!["y".repeat(500)] };
    let open = |count: u32| {
        let waits = (0..count).map(|n| Open::Wait {
            op: op(OpKind::Wait, "w", n),
            signal: "s".into(),
            timeout_ms: Some(1),
            shape: shape.clone(),
            asked: None,
            event: None,
        });
        Then::Suspend { open: waits.collect() }
    };
    for (input_bytes, count, fits) in
        [(0, 2_500, true), (0, 3_500, false), (1_950_000, 50, true), (1_950_000, 100, false)]
    {
        let mut bench = Bench::running();
        bench.run.input_bytes = input_bytes;
        bench.row = bench.run.to_row();
        assert_eq!(bench.commit(vec![succeeded("a")], go_on()), Ok(Reply::Go));
        assert_eq!(bench.commit(vec![], open(count)), Ok(Reply::Stop));
        let status = if fits { Status::Waiting } else { Status::Failed };
        assert_eq!(bench.run.status(), status, "{count} beside {input_bytes} bytes");
        assert!(bench.row.state.len() + (input_bytes as usize) < 2_000_000 - ROW_RESERVE_BYTES);
        assert_eq!(bench.run.head, Seq(1), "its step is on record");
    }
}

#[test]
fn the_largest_input_leaves_room_for_a_failure_with_a_long_reason() {
    let mut bench = Bench::running();
    bench.run.input_bytes = u32::try_from(PAYLOAD_BYTES_MAX).expect("it is small");
    bench.row = bench.run.to_row();
    let failure = Failure::new("x".repeat(Failure::MESSAGE_LENGTH_MAX));
    let (commit, hash) = bench.next_commit(vec![], Then::Fail { failure: failure.clone() });
    let decision = bench.give(Input::Commit { commit, hash, homes: Vec::new() }).expect("it is recorded");
    assert!(decision.entries.contains(&Entry::Failed { failure, at: bench.now }), "{:?}", decision.entries);
}
