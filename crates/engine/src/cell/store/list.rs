//! Looking for runs: which ones fit a filter, newest first, and what they look like.
//!
//! What a run can be found by, its tags and its attributes, are rows of one table. A bounded number of rows is
//! looked at for each request: the caller goes on from where the last one ended.

use std::collections::BTreeMap;

use stepwell_core::{
    cell::{Tally, unreadable},
    ordered::OrdSet,
    run::{Run, Tail, Trailer},
};
use stepwell_protocol::{
    RunId, Timestamp,
    filter::{Filter, Head},
    rest::{Meter, RunView, Status},
};

use super::{Store, parse};
use crate::{
    calls::cell::{Listed, Reached},
    object::{Row, StoreError, number},
};

/// How many runs one request looks at.
const SCANNED_MAX: u32 = 2_000;

/// How many runs are read at once, if their heads do not tell whether they match.
const INSIDE_AT_ONCE: usize = 100;

/// About how many are read like that for one request.
const INSIDE_MAX: usize = 300;

/// How far apart the clocks of a cell's instances may be, one after the other: runs that are older than asked for
/// by more than this have no younger ones after them.
const CLOCK_MARGIN_MS: u64 = 300_000;

/// What stands between the name and the value of an attribute where tags are stored. No tag has it.
const SEPARATOR: char = '\u{1f}';

/// Runs that fit, newest first.
pub struct Found {
    /// Their numbers.
    pub numbers: Vec<u64>,
    /// How far was looked; nothing, if there are no more.
    pub next: Option<Reached>,
}

/// An attribute as it is stored among the tags.
pub fn label(name: &str, value: &str) -> String {
    format!("{name}{SEPARATOR}{value}")
}

impl Store {
    /// Runs that fit a filter, newest first, as people see them.
    pub fn list(
        &self,
        filter: &Filter,
        among: Option<&OrdSet<String>>,
        below: u64,
        limit: u32,
        now: Timestamp,
    ) -> Result<Listed, StoreError> {
        let Found { numbers, next } = self.find_runs(filter, among, below, limit, now)?;
        Ok(Listed { runs: self.views(&numbers)?, next })
    }

    /// Runs that fit a filter, newest first; only those of some workflows, if the caller may see no others.
    pub fn find_runs(
        &self,
        filter: &Filter,
        among: Option<&OrdSet<String>>,
        below: u64,
        limit: u32,
        now: Timestamp,
    ) -> Result<Found, StoreError> {
        if !self.has_schema()? {
            return Ok(Found { numbers: Vec::new(), next: None });
        }
        let own = match self.own_numbers(filter)? {
            Some(own) if own.is_empty() => return Ok(Found { numbers: Vec::new(), next: None }),
            own => own,
        };
        let mut labels: Vec<_> = filter.tag.iter().cloned().collect();
        labels.extend(filter.attributes.iter().map(|(name, value)| label(name, value)));
        // Where each row fits, one more than is shown tells whether there are more.
        let scanned =
            if takes_any_run(filter) && among.is_none() { limit.saturating_add(1) } else { SCANNED_MAX };
        let (query, bindings) = query(filter, &labels, own.as_deref(), below, scanned);
        let rows = self.tables.rows_of(&query.into(), &bindings)?;
        let is_seen = |row: &Row| match among {
            Some(among) => row.optional_text(2).is_some_and(|workflow| among.contains(&workflow)),
            None => true,
        };
        let (mut numbers, mut shown, mut read) = (Vec::new(), None, 0);
        for part in rows.chunks(INSIDE_AT_ONCE) {
            let (mut fitting, mut is_over) = (Vec::new(), false);
            for row in part {
                let reached = reached(row)?;
                if filter.from.is_some_and(|from| reached.created_at.plus_millis(CLOCK_MARGIN_MS) < from) {
                    is_over = true;
                    break;
                }
                if is_seen(row) && fits(filter, labels.len(), row, now)? {
                    fitting.push(reached);
                }
            }
            read += fitting.len();
            self.keep_inside(filter, now, &mut fitting)?;
            for reached in fitting {
                // There are more: of those that the caller may see, not of any.
                if numbers.len() == limit as usize {
                    return Ok(Found { numbers, next: shown });
                }
                numbers.push(reached.number);
                shown = Some(reached);
            }
            if is_over {
                return Ok(Found { numbers, next: None });
            }
            if filter.looks_inside() && read >= INSIDE_MAX {
                return Ok(Found { numbers, next: part.last().map(reached).transpose()? });
            }
        }
        let last = rows.last().filter(|_| rows.len() == scanned as usize);
        Ok(Found { numbers, next: last.map(reached).transpose()? })
    }

