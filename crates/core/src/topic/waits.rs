//! Waits of runs for events: who waits, which events they have missed, and what their cells are told.
//!
//! Owns: the rows of waits, by what they are found (the events, and one equality that their condition cannot hold without),
//! and the look at events that came before a wait was known here. Does not own: whether a run still waits, which its cell
//! says when it is told: *gone* lets the row go, so nobody has to say that a wait is over.
//!
//! Invariant: an event that a wait may get is delivered to its cell, or the wait's row stays.

use serde_json::Value as Json;
use stepwell_protocol::{
    Code, Epoch, Op, Payload, Place, Problem, RunId, Timestamp,
    topic::{EventWait, LOOK_BACK_MS, LOOK_BACK_MS_MAX, Waiter, is_on, topic_of},
};

use super::{
    BYTES_MAX, EventRow, Meeting, Order, Parked, Rows, Shown, Topic,
    drive::Known,
    pages::{self, Page},
};
use crate::{
    expression::{Expression, Failed, Path, Side, index_key},
    object::{DEAD_AFTER_MS, Fault, Hosted as _, Receipt},
    ordered::{OrdMap, OrdSet},
};

/// How many waits one call tells a cell of.
pub const WAITS_MAX: usize = 256;

/// How many waits are compared with an event in one turn.
const EXAMINED_MAX: usize = 2_048;

/// How many events a wait looks back over at the most.
pub const LOOK_BACK_EVENTS_MAX: usize = 5_000;

/// How many bytes of them.
const LOOK_BACK_BYTES_MAX: usize = 32 << 20;

/// How many events are read at once.
const LOOK_BACK_PAGE: usize = 16;

/// The longest pause between two looks back: the more events one of them reads, the longer.
const LOOK_BACK_PAUSE_MS_MAX: u64 = 1_000;

/// How many kinds of waits a topic knows: what they wait for, and what they are found by.
const KINDS_MAX: usize = 10_000;

/// By how many paths the waits for the same events are found; those beyond are compared one by one.
const PATHS_MAX: usize = 16;

/// How long after its end a wait is deleted: clocks differ.
const ENDED_MS: u64 = 60_000;

/// How many waits that have ended are deleted in one turn.
const ENDED_SLICE: usize = 256;

/// The most bytes that a condition takes from the input of its run.
const INPUT_BYTES_MAX: usize = 16_384;

/// What the conditions of waits go by.
const NAMES: [&str; 2] = ["event", "input"];

/// A wait as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// Its number in the topic: a later one for one that is registered again.
    pub number: u64,
    /// Who waits.
    pub waiter: Waiter,
    /// The path that it is found by; empty if all of its kind are compared.
    pub path: String,
    /// What the event has to have there, as [`index_key`] writes it.
    pub value: String,
}

/// Waits for the same events that are found by the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket<'a> {
    /// The events.
    pub on: &'a str,
    /// The path.
    pub path: &'a str,
    /// The value.
    pub value: &'a str,
}

/// Where the comparison of an event with the waits of a cell goes on.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    kind: (String, String),
    after: u64,
}

/// What is known of the waits, besides their rows.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownWaits {
    /// What waits are for, and by which paths they are found.
    kinds: OrdMap<(String, String), Option<Path>>,
    /// The number of the latest one.
    pub last: u64,
    /// Up to which one the events before it were looked at.
    pub looked: u64,
    /// When that may go on.
    pub looks_at: Timestamp,
    /// When the first of them is over.
    pub ends: Option<Timestamp>,
    cursors: OrdMap<Parked, Cursor>,
    /// What has to be compared again: a wait began after its cell was asked.
    anew: OrdSet<Parked>,
}

/// Whether waits are met by events. Knows the condition that was read last: those who wait for the same have the same one.
#[derive(Debug, Default)]
pub struct Conditions {
    last: Option<(String, Option<Expression>)>,
}

impl Conditions {
    /// Whether a wait gets an event, whose value is what expressions see of it.
    pub fn meets(&mut self, waiter: &Waiter, event: &EventRow, value: &Shown<'_>) -> Result<bool, Failed> {
        if event.at < waiter.from || waiter.except == Some(event.number) || !is_on(&waiter.on, &event.name) {
            return Ok(false);
        }
        let Some(when) = &waiter.when else { return Ok(true) };
        if self.last.as_ref().is_none_or(|(text, _)| text != when) {
            self.last = Some((when.clone(), Expression::parse(when, &NAMES).ok()));
        }
        let Some((_, Some(expression))) = &self.last else { return Ok(false) };
        let input = waiter.input.decode::<Json>().unwrap_or_default();
        value.meets(expression, &[("input", &input)])
    }
}

