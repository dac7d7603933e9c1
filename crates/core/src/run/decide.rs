//! What to do about an input. Decides; never writes.

use stepwell_protocol::{
    Code, Epoch, Event, Failure, Op, OpKind, Parent, Problem, Record, RunId, Seq, Timestamp,
    program::{Dispatch, PAYLOAD_BYTES_MAX},
    schedule::Ticked,
    topic::Triggered,
    trace::TraceParent,
};

use super::{
    CallEnd, Children, Decision, Effect, Entry, Gathering, InLane, Inbox, Input, LEASE_MS, OpenOp, PauseWhy,
    Phase, Rejection, Reply, Run, STRIKES_MAX, SUSPICION_ALONE, Signal, SignalLimits, Slot, Spent, Stamps,
    TROUBLE_BACKOFF_MS_MAX, Transport, Trouble, UNSTORED_MAX,
    retry::{fraction, scaled},
};
use crate::window::EXCLUSIVE_MS;

/// What a run is started with.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its id.
    pub id: RunId,
    /// The workflow to run.
    pub workflow: String,
    /// How many bytes its input has.
    pub input_bytes: usize,
    /// Where its random numbers will come from.
    pub seed: u64,
    /// How its program is called.
    pub dispatch: Dispatch,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// How long it is kept after its end; for ever, if that is not said.
    pub retention_ms: Option<u64>,
    /// Its idempotency key.
    pub key: Option<String>,
    /// What people call it by.
    pub tags: Vec<String>,
    /// Who starts it; nobody in particular, if that is not said.
    pub started_by: Option<String>,
    /// Who has invoked it, if it is a child.
    pub parent: Option<Parent>,
    /// What has started it, if a schedule has.
    pub ticked: Option<Ticked>,
    /// It does not begin before; at once, if that is not said.
    pub starts_at: Option<Timestamp>,
    /// What has started it, if an event has.
    pub triggered: Option<Triggered>,
    /// The address that is called when it ends, if somebody has named one.
    pub callback: Option<String>,
    /// The span that it happens within, if whoever starts it has named one.
    pub trace: Option<TraceParent>,
    /// The limits that it is under, if its workflow has any.
    pub lane: Option<Box<InLane>>,
    /// What it knows of its starts, if others may become part of it.
    pub gathering: Option<Box<Gathering>>,
    /// A slot, if one is free: its program is then called at once.
    pub slot: Option<Slot>,
}

impl Start {
    /// A run that begins at once, when there is a slot, and has nothing special about it.
    pub fn plain(id: RunId, workflow: impl Into<String>, input_bytes: usize, seed: u64) -> Self {
        Self {
            id,
            workflow: workflow.into(),
            input_bytes,
            seed,
            dispatch: Dispatch::Direct,
            timeout_ms: None,
            retention_ms: None,
            key: None,
            tags: Vec::new(),
            started_by: None,
            parent: None,
            ticked: None,
            starts_at: None,
            triggered: None,
            callback: None,
            trace: None,
            lane: None,
            gathering: None,
            slot: None,
        }
    }
}

impl Run {
    /// A new run, as it is before its first entry, and what to do about it.
    pub fn start(now: Timestamp, start: Start) -> (Self, Decision) {
        let starts_at = start.starts_at.filter(|at| *at > now);
        let run = Self {
            id: start.id,
            workflow: start.workflow,
            seed: start.seed,
            created_at: now,
            starts_at,
            epoch: Epoch(0),
            head: Seq(0),
            quarantined: false,
            began_at: Seq(0),
            mark: None,
            inbox: Inbox::default(),
            open: Vec::new(),
            held: Vec::new(),
            visits: 0,
            children: Children::default(),
            parent: start.parent,
            ticked: start.ticked,
            triggered: start.triggered,
            callback: start.callback,
            trace: start.trace,
            chapter: None,
            lane: start.lane,
            gathering: start.gathering,
            input_bytes: u32::try_from(start.input_bytes).unwrap_or(u32::MAX),
            dispatch: start.dispatch,
            timeout_ms: start.timeout_ms,
            deadline: deadline(starts_at.unwrap_or(now), start.timeout_ms),
            retention_ms: start.retention_ms,
            deleting: false,
            emptied: false,
            key: start.key,
            patches: Vec::new(),
            cuts: Vec::new(),
            life: None,
            remains: None,
            token_key: None,
            failed_since: None,
            progress: None,
            stamps: Stamps::default(),
            tags: start.tags,
            attributes: std::collections::BTreeMap::new(),
            started_by: start.started_by,
            acts: Vec::new(),
            last_error: None,
            spent: Spent::default(),
            trouble: Trouble::default(),
            draining: false,
            phase: Phase::Pending { not_before: now },
        };
        let decision = run.activate(now, start.slot);
        (run, decision)
    }

