//! A run and a store in memory. Every input that a test gives goes through [`Bench::give`], which checks
//! what must hold after any transition whatever the test is about.

mod anew;
mod commits;
mod life;
mod pairs;
mod patches;
mod pauses;
mod restarts;
mod suspension;
mod timeouts;
mod times;
mod tokens;
mod trouble;
mod visits;
mod walk;
mod yields;

use stepwell_protocol::{
    Code, Epoch, Event, Failure, Op, OpKind, Payload, Place, Problem, Record, RunId, Seq, Shape, Timestamp,
    program::{Command, Commit, Open, Retry, Then},
};

use super::*;

/// A place in the window, with others beside it.
const SLOT: Slot = Slot { session: Transport::Capability, alone: false };

/// A restart that takes nothing back.
const RESTART: Input = Input::Restart {
    cuts: Vec::new(),
    signals: Vec::new(),
    dropped: None,
    keeps_progress: false,
    slot: Some(SLOT),
};
const ALONE: Slot = Slot { session: Transport::Capability, alone: true };
const TOKEN: Slot = Slot { session: Transport::Token, alone: false };

/// How a call ends that the program does not take.
fn refused() -> CallEnd {
    CallEnd::Refused(Problem::new(Code::AppKeyMissing, "no key"))
}

/// A run, its stored row and journal, and the time.
#[derive(Clone)]
struct Bench {
    now: Timestamp,
    run: Run,
    row: RunRow,
    journal: Vec<Record>,
    /// What its last event says besides.
    trailer: Trailer,
    hashes: u64,
}

impl Bench {
    fn start(slot: Option<Slot>) -> Self {
        Self::start_for(slot, None)
    }

    /// A run that may take so long.
    fn start_for(slot: Option<Slot>, timeout_ms: Option<u64>) -> Self {
        let now = Timestamp::from_millis(1_000_000);
        let id = RunId {
            place: Place { pool: "default".into(), generation: 1, cell: 0 },
            number: 1,
            suffix: RunId::suffix_from(7),
        };
        let start = Start { timeout_ms, slot, ..Start::plain(id, "w", 0, 5) };
        let (mut run, decision) = Run::start(now, start);
        run.apply_all(&decision.entries);
        let row = run.to_row();
        let bench = Self { now, run, row, journal: Vec::new(), trailer: Trailer::default(), hashes: 0 };
        bench.check();
        bench
    }

    fn running() -> Self {
        Self::start(Some(SLOT))
    }

    fn suspended(open: Vec<Open>) -> Self {
        let mut bench = Self::running();
        assert_eq!(bench.commit(vec![], Then::Suspend { open }).expect("nothing is in its way"), Reply::Stop);
        bench
    }

    fn give(&mut self, input: Input) -> Result<Decision, Rejection> {
        let before = self.run.clone();
        let decision = self.run.decide(self.now, input)?;
        let mut next = before.head.next();
        for entry in &decision.entries {
            if let Entry::Recorded { record, .. } = entry {
                assert_eq!(record.seq, next, "no position is used twice, and none is left out");
                next = next.next();
                self.record(record);
            }
        }
        self.run.apply_all(&decision.entries);
        if decision.entries.iter().any(|entry| entry.record().is_some()) {
            self.trailer = self.run.trailer();
        }
        if decision.entries.iter().any(Entry::changes_row) {
            self.row = self.run.to_row();
        }
        self.check();
        self.check_step(&before, &decision);
        Ok(decision)
    }

    fn record(&mut self, record: &Record) {
        if let Event::TimerFired { op, .. } = &record.event {
            let until = self.run.open.iter().find(|open| open.op == *op).and_then(|open| open.until);
            assert!(until.is_some_and(|until| until <= self.now), "{op} fired early or out of nothing");
        }
        self.journal.push(record.clone());
    }

    /// What the next instance of the cell would read.
    fn reloaded(&self) -> Run {
        let tail = Tail {
            head: self.journal.last().map_or(Seq(0), |record| record.seq),
            trailer: self.trailer.clone(),
            quarantined: false,
        };
        let Run { id, workflow, created_at, .. } = self.run.clone();
        Run::from_row(id, workflow, created_at, &self.row.state, tail).expect("it was just written")
    }

    /// The cell dies and comes back.
    fn crash(&mut self) {
        self.run = self.reloaded();
        if let Phase::Running { .. } = self.run.phase {
            self.give(Input::Reload).expect("a reload is never refused");
        }
    }