    /// The numbers of the runs in this cell that a filter names, if it names any.
    fn own_numbers(&self, filter: &Filter) -> Result<Option<Vec<u64>>, StoreError> {
        if filter.ids.is_empty() {
            return Ok(None);
        }
        let place = self.place()?;
        let own = filter.ids.iter().filter(|id| Some(&id.place) == place.as_ref());
        Ok(Some(own.map(|id| id.number).collect()))
    }

    /// Keeps those that match by more than their heads, if the filter asks for that.
    fn keep_inside(
        &self,
        filter: &Filter,
        now: Timestamp,
        fitting: &mut Vec<Reached>,
    ) -> Result<(), StoreError> {
        if filter.looks_inside() && !fitting.is_empty() {
            let numbers: Vec<_> = fitting.iter().map(|reached| reached.number).collect();
            let views = self.views(&numbers)?;
            let matching: OrdSet<_> =
                views.iter().filter(|run| filter.admits(run, now)).map(|run| run.id.number).collect();
            fitting.retain(|reached| matching.contains(&reached.number));
        }
        Ok(())
    }

    /// The ids of runs, in the order of their numbers.
    pub fn ids(&self, numbers: &[u64]) -> Result<Vec<RunId>, StoreError> {
        let Some(place) = self.place()? else { return Ok(Vec::new()) };
        let rows = self.tables.rows(
            "SELECT number, suffix FROM runs WHERE number IN (SELECT value FROM json_each(?))
             ORDER BY number DESC",
            &[listed(numbers)],
        )?;
        let id = |row: &Row| {
            Ok(RunId {
                place: place.clone(),
                number: row.number(0, "number")?,
                suffix: row.optional_text(1).unwrap_or_default(),
            })
        };
        rows.iter().map(id).collect()
    }

    /// The largest number of a run that is there.
    pub fn top(&self) -> Result<u64, StoreError> {
        if !self.has_schema()? {
            return Ok(0);
        }
        let rows = self.tables.rows("SELECT coalesce(max(number), 0) FROM runs", &[])?;
        rows.first().map_or(Ok(0), |row| row.number(0, "number"))
    }

    /// Counts the runs before a number, the newest first.
    pub(super) fn tally_runs(&self, before: u64, limit: usize) -> Result<Tally, StoreError> {
        if !self.has_schema()? {
            return Ok(Tally::default());
        }
        // A quotation mark within a text of the state has a backslash before it.
        let rows = self.tables.rows(
            "SELECT workflow, status, count(*), min(number), sum(instr(state, '\"deleting\":true') > 0)
             FROM (SELECT number, workflow, status, state FROM runs WHERE number < ? ORDER BY number DESC LIMIT ?)
             GROUP BY workflow, status",
            &[number(before), number(limit as u64)],
        )?;
        let (mut counts, mut looked_at, mut first) = (Vec::new(), 0, before);
        for row in &rows {
            let (count, deleting) = (row.number(2, "count")?, row.number(4, "count")?);
            counts.push((row.optional_text(0).unwrap_or_default(), status(row, 1), count - deleting));
            looked_at += count;
            first = first.min(row.number(3, "number")?);
        }
        counts.retain(|(_, _, count)| *count > 0);
        Ok(Tally { counts, more_before: (looked_at == limit as u64).then_some(first) })
    }

    /// What runs look like in a list: all but what they gave, which is shown by the run itself.
    pub(super) fn views(&self, numbers: &[u64]) -> Result<Vec<RunView>, StoreError> {
        let Some(place) = self.place()? else { return Ok(Vec::new()) };
        let rows = self.tables.rows(
            "SELECT number, suffix, workflow, created_at, state, iif(status = 'failed', result, NULL),
               (SELECT max(seq) FROM journal WHERE run = number), status = 'paused' AND wake_at IS NOT NULL
             FROM runs WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number DESC",
            &[listed(numbers)],
        )?;
        let view_of = |row: &Row| {
            let id = RunId {
                place: place.clone(),
                number: row.number(0, "number")?,
                suffix: row.optional_text(1).unwrap_or_default(),
            };
            // One row that cannot be read must not cost anybody the page.
            Ok(view(row, &id).unwrap_or_else(|_| unreadable_view(row, id)))
        };
        rows.iter().map(view_of).collect()
    }
}