    /// Decides about an input.
    pub fn decide(&self, now: Timestamp, input: Input) -> Result<Decision, Rejection> {
        match input {
            Input::Activate(slot) => Ok(self.grant(now, slot)),
            Input::Commit { commit, hash, homes } => self.commit(now, commit, hash, homes),
            Input::ChildStarted { op, invoked, run, abandoned, slot } => {
                Ok(self.child_started(now, (op, invoked), run, abandoned, slot))
            }
            Input::ChildFinished { op, invoked, run, outcome, slot } => {
                Ok(self.child_finished(now, (op, invoked), run, outcome, slot))
            }
            Input::Signal { signal, slot } => self.signal(now, signal, slot),
            Input::Cancel => self.cancel(now),
            Input::Pause => self.pause(),
            Input::Resume { slot } => self.resume(now, slot),
            Input::Restart { cuts, signals, dropped, keeps_progress, slot } => {
                let mut decision = self.restart(now, cuts, signals, keeps_progress, slot)?;
                decision.entries.extend(dropped.map(Entry::SignalForgotten));
                Ok(decision)
            }
            Input::Wake { slot } => Ok(self.wake(now, slot)),
            Input::LetIn { slot } => Ok(self.let_in(now, slot)),
            Input::InLine => Ok(self.in_line(now)),
            Input::StepLetIn { ticket, slot } => Ok(self.let_step_in(now, ticket, slot)),
            Input::StepPutOff { ticket, until } => Ok(self.put_step_off(ticket, until)),
            Input::Join { joined, slot } => Ok(self.join(now, joined, slot)),
            Input::ActivationEnded { epoch, end } => Ok(self.activation_ended(now, epoch, &end)),
            Input::Reload => Ok(self.reload(now)),
            Input::Expire => Ok(self.expire(now)),
            Input::Empty => Ok(self.empty()),
            Input::Unreadable => Ok(self.set_aside()),
            Input::Heard { epoch } => self.heard(now, epoch),
        }
    }

    /// An activation is due: in this slot, or when there is one; but not before the run may begin.
    pub(super) fn activate(&self, now: Timestamp, slot: Option<Slot>) -> Decision {
        // Once it has begun, a clock that is behind does not put it off again.
        let starts_at = self.starts_at.filter(|_| self.epoch == Epoch(0));
        if let Some(not_before) = starts_at.filter(|at| *at > now) {
            return Decision { entries: vec![Entry::Queued { not_before }], ..Decision::default() };
        }
        let (entry, effect) = match slot {
            Some(slot) if slot.alone || !self.wants_to_be_alone() => {
                let epoch = self.epoch.next();
                (Entry::Activated { epoch, at: now, slot }, Effect::Activate { epoch })
            }
            Some(_) | None => (Entry::Queued { not_before: now }, Effect::Enqueue),
        };
        Decision { entries: vec![entry], effects: vec![effect], ..Decision::default() }
    }

