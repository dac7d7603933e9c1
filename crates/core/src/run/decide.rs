//! What to do about an input. Decides; never writes.

use stepwell_protocol::{
    Code, Epoch, Event, Failure, Op, OpKind, Payload, Problem, Record, RunId, Seq, Timestamp,
    program::PAYLOAD_BYTES_MAX,
};

use super::{
    CallEnd, Decision, Effect, Entry, Input, ORPHAN_GRACE_MS, OpenOp, Phase, Rejection, Reply, Run,
    STRIKES_MAX, Session, Slot, Spent, TROUBLE_BACKOFF_MS_MAX, Trouble,
};

/// What a run is started with.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its id.
    pub id: RunId,
    /// The workflow to run.
    pub workflow: String,
    /// Where its random numbers will come from.
    pub seed: u64,
    /// How long it may take.
    pub timeout_ms: Option<u64>,
    /// What people call it by.
    pub tags: Vec<String>,
    /// A slot, if one is free: its program is then called at once.
    pub slot: Option<Slot>,
}

impl Run {
    /// A new run, as it is before its first entry, and what to do about it.
    pub fn start(now: Timestamp, start: Start) -> (Self, Decision) {
        let run = Self {
            id: start.id,
            workflow: start.workflow,
            seed: start.seed,
            created_at: now,
            epoch: Epoch(0),
            head: Seq(0),
            mark: None,
            open: Vec::new(),
            timeout_ms: start.timeout_ms,
            deadline: deadline(now, start.timeout_ms),
            patches: Vec::new(),
            cuts: Vec::new(),
            progress: None,
            tags: start.tags,
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
            Input::Commit { commit, hash } => self.commit(now, commit, hash),
            Input::Signal { name, id, payload, slot } => self.signal(now, name, id, payload, slot),
            Input::Cancel => self.cancel(now),
            Input::Pause => self.pause(),
            Input::Resume { slot } => self.resume(now, slot),
            Input::Restart { cuts, signals, slot } => self.restart(now, cuts, signals, slot),
            Input::Wake { slot } => Ok(self.wake(now, slot)),
            Input::ActivationEnded { epoch, end } => Ok(self.activation_ended(now, epoch, &end)),
            Input::Reload => Ok(self.reload(now)),
        }
    }

