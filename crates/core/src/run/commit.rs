//! What a program's report does.

use std::collections::BTreeMap;

use stepwell_protocol::{
    Code, Epoch, Event, Op, Outcome, Place, Problem, Record, Seq, Timestamp,
    program::{Attributes, Command, Commit, Open, PAYLOAD_BYTES_MAX, Progress, Retry, Since, Then},
    queue::SentJob,
    topic::{EVENT_BYTES_MAX, EventWait, NewEvent, WAIT_PREFIX, parts},
};

use super::{
    Decision, Effect, Entry, Mark, OPEN_MAX, OpenChild, OpenOp, Outgoing, PATCHES_MAX,
    PROGRESS_MESSAGE_LENGTH_MAX, PauseWhy, Phase, Rejection, Reply, Run,
    children::check_invocation,
    decide::{check_op, leased, too_large},
    delay_ms,
    tokens::TOKEN_KEY_LENGTH_MAX,
};
use crate::{
    ordered::{OrdMap, OrdSet},
    topic::check_wait,
};

impl Run {
    pub(super) fn commit(
        &self,
        now: Timestamp,
        commit: Commit,
        hash: u64,
        homes: Vec<Place>,
    ) -> Result<Decision, Rejection> {
        if let Some(reply) = self.repeated(&commit, hash) {
            let entries = if self.is_leased() { vec![leased(now)] } else { vec![] };
            return Ok(Decision { entries, reply, ..Decision::default() });
        }
        let draining = self.is_drained_by(commit.epoch);
        if !self.is_held_by(commit.epoch) && !draining {
            return Err(self.stale(commit.epoch));
        }
        // A copy that was long under way: its program has said other things since.
        if commit.turn > 0
            && self.mark.is_some_and(|mark| mark.epoch == commit.epoch && mark.turn >= commit.turn)
        {
            return Err(self.overtaken(&commit));
        }
        // Between the base and the head there may be news from outside, but nothing of the program's own; and
        // whoever goes on from an event that does not count has not seen that the run was taken back.
        if commit.base < self.written_through() || commit.base > self.head || !self.counts(commit.base) {
            return Err(self.misplaced(&commit));
        }
        check(&commit)?;
        self.check_asides(&commit)?;
        self.check_keeps(&commit)?;
        self.check_visits(open_of(&commit.then).unwrap_or_default())?;
        Ok(if draining { self.drain(now, commit, hash) } else { self.accept(now, commit, hash, homes) })
    }

    /// The run was paused while this activation was at work. Records what was done and nothing else: what the
    /// program does next, it will find out when the run is resumed.
    fn drain(&self, now: Timestamp, mut commit: Commit, hash: u64) -> Decision {
        // On record, a step that has not begun would look like one that was cut short.
        commit.commands.retain(|command| !matches!(command, Command::StepBegun { .. }) && !is_sent(command));
        if commit.commands.is_empty() && !has_asides(&commit) {
            return Decision { reply: Reply::Stop, ..Decision::default() };
        }
        let (then, foresees) = (Then::Continue { open: None }, None);
        let decision = self.accept(now, Commit { then, foresees, ..commit }, hash, Vec::new());
        Decision { reply: Reply::Stop, ..decision }
    }

    /// The answer to a commit that was recorded before, if this is one.
    fn repeated(&self, commit: &Commit, hash: u64) -> Option<Reply> {
        let mark = self.mark?;
        if (mark.epoch, mark.base, mark.hash) != (commit.epoch, commit.base, hash) {
            return None;
        }
        if mark.erred {
            return Some(Reply::Stop);
        }
        // Whoever wanted to go on later may have been succeeded already.
        if self.epoch != commit.epoch && !matches!(commit.then, Then::Yield { .. } | Then::Anew { .. }) {
            return None;
        }
        match (&commit.then, &self.phase) {
            // Its own commit is on record, but it was told to go on because there was news.
            (Then::Continue { .. } | Then::Suspend { .. }, Phase::Running { .. }) => Some(Reply::Go),
            // The same if it has not begun anew: in its next life, a run has another activation.
            (Then::Anew { .. }, Phase::Running { .. }) if self.epoch == commit.epoch => Some(Reply::Go),
            // The run was cancelled or taken from it in between: there is nothing to go on with.
            (Then::Continue { .. }, Phase::Pending { .. } | Phase::Suspended | Phase::Ended { .. }) => None,
            (Then::Continue { .. }, Phase::Paused { .. })
            | (
                Then::Suspend { .. }
                | Then::Yield { .. }
                | Then::Anew { .. }
                | Then::Complete { .. }
                | Then::Fail { .. }
                | Then::Pause { .. },
                _,
            ) => Some(Reply::Stop),
        }
    }