    /// The window has a slot; the run may have moved on since it asked for one.
    fn grant(&self, now: Timestamp, slot: Slot) -> Decision {
        if self.is_overdue(now) {
            return self.time_out(now);
        }
        match self.phase {
            Phase::Pending { not_before } if not_before <= now => self.activate(now, Some(slot)),
            Phase::Pending { .. }
            | Phase::Running { .. }
            | Phase::Suspended
            | Phase::Paused { .. }
            | Phase::Ended { .. } => Decision { reply: Reply::Unchanged, ..Decision::default() },
        }
    }

    fn signal(&self, now: Timestamp, signal: Signal, slot: Option<Slot>) -> Result<Decision, Rejection> {
        signal.check_sender()?;
        if signal.payload.size() > PAYLOAD_BYTES_MAX {
            return Err(too_large("The signal's payload", signal.payload.size()));
        }
        if let Phase::Ended { .. } = self.phase {
            return Err(self.ended("receive a signal"));
        }
        // The oldest wait gets the signal; the program's replay follows the same rule.
        let answered = self.open.iter().position(|open| open.takes(&signal.name, signal.to));
        // A program at work may be past that wait already, and another wait may get the signal; one that came by a token
        // is for that wait only.
        let is_for_it = matches!(self.phase, Phase::Suspended) || signal.to.is_some();
        if let Some(index) = answered.filter(|_| is_for_it)
            && let Err(what) = self.open[index].shape.check(&signal.payload)
        {
            let detail = format!(
                "The run waits for signal '{}' with {}, and {what}. Nothing was sent: send it with a payload that fits.",
                signal.name,
                self.open[index].shape.describe()
            );
            return Err(Problem::new(Code::SignalMismatch, detail));
        }
        // An id is stored with the event.
        let nonce = signal.nonce.clone().filter(|_| signal.id.is_none());
        let (since, to) = (answered.and_then(|index| self.open[index].since), signal.to);
        let record = self.next_record(now, signal.received(since));
        let mut decision =
            Decision { entries: vec![Entry::Recorded { record, mark: None }], ..Decision::default() };
        decision.entries.extend(nonce.map(Entry::SignalNoted));
        match (&self.phase, answered) {
            (Phase::Suspended, Some(index)) => {
                let mut open = self.open.clone();
                let taken = open.remove(index);
                // What a token has completed is known by the id of its signal.
                let is_over = taken.asked.is_some() && to.is_none();
                decision.entries.extend(is_over.then(|| self.token_over(&taken.op)));
                decision.entries.push(Entry::OpenChanged(open));
                decision.extend(self.activate(now, slot));
            }
            // A wait for events is over with the first of them, whatever its program is doing.
            (phase, Some(index)) if self.open[index].event.is_some() => {
                let mut open = self.open.clone();
                open.remove(index);
                decision.entries.push(Entry::OpenChanged(open));
                if matches!(phase, Phase::Running { .. }) {
                    decision.effects.push(Effect::TellProgram);
                }
            }
            (Phase::Running { .. }, _) => decision.effects.push(Effect::TellProgram),
            // Kept in the journal until somebody asks for it.
            (Phase::Suspended, None)
            | (Phase::Pending { .. } | Phase::Paused { .. } | Phase::Ended { .. }, _) => {}
        }
        Ok(decision)
    }

    /// Refuses a signal that nobody waits for if the run has as many as it may.
    pub fn check_inbox(&self, limits: SignalLimits, bytes: u64) -> Result<(), Rejection> {
        if let Phase::Ended { .. } = self.phase {
            return Err(self.ended("receive a signal"));
        }
        let Inbox { unread, bytes: before } = self.inbox;
        let detail = if unread >= limits.unread {
            format!(
                "The run has {unread} signals that its program has not taken; the most is {}. Send more once it has.",
                limits.unread
            )
        } else if before.saturating_add(bytes) > limits.bytes {
            format!(
                "The run was sent {before} bytes of signals, and these are {bytes} more; the most is {}. Start another \
                 run, or send references to data that you keep elsewhere.",
                limits.bytes
            )
        } else {
            return Ok(());
        };
        Err(Problem::new(Code::TooManySignals, detail))
    }

