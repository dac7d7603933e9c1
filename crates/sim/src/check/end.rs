//! What must hold when faults have stopped and a minute has passed.

use std::{
    rc::Rc,
    task::{Context, Poll, Waker},
};

use stepwell::{
    App,
    vm::{Order, Vm},
};
use stepwell_core::run::{PauseWhy, Phase, Run};
use stepwell_protocol::{
    Code, Failure, PROTOCOL, Place, RunId, Timestamp,
    program::{Activation, Page, Then},
    rest::Status,
};

use super::{Checked, Checker, Known, lives::all_signals_are_there};
use crate::{
    family::{FAMILY, Member},
    flows::{self, Job},
    outside,
    rng::hash,
    tables::{JournalRow, Tables},
};

/// A cell at the end.
pub struct AtEnd<'a> {
    /// Which one.
    pub cell: usize,
    /// Where it is.
    pub place: &'a Place,
    /// What is on disk.
    pub disk: &'a Tables,
    /// What its clock shows.
    pub clock: Timestamp,
}

impl Checker {
    /// Everything that was promised was kept.
    pub fn at_end(&self, at: &AtEnd<'_>, apps: &[Rc<App>], build: usize) -> Checked {
        self.nothing_is_left(at)?;
        for (cell, run) in self.acked.iter().filter(|(cell, run)| !self.is_deleted(*cell, run)) {
            if *cell == at.cell && at.disk.runs.get(&run.number).is_none_or(|row| *row.suffix != run.suffix) {
                return Err(("1 no run is lost", format!("{run} was acknowledged and is gone")));
            }
        }
        let reopened =
            |run: &&RunId| self.runs.get(&(at.cell, run.number)).is_some_and(|known| known.reopened);
        let is_out_of_date = |run: &&RunId| reopened(run) || self.is_deleted(at.cell, run);
        for run in self.cancelled.iter().filter(|run| run.place == *at.place && !is_out_of_date(run)) {
            if at.disk.runs.get(&run.number).map(|row| row.status) != Some(Status::Cancelled.as_str()) {
                return Err(("22 a cancellation stands", format!("{run} was cancelled and is not")));
            }
        }
        let is_here = |run: &RunId| run.place == *at.place && !self.is_deleted(at.cell, run);
        for (run, id, _) in self.signals.iter().filter(|(run, ..)| is_here(run)) {
            if id.as_ref().is_some_and(|id| !at.disk.signals.contains(&(run.number, id.clone()))) {
                return Err(("15 an accepted signal is kept", format!("{run}: signal {id:?} is gone")));
            }
        }
        self.one_run_for_each_key(at)?;
        for number in at.disk.runs.keys() {
            let run = at.disk.run(at.place, *number).expect("it is on disk");
            // Nothing is left of it but its row.
            if run.emptied {
                continue;
            }
            let known = self.runs.get(&(at.cell, *number));
            let about = |(rule, text): (_, String)| (rule, format!("cell {}, run {number}: {text}", at.cell));
            whole_journal(at, &run, known).map_err(about)?;
            at_rest(at, &run, known).map_err(about)?;
            let build = known.and_then(|known| known.build).unwrap_or(build);
            same_again(at, &run, &apps[build]).map_err(about)?;
            expected_output(at, &run).map_err(about)?;
            all_signals_are_there(at, &run, known).map_err(about)?;
        }
        debug_assert!(at.cell < self.cells, "cells are numbered");
        Ok(())
    }

    fn one_run_for_each_key(&self, at: &AtEnd<'_>) -> Checked {
        for (key, (_, run)) in &self.keys {
            if run.place != *at.place {
                continue;
            }
            // A key is stored behind its workflow. The tag of a keyed start is its key with another letter.
            let own = key.rsplit('\n').next().unwrap_or(key);
            let tag = format!("r{}", &own[1..]);
            let started =
                at.disk.runs.values().filter(|row| row.input.decode::<Job>().is_ok_and(|job| job.tag == tag));
            if started.count() != 1 {
                return Err(("3 duplicates create one run", format!("key {key} has started several runs")));
            }
        }
        Ok(())
    }
}

/// Nothing of the journal was changed or lost since it was written.
fn whole_journal(at: &AtEnd<'_>, run: &Run, known: Option<&Known>) -> Checked {
    let journal = at.disk.journal(run.id.number);
    let stored = journal.iter().map(|row| (row.seq, crate::rng::hash64(&row.event)));
    let recorded = known.into_iter().flat_map(|known| &known.events).map(|(seq, print)| (*seq, *print));
    if !stored.eq(recorded) {
        let count = known.map_or(0, |known| known.events.len());
        let text = format!("its journal has {} events of {count}", journal.len());
        return Err(("5 what was recorded stays", text));
    }
    Ok(())
}

/// Every run has ended, or is paused with a reason, or waits for something that has not come.
fn at_rest(at: &AtEnd<'_>, run: &Run, known: Option<&Known>) -> Checked {
    const RULE: &str = "11 every run comes to rest";
    match &run.phase {
        Phase::Ended { .. } | Phase::Paused { why: PauseWhy::Request } => Ok(()),
        Phase::Paused { why: PauseWhy::Problem(problem) } => {
            let was_rolled_back = known.is_some_and(|known| known.rolled_back);
            if problem.code == Code::Diverged && (flows::may_diverge(&run.workflow) || was_rolled_back) {
                Ok(())
            } else {
                Err((RULE, format!("{} is paused: {problem}", run.workflow)))
            }
        }
        Phase::Suspended => match run.wake_at() {
            Some(due) if due <= at.clock => Err((
                RULE,
                format!(
                    "{} was due at {}, and it is {}",
                    run.workflow,
                    due.as_millis(),
                    at.clock.as_millis()
                ),
            )),
            Some(_) | None => Ok(()),
        },
        Phase::Pending { .. } | Phase::Running { .. } => {
            Err((RULE, format!("{} is still {:?}", run.workflow, run.phase)))
        }
    }
}

