//! A cell in memory with one run: the real machine, virtual time, and deaths at chosen commits. What tests run on.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    task::{Context, Poll, Waker},
};

use serde::Serialize;
use stepwell_core::run::{
    CallEnd, Decision, Effect, Entry, Input, Outgoing, PauseWhy, Phase, Reply, Run, RunRow, Slot, Start,
    Tail, Trailer, Transport, Visit,
};
use stepwell_protocol::{
    Code, Epoch, Event, Outcome, PROTOCOL, Payload, Place, Problem, Record, RunId, Seq, Timestamp,
    program::{Activation, Answer, Budget, Commit, News, Page},
    queue::SentJob,
    stream::{Item, Published},
};

pub use super::script::{Death, Ended, Outside};
use super::{
    Mocks,
    children::{ChildMocks, Family},
    clock,
    events::Events,
    script::{self, Awaited},
    woken::Woken,
};
use crate::{
    App,
    vm::{Hook, Order, Vm},
};

/// How often an activation may be woken without a commit: one that turns in circles shows here.
const TURNS_MAX: usize = 1_000_000;

/// When every run of a test starts.
pub(super) const START_MS: u64 = 1_700_000_000_000;

/// A cell with one run.
pub struct Engine {
    /// Its program.
    pub app: Rc<App>,
    /// The virtual time.
    pub now: Timestamp,
    /// The run.
    pub run: Run,
    row: RunRow,
    /// What each of its lives was started with.
    pub inputs: Vec<Payload>,
    /// The run's journal, of all its lives.
    pub journal: Vec<Record>,
    /// What its last event says besides itself.
    trailer: Trailer,
    pub(super) result: Option<Ended>,
    /// What will be done to it, in the order of time.
    outside: VecDeque<(Timestamp, Outside)>,
    /// Signals to be sent as soon as somebody waits for them.
    when_waiting: Vec<Awaited>,
    mocks: Rc<Mocks>,
    /// How many events go into a page.
    pub page_size: usize,
    /// Whether it can make links.
    has_address: bool,
    /// What every activation may do.
    budget: Option<Budget>,
    /// When it dies.
    pub death: Death,
    /// What the program has reported.
    pub commits: Vec<Commit>,
    /// What it has published, in order.
    pub published: Vec<Item>,
    /// How many of those the present activation has published.
    taken: (Epoch, u32),
    /// The operation of each step whose code ran, in order.
    pub ran: Vec<String>,
    pub(super) just_ran: Rc<RefCell<Vec<String>>>,
    /// How much time has passed while no program was at work.
    pub(super) asleep_ms: u64,
    /// How often a program that listens was told to look.
    pub tells: u64,
    /// The steps that are on record.
    finished: BTreeSet<String>,
    pub(super) family: Family,
    pub(super) events: Events,
    pub(super) jobs: Vec<SentJob>,
    /// The steps that lanes have let in, by their tickets.
    pub(super) let_in: BTreeMap<u32, Visit>,
}

impl Engine {
    /// A run that was just accepted.
    pub fn start<I: Serialize + ?Sized>(app: impl Into<Rc<App>>, workflow: &str, input: &I) -> Self {
        let (input, app) = (Payload::encode(input).expect("an input can be written as JSON"), app.into());
        let timeout_ms = app.timeout_ms(workflow);
        Self::accept(app, workflow, input, timeout_ms, (Timestamp::from_millis(START_MS), 0))
    }

    /// A run that may take so long, is accepted at this time, and begins so much later.
    pub(super) fn accept(
        app: Rc<App>,
        workflow: &str,
        input: Payload,
        timeout_ms: Option<u64>,
        (now, delay_ms): (Timestamp, u64),
    ) -> Self {
        let place = Place { pool: "default".into(), generation: 1, cell: 0 };
        let id = RunId { place, number: 1, suffix: RunId::suffix_from(7) };
        let starts_at = Some(now.plus_millis(delay_ms));
        let start = Start { timeout_ms, starts_at, ..Start::plain(id, workflow, input.size(), 0xfeed) };
        Self::accept_at(now, app, start, input)
    }