    fn accept(&self, now: Timestamp, mut commit: Commit, hash: u64, homes: Vec<Place>) -> Decision {
        let has_news = self.last_counted() > commit.base;
        let has_asides = has_asides(&commit);
        let foreseen = commit.foresees.filter(|at| !has_news && (self.created_at..=now).contains(at));
        // It has gone another way than whoever reads the journal will: what follows from that must not be recorded.
        let erred = foreseen != commit.foresees;
        if erred {
            commit.commands.retain(|command| !is_sent(command));
        }
        let is_unheard = !commit.patches.is_empty() && (has_news || erred);
        let unheard = is_unheard.then(|| open_of(&commit.then).unwrap_or_default().to_vec());
        let then = if erred { Then::Yield { open: None } } else { commit.then };
        let recorded_at = foreseen.unwrap_or(now);
        // All that came after its base came from outside, and it has not seen it.
        let unread = commit.unread.saturating_add(self.counted_after(commit.base));
        let count = u32::try_from(commit.commands.len()).expect("a message holds fewer commands than 2^32");
        let through = Seq(self.head.0 + count);
        let mark = Mark {
            epoch: commit.epoch,
            base: commit.base,
            hash,
            through: if count == 0 { self.written_through() } else { through },
            turn: commit.turn,
            erred,
        };
        let Decision { mut entries, outgoing, .. } =
            self.record(now, recorded_at, commit.commands, homes, mark);
        // Whoever is heard of is alive.
        if self.is_leased() {
            entries.push(leased(now));
        }
        // What is said beside has to be known as said, too: a copy that comes late must not take it back.
        let marks_aside = count == 0 && has_asides;
        let Commit { patches, progress, attributes, failed_since, token_key, over, .. } = commit;
        entries.extend(token_key.filter(|key| self.token_key.as_ref() != Some(key)).map(Entry::TokenKeyUsed));
        entries.extend(self.beside(now, unheard, patches, progress, attributes));
        let (effects, reply) = match then {
            // What the program has not seen may have answered some of what it says it waits for: a sleep that
            // is over would begin again. It will say it again. Or it may be a signal, which must not be lost between two
            // lives.
            Then::Continue { open: Some(_) } | Then::Anew { .. } if has_news => {
                entries.extend(marks_aside.then_some(Entry::Marked(mark)));
                (vec![], Reply::Go)
            }
            Then::Continue { open } => {
                match open {
                    Some(open) => {
                        entries.extend(self.waits_now(now, open));
                        entries.push(Entry::Marked(mark));
                    }
                    None if count == 0 => entries.push(Entry::Marked(mark)),
                    None => {}
                }
                (vec![], Reply::Go)
            }
            // Something came from outside that the program has not seen: it must look before it sleeps. The
            // commands are on record; what it waits for, it will say again. Likewise if it has just
            // reported a failed attempt: it has not seen when the next one is.
            Then::Suspend { .. } if has_news || count > 0 => {
                entries.extend(marks_aside.then_some(Entry::Marked(mark)));
                (vec![], Reply::Go)
            }
            // Asleep it would be due at a time that its cell may have looked at already; and there is nothing to go on
            // with later.
            Then::Suspend { .. } | Then::Yield { .. } | Then::Anew { .. } if self.is_overdue(now) => {
                let mut late = self.time_out(now);
                entries.push(Entry::Marked(mark));
                entries.append(&mut late.entries);
                (late.effects, Reply::Stop)
            }
            Then::Suspend { open } => {
                entries.push(Entry::Marked(mark));
                entries.extend(self.waits_now(now, open));
                entries.push(Entry::Suspended);
                (vec![], Reply::Stop)
            }
            Then::Yield { open } => {
                // As with the others: what it has not seen may have answered it.
                if let Some(open) = open.filter(|_| !has_news) {
                    entries.extend(self.waits_now(now, open));
                }
                entries.push(Entry::Marked(mark));
                let mut again = self.go_on_later(now, through);
                entries.append(&mut again.entries);
                (again.effects, Reply::Stop)
            }
            Then::Anew { input, keeps, keeps_bytes } => {
                let anew = self.begin_anew(now, through, input, &keeps, keeps_bytes);
                entries.push(Entry::Marked(mark));
                entries.extend(anew.entries);
                return self.within_its_row(now, Decision { entries, outgoing, ..anew });
            }
            Then::Complete { output } => {
                entries.extend([Entry::Marked(mark), Entry::Completed { output, at: now }]);
                (vec![Effect::TellEnd], Reply::Stop)
            }
            Then::Fail { failure } => {
                entries.extend(failed_since.map(Entry::FailingSince));
                entries.extend([Entry::Marked(mark), Entry::Failed { failure: failure.cut(), at: now }]);
                (vec![Effect::TellEnd], Reply::Stop)
            }
            Then::Pause { problem } => {
                entries.extend([Entry::Marked(mark), Entry::Paused(PauseWhy::Problem(problem.cut()))]);
                (vec![], Reply::Stop)
            }
        };
        // If it has erred, the way that it has gone is not the run's.
        if !erred {
            self.leave_lanes(&over, &mut entries);
            self.give_up(over, &mut entries);
        }
        // Only with something that is stored anyway: it is worth no row of its own.
        if unread < self.inbox.unread && entries.iter().any(Entry::is_stored) {
            entries.push(Entry::SignalsRead { unread });
        }
        self.within_its_row(now, Decision { entries, effects, outgoing, reply })
    }

