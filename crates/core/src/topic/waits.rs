//! Waits of runs for events: who waits, which events they have missed, and what their cells are told.
//!
//! Owns: the rows of waits, by what they are found (the events, and one equality that their condition cannot hold without),
//! and the look at events that came before a wait was known here. Does not own: whether a run still waits, which its cell
//! says when it is told: *gone* lets the row go, so whoever says that a wait is over may be late.
//!
//! Invariant: an event that a wait may get is delivered to its cell, or the wait's row stays.

use serde_json::Value as Json;
use stepwell_protocol::{
    Code, Epoch, Op, Payload, Place, Problem, RunId, Timestamp,
    topic::{EventWait, LOOK_BACK_MS, LOOK_BACK_MS_MAX, LOOK_BACK_MS_MIN, Waiter, is_on, topic_of},
};

use super::{BYTES_MAX, EventRow, Meeting, Order, Parked, Rows, Shown, Topic, kinds::Kinds, look_back::Look};
use crate::{
    expression::{Expression, Failed, index_key},
    object::{Fault, Hosted as _, Receipt, pause_ms},
    ordered::{OrdMap, OrdSet},
    sorting::sort,
};

/// How many waits one call tells a cell of.
pub const WAITS_MAX: usize = 256;

/// How many waits are compared with events in one turn.
pub(super) const EXAMINED_MAX: usize = 2_048;

/// How long after its end a wait is deleted: clocks differ.
const ENDED_MS: u64 = 60_000;

/// How many events are parked for a wait whose run takes none of them: the first that it takes ends the wait.
const PARKED_MAX: usize = 64;

/// How many waits that have ended are deleted in one turn.
const ENDED_SLICE: usize = 256;

/// The most bytes that a condition takes from the input of its run.
const INPUT_BYTES_MAX: usize = 16_384;

/// What the conditions of waits go by.
pub(super) const NAMES: [&str; 2] = ["event", "input"];

/// A wait as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// Its number in the topic: a later one for one that is registered again.
    pub number: u64,
    /// The latest event that nobody compares with it, unless it looks back.
    pub after: u64,
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
    kinds: Kinds,
    /// The number of the latest one.
    pub last: u64,
    /// Up to which one the events before it were looked at.
    pub looked: u64,
    /// When that may go on.
    pub looks_at: Timestamp,
    /// How far the look back of the next ones has come.
    pub look: Option<Look>,
    /// What was found by looking back and is in memory only, and up to which wait that was done before.
    pub found: OrdMap<Parked, u64>,
    /// When the first of them is over.
    pub ends: Option<Timestamp>,
    cursors: OrdMap<Parked, Cursor>,
    /// What has to be compared again: a wait began after its cell was asked.
    pub anew: OrdSet<Parked>,
}

/// Whether waits are met by events. Knows the condition that was read last: those who wait for the same have the same one.
#[derive(Debug, Default)]
pub struct Conditions {
    last: Option<(String, Option<Expression>)>,
}

