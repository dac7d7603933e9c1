//! A cell in memory: the real machine, a journal in a vector, virtual time, and deaths at chosen commits.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use stepwell::{
    App, Payload, Timestamp,
    vm::{Order, Vm},
};
use stepwell_core::run::{
    CallEnd, Decision, Effect, End, Entry, Input, Mark, Phase, Reply, Run, RunRow, Session, Slot, Start, Tail,
};
use stepwell_protocol::{
    Event, Failure, Outcome, PROTOCOL, Place, Problem, Record, RunId, Seq,
    program::{Activation, Answer, Commit, News, Page, Then},
};

use crate::world::{self, TICK_MS};

/// How many ticks an activation may take: a wake-up that was lost shows here.
const TICKS_MAX: usize = 5_000;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    Completed(String),
    Failed(Failure),
    Paused(Problem),
    Cancelled,
}

/// When the cell dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Never.
    Never,
    /// After it has recorded this commit, before it answers.
    After(usize),
    /// Before it has recorded this commit.
    Before(usize),
    /// After each commit that left something in the journal.
    AfterEachRecord,
}

/// A cell with one run.
pub struct Engine {
    pub app: App,
    pub now: Timestamp,
    pub run: Run,
    row: RunRow,
    input: Payload,
    pub journal: Vec<(Record, Option<Mark>)>,
    result: Option<Ended>,
    /// Signals to come, in the order of their times after the start.
    signals: VecDeque<(Timestamp, &'static str, Payload)>,
    /// How many events go into a page.
    pub page_size: usize,
    pub death: Death,
    pub commits: Vec<Commit>,
    /// The operation of each step whose code ran, in order.
    pub ran: Vec<String>,
    /// How often a program that listens was told to look.
    pub tells: u64,
    /// The steps that are on record.
    finished: BTreeSet<String>,
}

impl Engine {
    /// A run that was just accepted.
    pub fn start<I: serde::Serialize>(app: App, workflow: &str, input: &I) -> Self {
        world::reset();
        let now = Timestamp::from_millis(1_700_000_000_000);
        let id = RunId {
            place: Place { pool: "default".into(), generation: 1, cell: 0 },
            number: 1,
            suffix: RunId::suffix_from(7),
        };
        let (mut run, decision) =
            Run::start(now, Start { id, workflow: workflow.into(), seed: 0xfeed, slot: None });
        run.apply_all(&decision.entries);
        Self {
            app,
            now,
            row: run.to_row(),
            run,
            input: Payload::encode(input).expect("tests' inputs are JSON"),
            journal: Vec::new(),
            result: None,
            signals: VecDeque::new(),
            page_size: usize::MAX,
            death: Death::Never,
            commits: Vec::new(),
            ran: Vec::new(),
            tells: 0,
            finished: BTreeSet::new(),
        }
    }

    /// Somebody will send a signal, this long from now.
    pub fn signal<P: serde::Serialize>(mut self, after_ms: u64, name: &'static str, payload: &P) -> Self {
        let payload = Payload::encode(payload).expect("tests' signals are JSON");
        self.signals.push_back((self.now.plus_millis(after_ms), name, payload));
        self
    }

    pub fn dies(mut self, death: Death) -> Self {
        self.death = death;
        self
    }

    pub fn pages_of(mut self, events: usize) -> Self {
        self.page_size = events;
        self
    }

    /// Lets time pass until the run is over, and checks that its journal gives the same end once more.
    pub fn finish(&mut self) -> Ended {
        let ended = self.run_to_end();
        self.replay_once_more();
        ended
    }

    /// Lets time pass until the run is over.
    pub fn run_to_end(&mut self) -> Ended {
        for _ in 0..10_000 {
            match self.run.phase {
                Phase::Ended { .. } | Phase::Paused { .. } => {
                    return self.result.clone().expect("it ended in some way");
                }
                Phase::Pending { not_before } => self.activate(not_before),
                Phase::Suspended => self.wake(),
                Phase::Running { .. } => panic!("its activation is over"),
            }
        }
        panic!("it does not end: {:?}", self.run);
    }

    /// Goes on until the run sleeps.
    pub fn sleep_first(&mut self) {
        while let Phase::Pending { not_before } = self.run.phase {
            self.activate(not_before);
        }
        assert_eq!(self.run.phase, Phase::Suspended);
    }

    fn activate(&mut self, not_before: Timestamp) {
        self.advance(not_before);
        let slot = Slot { session: Session::Capability, alone: true };
        let decision = self.give(Input::Activate(slot)).expect("it is never refused");
        if decision.effects.iter().any(|effect| matches!(effect, Effect::Activate { .. })) {
            self.activation();
        }
    }