    fn cancel(&self, now: Timestamp) -> Result<Decision, Rejection> {
        match self.phase {
            Phase::Ended { how: super::End::Cancelled, .. } => {
                Ok(Decision { reply: Reply::Unchanged, ..Decision::default() })
            }
            Phase::Ended { .. } => Err(self.ended("be cancelled")),
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended | Phase::Paused { .. } => {
                Ok(Decision {
                    entries: vec![Entry::Cancelled { at: now }],
                    effects: self.tell_whoever_is_at_work().chain([Effect::TellEnd]).collect(),
                    reply: Reply::Done,
                    ..Decision::default()
                })
            }
        }
    }

    /// Tells its program, if there can be one: a host would remember for ever what nobody comes to hear.
    pub(super) fn tell_whoever_is_at_work(&self) -> impl Iterator<Item = Effect> {
        let is_at_work = matches!(self.phase, Phase::Running { .. }) || self.draining;
        is_at_work.then_some(Effect::TellProgram).into_iter()
    }

    fn wake(&self, now: Timestamp, slot: Option<Slot>) -> Decision {
        if self.is_overdue(now) {
            return self.time_out(now);
        }
        match self.phase {
            Phase::Pending { not_before } if not_before <= now => match slot {
                Some(slot) => self.activate(now, Some(slot)),
                None => Decision { effects: vec![Effect::Enqueue], ..Decision::default() },
            },
            Phase::Suspended => {
                let (mut decision, any) = self.fire_due(now);
                if any {
                    decision.extend(self.activate(now, slot));
                }
                decision
            }
            Phase::Running { lease: Some(until), alone, since, .. } if until <= now => {
                self.end_lease(now, alone, since)
            }
            // See `next_due`.
            Phase::Running { .. } if !self.has_reported() => Decision::default(),
            Phase::Running { .. } => {
                let (mut decision, any) = self.fire_due(now);
                if any {
                    decision.effects.push(Effect::TellProgram);
                }
                decision
            }
            Phase::Pending { .. } | Phase::Paused { .. } | Phase::Ended { .. } => Decision::default(),
        }
    }

