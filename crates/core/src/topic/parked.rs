//! Starts that have to wait, trigger by trigger: one that is stuck holds up no other, and costs one question a minute.
//!
//! Each trigger with parked starts has a queue. One of them is asked for; if that succeeds, more follow, and if not, the
//! next one comes a minute later. What a trigger is refused while it has parked ones is parked at once.

use stepwell_protocol::{
    Place, Timestamp,
    topic::{TriggerSpec, Triggered},
};

use super::{Parked, Rows, Topic, event_key, flights::Then};
use crate::{object::Fault, ordered::OrdMap, pools::Pool};

/// How many parked starts of a trigger are tried at once, if one before them has succeeded.
const SLICE: usize = 64;

/// How long until parked starts are tried again.
const AGAIN_MS: u64 = 60_000;

/// After how many starts in a row that were declined the next events of a trigger are parked without a question.
const DECLINES_MAX: u32 = 16;

/// The most queues: triggers, and those that were deleted.
const QUEUES_MAX: usize = 10_000;

/// The parked starts of a trigger.
#[derive(Clone, Debug, Default)]
struct Queue {
    /// When the next ones are tried, and after which event.
    next: Timestamp,
    after: u64,
    /// How many are known now.
    open: usize,
    /// Whether one of those has got what it needs.
    is_better: bool,
    /// Whether those before them have.
    was_better: bool,
    /// Whether there are none behind those that are known.
    is_last: bool,
    /// How many starts in a row were declined, parked or not.
    declines: u32,
}

/// All queues, by their triggers.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(OrdMap<String, Queue>);

impl Queues {
    /// Those that the rows tell of.
    pub fn read<R: Rows>(rows: &R, now: Timestamp) -> Result<Self, R::Error> {
        let mut queues = OrdMap::new();
        let mut after = String::new();
        while queues.len() < QUEUES_MAX
            && let Some(trigger) = rows.parked_trigger(&after)?
        {
            queues.insert(trigger.clone(), Queue { next: now, ..Queue::default() });
            after = trigger;
        }
        Ok(Self(queues))
    }

    /// Whether a trigger has parked starts.
    pub fn has(&self, trigger: &str) -> bool {
        self.0.contains_key(trigger)
    }

    /// Whether a trigger has been declined so often that nobody has to be asked.
    pub fn is_blocked(&self, trigger: &str) -> bool {
        self.0.get(trigger).is_some_and(|queue| queue.declines >= DECLINES_MAX)
    }

    /// A trigger is deleted: what is parked for it goes.
    pub fn forget(&mut self, now: Timestamp, trigger: &str) {
        if let Some(queue) = self.0.get_mut(trigger) {
            *queue = Queue { next: now, was_better: true, ..Queue::default() };
        }
    }

    /// When the alarm has to fire for them, apart from those that have to be left alone.
    pub fn next_look(&self, is_left: impl Fn(&str) -> bool) -> Option<Timestamp> {
        let waiting = self.0.iter().filter(|(trigger, queue)| queue.open == 0 && !is_left(trigger));
        waiting.map(|(_, queue)| queue.next).min()
    }

    /// A start of a trigger was declined, or not.
    fn answered(&mut self, trigger: &str, is_declined: bool) {
        if let Some(queue) = self.0.get_mut(trigger) {
            queue.declines = if is_declined { queue.declines.saturating_add(1) } else { 0 };
        }
    }

    /// A parked start is not known any more.
    fn left(&mut self, now: Timestamp, trigger: &str, is_better: bool) {
        let Some(queue) = self.0.get_mut(trigger) else { return };
        queue.open = queue.open.saturating_sub(1);
        queue.is_better |= is_better;
        if queue.open == 0 {
            queue.was_better = std::mem::take(&mut queue.is_better);
            let is_last = std::mem::take(&mut queue.is_last);
            if is_last {
                queue.after = 0;
            }
            let pause_ms = if queue.was_better && !is_last { 0 } else { AGAIN_MS };
            queue.next = now.plus_millis(pause_ms);
        }
    }
}

