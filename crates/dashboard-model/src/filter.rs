//! The filter of a list: what people type, and what the API is asked for it.
//!
//! A filter is words of the form `field:value`, such as `status:failed workflow:greet since:2h`. A value with blanks
//! stands in quotes. A run's id alone leads to that run.

use std::{collections::BTreeMap, fmt};

use stepwell_protocol::{
    RunId, Timestamp,
    filter::Filter as Which,
    rest::{RunView, Status},
    span,
};

use crate::{place::encoded, when};

/// What can stand before a colon, with what it means.
pub const FIELDS: [(&str, &str); 13] = [
    (
        "status",
        "pending, running, sleeping, waiting, paused, completed, failed or cancelled; several with commas",
    ),
    ("workflow", "the workflow's name"),
    ("tag", "one of its tags"),
    ("attr", "an attribute, as attr:name=value"),
    ("since", "accepted within a length of time, such as 2h, or at or after an instant"),
    ("until", "accepted before that"),
    ("ended-since", "ended since then"),
    ("ended-until", "ended before that"),
    ("longer", "took at least this long, such as 5m, or is open for that long"),
    ("error", "a text in the message of an error"),
    ("is", "retrying: a step has failed and waits for its next attempt"),
    ("key", "the idempotency key of its start, together with workflow"),
    ("id", "the run's id"),
];

/// A filter that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In one of these statuses.
    pub status: Vec<Status>,
    /// Of this workflow.
    pub workflow: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// With these attributes.
    pub attributes: Vec<(String, String)>,
    /// Accepted since then.
    pub since: Option<Moment>,
    /// Accepted before that.
    pub until: Option<Moment>,
    /// Ended since then.
    pub ended_since: Option<Moment>,
    /// Ended before that.
    pub ended_until: Option<Moment>,
    /// Took at least so long, as text and in milliseconds.
    pub longer: Option<(String, u64)>,
    /// With this text in the message of an error.
    pub error: Option<String>,
    /// Of which a step waits for its next attempt.
    pub is_retrying: bool,
    /// Started with this idempotency key.
    pub key: Option<String>,
    /// This run.
    pub id: Option<String>,
}

/// A time in a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    text: String,
    means: Means,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Ago(u64),
    At(Timestamp),
}

/// Why a filter was not understood, in words for whoever typed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAFilter(pub String);

impl fmt::Display for NotAFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the API is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A list, by this path and query.
    List(String),
    /// One run, by this path.
    One(String),
}

impl Moment {
    fn of(text: &str) -> Option<Self> {
        let means = match span::parse(text) {
            Some(ms) => Means::Ago(ms),
            None => Means::At(when::parse(text)?),
        };
        Some(Self { text: text.to_owned(), means })
    }

    /// The instant that it means.
    pub fn at(&self, now: Timestamp) -> Timestamp {
        match self.means {
            Means::Ago(ms) => Timestamp::from_millis(now.as_millis().saturating_sub(ms)),
            Means::At(at) => at,
        }
    }
}

impl Filter {
    /// Reads a text.
    pub fn of(text: &str) -> Result<Self, NotAFilter> {
        let mut filter = Self::default();
        for word in words(text)? {
            filter.take(&word)?;
        }
        if filter.key.is_some() && filter.workflow.is_none() {
            return Err(NotAFilter("A key belongs to a workflow: add workflow:NAME.".into()));
        }
        Ok(filter)
    }

