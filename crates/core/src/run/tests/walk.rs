//! Random walks: an honest program, its predecessors that have not noticed that they were replaced, a
//! clock, senders of signals and a cell that dies. After every transition, what must always hold, holds.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stepwell_protocol::Outcome;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Move {
    Activate(Slot),
    Program(Act),
    /// The program finds out what happened since it last heard.
    Listen,
    Repeat,
    /// A copy of an earlier commit arrives, of so many.
    Late(u32),
    /// Whoever holds the call says that it is alive.
    Beat,
    Zombie(Act),
    Misplaced(u32),
    Signal(u8, Option<Slot>),
    Cancel,
    Pause,
    Resume(Option<Slot>),
    /// Back to a position, of so many of the journal's.
    Restart(u32, Option<Slot>),
    Wake(Option<Slot>),
    Pass(u64),
    Crash,
    CallEnds(u8),
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Succeed,
    Fail {
        terminal: bool,
    },
    /// A step that must not run twice is about to run.
    Begin,
    Sleep(u64),
    SleepUntil(u64),
    Wait(u8, Option<u64>),
    Patch(u8),
    Progress,
    Suspend,
    Yield,
    Complete,
    Pause,
}

fn slots() -> impl Strategy<Value = Slot> {
    (any::<bool>(), any::<bool>()).prop_map(|(token, alone)| Slot {
        session: if token { Transport::Token } else { Transport::Capability },
        alone,
    })
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => Just(Act::Succeed),
        6 => proptest::bool::weighted(0.2).prop_map(|terminal| Act::Fail { terminal }),
        2 => Just(Act::Begin),
        4 => (0..400_u64).prop_map(Act::Sleep),
        2 => (0..400_u64).prop_map(Act::SleepUntil),
        1 => (0..3_u8).prop_map(Act::Patch),
        1 => Just(Act::Progress),
        4 => (0..2_u8, proptest::option::of(0..400_u64)).prop_map(|(name, ms)| Act::Wait(name, ms)),
        8 => Just(Act::Suspend),
        2 => Just(Act::Yield),
        1 => prop_oneof![Just(Act::Complete), Just(Act::Pause)],
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        16 => slots().prop_map(Move::Activate),
        40 => acts().prop_map(Move::Program),
        8 => Just(Move::Listen),
        6 => Just(Move::Repeat),
        6 => any::<u32>().prop_map(Move::Late),
        4 => Just(Move::Beat),
        6 => acts().prop_map(Move::Zombie),
        4 => (0..4_u32).prop_map(Move::Misplaced),
        14 => (0..2_u8, proptest::option::of(slots())).prop_map(|(name, slot)| Move::Signal(name, slot)),
        1 => Just(Move::Cancel),
        6 => Just(Move::Pause),
        8 => proptest::option::of(slots()).prop_map(Move::Resume),
        5 => (any::<u32>(), proptest::option::of(slots())).prop_map(|(to, slot)| Move::Restart(to, slot)),
        16 => proptest::option::of(slots()).prop_map(Move::Wake),
        20 => (0..600_u64).prop_map(Move::Pass),
        6 => Just(Move::Crash),
        4 => (0..3_u8).prop_map(Move::CallEnds),
    ]
}

const POLICY: Retry = Retry { attempts: 3, initial_ms: 50, factor: 2.0, max_ms: 200, jitter: 0.5 };

/// What a program knows: the journal up to a position, and what it has begun to wait for.
#[derive(Clone, Default)]
struct Program {
    epoch: Epoch,
    known: Seq,
    open: Vec<Open>,
    last: Option<(Commit, u64, Reply)>,
    /// How many commits it has made.
    turns: u32,
    /// All that it has said before the last one.
    earlier: Vec<(Commit, u64)>,
    /// Whether it was told that there is nothing left to do.
    over: bool,
}

struct World {
    bench: Bench,
    program: Program,
    zombies: Vec<Program>,
    /// Sleeps and waits begin in this order, in every activation.
    begun: Vec<Open>,
    /// When each was first heard of by the machine.
    heard: BTreeMap<Op, Timestamp>,
    /// How much of the journal was looked at.
    checked: usize,
    /// Whether the run was paused while its program was at work.
    drains: bool,
    ended: Option<Phase>,
}

