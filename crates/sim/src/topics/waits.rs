//! What must hold of waits: each that is recorded gets the first event that it may have, once, or is over.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use stepwell_core::{
    object::{Letter, Message},
    run::{self, OpenOp, Phase, Run},
    topic::wait_id,
};
use stepwell_protocol::{
    Epoch, Event as JournalEvent, Op, Timestamp,
    topic::{EventWait, LOOK_BACK_MS, LOOK_BACK_MS_MIN, Triggered, is_on},
};

use super::{
    BREAKS_MS,
    cells::place,
    check::{Logged, Model, When},
    flows::Job,
    topic::TOPIC,
};
use crate::{
    check::Checked,
    tables::{LetterChange, Tables, Write},
};

/// How long a delivery takes at the most once all is well: a cell that did not answer is spared for a minute, another
/// minute passes until something parked finds out that it answers again, and one more for the rest.
const WELL_MS: u64 = 200_000;

/// A wait of a run that is recorded.
#[derive(Clone, Debug)]
struct Open {
    id: String,
    epoch: Epoch,
    wait: EventWait,
    /// What its condition compares with.
    n: u64,
    from: Timestamp,
    until: Option<Timestamp>,
    when: When,
}

/// The waits of all runs.
#[derive(Debug, Default)]
pub struct Waits {
    /// Those that are recorded and not over, by run and wait.
    open: BTreeMap<(String, String), Open>,
    /// The events that the waits of one name of a run have had.
    had: BTreeMap<(String, String), BTreeSet<u64>>,
    /// The events that have started runs.
    started_by: BTreeMap<String, u64>,
    /// When the topic has first heard of each wait, by activation.
    registered: BTreeMap<(String, Epoch), When>,
    /// Waits whose registrations are dead letters.
    dead: BTreeSet<String>,
}

/// The number of an event, by the tag of whatever it leads to.
fn number_of(tag: &str) -> Option<u64> {
    tag.strip_prefix(&Triggered::tag(TOPIC, 0)[..Triggered::tag(TOPIC, 0).len() - 1])?.parse().ok()
}

impl Model {
    /// A cell has written, and this is what it has on disk since.
    pub fn cell_wrote(&mut self, cell: usize, disk: &Tables, write: &Write, when: When) -> Checked {
        if let Some(LetterChange::Buried(letter)) = write.letter
            && let Some((letter, _)) = disk.letters.get(&letter)
        {
            self.waits.buried(letter);
        }
        let Some(run) = disk.run(&place(cell), write.number) else { return Ok(()) };
        let name = run.id.to_string();
        if write.is_new
            && let Some(triggered) = &run.triggered
        {
            self.started(triggered, &name)?;
            self.waits.started_by.insert(name.clone(), triggered.event);
        }
        let is_taken_back = write.entries.iter().any(|entry| matches!(entry, run::Entry::Rewound(_)));
        if is_taken_back {
            self.waits.open.retain(|(of, _), _| *of != name);
            self.waits.had.retain(|(of, _), _| *of != name);
            self.taken_back(&name);
        }
        for record in write.records.iter().map(crate::tables::JournalRow::record) {
            match &record.event {
                JournalEvent::SignalReceived { id: Some(id), .. } if id.starts_with("\ntoken:") => {
                    self.token_taken(&name, id)?;
                }
                // What it has received before it was taken back, it keeps.
                JournalEvent::SignalReceived { .. } if is_taken_back => {}
                JournalEvent::SignalReceived { name: signal, to: Some(to), by: Some(by), .. }
                    if signal.starts_with("event:") =>
                {
                    self.waits.took(&self.log, &name, signal, *to, by)?;
                }
                JournalEvent::TimerFired { op, .. } => self.waits.timed_out(&self.log, &name, op, when)?,
                JournalEvent::SignalReceived { .. }
                | JournalEvent::StepFinished { .. }
                | JournalEvent::StepRetrying { .. }
                | JournalEvent::StepBegun { .. }
                | JournalEvent::StepLetIn { .. }
                | JournalEvent::ChildInvoked { .. }
                | JournalEvent::ChildStarted { .. }
                | JournalEvent::ChildFinished { .. } => {}
            }
        }
        self.waits.follow(&run, disk, write, when)
    }
}

