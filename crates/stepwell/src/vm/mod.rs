//! The replay VM: journal in, commits out.
//!
//! Sans-IO: whoever drives it brings events and takes commits; it never waits for anything itself but the
//! user's own futures. Events are delivered one at a time, in journal order, with a poll of the workflow
//! after each, so `select`, `join` and `FuturesUnordered` resolve on replay as they did at first. Steps run
//! only when the whole journal has been delivered. A suspended workflow is simply a pending future.
//!
//! Owns: replay, and what the program reports. Does not own: how messages travel ([`crate::drive`]), and
//! when a step is tried again (the engine decides that).

mod allowance;
mod asides;
mod bell;
mod foresight;
mod line;
mod pages;
mod publishing;
mod slot;
mod state;
pub(crate) mod words;

#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use stepwell_protocol::{
    Code, Epoch, Payload, Problem, Record, Seq, Timestamp,
    program::{Activation, Answer, Beat, Command, Commit, News, Open, StepAtWork, Then},
    stream::Published,
};

use asides::{Asides, Said};
pub use asides::{Clock, Hook, Timer};
use bell::Bell;
use foresight::Foresight;
pub(crate) use line::Line;
pub(crate) use slot::{Concluded, Length, Turn};
pub(crate) use state::State;
use state::inbox::HandedOver;
pub(crate) use state::inbox::Wanted;

use crate::{App, Ctx, Result, Terminal, app::Running, ctx::Identity, panics, panics::LastWords};

/// How often a workflow that wakes itself is polled before the next event is delivered to it.
const TURNS_STILL_MAX: usize = 100_000;

/// How often it is polled, its steps' code included, before others get their turn.
const TURNS_LIVE_MAX: usize = 100;

/// One activation of one run.
pub struct Vm {
    state: Rc<RefCell<State>>,
    workflow: Workflow,
    /// What the workflow is polled with: tells whether it has woken itself.
    bell: Arc<Bell>,
    waker: Waker,
    /// Whether the workflow was polled at all.
    begun: bool,
    epoch: Epoch,
    /// The last position that was delivered or waits in the queue.
    known: Seq,
    /// The last position that was delivered.
    delivered: Seq,
    /// What an earlier activation left behind that panicked in the workflow's own code.
    doom: Option<LastWords>,
    queue: VecDeque<Record>,
    journal: Journal,
    /// Whether the page that it has asked for is one that it has seen before.
    reads_again: bool,
    /// The commit that has no answer yet.
    in_flight: Option<InFlight>,
    /// What the engine was last told that the workflow waits for; nothing, if it has to be told again.
    told: Option<Vec<Open>>,
    foresight: Option<Foresight>,
    /// Whether somebody follows the run.
    followed: bool,
}

#[derive(Default)]
struct InFlight {
    commands: Vec<Command>,
    /// Where the journal ended before the workflow went on as if the commands were recorded, if it did.
    foreseen_after: Option<Seq>,
    /// Whether it says what the workflow waits for.
    tells: bool,
    /// Whether it has new patches.
    patches: bool,
}

enum Workflow {
    Running(Running),
    Ended(Ending),
}

/// How a workflow ended.
enum Ending {
    Returned(Result<Payload>),
    /// The run goes on in a new life, with this input.
    Anew(Payload),
}

/// How much of the journal is here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Journal {
    More,
    Asked,
    Complete,
}

/// What the driver has to do next.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is given")]
pub enum Order {
    /// Fetch the journal after this position.
    Page(Seq),
    /// Send this, and bring the answer.
    Commit(Commit),
}

