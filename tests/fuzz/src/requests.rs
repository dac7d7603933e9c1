//! Requests: queries, headers and bodies as the front reads them, and what it asks of cells.

use std::fmt::Write as _;

use stepwell_core::stream::{Cursor, PoolCursor};
use stepwell_engine::reading::{self, ListQuery, StartRequest, StreamQuery};
use stepwell_protocol::{Timestamp, filter::Filter, program::Attributes, text::is_hidden};

use crate::{json, parted, text};

/// The query of a list: a filter, a limit, a cursor.
pub fn list_query(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(ListQuery { filter, limit, cursor }) = reading::list_query(text) else { return };
    assert!(
        (1..=200).contains(&limit) && filter.attributes.len() <= Attributes::MAX && filter.fault().is_none()
    );
    let query = query_of(&filter, limit, cursor.map(|cursor| cursor.written()).as_deref());
    let again = reading::list_query(&query).unwrap_or_else(|problem| panic!("{problem}: {query}"));
    assert_eq!((again.filter, again.limit), (filter.clone(), limit), "{query}");
    // What a list can be asked for, something can be done to.
    assert_eq!(json::read_back::<Filter>(&json::write(&filter)), Some(filter));
    let _ = reading::after(text);
    let _ = reading::limit(text);
}

fn query_of(filter: &Filter, limit: u32, cursor: Option<&str>) -> String {
    let Filter {
        ids,
        workflow,
        status,
        tag,
        attributes,
        from,
        until,
        ended_from,
        ended_until,
        min_duration_ms,
        retrying,
        error,
    } = filter;
    let mut query = form_urlencoded::Serializer::new(String::new());
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    };
    for id in ids {
        add("id", Some(id.to_string()));
    }
    add("workflow", workflow.clone());
    let words: Vec<_> = status.iter().map(|status| status.as_str()).collect();
    add("status", (!words.is_empty()).then(|| words.join(",")));
    add("tag", tag.clone());
    add("from", from.map(|at| at.as_millis().to_string()));
    for (name, at) in [("until", until), ("ended_from", ended_from), ("ended_until", ended_until)] {
        add(name, at.map(|at| at.as_millis().to_string()));
    }
    add("min_duration_ms", min_duration_ms.map(|ms| ms.to_string()));
    add("retrying", retrying.then(|| "true".to_owned()));
    add("error", error.clone());
    add("limit", Some(limit.to_string()));
    add("cursor", cursor.map(str::to_owned));
    for (name, value) in attributes {
        add("attribute", Some(format!("{name}:{value}")));
    }
    query.finish()
}

/// A start: its query, its `Idempotency-Key`, its `Prefer`, a line each, and its body.
pub fn start_request(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (query, rest) = parted(text);
    let (key, rest) = parted(rest);
    let (prefer, body) = parted(rest);
    assert!(!reading::is_name(query) || (1..=128).contains(&query.len()));
    for delay in [query, key, prefer] {
        let now = Timestamp::from_millis(1_700_000_000_000);
        if let Some(Ok(Some(at))) = reading::starts_at(delay, now) {
            assert!(at <= now.plus_millis(366 * 86_400_000), "a run starts a year from now at the latest");
        }
    }
    let Some(Ok(StartRequest { tags, key: read, wait_ms, input })) =
        reading::start_request(query, key, prefer, body)
    else {
        return;
    };
    assert!(tags.len() <= 8 && tags.is_sorted_by(|a, b| a < b));
    assert!(tags.iter().all(|tag| (1..=64).contains(&tag.len()) && !tag.contains(is_hidden)));
    assert_eq!(read.as_deref().unwrap_or_default(), key, "a key is taken as it is or not at all");
    assert!(key.len() <= 256 && wait_ms <= 300_000 && wait_ms % 1_000 == 0);
    let blank: &[char] = &[' ', '\t', '\n', '\r'];
    let expected = if body.trim().is_empty() { "null" } else { body.trim_matches(blank) };
    assert_eq!(input.text(), expected, "a payload is kept as it came");
    let mut again = String::new();
    for tag in &tags {
        let _ = write!(again, "tag={}&", form_urlencoded::byte_serialize(tag.as_bytes()).collect::<String>());
    }
    let Some(Ok(again)) = reading::start_request(&again, key, prefer, input.text()) else {
        panic!("what was taken once is refused")
    };
    assert_eq!((again.tags, again.input), (tags, input));
}

/// What a stream is asked for: its query, and in the next line its `Last-Event-ID`.
pub fn stream_query(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let (query, last) = parted(text);
    for of_run in [true, false] {
        let Some(Ok(StreamQuery { cursor, kinds })) = reading::stream_query(query, last, of_run) else {
            continue;
        };
        assert!(of_run || kinds.is_none(), "a pool's stream has one kind of events");
        let named = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "cursor").last();
        let expected = named.map(|(_, value)| value.into_owned());
        // What no stream has ever given out says nothing.
        let is_plain = !last.is_empty() && last.chars().all(|c| (' '..='~').contains(&c) || c == '\t');
        let expected = expected.or_else(|| is_plain.then(|| last.to_owned()));
        assert_eq!(cursor, expected, "whoever names a cursor means it");
        let Some(cursor) = cursor else { continue };
        // A cursor that was given out is read in the same way wherever it stands.
        let canonical = match (cursor.parse::<Cursor>(), cursor.parse::<PoolCursor>()) {
            (Ok(cursor), _) => cursor.to_string(),
            (_, Ok(cursor)) => cursor.to_string(),
            (Err(_), Err(_)) => continue,
        };
        let by_header = reading::stream_query("", &canonical, of_run).expect("a header can carry it");
        let by_query = reading::stream_query(&format!("cursor={canonical}"), "", of_run).expect("no header");
        assert_eq!(by_header, by_query);
        assert_eq!(by_query.map(|asked| asked.cursor), Ok(Some(canonical)));
    }
}

/// What a Worker asks of a cell, and what the queue carries.
pub fn internal_call(data: &[u8]) {
    let Some(text) = text(data) else { return };
    for read in [reading::internal_call, reading::nudge] {
        if let Some(written) = read(text) {
            let again = read(&written).unwrap_or_else(|| panic!("it cannot be read: {written}"));
            json::assert_same(&written, &again);
        }
    }
}
