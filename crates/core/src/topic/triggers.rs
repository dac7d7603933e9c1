//! The triggers of a topic: made, changed, paused, deleted.

use stepwell_protocol::{
    Code, Problem, Timestamp,
    topic::{PausedTrigger, TriggerList, TriggerSpec, TriggerView},
};

use super::{
    Rows, TRIGGERS_MAX, Topic, Trigger,
    drive::{Known, Loaded},
    row::condition,
};
use crate::object::{Fault, Hosted as _};

impl Topic {
    /// Makes a trigger, or lets it do something else. Says whether it is new.
    pub fn put_trigger<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        by: &str,
        id: &str,
        spec: TriggerSpec,
    ) -> Result<(TriggerView, bool), Fault<R::Error>> {
        let now = self.now(clock);
        let when = condition(&self.name, &spec)?;
        let known = self.known(rows, now)?;
        let last = known.last;
        let before = known.triggers.get(id).map(|loaded| loaded.trigger.clone());
        let own = known.triggers.values().filter(|loaded| loaded.trigger.declared.is_none()).count();
        let count = own + known.unreadable.len();
        let is_there = before.is_some() || known.unreadable.contains(id);
        if !is_there && count >= TRIGGERS_MAX {
            let detail = format!("A topic has at most {TRIGGERS_MAX} triggers. Delete one first.");
            return Err(Problem::new(Code::TooMany, detail).into());
        }
        let is_new = before.is_none();
        let trigger = match before {
            Some(before) if before.spec == spec && before.retired_at().is_none() => before,
            Some(before) => before.changed(now, last, spec, by.to_owned()),
            None => Trigger::new(now, last, id.to_owned(), spec, by.to_owned()),
        };
        self.store(rows, Loaded { trigger, when, is_readable: true, is_changed: false })?;
        self.carry_on(rows, now);
        self.view(id).map(|view| (view, is_new)).ok_or_else(|| no_trigger().into())
    }

    /// Shows a trigger.
    pub fn get_trigger<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
    ) -> Result<TriggerView, Fault<R::Error>> {
        let now = self.now(clock);
        self.known(rows, now)?.check(id)?;
        self.view(id).ok_or_else(|| no_trigger().into())
    }

    /// Lists all triggers.
    pub fn list_triggers<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
    ) -> Result<TriggerList, Fault<R::Error>> {
        let now = self.now(clock);
        let known = self.known(rows, now)?;
        let unreadable = known.unreadable.iter().cloned().collect();
        let ids: Vec<_> = known.triggers.keys().cloned().collect();
        Ok(TriggerList { triggers: ids.iter().filter_map(|id| self.view(id)).collect(), unreadable })
    }

    /// Deletes a trigger. Its runs go on; whatever has not started yet does not.
    pub fn delete_trigger<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let known = self.known(rows, now)?;
        if !known.triggers.contains_key(id) && !known.unreadable.contains(id) {
            return Err(no_trigger().into());
        }
        let declared = known.triggers.get(id).and_then(|loaded| loaded.trigger.declared.as_ref());
        if declared.is_some_and(|declared| declared.retired_at.is_none()) {
            let detail = "The trigger is declared in code. Pause it, or remove it from the code.";
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        self.forget_trigger(rows, now, id)?;
        self.carry_on(rows, now);
        Ok(())
    }

    /// Deletes it, and whatever it has not started yet.
    pub(super) fn forget_trigger<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        id: &str,
    ) -> Result<(), Fault<R::Error>> {
        if let Err(error) = rows.delete_trigger(id) {
            self.known = None;
            return Err(Fault::Storage(error));
        }
        self.flights.forget(id);
        if let Some(known) = &mut self.known {
            known.triggers.remove(id);
            known.unreadable.remove(id);
            known.parked.forget(now, id);
        }
        Ok(())
    }

    /// Lets a trigger start no more runs: events that come meanwhile are passed over.
    pub fn pause_trigger<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        by: &str,
        id: &str,
    ) -> Result<TriggerView, Fault<R::Error>> {
        let by = by.to_owned();
        self.change(rows, clock, id, |trigger, now, _| {
            trigger.paused.get_or_insert(PausedTrigger { at: now, by });
        })
    }

    /// Lets a paused trigger start runs again, of the events from now on.
    pub fn resume_trigger<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
    ) -> Result<TriggerView, Fault<R::Error>> {
        self.change(rows, clock, id, |trigger, _, last| {
            if trigger.paused.take().is_some() {
                trigger.after = last;
            }
        })
    }

    fn change<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        change: impl FnOnce(&mut Trigger, Timestamp, u64),
    ) -> Result<TriggerView, Fault<R::Error>> {
        let now = self.now(clock);
        let known = self.known(rows, now)?;
        known.check(id)?;
        let last = known.last;
        let mut loaded = known.triggers.get(id).cloned().ok_or_else(no_trigger)?;
        loaded.trigger.check_declared()?;
        change(&mut loaded.trigger, now, last);
        self.store(rows, Loaded { is_changed: false, ..loaded })?;
        self.view(id).ok_or_else(|| no_trigger().into())
    }

    fn store<R: Rows>(&mut self, rows: &R, loaded: Loaded) -> Result<(), Fault<R::Error>> {
        self.pass_over(rows)?;
        self.stored(rows.put_trigger(&loaded.trigger), vec![loaded])
    }

    /// Stores how far everything is done, before a trigger is made or changed: an instance that looked at the same events
    /// again would go by what the trigger is about from now on, and start runs for events that it was not about. Nobody
    /// has to look at those that came before the first trigger or wait.
    pub(super) fn pass_over<R: Rows>(&mut self, rows: &R) -> Result<(), Fault<R::Error>> {
        if let Some(known) = self.known.as_mut().filter(|known| known.is_idle()) {
            known.matched = known.last;
        }
        let done = self.done_through();
        if let Some(known) = self.known.as_mut().filter(|known| known.through < done) {
            rows.flush(done, known.looked, &[]).map_err(Fault::Storage)?;
            known.through = done;
        }
        Ok(())
    }

    /// Remembers what was stored, if it was.
    pub(super) fn stored<E>(&mut self, stored: Result<(), E>, changed: Vec<Loaded>) -> Result<(), Fault<E>> {
        if let Err(error) = stored {
            self.start_over();
            return Err(Fault::Storage(error));
        }
        if let Some(known) = &mut self.known {
            for loaded in changed {
                known.unreadable.remove(&loaded.trigger.id);
                known.triggers.insert(loaded.trigger.id.clone(), loaded);
            }
        }
        Ok(())
    }

    fn view(&self, id: &str) -> Option<TriggerView> {
        let loaded = self.known.as_ref()?.triggers.get(id)?;
        Some(loaded.trigger.view(&self.name))
    }
}

impl Known {
    /// Refuses to do something with a trigger that cannot be read.
    fn check(&self, id: &str) -> Result<(), Problem> {
        if self.unreadable.contains(id) {
            let detail = "This release cannot read the stored trigger. Its events wait for one that can. Replace it with \
                          `PUT`, or delete it.";
            return Err(Problem::new(Code::WrongStatus, detail));
        }
        Ok(())
    }
}

/// There is no such trigger.
pub fn no_trigger() -> Problem {
    let detail = "The topic has no trigger with this id. `GET /api/triggers?topic=…` lists them.";
    Problem::new(Code::TriggerNotFound, detail)
}