impl World {
    fn new(timeout_ms: Option<u64>) -> Self {
        Self {
            bench: Bench::start_for(None, timeout_ms),
            program: Program::default(),
            zombies: Vec::new(),
            begun: Vec::new(),
            heard: BTreeMap::new(),
            checked: 0,
            drains: false,
            ended: None,
        }
    }

    fn step(&mut self, step: Move) {
        let epoch = self.bench.run.epoch;
        match step {
            Move::Activate(slot) => self.accept(Input::Activate(slot)),
            Move::Program(act) => {
                if self.bench.run.is_held_by(self.program.epoch) || self.drains && !self.program.over {
                    self.act(act);
                } else if epoch > Epoch(0) && !self.drains {
                    self.not_held(act);
                }
            }
            Move::Listen => self.listen(),
            Move::Repeat => self.repeat(),
            Move::Late(index) => self.late(index),
            Move::Beat => {
                let alive = self.bench.run.is_held_by(epoch) || self.bench.run.is_drained_by(epoch);
                assert_eq!(self.bench.give(Input::Heard { epoch }).is_ok(), alive);
            }
            Move::Zombie(act) => self.zombie(act),
            Move::Misplaced(by) => self.misplaced(by),
            Move::Signal(name, slot) => {
                let ended = matches!(self.bench.run.phase, Phase::Ended { .. });
                let refused = self.bench.signal(signal_name(name), slot).is_err();
                assert_eq!(refused, ended, "a signal is kept, or refused because the run is over");
            }
            Move::Cancel => drop(self.bench.give(Input::Cancel)),
            Move::Pause => {
                let at_work = matches!(self.bench.run.phase, Phase::Running { .. });
                if self.bench.give(Input::Pause).is_ok_and(|decision| decision.reply == Reply::Done) {
                    self.drains = at_work;
                }
            }
            Move::Resume(slot) => drop(self.bench.give(Input::Resume { slot })),
            Move::Restart(to, slot) => self.restart(to, slot),
            Move::Wake(slot) => self.accept(Input::Wake { slot }),
            Move::Pass(ms) => self.bench.pass(ms),
            Move::Crash => self.bench.crash(),
            Move::CallEnds(how) => {
                let why = || "gone".to_owned();
                let end = [CallEnd::Returned, CallEnd::Threw(why()), CallEnd::Lost(why())];
                self.accept(Input::ActivationEnded { epoch, end: end[usize::from(how)].clone() });
            }
        }
        if self.bench.run.epoch > self.program.epoch {
            self.replaced();
        }
        self.drains &= matches!(self.bench.run.phase, Phase::Paused { .. });
        self.check();
    }

    fn accept(&mut self, input: Input) {
        self.bench.give(input).expect("only commits, signals and cancels are ever refused");
    }

    /// A new activation reads the whole journal; the old program goes on without knowing it.
    fn replaced(&mut self) {
        let fresh = Program { epoch: self.bench.run.epoch, ..Program::default() };
        self.zombies.push(std::mem::replace(&mut self.program, fresh));
        self.program.open.clone_from(&self.begun);
        self.listen();
    }

    fn listen(&mut self) {
        for record in self.bench.counted().filter(|record| record.seq > self.program.known) {
            let answered = match &record.event {
                Event::TimerFired { op, .. } => self.program.open.iter().position(|open| open.op() == op),
                Event::SignalReceived { name, .. } => self
                    .program
                    .open
                    .iter()
                    .position(|open| matches!(open, Open::Wait { signal, .. } if signal == name)),
                Event::StepFinished { .. }
                | Event::StepRetrying { .. }
                | Event::StepBegun { .. }
                | Event::StepLetIn { .. }
                | Event::ChildInvoked { .. }
                | Event::ChildStarted { .. }
                | Event::ChildFinished { .. } => None,
            };
            if let Some(index) = answered {
                self.program.open.remove(index);
            }
        }
        self.program.known = self.bench.run.last_counted();
    }