impl WaitRow {
    /// By what a wait is known.
    pub fn id(&self) -> String {
        let Waiter { run, life, op, .. } = &self.waiter;
        wait_id(run, *life, op)
    }
}

/// By what a wait is known in its topic.
pub fn wait_id(run: &RunId, life: u32, op: &Op) -> String {
    format!("{run}/{life}/{op}")
}

/// The equality that a wait can be found by, if its condition has one: a path of the event, and a value.
fn equality(waiter: &Waiter) -> Option<(String, String)> {
    let when = Expression::parse(waiter.when.as_deref()?, &NAMES).ok()?;
    let input = waiter.input.decode::<Json>().unwrap_or_default();
    when.equalities().into_iter().filter(|equality| equality.path.root == "event").find_map(|equality| {
        let value = match &equality.side {
            Side::Literal(literal) => index_key(&Json::from(literal)),
            Side::Path(path) if path.root == "input" => path.find(&[("input", &input)]).and_then(index_key),
            Side::Path(_) => None,
        };
        Some((equality.path.to_string(), value?))
    })
}

/// Refuses what no wait can be for.
pub fn check_wait(wait: &EventWait) -> Result<(), Problem> {
    let bad = |detail: String| Err(Problem::new(Code::InvalidRequest, detail));
    if topic_of(&wait.on).is_none() {
        return bad(format!(
            "'{}' names no events to wait for. Write a name such as 'order/paid', or 'order/*'.",
            wait.on.chars().take(80).collect::<String>()
        ));
    }
    match wait.when.as_deref().map(|when| Expression::parse(when, &NAMES)).transpose() {
        Err(error) => bad(format!("The condition of the wait for '{}' is no expression: {error}.", wait.on)),
        Ok(_) => Ok(()),
    }
}

/// As much of a run's input as a condition goes by.
pub fn input_for(wait: &EventWait, input: Option<&Payload>) -> Result<Payload, Problem> {
    let when = wait.when.as_deref().and_then(|when| Expression::parse(when, &NAMES).ok());
    let (Some(when), Some(input)) = (when, input) else { return Ok(Payload::default()) };
    let fields = when.fields_of("input");
    let taken = match fields {
        None => input.clone(),
        Some(fields) if fields.is_empty() => return Ok(Payload::default()),
        Some(fields) => {
            let mut input = input.decode::<Json>().unwrap_or_default();
            if let Json::Object(values) = &mut input {
                values.retain(|name, _| fields.contains(name));
            }
            Payload::encode(&input).unwrap_or_default()
        }
    };
    if taken.size() > INPUT_BYTES_MAX {
        let detail = format!(
            "The condition of the wait for '{}' takes {} bytes of the run's input; the most is {INPUT_BYTES_MAX}.",
            wait.on,
            taken.size()
        );
        return Err(Problem::new(Code::InvalidRequest, detail));
    }
    Ok(taken)
}

/// The first time of an event that a wait gets which began at this time.
pub fn from_when(wait: &EventWait, since: Timestamp) -> Timestamp {
    let back_ms = wait.looking_back_ms.unwrap_or(LOOK_BACK_MS).min(LOOK_BACK_MS_MAX);
    Timestamp::from_millis(since.as_millis().saturating_sub(back_ms))
}

/// What is parked for the waits of a cell. No trigger is called so.
fn of_cell(event: u64, cell: &str) -> Parked {
    Parked { event, trigger: format!("\n{cell}") }
}

impl Parked {
    /// The cell whose waits it is about, if it is about no trigger.
    pub(super) fn cell(&self) -> Option<Place> {
        self.trigger.strip_prefix('\n')?.parse().ok()
    }
}

