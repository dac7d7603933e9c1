//! What must hold whenever something has become durable.

use stepwell_core::run::{Entry, Phase, Run, STRIKES_MAX};
use stepwell_protocol::{Code, Epoch, Event, Failure, OpKind, Outcome, RunId, Seq, Timestamp};

use super::{Checked, Checker, Known, lives};
use crate::{
    rng::{hash, hash64},
    tables::{JournalRow, Tables, Write},
};

impl Checker {
    /// A transaction has become durable. `program` is the activation that has caused it, if one has.
    pub fn durable(
        &mut self,
        (cell, disk): (usize, &Tables),
        program: Option<Epoch>,
        write: &Write,
        before: Option<&Run>,
        after: &Run,
        latest: Timestamp,
    ) -> Checked {
        if write.is_new {
            self.is_first(cell, after)?;
        }
        let known = self.runs.entry((cell, write.number)).or_default();
        let about = |text: String| format!("cell {cell}, run {}: {text}", write.number);
        if write.entries.iter().any(|entry| matches!(entry, Entry::Reopened { .. })) {
            known.take_back(disk.journal(write.number), after);
        }
        // What a child gives is kept after its parent's end: whoever takes that back goes on from there.
        let is_of_child =
            |row: &JournalRow| matches!(row.says(), Event::ChildFinished { .. } | Event::ChildStarted { .. });
        let is_kept = !write.records.is_empty() && write.records.iter().all(is_of_child);
        if let Some(ended) = known.ended.filter(|ended| !is_kept || after.status() != *ended) {
            return Err((
                "21 terminal states never change",
                about(format!("it was {} and is written to", ended.as_str())),
            ));
        }
        if let (Some(epoch), Some(before)) = (program, before)
            && !(before.is_held_by(epoch) || before.draining && before.epoch == epoch)
            && !write.records.is_empty() | write.row.is_some()
            && wrote_as_program(&write.entries)
        {
            let text =
                format!("activation {} wrote, it is {:?} at {}", epoch.0, before.status(), before.epoch.0);
            return Err(("6 a superseded activation is refused", about(text)));
        }
        for row in &write.records {
            known.record(before, row, &after.id, latest).map_err(|(rule, text)| (rule, about(text)))?;
            known.events.insert(row.seq, hash64(&row.event));
        }
        if !write.entries.iter().any(|entry| matches!(entry, Entry::Reopened { .. })) {
            known.note_signals(&write.records);
        }
        if write.entries.iter().any(|entry| matches!(entry, Entry::BegunAnew { .. })) {
            known.timers.clear();
            if let Some(row) = &write.row {
                known
                    .nothing_is_lost_between_lives(row, disk.journal(write.number), after)
                    .map_err(|(rule, text)| (rule, about(text)))?;
            }
        }
        for entry in &write.entries {
            // A wait that a run comes to again, after it was taken back, may be over again.
            if let Entry::SignalNoted(nonce) = entry
                && !nonce.starts_with(stepwell_protocol::wait_token::OVER)
                && !known.signal_ids.insert(nonce.clone())
            {
                let text = format!("one request has sent a signal twice ({nonce})");
                return Err(("16 a signal counts once", about(text)));
            }
        }
        if before.is_none_or(|before| before.epoch < after.epoch)
            && before.is_some_and(|before| after.epoch != before.epoch.next())
        {
            return Err((
                "8 activations are counted",
                about(format!("activation {} is next", after.epoch.0)),
            ));
        }
        if let Some(until) = self.put_off.get(&after.id.suffix).filter(|until| **until > latest)
            && after.epoch > Epoch(0)
        {
            let text = format!("it begins at {}, not at {}", latest.as_millis(), until.as_millis());
            return Err(("10 a run that was put off never begins early", about(text)));
        }
        if let Some(row) = &write.row
            && (row.wake_at != after.wake_at() || row.status != after.status().as_str())
        {
            return Err((
                "12 the row says when it is due",
                about(format!("{:?} is not {:?}", row.wake_at, after.wake_at())),
            ));
        }
        if after.trouble.strikes > known.faults_of_its_own {
            let text =
                format!("{} strikes, {} by its own fault", after.trouble.strikes, known.faults_of_its_own);
            return Err(("7 a reset spends no attempt", about(text)));
        }
        known.ending(write, before, after, latest).map_err(|(rule, text)| (rule, about(text)))?;
        match &after.phase {
            Phase::Suspended if after.open.is_empty() => Err((
                "11 every unfinished run has something to wake it",
                about("it waits for nothing".into()),
            )),
            Phase::Suspended if after.wake_at().is_none() && !waits_for_signal(after) => Err((
                "11 every unfinished run has something to wake it",
                about(format!("it waits for {:?}", after.open)),
            )),
            Phase::Suspended
            | Phase::Pending { .. }
            | Phase::Running { .. }
            | Phase::Paused { .. }
            | Phase::Ended { .. } => Ok(()),
        }
    }
}

impl Checker {
    /// One request starts one run, however often it is delivered; another, once that run is deleted.
    fn is_first(&mut self, cell: usize, run: &Run) -> Checked {
        let nonce = (cell, run.id.suffix.clone());
        let before = self.nonces.insert(nonce, run.id.number);
        let is_kept = |number| !self.runs.get(&(cell, number)).is_some_and(|known| known.deleted);
        match before.filter(|number| is_kept(*number)) {
            Some(number) => {
                let text =
                    format!("cell {cell}: one request has started runs {number} and {}", run.id.number);
                Err(("3 duplicates create one run", text))
            }
            None => Ok(()),
        }
    }
}