    fn act(&mut self, act: Act) {
        let mut commit = self.commit_for(act);
        self.program.turns += 1;
        commit.turn = self.program.turns;
        self.bench.hashes += 1;
        let hash = self.bench.hashes;
        let has_news = self.bench.run.last_counted() > self.program.known;
        let head = self.bench.journal.len();
        let reply = self.bench.send(&commit, hash).expect("an honest commit is never refused");
        let suspended = self.bench.run.phase == Phase::Suspended;
        assert!(!(has_news && suspended), "it slept although there was news");
        for open in &self.bench.run.open {
            self.heard.entry(open.op.clone()).or_insert(self.bench.now);
        }
        if self.drains {
            assert_eq!(reply, Reply::Stop, "nothing new is begun");
            let begins = |command: &&Command| matches!(command, Command::StepBegun { .. });
            let kept = commit.commands.iter().filter(|command| !begins(command)).count();
            assert_eq!(self.bench.journal.len(), head + kept, "what was done is kept");
        }
        self.program.over |= reply == Reply::Stop;
        if let Some((commit, hash, _)) = self.program.last.replace((commit, hash, reply)) {
            self.program.earlier.push((commit, hash));
        }
        if reply == Reply::Go {
            self.listen();
        }
    }

    fn commit_for(&mut self, act: Act) -> Commit {
        let mut commit = Commit::new(self.program.epoch, self.program.known, vec![], go_on());
        match act {
            Act::Patch(n) => commit.patches.push(format!("patch {n}")),
            Act::Progress => {
                commit.progress = Some(Box::new(Progress { percent: 50.0, ..Progress::default() }));
            }
            Act::Succeed
            | Act::Fail { .. }
            | Act::Begin
            | Act::Sleep(_)
            | Act::SleepUntil(_)
            | Act::Wait(..)
            | Act::Suspend
            | Act::Yield
            | Act::Complete
            | Act::Pause => (commit.commands, commit.then) = self.reports(act),
        }
        commit
    }

    fn reports(&mut self, act: Act) -> (Vec<Command>, Then) {
        let (op, attempt, retry_at, begun) = self.next_step();
        let may_run = retry_at <= self.bench.now;
        let open = Some(self.program.open.clone());
        match act {
            Act::Succeed if may_run => {
                let command = Command::StepSucceeded { op, attempt, output: Payload::null(), took_ms: None };
                (vec![command], Then::Continue { open })
            }
            Act::Fail { terminal } if may_run => {
                let failure = Failure { terminal, ..Failure::new("no") };
                (
                    vec![Command::StepFailed {
                        op,
                        attempt,
                        failure,
                        retry: POLICY,
                        retry_after_ms: None,
                        took_ms: None,
                    }],
                    go_on(),
                )
            }
            Act::Begin if may_run && !begun => (vec![Command::StepBegun { op }], Then::Continue { open }),
            Act::SleepUntil(ms) => {
                let at = self.bench.now.plus_millis(ms);
                self.begin(|n| Open::SleepUntil { op: op_of_sleep(n), at });
                (vec![], Then::Continue { open: Some(self.program.open.clone()) })
            }
            Act::Sleep(ms) => {
                self.begin(|n| sleep(n, ms));
                (vec![], Then::Continue { open: Some(self.program.open.clone()) })
            }
            Act::Wait(name, timeout_ms) => {
                self.begin(|n| wait(signal_name(name), n, timeout_ms));
                (vec![], Then::Continue { open: Some(self.program.open.clone()) })
            }
            Act::Yield => (vec![], Then::Yield { open }),
            Act::Complete => (vec![], Then::Complete { output: Payload::null() }),
            Act::Pause => (vec![], Then::Pause { problem: problem() }),
            Act::Suspend | Act::Succeed | Act::Fail { .. } | Act::Begin | Act::Patch(_) | Act::Progress => {
                let mut open = self.program.open.clone();
                if !may_run || open.is_empty() {
                    open.push(Open::Retry { op, at: retry_at });
                }
                (vec![], Then::Suspend { open })
            }
        }
    }

    fn begin(&mut self, open: impl FnOnce(u32) -> Open) {
        let open = open(u32::try_from(self.begun.len()).expect("a walk is short"));
        self.begun.push(open.clone());
        self.program.open.push(open);
    }

