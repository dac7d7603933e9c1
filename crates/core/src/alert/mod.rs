//! Alert rules of a namespace: each minute, figures are asked for, and whoever wants to know is told of what is wrong.
//!
//! Owns: how each rule stands, and what has to be told. Does not own: the figures, which the host gathers, and the queue of
//! webhooks, which delivers what is told.
//!
//! A rule and its notice are one row. The notice stays there until the queue has it, and is known there by its id: it is
//! delivered once for each time that the rule begins or ends to fire, whatever dies in between.

mod figures;
mod rule;
#[cfg(test)]
mod tests;

use stepwell_protocol::{
    Code, Problem, Timestamp,
    alert::{ALERTS_MAX, AlertList, AlertSpec, AlertState, AlertView},
};

pub use figures::{Figures, Span, Wanted};
pub use rule::{Notice, Rule, check_alert};

use crate::{
    object::{ANSWER_MS, Fault, Hosted, Machine, Object, pause_ms},
    ordered::OrdMap,
};

/// How often the rules are looked at.
pub const CHECK_MS: u64 = 60_000;

/// The longest pause before a notice is sent again.
const TELL_AGAIN_MS_MAX: u64 = 60_000;

/// What the machine needs of its storage.
pub trait Rows {
    /// Why the storage failed.
    type Error;

    /// All rules; nothing for one that cannot be read.
    fn rules(&self) -> Result<Vec<(String, Option<Rule>)>, Self::Error>;

    /// Stores a rule.
    fn put(&self, id: &str, rule: &Rule) -> Result<(), Self::Error>;

    /// Deletes a rule.
    fn delete(&self, id: &str) -> Result<(), Self::Error>;
}

/// What the host has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Gather figures, and say them.
    Look {
        /// Which look.
        flight: u64,
        /// Which figures.
        wanted: Box<Wanted>,
    },
    /// Give a notice to the queue of webhooks, and say whether it has it.
    Tell(Box<Notice>),
}

/// The rules, and how they stand.
#[derive(Clone, Debug, Default)]
pub struct Alerts {
    object: Object<Order>,
    known: Option<OrdMap<String, Known>>,
    /// The look that is under way, and since when.
    look: Option<(u64, Timestamp)>,
    last_flight: u64,
    /// When the next look begins.
    next_look: Timestamp,
}

#[derive(Clone, Debug)]
struct Known {
    rule: Rule,
    /// The latest figure, and when that was. Only for people to see: no row has it.
    value: Option<u64>,
    checked_at: Option<Timestamp>,
    /// When its notice goes out again, and how often it has.
    tell_at: Timestamp,
    told: u32,
}

impl Known {
    fn new(rule: Rule) -> Self {
        Self { rule, value: None, checked_at: None, tell_at: Timestamp::default(), told: 0 }
    }

    fn view(&self, id: &str) -> AlertView {
        let Self { rule, value, checked_at, .. } = self;
        AlertView {
            id: id.to_owned(),
            spec: rule.spec.clone(),
            state: rule.state,
            since: rule.since,
            value: *value,
            checked_at: *checked_at,
            by: rule.by.clone(),
        }
    }
}

impl Hosted for Alerts {
    type Order = Order;

    fn object(&mut self) -> &mut Object<Order> {
        &mut self.object
    }
}

impl<R: Rows> Machine<R> for Alerts {
    type Error = R::Error;

    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        self.read(rows)?;
        if self.look.is_some_and(|(_, since)| since.plus_millis(ANSWER_MS) <= now) {
            self.look = None;
        }
        self.tell(now);
        if self.look.is_none() && self.next_look <= now && !self.is_empty() {
            self.last_flight += 1;
            let flight = self.last_flight;
            (self.look, self.next_look) = (Some((flight, now)), now.plus_millis(CHECK_MS));
            let rules = self.known.iter().flat_map(OrdMap::values).map(|known| &known.rule.spec.watched);
            let wanted = Wanted::of(rules);
            self.object.order(Order::Look { flight, wanted: Box::new(wanted) });
        }
        Ok(self.next(now))
    }

    fn first_due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        self.read(rows)?;
        Ok(self.next(now))
    }
}

