//! Wait tokens: an answer counts once, for one wait, and only while that wait is not over.

use stepwell_core::{
    cell::{Action, Cell, TokenAnswer},
    object::{Fault, Machine as _},
    run::{CallEnd, Run, Signal},
};
use stepwell_protocol::{
    Code, Epoch, Event, Op, OpKind, Payload, Record, RunId, Seq, Shape, Timestamp,
    program::{Answer, Commit, News, Open, Then},
    rest::Status,
    wait_token::{Asked, Decision, NewToken, Standing, WaitToken},
};

use crate::{Memory, at, memory::Failed, new_run, said, step};

const EXPIRES_MS: u64 = 10_000;

fn wait(occurrence: u32, timeout_ms: Option<u64>, shape: Shape) -> Open {
    let op = Op { kind: OpKind::Wait, name: "ok".into(), occurrence };
    let asked = Asked { title: "Go?".into(), detail: "It is late.".into(), expires_at: at(EXPIRES_MS) };
    Open::Wait { op, signal: "ok".into(), timeout_ms, shape, asked: Some(Box::new(asked)), event: None }
}

/// A cell with a run whose program is at work.
fn started() -> (Memory, Cell, RunId) {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    (rows, cell, run.id)
}

/// The same with a run that waits for these.
fn waiting(open: Vec<Open>) -> (Memory, Cell, RunId) {
    let (rows, mut cell, id) = started();
    let commit = said(Seq(0), vec![], Then::Suspend { open });
    assert_eq!(cell.commit(&rows, at(1), 1, Epoch(1), commit, 1).expect("in turn"), Answer::Stop);
    (rows, cell, id)
}

fn token(run: &RunId, occurrence: u32) -> WaitToken {
    WaitToken {
        namespace: "default".into(),
        run: run.clone(),
        life: 1,
        name: "ok".into(),
        occurrence,
        expires_at: at(EXPIRES_MS),
    }
}

fn number(n: u32) -> TokenAnswer {
    TokenAnswer::Payload(Payload::encode(&n).expect("it is JSON"))
}

fn code<T: std::fmt::Debug>(refused: Result<T, Fault<Failed>>) -> Code {
    match refused {
        Err(Fault::Rejected(problem)) => problem.code,
        other => panic!("{other:?}"),
    }
}

/// The payload of a signal, and the wait that it is for.
fn signal(event: &Event) -> Option<(String, Option<u32>)> {
    match event {
        Event::SignalReceived { payload, to, .. } => Some((payload.text().to_owned(), *to)),
        Event::StepFinished { .. }
        | Event::StepRetrying { .. }
        | Event::StepBegun { .. }
        | Event::StepLetIn { .. }
        | Event::TimerFired { .. }
        | Event::ChildInvoked { .. }
        | Event::ChildStarted { .. }
        | Event::ChildFinished { .. } => None,
    }
}

/// The signals on record.
fn received(rows: &Memory) -> Vec<(String, Option<u32>)> {
    rows.journal(1).iter().filter_map(|record| signal(&record.event)).collect()
}

#[test]
fn an_answer_counts_once_and_a_repeat_is_told_so_by_any_instance() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any)]);
    let token = token(&id, 0);
    assert_eq!(cell.show_token(&rows, at(2), &token).expect("it is open").status, Standing::Open);
    assert!(cell.complete_token(&rows, at(2), &token, number(1)).expect("it is the first"));
    assert!(!cell.complete_token(&rows, at(3), &token, number(2)).expect("it changes nothing"));
    let mut next = Cell::new(4);
    assert!(!next.complete_token(&rows, at(EXPIRES_MS * 2), &token, number(3)).expect("nor does that"));
    assert_eq!(next.show_token(&rows, at(4), &token).expect("it is known").status, Standing::Answered);
    assert_eq!(received(&rows), [("1".into(), Some(0))]);
    assert!(rows.get(1).is_held_by(Epoch(2)), "it goes on");
}