    /// What its commands become in the journal, and what of them has to be started or sent elsewhere. The last one has the
    /// mark.
    fn record(
        &self,
        now: Timestamp,
        recorded_at: Timestamp,
        commands: Vec<Command>,
        homes: Vec<Place>,
        mark: Mark,
    ) -> Decision {
        let last = commands.len().saturating_sub(1);
        let (mut homes, mut children) = (homes.into_iter(), self.children.count());
        let mut outgoing = Outgoing::default();
        let entries = commands.into_iter().enumerate().zip((self.head.0 + 1..).map(Seq));
        let entries = entries.map(|((index, command), seq)| {
            let event = if let Command::ChildInvoked { op, invocation } = command {
                let to = homes.next().unwrap_or_else(|| self.id.place.clone());
                let event = self.invoke(op, &invocation, to, seq, children);
                if matches!(event, Event::ChildInvoked { .. }) {
                    children += 1;
                    outgoing.invoked.push((seq, invocation));
                }
                event
            } else if let Command::Emitted { op, event } = command {
                let recorded = event.recorded(op);
                outgoing.emitted.push(*event);
                recorded
            } else if let Command::JobSent { op, job } = command {
                outgoing.jobs.push((seq, job));
                SentJob::recorded(op)
            } else {
                self.event(now, command)
            };
            let record = Record { seq, at: recorded_at, event };
            Entry::Recorded { record, mark: (index == last).then_some(mark) }
        });
        let entries = entries.collect();
        Decision { entries, outgoing, ..Decision::default() }
    }

    /// What a program says beside its steps. `unheard` is what it waits for with a new patch, if that cannot be recorded
    /// yet and will be said once more.
    fn beside(
        &self,
        now: Timestamp,
        unheard: Option<Vec<Open>>,
        patches: Vec<String>,
        progress: Option<Box<Progress>>,
        attributes: BTreeMap<String, String>,
    ) -> Vec<Entry> {
        let mut entries = Vec::new();
        if !patches.is_empty() {
            // Until then, nothing may happen that the way before the patch waited for: the code does not know of it any
            // more.
            if let Some(open) = unheard {
                let open: OrdSet<_> = open.iter().map(Open::op).collect();
                let waits_on = |known: &&OpenOp| open.contains(&known.op);
                let open: Vec<_> = self.open.iter().filter(waits_on).cloned().collect();
                entries.extend(self.tokens_over(&open));
                entries.push(Entry::OpenChanged(open));
            }
            entries.push(Entry::Patched(patches));
        }
        if let Some(progress) = progress {
            entries.push(Entry::Progressed(self.dated(now, *progress)));
        }
        for (name, value) in attributes {
            let before = self.attributes.get(&name).cloned();
            // A program that got no answer says it again.
            if before.as_ref() != Some(&value) {
                entries.push(Entry::Attributed { name, value, before });
            }
        }
        entries
    }