impl Waits {
    /// The topic has stored a wait.
    pub fn registered(&mut self, id: &str, epoch: Epoch, when: When) {
        self.registered.entry((id.to_owned(), epoch)).or_insert(when);
    }

    /// Whether it was ever stored, by this activation or a later one.
    pub fn was_registered(&self, id: &str, epoch: Epoch) -> bool {
        self.registered.range((id.to_owned(), epoch)..).next().is_some_and(|((of, _), _)| of == id)
    }

    /// How many waits there are.
    pub fn count(&self) -> usize {
        self.registered.len()
    }

    /// A wait has got an event.
    fn took(&mut self, log: &BTreeMap<u64, Logged>, run: &str, signal: &str, to: u32, by: &str) -> Checked {
        let key = (run.to_owned(), format!("{signal}#{to}"));
        let Some(event) = number_of(by).and_then(|number| log.get(&number)) else {
            return Err(("8 a wait gets what is stored", format!("{run} {signal} has got {by}")));
        };
        let number = event.row.number;
        let Some(open) = self.open.remove(&key) else {
            return Err((
                "17 a wait has one outcome",
                format!("{key:?} was over when it got event {number}"),
            ));
        };
        if !self.had.entry((run.to_owned(), signal.to_owned())).or_default().insert(number) {
            return Err((
                "16 an event resumes each wait once",
                format!("{run} {signal} has had event {number}"),
            ));
        }
        if self.started_by.get(run) == Some(&number) {
            return Err((
                "16 a run does not get the event that has started it",
                format!("{run} event {number}"),
            ));
        }
        if !open.is_about(event) {
            return Err(("16 a wait gets what it is about", format!("{open:?} has got {:?}", event.row)));
        }
        Ok(())
    }

    /// A wait is over without an event.
    fn timed_out(&mut self, log: &BTreeMap<u64, Logged>, run: &str, op: &Op, when: When) -> Checked {
        let key = (run.to_owned(), format!("{}#{}", op.name, op.occurrence));
        if !op.name.starts_with("event:") {
            return Ok(());
        }
        let Some(open) = self.open.remove(&key) else {
            return Err(("17 a wait has one outcome", format!("{key:?} was over when its time was")));
        };
        // By both clocks: a topic whose clock is ahead forgets the wait before the cell does.
        let had_time = |event: &&Logged| {
            let since_ms = open.when.1.max(event.when.1);
            event.when.1 >= BREAKS_MS
                && since_ms + WELL_MS < when.1
                && open.until.is_none_or(|until| event.row.at.plus_millis(WELL_MS) < until)
        };
        if self.dead.contains(&open.id) {
            return Ok(());
        }
        match log.values().filter(had_time).find(|event| self.may_have(run, &op.name, &open, event)) {
            Some(event) => {
                let detail = format!("{key:?} has run out of time, and event {} was there", event.row.number);
                Err(("14 a wait misses no event", detail))
            }
            None => Ok(()),
        }
    }

    /// Takes note of what a run waits for, by its row.
    fn follow(&mut self, run: &Run, disk: &Tables, write: &Write, when: When) -> Checked {
        let name = run.id.to_string();
        let is_over = matches!(run.phase, Phase::Ended { .. });
        let open: Vec<_> = run.open.iter().filter(|open| open.event.is_some() && !is_over).collect();
        let keys: BTreeSet<_> =
            open.iter().map(|open| format!("{}#{}", open.op.name, open.op.occurrence)).collect();
        self.open.retain(|(of, wait), _| *of != name || keys.contains(wait));
        for op in open {
            let key = (name.clone(), format!("{}#{}", op.op.name, op.op.occurrence));
            if let Entry::Vacant(vacant) = self.open.entry(key) {
                vacant.insert(opens(run, disk, write, op, when)?);
            }
        }
        Ok(())
    }