impl Vm {
    /// A VM for an activation.
    pub fn new(app: &App, activation: Activation) -> Self {
        let Activation { started_at, now, patches, attributes, budget, life, tokens, let_in, trace, .. } =
            activation;
        let began_at = life.map_or(started_at, |life| life.began_at);
        let state =
            Rc::new(RefCell::new(State::new(began_at, now, Asides::new(patches, attributes), budget)));
        state.borrow_mut().cancel_on(app.cancel_on(&activation.workflow));
        state.borrow_mut().places(let_in);
        let identity =
            Identity::new(activation.run, activation.seed, started_at, life, app.terms(), tokens, trace);
        let ctx = Ctx::new(state.clone(), identity);
        let workflow = match app.starter(&activation.workflow) {
            Some(start) => match panics::catch(|| start(ctx, &activation.input)) {
                Ok(Ok(future)) => Workflow::Running(future),
                Ok(Err(error)) | Err(error) => Workflow::Ended(Ending::Returned(Err(error))),
            },
            None => {
                state.borrow_mut().stop(words::unknown_workflow(app, &activation.workflow));
                Workflow::Running(Box::pin(std::future::pending()))
            }
        };
        if life.map_or(activation.epoch == Epoch(1), |life| life.begins_with(activation.epoch)) {
            // Signals may have come, but no code of this life was anywhere before.
            state.borrow_mut().asides().end_of_replay();
        }
        let bell = Arc::new(Bell::default());
        let mut vm = Self {
            state,
            workflow,
            waker: Waker::from(bell.clone()),
            bell,
            begun: false,
            epoch: activation.epoch,
            known: Seq(0),
            delivered: Seq(0),
            doom: None,
            queue: VecDeque::new(),
            journal: Journal::More,
            reads_again: false,
            in_flight: None,
            told: Some(Vec::new()),
            foresight: None,
            followed: activation.followed,
        };
        vm.page(activation.journal);
        vm
    }

    /// Gives it a way to wait, for steps with a time-out. Without one they have none.
    #[must_use]
    pub fn with_timer(self, timer: Timer) -> Self {
        self.state.borrow_mut().asides().timer = Some(timer.clone());
        self.with_default_timer(timer)
    }

    /// Gives it another way to wait for steps that say nothing about how long they may take.
    #[must_use]
    pub fn with_default_timer(self, timer: Timer) -> Self {
        self.state.borrow_mut().asides().default_timer = Some(timer);
        self
    }

