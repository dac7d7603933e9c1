//! The look at events that came before a wait was known here: once, by waits that came together, in turns.

use stepwell_protocol::{Timestamp, topic::is_on};

use super::{
    EventRow, Parked, Rows, Topic, WaitRow,
    drive::Known,
    pages::{self, Page},
    waits::{Conditions, EXAMINED_MAX, KnownWaits, WAITS_MAX, of_cell},
};
use crate::{
    expression::Failed,
    object::Fault,
    ordered::{OrdMap, OrdSet},
};

/// How many events before it was registered a wait looks back over at the most.
pub const LOOK_BACK_EVENTS_MAX: usize = 5_000;

/// How many bytes of them.
pub const LOOK_BACK_BYTES_MAX: usize = 32 << 20;

/// How many events are read at once.
const LOOK_BACK_PAGE: usize = 16;

/// Waits look back together if no more events than this came between them.
const LOOK_BACK_SPAN: u64 = 1_000;

/// The longest pause between two looks back: the more events one of them reads, the longer.
const LOOK_BACK_PAUSE_MS_MAX: u64 = 1_000;

/// Waits by what they are found by: the events, the path and the value.
type Placed<'a> = OrdMap<(&'a str, &'a str, &'a str), Vec<&'a WaitRow>>;

/// How far waits have looked back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// The last of these waits.
    last: u64,
    /// The event before which it goes on.
    before: u64,
    /// How many events and bytes were looked at that came before all of the waits.
    seen: usize,
    bytes: usize,
}

impl KnownWaits {
    /// The waits that look back together, as far as they can be read, and the last of them.
    fn that_look_back<R: Rows>(&self, rows: &R) -> Result<(Vec<WaitRow>, u64), R::Error> {
        let mut page = rows.waits_after(self.looked, WAITS_MAX)?;
        if let Some(Look { last, .. }) = self.look {
            page.retain(|(number, _)| *number <= last);
            return Ok((page.into_iter().filter_map(|(_, wait)| wait).collect(), last));
        }
        let mut last = if page.len() < WAITS_MAX { self.last } else { self.looked };
        let mut new: Vec<WaitRow> = Vec::new();
        for (number, wait) in page {
            let span = new.first().zip(wait.as_ref()).map(|(first, wait)| wait.after.abs_diff(first.after));
            if span.is_some_and(|span| span > LOOK_BACK_SPAN) {
                return Ok((new, number - 1));
            }
            new.extend(wait);
            last = last.max(number);
        }
        Ok((new, last))
    }

    /// The cells of those waits that an event meets which came before them.
    fn found_back(&self, new: &Placed<'_>, event: &EventRow, examined: &mut usize) -> OrdSet<Parked> {
        let (mut found, mut conditions, value) = (OrdSet::new(), Conditions::default(), event.value());
        if !new.keys().any(|(on, _, _)| is_on(on, &event.name)) {
            return found;
        }
        for (on, path, there) in &self.buckets(event, &value) {
            let waits = new.get(&(on.as_str(), path.as_str(), there.as_str()));
            for wait in waits.into_iter().flatten() {
                *examined += 1;
                // What could not be compared here is compared again before its cell is told.
                let meets = conditions.meets(&wait.waiter, wait.after, event, &value);
                if matches!(meets, Ok(true) | Err(Failed::TooMuch)) {
                    found.insert(of_cell(event.number, &wait.waiter.run.place.to_string()));
                }
            }
        }
        found
    }

    /// Up to which wait the look back is done for good: what was found and is under way is in memory only.
    pub(super) fn looked_for_good(&mut self, is_open: impl Fn(&Parked) -> bool) -> u64 {
        self.found.retain(|what, _| is_open(what));
        self.found.values().copied().min().unwrap_or(self.looked)
    }
}

impl Topic {
    /// Looks at the events that came before waits were known here: as many in one turn as may be compared.
    pub(super) fn look_back<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let Known { waits, unstored, .. } = known;
        if waits.looked >= waits.last || waits.looks_at > now || !self.flights.has_room() {
            return Ok(());
        }
        let (new, last) = waits.that_look_back(rows).map_err(Fault::Storage)?;
        let mut placed = Placed::new();
        for wait in &new {
            placed.get_or_default((&wait.waiter.on, &wait.path, &wait.value)).push(wait);
        }
        let from = new.iter().map(|wait| wait.waiter.from).min().unwrap_or(now);
        let (first, latest) =
            (new.iter().map(|wait| wait.after).min(), new.iter().map(|wait| wait.after).max());
        let begin = Look { last, before: latest.unwrap_or_default() + 1, seen: 0, bytes: 0 };
        let mut look = waits.look.take().unwrap_or(begin);
        let mut is_over = new.is_empty();
        // The other half is for the events that come.
        while !is_over && self.examined < EXAMINED_MAX / 2 {
            let page = pages::read(look.before, LOOK_BACK_PAGE, |from, count| rows.before(from, count));
            let Page { events, last, more } = page.map_err(Fault::Storage)?;
            let Some(before) = last else {
                is_over = true;
                break;
            };
            look.before = before;
            // Those in between are the first waits' to look at, and the budget of none.
            let counted = events.iter().filter(|event| Some(event.number) <= first);
            let sizes: Vec<_> = counted.map(|event| event.data.size()).collect();
            look.seen += sizes.len();
            look.bytes += sizes.iter().sum::<usize>();
            self.examined += events.len();
            for event in events.iter().filter(|event| event.at >= from) {
                for what in waits.found_back(&placed, event, &mut self.examined) {
                    let Some(to) = what.cell() else { continue };
                    waits.found.get_or_insert_with(what.clone(), || waits.looked);
                    if !self.flights.add(what.clone(), to, now, false) {
                        waits.anew.insert(what);
                    }
                }
            }
            is_over = !more
                || events.last().is_some_and(|oldest| oldest.at < from)
                || look.seen >= LOOK_BACK_EVENTS_MAX
                || look.bytes >= LOOK_BACK_BYTES_MAX;
        }
        if is_over {
            waits.looked = last;
            let pause_ms = u64::try_from(look.seen).unwrap_or(u64::MAX).min(LOOK_BACK_PAUSE_MS_MAX);
            waits.looks_at = now.plus_millis(pause_ms);
        } else {
            waits.look = Some(look);
        }
        unstored.get_or_insert(now);
        Ok(())
    }
}