    /// The first step that has no outcome as far as the program knows: its attempt, when it may run, and whether
    /// the engine was told that it is about to.
    fn next_step(&self) -> (Op, u32, Timestamp, bool) {
        let (mut occurrence, mut attempt, mut at, mut begun) = (0, 1, Timestamp::default(), false);
        for record in self.bench.counted().filter(|record| record.seq <= self.program.known) {
            match &record.event {
                Event::StepFinished { .. } => (occurrence, attempt, begun) = (occurrence + 1, 1, false),
                Event::StepRetrying { attempt: failed, retry_at, .. } => {
                    (attempt, at) = (failed + 1, *retry_at);
                }
                Event::StepBegun { .. } => begun = true,
                Event::StepLetIn { .. }
                | Event::TimerFired { .. }
                | Event::SignalReceived { .. }
                | Event::ChildInvoked { .. }
                | Event::ChildStarted { .. }
                | Event::ChildFinished { .. } => {}
            }
        }
        (op(OpKind::Step, "work", occurrence), attempt, at, begun)
    }

    /// The answer was lost: the program sends the same again.
    fn repeat(&mut self) {
        let Some((commit, hash, reply)) = self.program.last.clone() else { return };
        if self.bench.run.epoch != commit.epoch {
            return;
        }
        let head = self.bench.journal.len();
        match self.bench.send(&commit, hash) {
            // Whoever was told to go on is told to stop if the run was paused since.
            Ok(Reply::Stop) if matches!(self.bench.run.phase, Phase::Paused { .. }) => {
                self.program.last = Some((commit, hash, Reply::Stop));
                self.program.over = true;
            }
            Ok(again) => assert_eq!(again, reply),
            Err(_) => assert!(!self.bench.run.is_held_by(commit.epoch) || reply == Reply::Stop),
        }
        assert_eq!(self.bench.journal.len(), head, "a repeat writes nothing");
    }

    /// A copy of something that was said long ago arrives: it takes nothing back.
    fn late(&mut self, index: u32) {
        let earlier = &self.program.earlier;
        if earlier.is_empty() {
            return;
        }
        let (commit, hash) = earlier[index as usize % earlier.len()].clone();
        let mut before = self.bench.run.clone();
        let _ = self.bench.send(&commit, hash);
        // Whoever is heard of is alive, and that is all.
        if let (Phase::Running { lease: before, .. }, Phase::Running { lease: after, .. }) =
            (&mut before.phase, &self.bench.run.phase)
        {
            *before = *after;
        }
        before.spent = self.bench.run.spent;
        assert_eq!(self.bench.run, before, "{commit:?} came late");
    }

    /// Somebody who was replaced speaks as if nothing had happened.
    fn zombie(&mut self, act: Act) {
        let Some(zombie) = self.zombies.pop() else { return };
        let program = std::mem::replace(&mut self.program, zombie);
        self.not_held(act);
        self.program = program;
    }

    /// Somebody speaks who may not.
    fn not_held(&mut self, act: Act) {
        let (begun, open) = (self.begun.len(), self.program.open.clone());
        let commit = self.commit_for(act);
        self.begun.truncate(begun);
        self.program.open = open;
        self.bench.hashes += 1;
        let hash = self.bench.hashes;
        assert_eq!(self.bench.refused(&commit, hash), Code::StaleEpoch);
    }

    fn restart(&mut self, to: u32, slot: Option<Slot>) {
        let cut = Cut { after: Seq(to % (self.bench.run.head.0 + 1)), through: self.bench.run.head };
        let signals = self
            .bench
            .counted()
            .filter(|record| record.seq > cut.after)
            .filter_map(|record| Signal::of(&record.event))
            .collect();
        let at_rest = matches!(self.bench.run.phase, Phase::Paused { .. } | Phase::Ended { .. });
        let given = self.bench.give(Input::Restart {
            cuts: vec![cut],
            signals,
            dropped: None,
            keeps_progress: false,
            slot,
        });
        assert_eq!(given.is_ok(), at_rest);
        if at_rest {
            // All that it waits for begins anew.
            self.heard.clear();
            self.ended = None;
        }
    }

    fn misplaced(&mut self, by: u32) {
        if !self.bench.run.is_held_by(self.program.epoch) {
            return;
        }
        let (mut commit, hash) = self.bench.next_commit(vec![succeeded("elsewhere")], go_on());
        let through = self.bench.run.written_through();
        commit.base = if by < through.0 { Seq(by) } else { Seq(self.bench.run.head.0 + 1 + by) };
        assert_eq!(self.bench.refused(&commit, hash), Code::BaseMismatch);
    }