#[test]
fn a_token_shows_what_is_asked_and_changes_nothing() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Bool)]);
    let before = rows.get(1);
    let view = cell.show_token(&rows, at(2), &token(&id, 0)).expect("it is open");
    assert_eq!((view.title.as_str(), view.detail.as_str()), ("Go?", "It is late."));
    assert!(view.has_form && view.expects.is_some());
    assert_eq!(rows.get(1), before);
}

#[test]
fn what_the_form_sends_is_what_the_wait_takes() {
    let object = Shape::Object { required: [("decision".to_owned(), Shape::Any)].into() };
    for (shape, sent) in [
        (Shape::Any, Some(r#"{"decision":"accept"}"#)),
        (object, Some(r#"{"decision":"accept"}"#)),
        (Shape::Bool, Some("true")),
        (Shape::Number, None),
    ] {
        let (rows, mut cell, id) = waiting(vec![wait(0, None, shape)]);
        let token = token(&id, 0);
        assert_eq!(cell.show_token(&rows, at(2), &token).expect("it is open").has_form, sent.is_some());
        let done = cell.complete_token(&rows, at(2), &token, TokenAnswer::Form(Decision::accept()));
        match sent {
            Some(text) => {
                assert!(done.expect("it fits"));
                assert_eq!(received(&rows)[0].0, text);
            }
            None => assert_eq!(code(done), Code::SignalMismatch),
        }
    }
}

#[test]
fn an_answer_that_does_not_fit_leaves_the_token_open() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Bool)]);
    let token = token(&id, 0);
    assert_eq!(code(cell.complete_token(&rows, at(2), &token, number(1))), Code::SignalMismatch);
    assert!(
        cell.complete_token(&rows, at(3), &token, TokenAnswer::Form(Decision::reject())).expect("it fits")
    );
}

#[test]
fn an_early_answer_is_kept_for_its_own_wait() {
    let (rows, mut cell, id) = started();
    let token = token(&id, 1);
    assert_eq!(cell.show_token(&rows, at(1), &token).expect("it is early").status, Standing::Early);
    assert!(cell.complete_token(&rows, at(1), &token, number(1)).expect("it is kept"));
    assert!(!cell.complete_token(&rows, at(1), &token, number(2)).expect("it changes nothing"));
    // The program has not seen it, and must look before it sleeps.
    let open = vec![wait(0, None, Shape::Any)];
    let commit = said(Seq(0), vec![], Then::Suspend { open: open.clone() });
    let Answer::Go { news, .. } = cell.commit(&rows, at(2), 1, Epoch(1), commit, 1).expect("in turn") else {
        panic!("there is news");
    };
    assert!(matches!(&news[..], [News::Record(_)]));
    let commit = said(Seq(1), vec![], Then::Suspend { open });
    assert_eq!(cell.commit(&rows, at(2), 1, Epoch(1), commit, 2).expect("in turn"), Answer::Stop);
    assert_eq!(rows.get(1).status(), Status::Waiting, "the first wait has no answer");
}

#[test]
fn of_two_waits_of_one_name_each_token_answers_its_own() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any), wait(1, None, Shape::Any)]);
    assert!(cell.complete_token(&rows, at(2), &token(&id, 1), number(1)).expect("it is open"));
    let run = rows.get(1);
    assert_eq!(run.open.iter().map(|open| open.op.occurrence).collect::<Vec<_>>(), [0]);
}

#[test]
fn between_an_answer_and_the_end_of_the_wait_one_clock_decides() {
    // The alarm is late: the answer comes first, but after its time.
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any)]);
    let token = token(&id, 0);
    assert_eq!(code(cell.complete_token(&rows, at(EXPIRES_MS), &token, number(1))), Code::TokenExpired);
    cell.alarm(&rows, at(EXPIRES_MS)).expect("the rows can be read");
    assert_eq!(code(cell.show_token(&rows, at(EXPIRES_MS), &token)), Code::TokenExpired);
    let timers = |rows: &Memory| {
        rows.journal(1).iter().filter(|it| matches!(it.event, Event::TimerFired { .. })).count()
    };
    assert_eq!((timers(&rows), received(&rows).len()), (1, 0));
    // The answer is a moment before its time: the alarm finds nothing to do.
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any)]);
    let token = self::token(&id, 0);
    assert!(cell.complete_token(&rows, at(EXPIRES_MS - 1), &token, number(1)).expect("it is in time"));
    cell.alarm(&rows, at(EXPIRES_MS)).expect("the rows can be read");
    assert_eq!((timers(&rows), received(&rows).len()), (0, 1));
}

