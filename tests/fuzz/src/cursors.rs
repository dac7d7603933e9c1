//! Where a reader was: cursors of streams and of lists. One kind is never taken for another.

use stepwell_core::stream::{Cursor, Kinds, PoolCursor};
use stepwell_engine::reading;
use stepwell_protocol::{Place, stream::Kind};

use crate::{json, text};

/// Cursors of a run's stream and of a pool's, and the kinds of events that a reader wants.
pub fn stream_cursor(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (of_run, of_pool) = (text.parse::<Cursor>(), text.parse::<PoolCursor>());
    assert!(of_run.is_err() || of_pool.is_err(), "{text} is a cursor of two kinds");
    if let Ok(cursor) = of_run {
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert_eq!(json::read_back::<Cursor>(&json::write(&cursor)), Some(cursor));
    }
    if let Ok(cursor) = of_pool {
        let written = cursor.to_string();
        assert!(written.len() <= text.len());
        assert_eq!(written.parse::<PoolCursor>().as_ref(), Ok(&cursor));
        for part in written.split(',') {
            let (place, states) = part.split_once(':').expect("a place and a stamp");
            let place: Place = format!("default-{place}").parse().expect("it names a place");
            assert_eq!(cursor.get(&place).map(|states| states.to_string()).as_deref(), Some(states));
        }
    }
    if reading::list_query(&format!("cursor={text}")).is_ok() {
        assert!(text.parse::<Cursor>().is_err() && text.parse::<PoolCursor>().is_err());
    }
    if let Ok(kinds) = text.parse::<Kinds>() {
        assert_eq!(kinds.to_string().parse().as_ref(), Ok(&kinds));
        assert!(Kind::SELECTABLE.into_iter().any(|kind| kinds.has(kind)));
        assert_eq!(json::read_back::<Kinds>(&json::write(&kinds)), Some(kinds));
    }
}

/// Cursors of lists.
pub fn list_cursor(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let query: String = form_urlencoded::Serializer::new(String::new()).append_pair("cursor", text).finish();
    match reading::list_query(&query) {
        Ok(reading::ListQuery { cursor: Some(cursor), .. }) => {
            assert!(text.parse::<Cursor>().is_err() && text.parse::<PoolCursor>().is_err());
            // Written as a page has it, it leads to the same places.
            let again = reading::list_query(&format!("cursor={}", cursor.written())).expect("it was written");
            let again = again.cursor.expect("it has one");
            assert_eq!(again.written(), cursor.written());
            for (generation, cell) in [(1, 0), (1, 1), (1, 15), (2, 0), (2, 63)] {
                let place = Place { pool: "default".into(), generation, cell };
                assert_eq!(again.below(&place), cursor.below(&place));
            }
        }
        Ok(reading::ListQuery { cursor: None, .. }) => panic!("a cursor was given"),
        Err(problem) => assert_eq!(problem.status, 400),
    }
}