    fn take(&mut self, word: &str) -> Result<(), NotAFilter> {
        let Some((field, value)) = word.split_once(':') else {
            return match word.parse::<RunId>() {
                Ok(id) => set(&mut self.id, "id", id.to_string()),
                Err(_) => Err(NotAFilter(format!(
                    "'{word}' is not a run's id. Write a field before it, such as workflow:{word}."
                ))),
            };
        };
        if value.is_empty() {
            return Err(NotAFilter(format!("{field}: needs a value.")));
        }
        match field {
            "status" => {
                let mut which = Which::default();
                for word in value.split(',') {
                    which.add_status(Status::of(word).ok_or_else(|| {
                        let all: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
                        NotAFilter(format!("'{word}' is not a status. There are {}.", all.join(", ")))
                    })?);
                }
                let mut slot = Some(std::mem::take(&mut self.status)).filter(|before| !before.is_empty());
                set(&mut slot, field, which.status)?;
                self.status = slot.unwrap_or_default();
                Ok(())
            }
            "is" if value == "retrying" => {
                self.is_retrying = true;
                Ok(())
            }
            "is" => Err(NotAFilter("The only one is is:retrying.".into())),
            "error" if value.len() > Which::ERROR_LENGTH_MAX => {
                Err(NotAFilter(format!("error: takes up to {} bytes.", Which::ERROR_LENGTH_MAX)))
            }
            "error" => set(&mut self.error, field, value.to_owned()),
            "longer" => {
                let ms = span::parse(value).ok_or_else(|| {
                    NotAFilter(format!("'{value}' is not a length of time. Write 90s, 5m or 2h."))
                })?;
                set(&mut self.longer, field, (value.to_owned(), ms))
            }
            "workflow" => set(&mut self.workflow, field, value.to_owned()),
            "tag" => set(&mut self.tag, field, value.to_owned()),
            "key" => set(&mut self.key, field, value.to_owned()),
            "id" => set(&mut self.id, field, value.to_owned()),
            "attr" => {
                let (name, value) = value
                    .split_once('=')
                    .filter(|(name, _)| !name.is_empty())
                    .ok_or_else(|| NotAFilter("Write an attribute as attr:name=value.".into()))?;
                self.attributes.push((name.to_owned(), value.to_owned()));
                Ok(())
            }
            "since" => set(&mut self.since, field, moment(value)?),
            "until" => set(&mut self.until, field, moment(value)?),
            "ended-since" => set(&mut self.ended_since, field, moment(value)?),
            "ended-until" => set(&mut self.ended_until, field, moment(value)?),
            _ => {
                let known: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
                Err(NotAFilter(format!("There is no field '{field}'. There are {}.", known.join(", "))))
            }
        }
    }

    /// Its text, which means the same.
    pub fn text(&self) -> String {
        let mut words = Vec::new();
        let mut add = |field: &str, value: &str| words.push(format!("{field}:{}", quoted(value)));
        if !self.status.is_empty() {
            add("status", &words_of(&self.status));
        }
        for (field, value) in [("workflow", &self.workflow), ("tag", &self.tag), ("error", &self.error)] {
            if let Some(value) = value {
                add(field, value);
            }
        }
        if self.is_retrying {
            add("is", "retrying");
        }
        if let Some((text, _)) = &self.longer {
            add("longer", text);
        }
        for (name, value) in &self.attributes {
            add("attr", &format!("{name}={value}"));
        }
        for (field, value) in [
            ("since", &self.since),
            ("until", &self.until),
            ("ended-since", &self.ended_since),
            ("ended-until", &self.ended_until),
        ] {
            if let Some(moment) = value {
                add(field, &moment.text);
            }
        }
        for (field, value) in [("key", &self.key), ("id", &self.id)] {
            if let Some(value) = value {
                add(field, value);
            }
        }
        words.join(" ")
    }

