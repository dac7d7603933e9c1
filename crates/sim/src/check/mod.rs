//! The reference model: what clients were told, what programs did, what is on disk; and what must hold of it.
//!
//! Rules carry the number of the invariant that they check. Whatever needs the machine's own opinion is not
//! here: the model knows only durable rows, answers that arrived, and effects that were had.

mod acks;
mod declared;
mod deleted;
mod durable;
mod end;
mod keys;
mod lives;
mod mail;
mod readers;

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::{
    object::DEAD_MAN_MS,
    run::{CallEnd, LEASE_MS, Phase},
    window::EXCLUSIVE_MS,
};
use stepwell_protocol::{Epoch, Op, Place, RunId, Seq, Timestamp, rest::Status};

pub use declared::Served;
pub use end::AtEnd;
pub use mail::Disks;

use crate::{outside::Effect, tables::Tables};

/// A rule that was broken, and how.
pub type Checked = Result<(), (&'static str, String)>;

/// What is known beside the rows.
#[derive(Clone, Debug)]
pub struct Checker {
    runs: BTreeMap<(usize, u64), Known>,
    /// What a key stands for, and the run that its clients were told of.
    keys: BTreeMap<String, (String, RunId)>,
    /// The runs that requests have started, by the nonce of the request.
    nonces: BTreeMap<(usize, String), u64>,
    /// When runs begin that were put off, by the nonce of the request.
    put_off: BTreeMap<String, Timestamp>,
    acked: Vec<(usize, RunId)>,
    signals: Vec<(RunId, Option<String>, u64)>,
    cancelled: Vec<RunId>,
    /// The calls that there were, and how often their runs had been taken back by then.
    begun: BTreeMap<(usize, u64, Epoch), u32>,
    /// Keys whose run was deleted.
    freed: BTreeSet<String>,
    /// Keys of the catalog whose clients were told that they were made.
    created_keys: BTreeSet<String>,
    /// Those whose clients were told that they were revoked.
    revoked_keys: BTreeSet<String>,
    /// Manifests and paused workflows.
    manifests: declared::Manifests,
    cells: usize,
}

/// What is known of a run.
#[derive(Clone, Debug, Default)]
struct Known {
    /// What was recorded and not erased since: a fingerprint of each event.
    events: BTreeMap<Seq, u64>,
    /// Its steps, by the life that they belong to.
    steps: BTreeMap<(u32, Op), Step>,
    /// The signals that it was sent, in order: their names and payloads.
    received: Vec<(String, String)>,
    timers: BTreeSet<Op>,
    /// The invocations whose children's ends it has heard of.
    finished_children: BTreeSet<Seq>,
    signal_ids: BTreeSet<String>,
    ended: Option<Status>,
    /// Times that its program has stopped by its own fault, at the most.
    faults_of_its_own: u32,
    /// The build of the app that has spoken its last word.
    build: Option<usize>,
    /// Whether a build without its patch has spoken for it.
    rolled_back: bool,
    /// Whether it was taken back, and went on after it had ended.
    reopened: bool,
    /// How often it was.
    lives: u32,
    /// Whether it was deleted, or a piece of it.
    deleted: bool,
}

#[derive(Clone, Debug, Default)]
struct Step {
    /// The most attempts that its policy allows, once its code has run.
    limit: Option<u32>,
    failed: u32,
    /// Where its outcome is recorded.
    finished: Option<Seq>,
    /// If it must not run twice: how often the run had been taken back whenever it did.
    once: BTreeSet<u32>,
}

/// A program and what it was called with.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// The cell of its run.
    pub cell: usize,
    /// Its run.
    pub number: u64,
    /// Its activation.
    pub epoch: Epoch,
    /// How much of the journal it was called with.
    pub head: Seq,
}

impl Checker {
    /// Nothing is known yet.
    pub fn new(cells: usize) -> Self {
        Self {
            runs: BTreeMap::new(),
            keys: BTreeMap::new(),
            nonces: BTreeMap::new(),
            put_off: BTreeMap::new(),
            acked: Vec::new(),
            signals: Vec::new(),
            cancelled: Vec::new(),
            begun: BTreeMap::new(),
            freed: BTreeSet::new(),
            created_keys: BTreeSet::new(),
            revoked_keys: BTreeSet::new(),
            manifests: declared::Manifests::default(),
            cells,
        }
    }

    /// A client has asked for a run that begins later.
    pub fn put_off(&mut self, nonce: &str, until: Timestamp) {
        self.put_off.insert(nonce.to_owned(), until);
    }

    /// A program was called: the intent is on disk, and nobody was called as the same activation.
    pub fn begun(&mut self, disk: &Tables, place: &Place, cell: usize, number: u64, epoch: Epoch) -> Checked {
        const RULE: &str = "8 nothing is dispatched before its intent is recorded";
        let stored = disk.run(place, number);
        let deleted = self.runs.get(&(cell, number)).is_some_and(|known| known.deleted);
        if !deleted && stored.is_none_or(|run| run.epoch < epoch) {
            return Err((RULE, format!("cell {cell}, run {number}: activation {} is not on disk", epoch.0)));
        }
        let lives = self.runs.get(&(cell, number)).map_or(0, |known| known.lives);
        if self.begun.insert((cell, number, epoch), lives).is_some() {
            return Err((
                RULE,
                format!("cell {cell}, run {number}: activation {} was called twice", epoch.0),
            ));
        }
        Ok(())
    }