    /// The next thing happens to a run that waits.
    pub fn wake(&mut self) {
        match (self.run.wake_at(), self.signals.front()) {
            (Some(at), _) => {
                self.advance(at);
                self.give(Input::Wake { slot: None }).expect("it is never refused");
            }
            (None, Some((at, ..))) => self.advance(*at),
            (None, None) => panic!("it waits for ever for {:?}", self.run.open),
        }
    }

    /// Time passes, and signals come on their way.
    pub fn advance(&mut self, to: Timestamp) {
        while let Some((at, name, payload)) = self.signals.front().cloned()
            && at <= to
        {
            self.signals.pop_front();
            self.now = self.now.max(at);
            self.give(Input::Signal { name: name.into(), id: None, payload, slot: None })
                .expect("it is kept");
            if matches!(self.run.phase, Phase::Pending { .. }) {
                return;
            }
        }
        self.now = self.now.max(to);
    }

    pub fn give(&mut self, input: Input) -> Result<Decision, Problem> {
        let decision = self.run.decide(self.now, input)?;
        for entry in &decision.entries {
            match entry {
                Entry::Recorded { record, mark } => {
                    if let Event::StepFinished { op, .. } = &record.event {
                        self.finished.insert(op.to_string());
                    }
                    self.journal.push((record.clone(), *mark));
                }
                Entry::Completed { output, .. } => {
                    self.result = Some(Ended::Completed(output.text().to_owned()));
                }
                Entry::Failed { failure, .. } => self.result = Some(Ended::Failed(failure.clone())),
                Entry::Paused(problem) => self.result = Some(Ended::Paused(problem.clone())),
                Entry::Cancelled { .. } => self.result = Some(Ended::Cancelled),
                Entry::Marked(_)
                | Entry::OpenChanged(_)
                | Entry::Troubled(_)
                | Entry::Queued { .. }
                | Entry::Activated { .. }
                | Entry::Orphaned { .. }
                | Entry::Suspended => {}
            }
        }
        self.run.apply_all(&decision.entries);
        if decision.entries.iter().any(Entry::changes_row) {
            self.row = self.run.to_row();
        }
        if decision.effects.contains(&Effect::TellProgram) {
            self.tells += 1;
        }
        Ok(decision)
    }

    pub fn activate_message(&self) -> Activation {
        Activation {
            protocol: PROTOCOL,
            run: self.run.id.clone(),
            workflow: self.run.workflow.clone(),
            epoch: self.run.epoch,
            seed: format!("{:016x}", self.run.seed),
            now: self.now,
            started_at: self.run.created_at,
            input: self.input.clone(),
            journal: self.page(Seq(0)),
        }
    }

    pub fn page(&self, after: Seq) -> Page {
        let rest = self.journal.get(after.0 as usize..).unwrap_or_default();
        let events: Vec<_> = rest.iter().take(self.page_size).map(|(record, _)| record.clone()).collect();
        let more = after.0 as usize + events.len() < self.journal.len();
        Page { events, more }
    }

    /// What the session answers to a commit. As on the wire, both are text on the way.
    pub fn commit(&mut self, commit: &Commit) -> Answer {
        let text = serde_json::to_string(commit).expect("messages are JSON");
        let commit: Commit = serde_json::from_str(&text).expect("it was written as one");
        self.commits.push(commit.clone());
        let (base, head) = (commit.base, self.run.head);
        let hash = text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let decision = match self.give(Input::Commit { commit, hash }) {
            Ok(decision) => decision,
            Err(problem) => return Answer::Refused { problem },
        };
        match decision.reply {
            Reply::Go => self.go(base, head, decision),
            Reply::Done | Reply::Stop | Reply::Unchanged => Answer::Stop,
        }
    }

    fn go(&self, base: Seq, head: Seq, decision: Decision) -> Answer {
        let mut news = self.news(base, head);
        let own = decision
            .entries
            .into_iter()
            .filter_map(|entry| if let Entry::Recorded { record, .. } = entry { Some(record) } else { None });
        news.extend(own.enumerate().map(|(command, record)| match record {
            Record { seq, at, event: Event::StepFinished { outcome: Outcome::Ok(_), .. } } => {
                News::Yours { seq, at, command }
            }
            record => News::Record(record),
        }));
        let answer = Answer::Go { now: self.now, news };
        let text = serde_json::to_string(&answer).expect("messages are JSON");
        serde_json::from_str(&text).expect("it was written as one")
    }

    pub fn news(&self, after: Seq, through: Seq) -> Vec<News> {
        let records = self.journal.get(after.0 as usize..through.0 as usize).unwrap_or_default();
        records.iter().map(|(record, _)| News::Record(record.clone())).collect()
    }