fn waits_for_signal(run: &Run) -> bool {
    run.open.iter().any(|open| open.signal.is_some() || open.child.is_some())
}

/// Whether these are a program's own words: a commit may also make room for another run.
fn wrote_as_program(entries: &[Entry]) -> bool {
    !entries.iter().any(|entry| matches!(entry, Entry::Activated { .. }))
}

impl Known {
    fn record(&mut self, before: Option<&Run>, row: &JournalRow, run: &RunId, latest: Timestamp) -> Checked {
        let life = lives::number(before);
        // Other events are added with the machine's new inputs; what is not known here is not checked.
        if let Event::StepFinished { op, attempt, outcome, .. } = row.says() {
            let step = self.steps.entry((life, op.clone())).or_default();
            if step.finished.is_some() {
                return Err(("5 each step has one outcome", format!("{op} has a second one")));
            }
            step.finished = Some(row.seq);
            if *attempt != step.failed + 1 {
                let text = format!("{op} ends with attempt {attempt} after {} that failed", step.failed);
                return Err(("7 the count of attempts survives", text));
            }
            match outcome {
                Outcome::Ok(value)
                    if value.text() != hash(&lives::key(&run.to_string(), life, op)).to_string() =>
                {
                    return Err(("5 each step has one outcome", format!("{op} gave {}", value.text())));
                }
                Outcome::Ok(_) => {}
                Outcome::Err(failure) => {
                    if !failure.terminal && step.limit.is_some_and(|limit| *attempt < limit) {
                        return Err(("7 attempts follow the policy", format!("{op} was given up early")));
                    }
                }
            }
        } else if let Event::StepRetrying { op, attempt, .. } = row.says() {
            let step = self.steps.entry((life, op.clone())).or_default();
            if *attempt != step.failed + 1 || step.finished.is_some() {
                let text = format!("{op}: attempt {attempt} failed after {} that had", step.failed);
                return Err(("7 the count of attempts survives", text));
            }
            step.failed = *attempt;
            if step.limit.is_some_and(|limit| *attempt >= limit) {
                return Err(("7 attempts never exceed the policy", format!("{op} goes on after {attempt}")));
            }
        } else if let Event::TimerFired { op, .. } = row.says() {
            if !self.timers.insert(op.clone()) {
                return Err(("10 a timer fires once", format!("{op} fired again")));
            }
            let open = before.and_then(|before| before.open.iter().find(|open| open.op == *op));
            let until = open.and_then(|open| open.until);
            if op.kind != OpKind::Step && until.is_none_or(|until| until > latest) {
                let until = until.map(Timestamp::as_millis);
                let text = format!("{op} is due at {until:?}, the clock shows {}", latest.as_millis());
                return Err(("10 a timer never fires early", text));
            }
        } else if let Event::ChildFinished { invoked, outcome, .. } = row.says() {
            self.child_finished(before, *invoked, outcome)?;
        } else if let Event::SignalReceived { id: Some(id), .. } = row.says()
            && !self.signal_ids.insert(id.clone())
        {
            return Err(("16 a signal counts once", format!("signal {id} was recorded twice")));
        }
        Ok(())
    }

    /// The run goes on as if some of its journal had not been.
    fn take_back(&mut self, journal: &[JournalRow], after: &Run) {
        (self.ended, self.reopened) = (None, true);
        self.lives += 1;
        self.timers.clear();
        for step in self.steps.values_mut() {
            (step.failed, step.finished) = (0, None);
        }
        let head = self.events.last_key_value().map_or(Seq(0), |(seq, _)| *seq);
        let life = lives::number(Some(after));
        let still_counts = |row: &&JournalRow| row.seq <= head && after.counts(row.seq);
        for row in journal.iter().filter(still_counts) {
            if let Event::StepFinished { op, .. } = row.says() {
                self.steps.entry((life, op.clone())).or_default().finished = Some(row.seq);
            } else if let Event::StepRetrying { op, attempt, .. } = row.says() {
                self.steps.entry((life, op.clone())).or_default().failed = *attempt;
            } else if let Event::TimerFired { op, .. } = row.says() {
                self.timers.insert(op.clone());
            }
        }
    }

    fn ending(&mut self, write: &Write, before: Option<&Run>, after: &Run, latest: Timestamp) -> Checked {
        if !after.status().is_terminal() {
            return Ok(());
        }
        self.ended = Some(after.status());
        let result = write.row.as_ref().and_then(|row| row.result.as_deref()).unwrap_or_default();
        let Ok(failure) = serde_json::from_str::<Failure>(result) else { return Ok(()) };
        let deadline = before.and_then(|before| before.deadline);
        if failure.code == Some(Code::RunTimedOut) && deadline.is_none_or(|deadline| deadline > latest) {
            let text = format!("it was timed out at {}, not at {deadline:?}", latest.as_millis());
            return Err(("10 a timer never fires early", text));
        }
        if failure.code == Some(Code::ProgramDied) && self.faults_of_its_own < STRIKES_MAX {
            let text = format!("it was failed after {} faults of its own", self.faults_of_its_own);
            return Err(("7 a reset spends no attempt", text));
        }
        Ok(())
    }
}