/// The journal says the same once more: the same end, or the same things to wait for; and nothing runs.
fn same_again(at: &AtEnd<'_>, run: &Run, app: &App) -> Checked {
    const RULE: &str = "24 a replay says the same";
    if run.status() == Status::Cancelled || matches!(run.phase, Phase::Paused { why: PauseWhy::Request }) {
        return Ok(());
    }
    let row = &at.disk.runs[&run.id.number];
    let failure = row.result.as_deref().and_then(|text| serde_json::from_str::<Failure>(text).ok());
    if run.status() == Status::Failed && failure.is_some_and(|failure| failure.code.is_some()) {
        // The engine has ended it, whatever its code would say.
        return Ok(());
    }
    let page = Page {
        events: at
            .disk
            .journal(run.id.number)
            .iter()
            .filter(|row| run.counts(row.seq))
            .map(JournalRow::record)
            .collect(),
        more: false,
    };
    let last = page.events.last().map_or(run.created_at, |record| record.at);
    let activation = Activation {
        protocol: PROTOCOL,
        run: run.id.clone(),
        workflow: run.workflow.clone(),
        epoch: run.epoch.next(),
        seed: format!("{:016x}", run.seed),
        now: last,
        started_at: run.created_at,
        life: run.life,
        input: stepwell_protocol::Payload::clone(&row.input),
        patches: run.patches.clone(),
        attributes: run.attributes.clone(),
        tokens: None,
        budget: None,
        let_in: None,
        trace: None,
        followed: false,
        journal: page,
        signature: None,
    };
    let (polled, effects) = if run.workflow == FAMILY {
        (Poll::Ready(Order::Commit(Member::new(&activation).say(&activation))), Vec::new())
    } else {
        outside::enter(u32::MAX);
        let mut vm = Vm::new(app, activation);
        let polled = vm.poll(&mut Context::from_waker(Waker::noop()));
        (polled, outside::leave().1)
    };

    if let Some(effect) = effects.first() {
        return Err((RULE, format!("{} runs once more", effect.key)));
    }
    let Poll::Ready(Order::Commit(commit)) = polled else {
        return Err((RULE, format!("it says {polled:?}")));
    };
    let result = row.result.as_deref().unwrap_or_default();
    let same = match (&commit.then, run.status()) {
        (Then::Complete { output }, Status::Completed) => output.text() == result,
        (Then::Fail { failure }, Status::Failed) => {
            serde_json::to_string(failure).is_ok_and(|failure| failure == result)
        }
        (Then::Pause { problem }, Status::Paused) => problem.code == Code::Diverged,
        (Then::Suspend { open }, Status::Sleeping | Status::Waiting) => {
            open.iter().map(stepwell_protocol::program::Open::op).eq(run.open.iter().map(|open| &open.op))
        }
        (_, _) => false,
    };
    if same { Ok(()) } else { Err((RULE, format!("{:?} {result}: it says {:?}", run.status(), commit.then))) }
}

/// What a workflow without chance must give, whatever happened on the way.
fn expected_output(at: &AtEnd<'_>, run: &Run) -> Checked {
    const RULE: &str = "24 a run gives what its code says";
    if run.status() != Status::Completed {
        return Ok(());
    }
    let row = &at.disk.runs[&run.id.number];
    let job: Job = row.input.decode().expect("clients send jobs");
    let value = |name: &str, occurrence: u32| hash(&format!("{}/step:{occurrence}:{name}", run.id));
    let series = |name: &str| (0..job.n).map(|n| value(name, n)).collect::<Vec<_>>();
    let result = row.result.as_deref().unwrap_or_default();
    let values: Vec<u64> = serde_json::from_str(result).unwrap_or_default();
    let right = match run.workflow.as_str() {
        "sequential" => {
            // A time follows each value.
            let values: Vec<_> = values.into_iter().step_by(2).collect();
            values == series("work") || values == series("labour")
        }
        "looping" => values == series("round") || values == series("lap"),
        "joined" => values == [value("left", 0), value("middle", 0), value("right", 0), value("end", 0)],
        "sleeps" => values.get(..2) == Some(&[value("before", 0), value("between", 0)]),
        "crowd" => {
            let (mut values, mut all) = (values, series("member"));
            values.sort_unstable();
            all.sort_unstable();
            values == all
        }
        "payment" => result.trim_matches('"').split(';').zip(0..).all(|(text, occurrence)| {
            text == value("pay", occurrence).to_string() || text.contains("step 'pay' failed")
        }),
        "impatient" => {
            let slow = value("slow", 0).to_string();
            let is_slow = result.contains(&slow) == (job.fails < 3);
            is_slow && result.contains(&value("end", 0).to_string())
        }
        "upgraded" => ["old", "new"].iter().any(|way| result.contains(&value(way, 0).to_string())),
        _ => true,
    };
    if right { Ok(()) } else { Err((RULE, format!("{} gave {result}", run.workflow))) }
}