    /// What the API is asked for a page of this size, from a cursor on.
    pub fn ask(&self, now: Timestamp, limit: u32, cursor: Option<&str>) -> Ask {
        if let Some(id) = &self.id {
            return Ask::One(format!("/api/executions/{}", encoded(id)));
        }
        if let (Some(key), Some(workflow)) = (&self.key, &self.workflow) {
            return Ask::One(format!("/api/workflows/{}/by-key/{}", encoded(workflow), encoded(key)));
        }
        let mut query = format!("/api/executions?limit={limit}");
        let mut add = |name: &str, value: &str| {
            query.push('&');
            query.push_str(name);
            query.push('=');
            query.push_str(&encoded(value));
        };
        let Which { status, from, until, ended_from, ended_until, min_duration_ms, retrying, .. } =
            self.which(now);
        if !status.is_empty() {
            add("status", &words_of(&status));
        }
        for (name, value) in [("workflow", &self.workflow), ("tag", &self.tag), ("error", &self.error)] {
            if let Some(value) = value {
                add(name, value);
            }
        }
        for (name, value) in &self.attributes {
            add("attribute", &format!("{name}:{value}"));
        }
        let ms = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        for (name, value) in [
            ("from", ms(from)),
            ("until", ms(until)),
            ("ended_from", ms(ended_from)),
            ("ended_until", ms(ended_until)),
            ("min_duration_ms", min_duration_ms),
        ] {
            if let Some(value) = value {
                add(name, &value.to_string());
            }
        }
        if retrying {
            add("retrying", "true");
        }
        if let Some(cursor) = cursor {
            add("cursor", cursor);
        }
        Ask::List(query)
    }

    /// Whether it means one run.
    pub fn is_of_one(&self) -> bool {
        self.id.is_some() || self.key.is_some()
    }

    /// The same, as the API has it.
    pub fn which(&self, now: Timestamp) -> Which {
        let at = |moment: &Option<Moment>| moment.as_ref().map(|moment| moment.at(now));
        let mut attributes = BTreeMap::new();
        for (name, value) in &self.attributes {
            attributes.insert(name.clone(), value.clone());
        }
        Which {
            // A run is asked for by its id.
            ids: Vec::new(),
            workflow: self.workflow.clone(),
            status: self.status.clone(),
            tag: self.tag.clone(),
            attributes,
            from: at(&self.since),
            until: at(&self.until),
            ended_from: at(&self.ended_since),
            ended_until: at(&self.ended_until),
            min_duration_ms: self.longer.as_ref().map(|(_, ms)| *ms),
            retrying: self.is_retrying,
            error: self.error.clone(),
        }
    }

    /// Whether a run is in the list, as far as its view tells: the key of its start is not in it.
    pub fn admits(&self, run: &RunView, now: Timestamp) -> bool {
        self.id.as_ref().is_none_or(|id| *id == run.id.to_string()) && self.which(now).admits(run, now)
    }

    /// Whether a run in this status can be in the list.
    pub fn may_admit(&self, status: Status) -> bool {
        let is_of_ended = self.ended_since.is_some() || self.ended_until.is_some();
        let can_be = if status.is_terminal() { !self.is_retrying } else { !is_of_ended };
        can_be && (self.status.is_empty() || self.status.contains(&status))
    }

    /// Whether a run that is in the list can leave it without another status.
    pub fn looks_inside(&self) -> bool {
        self.is_retrying || self.error.is_some()
    }

    /// Whether a run that is not in the list can be in it later, when it is another's turn or has changed.
    pub fn may_admit_later(&self) -> bool {
        !self.status.is_empty()
            || !self.attributes.is_empty()
            || self.ended_since.is_some()
            || self.ended_until.is_some()
            || self.longer.is_some()
            || self.error.is_some()
            || self.is_retrying
            || self.key.is_some()
    }

    /// The same for another status, or for any.
    #[must_use]
    pub fn with_status(&self, status: Option<Status>) -> Self {
        Self { status: status.into_iter().collect(), ..self.clone() }
    }

    /// The same for another workflow, or for any.
    #[must_use]
    pub fn with_workflow(&self, workflow: Option<String>) -> Self {
        Self { workflow, key: None, ..self.clone() }
    }
}

fn set<T>(slot: &mut Option<T>, field: &str, value: T) -> Result<(), NotAFilter> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(NotAFilter(format!("{field}: is there twice. A run has to match every field."))),
    }
}

fn words_of(statuses: &[Status]) -> String {
    let words: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
    words.join(",")
}