impl KnownWaits {
    pub(super) fn read<R: Rows>(rows: &R) -> Result<Self, R::Error> {
        let mut kinds = OrdMap::new();
        for (on, path) in rows.wait_kinds()? {
            let read = Path::read(&path);
            kinds.insert((on, path), read);
        }
        let head = rows.wait_head()?;
        let (last, looked, ends) = (head.last.max(head.looked), head.looked, head.ends);
        Ok(Self { kinds, last, looked, ends, ..Self::default() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Under what a wait is found; nothing if there are too many kinds already.
    fn place(&self, waiter: &Waiter) -> Option<(String, String)> {
        let (path, value) = equality(waiter).unwrap_or_default();
        let kind = (waiter.on.clone(), path);
        let paths = self.kinds.keys().filter(|(on, _)| *on == waiter.on).count();
        let (path, value) = if paths < PATHS_MAX || self.kinds.contains_key(&kind) {
            (kind.1, value)
        } else {
            (String::new(), String::new())
        };
        let is_known = self.kinds.contains_key(&(waiter.on.clone(), path.clone()));
        (is_known || self.kinds.len() < KINDS_MAX).then_some((path, value))
    }

    /// Where the waits are that an event may meet. One that is too large for conditions meets none that has one.
    fn buckets(&self, event: &EventRow, value: &Shown<'_>) -> Vec<(String, String, String)> {
        let kinds = self.kinds.iter().filter(|((on, _), _)| is_on(on, &event.name));
        kinds
            .filter_map(|((on, path), read)| {
                let found = match read {
                    Some(read) => read.find(&[("event", value.value().ok()?)]).and_then(index_key)?,
                    None => String::new(),
                };
                Some((on.clone(), path.clone(), found))
            })
            .collect()
    }

    /// The cells that an event may matter to.
    pub(super) fn cells<R: Rows>(
        &self,
        rows: &R,
        event: &EventRow,
        value: &Shown<'_>,
    ) -> Result<Vec<(Parked, Place)>, R::Error> {
        let mut found = Vec::new();
        for (on, path, value) in &self.buckets(event, value) {
            let mut after = String::new();
            // Each is another cell of the pool.
            while let Some(cell) = rows.wait_cell(Bucket { on, path, value }, &after)? {
                let what = of_cell(event.number, &cell);
                found.extend(what.cell().map(|to| (what, to)));
                after = cell;
            }
        }
        Ok(found)
    }

    /// An event is compared with all waits of a cell again: nobody knows which of them have got it.
    pub(super) fn begin_anew(&mut self, what: &Parked) {
        self.cursors.remove(what);
    }

    /// When the alarm has to fire for them.
    pub(super) fn next_look(&self, has_room: bool) -> Option<Timestamp> {
        let looks = (self.looked < self.last && has_room).then_some(self.looks_at);
        let ends = self.ends.map(|at| at.plus_millis(ENDED_MS));
        [looks, ends].into_iter().flatten().min()
    }
}

impl Topic {
    /// A run waits for an event.
    pub fn wait<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        waiter: Waiter,
    ) -> Result<Receipt, Fault<R::Error>> {
        let now = self.now(clock);
        if topic_of(&waiter.on) != Some(self.name.as_str()) {
            return Ok(Receipt::Gone);
        }
        let is_full = rows.bytes().map_err(Fault::Storage)? >= BYTES_MAX;
        let known = self.known(rows, now)?;
        let is_first = known.is_idle();
        let known = &mut known.waits;
        let Some((path, value)) = known.place(&waiter).filter(|_| !is_full) else {
            let detail = "The topic has no room for more waits. Try again later.";
            return Err(Problem::new(Code::TooMany, detail).into());
        };
        let kind = (waiter.on.clone(), path.clone());
        let is_new = !known.kinds.contains_key(&kind);
        let row = WaitRow { number: known.last + 1, waiter, path, value };
        if let Err(error) = rows.put_wait(&row, is_new) {
            self.start_over();
            return Err(Fault::Storage(error));
        }
        if let Some(known) = &mut self.known {
            let last = known.last;
            known.waits.last = row.number;
            known.waits.ends = [known.waits.ends, row.waiter.until].into_iter().flatten().min();
            if is_new {
                let read = Path::read(&kind.1);
                known.waits.kinds.insert(kind, read);
            }
            if is_first {
                // Nobody has looked at the events so far; a wait looks back by itself.
                known.matched = last;
                known.unstored.get_or_insert(now);
            }
        }
        self.carry_on(rows, now);
        Ok(Receipt::Taken)
    }

    /// A run does not wait any more, as of an activation of it.
    pub fn wait_over<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        epoch: Epoch,
    ) -> Result<Receipt, Fault<R::Error>> {
        let now = self.now(clock);
        let found = rows.wait(id).map_err(Fault::Storage)?.filter(|wait| wait.waiter.epoch <= epoch);
        match found {
            Some(wait) => rows.end_waits(0, &[(&wait, false)]).map_err(Fault::Storage)?,
            // This instance may have been superseded: only a write says that it has not.
            None => self.object().arm_anew(now),
        }
        Ok(Receipt::Taken)
    }

    /// Looks at the events that came before waits were known here.
    pub(super) fn look_back<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let Known { waits, matched, unstored, .. } = known;
        if waits.looked >= waits.last || waits.looks_at > now || !self.flights.has_room() {
            return Ok(());
        }
        let page = rows.waits_after(waits.looked, WAITS_MAX).map_err(Fault::Storage)?;
        let last = page.last().map_or(waits.last, |(number, _)| *number);
        let new: Vec<_> = page.into_iter().filter_map(|(_, wait)| wait).collect();
        let from = new.iter().map(|wait| wait.waiter.from).min().unwrap_or(now);
        let mut kinds: OrdMap<(&str, &str), OrdMap<&str, Vec<&WaitRow>>> = OrdMap::new();
        for wait in &new {
            let values = kinds.get_or_default((wait.waiter.on.as_str(), wait.path.as_str()));
            values.get_or_default(wait.value.as_str()).push(wait);
        }
        let (mut before, mut seen, mut bytes) = (*matched + 1, 0, 0);
        let mut conditions = Conditions::default();
        let mut found_late = Vec::new();
        while seen < LOOK_BACK_EVENTS_MAX && bytes < LOOK_BACK_BYTES_MAX && !new.is_empty() {
            let page = pages::read(before, LOOK_BACK_PAGE, |from, count| rows.before(from, count));
            let Page { events, last, more } = page.map_err(Fault::Storage)?;
            let Some(last) = last else { break };
            before = last;
            seen += events.len().max(1);
            bytes += events.iter().map(|event| event.data.size()).sum::<usize>();
            let is_over = events.last().is_some_and(|oldest| oldest.at < from);
            let events = events.iter().filter(|event| event.at >= from);
            for event in events.filter(|event| kinds.keys().any(|(on, _)| is_on(on, &event.name))) {
                let value = event.value();
                for (on, path, value_there) in &waits.buckets(event, &value) {
                    let found = kinds.get(&(on.as_str(), path.as_str()));
                    let found = found.and_then(|values| values.get(value_there.as_str()));
                    for wait in found.into_iter().flatten() {
                        // What could not be compared here is compared again before its cell is told.
                        let meets = conditions.meets(&wait.waiter, event, &value);
                        if matches!(meets, Ok(true) | Err(Failed::TooMuch)) {
                            let to = &wait.waiter.run.place;
                            let what = of_cell(event.number, &to.to_string());
                            if !self.flights.add(what.clone(), to.clone(), now, false) {
                                found_late.push(what);
                            }
                        }
                    }
                }
            }
            if is_over || !more {
                break;
            }
        }
        waits.anew.extend(found_late);
        waits.looked = last;
        let pause_ms = u64::try_from(seen).unwrap_or(u64::MAX).min(LOOK_BACK_PAUSE_MS_MAX);
        waits.looks_at = now.plus_millis(pause_ms);
        unstored.get_or_insert(now);
        Ok(())
    }

