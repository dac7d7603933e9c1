//! What the VM and the futures of [`crate::ops`] share.

use std::{
    collections::{BTreeMap, VecDeque},
    task::{Poll, Waker},
};

use stepwell_protocol::{
    Code, Event, Op, OpKind, Outcome, Payload, Problem, Record, Timestamp,
    program::{Command, Open, Retry},
};

use crate::{Error, Result};

/// The things that a workflow waits for, and what became of them.
pub(crate) struct State {
    /// How many of each kind and name were named: what a journal may speak of.
    named: BTreeMap<(OpKind, String), u32>,
    /// Those that were polled and are neither consumed nor dropped.
    slots: BTreeMap<Op, Slot>,
    /// How many were ever polled: the order in which waits get signals.
    begun: u64,
    /// Signals that nobody has taken.
    signals: BTreeMap<String, VecDeque<Payload>>,
    outbox: Vec<Command>,
    /// Whether the whole journal was delivered, so that steps may run.
    live: bool,
    /// What the workflow takes for the time.
    now: Timestamp,
    /// The engine's clock.
    clock: Timestamp,
    randoms: u64,
    problem: Option<Problem>,
}

struct Slot {
    order: u64,
    what: What,
    waker: Option<Waker>,
}

enum What {
    Step { stage: Stage, failed_attempts: u32, retry_at: Timestamp },
    Sleep { ms: u64, over: bool },
    Wait { timeout_ms: Option<u64>, answer: Answer },
}

enum Stage {
    /// Its code may run when the journal was delivered and its time has come.
    Idle,
    /// Its code is under way.
    Running,
    /// Its code has ended; the engine has not recorded that yet.
    Reported,
    /// Recorded.
    Finished(Outcome),
}

enum Answer {
    None,
    Signal(Payload),
    TimedOut,
}

/// What a step's future may do.
pub(crate) enum Turn {
    /// Run the code, as this attempt.
    Attempt(u32),
    /// Give this result.
    Finished(Outcome),
}

