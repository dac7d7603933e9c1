//! Which runs: the filter of lists, and of operations on many runs.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, SeqAccess, Visitor},
};

use crate::{
    Place, RunId, Timestamp,
    rest::{RunView, Status},
};

/// Which runs. A run has to match all given fields.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// One of these: up to 200 ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "some_ids")]
    pub ids: Vec<RunId>,
    /// Of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// In one of these statuses: a list, or one of them alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::OneOrMany"))]
    pub status: Vec<Status>,
    /// With this tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// With these attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// Accepted at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// Accepted before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Ended at this time or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_from: Option<Timestamp>,
    /// Ended before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_until: Option<Timestamp>,
    /// Took at least so many milliseconds, from when they were accepted to their end or, if they have not ended, to now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_duration_ms: Option<u64>,
    /// Only those with a step that has failed and waits for its next attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retrying: bool,
    /// With this text in the message of their failure, of the latest failed attempt of a step, or of the problem for which
    /// they are paused. ASCII letters match in either case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What of a run is known without reading all of it.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Its workflow.
    pub workflow: &'a str,
    /// Its status.
    pub status: Status,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl Filter {
    /// The most ids.
    pub const IDS_MAX: usize = 200;

    /// The longest `error`, in bytes.
    pub const ERROR_LENGTH_MAX: usize = 256;

    /// Adds a status.
    pub fn add_status(&mut self, status: Status) {
        add(&mut self.status, status);
    }

    /// What is wrong with it, if something is.
    pub fn fault(&self) -> Option<&'static str> {
        let is_good = |text: &String| !text.is_empty() && text.len() <= Self::ERROR_LENGTH_MAX;
        if self.error.as_ref().is_some_and(|text| !is_good(text)) {
            return Some("`error` takes 1 to 256 bytes of text.");
        }
        (self.ids.len() > Self::IDS_MAX).then_some("A filter names at most 200 ids.")
    }

    /// Whether a cell can have runs that match.
    pub fn can_be_in(&self, place: &Place) -> bool {
        self.ids.is_empty() || self.ids.iter().any(|id| id.place == *place)
    }

    /// Whether it takes every run, but for tags and attributes.
    pub fn takes_any(&self) -> bool {
        Self { tag: None, attributes: BTreeMap::new(), ..self.clone() } == Self::default()
    }

    /// Whether a run's head does not tell if it matches, even if its tags and attributes do.
    pub fn looks_inside(&self) -> bool {
        // The number of a run in its cell does not tell the whole id.
        self.retrying || self.error.is_some() || !self.ids.is_empty()
    }

    /// Whether a run matches, as far as its head tells.
    pub fn admits_head(&self, head: &Head<'_>, now: Timestamp) -> bool {
        let is_ended = |ask: &dyn Fn(Timestamp) -> bool| head.ended_at.is_some_and(ask);
        self.workflow.as_ref().is_none_or(|workflow| workflow == head.workflow)
            && (self.status.is_empty() || self.status.contains(&head.status))
            && self.from.is_none_or(|from| head.created_at >= from)
            && self.until.is_none_or(|until| head.created_at < until)
            && self.ended_from.is_none_or(|from| is_ended(&|at| at >= from))
            && self.ended_until.is_none_or(|until| is_ended(&|at| at < until))
            && self.min_duration_ms.is_none_or(|least| {
                let took =
                    head.ended_at.unwrap_or(now).as_millis().saturating_sub(head.created_at.as_millis());
                took >= least
            })
    }

    /// Whether a run matches.
    pub fn admits(&self, run: &RunView, now: Timestamp) -> bool {
        let RunView { workflow, status, created_at, ended_at, .. } = run;
        let head = Head { workflow, status: *status, created_at: *created_at, ended_at: *ended_at };
        self.admits_head(&head, now)
            && (self.ids.is_empty() || self.ids.contains(&run.id))
            && self.tag.as_ref().is_none_or(|tag| run.tags.contains(tag))
            && self.attributes.iter().all(|(name, value)| run.attributes.get(name) == Some(value))
            && (!self.retrying || !run.retrying.is_empty())
            && self.error.as_ref().is_none_or(|text| has_error(run, text))
    }
}

/// Whether a text is in what is said of a run's errors.
fn has_error(run: &RunView, text: &str) -> bool {
    let wanted = text.to_ascii_lowercase();
    let failure = run.error.as_ref().map(|failure| &failure.message);
    let attempt = run.last_error.as_ref().map(|last| &last.message);
    let problem = run.problem.as_ref().map(|problem| &problem.detail);
    [failure, attempt, problem].into_iter().flatten().any(|said| said.to_ascii_lowercase().contains(&wanted))
}

fn add(statuses: &mut Vec<Status>, status: Status) {
    if !statuses.contains(&status) {
        statuses.push(status);
    }
}

/// Reads ids. Whoever names none does not mean all runs that there are.
fn some_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RunId>, D::Error> {
    let ids = Vec::<RunId>::deserialize(deserializer)?;
    if ids.is_empty() { Err(de::Error::invalid_length(0, &"at least one id")) } else { Ok(ids) }
}

