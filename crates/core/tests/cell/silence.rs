//! Calls that nothing is heard of: what becomes of their places and of their runs.

use stepwell_core::{
    cell::{Action, Cell, Order},
    object::{DEAD_MAN_MS, Hosted as _, Machine as _, TURN_GAP_MS},
    run::{CallEnd, STRIKES_MAX},
    stream::{Cursor, Kinds, Reader},
    window::{SILENCE_MS, SLOW_MS},
};
use stepwell_protocol::{
    Epoch, Op, OpKind, Payload, Seq,
    program::{Answer, BEAT_EVERY_MS, Beat, StepAtWork, Then},
    rest::Status,
    stream::Kind,
};

use crate::{Memory, at, calls, new_run, said};

fn gave_up(cell: &mut Cell) -> Vec<(u64, Epoch)> {
    let orders = cell.take_orders().own.into_iter();
    orders
        .filter_map(
            |order| if let Order::GiveUp { number, epoch } = order { Some((number, epoch)) } else { None },
        )
        .collect()
}

/// The alarm fires as often as it does while programs are called: after one time, up to another.
fn live(cell: &mut Cell, rows: &Memory, from_ms: u64, to_ms: u64) {
    let step = usize::try_from(DEAD_MAN_MS).expect("small");
    for ms in (from_ms..to_ms).step_by(step).skip(1).chain([to_ms]) {
        cell.alarm(rows, at(ms)).expect("the rows can be read");
    }
}

fn beat(step: &str) -> Beat {
    let op = Op { kind: OpKind::Step, name: step.into(), occurrence: 0 };
    Beat { steps: vec![StepAtWork { op, attempt: 1, since: at(0) }] }
}

#[test]
fn a_call_that_hangs_without_a_word_gives_its_place_back() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    assert_eq!(calls(&mut cell), [(1, Epoch(1))]);
    live(&mut cell, &rows, 0, SILENCE_MS - 1);
    assert_eq!((gave_up(&mut cell), cell.calls()), (vec![], 1));
    cell.alarm(&rows, at(SILENCE_MS)).expect("the rows can be read");
    assert_eq!((gave_up(&mut cell), cell.calls()), (vec![(1, Epoch(1))], 0));
    assert_eq!(rows.get(1).status(), Status::Pending);
    assert_eq!((rows.get(1).trouble.strikes, rows.get(1).trouble.suspicion), (1, 0));
    // What the hung program says when it comes back is refused, and its end changes nothing.
    let late = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
    assert!(cell.commit(&rows, at(SILENCE_MS + 1), 1, Epoch(1), late, 1).is_err());
    cell.call_ended(&rows, at(SILENCE_MS + 2), 1, Epoch(1), CallEnd::Returned).expect("nothing is recorded");
    cell.alarm(&rows, at(SILENCE_MS + 1_000)).expect("the rows can be read");
    assert_eq!(calls(&mut cell), [(1, Epoch(2))]);
    assert_eq!(rows.get(1).trouble.strikes, 1);
}

#[test]
fn the_alarm_is_set_for_a_call_that_may_fall_silent() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    // Paused, the run has no wake time of its own; but its program's call is still under way.
    cell.act(&rows, at(10), &run.id, "root", Action::Pause).expect("it is paused");
    let _ = cell.take_orders();
    for ms in (5_000..SILENCE_MS).step_by(5_000) {
        cell.alarm(&rows, at(ms)).expect("the rows can be read");
        assert_eq!(cell.take_orders().arm, Some(at(ms + DEAD_MAN_MS)));
    }
    cell.alarm(&rows, at(SILENCE_MS)).expect("the rows can be read");
    assert_eq!((gave_up(&mut cell), cell.calls()), (vec![(1, Epoch(1))], 0));
    assert_eq!(rows.get(1).status(), Status::Paused);
}

/// A laptop sleeps, a virtual machine is paused, a clock is set: the first that the cell hears of it is its alarm.
#[test]
fn a_machine_that_stood_still_makes_no_call_silent() {
    for stood_ms in [TURN_GAP_MS + 1, SILENCE_MS, 120_000, 86_400_000] {
        let (rows, mut cell) = (Memory::default(), Cell::new(2));
        cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
        live(&mut cell, &rows, 0, BEAT_EVERY_MS);
        let woken_ms = BEAT_EVERY_MS + stood_ms;
        cell.alarm(&rows, at(woken_ms)).expect("the rows can be read");
        assert_eq!((gave_up(&mut cell), cell.calls()), (vec![], 1), "{stood_ms} ms");
        cell.beat(&rows, at(woken_ms + 1), 1, Epoch(1), beat("long")).expect("it is at work");
        assert_eq!(rows.get(1).trouble.strikes, 0);
        // After that, silence counts as ever.
        live(&mut cell, &rows, woken_ms + 1, woken_ms + SILENCE_MS);
        assert_eq!(gave_up(&mut cell), []);
        cell.alarm(&rows, at(woken_ms + 1 + SILENCE_MS)).expect("the rows can be read");
        assert_eq!(gave_up(&mut cell), [(1, Epoch(1))]);
    }
}