    /// Whether it has taken longer than it may.
    pub(super) fn is_overdue(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Pending { .. } | Phase::Running { .. } | Phase::Suspended => {
                self.deadline.is_some_and(|deadline| deadline <= now)
            }
            // Nothing happens to a paused run; that it is late shows when it goes on.
            Phase::Paused { .. } | Phase::Ended { .. } => false,
        }
    }

    pub(super) fn time_out(&self, now: Timestamp) -> Decision {
        let took_ms = now.as_millis().saturating_sub(self.life_began_at().as_millis());
        let what = self.life.map_or("it".into(), |life| format!("its life {}", life.number));
        let message = format!("{}: {what} had not ended after {took_ms} ms", Code::RunTimedOut.title());
        Decision {
            entries: vec![Entry::Failed { failure: Failure::coded(Code::RunTimedOut, message), at: now }],
            effects: self.tell_whoever_is_at_work().chain([Effect::TellEnd]).collect(),
            reply: Reply::Done,
            ..Decision::default()
        }
    }

    /// Everything in `open` whose time has come, recorded and taken out; and whether there was any.
    fn fire_due(&self, now: Timestamp) -> (Decision, bool) {
        let (due, mut open): (Vec<_>, Vec<_>) =
            self.open.iter().cloned().partition(|open| open.until.is_some_and(|until| until <= now));
        if due.is_empty() {
            return (Decision::default(), false);
        }
        // A lane that should have answered is asked again, which is nothing to the program.
        let (visits, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|open| open.visit.is_some());
        open.extend(visits.into_iter().map(|visit| Self::ask_again(now, visit)));
        let any = !due.is_empty();
        let mut seq = self.head;
        let mut entries: Vec<_> = due
            .into_iter()
            // The time of a next attempt is no event: nothing in the program can tell it apart.
            .filter(|open| open.op.kind != OpKind::Step)
            .map(|OpenOp { op, since, child, .. }| {
                seq = seq.next();
                let event = match child {
                    Some(child) => Self::child_timed_out(op, child),
                    None => Event::TimerFired { op, since },
                };
                let record = Record { seq, at: now, event };
                Entry::Recorded { record, mark: None }
            })
            .collect();
        entries.extend(self.tokens_over(&open));
        entries.push(Entry::OpenChanged(open));
        (Decision { entries, ..Decision::default() }, any)
    }

    fn activation_ended(&self, now: Timestamp, epoch: Epoch, end: &CallEnd) -> Decision {
        if !self.is_held_by(epoch) {
            return Decision { reply: Reply::Unchanged, ..Decision::default() };
        }
        let mut trouble = Trouble { refused: None, ..self.current_trouble() };
        match end {
            // A program that hangs without a word would hang again: it must not go on for ever.
            CallEnd::Returned | CallEnd::Threw(_) | CallEnd::Silent => trouble.strikes += 1,
            CallEnd::Lost(_) => trouble.losses += 1,
            CallEnd::Unstored => trouble.unstored += 1,
            // It goes on by itself once somebody has set the right key.
            CallEnd::Refused(problem) => {
                trouble.losses += 1;
                trouble.refused = Some(problem.code);
            }
            CallEnd::Died(_) => {
                if let Phase::Running { alone, since, .. } = self.phase {
                    trouble = self.suspected(now, alone, since);
                }
            }
        }
        let why = match end {
            CallEnd::Returned => "it returned without saying what it waits for",
            CallEnd::Silent => "nothing was heard of it for a minute",
            CallEnd::Unstored => "the storage did not take what it reported",
            CallEnd::Threw(message) | CallEnd::Lost(message) | CallEnd::Died(message) => message,
            CallEnd::Refused(problem) => &problem.detail,
        };
        self.try_again(now, trouble, why)
    }

    fn reload(&self, now: Timestamp) -> Decision {
        match self.phase {
            Phase::Running { session: Transport::Capability, alone, since, .. } => {
                self.replace_orphan(now, alone, since)
            }
            Phase::Running { session: Transport::Token, .. } => {
                Decision { entries: vec![leased(now)], ..Decision::default() }
            }
            Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => {
                Decision::default()
            }
        }
    }

    /// Whoever holds the call is alive.
    fn heard(&self, now: Timestamp, epoch: Epoch) -> Result<Decision, Rejection> {
        if self.is_drained_by(epoch) {
            return Ok(Decision::default());
        }
        if !self.is_held_by(epoch) {
            return Err(self.stale(epoch));
        }
        let entries = if self.is_leased() { vec![leased(now)] } else { vec![] };
        Ok(Decision { entries, ..Decision::default() })
    }

    /// Nobody has said a word for the activation: whoever held its call is dead, or cannot be reached. That may
    /// have been anybody's fault, so it is a loss, and makes the run suspicious.
    fn end_lease(&self, now: Timestamp, alone: bool, since: Timestamp) -> Decision {
        let mut trouble = self.suspected(now, alone, since);
        trouble.losses += 1;
        self.try_again(now, trouble, "whoever called it died whenever it ran")
    }

    /// The cell died while the program was at work.
    fn replace_orphan(&self, now: Timestamp, alone: bool, since: Timestamp) -> Decision {
        self.try_again(now, self.suspected(now, alone, since), "its cell died whenever it ran")
    }

    /// Its troubles after something has died while it ran. Whose fault that was shows only when it happens to a
    /// run that was alone.
    fn suspected(&self, now: Timestamp, alone: bool, since: Timestamp) -> Trouble {
        let mut trouble = self.current_trouble();
        trouble.suspicion += 1;
        // After that time others may have been let in.
        let was_alone = alone && now < since.plus_millis(EXCLUSIVE_MS);
        if was_alone && self.wants_to_be_alone() {
            trouble.strikes += 1;
        }
        trouble
    }

    /// Another activation, unless there were too many already.
    pub(super) fn try_again(&self, now: Timestamp, trouble: Trouble, why: &str) -> Decision {
        if trouble.strikes >= STRIKES_MAX {
            let message = format!(
                "{}: after {STRIKES_MAX} activations without progress: {why}",
                Code::ProgramDied.title()
            );
            return Decision {
                entries: vec![Entry::Failed { failure: Failure::coded(Code::ProgramDied, message), at: now }],
                effects: vec![Effect::TellEnd],
                reply: Reply::Done,
                ..Decision::default()
            };
        }
        if trouble.unstored >= UNSTORED_MAX {
            // Failing it would lose what it has done, and nobody knows that the next try fails too.
            return Decision {
                entries: vec![Entry::Paused(PauseWhy::Problem(unstored()))],
                ..Decision::default()
            };
        }
        let not_before = now.plus_millis(self.backoff_ms(trouble));
        Decision {
            entries: vec![Entry::Troubled(trouble), Entry::Queued { not_before }],
            effects: vec![Effect::Enqueue],
            reply: Reply::Done,
            ..Decision::default()
        }
    }

    /// Nothing for the first orphaning (the platform resets cells as it likes), then twice as long each time.
    fn backoff_ms(&self, trouble: Trouble) -> u64 {
        let deaths = trouble.strikes + trouble.losses + trouble.unstored;
        if deaths == 0 {
            return 0;
        }
        let pause_ms = (50_u64 << deaths.min(12)).min(TROUBLE_BACKOFF_MS_MAX);
        if trouble.suspicion < SUSPICION_ALONE {
            return pause_ms;
        }
        // Runs of other cells may have died of the same cause at the same moment. Called together again, the
        // guilty one would take the innocent along each time, until all are failed.
        scaled(2 * pause_ms, fraction(self.seed, self.epoch.0))
    }

    pub(super) fn next_record(&self, now: Timestamp, event: Event) -> Record {
        Record { seq: self.head.next(), at: now, event }
    }

    pub(super) fn ended(&self, what: &str) -> Rejection {
        let status = self.status().as_str();
        Problem::new(Code::RunEnded, format!("The run is {status} and cannot {what}."))
    }
}

