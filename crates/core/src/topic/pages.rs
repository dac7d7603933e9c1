//! Events in order, as many at once as fit into memory.

use super::EventRow;

/// How many bytes the events of a page have, unless the first one alone has more.
pub(super) const PAGE_BYTES_MAX: usize = 1 << 20;

/// How many events are read before it is known how large they are.
const READ_FIRST: usize = 4;

/// How many events are read at once. How large the next ones are is not known before they are read: the ones before them
/// may have ten bytes each, and they a million each.
const READ_MAX: usize = 8;

/// Events that were read.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// Those that can be read.
    pub events: Vec<EventRow>,
    /// The number of the last one that was looked at, whether it can be read or not; nothing if there was none.
    pub last: Option<u64>,
    /// Whether there may be others behind it.
    pub more: bool,
}

/// Reads events from a number on, which is not among them: at most so many. The rows are read a few at a time.
pub(super) fn read<E>(
    from: u64,
    limit: usize,
    rows: impl Fn(u64, usize) -> Result<Vec<(u64, Option<EventRow>)>, E>,
) -> Result<Page, E> {
    let mut page = Page::default();
    let (mut looked, mut bytes) = (0, 0);
    let mut count = READ_FIRST.min(limit);
    while looked < limit {
        let read = rows(page.last.unwrap_or(from), count)?;
        let is_last = read.len() < count;
        for (number, event) in read {
            let size = event.as_ref().map_or(0, |event| event.data.size());
            if bytes + size > PAGE_BYTES_MAX && page.last.is_some() {
                page.more = true;
                return Ok(page);
            }
            (looked, bytes, page.last) = (looked + 1, bytes + size, Some(number));
            page.events.extend(event);
        }
        if is_last {
            return Ok(page);
        }
        let average = bytes / looked.max(1) + 1;
        let room = (PAGE_BYTES_MAX - bytes.min(PAGE_BYTES_MAX)) / average + 1;
        count = room.min(READ_MAX).min(limit - looked);
    }
    page.more = true;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use stepwell_protocol::{Payload, Timestamp};

    use super::*;

    fn event(number: u64, bytes: usize) -> EventRow {
        EventRow {
            number,
            at: Timestamp::from_millis(1),
            generation: 1,
            name: "order/paid".into(),
            id: number.to_string(),
            data: Payload::from_text(format!("\"{}\"", "x".repeat(bytes - 2))).expect("it is JSON"),
            source: None,
        }
    }

    /// Reads a page of 100 events, the first ones small and the others large. Gives how many it has, how often was asked,
    /// and the most bytes of one answer.
    fn read_page(small: u64, large_bytes: usize) -> (usize, usize, usize) {
        let (asked, most) = (Cell::new(0), Cell::new(0));
        let page = read(0, 100, |from, count| {
            let numbers = from + 1..=(from + u64::try_from(count).expect("small")).min(200);
            let rows: Vec<_> = numbers
                .map(|number| (number, Some(event(number, if number <= small { 10 } else { large_bytes }))))
                .collect();
            let bytes = rows.iter().flat_map(|(_, event)| event).map(|event| event.data.size()).sum();
            asked.set(asked.get() + 1);
            most.set(most.get().max(bytes));
            Ok::<_, ()>(rows)
        });
        (page.expect("it is read").events.len(), asked.get(), most.get())
    }

    #[test]
    fn an_answer_has_few_megabytes_whatever_came_before() {
        for small in [0, 1, 4, 12, 28, 60] {
            let (read, _, most) = read_page(small, 1_000_000);
            assert!(most <= 8_000_000, "{most} bytes after {small} small events");
            assert!(read >= usize::try_from(small).expect("small"));
        }
        let (read, asked, _) = read_page(200, 10);
        assert!(read == 100 && asked <= 14, "{asked} questions for {read} events");
    }
}