#[test]
fn a_wait_that_gave_up_before_its_token_takes_no_answer() {
    let (rows, mut cell, id) = waiting(vec![wait(0, Some(100), Shape::Any)]);
    cell.alarm(&rows, at(200)).expect("the rows can be read");
    let token = token(&id, 0);
    assert_eq!(code(cell.complete_token(&rows, at(201), &token, number(1))), Code::TokenRevoked);
    assert_eq!(code(Cell::new(4).show_token(&rows, at(201), &token)), Code::TokenRevoked);
    assert_eq!(received(&rows), []);
}

#[test]
fn a_wait_that_its_program_dropped_takes_no_answer() {
    let (rows, mut cell, id) = started();
    let token = token(&id, 0);
    let commit = said(Seq(0), vec![], Then::Continue { open: Some(vec![wait(0, None, Shape::Any)]) });
    cell.commit(&rows, at(1), 1, Epoch(1), commit, 1).expect("in turn");
    assert_eq!(cell.show_token(&rows, at(2), &token).expect("it is open").status, Standing::Open);
    let commit = said(Seq(0), vec![step("a")], Then::Continue { open: Some(vec![]) });
    cell.commit(&rows, at(3), 1, Epoch(1), commit, 2).expect("in turn");
    assert_eq!(code(cell.complete_token(&rows, at(4), &token, number(1))), Code::TokenRevoked);
}

#[test]
fn a_wait_that_a_signal_answered_needs_no_token() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any)]);
    cell.signal(&rows, at(2), &id, Signal::new("ok", Payload::null())).expect("it waits for it");
    assert_eq!(code(cell.complete_token(&rows, at(3), &token(&id, 0), number(1))), Code::TokenRevoked);
}

#[test]
fn tokens_end_with_their_run_and_an_answer_is_known_beyond_that() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any), wait(1, None, Shape::Any)]);
    assert!(cell.complete_token(&rows, at(2), &token(&id, 0), number(1)).expect("it is open"));
    cell.act(&rows, at(3), &id, "somebody", Action::Cancel).expect("it can be");
    assert_eq!(code(cell.complete_token(&rows, at(4), &token(&id, 1), number(1))), Code::TokenRevoked);
    assert!(!cell.complete_token(&rows, at(4), &token(&id, 0), number(1)).expect("it was answered"));
    let mut gone = token(&id, 0);
    gone.run.suffix = RunId::suffix_from(1);
    assert_eq!(code(cell.show_token(&rows, at(4), &gone)), Code::TokenRevoked);
}

#[test]
fn a_token_is_good_in_one_life_of_its_run() {
    let (rows, mut cell, id) = started();
    let anew = Then::Anew { input: Payload::null(), keeps: vec![], keeps_bytes: 0 };
    cell.commit(&rows, at(1), 1, Epoch(1), said(Seq(0), vec![step("a")], anew), 1).expect("in turn");
    assert_eq!(code(cell.complete_token(&rows, at(2), &token(&id, 0), number(1))), Code::TokenRevoked);
    let next = WaitToken { life: 2, ..token(&id, 0) };
    assert_eq!(cell.show_token(&rows, at(2), &next).expect("it is early").status, Standing::Early);
}