    /// A child of this run, in a cell of its own.
    pub(super) fn beside(&self, start: Start, input: Payload) -> Self {
        Self {
            page_size: self.page_size,
            has_address: self.has_address,
            budget: self.budget,
            mocks: self.mocks.clone(),
            when_waiting: self.when_waiting.clone(),
            family: Family { mocks: self.family.mocks.clone(), ..Family::default() },
            events: self.events.beside(),
            jobs: Vec::new(),
            ..Self::accept_at(self.now, self.app.clone(), start, input)
        }
    }

    fn accept_at(now: Timestamp, app: Rc<App>, start: Start, input: Payload) -> Self {
        clock::reset(now.as_millis());
        let (mut run, decision) = Run::start(now, start);
        run.apply_all(&decision.entries);
        Self {
            app,
            now,
            row: run.to_row(),
            run,
            inputs: vec![input],
            journal: Vec::new(),
            trailer: Trailer::default(),
            result: None,
            outside: VecDeque::new(),
            when_waiting: Vec::new(),
            mocks: Rc::new(BTreeMap::new()),
            page_size: usize::MAX,
            has_address: true,
            budget: None,
            death: Death::Never,
            commits: Vec::new(),
            published: Vec::new(),
            taken: (Epoch(0), 0),
            ran: Vec::new(),
            just_ran: Rc::default(),
            asleep_ms: 0,
            tells: 0,
            finished: BTreeSet::new(),
            family: Family::default(),
            events: Events::default(),
            jobs: Vec::new(),
            let_in: BTreeMap::new(),
        }
    }

    /// Somebody will send a signal, this long from now.
    #[must_use]
    pub fn signal<P: Serialize>(self, after_ms: u64, name: &str, payload: &P) -> Self {
        let payload = Payload::encode(payload).expect("a signal can be written as JSON");
        self.happens(after_ms, Outside::Signal(name.to_owned(), payload))
    }

    /// Somebody will do something, this long from now.
    #[must_use]
    pub fn happens(mut self, after_ms: u64, what: Outside) -> Self {
        self.happens_at(self.now.plus_millis(after_ms), what);
        self
    }

    pub(super) fn happens_at(&mut self, at: Timestamp, what: Outside) {
        self.outside.push_back((at, what));
        self.outside.make_contiguous().sort_by_key(|(at, _)| *at);
    }

    pub(super) fn signals_when_waiting(mut self, signals: Vec<Awaited>) -> Self {
        self.when_waiting = signals;
        self
    }

    pub(super) fn mocks(mut self, mocks: Rc<Mocks>, of_children: Rc<ChildMocks>) -> Self {
        self.mocks = mocks;
        self.family.mocks = of_children;
        self
    }

    /// It will die at this moment.
    #[must_use]
    pub fn dies(mut self, death: Death) -> Self {
        self.death = death;
        self
    }

    /// It does not know its public address.
    #[must_use]
    pub fn without_address(mut self) -> Self {
        self.has_address = false;
        self
    }

    /// It gives out its journal in pages of so many events.
    #[must_use]
    pub fn pages_of(mut self, events: usize) -> Self {
        self.page_size = events;
        self
    }

    /// Each of its activations may make so many calls.
    #[must_use]
    pub fn budget(mut self, commits: u32) -> Self {
        self.budget = Some(Budget { commits, ms: None, step_timeout_ms: None });
        self
    }

    /// Lets time pass until the run is over, and checks that its journal gives the same end once more.
    pub fn finish(&mut self) -> Ended {
        let ended = self.run_to_end();
        if let Err(difference) = self.replay_once_more() {
            panic!("{difference}");
        }
        ended
    }

    /// Lets time pass until the run is over.
    pub fn run_to_end(&mut self) -> Ended {
        for _ in 0..1_000_000 {
            match self.run.phase {
                Phase::Paused { why: PauseWhy::Request } if !self.outside.is_empty() => {
                    let at = self.outside[0].0;
                    self.advance(at);
                }
                Phase::Ended { .. } | Phase::Paused { .. } => {
                    return self.result.clone().expect("it ended in some way");
                }
                Phase::Pending { not_before } => self.activate(not_before),
                Phase::Suspended => {
                    if !self.wake() {
                        if let Some(why) = self.stuck_child() {
                            return Ended::Stuck(why.clone());
                        }
                        let signals = self.run.open.iter().filter_map(|open| open.signal.clone());
                        return Ended::Waiting(signals.collect());
                    }
                }
                Phase::Running { .. } => unreachable!("its activation is over"),
            }
        }
        panic!("the run does not end; it is {}", self.run.status().as_str());
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
        let slot = Slot { session: Transport::Capability, alone: true };
        let decision = self.give(Input::Activate(slot)).expect("it is never refused");
        if decision.effects.iter().any(|effect| matches!(effect, Effect::Activate { .. })) {
            self.activation();
        }
    }