    /// Whether a wait may have an event: it came in time, and the run has had it neither as a wait nor as its start.
    fn may_have(&self, run: &str, name: &str, open: &Open, event: &Logged) -> bool {
        let number = event.row.number;
        let registered = self.registered.get(&(open.id.clone(), open.epoch));
        let is_after = registered.is_some_and(|registered| *registered < event.when);
        let is_in_time = event.row.at >= open.from || is_after;
        let is_too_late = open.until.is_some_and(|until| event.row.at >= until);
        let had = self.had.get(&(run.to_owned(), name.to_owned()));
        open.is_about(event)
            && is_in_time
            && !is_too_late
            && !had.is_some_and(|had| had.contains(&number))
            && self.started_by.get(run) != Some(&number)
    }

    /// Everything has been well for long.
    pub fn at_rest(&self, log: &BTreeMap<u64, Logged>) -> Checked {
        for ((run, wait), open) in &self.open {
            let name = wait.split('#').next().unwrap_or_default();
            let missed = log.values().find(|event| self.may_have(run, name, open, event));
            if let Some(event) = missed.filter(|_| !self.dead.contains(&open.id)) {
                let detail = format!(
                    "{run} waits for {} of {} from {} on (recorded {:?}), and has missed event {} of {} ({:?})",
                    open.wait.on,
                    open.n,
                    open.from.as_millis(),
                    open.when,
                    event.row.number,
                    event.row.at.as_millis(),
                    event.when
                );
                return Err(("14 a wait misses no event", detail));
            }
        }
        Ok(())
    }

    /// The registrations in a dead letter, which people see, never arrive.
    pub fn buried(&mut self, letter: &Letter) {
        for envelope in &letter.envelopes {
            if let Message::Waits { waiter } = &envelope.message {
                self.dead.insert(wait_id(&waiter.run, waiter.life, &waiter.op));
            }
        }
    }
}

/// A wait that begins with this write, which has to post its registration as well.
fn opens(
    run: &Run,
    disk: &Tables,
    write: &Write,
    op: &OpenOp,
    when: When,
) -> Result<Open, (&'static str, String)> {
    let id = wait_id(&run.id, run.life_number(), &op.op);
    let posted = write.mail.post.iter().flat_map(|letter| &letter.envelopes);
    let mut posted = posted.filter_map(|envelope| match &envelope.message {
        Message::Waits { waiter } if waiter.op == op.op => Some(waiter.epoch),
        Message::Waits { .. }
        | Message::Start { .. }
        | Message::Ended { .. }
        | Message::TickEnded { .. }
        | Message::Emitted { .. }
        | Message::WaitOver { .. }
        | Message::Cancel { .. }
        | Message::TicketOver { .. }
        | Message::Job { .. }
        | Message::Callback { .. }
        | Message::Unbind { .. } => None,
    });
    let Some(epoch) = posted.next_back() else {
        return Err(("14 a wait is registered with the commit that begins it", id));
    };
    let wait = op.event.as_deref().cloned().unwrap_or(EventWait {
        on: String::new(),
        when: None,
        looking_back_ms: None,
        cancels: false,
    });
    let since = if wait.cancels { run.created_at } else { op.since.unwrap_or(run.created_at) };
    let back_ms = wait.looking_back_ms.unwrap_or(LOOK_BACK_MS).max(LOOK_BACK_MS_MIN);
    let from = Timestamp::from_millis(since.as_millis().saturating_sub(back_ms));
    let input = disk.runs.get(&run.id.number).and_then(|row| row.input.decode::<Job>().ok());
    Ok(Open { id, epoch, wait, n: input.map_or(0, |job| job.n), from, until: op.until, when })
}

impl Open {
    /// Whether an event is one that the wait is about, whenever it came.
    fn is_about(&self, event: &Logged) -> bool {
        let n = event.row.data.decode::<serde_json::Value>().ok().and_then(|data| data.get("n")?.as_u64());
        is_on(&self.wait.on, &event.row.name) && (self.wait.when.is_none() || n == Some(self.n))
    }
}