#[test]
fn a_run_that_was_taken_back_to_before_its_answer_may_get_another() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any)]);
    let token = token(&id, 0);
    assert!(cell.complete_token(&rows, at(2), &token, number(1)).expect("it is open"));
    cell.act(&rows, at(3), &id, "somebody", Action::Pause).expect("it can be");
    cell.act(&rows, at(3), &id, "somebody", Action::DropSignal { seq: Seq(1) }).expect("it can be");
    for epoch in [Epoch(1), Epoch(2)] {
        cell.call_ended(&rows, at(3), 1, epoch, CallEnd::Returned).expect("it is recorded");
    }
    let run = rows.get(1);
    // What was taken back does not count.
    let commit = said(Seq(0), vec![], Then::Suspend { open: vec![wait(0, None, Shape::Any)] });
    let epoch = run.epoch;
    assert_eq!(cell.commit(&rows, at(4), 1, epoch, commit, 9).expect("in turn"), Answer::Stop);
    assert_eq!(cell.show_token(&rows, at(5), &token).expect("it is open").status, Standing::Open);
    assert!(cell.complete_token(&rows, at(5), &token, number(2)).expect("it is open"));
    assert!(!cell.complete_token(&rows, at(6), &token, number(3)).expect("it was answered"));
}

#[test]
fn an_answer_that_was_dropped_may_be_given_again_at_once() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any)]);
    let token = token(&id, 0);
    assert!(cell.complete_token(&rows, at(2), &token, number(1)).expect("it is open"));
    cell.act(&rows, at(3), &id, "somebody", Action::Pause).expect("it can be");
    cell.act(&rows, at(3), &id, "somebody", Action::DropSignal { seq: Seq(1) }).expect("it can be");
    // It has not come back to its wait yet.
    assert_ne!(rows.get(1).status(), Status::Waiting);
    assert_eq!(cell.show_token(&rows, at(4), &token).expect("it is early").status, Standing::Early);
    assert!(cell.complete_token(&rows, at(4), &token, number(2)).expect("it is kept"));
    assert!(!Cell::new(4).complete_token(&rows, at(5), &token, number(3)).expect("it was answered"));
    assert_eq!(received(&rows), [("1".into(), Some(0)), ("2".into(), Some(0))]);
}

#[test]
fn an_answer_that_was_received_again_can_be_dropped_too() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any)]);
    let token = token(&id, 0);
    assert!(cell.complete_token(&rows, at(2), &token, number(1)).expect("it is open"));
    let again = |cell: &mut Cell, action| {
        cell.act(&rows, at(3), &id, "somebody", Action::Pause).expect("it can be");
        cell.act(&rows, at(3), &id, "somebody", action).expect("it can be");
    };
    again(&mut cell, Action::Restart { from: None });
    assert!(!cell.complete_token(&rows, at(4), &token, number(2)).expect("it was answered"));
    again(&mut cell, Action::DropSignal { seq: Seq(2) });
    assert!(cell.complete_token(&rows, at(4), &token, number(3)).expect("it is kept"));
}

#[test]
fn an_answer_that_does_not_fit_is_refused_while_the_run_is_at_work_too() {
    let (rows, mut cell, id) = started();
    let open = vec![wait(0, None, Shape::Bool), wait(1, None, Shape::Any)];
    let commit = said(Seq(0), vec![], Then::Continue { open: Some(open) });
    cell.commit(&rows, at(1), 1, Epoch(1), commit, 1).expect("in turn");
    let token = token(&id, 0);
    assert_eq!(code(cell.complete_token(&rows, at(2), &token, number(1))), Code::SignalMismatch);
    cell.act(&rows, at(2), &id, "somebody", Action::Pause).expect("it can be");
    assert_eq!(code(cell.complete_token(&rows, at(2), &token, number(1))), Code::SignalMismatch);
    assert_eq!(received(&rows), []);
    let form = TokenAnswer::Form(Decision::reject());
    assert!(cell.complete_token(&rows, at(3), &token, form).expect("it fits"));
    assert_eq!(received(&rows), [("false".into(), Some(0))]);
}