    /// The next thing happens to a run that waits; says whether there is one.
    pub fn wake(&mut self) -> bool {
        if self.meet_a_wait() || self.signal_a_wait() || self.let_steps_in() {
            return true;
        }
        match (self.run.wake_at(), self.outside.front()) {
            (Some(at), _) => {
                self.advance(at);
                self.give(Input::Wake { slot: None }).expect("it is never refused");
            }
            (None, Some((at, _))) => {
                let at = *at;
                self.advance(at);
            }
            (None, None) => return false,
        }
        true
    }

    /// Sends the first signal that somebody waits for, if there is one.
    fn signal_a_wait(&mut self) -> bool {
        let waits = |awaited: &Awaited| self.run.open.iter().any(|open| awaited.is_for(open));
        let Some(at) = self.when_waiting.iter().position(waits) else { return false };
        let awaited = self.when_waiting.remove(at);
        self.happen(awaited.into());
        true
    }

    /// Time passes, and things are done to the run on the way.
    pub fn advance(&mut self, to: Timestamp) {
        let (before, is_at_work) = (self.now, matches!(self.run.phase, Phase::Running { .. }));
        self.let_happen_until(to);
        clock::advance_to(self.now.as_millis());
        if !is_at_work {
            self.asleep_ms += self.now.as_millis() - before.as_millis();
        }
    }

    /// All until then, or until something happens after which the run is to be looked at.
    fn let_happen_until(&mut self, to: Timestamp) {
        while let Some((at, what)) = self.outside.front().cloned()
            && at <= to
        {
            self.outside.pop_front();
            self.now = self.now.max(at);
            self.happen(what);
            if !matches!(self.run.phase, Phase::Running { .. } | Phase::Suspended) {
                return;
            }
        }
        self.now = self.now.max(to);
    }

    fn happen(&mut self, what: Outside) {
        if what.is_late(&self.run.open, self.now) {
            return;
        }
        if let Outside::Event(event) = what {
            self.event_comes(*event);
            self.meet_a_wait();
            return;
        }
        // What comes after the end is refused, as it would be anywhere.
        if let Err(problem) = self.give(what.into_input()) {
            assert!(
                !matches!(problem.code, Code::SignalMismatch | Code::InvalidRequest),
                "the test sends a signal that is refused: {}",
                problem.detail
            );
        }
    }