impl Conditions {
    /// Whether a wait gets an event, whose value is what expressions see of it. One that came after the wait was known is
    /// not too old, whatever the clocks of topic and cell say.
    pub fn meets(
        &mut self,
        waiter: &Waiter,
        after: u64,
        event: &EventRow,
        value: &Shown<'_>,
    ) -> Result<bool, Failed> {
        let is_old = event.number <= after && event.at < waiter.from;
        if is_old || waiter.except == Some(event.number) || !is_on(&waiter.on, &event.name) {
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
            let reads = !super::is_too_much(input.text());
            let mut input = if reads { input.decode::<Json>().unwrap_or_default() } else { Json::Null };
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

/// The first time of an event that a wait gets which began at this time. At least a second before: the topic goes by
/// another clock.
pub fn from_when(wait: &EventWait, since: Timestamp) -> Timestamp {
    let back_ms = wait.looking_back_ms.unwrap_or(LOOK_BACK_MS).clamp(LOOK_BACK_MS_MIN, LOOK_BACK_MS_MAX);
    Timestamp::from_millis(since.as_millis().saturating_sub(back_ms))
}

/// What is parked for the waits of a cell. No trigger is called so.
pub(super) fn of_cell(event: u64, cell: &str) -> Parked {
    Parked { event, trigger: format!("\n{cell}") }
}

/// What is parked for one of them, whose run could not take it.
fn of_wait(event: u64, wait: &WaitRow) -> Parked {
    Parked { event, trigger: format!("\n{}\n{}", wait.waiter.run.place, wait.number) }
}

impl Parked {
    /// The cell whose waits it is about, if it is about no trigger.
    pub(super) fn cell(&self) -> Option<Place> {
        let cell = self.trigger.strip_prefix('\n')?;
        cell.split_once('\n').map_or(cell, |(cell, _)| cell).parse().ok()
    }

    /// The number of the wait, if it is about one alone.
    fn wait(&self) -> Option<u64> {
        self.trigger.strip_prefix('\n')?.split_once('\n')?.1.parse().ok()
    }
}

impl KnownWaits {
    pub(super) fn read<R: Rows>(rows: &R, now: Timestamp) -> Result<Self, R::Error> {
        let kinds = Kinds::read(rows, now)?;
        let head = rows.wait_head()?;
        let (last, looked, ends) = (head.last.max(head.looked), head.looked, head.ends);
        Ok(Self { kinds, last, looked, ends, ..Self::default() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Where the waits are that an event may meet, in order: a comparison goes on where it was. One that is too large for conditions meets none that has one.
    pub(super) fn buckets(&self, event: &EventRow, value: &Shown<'_>) -> Vec<(String, String, String)> {
        let found = self.kinds.of(&event.name).filter_map(|(on, path, read)| {
            let found = match read {
                Some(read) => read.find(&[("event", value.value().ok()?)]).and_then(index_key)?,
                None => String::new(),
            };
            Some((on.to_owned(), path.to_owned(), found))
        });
        let mut found: Vec<_> = found.collect();
        sort(&mut found);
        found
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
        let id = wait_id(&waiter.run, waiter.life, &waiter.op);
        let before = rows.wait(&id).map_err(Fault::Storage)?;
        if before.is_some_and(|before| before.waiter.epoch >= waiter.epoch) {
            // It came before, or is of an earlier activation. This instance may have been superseded: only a write says
            // that it has not.
            self.object().arm_anew(now);
            return Ok(Receipt::Taken);
        }
        let known = self.known(rows, now)?;
        let is_first = known.is_idle();
        let after = if is_first { known.last } else { known.matched };
        let known = &mut known.waits;
        let place = known.kinds.place(rows, now, &waiter).map_err(Fault::Storage)?;
        let Some((path, value)) = place.filter(|_| !is_full) else {
            let detail = "The topic has no room for more waits. Try again later.";
            return Err(Problem::new(Code::TooMany, detail).into());
        };
        let is_new = !known.kinds.has(&waiter.on, &path);
        let row = WaitRow { number: known.last + 1, after, waiter, path, value };
        if let Err(error) = rows.put_wait(&row, is_new) {
            self.start_over();
            return Err(Fault::Storage(error));
        }
        if let Some(known) = &mut self.known {
            let last = known.last;
            known.waits.last = row.number;
            known.waits.ends = [known.waits.ends, row.waiter.until].into_iter().flatten().min();
            if is_new {
                known.waits.kinds.add(row.waiter.on.clone(), row.path.clone());
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

    /// Lets the host tell a cell of an event that its runs wait for.
    pub(super) fn ask_cell<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: Parked,
        to: Place,
    ) -> Result<(), Fault<R::Error>> {
        // It is told for as long as it is kept.
        let event = rows.event(what.event).map_err(Fault::Storage)?;
        let Some(event) = event else { return self.done(rows, now, &what) };
        if !self.flights.has_bytes(now, &what, event.data.size()) {
            return Ok(());
        }
        if let Some(number) = what.wait() {
            return self.ask_for_wait(rows, now, what, to, number, event);
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
                    let meets =
                        wait.as_ref().map(|wait| conditions.meets(&wait.waiter, wait.after, &event, &value));
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
        self.examined += examined;
        if let Some(rest) = &rest {
            known.waits.cursors.insert(what.clone(), rest.clone());
        }
        known.unstored.get_or_insert(now);
        // Those whose runs take nothing are asked once a minute, whatever comes meanwhile.
        let is_stuck = |wait: &WaitRow| known.parked.has(&of_wait(what.event, wait).trigger);
        let (stuck, met): (Vec<_>, Vec<_>) = met.into_iter().partition(is_stuck);
        for wait in stuck {
            self.put_off_for(rows, now, what.event, &wait, true)?;
        }
        match (met.is_empty(), rest) {
            (true, None) => self.done(rows, now, &what),
            (true, Some(_)) => {
                self.flights.put_off(&what, now.plus_millis(1));
                Ok(())
            }
            (false, _) => {
                self.meet(now, what, to, event, met);
                Ok(())
            }
        }
    }

    /// Lets the host tell a cell of an event for one wait alone, if it still waits.
    fn ask_for_wait<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        what: Parked,
        to: Place,
        number: u64,
        event: EventRow,
    ) -> Result<(), Fault<R::Error>> {
        let found = rows.waits_after(number.saturating_sub(1), 1).map_err(Fault::Storage)?;
        let wait = found.into_iter().find_map(|(known, wait)| wait.filter(|_| known == number));
        let met = wait.filter(|wait| {
            let met = Conditions::default().meets(&wait.waiter, wait.after, &event, &event.value());
            met == Ok(true)
        });
        let Some(wait) = met else { return self.done(rows, now, &what) };
        self.meet(now, what, to, event, vec![wait]);
        Ok(())
    }

    fn meet(&mut self, now: Timestamp, what: Parked, to: Place, event: EventRow, waits: Vec<WaitRow>) {
        let flight = self.flights.ask(now, what, &to);
        let meeting = Meeting { flight, to, event: event.view(&self.name), waits };
        self.object().order(Order::Meet(Box::new(meeting)));
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
        let Some(receipts) = receipts.filter(|receipts| receipts.len() == meeting.waits.len()) else {
            return self.ask_again(rows, now, what, false);
        };
        let (mut over, mut later) = (Vec::new(), Vec::new());
        for (wait, receipt) in meeting.waits.iter().zip(receipts) {
            match receipt {
                Receipt::Taken => over.push((wait, true)),
                Receipt::Gone => over.push((wait, false)),
                Receipt::Passed => {}
                Receipt::Started { .. } | Receipt::Joined { .. } | Receipt::Moved { .. } | Receipt::Later => {
                    later.push(wait);
                }
            }
        }
        let goes_on = known.waits.cursors.contains_key(what) || known.waits.anew.contains(what);
        rows.end_waits(what.event, &over).map_err(Fault::Storage)?;
        if what.wait().is_some() && !later.is_empty() {
            return self.ask_again(rows, now, what, true);
        }
        self.is_answered(what);
        // A run that cannot take it yet does not stand for the others of its cell.
        let is_parked = self.flights.is_parked(what);
        for wait in later {
            self.put_off_for(rows, now, what.event, wait, is_parked)?;
        }
        if goes_on {
            self.flights.put_off(what, now);
            return Ok(());
        }
        self.done(rows, now, what)
    }

    /// A run cannot take an event yet. It is asked again by itself, a few times and then once a minute. Where a row tells of
    /// the event for all waits of the cell, and will not any more, another one does for this wait: the watermark is beyond it.
    fn put_off_for<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        event: u64,
        wait: &WaitRow,
        is_parked: bool,
    ) -> Result<(), Fault<R::Error>> {
        let what = of_wait(event, wait);
        let Some(known) = &mut self.known else { return Ok(()) };
        if !is_parked && !known.parked.has(&what.trigger) {
            let found = known.waits.found.get(&of_cell(event, &wait.waiter.run.place.to_string())).copied();
            if let Some(looked) = found {
                known.waits.found.get_or_insert_with(what.clone(), || looked);
            }
            let due = now.plus_millis(pause_ms(1));
            self.flights.add(what, wait.waiter.run.place.clone(), due, false);
            return Ok(());
        }
        let parked = rows.parked(&what.trigger, 0, PARKED_MAX).map_err(Fault::Storage)?;
        if parked.len() < PARKED_MAX && !parked.contains(&event) {
            self.park(rows, now, &what)
        } else {
            Ok(())
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
