//! A range of ticks that is started again.

use stepwell_protocol::{
    Code, Problem, Timestamp,
    schedule::{Backfill, TickId},
};

use super::{
    BadSpec,
    row::{Again, BACKFILL_MS_MAX, BACKFILL_TICKS_MAX, Job, LOOK_TICKS, Schedule, Upcoming, World},
};

impl Schedule {
    /// About the range that is started again.
    pub(super) fn job_again(&self, world: World<'_>) -> Result<Job, BadSpec> {
        let Some(again) = self.running_again() else { return Ok(Job::Wait) };
        match &again.next {
            Upcoming::Tick { at, to } => {
                Ok(Job::Start { tick: TickId::Again(again.number, *at), to: to.clone() })
            }
            Upcoming::Look { at } => {
                let mut this = self.clone();
                this.again = this.again_after(world, again, *at, LOOK_TICKS)?;
                Ok(Job::Store(Box::new(this)))
            }
        }
    }

    /// What is left of a range after an instant, when so many ticks more are done.
    pub(super) fn again_after(
        &self,
        world: World<'_>,
        again: &Again,
        after: Timestamp,
        ticks: u32,
    ) -> Result<Option<Again>, BadSpec> {
        let left = again.left.saturating_sub(ticks);
        if left == 0 {
            return Ok(None);
        }
        let plan = self.plan(world)?;
        let next = self.upcoming(world, &plan, after).map_err(|error| BadSpec(error.to_string()))?;
        let next = next.filter(|next| next.at() <= again.range.to);
        Ok(next.map(|next| Again { next, left, ..again.clone() }))
    }

    /// With a range of ticks to be started again.
    pub fn backfilled(&self, world: World<'_>, now: Timestamp, range: Backfill) -> Result<Self, Problem> {
        if self.again.is_some() {
            let detail = "A backfill of this schedule is under way. Wait until it is done.";
            return Err(Problem::new(Code::WrongStatus, detail));
        }
        if range.to < range.from || range.to > now {
            let detail = "A backfill goes from an instant to a later one that is not in the future.";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        if range.to.as_millis() - range.from.as_millis() > BACKFILL_MS_MAX {
            let detail = "A backfill goes over a year at the most. Start it for one year after another.";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        let mut this = Self { ranges: self.ranges + 1, changed_at: now, ..self.clone() };
        let (next, left) = (Upcoming::Look { at: range.from }, BACKFILL_TICKS_MAX);
        let empty = Again { number: this.ranges, range, next, left };
        let before = Timestamp::from_millis(range.from.as_millis().saturating_sub(1));
        this.again = this.again_after(world, &empty, before, 0)?;
        let finds_none = this
            .again
            .as_ref()
            .is_none_or(|again| matches!(again.next, Upcoming::Look { .. }) && !world.effort.is_spent());
        if finds_none {
            let detail = "The schedule does not tick in this range.";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        Ok(this)
    }
}