#[test]
fn a_silent_call_is_given_up_although_the_machine_stands_still_again_and_again() {
    let (rows, mut cell) = (Memory::default(), Cell::new(2));
    cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
    let mut alarms = 0;
    while gave_up(&mut cell).is_empty() {
        alarms += 1;
        assert!(alarms <= SILENCE_MS / TURN_GAP_MS, "each turn counts for something");
        cell.alarm(&rows, at(alarms * 3_600_000)).expect("the rows can be read");
    }
    assert_eq!(cell.calls(), 0);
}

#[test]
fn a_program_that_beats_keeps_its_call() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    for n in 1..20 {
        let now = at(n * BEAT_EVERY_MS);
        cell.beat(&rows, now, 1, Epoch(1), beat("long")).expect("it is at work");
        cell.alarm(&rows, now).expect("the rows can be read");
    }
    assert_eq!(gave_up(&mut cell), []);
    assert_eq!(rows.events(1), 0, "a beat writes nothing");
    let run = cell.find(&rows, &run.id).expect("it is there");
    assert_eq!(cell.view(&run).current_step.map(|step| step.name), Some("long".into()));
    let why = cell.why(&rows, at(400_000), &run.id).expect("it is there");
    assert_eq!(why.because, "Step 'long' (attempt 1) has been running for 400 s.");
}

#[test]
fn the_current_step_is_forgotten_with_the_next_commit_and_with_the_instance() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    let id = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run.id;
    let shown = |cell: &Cell| {
        let run = cell.find(&rows, &id).expect("it is there");
        cell.view(&run).current_step.map(|step| step.name)
    };
    cell.beat(&rows, at(20_000), 1, Epoch(1), beat("first")).expect("it is at work");
    assert_eq!(shown(&cell), Some("first".into()));
    assert_eq!(shown(&Cell::new(1)), None);
    let commit = said(Seq(0), vec![crate::step("first")], Then::Continue { open: None });
    cell.commit(&rows, at(21_000), 1, Epoch(1), commit, 1).expect("in turn");
    assert_eq!(shown(&cell), None);
    let names = vec![String::new(), "x".repeat(100_000)];
    for name in names {
        cell.beat(&rows, at(30_000), 1, Epoch(1), beat(&name)).expect("it is at work");
        assert_eq!(shown(&cell), None, "a name that no step may have");
    }
}

#[test]
fn whoever_follows_a_run_is_shown_the_steps_under_way() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    let activation =
        |cell: &mut Cell| cell.activation(&rows, at(1), 1, Epoch(1)).expect("it is held").followed;
    assert!(!activation(&mut cell), "nobody follows");
    let is_followed = |answer| match answer {
        Answer::Go { followed, .. } => followed,
        other @ (Answer::Stop | Answer::Refused { .. }) => panic!("{other:?}"),
    };
    assert!(!is_followed(cell.beat(&rows, at(2), 1, Epoch(1), beat("early")).expect("it is at work")));
    cell.watch(1);
    assert!(activation(&mut cell));
    let _ = cell.take_orders();
    assert!(is_followed(cell.beat(&rows, at(600), 1, Epoch(1), beat("long")).expect("it is at work")));
    let tells = |cell: &mut Cell| {
        cell.take_orders().own.iter().filter(|order| matches!(order, Order::TellReaders(1))).count()
    };
    assert_eq!(tells(&mut cell), 1);
    let mut reader = Reader::new(run.id.clone(), Cursor::default(), Kinds::default());
    let shown = |cell: &Cell, reader: &mut Reader| -> Vec<String> {
        let events = cell.read(&rows, reader).expect("it is there").events;
        let working = events.iter().filter(|event| event.kind == Kind::Working);
        working.map(|event| event.data.text().to_owned()).collect()
    };
    let since = at(0).as_millis();
    let long = format!(r#"{{"steps":[{{"op":"step:0:long","attempt":1,"since":{since}}}]}}"#);
    assert_eq!(shown(&cell, &mut reader), [long]);
    assert_eq!(shown(&cell, &mut reader), [""; 0], "once");
    cell.beat(&rows, at(20_600), 1, Epoch(1), beat("long")).expect("it is at work");
    assert_eq!((tells(&mut cell), shown(&cell, &mut reader).len()), (0, 0), "there is nothing new");
    cell.beat(&rows, at(30_000), 1, Epoch(1), beat("other")).expect("it is at work");
    assert_eq!((tells(&mut cell), shown(&cell, &mut reader).len()), (1, 1));
    let commit = said(Seq(0), vec![crate::step("other")], Then::Continue { open: None });
    assert!(is_followed(cell.commit(&rows, at(30_100), 1, Epoch(1), commit, 1).expect("in turn")));
    let mut late = Reader::new(run.id, Cursor::default(), Kinds::default());
    assert_eq!(shown(&cell, &mut late), [""; 0], "it has ended");
    assert_eq!(rows.events(1), 1, "no row is written for it");
}