/// The cell waits that long to hear of an activation again.
pub(super) fn leased(now: Timestamp) -> Entry {
    Entry::Leased { until: now.plus_millis(LEASE_MS) }
}

/// When a run that may take so long has taken too long, if it begins now.
pub(super) fn deadline(now: Timestamp, timeout_ms: Option<u64>) -> Option<Timestamp> {
    timeout_ms.map(|ms| now.plus_millis(ms.max(1)))
}

impl Decision {
    pub(super) fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.effects.extend(other.effects);
        self.outgoing.invoked.extend(other.outgoing.invoked);
        self.outgoing.emitted.extend(other.outgoing.emitted);
        self.outgoing.jobs.extend(other.outgoing.jobs);
    }
}

/// The problem of a run whose program's reports the storage does not take.
fn unstored() -> Problem {
    let detail = format!(
        "The storage did not take what the run's program reported, {UNSTORED_MAX} times in a row, so the steps that it \
         reported may have run as often. The Worker's log says why the storage refused. Once that is mended, resume the \
         run."
    );
    Problem::new(Code::Internal, detail)
}

pub(super) fn too_large(what: &str, bytes: usize) -> Rejection {
    let detail = format!(
        "{what} has {bytes} bytes of JSON; the most is {PAYLOAD_BYTES_MAX}. Store it elsewhere (R2, say) \
         and pass its name."
    );
    Problem::new(Code::PayloadTooLarge, detail)
}

/// Refuses an operation's name that could not be stored or shown.
pub(crate) fn check_op(op: &Op) -> Result<(), Rejection> {
    if op.name.is_empty() || op.name.len() > Op::NAME_LENGTH_MAX {
        let detail = format!(
            "The name of a {} has {} bytes; it takes 1 to {}.",
            op.kind.as_str(),
            op.name.len(),
            Op::NAME_LENGTH_MAX
        );
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    Ok(())
}