    fn check(&self) {
        let mut expected = self.run.clone();
        if let Phase::Running { lease, .. } = &mut expected.phase {
            *lease = None;
        }
        let reloaded = self.reloaded();
        // The bill is an estimate: what a lost instance had counted for it is not worth a row.
        expected.spent = reloaded.spent;
        // It is stored when the row is: a failed attempt alone is not worth one either.
        expected.last_error.clone_from(&reloaded.last_error);
        assert_eq!(reloaded, expected, "rows and memory say the same");
        assert_eq!(self.row.wake_at, self.run.wake_at(), "the row is found when the run is due");
        assert_eq!(self.row.status, self.run.status().as_str());
        let unfinished =
            matches!(self.run.phase, Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended);
        let waits = self.run.open.iter().any(|open| open.signal.is_some());
        assert!(!unfinished || self.run.wake_at().is_some() || waits, "a run that nothing wakes");
    }

    fn check_step(&self, before: &Run, decision: &Decision) {
        assert!(self.run.epoch >= before.epoch && self.run.head >= before.head, "nothing goes back");
        let reopens = decision.entries.iter().any(|entry| matches!(entry, Entry::Reopened { .. }));
        if let Phase::Ended { .. } = before.phase
            && !reopens
        {
            assert_eq!(&self.run, before, "what has ended does not change");
            assert!(decision.effects.is_empty());
        }
        let suspends = decision.entries.iter().any(|entry| matches!(entry, Entry::Suspended));
        if suspends {
            // A cell that has looked at what is due by now does not look there again.
            assert!(self.run.wake_at().is_none_or(|at| at > self.now), "suspended until a time in the past");
        }
        let activates = decision.effects.iter().any(|effect| matches!(effect, Effect::Activate { .. }));
        if activates {
            assert_eq!(self.run.epoch, before.epoch.next(), "each activation has an epoch of its own");
            assert!(self.run.is_held_by(self.run.epoch));
        }
        // A pending run that nobody has queued is found by the alarm only if its time is to come.
        if let Phase::Pending { not_before } = self.run.phase
            && !matches!(before.phase, Phase::Pending { .. })
        {
            assert!(not_before > self.now || decision.effects.contains(&Effect::Enqueue));
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus_millis(ms);
    }

    /// A commit that continues the journal as it is.
    fn next_commit(&mut self, commands: Vec<Command>, then: Then) -> (Commit, u64) {
        self.hashes += 1;
        (Commit::new(self.run.epoch, self.run.last_counted(), commands, then), self.hashes)
    }

    fn commit(&mut self, commands: Vec<Command>, then: Then) -> Result<Reply, Rejection> {
        let (commit, hash) = self.next_commit(commands, then);
        self.send(&commit, hash)
    }

    fn send(&mut self, commit: &Commit, hash: u64) -> Result<Reply, Rejection> {
        self.give(Input::Commit { commit: commit.clone(), hash, homes: Vec::new() })
            .map(|decision| decision.reply)
    }

    fn refused(&mut self, commit: &Commit, hash: u64) -> Code {
        let before = self.run.clone();
        let problem = self.send(commit, hash).expect_err("it should have been refused");
        assert_eq!(self.run, before, "what is refused changes nothing");
        problem.code
    }

    fn signal(&mut self, name: &str, slot: Option<Slot>) -> Result<Decision, Rejection> {
        self.give(Input::Signal { signal: Signal::new(name, Payload::null()), slot })
    }

    fn activate(&mut self, slot: Slot) {
        self.now = self.run.wake_at().map_or(self.now, |at| at.max(self.now));
        self.give(Input::Activate(slot)).expect("an activation is never refused");
        assert!(matches!(self.run.phase, Phase::Running { .. }), "{:?}", self.run.phase);
    }

    /// What of its journal still counts.
    fn counted(&self) -> impl Iterator<Item = &Record> {
        self.journal.iter().filter(|record| self.run.counts(record.seq))
    }

    fn events(&self) -> Vec<&Event> {
        self.journal.iter().map(|record| &record.event).collect()
    }
}

fn op(kind: OpKind, name: &str, occurrence: u32) -> Op {
    Op { kind, name: name.into(), occurrence }
}

fn succeeded(name: &str) -> Command {
    Command::StepSucceeded {
        op: op(OpKind::Step, name, 0),
        attempt: 1,
        output: Payload::null(),
        took_ms: None,
    }
}

fn failed(name: &str, attempt: u32, failure: Failure, retry: &Retry) -> Command {
    Command::StepFailed {
        op: op(OpKind::Step, name, 0),
        attempt,
        failure,
        retry: retry.clone(),
        retry_after_ms: None,
        took_ms: None,
    }
}

fn sleep(occurrence: u32, ms: u64) -> Open {
    Open::Sleep { op: op(OpKind::Sleep, "sleep", occurrence), ms }
}

fn wait(name: &str, occurrence: u32, timeout_ms: Option<u64>) -> Open {
    Open::Wait {
        op: op(OpKind::Wait, name, occurrence),
        signal: name.into(),
        timeout_ms,
        shape: Shape::Any,
        asked: None,
        event: None,
    }
}

fn go_on() -> Then {
    Then::Continue { open: None }
}

fn problem() -> Problem {
    Problem::new(Code::Diverged, "somebody has to look")
}