    /// Its program wants to be activated again. That is progress if the journal has grown under it; if it has not,
    /// the next activation would do the same, for ever.
    fn go_on_later(&self, now: Timestamp, head: Seq) -> Decision {
        if head > self.began_at {
            let entries = vec![Entry::Queued { not_before: now }];
            return Decision {
                entries,
                effects: vec![Effect::Enqueue],
                reply: Reply::Stop,
                ..Decision::default()
            };
        }
        let mut trouble = self.current_trouble();
        trouble.strikes += 1;
        self.try_again(now, trouble, "it wanted to go on later and had done nothing")
    }

    /// Adds to what a program says about its progress when that was, and when it may be done if it goes on as it did.
    fn dated(&self, now: Timestamp, said: Progress) -> Progress {
        let percent = said.percent.clamp(0.0, 100.0);
        let began = self.progress.as_ref().and_then(|before| before.since);
        // A run that was taken back begins anew.
        let since = began.filter(|since| since.percent <= percent).unwrap_or(Since { at: now, percent });
        let (done, took_ms) = (percent - since.percent, now.as_millis().saturating_sub(since.at.as_millis()));
        let ends_at = said.ends_at.or_else(|| {
            #[expect(clippy::cast_precision_loss, reason = "nobody estimates to the millisecond")]
            let left_ms = (100.0 - percent) / done * took_ms as f64;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is neither negative nor endless, and the latest time is far below 2^53"
            )]
            (done > 0.0 && took_ms > 0).then(|| now.plus_millis(left_ms as u64))
        });
        Progress { percent, ends_at, at: Some(now), since: Some(since), ..said }
    }

    /// What a command becomes in the journal.
    fn event(&self, now: Timestamp, command: Command) -> Event {
        match command {
            Command::StepBegun { op } => Event::StepBegun { op },
            Command::StepSucceeded { op, attempt, output, took_ms } => {
                Event::StepFinished { op, attempt, outcome: Outcome::Ok(output), took_ms }
            }
            Command::StepFailed { op, attempt, failure, retry, retry_after_ms, took_ms } => {
                let failure = failure.cut();
                if failure.terminal || attempt >= retry.attempts {
                    return Event::StepFinished { op, attempt, outcome: Outcome::Err(failure), took_ms };
                }
                // Whoever is asked knows better than a policy when it can answer again.
                let asked_ms = retry_after_ms.map(|ms| ms.min(Retry::AFTER_MS_MAX));
                let wait_ms = asked_ms.unwrap_or_else(|| delay_ms(&retry, self.seed, &op, attempt));
                let retry_at = now.plus_millis(wait_ms);
                Event::StepRetrying { op, attempt, failure, retry_at, took_ms }
            }
            Command::ChildInvoked { .. } | Command::Emitted { .. } | Command::JobSent { .. } => {
                unreachable!("it becomes an event with what is sent elsewhere")
            }
        }
    }

    /// What it waits for from here on, and which tokens nobody waits for any more.
    fn waits_now(&self, now: Timestamp, open: Vec<Open>) -> impl Iterator<Item = Entry> {
        let open = self.merge_open(now, open);
        let over: Vec<_> = self.tokens_over(&open).collect();
        over.into_iter().chain([Entry::OpenChanged(open)])
    }

    /// What the program waits for, with times: a sleep or wait that is known keeps its own.
    fn merge_open(&self, now: Timestamp, open: Vec<Open>) -> Vec<OpenOp> {
        let known: OrdMap<_, _> = self.open.iter().map(|open| (&open.op, (open.until, open.since))).collect();
        // Later than now: a cell that has looked for what is due does not look at that time again.
        let soonest = now.plus_millis(1);
        let until = |op: &Op, ms: u64| match known.get(op) {
            Some((until, _)) => until.map(|until| until.max(soonest)),
            None => Some(now.plus_millis(ms).max(soonest)),
        };
        let since = |op: &Op| known.get(op).map_or(Some(now), |(_, since)| *since);
        let mut tickets = self.visits;
        let plain = OpenOp::plain;
        open.into_iter()
            .map(|open| match open {
                Open::Sleep { op, ms } => OpenOp { until: until(&op, ms), since: since(&op), ..plain(op) },
                Open::Wait { op, signal, timeout_ms, shape, asked, event } => OpenOp {
                    // The wait ends with its token.
                    until: (timeout_ms.and_then(|ms| until(&op, ms)).into_iter())
                        .chain(asked.as_ref().map(|asked| asked.expires_at.max(soonest)))
                        .min(),
                    since: since(&op),
                    // Nobody waits for what cancels a run.
                    signal: Some(signal).filter(|_| !event.as_ref().is_some_and(|event| event.cancels)),
                    event,
                    shape: shape.bounded(),
                    asked: asked.map(|asked| Box::new(asked.bounded())),
                    ..plain(op)
                },
                Open::SleepUntil { op, at } => {
                    OpenOp { since: since(&op), until: Some(at.max(soonest)), ..plain(op) }
                }
                // The journal has its last attempt.
                Open::Retry { op, at } => OpenOp { until: Some(at.max(soonest)), ..plain(op) },
                Open::Lane { op, lane } => {
                    tickets = tickets.saturating_add(1);
                    self.visit_of(now, op, *lane, tickets)
                }
                Open::Child { op, invoked, awaits, timeout_ms } => OpenOp {
                    until: timeout_ms.and_then(|ms| until(&op, ms)),
                    since: since(&op),
                    child: Some(OpenChild { invoked, awaits }),
                    ..plain(op)
                },
            })
            .collect()
    }

    /// Refuses what a program says beside its steps, if there is too much of it.
    fn check_asides(&self, commit: &Commit) -> Result<(), Rejection> {
        let detail = if self.patches.len() + commit.patches.len() > PATCHES_MAX {
            format!("The run's code applies more than {PATCHES_MAX} patches.")
        } else if commit.patches.iter().any(|name| name.is_empty() || name.len() > Op::NAME_LENGTH_MAX) {
            format!("The name of a patch takes 1 to {} bytes.", Op::NAME_LENGTH_MAX)
        } else if commit.progress.as_ref().is_some_and(|at| at.message.len() > PROGRESS_MESSAGE_LENGTH_MAX) {
            format!("A message about progress takes at most {PROGRESS_MESSAGE_LENGTH_MAX} bytes.")
        } else if !commit.attributes.keys().all(|name| Attributes::is_name(name)) {
            format!(
                "The name of an attribute takes 1 to {} bytes, without colons and control characters.",
                Attributes::NAME_LENGTH_MAX
            )
        } else if commit.attributes.values().any(|value| value.len() > Attributes::VALUE_LENGTH_MAX) {
            format!("The value of an attribute takes at most {} bytes.", Attributes::VALUE_LENGTH_MAX)
        } else if self.attributes.keys().chain(commit.attributes.keys()).collect::<OrdSet<_>>().len()
            > Attributes::MAX
        {
            format!("A run has at most {} attributes.", Attributes::MAX)
        } else if commit.token_key.as_ref().is_some_and(|key| key.len() > TOKEN_KEY_LENGTH_MAX) {
            format!("The id of a key has at most {TOKEN_KEY_LENGTH_MAX} bytes.")
        } else {
            return Ok(());
        };
        Err(Problem::new(Code::InvalidRequest, detail))
    }

    pub(crate) fn stale(&self, epoch: Epoch) -> Rejection {
        let detail = format!(
            "This is activation {}; the run is {} at activation {}.",
            epoch.0,
            self.status().as_str(),
            self.epoch.0
        );
        Problem::new(Code::StaleEpoch, detail)
    }

    fn overtaken(&self, commit: &Commit) -> Rejection {
        let turn = self.mark.map_or(0, |mark| mark.turn);
        let detail = format!("This is commit {} of its activation; commit {turn} is on record.", commit.turn);
        Problem::new(Code::BaseMismatch, detail)
    }

    fn misplaced(&self, commit: &Commit) -> Rejection {
        let detail = format!(
            "The commit continues position {}, but the program has written up to {} and the journal ends \
             at {}.",
            commit.base.0,
            self.written_through().0,
            self.head.0
        );
        Problem::new(Code::BaseMismatch, detail)
    }
}