#[test]
fn a_signal_for_whichever_wait_comes_is_not_measured_by_one_that_may_be_over() {
    let (rows, mut cell, id) = started();
    let commit = said(Seq(0), vec![], Then::Continue { open: Some(vec![wait(0, None, Shape::Bool)]) });
    cell.commit(&rows, at(1), 1, Epoch(1), commit, 1).expect("in turn");
    cell.signal(&rows, at(2), &id, Signal::new("ok", Payload::null())).expect("it is kept");
}

#[test]
fn a_wait_that_ended_before_anybody_was_told_of_it_takes_no_answer() {
    let (rows, mut cell, id) = started();
    let token = token(&id, 0);
    // A signal that was there already has answered it.
    cell.signal(&rows, at(1), &id, Signal::new("ok", Payload::null())).expect("it is kept");
    let over = |base, then| Commit { over: vec![token.op()], ..said(base, vec![], then) };
    let commit = over(Seq(1), Then::Continue { open: None });
    cell.commit(&rows, at(2), 1, Epoch(1), commit, 1).expect("in turn");
    assert_eq!(code(cell.complete_token(&rows, at(3), &token, number(1))), Code::TokenRevoked);
    assert_eq!(code(Cell::new(4).show_token(&rows, at(3), &token)), Code::TokenRevoked);
    // Each activation says so again, and it is stored once.
    let before = rows.get(1).spent;
    let commit = over(Seq(1), Then::Continue { open: None });
    cell.commit(&rows, at(4), 1, Epoch(1), commit, 2).expect("in turn");
    assert_eq!(rows.get(1).spent.rows, before.rows + 1, "only its own row");
}

#[test]
fn what_was_not_seen_does_not_keep_a_wait_from_being_over() {
    let (rows, mut cell, id) = started();
    let token = token(&id, 0);
    cell.signal(&rows, at(1), &id, Signal::new("other", Payload::null())).expect("it is kept");
    let then = Then::Suspend { open: vec![wait(1, None, Shape::Any)] };
    let commit = Commit { over: vec![token.op()], ..said(Seq(0), vec![], then) };
    let answer = cell.commit(&rows, at(2), 1, Epoch(1), commit, 1).expect("in turn");
    assert!(matches!(answer, Answer::Go { .. }), "there is news");
    assert_eq!(code(Cell::new(4).show_token(&rows, at(3), &token)), Code::TokenRevoked);
}

#[test]
fn a_wait_of_an_earlier_activation_that_was_dropped_takes_no_answer() {
    let op = Op { kind: OpKind::Sleep, name: "nap".into(), occurrence: 0 };
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any), Open::Sleep { op, ms: 100 }]);
    let token = token(&id, 0);
    cell.alarm(&rows, at(200)).expect("the rows can be read");
    let run = rows.get(1);
    assert_eq!(cell.show_token(&rows, at(201), &token).expect("nobody knows").status, Standing::Open);
    let commit = Commit { over: vec![token.op()], ..said(run.head, vec![], Then::Continue { open: None }) };
    cell.commit(&rows, at(202), 1, run.epoch, commit, 7).expect("in turn");
    assert_eq!(code(cell.complete_token(&rows, at(203), &token, number(1))), Code::TokenRevoked);
}

#[test]
fn a_wait_that_a_patch_has_passed_by_takes_no_answer() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any), wait(1, None, Shape::Any)]);
    assert!(cell.complete_token(&rows, at(2), &token(&id, 1), number(1)).expect("it is open"));
    let run = rows.get(1);
    // It has not seen the answer.
    let then = Then::Continue { open: Some(vec![wait(2, None, Shape::Any)]) };
    let commit = Commit { patches: vec!["p".into()], ..said(Seq(0), vec![], then) };
    cell.commit(&rows, at(3), 1, run.epoch, commit, 7).expect("in turn");
    assert_eq!(code(cell.complete_token(&rows, at(4), &token(&id, 0), number(1))), Code::TokenRevoked);
}

