//! Jobs that runs send: what queues are told.

use stepwell_core::{
    cell::{Action, Cell},
    object::{Address, Fault, Message},
    run::CallEnd,
};
use stepwell_protocol::{
    Code, Epoch, Event, Op, OpKind, Outcome, Payload, Seq,
    program::{Command, Then},
    queue::SentJob,
};

use super::{Memory, at, new_run, said};

fn job(queue: &str) -> SentJob {
    let (group, dedupe_id) = (Some("acme".into()), None);
    let job = SentJob::new(queue.into(), Payload::null());
    SentJob { delay_ms: 5, priority: 1, group, dedupe_id, ..job }
}

fn sends(queue: &str) -> Vec<Command> {
    let op = Op { kind: OpKind::Step, name: format!("send {queue}"), occurrence: 0 };
    vec![Command::JobSent { op, job: Box::new(job(queue)) }]
}

/// What was written, in order.
fn written(rows: &Memory) -> Vec<(Address, Message)> {
    let letters = rows.letters.borrow();
    let envelopes = letters.values().flat_map(|(letter, _)| letter.envelopes.clone());
    envelopes.map(|envelope| (envelope.to, envelope.message)).collect()
}

#[test]
fn a_job_that_a_run_sends_is_a_step_on_record_and_a_letter_to_its_queue_once() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    let commit = said(Seq(0), sends("mails"), Then::Continue { open: None });
    for _ in 0..2 {
        cell.commit(&rows, at(10), 1, Epoch(1), commit.clone(), 1).expect("it is taken");
    }
    let events: Vec<_> = rows.journal(1).into_iter().map(|record| record.event).collect();
    assert!(matches!(&events[..], [Event::StepFinished { outcome: Outcome::Ok(_), attempt: 1, .. }]));
    let message = Message::Job { run: run.id, seq: Seq(1), job: Box::new(job("mails")) };
    assert_eq!(written(&rows), [(Address::queue("default", "mails", 0), message)]);
}

#[test]
fn a_run_that_is_restarted_before_it_sent_a_job_sends_another() {
    let (rows, mut cell) = (Memory::default(), Cell::new(4));
    let run = cell.start(&rows, at(0), new_run(None)).expect("it is accepted").run;
    let end = || Then::Complete { output: Payload::null() };
    cell.commit(&rows, at(10), 1, Epoch(1), said(Seq(0), sends("mails"), end()), 1).expect("it is taken");
    cell.call_ended(&rows, at(15), 1, Epoch(1), CallEnd::Returned).expect("it is known");
    cell.act(&rows, at(20), &run.id, "root", Action::Restart { from: None }).expect("it has ended");
    let epoch = rows.get(1).epoch;
    cell.commit(&rows, at(30), 1, epoch, said(Seq(0), sends("mails"), end()), 2).expect("it is taken");
    let seqs: Vec<_> = written(&rows)
        .into_iter()
        .filter_map(|(_, message)| if let Message::Job { seq, .. } = message { Some(seq) } else { None })
        .collect();
    assert!(matches!(seqs[..], [first, second] if first != second), "{seqs:?}");
}

#[test]
fn a_job_that_no_queue_would_take_is_refused() {
    type Spoil = fn(&mut SentJob);
    let wrong: [(Spoil, Code); 5] = [
        (|job| job.queue = "stepwell.webhooks".into(), Code::InvalidRequest),
        (|job| job.queue = "a/b".into(), Code::InvalidRequest),
        (|job| job.priority = 10, Code::InvalidRequest),
        (|job| job.group = Some("\n".into()), Code::InvalidRequest),
        (
            |job| job.body = Payload::encode(&"a".repeat(1_900_000)).expect("it is JSON"),
            Code::PayloadTooLarge,
        ),
    ];
    for (spoil, expected) in wrong {
        let (rows, mut cell) = (Memory::default(), Cell::new(4));
        cell.start(&rows, at(0), new_run(None)).expect("it is accepted");
        let mut job = job("mails");
        spoil(&mut job);
        let op = Op { kind: OpKind::Step, name: "send".into(), occurrence: 0 };
        let commands = vec![Command::JobSent { op, job: Box::new(job) }];
        let commit = said(Seq(0), commands, Then::Continue { open: None });
        let refused = cell.commit(&rows, at(10), 1, Epoch(1), commit, 1);
        assert!(matches!(refused, Err(Fault::Rejected(problem)) if problem.code == expected));
        assert!(written(&rows).is_empty());
    }
}