/// Whether a command makes the run's cell write to others.
fn is_sent(command: &Command) -> bool {
    matches!(command, Command::ChildInvoked { .. } | Command::Emitted { .. } | Command::JobSent { .. })
}

/// Whether a program says something beside its steps.
fn has_asides(commit: &Commit) -> bool {
    !commit.patches.is_empty()
        || commit.progress.is_some()
        || !commit.attributes.is_empty()
        || !commit.over.is_empty()
}

/// Refuses what could not be stored.
fn check(commit: &Commit) -> Result<(), Rejection> {
    for command in &commit.commands {
        match command {
            Command::StepSucceeded { op, output, .. } => {
                check_op(op)?;
                if output.size() > PAYLOAD_BYTES_MAX {
                    return Err(too_large(&format!("The result of step '{}'", op.name), output.size()));
                }
            }
            Command::StepBegun { op } | Command::StepFailed { op, .. } => check_op(op)?,
            Command::ChildInvoked { op, invocation } => check_invocation(op, invocation)?,
            Command::Emitted { op, event } => {
                check_op(op)?;
                check_event(event)?;
            }
            Command::JobSent { op, job } => {
                check_op(op)?;
                job.check()?;
            }
        }
    }
    if let Then::Complete { output } = &commit.then
        && output.size() > PAYLOAD_BYTES_MAX
    {
        return Err(too_large("The run's output", output.size()));
    }
    if let Then::Anew { input, .. } = &commit.then
        && input.size() > PAYLOAD_BYTES_MAX
    {
        return Err(too_large("The input of the run's next life", input.size()));
    }
    let open = open_of(&commit.then).unwrap_or_default();
    if open.len() > OPEN_MAX {
        let detail = format!("The run waits for {} things at once; the most is {OPEN_MAX}.", open.len());
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    if matches!(&commit.then, Then::Suspend { open } if open.is_empty()) {
        let detail = "A run that waits for nothing would never wake again.";
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    for open in open {
        if let Open::Wait { op, signal, event, .. } = open {
            check_wait_names(op, signal, event.as_deref())?;
            event.as_deref().map_or(Ok(()), check_wait)?;
        }
    }
    let mut signals = open.iter().filter_map(|open| match open {
        Open::Wait { signal, .. } => Some(signal),
        Open::Sleep { .. }
        | Open::SleepUntil { .. }
        | Open::Retry { .. }
        | Open::Lane { .. }
        | Open::Child { .. } => None,
    });
    if commit.over.len() > OPEN_MAX {
        let detail =
            format!("A commit names {} waits that are over; the most is {OPEN_MAX}.", commit.over.len());
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    commit.over.iter().try_for_each(check_op)?;
    if signals.any(|signal| signal.len() > Op::NAME_LENGTH_MAX) {
        let detail = format!("The name of a signal takes at most {} bytes.", Op::NAME_LENGTH_MAX);
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    open.iter().try_for_each(|open| check_op(open.op()))
}

/// Refuses a wait for a signal that is named like one for an event, and the other way round: the name says which of both
/// a caller may complete.
fn check_wait_names(op: &Op, signal: &str, event: Option<&EventWait>) -> Result<(), Rejection> {
    let is_named = match event {
        // It takes no signal.
        Some(event) if event.cancels => true,
        Some(event) => op.name == signal && signal.strip_prefix(WAIT_PREFIX) == Some(event.on.as_str()),
        None => !signal.starts_with(WAIT_PREFIX) && !op.name.starts_with(WAIT_PREFIX),
    };
    if is_named {
        return Ok(());
    }
    let detail = format!(
        "A wait for an event is named '{WAIT_PREFIX}' and the event, and no other wait is. This one is named '{}'.",
        op.name
    );
    Err(Problem::new(Code::InvalidRequest, detail))
}

/// Refuses an event that its topic would refuse.
fn check_event(event: &NewEvent) -> Result<(), Rejection> {
    if event.data.size() > EVENT_BYTES_MAX {
        return Err(too_large(&format!("The data of event '{}'", event.name), event.data.size()));
    }
    if parts(&event.name).is_none() || event.id.is_none() {
        let detail = "An event that a run emits has an id and a name of two parts, such as 'order/paid'.";
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    Ok(())
}

/// What a program says that it waits for, if it says anything about it.
fn open_of(then: &Then) -> Option<&[Open]> {
    match then {
        Then::Continue { open } | Then::Yield { open } => open.as_deref(),
        Then::Suspend { open } => Some(open),
        Then::Anew { .. } | Then::Complete { .. } | Then::Fail { .. } | Then::Pause { .. } => None,
    }
}