/// Reads one status, or a list of them; none does not mean any.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Status>, D::Error> {
    struct Statuses;

    impl<'de> Visitor<'de> for Statuses {
        type Value = Vec<Status>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a status such as 'running', or a list of statuses")
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<Vec<Status>, E> {
            let status = Status::of(word);
            Ok(vec![status.ok_or_else(|| E::invalid_value(de::Unexpected::Str(word), &self))?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Status>, A::Error> {
            // However long the list is, there are only so many.
            let mut statuses = Vec::new();
            while let Some(status) = list.next_element()? {
                add(&mut statuses, status);
            }
            if statuses.is_empty() { Err(de::Error::invalid_length(0, &self)) } else { Ok(statuses) }
        }
    }

    deserializer.deserialize_any(Statuses)
}

#[cfg(feature = "schema")]
mod schema {
    use super::Status;

    /// A status, or a list of them.
    #[derive(schemars::JsonSchema)]
    #[serde(untagged)]
    #[schemars(inline)]
    #[expect(dead_code, reason = "only its schema is used")]
    pub enum OneOrMany {
        One(Status),
        Many(Vec<Status>),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(more: &str) -> RunView {
        let text = format!(
            r#"{{"id":"default-1-3-1-bvyaw3bemryy","workflow":"pay","created_at":1000,"head":1,"activations":1{more}}}"#
        );
        serde_json::from_str(&text).expect("it is a run")
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn statuses_are_one_or_many() {
        for (text, statuses) in [
            (r#"{"status":"failed"}"#, vec![Status::Failed]),
            (r#"{"status":["failed","paused","failed"]}"#, vec![Status::Failed, Status::Paused]),
            ("{}", vec![]),
        ] {
            let filter: Filter = serde_json::from_str(text).expect(text);
            assert_eq!(filter.status, statuses, "{text}");
            let again = serde_json::to_string(&filter).expect("it is JSON");
            assert_eq!(serde_json::from_str::<Filter>(&again).expect("it is read back"), filter);
        }
        for text in [
            r#"{"ids":[],"workflow":"pay"}"#,
            r#"{"status":[]}"#,
            r#"{"status":null}"#,
            r#"{"status":"done"}"#,
            r#"{"status":["done"]}"#,
            r#"{"status":7}"#,
            r#"{"state":"failed"}"#,
        ] {
            assert!(serde_json::from_str::<Filter>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_has_to_match_every_field() {
        let failed = run(r#","status":"failed","ended_at":61000,"error":{"message":"Card 7 was Declined"},
               "last_error":{"step":"charge","attempt":3,"message":"timeout","at":60000,"count":3}"#);
        let retrying = run(r#","status":"sleeping","retrying":["charge"]"#);
        let done = run(r#","status":"completed","ended_at":1500"#);
        let admitted =
            |filter: &Filter| [&failed, &retrying, &done].map(|run| filter.admits(run, at(120_000)));
        let with = |change: &dyn Fn(&mut Filter)| {
            let mut filter = Filter::default();
            change(&mut filter);
            admitted(&filter)
        };
        assert_eq!(with(&|_| {}), [true, true, true]);
        assert_eq!(with(&|it| it.status = vec![Status::Failed, Status::Completed]), [true, false, true]);
        assert_eq!(with(&|it| it.ended_from = Some(at(61_000))), [true, false, false]);
        assert_eq!(with(&|it| it.ended_until = Some(at(61_000))), [false, false, true]);
        assert_eq!(with(&|it| it.min_duration_ms = Some(60_000)), [true, true, false]);
        assert_eq!(with(&|it| it.retrying = true), [false, true, false]);
        for (text, found) in [("declined", true), ("TIMEOUT", true), ("charge", false)] {
            assert_eq!(with(&|it| it.error = Some(text.into())), [found, false, false], "{text}");
        }
        assert_eq!(with(&|it| it.tag = Some("vip".into())), [false, false, false]);
        assert_eq!(with(&|it| it.ids = vec![failed.id.clone()]), [true, true, true], "all have one id here");
        let other: RunId = "default-1-3-2-bvyaw3bemryy".parse().expect("it is an id");
        assert_eq!(with(&|it| it.ids = vec![other.clone()]), [false, false, false]);
    }

    #[test]
    fn ids_and_a_text_to_look_for_are_bounded() {
        let id: RunId = "default-1-3-2-bvyaw3bemryy".parse().expect("it is an id");
        for (count, is_good) in [(0, true), (200, true), (201, false)] {
            let filter = Filter { ids: vec![id.clone(); count], ..Filter::default() };
            assert_eq!(filter.fault().is_none(), is_good, "{count}");
        }
        for (length, is_good) in [(0, false), (1, true), (256, true), (257, false)] {
            let filter = Filter { error: Some("x".repeat(length)), ..Filter::default() };
            assert_eq!(filter.fault().is_none(), is_good, "{length}");
        }
    }
}