impl State {
    pub fn new(now: Timestamp, clock: Timestamp) -> Self {
        Self {
            named: BTreeMap::new(),
            slots: BTreeMap::new(),
            begun: 0,
            signals: BTreeMap::new(),
            outbox: Vec::new(),
            live: false,
            now,
            clock,
            randoms: 0,
            problem: None,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    pub fn set_clock(&mut self, clock: Timestamp) {
        self.clock = self.clock.max(clock);
    }

    pub fn next_random(&mut self) -> u64 {
        self.randoms += 1;
        self.randoms
    }

    /// Gives the next operation of this kind and name its occurrence.
    pub fn name_op(&mut self, kind: OpKind, name: String) -> Op {
        let count = self.named.entry((kind, name.clone())).or_default();
        let occurrence = *count;
        *count += 1;
        Op { kind, name, occurrence }
    }

    pub fn begin_step(&mut self, op: &Op) {
        let retry_at = Timestamp::default();
        self.begin(op, || What::Step { stage: Stage::Idle, failed_attempts: 0, retry_at });
    }

    pub fn poll_step(&mut self, op: &Op, waker: &Waker) -> Poll<Turn> {
        let (live, clock) = (self.live, self.clock);
        let slot = self.slots.get_mut(op).expect("a step begins before it is polled");
        slot.waker = Some(waker.clone());
        let What::Step { stage, failed_attempts, retry_at } = &mut slot.what else {
            unreachable!("an operation named a step is a step");
        };
        match stage {
            Stage::Finished(_) => {
                let Stage::Finished(outcome) = std::mem::replace(stage, Stage::Reported) else {
                    unreachable!("matched just above");
                };
                Poll::Ready(Turn::Finished(outcome))
            }
            Stage::Idle if live && *retry_at <= clock => {
                *stage = Stage::Running;
                Poll::Ready(Turn::Attempt(*failed_attempts + 1))
            }
            Stage::Idle | Stage::Running | Stage::Reported => Poll::Pending,
        }
    }

    /// A step's code has ended.
    pub fn report_step(&mut self, op: &Op, attempt: u32, result: Result<Payload, Error>, retry: Retry) {
        if let Some(Slot { what: What::Step { stage, .. }, .. }) = self.slots.get_mut(op) {
            *stage = Stage::Reported;
        }
        let op = op.clone();
        self.outbox.push(match result {
            Ok(output) => Command::StepSucceeded { op, attempt, output },
            Err(error) => Command::StepFailed { op, attempt, failure: error.into_failure(), retry },
        });
    }

    pub fn poll_sleep(&mut self, op: &Op, ms: u64, waker: &Waker) -> Poll<()> {
        let slot = self.begin(op, || What::Sleep { ms, over: false });
        slot.waker = Some(waker.clone());
        match slot.what {
            What::Sleep { over: true, .. } => Poll::Ready(()),
            What::Sleep { over: false, .. } | What::Step { .. } | What::Wait { .. } => Poll::Pending,
        }
    }

    /// A signal's payload, or nothing when the time is over.
    pub fn poll_wait(&mut self, op: &Op, timeout_ms: Option<u64>, waker: &Waker) -> Poll<Option<Payload>> {
        if !self.slots.contains_key(op) {
            // What came before anyone waited was kept for the first who asks.
            let kept = self.signals.get_mut(&op.name).and_then(VecDeque::pop_front);
            let answer = kept.map_or(Answer::None, Answer::Signal);
            self.begin(op, || What::Wait { timeout_ms, answer });
        }
        let slot = self.slots.get_mut(op).expect("begun just above");
        slot.waker = Some(waker.clone());
        match &mut slot.what {
            What::Wait { answer, .. } => match std::mem::replace(answer, Answer::None) {
                Answer::None => Poll::Pending,
                Answer::Signal(payload) => Poll::Ready(Some(payload)),
                Answer::TimedOut => Poll::Ready(None),
            },
            What::Step { .. } | What::Sleep { .. } => Poll::Pending,
        }
    }

    /// An operation was consumed or dropped.
    pub fn forget(&mut self, op: &Op) {
        let Some(slot) = self.slots.remove(op) else { return };
        // A signal that was given to a wait which nobody awaits any more is for the next wait.
        if let What::Wait { answer: Answer::Signal(payload), .. } = slot.what
            && let Some(payload) = self.offer_signal(&op.name, payload)
        {
            self.signals.entry(op.name.clone()).or_default().push_front(payload);
        }
    }

    /// Makes an event happen.
    pub fn deliver(&mut self, record: Record, workflow_ended: bool) {
        self.now = self.now.max(record.at);
        match record.event {
            Event::StepFinished { op, outcome, .. } => {
                self.deliver_to(&op, workflow_ended, |what| {
                    if let What::Step { stage, .. } = what {
                        *stage = Stage::Finished(outcome);
                    }
                });
            }
            Event::StepRetrying { op, attempt, retry_at: at, .. } => {
                self.deliver_to(&op, workflow_ended, |what| {
                    if let What::Step { stage, failed_attempts, retry_at } = what {
                        *stage = Stage::Idle;
                        *failed_attempts = attempt;
                        *retry_at = at;
                    }
                });
            }
            Event::TimerFired { op } => self.deliver_to(&op, workflow_ended, |what| match what {
                What::Sleep { over, .. } => *over = true,
                // A signal that came first has won.
                What::Wait { answer: answer @ Answer::None, .. } => *answer = Answer::TimedOut,
                What::Wait { .. } | What::Step { .. } => {}
            }),
            Event::SignalReceived { name, payload, .. } => {
                if let Some(payload) = self.offer_signal(&name, payload) {
                    self.signals.entry(name).or_default().push_back(payload);
                }
            }
        }
    }

    /// Lets steps run.
    pub fn go_live(&mut self) {
        self.live = true;
        let clock = self.clock;
        for slot in self.slots.values() {
            if let What::Step { stage: Stage::Idle, retry_at, .. } = &slot.what
                && *retry_at <= clock
                && let Some(waker) = &slot.waker
            {
                waker.wake_by_ref();
            }
        }
    }

    /// Keeps steps from beginning while events are delivered: one of them may drop the step.
    pub fn go_still(&mut self) {
        self.live = false;
    }

    pub fn has_running_step(&self) -> bool {
        self.slots.values().any(|slot| matches!(slot.what, What::Step { stage: Stage::Running, .. }))
    }

    pub fn has_reports(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub fn take_outbox(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.outbox)
    }

    /// All that the workflow waits for, in the order in which it began to.
    pub fn open(&self) -> Vec<Open> {
        let mut open: Vec<_> = self
            .slots
            .iter()
            .filter_map(|(op, slot)| {
                let open = match &slot.what {
                    What::Step { stage: Stage::Idle, retry_at, .. } => {
                        Open::Retry { op: op.clone(), at: *retry_at }
                    }
                    What::Sleep { ms, over: false } => Open::Sleep { op: op.clone(), ms: *ms },
                    What::Wait { timeout_ms, answer: Answer::None } => {
                        Open::Wait { op: op.clone(), signal: op.name.clone(), timeout_ms: *timeout_ms }
                    }
                    What::Step { .. } | What::Sleep { .. } | What::Wait { .. } => return None,
                };
                Some((slot.order, open))
            })
            .collect();
        open.sort_by_key(|(order, _)| *order);
        open.into_iter().map(|(_, open)| open).collect()
    }

    /// The workflow cannot go on: a person has to look.
    pub fn stop(&mut self, problem: Problem) {
        self.problem.get_or_insert(problem);
    }

    pub fn has_problem(&self) -> bool {
        self.problem.is_some()
    }

    pub fn problem(&self) -> Option<Problem> {
        self.problem.clone()
    }

    fn begin(&mut self, op: &Op, what: impl FnOnce() -> What) -> &mut Slot {
        let begun = &mut self.begun;
        self.slots.entry(op.clone()).or_insert_with(|| {
            *begun += 1;
            Slot { order: *begun, what: what(), waker: None }
        })
    }

    fn deliver_to(&mut self, op: &Op, workflow_ended: bool, change: impl FnOnce(&mut What)) {
        if let Some(slot) = self.slots.get_mut(op) {
            change(&mut slot.what);
            if let Some(waker) = &slot.waker {
                waker.wake_by_ref();
            }
            return;
        }
        // Named once, and consumed or dropped since: the event came too late to matter, then and now.
        let named = self.named.get(&(op.kind, op.name.clone())).copied().unwrap_or_default();
        if op.occurrence >= named {
            self.stop(self.divergence(op, workflow_ended));
        }
    }

    /// Gives a signal to the oldest wait for it, or hands it back.
    fn offer_signal(&mut self, name: &str, payload: Payload) -> Option<Payload> {
        let oldest = self
            .slots
            .iter_mut()
            .filter(|(op, _)| op.kind == OpKind::Wait && op.name == name)
            .filter(|(_, slot)| matches!(slot.what, What::Wait { answer: Answer::None, .. }))
            .min_by_key(|(_, slot)| slot.order);
        let Some((_, Slot { what: What::Wait { answer, .. }, waker, .. })) = oldest else {
            return Some(payload);
        };
        *answer = Answer::Signal(payload);
        if let Some(waker) = waker {
            waker.wake_by_ref();
        }
        None
    }

    fn divergence(&self, expected: &Op, workflow_ended: bool) -> Problem {
        let waiting: Vec<_> =
            self.slots.keys().map(|op| format!("{} '{}'", op.kind.as_str(), op.name)).collect();
        let actual = if workflow_ended {
            "the workflow has already returned".to_owned()
        } else if waiting.is_empty() {
            "the code waits for nothing".to_owned()
        } else {
            format!("the code waits for {}", waiting.join(", "))
        };
        let detail = format!(
            "The journal goes on with {} '{}' (occurrence {}), but {actual}. Code outside of steps must do \
             the same on every replay. Deploy code that matches, then resume the run.",
            expected.kind.as_str(),
            expected.name,
            expected.occurrence
        );
        Problem::new(Code::Diverged, detail)
    }
}