    /// One tick of virtual time; says whether there is something that the program should look at.
    pub fn tick(&mut self) -> bool {
        let before = self.tells;
        self.advance(self.now.plus_millis(TICK_MS));
        world::tick();
        self.give(Input::Wake { slot: None }).expect("it is never refused");
        self.tells > before
    }

    /// The cell dies and comes back: only rows are left.
    pub fn die(&mut self) {
        let tail = Tail {
            head: self.journal.last().map_or(Seq(0), |(record, _)| record.seq),
            mark: self.journal.iter().rev().find_map(|(_, mark)| *mark),
        };
        let Run { id, workflow, created_at, .. } = self.run.clone();
        self.run = Run::from_row(id, workflow, created_at, &self.row.state, tail).expect("just written");
        self.give(Input::Reload).expect("it is never refused");
    }

    /// What is on record must not run again.
    pub fn see_what_ran(&mut self) {
        let ran = world::take_trace();
        assert!(ran.iter().all(|op| !self.finished.contains(op)), "{ran:?}: on record and run again");
        self.ran.extend(ran);
    }

    /// One activation, from its replay to its last word.
    fn activation(&mut self) {
        let epoch = self.run.epoch;
        let mut vm = Vm::new(&self.app, self.activate_message());
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut ticks = 0;
        loop {
            woken.0.store(false, Ordering::Relaxed);
            let order = vm.poll(&mut Context::from_waker(&waker));
            self.see_what_ran();
            match order {
                Poll::Ready(Order::Page(after)) => vm.page(self.page(after)),
                Poll::Ready(Order::Commit(commit)) => {
                    let Some(answer) = self.commit_or_die(&commit) else { return };
                    if !vm.answered(answer) {
                        break;
                    }
                }
                Poll::Pending => {
                    while !woken.0.load(Ordering::Relaxed) {
                        ticks += 1;
                        assert!(ticks < TICKS_MAX, "nothing wakes the workflow");
                        if self.tick() && vm.wants_news() {
                            let news = self.news(vm.known(), self.run.head);
                            assert!(vm.heard(Answer::Go { now: self.now, news }));
                            break;
                        }
                    }
                }
            }
        }
        self.give(Input::ActivationEnded { epoch, end: CallEnd::Returned }).expect("it is never refused");
    }

    fn commit_or_die(&mut self, commit: &Commit) -> Option<Answer> {
        let number = self.commits.len() + 1;
        if self.death == Death::Before(number) {
            self.commits.push(commit.clone());
            self.die();
            return None;
        }
        let head = self.run.head;
        let answer = self.commit(commit);
        let dies = match self.death {
            Death::After(at) => at == number,
            Death::AfterEachRecord => self.run.head > head && !commit.commands.is_empty(),
            Death::Never | Death::Before(_) => false,
        };
        if dies {
            self.die();
            return None;
        }
        Some(answer)
    }

    /// The whole journal gives the same end, and no step runs for it.
    fn replay_once_more(&self) {
        let Phase::Ended { how: End::Completed | End::Failed, .. } = self.run.phase else { return };
        let notes = world::take_notes();
        let mut vm = Vm::new(&self.app, self.activate_message());
        let commit = loop {
            match vm.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Order::Page(after)) => vm.page(self.page(after)),
                Poll::Ready(Order::Commit(commit)) => break commit,
                Poll::Pending => panic!("a replay to the end waits for nothing"),
            }
        };
        let again = match &commit.then {
            Then::Complete { output } => Ended::Completed(output.text().to_owned()),
            Then::Fail { failure } => Ended::Failed(failure.clone()),
            Then::Continue { .. } | Then::Suspend { .. } | Then::Pause { .. } => {
                panic!("the replay does not end: {:?}", commit.then)
            }
        };
        assert_eq!(Some(again), self.result, "the replay ends as the run did");
        assert_eq!(world::take_trace(), Vec::<String>::new(), "a replay runs nothing");
        world::take_notes();
        notes.into_iter().for_each(world::note);
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the same run with a death before and after each of its commits, and asserts the same end.
pub fn dies_everywhere(make: impl Fn() -> Engine) -> Ended {
    let mut calm = make();
    let expected = calm.finish();
    for number in 1..=calm.commits.len() {
        for death in [Death::After(number), Death::Before(number)] {
            assert_eq!(make().dies(death).finish(), expected, "{death:?}");
        }
    }
    assert_eq!(make().dies(Death::AfterEachRecord).finish(), expected, "after each record");
    assert_eq!(make().dies(Death::AfterEachRecord).pages_of(1).finish(), expected, "in pages of one");
    expected
}