impl Topic {
    /// A start needs nothing more.
    pub(super) fn done<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: &Parked,
    ) -> Result<(), Fault<R::Error>> {
        if self.flights.done(what) {
            rows.unpark(what).map_err(Fault::Storage)?;
            self.count_waiting(&what.trigger, |waiting| waiting.saturating_sub(1));
            if let Some(known) = &mut self.known {
                known.parked.left(now, &what.trigger, true);
            }
        }
        Ok(())
    }

    /// A start could not be had. A cell that has answered has declined it.
    pub(super) fn ask_again<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: &Parked,
        is_declined: bool,
    ) -> Result<(), Fault<R::Error>> {
        let Some(known) = &mut self.known else { return Ok(()) };
        known.waits.begin_anew(what);
        if is_declined {
            known.parked.answered(&what.trigger, true);
        }
        let is_stuck = is_declined && known.parked.has(&what.trigger);
        match self.flights.again(now, what, is_stuck) {
            Then::Again => Ok(()),
            Then::StaysParked => {
                self.stay_parked(now, what);
                Ok(())
            }
            Then::Park => {
                self.park(rows, now, what)?;
                self.flights.done(what);
                Ok(())
            }
        }
    }

    /// A start got an answer that counts: others of its trigger may get one as well.
    pub(super) fn is_answered(&mut self, what: &Parked) {
        if let Some(known) = &mut self.known {
            known.parked.answered(&what.trigger, false);
        }
    }

    /// A parked start waits for the next time.
    pub(super) fn stay_parked(&mut self, now: Timestamp, what: &Parked) {
        if self.flights.done(what)
            && let Some(known) = &mut self.known
        {
            known.parked.left(now, &what.trigger, false);
        }
    }

    pub(super) fn park<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: &Parked,
    ) -> Result<(), Fault<R::Error>> {
        rows.park(what).map_err(Fault::Storage)?;
        self.count_waiting(&what.trigger, |waiting| waiting.saturating_add(1));
        if let Some(known) = &mut self.known {
            let next = now.plus_millis(AGAIN_MS);
            known.parked.0.get_or_insert_with(what.trigger.clone(), || Queue { next, ..Queue::default() });
            known.unstored.get_or_insert(now);
        }
        Ok(())
    }

    /// Leaves out what waits for cells that do not answer.
    pub(super) fn leave_silent<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        for what in self.flights.of_silent_cells(now) {
            if self.flights.is_parked(&what) {
                self.stay_parked(now, &what);
            } else {
                self.park(rows, now, &what)?;
                self.flights.done(&what);
            }
        }
        Ok(())
    }

    /// Tries parked starts again.
    pub(super) fn take_parked<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = &self.known else { return Ok(()) };
        let is_due = |(trigger, queue): &(&String, &Queue)| {
            queue.open == 0 && queue.next <= now && !known.is_unreadable(trigger)
        };
        let due: Vec<_> = known.parked.0.iter().filter(is_due).map(|(trigger, _)| trigger.clone()).collect();
        for trigger in due {
            if !self.flights.has_room() {
                break;
            }
            self.take_queue(rows, now, &trigger)?;
        }
        Ok(())
    }

    fn take_queue<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        trigger: &str,
    ) -> Result<(), Fault<R::Error>> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let Some(queue) = known.parked.0.get_mut(trigger) else { return Ok(()) };
        let limit = if queue.was_better { SLICE } else { 1 };
        let page = rows.parked(trigger, queue.after, limit).map_err(Fault::Storage)?;
        let Some(last) = page.last() else {
            if queue.after == 0 {
                known.parked.0.remove(trigger);
            } else {
                (queue.after, queue.next) = (0, now.plus_millis(AGAIN_MS));
            }
            return Ok(());
        };
        (queue.after, queue.open, queue.is_last) = (*last, page.len(), page.len() < limit);
        for event in page {
            let what = Parked { event, trigger: trigger.to_owned() };
            let home = self.home_of(rows, &what)?;
            let is_wanted = home.is_some();
            if !is_wanted {
                rows.unpark(&what).map_err(Fault::Storage)?;
            }
            let is_added = home.is_some_and(|to| self.flights.add(what, to, now, true));
            if !is_added && let Some(known) = &mut self.known {
                known.parked.left(now, trigger, !is_wanted);
            }
        }
        Ok(())
    }

    /// The cell that a parked start is at home in, or whose waits it is about; nothing if its trigger or its event is gone.
    fn home_of<R: Rows>(&self, rows: &R, what: &Parked) -> Result<Option<Place>, Fault<R::Error>> {
        let cell = what.cell();
        let loaded = self.known.as_ref().and_then(|known| known.triggers.get(&what.trigger));
        if loaded.is_none() && cell.is_none() {
            return Ok(None);
        }
        let Some(generation) = rows.generation(what.event).map_err(Fault::Storage)? else { return Ok(None) };
        let at_home = || Some(home(&self.pool, &self.name, generation, what, &loaded?.trigger.spec));
        Ok(cell.or_else(at_home))
    }
}

/// What the place of a queue begins with: no pool is called so.
const QUEUE: &str = "queue ";

/// Whether a place is that of a queue.
pub(super) fn is_queue(place: &Place) -> bool {
    place.pool.starts_with(QUEUE)
}

/// The cell that a start is at home in. One of a generation that this Worker was not told of is found out when it is asked
/// for. A queue stands beside all cells: one that does not answer holds up none of them.
pub(super) fn home(pool: &Pool, topic: &str, generation: u32, what: &Parked, spec: &TriggerSpec) -> Place {
    if let Some(queue) = &spec.queue {
        return Place { pool: format!("{QUEUE}{queue}"), generation: 0, cell: 0 };
    }
    let Parked { event, trigger } = what.clone();
    let triggered = Triggered { topic: topic.to_owned(), trigger, event };
    pool.home_of(generation, &event_key(&triggered)).unwrap_or_else(|| pool.any(0))
}
