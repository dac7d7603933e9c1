//! The layers of a schedule: what the code declares, what an operator has changed, and what is in effect.
//!
//! Invariants: what the code declares never un-pauses a schedule, and does not take the place of what an operator has
//! set. What leaves the code is retired: it stops, and is deleted after [`super::RETIRED_MS`].

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Problem, Timestamp,
    manifest::ScheduleDescription,
    schedule::{DeclaredSchedule, ScheduleSpec},
};

use super::{
    BadSpec, Order, Plan, Rows, Schedule, Schedules, Zones,
    find::{Unreadable, read},
    row::World,
};
use crate::{
    access::APP,
    object::{Fault, Hosted as _},
    ordered::OrdSet,
};

/// What a station has heard of the code: one row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Which of the catalog's words was the last.
    pub revision: u64,
    /// The schedules that it has named.
    pub names: OrdSet<String>,
}

/// Where every zone is: for whoever reads a schedule, and leaves it to others whether its zone exists.
struct Anywhere;

impl Zones for Anywhere {
    fn offset_s(&self, _: &str, _: i64) -> Option<i32> {
        Some(0)
    }
}

/// The zone that a schedule goes by, whether it exists or not; or what is wrong with the rest of it.
pub fn zone_of(spec: &ScheduleSpec) -> Result<String, BadSpec> {
    Plan::read(spec, &Anywhere).map(|plan| plan.zone)
}

impl Schedule {
    /// When it was found to be declared no more.
    pub fn retired_at(&self) -> Option<Timestamp> {
        self.declared.as_ref().and_then(|declared| declared.retired_at)
    }

    /// The same with something else to do, as an operator says. A tick that is due stays: it may be under way.
    pub fn changed(
        &self,
        world: World<'_>,
        now: Timestamp,
        spec: ScheduleSpec,
        by: String,
    ) -> Result<Self, BadSpec> {
        // Whoever takes up what was retired has a schedule of their own.
        let declared = self.declared.clone().filter(|declared| declared.retired_at.is_none());
        let declared = declared.map(|declared| {
            let changed = declared.spec != spec;
            DeclaredSchedule { changed, ..declared }
        });
        Ok(Self { declared, ..self.with_spec(world, now, spec, by)? })
    }

    fn with_spec(
        &self,
        world: World<'_>,
        now: Timestamp,
        spec: ScheduleSpec,
        by: String,
    ) -> Result<Self, BadSpec> {
        let new = Self::new(world, now, self.id.clone(), spec, by)?;
        let is_due = self.is_tick_due(now);
        let next = if is_due { self.next.clone() } else { new.next.clone() };
        // A range of other ticks than those that it was asked for is nobody's wish.
        let is_same_plan = self.plan(world).ok() == new.plan(world).ok();
        let again = self.again.clone().filter(|_| is_same_plan);
        let running = if new.tracks() { self.running.clone() } else { Vec::new() };
        Ok(Self {
            spec: new.spec,
            changed_at: now,
            changed_by: new.changed_by,
            next,
            left_out: self.left_out.filter(|_| is_due),
            again,
            running,
            ..self.clone()
        })
    }

    /// The same as the code declares it, unless an operator has changed it.
    fn declared(&self, world: World<'_>, now: Timestamp, spec: &ScheduleSpec) -> Self {
        let before = self.declared.as_ref();
        if before.is_some_and(|before| before.spec == *spec && before.retired_at.is_none()) {
            return self.clone();
        }
        // One that an operator has made goes on as it is.
        let changed = before.map_or(self.spec != *spec, |before| before.changed && self.spec != *spec);
        let declared = Some(DeclaredSchedule { spec: spec.clone(), changed, retired_at: None });
        let is_back = before.is_some_and(|before| before.retired_at.is_some());
        let spec = if changed { self.spec.clone() } else { spec.clone() };
        if spec == self.spec && !is_back {
            return Self { declared, ..self.clone() };
        }
        match self.with_spec(world, now, spec.clone(), APP.into()) {
            Ok(this) => Self { declared, ..this },
            Err(bad) => Self { declared, spec, next: None, changed_at: now, ..self.stopped(now, bad.0) },
        }
    }

    /// A new one that the code declares.
    fn of_code(world: World<'_>, now: Timestamp, id: &str, spec: &ScheduleSpec) -> Self {
        let declared = Some(DeclaredSchedule { spec: spec.clone(), changed: false, retired_at: None });
        let new = Self::new(world, now, id.to_owned(), spec.clone(), APP.into());
        let new = new.unwrap_or_else(|bad| {
            Self::blank(now, id.to_owned(), spec.clone(), APP.into()).stopped(now, bad.0)
        });
        Self { declared, ..new }
    }

    /// The code declares it no more. Its runs go on.
    fn retired(&self, now: Timestamp) -> Self {
        let declared = self.declared.clone();
        let declared = declared.map(|declared| DeclaredSchedule { retired_at: Some(now), ..declared });
        let (triggered, again) = (Vec::new(), None);
        Self { declared, next: None, triggered, again, changed_at: now, ..self.clone() }
    }

    /// Refuses to do anything with a schedule that was retired.
    pub(super) fn check_active(&self) -> Result<(), Problem> {
        match self.retired_at() {
            None => Ok(()),
            Some(_) => {
                let detail =
                    "The schedule was removed from the code. Declare it again, or `PUT` it to make it yours.";
                Err(Problem::new(Code::WrongStatus, detail))
            }
        }
    }
}

impl Schedules {
    /// The catalog says what the code declares: all of it, by this revision. An earlier one that comes late changes
    /// nothing.
    pub fn declare<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        revision: u64,
        schedules: &[ScheduleDescription],
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let heard = rows.heard().map_err(Fault::Storage)?;
        if heard.revision >= revision {
            return Ok(());
        }
        let mut names: OrdSet<_> = schedules.iter().map(|schedule| schedule.name.clone()).collect();
        let mut changed = Vec::new();
        for ScheduleDescription { name, spec } in schedules {
            match read(rows, name)? {
                Ok(Some(known)) => {
                    let after = known.declared(self.world(), now, spec);
                    changed.extend((after != known).then_some(after));
                }
                Ok(None) => changed.push(Schedule::of_code(self.world(), now, name, spec)),
                // It may be paused, or changed by an operator: it stays as it is, and holds up no other.
                Err(Unreadable) => self.object.order(Order::Report(name.clone())),
            }
        }
        let gone: Vec<_> = heard.names.difference(&names).cloned().collect();
        for name in gone {
            let Ok(known) = read(rows, &name)? else {
                // It is retired when it can be read.
                names.insert(name);
                continue;
            };
            let known = known.filter(|known| known.declared.is_some() && known.retired_at().is_none());
            changed.extend(known.map(|known| known.retired(now)));
        }
        if let Err(error) = rows.declare(&Heard { revision, names }, &changed) {
            self.lose_agenda();
            return Err(Fault::Storage(error));
        }
        for schedule in &changed {
            self.stored(schedule);
        }
        self.go_on_after(rows, now);
        Ok(())
    }
}