    /// Lets the host tell a cell of an event that its runs wait for.
    pub(super) fn ask_cell<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: Parked,
        to: Place,
    ) -> Result<(), Fault<R::Error>> {
        let event = rows.event(what.event).map_err(Fault::Storage)?;
        let event = event.filter(|event| event.at.plus_millis(DEAD_AFTER_MS) > now);
        let Some(event) = event else { return self.done(rows, now, &what) };
        if !self.flights.has_bytes(now, &what, event.data.size()) {
            return Ok(());
        }
        let Some(known) = &mut self.known else { return Ok(()) };
        let cursor = known.waits.cursors.remove(&what);
        let is_anew = known.waits.anew.remove(&what);
        let cursor = cursor.filter(|_| !is_anew);
        let (value, cell) = (event.value(), to.to_string());
        let (mut met, mut examined, mut conditions) = (Vec::new(), 0, Conditions::default());
        let mut rest = None;
        'all: for (on, path, found) in known.waits.buckets(&event, &value) {
            let kind = (on, path);
            let mut after = match &cursor {
                Some(cursor) if cursor.kind > kind => continue,
                Some(cursor) if cursor.kind == kind => cursor.after,
                Some(_) | None => 0,
            };
            loop {
                let bucket = Bucket { on: &kind.0, path: &kind.1, value: &found };
                let page = rows.waits(bucket, &cell, after, WAITS_MAX).map_err(Fault::Storage)?;
                let is_last = page.len() < WAITS_MAX;
                for (number, wait) in page {
                    let meets = wait.as_ref().map(|wait| conditions.meets(&wait.waiter, &event, &value));
                    if meets == Some(Err(Failed::TooMuch)) && examined > 0 {
                        // Those before it have spent too much: the next turn begins with it.
                        rest = Some(Cursor { kind, after });
                        break 'all;
                    }
                    (after, examined) = (number, examined + 1);
                    met.extend(wait.filter(|_| meets == Some(Ok(true))));
                    if met.len() >= WAITS_MAX || examined >= EXAMINED_MAX {
                        rest = Some(Cursor { kind, after });
                        break 'all;
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        if let Some(rest) = &rest {
            known.waits.cursors.insert(what.clone(), rest.clone());
        }
        known.unstored.get_or_insert(now);
        match (met.is_empty(), rest) {
            (true, None) => self.done(rows, now, &what),
            (true, Some(_)) => {
                self.flights.put_off(&what, now.plus_millis(1));
                Ok(())
            }
            (false, _) => {
                let flight = self.flights.ask(now, what, &to);
                let meeting = Meeting { flight, to, event: event.view(&self.name), waits: met };
                self.object().order(Order::Meet(Box::new(meeting)));
                Ok(())
            }
        }
    }

    /// What a cell has answered about the waits that it was told of; nothing if nobody knows.
    pub fn met<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        meeting: &Meeting,
        receipts: Option<Vec<Receipt>>,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let Some(what) = self.flights.landed(now, meeting.flight, receipts.is_some()) else { return Ok(()) };
        let taken = self.take_receipts(rows, now, &what, meeting, receipts);
        if taken.is_err() {
            self.start_over();
        }
        self.carry_on(rows, now);
        taken
    }

    fn take_receipts<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: &Parked,
        meeting: &Meeting,
        receipts: Option<Vec<Receipt>>,
    ) -> Result<(), Fault<R::Error>> {
        let known = self.known(rows, now)?;
        known.unstored.get_or_insert(now);
        let is_answered = receipts.is_some();
        let mut is_all = receipts.as_ref().is_some_and(|receipts| receipts.len() == meeting.waits.len());
        let (mut over, mut is_any) = (Vec::new(), false);
        for (wait, receipt) in meeting.waits.iter().zip(receipts.unwrap_or_default()) {
            match receipt {
                Receipt::Taken => over.push((wait, true)),
                Receipt::Gone => over.push((wait, false)),
                Receipt::Passed => is_any = true,
                Receipt::Started { .. } | Receipt::Moved { .. } | Receipt::Later => is_all = false,
            }
        }
        is_any |= !over.is_empty();
        let has_rest = known.waits.cursors.contains_key(what) || known.waits.anew.contains(what);
        let goes_on = is_all && has_rest;
        rows.end_waits(what.event, &over).map_err(Fault::Storage)?;
        if is_any {
            self.is_answered(what);
        }
        match (is_all, goes_on) {
            // A run that cannot take it yet does not stand for the others of its cell.
            (false, _) => self.ask_again(rows, now, what, is_answered && !is_any),
            (true, true) => {
                self.flights.put_off(what, now);
                Ok(())
            }
            (true, false) => self.done(rows, now, what),
        }
    }

    /// Deletes some of the waits whose time is over.
    pub(super) fn end_waits<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let until = Timestamp::from_millis(now.as_millis().saturating_sub(ENDED_MS));
        let Some(known) = &mut self.known else { return Ok(()) };
        if known.waits.ends.is_some_and(|ends| ends <= until) {
            known.waits.ends = rows.expire_waits(until, ENDED_SLICE).map_err(Fault::Storage)?;
        }
        Ok(())
    }
}