    /// Lets an input happen to the run.
    pub fn give(&mut self, input: Input) -> Result<Decision, Problem> {
        let mut decision = self.run.decide(self.now, input)?;
        for entry in &decision.entries {
            match entry {
                Entry::Recorded { record, .. } => {
                    if let Event::StepFinished { op, .. } = &record.event {
                        self.finished.insert(op.to_string());
                    }
                    self.journal.push(record.clone());
                }
                Entry::Completed { output, .. } => {
                    self.result = Some(Ended::Completed(output.text().to_owned()));
                }
                Entry::Failed { failure, .. } => self.result = Some(Ended::Failed(failure.clone())),
                Entry::Paused(PauseWhy::Problem(problem)) => {
                    self.result = Some(Ended::Paused(problem.clone()));
                }
                Entry::Paused(PauseWhy::Request) => self.result = Some(Ended::Halted),
                Entry::Cancelled { .. } => self.result = Some(Ended::Cancelled),
                Entry::Reopened { .. } => self.result = None,
                Entry::BegunAnew { input, .. } => self.inputs.push(input.clone()),
                Entry::Rewound(_)
                | Entry::SignalNoted(_)
                | Entry::SignalForgotten(_)
                | Entry::TokenKeyUsed(_)
                | Entry::Marked(_)
                | Entry::OpenChanged(_)
                | Entry::Troubled(_)
                | Entry::Queued { .. }
                | Entry::Joined(_)
                | Entry::Activated { .. }
                | Entry::Leased { .. }
                | Entry::SignalsRead { .. }
                | Entry::Patched(_)
                | Entry::Progressed(_)
                | Entry::ProgressForgotten
                | Entry::FailingSince(_)
                | Entry::Attributed { .. }
                | Entry::ActedOn(_)
                | Entry::Expired
                | Entry::Emptied
                | Entry::LetGo(_)
                | Entry::Left(_)
                | Entry::Suspended => {}
            }
        }
        self.run.apply_all(&decision.entries);
        if decision.entries.iter().any(|entry| entry.record().is_some()) {
            self.trailer = self.run.trailer();
        }
        if decision.entries.iter().any(|entry| matches!(entry, Entry::Rewound(_) | Entry::BegunAnew { .. })) {
            let counted = self.journal.iter().filter(|record| self.run.counts(record.seq));
            let finished = counted.filter_map(|Record { event, .. }| {
                if let Event::StepFinished { op, .. } = event { Some(op.to_string()) } else { None }
            });
            self.finished = finished.collect();
        }
        if decision.entries.iter().any(Entry::changes_row) {
            self.row = self.run.to_row();
        }
        if decision.effects.contains(&Effect::TellProgram) {
            self.tells += 1;
        }
        let Outgoing { invoked, emitted, jobs } = std::mem::take(&mut decision.outgoing);
        for (seq, invocation) in invoked {
            self.invoke(seq, *invocation);
        }
        for event in emitted {
            self.emitted(event);
        }
        self.jobs.extend(jobs.into_iter().map(|(_, job)| *job));
        Ok(decision)
    }

    /// What the program is called with.
    pub fn activate_message(&self) -> Activation {
        Activation {
            protocol: PROTOCOL,
            run: self.run.id.clone(),
            workflow: self.run.workflow.clone(),
            epoch: self.run.epoch,
            seed: format!("{:016x}", self.run.seed),
            now: self.now,
            started_at: self.run.created_at,
            life: self.run.life,
            input: self.inputs.last().cloned().expect("every life has one"),
            patches: self.run.patches.clone(),
            attributes: self.run.attributes.clone(),
            tokens: self.has_address.then(|| Box::new(script::issuer(&self.run.id))),
            budget: self.budget,
            let_in: self.run.told_of_places(),
            trace: None,
            followed: false,
            journal: self.page(Seq(0)),
            signature: None,
        }
    }

    /// The journal after a position, as much as goes into a page.
    pub fn page(&self, after: Seq) -> Page {
        let mut rest = self.counted(after, self.run.head);
        let events: Vec<_> = rest.by_ref().take(self.page_size).cloned().collect();
        Page { events, more: rest.next().is_some() }
    }

    /// What of the journal counts, after one position up to another.
    pub fn counted(&self, after: Seq, through: Seq) -> impl Iterator<Item = &Record> {
        let records = self.journal.get(after.0 as usize..through.0 as usize).unwrap_or_default();
        records.iter().filter(|record| self.run.counts(record.seq))
    }

    /// What the session answers to a commit. As on the wire, both are text on the way.
    pub fn commit(&mut self, commit: &Commit) -> Answer {
        let text = serde_json::to_string(commit).expect("messages are JSON");
        let commit: Commit = serde_json::from_str(&text).expect("it was written as one");
        self.commits.push(commit.clone());
        self.take_published(&commit);
        let (base, head) = (commit.base, self.run.head);
        let hash = text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let decision = match self.give(Input::Commit { commit, hash, homes: Vec::new() }) {
            Ok(decision) => decision,
            Err(problem) => return Answer::Refused { problem },
        };
        match decision.reply {
            Reply::Go => self.go(base, head, decision),
            Reply::Done | Reply::Stop | Reply::Unchanged => Answer::Stop,
        }
    }

    /// What is sent again was taken before.
    fn take_published(&mut self, commit: &Commit) {
        if self.taken.0 != commit.epoch {
            self.taken = (commit.epoch, 0);
        }
        let Published { first, items } = &commit.published;
        let new = items.iter().zip(*first..).filter(|(_, index)| *index >= self.taken.1);
        self.published.extend(new.map(|(item, _)| item.clone()));
        self.taken.1 = self.taken.1.max(first + u32::try_from(items.len()).unwrap_or(u32::MAX));
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
        let answer = Answer::go(self.now, news);
        let text = serde_json::to_string(&answer).expect("messages are JSON");
        serde_json::from_str(&text).expect("it was written as one")
    }