fn moment(text: &str) -> Result<Moment, NotAFilter> {
    Moment::of(text).ok_or_else(|| {
        NotAFilter(format!("'{text}' is not a time. Write a length such as 2h, or 2026-12-01T09:00Z."))
    })
}

/// A value as it stands in a text.
fn quoted(value: &str) -> String {
    let is_plain = !value.is_empty() && value.chars().all(|c| !c.is_whitespace() && c != '"' && c != '\\');
    if is_plain {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The words of a text, without the quotes around values.
fn words(text: &str) -> Result<Vec<String>, NotAFilter> {
    let (mut words, mut word, mut is_quoted, mut is_word) = (Vec::new(), String::new(), false, false);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                is_word = true;
            }
            '\\' if is_quoted => word.extend(rest.next()),
            c if c.is_whitespace() && !is_quoted => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_quoted {
        return Err(NotAFilter("A quotation mark is missing.".into()));
    }
    if is_word {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_794_000_000_000)
    }

    fn list(text: &str) -> String {
        match Filter::of(text).expect("a filter").ask(now(), 50, None) {
            Ask::List(query) | Ask::One(query) => query,
        }
    }

    #[test]
    fn fields_become_parameters() {
        assert_eq!(list(""), "/api/executions?limit=50");
        assert_eq!(
            list(r#"status:failed  workflow:"a b" tag:vip attr:customer=ac:me"#),
            "/api/executions?limit=50&status=failed&workflow=a%20b&tag=vip&attribute=customer:ac:me"
        );
        assert_eq!(
            list(r#"status:failed,paused is:retrying error:"card 7" longer:90s ended-since:2h"#),
            "/api/executions?limit=50&status=failed%2Cpaused&error=card%207&ended_from=1793992800000\
             &min_duration_ms=90000&retrying=true"
        );
        assert_eq!(list("since:2h"), "/api/executions?limit=50&from=1793992800000");
        assert_eq!(list("until:2026-11-06T21:20Z"), "/api/executions?limit=50&until=1794000000000");
        assert_eq!(list("key:a/b workflow:greet"), "/api/workflows/greet/by-key/a%2Fb");
        assert_eq!(list("default-1-3-1-bvyaw3bemryy"), "/api/executions/default-1-3-1-bvyaw3bemryy");
    }

    #[test]
    fn mistakes_are_named_with_what_to_write_instead() {
        for (text, said) in [
            ("greet", "workflow:greet"),
            ("status:done", "completed"),
            ("status:failed,done", "'done' is not a status"),
            ("is:stuck", "is:retrying"),
            ("longer:5", "90s"),
            ("stat:failed", "There is no field 'stat'"),
            ("status:failed status:paused", "twice"),
            ("tag:", "needs a value"),
            ("since:soon", "2h"),
            ("key:x", "workflow:NAME"),
            ("attr:x", "attr:name=value"),
            ("tag:\"x", "quotation mark"),
        ] {
            let error = Filter::of(text).expect_err(text);
            assert!(error.0.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_filter_means_the_same_as_its_text(
            workflow in proptest::option::of(".+"),
            tag in proptest::option::of(".+"),
            name in "[a-z]{1,5}",
            value in ".*",
            status in proptest::collection::vec(0..8_usize, 0..4),
            error in proptest::option::of(".{1,60}"),
            is_retrying: bool,
        ) {
            let mut which = Which::default();
            for index in status {
                which.add_status(Status::ALL[index]);
            }
            let filter = Filter {
                status: which.status,
                error,
                is_retrying,
                workflow,
                tag,
                attributes: vec![(name, value)],
                ..Filter::default()
            };
            prop_assert_eq!(Filter::of(&filter.text()), Ok(filter));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            if let Ok(filter) = Filter::of(&text) {
                prop_assert_eq!(Filter::of(&filter.text()), Ok(filter));
            }
        }
    }
}
