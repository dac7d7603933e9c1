//! Where times are on the axis of a timeline, which collapses idle time.

use stepwell_protocol::{Timestamp, sorting::sort, timeline::Kind};

use super::Timeline;
use crate::when;

/// The share of the axis that a collapsed pause gets.
const PAUSE_SHARE: f64 = 0.05;

/// The share that all of them get together.
const PAUSES_SHARE_MAX: f64 = 0.5;

/// A pause that is shorter is drawn as long as it is.
const PAUSE_MS_MIN: u64 = 2_000;

/// Where times are on a line from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Each begins at a time and at a place; the last one is the end.
    stops: Vec<(u64, f64, bool)>,
}

/// A mark on the axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Where it is, from 0 to 1.
    pub at: f64,
    /// How far that is from the beginning.
    pub label: String,
}

#[expect(clippy::cast_precision_loss, reason = "no run takes 2^52 milliseconds")]
impl Axis {
    /// The axis of a timeline: pauses in which nothing works, and that are far longer than all work, are collapsed.
    pub fn of(timeline: &Timeline) -> Self {
        let (begins, ends) = (timeline.begins.as_millis(), timeline.ends.as_millis());
        let ends = ends.max(begins + 1);
        let parts = timeline.rows.iter().flat_map(|row| &row.bar.parts);
        let mut busy: Vec<_> = parts
            .filter(|part| part.kind != Kind::Rest)
            .map(|part| (part.from.as_millis().max(begins), part.to.as_millis().min(ends)))
            .collect();
        sort(&mut busy);
        let (mut pauses, mut edge, mut worked) = (Vec::new(), begins, 0);
        for (from, to) in busy {
            if from > edge {
                pauses.push((edge, from));
            }
            worked += to.max(edge).saturating_sub(from.max(edge));
            edge = edge.max(to);
        }
        if ends > edge {
            pauses.push((edge, ends));
        }
        let whole = ends - begins;
        // Without any work there is nothing to make room for.
        let shortest = if worked == 0 { whole } else { PAUSE_MS_MIN.max(worked.saturating_mul(2)) };
        pauses.retain(|(from, to)| to - from > shortest);
        Self::with_pauses(begins, ends, &pauses)
    }

    fn with_pauses(begins: u64, ends: u64, pauses: &[(u64, u64)]) -> Self {
        let idle: u64 = pauses.iter().map(|(from, to)| to - from).sum();
        let linear = (ends - begins - idle) as f64;
        let share = match pauses.len() {
            0 => 0.0,
            count if linear <= 0.0 => 1.0 / count as f64,
            count => PAUSE_SHARE.min(PAUSES_SHARE_MAX / count as f64),
        };
        let scale = if linear <= 0.0 { 0.0 } else { (1.0 - share * pauses.len() as f64) / linear };
        let (mut stops, mut at, mut time) = (Vec::new(), 0.0, begins);
        for &(from, to) in pauses {
            if from > time {
                stops.push((time, at, false));
                at += (from - time) as f64 * scale;
            }
            stops.push((from, at, true));
            at += share;
            time = to;
        }
        if ends > time {
            stops.push((time, at, false));
        }
        stops.push((ends, 1.0, false));
        Self { stops }
    }

    /// Where a time is, from 0 to 1.
    pub fn place(&self, at: Timestamp) -> f64 {
        let at = at.as_millis();
        let next = self.stops.partition_point(|(time, _, _)| *time <= at);
        let (Some(before), Some(after)) =
            (next.checked_sub(1).and_then(|index| self.stops.get(index)), self.stops.get(next))
        else {
            return if next == 0 { 0.0 } else { 1.0 };
        };
        let part = (at - before.0) as f64 / (after.0 - before.0).max(1) as f64;
        (before.1 + part * (after.1 - before.1)).clamp(0.0, 1.0)
    }

    /// The collapsed pauses: where each begins and ends, and how long it is.
    pub fn pauses(&self) -> Vec<(f64, f64, u64)> {
        let pairs = self.stops.iter().zip(self.stops.iter().skip(1));
        pairs.filter(|(one, _)| one.2).map(|(one, other)| (one.1, other.1, other.0 - one.0)).collect()
    }

    /// Marks that are at least so far apart.
    pub fn ticks(&self, apart: f64) -> Vec<Tick> {
        let Some(&(begins, _, _)) = self.stops.first() else { return Vec::new() };
        let mut ticks: Vec<Tick> = Vec::new();
        let mut add = |at: f64, time: u64| {
            if ticks.last().is_none_or(|last| at - last.at >= apart) && at <= 1.0 - apart / 2.0 {
                ticks.push(Tick { at, label: when::length(time - begins) });
            }
        };
        for (one, other) in self.stops.iter().zip(self.stops.iter().skip(1)) {
            add(one.1, one.0);
            if one.2 || other.1 <= one.1 {
                continue;
            }
            let per_part = (other.0 - one.0) as f64 / (other.1 - one.1);
            let step = nice(per_part * apart);
            let mut time = one.0 + step - (one.0 - begins) % step;
            while time < other.0 {
                add(one.1 + (time - one.0) as f64 / per_part, time);
                time += step;
            }
        }
        ticks
    }
}

/// The next round length of time, in milliseconds.
#[expect(clippy::cast_precision_loss, reason = "all of them are small")]
fn nice(ms: f64) -> u64 {
    const SECOND: u64 = 1_000;
    const STEPS: [u64; 22] = [
        1,
        2,
        5,
        10,
        20,
        50,
        100,
        200,
        500,
        SECOND,
        2 * SECOND,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        60 * SECOND,
        5 * 60 * SECOND,
        15 * 60 * SECOND,
        3_600 * SECOND,
        6 * 3_600 * SECOND,
        86_400 * SECOND,
        7 * 86_400 * SECOND,
        30 * 86_400 * SECOND,
    ];
    STEPS.into_iter().find(|step| *step as f64 >= ms).unwrap_or(365 * 86_400 * SECOND)
}