    /// What happened after one position up to another.
    pub fn news(&self, after: Seq, through: Seq) -> Vec<News> {
        self.counted(after, through).cloned().map(News::Record).collect()
    }

    /// Time passes for a run at work; says whether there is something that its program should look at.
    pub fn pass(&mut self, to: Timestamp) -> bool {
        let before = self.tells;
        self.advance(to);
        self.give(Input::Wake { slot: None }).expect("it is never refused");
        self.tells > before
    }

    /// The cell dies and comes back: only rows are left.
    pub fn die(&mut self) {
        clock::reset(self.now.as_millis());
        let tail = Tail {
            head: self.journal.last().map_or(Seq(0), |record| record.seq),
            trailer: self.trailer.clone(),
            quarantined: false,
        };
        let Run { id, workflow, created_at, .. } = self.run.clone();
        self.run = Run::from_row(id, workflow, created_at, &self.row.state, tail).expect("just written");
        self.give(Input::Reload).expect("it is never refused");
    }

    /// What is on record must not run again.
    pub fn see_what_ran(&mut self) {
        for op in self.just_ran.take() {
            assert!(!self.finished.contains(&op), "{op} is on record and ran again");
            self.ran.push(op);
        }
    }

    /// What a VM asks before it runs a step's code.
    fn hook(&self) -> Hook {
        let (ran, mocks) = (self.just_ran.clone(), self.mocks.clone());
        Rc::new(move |op, info| {
            ran.borrow_mut().push(op.to_string());
            mocks.get(&op.name).map(|mock| mock(info))
        })
    }

    pub(super) fn vm(&self) -> Vm {
        let vm = Vm::new(&self.app, self.activate_message());
        vm.with_timer(clock::timer())
            .with_default_timer(clock::default_timer())
            .with_clock(clock::clock())
            .with_hook(self.hook())
    }

    /// One activation, from its replay to its last word.
    fn activation(&mut self) {
        let epoch = self.run.epoch;
        let mut vm = self.vm();
        let woken = Woken::new();
        let waker = Waker::from(woken.clone());
        for _ in 0..TURNS_MAX {
            woken.clear();
            let order = vm.poll(&mut Context::from_waker(&waker));
            self.see_what_ran();
            match order {
                Poll::Ready(Order::Page(after)) => {
                    vm.page(self.page(after));
                }
                Poll::Ready(Order::Commit(commit)) => {
                    let Some(answer) = self.commit_or_die(&commit) else { return };
                    if !vm.answered(answer) {
                        self.give(Input::ActivationEnded { epoch, end: CallEnd::Returned })
                            .expect("it is never refused");
                        return;
                    }
                }
                Poll::Pending => {
                    if !self.idle(&mut vm, &woken) {
                        return;
                    }
                }
            }
        }
        panic!("the workflow turns in circles");
    }

    /// Lets time pass until the program has something to do; says whether it may go on.
    fn idle(&mut self, vm: &mut Vm, woken: &Woken) -> bool {
        while !woken.is_set() {
            if vm.wants_news() && (self.meet_a_wait() || self.signal_a_wait() || self.let_steps_in()) {
                if let Phase::Ended { .. } = self.run.phase {
                    return false;
                }
                let news = self.news(vm.known(), self.run.head);
                return vm.heard(Answer::go(self.now, news));
            }
            let due = self.run.next_due().filter(|_| self.run.is_held_by(self.run.epoch));
            let outside = self.outside.front().map(|(at, _)| *at);
            let code = clock::next().map(Timestamp::from_millis);
            let Some(next) = [due, outside, code].into_iter().flatten().min() else {
                woken.wait();
                continue;
            };
            let has_news = self.pass(next);
            if let Phase::Ended { .. } = self.run.phase {
                return false;
            }
            if has_news && vm.wants_news() {
                let news = self.news(vm.known(), self.run.head);
                return vm.heard(Answer::go(self.now, news));
            }
        }
        true
    }
}