    fn check(&mut self) {
        if let Some(ended) = &self.ended {
            assert_eq!(&self.bench.run.phase, ended, "what has ended does not change");
        } else if let Phase::Ended { .. } = self.bench.run.phase {
            self.ended = Some(self.bench.run.phase.clone());
        }
        for record in &self.bench.journal[self.checked..] {
            self.check_time(record);
        }
        self.checked = self.bench.journal.len();
        let patches: BTreeSet<_> = self.bench.run.patches.iter().collect();
        assert_eq!(patches.len(), self.bench.run.patches.len(), "a patch is on record once");
        let (mut finished, mut fired, mut begun) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for record in self.bench.counted() {
            match &record.event {
                Event::StepFinished { op, attempt, outcome, .. } => {
                    assert!(finished.insert(op), "{op} has two outcomes");
                    assert!(*attempt <= POLICY.attempts);
                    assert!(matches!(outcome, Outcome::Ok(_) | Outcome::Err(_)));
                }
                Event::StepRetrying { op, attempt, retry_at, .. } => {
                    assert!(!finished.contains(op) && *attempt < POLICY.attempts);
                    assert!(*retry_at >= record.at);
                }
                Event::StepBegun { op } => {
                    assert!(begun.insert(op) && !finished.contains(op), "{op} was begun twice");
                }
                Event::TimerFired { op, .. } => {
                    assert!(fired.insert(op), "{op} resumed its run more than once");
                }
                Event::SignalReceived { .. }
                | Event::StepLetIn { .. }
                | Event::ChildInvoked { .. }
                | Event::ChildStarted { .. }
                | Event::ChildFinished { .. } => {}
            }
        }
    }

    /// Nothing fires before its time.
    fn check_time(&self, record: &Record) {
        let Event::TimerFired { op, .. } = &record.event else { return };
        let open = self.begun.iter().find(|open| open.op() == op).expect("it was begun");
        let due = match open {
            Open::Sleep { ms, .. } => self.heard[op].plus_millis(*ms),
            Open::SleepUntil { at, .. } => *at,
            Open::Wait { timeout_ms, .. } => {
                self.heard[op].plus_millis(timeout_ms.expect("only a time-out fires"))
            }
            Open::Retry { .. } | Open::Lane { .. } | Open::Child { .. } => {
                panic!("the time of an attempt is no event")
            }
        };
        assert!(record.at >= due, "{op} fired early");
    }

    /// The faults are over: whatever the walk has left must come to an end.
    fn heal(mut self) {
        for _ in 0..10_000 {
            match &self.bench.run.phase {
                Phase::Ended { .. } | Phase::Paused { why: PauseWhy::Problem(_) } => return,
                Phase::Paused { why: PauseWhy::Request } => self.step(Move::Resume(None)),
                Phase::Pending { .. } => {
                    self.bench.now = self.bench.now.max(self.bench.run.wake_at().expect("it is due"));
                    self.step(Move::Activate(ALONE));
                }
                Phase::Running { .. } if self.program.open.is_empty() => {
                    self.step(Move::Program(Act::Complete));
                }
                Phase::Running { .. } => self.step(Move::Program(Act::Suspend)),
                Phase::Suspended => match self.bench.run.wake_at() {
                    Some(at) => {
                        self.bench.now = self.bench.now.max(at);
                        self.step(Move::Wake(None));
                    }
                    None => {
                        let name = self.bench.run.open[0].signal.clone().expect("or it had a time");
                        self.step(Move::Signal(u8::from(name == signal_name(1)), None));
                    }
                },
            }
        }
        panic!("it never ended: {:?}", self.bench.run);
    }
}

fn op_of_sleep(occurrence: u32) -> Op {
    op(OpKind::Sleep, "sleep", occurrence)
}

fn signal_name(index: u8) -> &'static str {
    ["left", "right"][usize::from(index)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_must_hold_is_ever_broken(
        moves in proptest::collection::vec(moves(), 1..160),
        timeout_ms in proptest::option::weighted(0.3, 100..20_000_u64),
    ) {
        let mut world = World::new(timeout_ms);
        for step in moves {
            world.step(step);
        }
        world.heal();
    }
}
