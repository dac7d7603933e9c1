//! The filter of a list: what people type, and what the API is asked for it.
//!
//! A filter is words of the form `field:value`, such as `status:failed workflow:greet since:2h`. A value with blanks
//! stands in quotes. A run's id alone leads to that run.

use std::fmt;

use stepwell_protocol::{
    RunId, Timestamp,
    rest::{RunView, Status},
    span,
};

use crate::{place::encoded, when};

/// What can stand before a colon, with what it means.
pub const FIELDS: [(&str, &str); 8] = [
    ("status", "pending, running, sleeping, waiting, paused, completed, failed or cancelled"),
    ("workflow", "the workflow's name"),
    ("tag", "one of its tags"),
    ("attr", "an attribute, as attr:name=value"),
    ("since", "accepted within a length of time, such as 2h, or at or after an instant"),
    ("until", "accepted before that"),
    ("key", "the idempotency key of its start, together with workflow"),
    ("id", "the run's id"),
];

/// A filter that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In this status.
    pub status: Option<Status>,
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
            "status" => match Status::of(value) {
                Some(status) => set(&mut self.status, field, status),
                None => {
                    let all: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).collect();
                    Err(NotAFilter(format!("'{value}' is not a status. There are {}.", all.join(", "))))
                }
            },
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
        if let Some(status) = self.status {
            add("status", status.as_str());
        }
        for (field, value) in [("workflow", &self.workflow), ("tag", &self.tag)] {
            if let Some(value) = value {
                add(field, value);
            }
        }
        for (name, value) in &self.attributes {
            add("attr", &format!("{name}={value}"));
        }
        for (field, value) in [("since", &self.since), ("until", &self.until)] {
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
        if let Some(status) = self.status {
            add("status", status.as_str());
        }
        for (name, value) in [("workflow", &self.workflow), ("tag", &self.tag)] {
            if let Some(value) = value {
                add(name, value);
            }
        }
        for (name, value) in &self.attributes {
            add("attribute", &format!("{name}:{value}"));
        }
        for (name, value) in [("from", &self.since), ("until", &self.until)] {
            if let Some(moment) = value {
                add(name, &moment.at(now).as_millis().to_string());
            }
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

    /// Whether a run is in the list, as far as its view tells: the key of its start is not in it.
    pub fn admits(&self, run: &RunView, now: Timestamp) -> bool {
        self.id.as_ref().is_none_or(|id| *id == run.id.to_string())
            && self.status.is_none_or(|status| status == run.status)
            && self.workflow.as_ref().is_none_or(|workflow| *workflow == run.workflow)
            && self.tag.as_ref().is_none_or(|tag| run.tags.contains(tag))
            && self.attributes.iter().all(|(name, value)| run.attributes.get(name) == Some(value))
            && self.since.as_ref().is_none_or(|since| run.created_at >= since.at(now))
            && self.until.as_ref().is_none_or(|until| run.created_at < until.at(now))
    }

    /// The same for another status, or for any.
    #[must_use]
    pub fn with_status(&self, status: Option<Status>) -> Self {
        Self { status, ..self.clone() }
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
            status in proptest::option::of(0..8_usize),
        ) {
            let filter = Filter {
                status: status.map(|index| Status::ALL[index]),
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
