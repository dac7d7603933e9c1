//! Events in order, as many at once as fit into memory.

use super::EventRow;

/// How many bytes the events of a page have, unless the first one alone has more.
pub(super) const PAGE_BYTES_MAX: usize = 1 << 20;

/// How many events are read before it is known how large they are.
const READ_FIRST: usize = 4;

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
        count = room.min(limit - looked);
    }
    page.more = true;
    Ok(page)
}