#[test]
fn somebody_outside_gets_a_token_of_a_wait_that_is_open_or_named_exactly() {
    let (rows, mut cell, id) = waiting(vec![wait(3, None, Shape::Any)]);
    let new = |occurrence, expires_ms| NewToken { name: "ok".into(), occurrence, expires_ms };
    let made = cell.new_token(&rows, at(2), &id, new(None, None)).expect("it waits");
    assert_eq!((made.token.occurrence, made.token.expires_at), (3, at(EXPIRES_MS)), "it ends with the wait");
    let made = cell.new_token(&rows, at(2), &id, new(Some(4), Some(5))).expect("in advance");
    assert_eq!((made.token.occurrence, made.token.expires_at), (4, at(7)));
    let other = NewToken { name: "other".into(), ..new(None, None) };
    assert_eq!(code(cell.new_token(&rows, at(2), &id, other)), Code::WaitNotFound);
    cell.act(&rows, at(3), &id, "somebody", Action::Cancel).expect("it can be");
    assert_eq!(code(cell.new_token(&rows, at(4), &id, new(None, None))), Code::RunEnded);
}

#[test]
fn a_run_keeps_the_key_that_it_has_made_tokens_with() {
    let (rows, mut cell, _) = started();
    let key = |rows: &Memory| rows.get(1).token_key;
    assert_eq!(cell.activation(&rows, at(1), 1, Epoch(1)).expect("it is held").tokens, None);
    let commit = Commit {
        token_key: Some("5e3c836c".into()),
        ..said(Seq(0), vec![step("a")], Then::Continue { open: None })
    };
    cell.commit(&rows, at(1), 1, Epoch(1), commit, 1).expect("in turn");
    assert_eq!(key(&rows).as_deref(), Some("5e3c836c"));
    let tokens = cell.activation(&rows, at(2), 1, Epoch(1)).expect("it is held").tokens;
    assert_eq!(tokens.expect("it says which").key, "5e3c836c");
    let long = Commit {
        token_key: Some("x".repeat(65)),
        ..said(Seq(1), vec![step("b")], Then::Continue { open: None })
    };
    assert_eq!(code(cell.commit(&rows, at(3), 1, Epoch(1), long, 2)), Code::InvalidRequest);
}

#[test]
fn why_names_the_token_and_when_it_ends() {
    let (rows, mut cell, id) = waiting(vec![wait(0, None, Shape::Any)]);
    let why = cell.why(&rows, at(2), &id).expect("it is there");
    assert_eq!(why.because, "It waits for token 'ok'.");
    let [waits] = &why.waits_for[..] else { panic!("{why:?}") };
    let until: Option<Timestamp> = waits.until;
    assert_eq!((waits.kind.as_str(), waits.name.as_str(), until), ("token", "ok", Some(at(EXPIRES_MS))));
}

/// A small generator: the same seed gives the same walk.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What has become of the first wait, as a replay finds it: the first event that counts and answers it.
fn outcome(run: &Run, journal: &[Record]) -> Option<&'static str> {
    journal.iter().filter(|record| run.counts(record.seq)).find_map(|record| match signal(&record.event) {
        Some((_, Some(_))) => Some("answered"),
        Some((_, None)) => Some("signalled"),
        None => matches!(record.event, Event::TimerFired { .. }).then_some("timed out"),
    })
}

/// The answers that came by links and count.
fn answers(run: &Run, journal: &[Record]) -> Vec<(Seq, String)> {
    let counted = journal.iter().filter(|record| run.counts(record.seq));
    let answers = counted.filter_map(|record| match signal(&record.event) {
        Some((payload, Some(0))) => Some((record.seq, payload)),
        Some(_) | None => None,
    });
    answers.collect()
}

