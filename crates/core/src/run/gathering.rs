//! Starts that do not each become a run of their own: what a run knows of those that have become it, and what becomes of
//! the next one.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{Epoch, Payload, Timestamp, lane::StartRule, program::PAYLOAD_BYTES_MAX};

use super::{Decision, Entry, InLane, Phase, Run, Slot, decide::deadline};

/// How many of the latest starts a run remembers, in case the runtime delivers one again.
const NONCES_MAX: usize = 64;

/// What a run does with starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatheredBy {
    /// It keeps others from being runs.
    Singleton,
    /// It has the input of the last one.
    Debounce,
    /// It has the input of the first one.
    Leading,
    /// It has a list of them.
    Batch,
}

impl GatheredBy {
    fn of(rule: &StartRule) -> Self {
        match rule {
            StartRule::Singleton { .. } => Self::Singleton,
            StartRule::Debounce { leading: false, .. } => Self::Debounce,
            StartRule::Debounce { leading: true, .. } => Self::Leading,
            StartRule::Batch { .. } => Self::Batch,
        }
    }
}

/// What a run knows of the starts that have become it, or were skipped for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gathering {
    /// By what their cell finds it.
    pub key: String,
    /// What it does with them.
    pub by: GatheredBy,
    /// When the first one came.
    pub since: Timestamp,
    /// Up to when others are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How many there were.
    pub count: u32,
    /// What the latest are known by, also those of the run before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nonces: Vec<String>,
}

/// A start that a run takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// What the run is started with from now on, if that changes.
    pub input: Option<Payload>,
    /// When it begins, if that changes.
    pub starts_at: Option<Timestamp>,
    /// When it is failed if it has not ended by then, if that changes.
    pub deadline: Option<Timestamp>,
    /// Its limits from now on.
    pub lane: Option<Box<InLane>>,
    /// What it knows of its starts from now on.
    pub gathering: Gathering,
    /// What the start is known by if it comes again.
    pub known: Option<KnownJoin>,
}

/// What a start that has become part of a run is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownJoin {
    /// Its key.
    pub key: String,
    /// A hash of what was asked for.
    pub fingerprint: String,
    /// When that is forgotten.
    pub until: Timestamp,
}

/// What becomes of a start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Admitted {
    /// Another run.
    Begins,
    /// Another run, and the one of before is cancelled.
    Replaces,
    /// Part of the run of before.
    Joins(Box<Joined>),
    /// Nothing: there is a run. What that run knows has changed, if this is said.
    Skipped(Option<Box<Joined>>),
}

impl Gathering {
    /// Of a run that a start has begun after another one, and when it begins.
    pub(crate) fn new(
        rule: &StartRule,
        now: Timestamp,
        (key, nonce): (String, String),
        before: Option<&Self>,
    ) -> (Self, Option<Timestamp>) {
        let known = before.map(|before| before.nonces.clone()).unwrap_or_default();
        let since = Self { key, by: GatheredBy::of(rule), since: now, until: None, count: 0, nonces: known };
        let until = match rule {
            StartRule::Singleton { .. } => None,
            StartRule::Debounce { wait_ms, .. } | StartRule::Batch { wait_ms, .. } => {
                Some(now.plus_millis(*wait_ms))
            }
        };
        let begins_at = until.filter(|_| since.by != GatheredBy::Leading);
        (Self { until, ..since.with(&nonce) }, begins_at)
    }

    /// Whether a start has become part of it already.
    pub(crate) fn knows(&self, nonce: &str) -> bool {
        self.nonces.iter().any(|known| known == nonce)
    }

    fn with(&self, nonce: &str) -> Self {
        let forgotten = (self.nonces.len() + 1).saturating_sub(NONCES_MAX);
        let nonces = self.nonces.iter().skip(forgotten).cloned().chain([nonce.to_owned()]).collect();
        Self { count: self.count.saturating_add(1), nonces, ..self.clone() }
    }
}

/// A list with one more item. Both are JSON.
fn with_item(list: &Payload, item: &Payload) -> Option<Payload> {
    let items = list.text().strip_suffix(']')?;
    Payload::from_text(format!("{items},{}]", item.text())).ok()
}

/// A list with one item.
pub(crate) fn list_of(item: &Payload) -> Payload {
    Payload::from_text(format!("[{}]", item.text())).unwrap_or_else(|_| item.clone())
}