impl Alerts {
    /// Makes a rule, or lets it watch something else. Says whether it is new.
    pub fn put<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        (namespace, by): (&str, &str),
        id: &str,
        spec: AlertSpec,
    ) -> Result<(AlertView, bool), Fault<R::Error>> {
        let now = self.now(clock);
        check_alert(&spec)?;
        self.read(rows)?;
        let known = self.known.get_or_insert_default();
        let before = known.get(id);
        if before.is_none() && known.len() >= ALERTS_MAX {
            let detail = format!("The namespace has {ALERTS_MAX} alerts, and cannot have more.");
            return Err(Problem::new(Code::TooMany, detail).into());
        }
        let is_new = before.is_none();
        if let Some(same) = before.filter(|before| before.rule.spec == spec) {
            return Ok((same.view(id), false));
        }
        let rule = match before {
            Some(before) => before.rule.changed(now, namespace, id, by, spec),
            None => Rule { spec, state: AlertState::Quiet, since: now, by: by.to_owned(), notice: None },
        };
        rows.put(id, &rule).map_err(Fault::Storage)?;
        let made = Known::new(rule);
        let view = made.view(id);
        known.insert(id.to_owned(), made);
        self.next_look = now;
        self.object.arm_by(now, now);
        Ok((view, is_new))
    }

    /// Deletes a rule. Nobody is told of it any more.
    pub fn delete<R: Rows>(&mut self, rows: &R, clock: Timestamp, id: &str) -> Result<(), Fault<R::Error>> {
        self.now(clock);
        self.read(rows)?;
        let known = self.known.get_or_insert_default();
        let is_known = known.remove(id).is_some();
        // One that cannot be read is not known, and can be deleted all the same.
        let is_there = is_known || rows.rules().map_err(Fault::Storage)?.iter().any(|(there, _)| there == id);
        if !is_there {
            return Err(no_alert().into());
        }
        if let Err(error) = rows.delete(id) {
            self.known = None;
            return Err(Fault::Storage(error));
        }
        Ok(())
    }

    /// A rule.
    pub fn get<R: Rows>(&mut self, rows: &R, id: &str) -> Result<AlertView, Fault<R::Error>> {
        self.read(rows)?;
        let known = self.known.as_ref().and_then(|known| known.get(id));
        known.map(|known| known.view(id)).ok_or_else(|| no_alert().into())
    }

    /// All rules.
    pub fn list<R: Rows>(&mut self, rows: &R) -> Result<AlertList, Fault<R::Error>> {
        self.read(rows)?;
        let known = self.known.iter().flat_map(OrdMap::iter);
        Ok(AlertList { alerts: known.map(|(id, known)| known.view(id)).collect() })
    }

    /// What the host has gathered.
    pub fn looked<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        namespace: &str,
        flight: u64,
        figures: &Figures,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows)?;
        if self.look.take_if(|(known, _)| *known == flight).is_none() {
            return Ok(());
        }
        let mut stored = Ok(());
        for (id, known) in self.known.iter_mut().flat_map(OrdMap::iter_mut) {
            let value = figures.of(&known.rule.spec.watched);
            (known.value, known.checked_at) = (value, Some(now));
            // What nobody could say changes nothing; and what was not told yet is not overtaken by what comes after it.
            let Some(value) = value.filter(|_| known.rule.notice.is_none()) else { continue };
            let Some(next) = known.rule.follow(now, namespace, id, value) else { continue };
            match rows.put(id, &next) {
                Ok(()) => {
                    if next.notice != known.rule.notice {
                        (known.tell_at, known.told) = (now, 0);
                    }
                    known.rule = next;
                }
                // It is looked at again in a minute.
                Err(error) => stored = Err(Fault::Storage(error)),
            }
        }
        self.tell(now);
        if let Some(at) = self.next(now) {
            self.object.arm_by(now, at);
        }
        stored
    }

    /// Whether the queue of webhooks has a notice.
    pub fn told<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        notice: &Notice,
        is_taken: bool,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows)?;
        let known = self.known.as_mut().and_then(|known| known.get_mut(&notice.alert));
        // It may have fired again since: then that is told next.
        let Some(known) = known.filter(|known| known.rule.notice.as_ref() == Some(notice)) else {
            return Ok(());
        };
        if is_taken {
            let rule = Rule { notice: None, ..known.rule.clone() };
            rows.put(&notice.alert, &rule).map_err(Fault::Storage)?;
            known.rule = rule;
        }
        if let Some(at) = self.next(now) {
            self.object.arm_by(now, at);
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.known.as_ref().is_none_or(OrdMap::is_empty)
    }

    fn read<R: Rows>(&mut self, rows: &R) -> Result<(), Fault<R::Error>> {
        if self.known.is_none() {
            let rules = rows.rules().map_err(Fault::Storage)?;
            let known = rules.into_iter().filter_map(|(id, rule)| Some((id, Known::new(rule?))));
            self.known = Some(known.collect());
        }
        Ok(())
    }

    /// Sends the notices whose time has come.
    fn tell(&mut self, now: Timestamp) {
        for known in self.known.iter_mut().flat_map(OrdMap::values_mut) {
            let Some(notice) = known.rule.notice.clone().filter(|_| known.tell_at <= now) else { continue };
            known.told = known.told.saturating_add(1);
            // If no answer comes, it goes out again: the queue knows it by its id.
            let pause = pause_ms(known.told).clamp(ANSWER_MS, TELL_AGAIN_MS_MAX);
            known.tell_at = now.plus_millis(pause);
            self.object.order(Order::Tell(Box::new(notice)));
        }
    }

    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        if self.is_empty() {
            return None;
        }
        // A look that is under way is waited for, and given up with the next one.
        let look =
            self.look.map_or(self.next_look, |(_, since)| self.next_look.max(since.plus_millis(ANSWER_MS)));
        let known = self.known.iter().flat_map(OrdMap::values);
        let tell = known.filter(|known| known.rule.notice.is_some()).map(|known| known.tell_at).min();
        let next = [tell, Some(look)].into_iter().flatten().min();
        next.map(|at| at.max(now.plus_millis(1)))
    }
}

/// What is said of an alert that is not there.
pub fn no_alert() -> Problem {
    Problem::new(
        Code::AlertNotFound,
        "The namespace has no alert with this id. `GET /api/alerts` lists them.",
    )
}