    /// An activation is due: in this slot, or when there is one.
    pub(super) fn activate(&self, now: Timestamp, slot: Option<Slot>) -> Decision {
        let (entry, effect) = match slot {
            Some(slot) if slot.alone || !self.wants_to_be_alone() => {
                let epoch = self.epoch.next();
                (Entry::Activated { epoch, at: now, slot }, Effect::Activate { epoch })
            }
            Some(_) | None => (Entry::Queued { not_before: now }, Effect::Enqueue),
        };
        Decision { entries: vec![entry], effects: vec![effect], reply: Reply::Done }
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

    fn signal(
        &self,
        now: Timestamp,
        name: String,
        id: Option<String>,
        payload: Payload,
        slot: Option<Slot>,
    ) -> Result<Decision, Rejection> {
        if payload.size() > PAYLOAD_BYTES_MAX {
            return Err(too_large("The signal's payload", payload.size()));
        }
        if let Phase::Ended { .. } = self.phase {
            return Err(self.ended("receive a signal"));
        }
        // The oldest wait gets the signal; the program's replay follows the same rule.
        let answered = self.open.iter().position(|open| open.signal.as_deref() == Some(&name));
        let record = self.next_record(now, Event::SignalReceived { name, id, payload });
        let mut decision =
            Decision { entries: vec![Entry::Recorded { record, mark: None }], ..Decision::default() };
        match (&self.phase, answered) {
            (Phase::Suspended, Some(index)) => {
                let mut open = self.open.clone();
                open.remove(index);
                decision.entries.push(Entry::OpenChanged(open));
                decision.extend(self.activate(now, slot));
            }
            (Phase::Running { .. }, _) => decision.effects.push(Effect::TellProgram),
            // Kept in the journal until somebody asks for it.
            (Phase::Suspended, None)
            | (Phase::Pending { .. } | Phase::Paused { .. } | Phase::Ended { .. }, _) => {}
        }
        Ok(decision)
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
                    effects: vec![Effect::TellProgram, Effect::TellEnd],
                    reply: Reply::Done,
                })
            }
        }
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
            Phase::Running { orphaned_until: Some(until), alone, .. } if until <= now => {
                self.replace_orphan(now, alone)
            }
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
        let took_ms = now.as_millis().saturating_sub(self.created_at.as_millis());
        let message = format!("{}: it had not ended after {took_ms} ms", Code::RunTimedOut.title());
        Decision {
            entries: vec![Entry::Failed { failure: Failure::coded(Code::RunTimedOut, message), at: now }],
            effects: vec![Effect::TellProgram, Effect::TellEnd],
            reply: Reply::Done,
        }
    }

    /// Everything in `open` whose time has come, recorded and taken out; and whether there was any.
    fn fire_due(&self, now: Timestamp) -> (Decision, bool) {
        let (due, open): (Vec<_>, Vec<_>) =
            self.open.iter().cloned().partition(|open| open.until.is_some_and(|until| until <= now));
        if due.is_empty() {
            return (Decision::default(), false);
        }
        let mut seq = self.head;
        let mut entries: Vec<_> = due
            .into_iter()
            // The time of a next attempt is no event: nothing in the program can tell it apart.
            .filter(|open| open.op.kind != OpKind::Step)
            .map(|OpenOp { op, .. }| {
                seq = seq.next();
                let record = Record { seq, at: now, event: Event::TimerFired { op } };
                Entry::Recorded { record, mark: None }
            })
            .collect();
        entries.push(Entry::OpenChanged(open));
        (Decision { entries, ..Decision::default() }, true)
    }

    fn activation_ended(&self, now: Timestamp, epoch: Epoch, end: &CallEnd) -> Decision {
        if !self.is_held_by(epoch) {
            return Decision { reply: Reply::Unchanged, ..Decision::default() };
        }
        let mut trouble = self.current_trouble();
        match end {
            CallEnd::Returned | CallEnd::Threw(_) => trouble.strikes += 1,
            CallEnd::Lost(_) => trouble.losses += 1,
        }
        let why = match end {
            CallEnd::Returned => "it returned without saying what it waits for",
            CallEnd::Threw(message) | CallEnd::Lost(message) => message,
        };
        try_again(now, trouble, why)
    }

    fn reload(&self, now: Timestamp) -> Decision {
        match self.phase {
            Phase::Running { session: Session::Capability, alone, .. } => self.replace_orphan(now, alone),
            Phase::Running { session: Session::Token, .. } => {
                let until = now.plus_millis(ORPHAN_GRACE_MS);
                Decision { entries: vec![Entry::Orphaned { until }], ..Decision::default() }
            }
            Phase::Pending { .. } | Phase::Suspended | Phase::Paused { .. } | Phase::Ended { .. } => {
                Decision::default()
            }
        }
    }

    /// The cell died while the program was at work. Whose fault that was shows only when it happens to a
    /// run that was alone.
    fn replace_orphan(&self, now: Timestamp, alone: bool) -> Decision {
        let mut trouble = self.current_trouble();
        trouble.suspicion += 1;
        if alone && self.wants_to_be_alone() {
            trouble.strikes += 1;
        }
        try_again(now, trouble, "its cell died whenever it ran")
    }

    pub(super) fn next_record(&self, now: Timestamp, event: Event) -> Record {
        Record { seq: self.head.next(), at: now, event }
    }

    pub(super) fn ended(&self, what: &str) -> Rejection {
        let status = self.status().as_str();
        Problem::new(Code::RunEnded, format!("The run is {status} and cannot {what}."))
    }
}

/// When a run that may take so long has taken too long, if it begins now.
pub(super) fn deadline(now: Timestamp, timeout_ms: Option<u64>) -> Option<Timestamp> {
    timeout_ms.map(|ms| now.plus_millis(ms.max(1)))
}

impl Decision {
    pub(super) fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.effects.extend(other.effects);
    }
}

/// Another activation, unless there were too many already.
fn try_again(now: Timestamp, trouble: Trouble, why: &str) -> Decision {
    if trouble.strikes >= STRIKES_MAX {
        let message =
            format!("{}: after {STRIKES_MAX} activations without progress: {why}", Code::ProgramDied.title());
        return Decision {
            entries: vec![Entry::Failed { failure: Failure::coded(Code::ProgramDied, message), at: now }],
            effects: vec![Effect::TellEnd],
            reply: Reply::Done,
        };
    }
    let not_before = now.plus_millis(backoff_ms(trouble));
    Decision {
        entries: vec![Entry::Troubled(trouble), Entry::Queued { not_before }],
        effects: vec![Effect::Enqueue],
        reply: Reply::Done,
    }
}

/// Nothing for the first orphaning (the platform resets cells as it likes), then twice as long each time.
fn backoff_ms(trouble: Trouble) -> u64 {
    let deaths = trouble.strikes + trouble.losses;
    if deaths == 0 {
        return 0;
    }
    (50_u64 << deaths.min(12)).min(TROUBLE_BACKOFF_MS_MAX)
}

pub(super) fn too_large(what: &str, bytes: usize) -> Rejection {
    let detail = format!(
        "{what} has {bytes} bytes of JSON; the most is {PAYLOAD_BYTES_MAX}. Store it elsewhere (R2, say) \
         and pass its name."
    );
    Problem::new(Code::PayloadTooLarge, detail)
}

/// Refuses an operation's name that could not be stored or shown.
pub(super) fn check_op(op: &Op) -> Result<(), Rejection> {
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