    /// A step's code began to run.
    pub fn effect(&mut self, disk: &Tables, place: &Place, holder: Holder, effect: &Effect) -> Checked {
        let Holder { cell, number, epoch, head } = holder;
        let op = lives::op_of(&effect.key).expect("a key is a run's id, a life and an operation");
        let step = self.runs.entry((cell, number)).or_default().steps.entry(op).or_default();
        step.limit = Some(effect.limit);
        let lives = self.begun.get(&(cell, number, epoch)).copied().unwrap_or_default();
        if effect.is_once && !step.once.insert(lives) {
            return Err(("9 a step that must not run twice does not", effect.key.clone()));
        }
        let run = disk.run(place, number);
        let is_holder = run.as_ref().is_some_and(|run| run.is_held_by(epoch));
        if let Some(finished) = step.finished
            && (finished <= head || is_holder)
        {
            let detail = format!("{} is on record at {} and runs again", effect.key, finished.0);
            return Err(("4 a recorded step never runs again", detail));
        }
        if effect.attempt > effect.limit {
            let detail = format!("{}: attempt {} of {}", effect.key, effect.attempt, effect.limit);
            return Err(("7 attempts never exceed the policy", detail));
        }
        if is_holder && effect.attempt != step.failed + 1 {
            let detail =
                format!("{}: attempt {} after {} that failed", effect.key, effect.attempt, step.failed);
            return Err(("7 the count of attempts survives", detail));
        }
        if is_holder
            && let Some(run) = run
            && matches!(run.phase, Phase::Ended { .. })
        {
            return Err(("22 nothing starts after the end", effect.key.clone()));
        }
        Ok(())
    }

    /// An instance died, or lost its name, while these runs' programs were called, each since a time.
    pub fn instance_died(&mut self, cell: usize, calls: &[(u64, Timestamp)]) {
        // Only who was alone can have been the cause. Calls that were under way for long keep nobody from being that.
        for (number, since) in calls {
            let is_beside = |(other, begun): &(u64, Timestamp)| {
                other != number && begun.plus_millis(EXCLUSIVE_MS) > *since
            };
            if !calls.iter().any(is_beside) {
                self.runs.entry((cell, *number)).or_default().faults_of_its_own += 1;
            }
        }
    }

    /// A consumer that has nothing else under way has got a run: should it die, that counts.
    pub fn claimed_alone(&mut self, cell: usize, number: u64) {
        self.runs.entry((cell, number)).or_default().faults_of_its_own += 1;
    }

    /// The cell was told how a program's call ended.
    pub fn call_ended(&mut self, cell: usize, number: u64, end: &CallEnd) {
        match end {
            // Of a death, the cell counts only what happens to a run that is alone, which may be each one.
            CallEnd::Returned | CallEnd::Threw(_) | CallEnd::Died(_) | CallEnd::Silent => {
                self.runs.entry((cell, number)).or_default().faults_of_its_own += 1;
            }
            CallEnd::Lost(_) | CallEnd::Unstored | CallEnd::Refused(_) => {}
        }
    }

    /// A program wants to go on later, and may have done nothing.
    pub fn yielded(&mut self, cell: usize, number: u64) {
        self.runs.entry((cell, number)).or_default().faults_of_its_own += 1;
    }

    /// A build of the app without the patch that a run has applied has spoken for that run.
    pub fn rolled_back(&mut self, cell: usize, number: u64) {
        self.runs.entry((cell, number)).or_default().rolled_back = true;
    }

    /// The last word of a run was spoken by this build of the app.
    pub fn built_by(&mut self, cell: usize, number: u64, build: usize) {
        self.runs.entry((cell, number)).or_default().build = Some(build);
    }

    /// The alarm is never later than the earliest time at which something is due.
    pub fn alarm(&self, cell: usize, disk: &Tables, alarm: Option<Timestamp>, latest: Timestamp) -> Checked {
        const RULE: &str = "12 the alarm is never later than what is due";
        let soon = latest.plus_millis(DEAD_MAN_MS + 1);
        if disk.letters.values().any(|(_, is_dead)| !is_dead) && alarm.is_none_or(|alarm| alarm > soon) {
            let alarm = alarm.map(Timestamp::as_millis);
            return Err((
                RULE,
                format!("cell {cell}: a letter has to go out, the alarm is set to {alarm:?}"),
            ));
        }
        for (wake_at, number) in &disk.by_wake {
            let row = disk.runs.get(number);
            let status = row.map_or("", |row| row.status);
            let is_running = status == "running";
            let is_leased = is_running && row.is_some_and(|row| row.state.contains(r#""session":"token""#));
            // What is due is under way, or in the window's queue until somebody's call ends; the dead man's
            // switch is set while anybody is called.
            let by = if is_leased {
                latest.plus_millis(LEASE_MS + 1).max(*wake_at)
            } else if is_running {
                soon.max(*wake_at)
            } else if *wake_at > latest {
                *wake_at
            } else {
                soon
            };
            // A millisecond more: a platform does nothing about an alarm that it has lost and that is set for the same time.
            if alarm.is_none_or(|alarm| alarm > by.plus_millis(1)) {
                let alarm = alarm.map(Timestamp::as_millis);
                let detail = format!(
                    "cell {cell}: run {number} ({status}) is due at {}, the alarm is set to {alarm:?}, the \
                     time is {}",
                    wake_at.as_millis(),
                    latest.as_millis()
                );
                return Err((RULE, detail));
            }
        }
        Ok(())
    }
}
