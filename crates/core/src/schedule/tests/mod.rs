//! What schedules do: their times against other implementations of the same, and the station over rows in memory.

mod cron;
mod delay;
mod effort;
mod layers;
mod life;
mod overlaps;
mod spec;
mod station;
mod year;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use jiff::tz::TimeZone;
use stepwell_protocol::{Place, RunId, Timestamp, schedule::ScheduleSpec};

use super::{Effort, Next, Plan, Zones};

/// The rules of time zones as jiff has them.
#[derive(Default)]
pub struct Jiff(RefCell<BTreeMap<String, Option<TimeZone>>>);

impl Zones for Jiff {
    fn offset_s(&self, zone: &str, at_s: i64) -> Option<i32> {
        let mut known = self.0.borrow_mut();
        let zone = known.entry(zone.to_owned()).or_insert_with(|| TimeZone::get(zone).ok());
        let at = jiff::Timestamp::from_second(at_s).expect("tests are about our times");
        zone.as_ref().map(|zone| zone.to_offset(at).seconds())
    }
}

/// What a schedule is that says only when.
pub fn spec(when: &str) -> ScheduleSpec {
    ScheduleSpec::new("report", when)
}

/// A time such as `2026-03-29T01:00:00Z`.
pub fn at(text: &str) -> Timestamp {
    let at: jiff::Timestamp = text.parse().expect("a time");
    Timestamp::from_millis(u64::try_from(at.as_millisecond()).expect("after 1970"))
}

/// The same as text.
pub fn text(at: Timestamp) -> String {
    let millis = i64::try_from(at.as_millis()).expect("before the year 10000");
    jiff::Timestamp::from_millisecond(millis).expect("a time").to_string()
}

/// The first ticks after an instant, as text.
pub fn ticks(spec: &ScheduleSpec, after: &str, count: usize) -> Vec<String> {
    let zones = Jiff::default();
    let plan = Plan::read(spec, &zones).expect("it can be read");
    let mut after = at(after);
    let mut ticks = Vec::new();
    while ticks.len() < count {
        match plan.next_after(&zones, &Effort::default(), after).expect("the zone is known") {
            Next::At(at) => {
                assert!(at > after, "ticks go forward");
                ticks.push(text(at));
                after = at;
            }
            Next::NotUpTo(at) => after = at,
            Next::Never => break,
        }
    }
    ticks
}

/// A run in some cell.
pub fn run(place: Place, number: u64) -> RunId {
    RunId { place, number, suffix: RunId::suffix_from(number) }
}

/// Zones for a station.
pub fn zones() -> Rc<dyn Zones> {
    Rc::new(Jiff::default())
}
