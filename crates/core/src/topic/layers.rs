//! The layers of a trigger: what the code declares, what an operator has changed, and what is in effect.
//!
//! Invariants: what the code declares never un-pauses a trigger, and does not take the place of what an operator has set.
//! What leaves the code is retired: it starts no more runs, and is deleted after [`RETIRED_MS`].

use stepwell_protocol::{
    Code, Problem, Timestamp,
    manifest::TriggerDescription,
    topic::{DeclaredTrigger, TriggerSpec},
};

use super::{
    Rows, Topic, Trigger,
    drive::{Known, Loaded},
    row::condition,
};
use crate::{
    access::APP,
    object::{Fault, Hosted as _},
    ordered::OrdSet,
};

/// How long a trigger is kept after it was removed from the code: 30 days.
pub const RETIRED_MS: u64 = 30 * 86_400_000;

impl Trigger {
    /// When it was found to be declared no more.
    pub(super) fn retired_at(&self) -> Option<Timestamp> {
        self.declared.as_ref().and_then(|declared| declared.retired_at)
    }

    /// The same with something else to do, as an operator says. Whoever takes up what was retired has a trigger of their
    /// own, for the events from now on.
    pub(super) fn changed(&self, now: Timestamp, last: u64, spec: TriggerSpec, by: String) -> Self {
        let after = if self.retired_at().is_some() { last } else { self.after };
        let declared = self.declared.clone().filter(|declared| declared.retired_at.is_none());
        let declared = declared.map(|declared| {
            let changed = declared.spec != spec;
            DeclaredTrigger { changed, ..declared }
        });
        Self { spec, after, changed_at: now, changed_by: by, declared, ..self.clone() }
    }

    /// The same as the code declares it, unless an operator has changed it. One that comes back is about the events from
    /// now on.
    fn declared(&self, now: Timestamp, last: u64, spec: &TriggerSpec) -> Self {
        let before = self.declared.as_ref();
        let is_back = self.retired_at().is_some();
        if !is_back && before.is_some_and(|before| before.spec == *spec) {
            return self.clone();
        }
        // One that an operator has made goes on as it is.
        let changed = before.map_or(self.spec != *spec, |before| before.changed && self.spec != *spec);
        let declared = Some(DeclaredTrigger { spec: spec.clone(), changed, retired_at: None });
        let after = if is_back { last } else { self.after };
        if changed || (self.spec == *spec && !is_back) {
            return Self { after, declared, ..self.clone() };
        }
        Self { declared, after, spec: spec.clone(), changed_at: now, changed_by: APP.into(), ..self.clone() }
    }

    /// The code declares it no more. Its runs go on.
    fn retired(&self, now: Timestamp) -> Self {
        let declared = self.declared.clone();
        let declared = declared.map(|declared| DeclaredTrigger { retired_at: Some(now), ..declared });
        Self { changed_at: now, changed_by: APP.into(), declared, ..self.clone() }
    }

    /// Refuses to pause or resume a trigger that was retired.
    pub(super) fn check_declared(&self) -> Result<(), Problem> {
        if self.retired_at().is_none() {
            return Ok(());
        }
        let detail = "The trigger was removed from the code. Declare it again, or `PUT` it to make it yours.";
        Err(Problem::new(Code::WrongStatus, detail))
    }
}

impl Known {
    /// When the next trigger that was retired is forgotten.
    pub(super) fn next_forgotten(&self) -> Option<Timestamp> {
        let retired = self.triggers.values().filter_map(|loaded| loaded.trigger.retired_at());
        retired.min().map(|at| at.plus_millis(RETIRED_MS))
    }
}

impl Topic {
    /// The catalog says which triggers the code declares for this topic: all of them, by this revision. An earlier one
    /// that comes late changes nothing.
    pub fn declare<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        revision: u64,
        triggers: &[TriggerDescription],
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        if rows.heard().map_err(Fault::Storage)? >= revision {
            return Ok(());
        }
        let name = self.name.clone();
        self.known(rows, now)?;
        self.pass_over(rows)?;
        let known = self.known(rows, now)?;
        let names: OrdSet<_> = triggers.iter().map(|trigger| trigger.name.as_str()).collect();
        let mut changed = Vec::new();
        for TriggerDescription { name: id, spec } in triggers {
            let after = match known.triggers.get(id).map(|loaded| &loaded.trigger) {
                Some(before) => Some(before.declared(now, known.last, spec)).filter(|after| after != before),
                // It may be paused, or changed by an operator: it stays as it is.
                None if known.unreadable.contains(id) => None,
                None => {
                    let new = Trigger::new(now, known.last, id.clone(), spec.clone(), APP.into());
                    let declared = DeclaredTrigger { spec: spec.clone(), changed: false, retired_at: None };
                    Some(Trigger { declared: Some(declared), ..new })
                }
            };
            let Some(trigger) = after else { continue };
            let when = condition(&name, &trigger.spec)?;
            changed.push(Loaded { trigger, when, is_readable: true, is_changed: false });
        }
        let gone = known.triggers.values().filter(|loaded| {
            let Trigger { id, declared, .. } = &loaded.trigger;
            !names.contains(id.as_str()) && declared.as_ref().is_some_and(|it| it.retired_at.is_none())
        });
        changed.extend(gone.map(|loaded| Loaded {
            trigger: loaded.trigger.retired(now),
            is_changed: false,
            ..loaded.clone()
        }));
        let stored =
            rows.declare(revision, &changed.iter().map(|loaded| &loaded.trigger).collect::<Vec<_>>());
        self.stored(stored, changed)?;
        self.carry_on(rows, now);
        Ok(())
    }

    /// Deletes triggers that were retired long ago.
    pub(super) fn forget_retired<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
    ) -> Result<(), Fault<R::Error>> {
        let Some(known) = &self.known else { return Ok(()) };
        let is_over =
            |trigger: &Trigger| trigger.retired_at().is_some_and(|at| at.plus_millis(RETIRED_MS) <= now);
        let over = known.triggers.values().filter(|loaded| is_over(&loaded.trigger));
        let over: Vec<_> = over.map(|loaded| loaded.trigger.id.clone()).collect();
        over.iter().try_for_each(|id| self.forget_trigger(rows, now, id))
    }
}