#[test]
fn a_beat_that_is_longer_than_any_is_refused_before_it_is_read() {
    let step = r#"{"op":"step:0:a","attempt":1,"since":0}"#;
    let steps = |count: usize| format!(r#"{{"steps":[{}]}}"#, vec![step; count].join(","));
    assert_eq!(Beat::read(&steps(Beat::STEPS_MAX)).map(|beat| beat.steps.len()), Ok(Beat::STEPS_MAX));
    let error = Beat::read(&steps(100_000)).expect_err("it would be kept");
    assert_eq!(error, "it has more than 65536 bytes");
}

#[test]
fn a_program_whose_run_was_cancelled_hears_so_at_its_next_beat() {
    let (rows, mut cell) = (Memory::default(), Cell::new(1));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    cell.act(&rows, at(10), &run.id, "root", Action::Cancel).expect("it is cancelled");
    assert!(cell.beat(&rows, at(20_000), 1, Epoch(1), beat("long")).is_err());
}

#[test]
fn a_run_that_always_hangs_is_failed_after_a_bounded_number_of_calls() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    let (mut called, mut now_ms) = (calls(&mut cell).len(), 0);
    while rows.get(1).status() != Status::Failed {
        now_ms += 5_000;
        assert!(now_ms < 3_600_000, "it goes on for ever");
        cell.alarm(&rows, at(now_ms)).expect("the rows can be read");
        called += calls(&mut cell).len();
    }
    assert_eq!(called, STRIKES_MAX as usize);
    assert_eq!(cell.find(&rows, &run.id).expect("it is there").status(), Status::Failed);
    assert_eq!(cell.calls(), 0);
}

#[test]
fn hanging_workflows_for_every_place_leave_room_for_a_healthy_one() {
    const WINDOW: usize = 12;
    let (rows, mut cell) = (Memory::default(), Cell::new(WINDOW));
    let names: Vec<_> = (0..WINDOW).map(|n| format!("hangs{n}")).collect();
    for name in &names {
        for _ in 0..WINDOW {
            let new = stepwell_core::cell::NewRun { workflow: name.clone(), ..new_run(None) };
            cell.start(&rows, at(0), new).expect("it is accepted");
        }
    }
    // Their programs beat, so nobody gives up on them. One healthy run a second, which takes as long.
    let mut hanging: Vec<_> = calls(&mut cell);
    let (mut waited_ms, mut healthy) = (Vec::new(), std::collections::BTreeMap::new());
    for second in 1..600 {
        let now = at(second * 1_000);
        let new = stepwell_core::cell::NewRun { workflow: "healthy".into(), ..new_run(None) };
        let number = cell.start(&rows, now, new).expect("it is accepted").run.id.number;
        healthy.insert(number, second * 1_000);
        if second % 5 == 0 {
            cell.alarm(&rows, now).expect("the rows can be read");
        }
        if second % 20 == 0 {
            for (number, epoch) in hanging.clone() {
                cell.beat(&rows, now, number, epoch, beat("hang")).expect("it is at work");
            }
        }
        let mut called = calls(&mut cell);
        while let Some((number, epoch)) = called.pop() {
            let Some(began_ms) = healthy.remove(&number) else {
                hanging.push((number, epoch));
                continue;
            };
            waited_ms.push(second * 1_000 - began_ms);
            let commit = said(Seq(0), vec![], Then::Complete { output: Payload::null() });
            cell.commit(&rows, now, number, epoch, commit, 1).expect("in turn");
            cell.call_ended(&rows, now, number, epoch, CallEnd::Returned).expect("it is recorded");
            called.extend(calls(&mut cell));
        }
    }
    assert!(hanging.len() > 4 * WINDOW, "{} calls hang", hanging.len());
    assert!(healthy.len() <= 1, "{} healthy runs wait", healthy.len());
    let late = waited_ms.iter().filter(|ms| **ms > 0).count();
    let longest = waited_ms.iter().max().copied().unwrap_or_default();
    println!("{} healthy runs, {late} of them waited, {longest} ms at the longest", waited_ms.len());
    assert!(longest <= 2 * SLOW_MS + 5_000, "one waited for {longest} ms");
    assert!(waited_ms.iter().rev().take(500).all(|ms| *ms == 0), "after a minute nobody waits");
}