impl Run {
    /// By what other starts find it.
    pub fn found_by(&self) -> Option<&str> {
        self.gathering.as_ref().map(|gathering| gathering.key.as_str())
    }

    /// Whether it waits for more starts before it begins.
    pub fn is_gathering(&self, now: Timestamp) -> bool {
        self.epoch == Epoch(0)
            && matches!(self.phase, Phase::Pending { .. })
            && self.gathering.as_ref().is_some_and(|gathering| gathering.until.is_some())
            && self.starts_at.is_some_and(|at| at > now)
    }

    /// What people are told of the starts that it waits for.
    pub(super) fn gathered(&self) -> String {
        match self.gathering.as_deref() {
            Some(Gathering { until: Some(_), count, .. }) => {
                let starts = if *count == 1 { "start" } else { "starts" };
                format!(", and has {count} {starts} so far")
            }
            Some(_) | None => String::new(),
        }
    }

    /// What becomes of a start that meets this run. `list` reads what the run is started with.
    pub(crate) fn admits<E>(
        &self,
        rule: &StartRule,
        now: Timestamp,
        (input, nonce): (&Payload, &str),
        list: impl FnOnce() -> Result<Payload, E>,
    ) -> Result<Admitted, E> {
        // What was gathered by another rule is left as it is.
        let Some(gathering) = self.gathering.as_ref().filter(|known| known.by == GatheredBy::of(rule)) else {
            return Ok(Admitted::Begins);
        };
        let lives = !matches!(self.phase, Phase::Ended { .. });
        let joined = |input, starts_at: Option<Timestamp>, until| {
            let deadline = starts_at.and_then(|at| deadline(at, self.timeout_ms));
            let gathering = Gathering { until: Some(until), ..gathering.with(nonce) };
            Box::new(Joined { input, starts_at, deadline, lane: self.lane.clone(), gathering, known: None })
        };
        Ok(match rule {
            StartRule::Singleton { cancel: true, .. } if lives => Admitted::Replaces,
            StartRule::Singleton { .. } if lives => Admitted::Skipped(None),
            StartRule::Debounce { leading: true, wait_ms, .. }
                if gathering.until.is_some_and(|until| until > now) =>
            {
                Admitted::Skipped(Some(joined(None, None, now.plus_millis(*wait_ms))))
            }
            StartRule::Debounce { leading: false, wait_ms, max_ms, .. } if self.is_gathering(now) => {
                let latest = max_ms.map(|max_ms| gathering.since.plus_millis(max_ms));
                let at = now.plus_millis(*wait_ms);
                let at = latest.map_or(at, |latest| latest.min(at)).max(now);
                Admitted::Joins(joined(Some(input.clone()), Some(at), at))
            }
            StartRule::Batch { max, .. } if self.is_gathering(now) && gathering.count < *max => {
                let size = self.input_bytes as usize + input.size() + 1;
                let list = if size <= PAYLOAD_BYTES_MAX { with_item(&list()?, input) } else { None };
                let is_full = gathering.count + 1 >= *max;
                let until = self.starts_at.filter(|_| !is_full).unwrap_or(now);
                match list {
                    Some(list) => Admitted::Joins(joined(Some(list), Some(until), until)),
                    // It is full, and begins when its time has come.
                    None => Admitted::Begins,
                }
            }
            StartRule::Singleton { .. } | StartRule::Debounce { .. } | StartRule::Batch { .. } => {
                Admitted::Begins
            }
        })
    }

    /// It takes a start.
    pub(super) fn join(&self, now: Timestamp, joined: Box<Joined>, slot: Option<Slot>) -> Decision {
        let starts_at = joined.starts_at;
        // Under limits it has to be let in first.
        let slot = slot.filter(|_| joined.lane.is_none());
        let mut decision = Decision { entries: vec![Entry::Joined(joined)], ..Decision::default() };
        if starts_at.is_some() {
            decision.extend(Self { starts_at, ..self.clone() }.activate(now, slot));
        }
        decision
    }

    pub(super) fn take_start(&mut self, joined: &Joined) {
        if let Some(input) = &joined.input {
            self.input_bytes = u32::try_from(input.size()).unwrap_or(u32::MAX);
        }
        if joined.starts_at.is_some() {
            (self.starts_at, self.deadline) = (joined.starts_at, joined.deadline);
        }
        self.lane.clone_from(&joined.lane);
        self.gathering = Some(Box::new(joined.gathering.clone()));
    }
}
