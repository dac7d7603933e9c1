//! `stepwell settings`: what holds for the runs of the key's namespace, from their start on.

use std::str::FromStr;

use clap::{Args, Subcommand};
use stepwell_protocol::access::{Limits, RunSettings, Settings as Set};

use super::keys::nothing_to_set;
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What to do if nobody knows whether it was set.
pub const DOUBT: &str = "It may have been set: do it again, that does no harm.";

/// What one has to know who tries them with the key of `stepwell dev`.
pub const NOT_FOR_ALL: &str =
    "Runs that STEPWELL_KEY starts ignore limits and settings; their children do not.";

/// What can be done with settings.
#[derive(Debug, Subcommand)]
pub enum Settings {
    /// Show the settings and limits of the namespace.
    Show,
    /// Change settings for all runs, or for those of one workflow. Settings that you do not name stay as they are.
    Set(Change),
    /// Remove the settings of a workflow.
    Remove(Remove),
}

/// What a change takes.
#[derive(Debug, Args)]
pub struct Change {
    /// Only for runs of this workflow. Takes precedence over the workflow's code.
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// How long a run may take, such as 90s or 2d; none removes the setting.
    #[arg(long, value_name = "TIME")]
    timeout: Option<Maybe<Length>>,
    /// How long a run is kept after its end, such as 30d; 0s keeps it forever, none removes the setting.
    #[arg(long, value_name = "TIME")]
    retention: Option<Maybe<Length>>,
    /// The largest input or signal in bytes; none removes the setting.
    #[arg(long, value_name = "N")]
    payload_bytes_max: Option<Maybe<u32>>,
}

/// What removing takes.
#[derive(Debug, Args)]
pub struct Remove {
    /// The workflow.
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
}

/// Something, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maybe<T>(pub Option<T>);

impl<T: FromStr> FromStr for Maybe<T>
where
    T::Err: ToString,
{
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.parse()
            .map(|value| Self(Some(value)))
            .map_err(|error: T::Err| format!("{}, or none", error.to_string()))
    }
}

/// A length of time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length(u64);

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        words::parse_length(text).map(Self)
    }
}

impl Settings {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let answer = match self {
            Self::Show => client.get(&["settings"], &Ask::default())?,
            Self::Set(change) => {
                if change.is_empty() {
                    return Err(nothing_to_set());
                }
                let before: Answer<Set> = client.get(&["settings"], &Ask::default())?;
                let body = serde_json::to_string(&change.over(&before.value))
                    .expect("it holds only what JSON can say");
                let path = match &change.workflow {
                    Some(workflow) => vec!["settings", "workflows", workflow],
                    None => vec!["settings"],
                };
                client.put(&path, &Ask { body: Some(body), doubt: Some(DOUBT), ..Ask::default() })?
            }
            Self::Remove(Remove { workflow }) => {
                client.delete(&["settings", "workflows", &workflow], &Ask::default())?
            }
        };
        show(global, &answer);
        if !global.json {
            anstream::println!("{NOT_FOR_ALL}");
        }
        Ok(())
    }
}

impl Change {
    fn is_empty(&self) -> bool {
        self.timeout.is_none() && self.retention.is_none() && self.payload_bytes_max.is_none()
    }

    /// What holds once it is done.
    fn over(&self, before: &Set) -> RunSettings {
        let before = match &self.workflow {
            Some(workflow) => before.workflows.get(workflow).copied().unwrap_or_default(),
            None => before.runs,
        };
        let length = |named: Option<Maybe<Length>>, before| {
            named.map_or(before, |Maybe(value)| value.map(|Length(ms)| ms))
        };
        RunSettings {
            timeout_ms: length(self.timeout, before.timeout_ms),
            retention_ms: length(self.retention, before.retention_ms),
            payload_bytes_max: self.payload_bytes_max.map_or(before.payload_bytes_max, |Maybe(value)| value),
        }
    }
}

/// Shows the settings and limits of a namespace.
pub fn show(global: &Global, answer: &Answer<Set>) {
    if global.json {
        anstream::println!("{}", answer.text);
        return;
    }
    let Set { limits, runs, workflows } = &answer.value;
    let Limits { requests_per_second, payload_bytes_per_second, live_runs, payload_bytes_max } = *limits;
    let number = |value: Option<u32>| value.map_or_else(|| "no limit".to_owned(), |value| value.to_string());
    let line = |name: &str, value: String| vec![format!("  {name}"), value];
    anstream::println!("limits");
    table::print(&[
        line("requests per second", number(requests_per_second)),
        line("payload bytes per second", number(payload_bytes_per_second)),
        line("live runs", number(live_runs)),
        line("payload bytes at most", number(payload_bytes_max)),
    ]);
    show_runs("all runs", runs);
    for (workflow, own) in workflows {
        show_runs(&format!("runs of {}", words::plain(workflow)), own);
    }
}

fn show_runs(whose: &str, settings: &RunSettings) {
    let RunSettings { timeout_ms, retention_ms, payload_bytes_max } = *settings;
    let or = |text: Option<String>| text.unwrap_or_else(|| "not set".to_owned());
    let kept = |ms| if ms == 0 { "forever".to_owned() } else { words::length(ms) };
    let line = |name: &str, value: String| vec![format!("  {name}"), value];
    anstream::println!("{whose}");
    table::print(&[
        line("may take", or(timeout_ms.map(words::length))),
        line("are kept", or(retention_ms.map(kept))),
        line("payload bytes at most", or(payload_bytes_max.map(|bytes| bytes.to_string()))),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays_as_it_is() {
        let before = Set {
            runs: RunSettings { timeout_ms: Some(1), retention_ms: Some(2), payload_bytes_max: Some(3) },
            ..Set::default()
        };
        let change = |workflow: Option<&str>| Change {
            workflow: workflow.map(str::to_owned),
            timeout: Some(Maybe(None)),
            retention: Some(Maybe(Some(Length(9)))),
            payload_bytes_max: None,
        };
        let all = RunSettings { timeout_ms: None, retention_ms: Some(9), payload_bytes_max: Some(3) };
        assert_eq!(change(None).over(&before), all);
        let own = RunSettings { timeout_ms: None, retention_ms: Some(9), payload_bytes_max: None };
        assert_eq!(change(Some("greet")).over(&before), own, "those of all runs are not its own");
    }

    #[test]
    fn none_is_nothing_and_the_rest_is_read() {
        assert_eq!("none".parse(), Ok(Maybe::<u32>(None)));
        assert_eq!("7".parse(), Ok(Maybe(Some(7_u32))));
        assert_eq!("2h".parse(), Ok(Maybe(Some(Length(7_200_000)))));
        assert!("many".parse::<Maybe<u32>>().is_err_and(|error| error.ends_with(", or none")));
    }
}
