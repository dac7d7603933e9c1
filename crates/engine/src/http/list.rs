//! Lists of runs, over all cells: newest first, in a stable order, with a cursor for each cell.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use stepwell_core::{ordered::OrdMap, sorting::sort_by};
use stepwell_protocol::{
    Code, Place, Timestamp,
    filter::Filter,
    json,
    program::Attributes,
    rest::{RunList, RunView, Status},
};

use super::{body::shown, error::Refusal, front::Front, request::pairs, response::Response};
use crate::calls::cell::{Listed, Operation, Reached};

/// How many runs a page has, unless it says otherwise.
const LIMIT_DEFAULT: u32 = 50;

/// How many runs a page has at the most.
const LIMIT_MAX: u32 = 200;

/// Below which number each cell goes on, by its generation and number, `2-17`; a cell that is not in it is at
/// its end. Cursors from before pools could grow have the number alone.
#[derive(Serialize, Deserialize)]
pub(super) struct Cursor(OrdMap<String, u64>);

impl Cursor {
    pub(super) fn below(&self, place: &Place) -> Option<u64> {
        let old = || if place.generation == 1 { self.0.get(&place.cell.to_string()) } else { None };
        self.0.get(&format!("{}-{}", place.generation, place.cell)).or_else(old).copied()
    }

    /// As clients get it.
    pub(super) fn written(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_string(self).expect("a cursor holds only numbers"))
    }
}

/// `GET /api/executions`
pub async fn list(front: &Front, query: &str) -> Result<Response, Refusal> {
    let (filter, limit, cursor) = read(query)?;
    let places: Vec<_> = match cursor {
        None => front.cells().map(|place| (place, 1 << 53)).collect(),
        Some(cursor) => {
            front.cells().filter_map(|place| cursor.below(&place).map(|below| (place, below))).collect()
        }
    };
    // Others have none of these runs.
    let places = places.into_iter().filter(|(place, _)| filter.can_be_in(place));
    let parts = join_all(places.map(|(place, below)| {
        let filter = filter.clone();
        async move {
            let listed: Listed = front.ask_json(&place, Operation::List { filter, below, limit }).await?;
            Ok::<_, Refusal>((place, listed))
        }
    }))
    .await;
    let mut merged = Merged::default();
    for part in parts {
        let (place, listed) = part?;
        merged.add(&place, listed);
    }
    Ok(Response::of(200, &merged.page(limit as usize)))
}

/// What the cells gave, on the way to one page.
#[derive(Default)]
struct Merged {
    runs: Vec<(Key, RunView)>,
    /// Where each cell goes on after all that it gave.
    next: OrdMap<(u32, u32), u64>,
    /// The latest place in the order at which a cell has stopped looking: it may have runs that come after this,
    /// but before what others gave.
    horizon: Option<Key>,
}

/// A run's place in the order: newest first, and those of one time by cell and number.
type Key = (Timestamp, Place, u64);

impl Merged {
    fn add(&mut self, place: &Place, listed: Listed) {
        // A cell goes on by numbers. If its clock was set back, its times do not follow them: then a run counts as
        // no later than the ones after it, or a page could leave out one of them and show the other again.
        let mut at = Timestamp::MAX;
        for run in listed.runs {
            at = at.min(run.created_at);
            self.runs.push(((at, place.clone(), run.id.number), run));
        }
        if let Some(Reached { number, created_at }) = listed.next {
            self.next.insert((place.generation, place.cell), number);
            self.horizon = self.horizon.take().max(Some((at.min(created_at), place.clone(), number)));
        }
    }

    /// The newest of all; the others are left to the pages after it.
    fn page(mut self, limit: usize) -> RunList {
        sort_by(&mut self.runs, |(a, _), (b, _)| b.cmp(a));
        let horizon = self.horizon.as_ref();
        let certain = self.runs.iter().take_while(|(key, _)| horizon.is_none_or(|at| key >= at)).count();
        let rest = self.runs.split_off(certain.min(limit));
        for (_, run) in &rest {
            // The newest that was left out is where its cell goes on.
            let Place { generation, cell, .. } = run.id.place;
            let next = self.next.get_or_default((generation, cell));
            *next = (*next).max(run.id.number + 1);
        }
        let cursor = (!self.next.is_empty()).then(|| {
            let next = self.next.into_iter();
            let next = next.map(|((generation, cell), below)| (format!("{generation}-{cell}"), below));
            Cursor(next.collect()).written()
        });
        RunList { executions: self.runs.into_iter().map(|(_, run)| run).collect(), cursor }
    }
}

pub(super) fn read(query: &str) -> Result<(Filter, u32, Option<Cursor>), Refusal> {
    let (mut filter, mut limit, mut cursor) = (Filter::default(), LIMIT_DEFAULT, None);
    for (name, value) in pairs(query) {
        let wrong = |what: &str| {
            Refusal::new(Code::InvalidRequest, format!("`{name}` takes {what}, not '{}'.", shown(&value)))
        };
        match name.as_str() {
            "id" => {
                for id in value.split(',') {
                    filter.ids.push(id.parse().map_err(|_| wrong("ids of runs"))?);
                }
            }
            "workflow" => filter.workflow = Some(value),
            "tag" => filter.tag = Some(value),
            "attribute" => {
                let (attribute, wanted) =
                    value.split_once(':').ok_or_else(|| wrong("a name and a value: 'customer:acme'"))?;
                filter.attributes.insert(attribute.to_owned(), wanted.to_owned());
                if filter.attributes.len() > Attributes::MAX {
                    return Err(wrong("no more attributes than a run has"));
                }
            }
            "status" => {
                for word in value.split(',') {
                    let status = Status::of(word);
                    filter.add_status(status.ok_or_else(|| wrong("statuses such as 'running,waiting'"))?);
                }
            }
            "from" | "until" | "ended_from" | "ended_until" => {
                let millis = value.parse().map_err(|_| wrong("milliseconds since 1970"))?;
                let time = Some(Timestamp::from_millis(millis));
                match name.as_str() {
                    "from" => filter.from = time,
                    "until" => filter.until = time,
                    "ended_from" => filter.ended_from = time,
                    _ => filter.ended_until = time,
                }
            }
            "min_duration_ms" => {
                filter.min_duration_ms = Some(value.parse().map_err(|_| wrong("milliseconds"))?);
            }
            "retrying" => filter.retrying = value.parse().map_err(|_| wrong("true or false"))?,
            "error" => filter.error = Some(value),
            "limit" => {
                limit = value
                    .parse()
                    .ok()
                    .filter(|limit| (1..=LIMIT_MAX).contains(limit))
                    .ok_or_else(|| wrong("1 to 200"))?;
            }
            "cursor" => {
                let bytes = URL_SAFE_NO_PAD.decode(&value).ok();
                let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                let read = text.and_then(|text| json::from_str(&text).ok());
                cursor = Some(read.ok_or_else(|| wrong("the `cursor` of the page before"))?);
            }
            other => {
                let detail = format!(
                    "There is no parameter '{}'. There are id, workflow, status, tag, attribute, from, until, ended_from, \
                     ended_until, min_duration_ms, retrying, error, limit, cursor.",
                    shown(other)
                );
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        }
    }
    match filter.fault() {
        Some(detail) => Err(Refusal::new(Code::InvalidRequest, detail)),
        None => Ok((filter, limit, cursor)),
    }
}