#[test]
fn whatever_comes_in_whatever_order_a_wait_has_one_outcome_and_everybody_is_told_that_one() {
    let mut outcomes = std::collections::BTreeMap::<&str, usize>::new();
    let mut count = |what| *outcomes.entry(what).or_default() += 1;
    for seed in 1..=3_000_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (rows, mut cell, id) = started();
        let token = token(&id, 0);
        let timeout_ms = (dice.roll(2) == 0).then(|| 1 + dice.roll(2 * EXPIRES_MS));
        let shape = if dice.roll(2) == 0 { Shape::Any } else { Shape::Number };
        let (mut now, mut hash) = (1, 0);
        // Whether its program has said that it is past the wait, and nobody has taken it back since.
        let mut is_past = false;
        for _ in 0..14 {
            now += dice.roll(EXPIRES_MS / 4);
            let (run, journal) = (rows.get(1), rows.journal(1));
            match dice.roll(10) {
                // Its program says that it waits, asleep or beside a step, with or without having seen what came.
                0 | 5 | 7 if run.is_held_by(run.epoch) => {
                    hash += 1;
                    let is_over = outcome(&run, &journal).is_some();
                    let sees_all = dice.roll(2) == 0;
                    let base =
                        if sees_all { run.last_counted() } else { run.mark.map_or(Seq(0), |mark| mark.base) };
                    let ends = is_over && base == run.last_counted();
                    let open = if ends { vec![] } else { vec![wait(0, timeout_ms, shape.clone())] };
                    let then = match dice.roll(2) {
                        // It says nothing of it but that it is over.
                        0 if ends => Then::Continue { open: None },
                        1 if !ends => Then::Suspend { open },
                        _ => Then::Continue { open: Some(open) },
                    };
                    let mut commit = said(base, vec![], then);
                    let is_answered = !answers(&run, &journal).is_empty();
                    commit.over.extend((ends && !is_answered).then(|| token.op()));
                    let said = cell.commit(&rows, at(now), 1, run.epoch, commit, hash);
                    is_past |= ends && said.is_ok();
                }
                1 | 6 => cell.alarm(&rows, at(now)).expect("the rows can be read"),
                // Another instance.
                2 => cell = Cell::new(4),
                3 if dice.roll(3) == 0 => {
                    let _ = cell.signal(&rows, at(now), &id, Signal::new("ok", Payload::null()));
                }
                // Somebody takes it back to before an answer, as if that had never come.
                8 => {
                    if let Some((seq, _)) = answers(&run, &journal).first() {
                        cell.act(&rows, at(now), &id, "somebody", Action::Pause).expect("it can be");
                        let dropped = Action::DropSignal { seq: *seq };
                        cell.act(&rows, at(now), &id, "somebody", dropped).expect("it can be");
                        is_past = false;
                        count("dropped");
                    }
                }
                4 | 9 => {
                    let fits = dice.roll(3) > 0;
                    let answer = if fits {
                        number(1)
                    } else {
                        TokenAnswer::Payload(Payload::encode(&"no").expect("a text is JSON"))
                    };
                    let before = answers(&run, &journal);
                    let is_open = run.wait_of(&token).is_some();
                    let told = cell.complete_token(&rows, at(now), &token, answer);
                    let after = answers(&rows.get(1), &rows.journal(1));
                    match told {
                        Ok(true) => {
                            assert_eq!((before.len(), after.len()), (0, 1), "seed {seed}: it is on record");
                            assert!(!is_past, "seed {seed}: nobody will read it");
                            assert!(fits || shape.is_any() || !is_open, "seed {seed}: it does not fit");
                            count(if is_open { "answered" } else { "early" });
                        }
                        Ok(false) => {
                            assert_eq!((before.len(), after.len()), (1, 1), "seed {seed}: a repeat of what?");
                            count("repeated");
                        }
                        Err(_) => {
                            assert_eq!(before, after, "seed {seed}: it was refused");
                            count("refused");
                        }
                    }
                }
                _ => {}
            }
        }
        let (run, journal) = (rows.get(1), rows.journal(1));
        let first = outcome(&run, &journal);
        if first == Some("timed out") {
            assert_eq!(answers(&run, &journal), [], "seed {seed}: it timed out");
        }
        count(first.unwrap_or("open"));
    }
    for what in ["timed out", "answered", "signalled", "early", "repeated", "refused", "dropped"] {
        assert!(outcomes.get(what).is_some_and(|count| *count > 20), "{outcomes:?}");
    }
}