    /// Gives it a clock, without which it neither foresees what the engine will record nor knows how long steps take.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.state.borrow_mut().asides().clock = Some(clock.clone());
        self.foresight = Some(Foresight::new(clock, self.state.borrow().clock()));
        self
    }

    /// Gives it something to ask before it runs a step's code, for tests.
    #[must_use]
    pub fn with_hook(self, hook: Hook) -> Self {
        self.state.borrow_mut().asides().hook = Some(hook);
        self
    }

    /// Tells it what became of the activation before, which panicked where panics abort: the attempt of the step
    /// has failed, or the run has, at the place where it panicked.
    #[must_use]
    pub fn with_last_words(mut self, mut words: LastWords) -> Self {
        for item in std::mem::take(&mut words.published) {
            self.state.borrow_mut().publishing().add(item);
        }
        match words.step.clone() {
            None => self.doom = Some(words),
            Some((op, attempt)) => {
                let hook: Hook = Rc::new(move |next, info| {
                    (*next == op && info.attempt == attempt).then(|| Err(words.error()))
                });
                self.state.borrow_mut().asides().hook = Some(hook);
            }
        }
        self
    }

    /// Takes the answer to the commit that was sent. Says whether to go on.
    pub fn answered(&mut self, answer: Answer) -> bool {
        let InFlight { commands, foreseen_after, tells, patches } = self.in_flight.take().unwrap_or_default();
        if let Answer::Go { .. } = &answer {
            self.state.borrow_mut().publishing().commit_answered();
        }
        match (&answer, foreseen_after) {
            (Answer::Go { news, .. }, Some(_)) => {
                self.state.borrow_mut().allowance().note_progress();
                // Where it was recorded, if that is not next to the base.
                for news in news {
                    if let News::Yours { seq, .. } = news {
                        (self.known, self.delivered) = (*seq, *seq);
                    }
                }
            }
            // It was not recorded.
            (Answer::Refused { .. }, Some(before)) => self.known = before,
            (_, _) => {}
        }
        // There was news that it had not seen: the engine did not record what it says it waits for.
        if let Answer::Go { news, .. } = &answer
            && tells
            && (news.len() > commands.len() || news.last() == Some(&News::More))
        {
            self.told = (!patches).then(Vec::new);
        }
        self.take_news(answer, commands)
    }

    /// Takes what came while listening. Says whether to go on.
    pub fn heard(&mut self, answer: Answer) -> bool {
        self.take_news(answer, Vec::new())
    }

    /// The steps under way, if somebody follows the run and wants to see them soon, and there is a call to spare for it:
    /// nobody's look may take the call with which a step is reported.
    pub fn shows(&self) -> Vec<StepAtWork> {
        let state = self.state.borrow();
        let may = self.followed && state.covers(1);
        if may { state.at_work().take(Beat::STEPS_MAX).collect() } else { Vec::new() }
    }

    /// What it is at work on, for a call that says so. It counts like any other, and is made in any case: an engine
    /// that hears nothing gives up on this activation.
    pub fn beat(&mut self) -> Beat {
        let mut state = self.state.borrow_mut();
        state.allowance().count_call();
        Beat { steps: state.at_work().take(Beat::STEPS_MAX).collect() }
    }

    /// What is to be published now, by a call of its own: nothing while another one is under way, while a commit could
    /// take it along, or if there is no call to spare for it.
    pub fn publishes(&mut self) -> Option<Published> {
        if self.in_flight.is_some() || self.journal != Journal::Complete {
            return None;
        }
        let mut state = self.state.borrow_mut();
        if !state.has_running_step() || !state.may_publish() {
            return None;
        }
        let published = state.publishing().send()?;
        state.allowance().count_call();
        Some(published)
    }

    /// Takes what became of such a call: nothing if it got no answer. Says whether to go on.
    pub fn published(&mut self, answer: Option<Answer>) -> bool {
        self.state.borrow_mut().publishing().answered(matches!(answer, Some(Answer::Go { .. })));
        answer.is_none_or(|answer| self.take_news(answer, Vec::new()))
    }

    /// The last position that it knows of.
    pub fn known(&self) -> Seq {
        self.known
    }

    /// The last event that was delivered, and what the workflow waits for; nothing, if it has returned.
    #[cfg(feature = "testing")]
    pub(crate) fn place(&self) -> (Seq, Option<Vec<stepwell_protocol::Op>>) {
        let waits_for = match self.workflow {
            Workflow::Running(_) => Some(self.state.borrow().slots.keys().cloned().collect()),
            Workflow::Ended(_) => None,
        };
        (self.delivered, waits_for)
    }

    /// The driver listens: from which position on.
    pub fn listen(&mut self) -> Seq {
        self.state.borrow_mut().allowance().count_call();
        self.known
    }

    /// Whether something from outside could make it go on: then the driver should listen.
    pub fn wants_news(&self) -> bool {
        let waits = self.told.as_ref().is_some_and(|told| !told.is_empty());
        waits || self.state.borrow().has_call_to_abort()
    }

    /// Goes on as far as possible.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Order> {
        self.bell.hang(cx.waker());
        // What was foreseen is not on record yet: nothing may begin.
        if self.in_flight.as_ref().is_some_and(|sent| sent.foreseen_after.is_some()) {
            return Poll::Pending;
        }
        self.replay();
        if let Some(first) = self.read_again() {
            return first;
        }
        // All of it, even if it cannot be replayed: only who knows where it ends may speak.
        match self.journal {
            // The driver brings one answer at a time.
            Journal::More if self.in_flight.is_some() => return Poll::Pending,
            Journal::More => {
                self.journal = Journal::Asked;
                self.state.borrow_mut().allowance().count_page();
                return Poll::Ready(Order::Page(self.known));
            }
            Journal::Asked => return Poll::Pending,
            Journal::Complete => {}
        }
        let mut is_quiet = true;
        if let Workflow::Running(_) = self.workflow {
            self.state.borrow_mut().go_live();
            is_quiet = self.poll_workflow(TURNS_LIVE_MAX);
        }
        if let Some(first) = self.read_again() {
            return first;
        }
        if self.in_flight.is_some() {
            return Poll::Pending;
        }
        if is_quiet && let Some(order) = self.foresee() {
            return Poll::Ready(order);
        }
        let problem = self.state.borrow().problem();
        if let Some(problem) = problem {
            return Poll::Ready(self.send(Vec::new(), Then::Pause { problem }, None));
        }
        let then = match self.ending() {
            Some(then) => then,
            None => match self.next_move(is_quiet) {
                Some(then) => then,
                None => return Poll::Pending,
            },
        };
        let commands = self.state.borrow_mut().take_outbox();
        Poll::Ready(self.send(commands, then, None))
    }

    /// How to say that the workflow is over, if it is. To be asked once, unless it begins anew.
    fn ending(&mut self) -> Option<Then> {
        match &mut self.workflow {
            Workflow::Running(_) => None,
            Workflow::Ended(Ending::Returned(result)) => {
                Some(match std::mem::replace(result, Ok(Payload::null())) {
                    Ok(output) => Then::Complete { output },
                    Err(error) => Then::Fail { failure: error.into_failure() },
                })
            }
            // To be asked again, if something came that it had not seen.
            Workflow::Ended(Ending::Anew(input)) => {
                let (keeps, keeps_bytes) = self.state.borrow().unread();
                Some(Then::Anew { input: input.clone(), keeps, keeps_bytes })
            }
        }
    }

    /// Delivers what is known, one event at a time.
    fn replay(&mut self) {
        self.state.borrow_mut().go_still();
        // Whether the code has been beyond an event before shows only by what comes after it: until the whole
        // journal is here, the last event that is known waits, and so does the beginning.
        let is_whole = self.journal == Journal::Complete;
        if !is_whole && self.queue.len() < 2 || self.state.borrow().missing().is_some() {
            return;
        }
        let held = usize::from(!is_whole);
        if !self.begun || !self.queue.is_empty() {
            // The workflow has to reach its first await before anything can be delivered to it.
            self.begun = true;
            self.tell_where_we_are();
            self.poll_workflow(TURNS_STILL_MAX);
        }
        while self.queue.len() > held
            && self.state.borrow().missing().is_none()
            && let Some(record) = self.queue.pop_front()
        {
            if self.state.borrow().has_problem() {
                self.queue.clear();
                return;
            }
            let ended = matches!(self.workflow, Workflow::Ended(_));
            self.delivered = record.seq;
            self.state.borrow_mut().deliver(record, ended);
            self.tell_where_we_are();
            self.poll_workflow(TURNS_STILL_MAX);
        }
    }

    /// Whether the code goes where no activation has been before. Once it does, it always does.
    fn tell_where_we_are(&self) {
        if self.queue.is_empty() && self.journal == Journal::Complete {
            self.state.borrow_mut().asides().end_of_replay();
        }
    }

    /// Polls the workflow until it no longer wakes itself, as combinators do that give way to others. Says
    /// whether it got there.
    fn poll_workflow(&mut self, turns_max: usize) -> bool {
        for _ in 0..turns_max {
            let Workflow::Running(future) = &mut self.workflow else { return true };
            self.bell.silence();
            let polled = match &self.doom {
                Some(words) if words.delivered <= self.delivered => Poll::Ready(Err(words.error())),
                Some(_) | None => {
                    panics::watch(self.delivered, &self.state);
                    let mut cx = Context::from_waker(&self.waker);
                    let polled = panics::catch(|| future.as_mut().poll(&mut cx));
                    panics::forget();
                    polled.unwrap_or_else(|error| Poll::Ready(Err(error)))
                }
            };
            let (failed, anew) = {
                let mut state = self.state.borrow_mut();
                (state.take_failure(), state.take_anew())
            };
            // Whoever has asked for a new life does nothing more in this one, even if something else was ready beside.
            let ending = match (failed, anew, polled) {
                (Some(error), _, _) => Some(Ending::Returned(Err(error))),
                (None, Some(input), _) => Some(Ending::Anew(input)),
                (None, None, Poll::Ready(result)) => Some(Ending::Returned(result)),
                (None, None, Poll::Pending) => None,
            };
            if let Some(ending) = ending {
                let over = std::mem::replace(&mut self.workflow, Workflow::Ended(ending));
                // What it kept may panic when it is dropped, which changes nothing about how it ended.
                let _ = panics::catch(|| drop(over));
            }
            if !self.bell.has_rung() {
                match self.state.borrow_mut().hand_over() {
                    HandedOver::None => return true,
                    HandedOver::One => {}
                    HandedOver::Missing => return false,
                }
            }
        }
        false
    }

    /// What to say while the workflow is not over; nothing, if there is nothing new to say.
    fn next_move(&mut self, is_quiet: bool) -> Option<Then> {
        let state = self.state.borrow();
        let is_at_work = if is_quiet { state.has_polled_step() } else { state.has_running_step() };
        // Code of another thread may have rung since: then the workflow is to be polled once more.
        let is_at_work = is_at_work || self.bell.has_rung() && state.has_running_step();
        let yields = is_quiet && !is_at_work && state.holds_back();
        if is_at_work || yields || state.has_reports() {
            // An earlier activation went another way than a new patch does: what it waited for must be forgotten.
            let is_told = self.told.as_deref().is_some_and(|told| state.is_open(told));
            let is_told = is_told && !state.has_new_patches();
            let open = (!is_told).then(|| state.open());
            if let Some(open) = &open {
                self.told = Some(open.clone());
            }
            if yields {
                return Some(Then::Yield { open });
            }
            let has_news = open.is_some() || state.has_reports() || state.asides.has_ended_waits();
            return has_news.then_some(Then::Continue { open });
        }
        if !is_quiet {
            return None;
        }
        let open = state.open();
        if state.is_stuck(&open) {
            let detail = "The workflow awaits something that is not a step, sleep, wait or invocation, so \
                          nothing can wake it. Move that code into a step.";
            return Some(Then::Pause { problem: Problem::new(Code::NotDurable, detail) });
        }
        self.told = Some(open.clone());
        Some(Then::Suspend { open })
    }

    /// `early` is where the journal ended before the workflow went on as if the commands were recorded, and when they
    /// are taken to be, if it did.
    fn send(&mut self, commands: Vec<Command>, then: Then, early: Option<(Seq, Timestamp)>) -> Order {
        let tells = match &then {
            Then::Continue { open } | Then::Yield { open } => open.is_some(),
            Then::Suspend { .. } => true,
            Then::Anew { .. } | Then::Complete { .. } | Then::Fail { .. } | Then::Pause { .. } => false,
        };
        let (Said { patches, progress, attributes, token_key, over }, published) = {
            let mut state = self.state.borrow_mut();
            state.allowance().count_call();
            if let Then::Yield { .. } = then {
                state.allowance().close();
            }
            (state.asides().take(&then), state.publishing().send_with_commit())
        };
        let failed_since = match &then {
            Then::Fail { .. } => self.state.borrow().failed_since(),
            Then::Continue { .. }
            | Then::Suspend { .. }
            | Then::Yield { .. }
            | Then::Anew { .. }
            | Then::Complete { .. }
            | Then::Pause { .. } => None,
        };
        let (epoch, base, foresees) = match early {
            Some((base, at)) => (self.epoch, base, Some(at)),
            None => (self.epoch, self.known, None),
        };
        self.in_flight = Some(InFlight {
            // Who has foreseen them has gone on with them already.
            commands: if foresees.is_some() { Vec::new() } else { commands.clone() },
            foreseen_after: foresees.map(|_| base),
            tells,
            patches: !patches.is_empty(),
        });
        Order::Commit(Commit {
            epoch,
            base,
            commands,
            patches,
            progress: progress.map(Box::new),
            attributes,
            token_key,
            over,
            published,
            then,
            failed_since,
            foresees,
            unread: self.state.borrow().unread_signals(),
            turn: 0,
        })
    }

    fn take_news(&mut self, answer: Answer, commands: Vec<Command>) -> bool {
        match answer {
            Answer::Go { now, news, followed } => {
                self.followed = followed;
                let mut state = self.state.borrow_mut();
                state.set_clock(now);
                if let Some(foresight) = &mut self.foresight {
                    foresight.hear(state.clock());
                }
                if !news.is_empty() {
                    state.allowance().note_progress();
                }
                drop(state);
                let mut commands: Vec<_> = commands.into_iter().map(Some).collect();
                for news in news {
                    match news {
                        News::Record(record) => self.learn(record),
                        News::Yours { seq, at, command } => {
                            if let Some(event) =
                                commands.get_mut(command).and_then(Option::take).and_then(Command::recorded)
                            {
                                self.learn(Record { seq, at, event });
                            }
                        }
                        News::More => self.journal = Journal::More,
                    }
                }
                true
            }
            Answer::Refused { problem } if is_our_fault(problem.code) => {
                // Said again it would be refused again: the run fails with what the engine has against it.
                self.state.borrow_mut().take_outbox();
                let error = Terminal::new(problem.detail).into();
                self.workflow = Workflow::Ended(Ending::Returned(Err(error)));
                true
            }
            Answer::Stop | Answer::Refused { .. } => false,
        }
    }

    /// A listener and a commit may bring the same event: the first one counts.
    fn learn(&mut self, record: Record) {
        if record.seq > self.known {
            self.known = record.seq;
            self.queue.push_back(record);
        }
    }
}

/// Whether a commit was refused for what it says, and not because this activation is over.
fn is_our_fault(code: Code) -> bool {
    matches!(code, Code::PayloadTooLarge | Code::InvalidRequest)
}