/// What a run looks like, from its row.
fn view(row: &Row, id: &RunId) -> Result<RunView, StoreError> {
    // The last commit is not part of what is shown.
    let quarantined = row.number(7, "status")? > 0;
    let tail = Tail { head: row.seq(6), trailer: Trailer::default(), quarantined };
    let (workflow, state) = (row.text(2, "workflow")?, row.text(4, "state")?);
    let mut view = RunView::from(&Run::from_row(id.clone(), workflow, row.time(3)?, &state, tail)?);
    if let Some(failure) = row.optional_text(5) {
        view.error = Some(parse(&failure, "failure")?);
    }
    Ok(view)
}

/// What can be shown of a run whose row cannot be read.
fn unreadable_view(row: &Row, id: RunId) -> RunView {
    RunView {
        id,
        workflow: row.optional_text(2).unwrap_or_default(),
        status: Status::Paused,
        created_at: row.optional_time(3).unwrap_or_default(),
        ended_at: None,
        starts_at: None,
        wakes_at: None,
        waits_for: Vec::new(),
        retrying: Vec::new(),
        output: None,
        error: None,
        problem: Some(unreadable()),
        progress: None,
        deadline: None,
        expires_at: None,
        head: row.seq(6),
        life: None,
        parent: None,
        callback: None,
        children: 0,
        activations: 0,
        tags: Vec::new(),
        attributes: BTreeMap::new(),
        started_by: None,
        acts: Vec::new(),
        meter: Meter::default(),
        last_error: None,
        current_step: None,
        working: Vec::new(),
    }
}

/// Whether a filter takes whatever has its one label.
fn takes_any_run(filter: &Filter) -> bool {
    usize::from(filter.tag.is_some()) + filter.attributes.len() < 2 && filter.takes_any()
}

/// A query for runs: what is looked at first of each, and for each label but the first whether the run has it. Those
/// with the first label are all that is looked at.
fn query(
    filter: &Filter,
    labels: &[String],
    own: Option<&[u64]>,
    below: u64,
    scanned: u32,
) -> (String, Vec<wasm_bindgen::JsValue>) {
    let mut query = String::from("SELECT number, status, workflow, created_at, ended_at");
    // No other run has an error.
    let can_have_error = ", status IN ('paused', 'failed', 'pending') OR instr(state, '\"last_error\"') > 0";
    let asks_for_error = filter.retrying || filter.error.is_some();
    query.push_str(if asks_for_error { can_have_error } else { ", 1" });
    let mut bindings = Vec::new();
    for other in labels.iter().skip(1) {
        query.push_str(", EXISTS(SELECT 1 FROM tags AS other WHERE other.tag = ? AND other.run = number)");
        bindings.push(other.as_str().into());
    }
    match labels.first() {
        Some(label) => {
            query.push_str(" FROM tags JOIN runs ON number = run WHERE tag = ? AND run < ?");
            bindings.push(label.as_str().into());
        }
        None => query.push_str(" FROM runs WHERE number < ?"),
    }
    bindings.push(number(below));
    if let Some(own) = own {
        query.push_str(" AND number IN (SELECT value FROM json_each(?))");
        bindings.push(listed(own));
    }
    query.push_str(" AND instr(state, '\"deleting\":true') = 0 ORDER BY number DESC LIMIT ?");
    bindings.push(scanned.into());
    (query, bindings)
}

/// The place of such a row among all runs.
fn reached(row: &Row) -> Result<Reached, StoreError> {
    Ok(Reached { number: row.number(0, "number")?, created_at: row.optional_time(3).unwrap_or_default() })
}

/// Whether a run matches, as far as such a row tells.
fn fits(filter: &Filter, labels: usize, row: &Row, now: Timestamp) -> Result<bool, StoreError> {
    // What can be inside, and the labels.
    for column in 5..=5 + u32::try_from(labels.saturating_sub(1)).unwrap_or_default() {
        if row.number(column, "condition")? == 0 {
            return Ok(false);
        }
    }
    let workflow = row.optional_text(2).unwrap_or_default();
    let head = Head {
        workflow: &workflow,
        status: status(row, 1),
        created_at: row.optional_time(3).unwrap_or_default(),
        ended_at: row.optional_time(4),
    };
    Ok(filter.admits_head(&head, now))
}

/// A status. One that is none is that of a run that cannot be read, which counts as paused.
pub(in crate::cell) fn status(row: &Row, column: u32) -> Status {
    row.optional_text(column).and_then(|word| Status::of(&word)).unwrap_or(Status::Paused)
}

/// Numbers as one value: a statement takes only so many of them.
fn listed(numbers: &[u64]) -> wasm_bindgen::JsValue {
    serde_json::to_string(numbers).expect("numbers are JSON").into()
}
