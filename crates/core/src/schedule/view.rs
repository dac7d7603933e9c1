//! A schedule as people see it.

use stepwell_protocol::{Problem, Timestamp, schedule::ScheduleView};

use super::{BadSpec, Next, Schedule, Upcoming, row::World};

impl Schedule {
    /// Its next ticks after an instant, at most so many.
    pub fn next_ticks(
        &self,
        world: World<'_>,
        now: Timestamp,
        count: usize,
    ) -> Result<Vec<Timestamp>, BadSpec> {
        if self.retired_at().is_some() {
            return Ok(Vec::new());
        }
        let plan = self.plan(world)?;
        let (mut ticks, mut after) = (Vec::new(), now);
        if let Some(Upcoming::Tick { at, .. }) = &self.next
            && *at <= now
            && self.paused.is_none()
        {
            ticks.push(*at);
        }
        // Some of the looks may find nothing.
        for _ in 0..count.saturating_mul(2) {
            if ticks.len() >= count || world.effort.is_spent() {
                break;
            }
            match plan
                .next_after(world.zones, world.effort, after)
                .map_err(|error| BadSpec(error.to_string()))?
            {
                Next::At(at) => {
                    ticks.push(at);
                    after = at;
                }
                Next::NotUpTo(at) => after = at,
                Next::Never => break,
            }
        }
        Ok(ticks)
    }

    /// As people see it.
    pub fn view(&self, problem: Option<Problem>) -> ScheduleView {
        let next_tick = match &self.next {
            Some(Upcoming::Tick { at, .. }) if self.paused.is_none() => Some(*at),
            Some(Upcoming::Tick { .. } | Upcoming::Look { .. }) | None => None,
        };
        ScheduleView {
            id: self.id.clone(),
            spec: self.spec.clone(),
            created_at: self.created_at,
            changed_at: self.changed_at,
            changed_by: self.changed_by.clone(),
            declared: self.declared.clone(),
            paused: self.paused.clone(),
            next_tick,
            next_start: next_tick.map(|at| at.plus_millis(self.slot_ms())),
            running: self.running.clone(),
            last: self.last.clone(),
            counts: self.counts,
            backfill: self.again.as_ref().map(|again| again.range),
            problem,
        }
    }
}
