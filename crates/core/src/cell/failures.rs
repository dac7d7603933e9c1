//! Failed runs, in groups of those that failed alike. What is known of them outlives the runs.
//!
//! Owns: which failures are alike, and how many groups are kept for how long. Each failed run writes one row, in the turn that
//! ends it; no other run writes any. If that row cannot be written, the run has failed all the same.

use stepwell_protocol::{Failure, Timestamp, failures::FailureGroup, text};

use super::{Cell, Rows};
use crate::{
    object::{Fault, Hosted as _, Letters},
    run::{Entry, Run},
};

/// How many groups a cell keeps. Beyond that, the workflow with the most groups loses the one that has not failed for longest.
pub const FAILURE_GROUPS_MAX: usize = 500;

/// How long a group is kept after its last failure.
pub const FAILURES_KEPT_MS: u64 = 90 * 86_400_000;

/// How much of a message tells groups apart.
const MESSAGE_BYTES_MAX: usize = 200;

/// How much of a message is looked at.
const LOOKED_AT_BYTES_MAX: usize = 1_000;

/// The rows of failed runs. They outlive the rows of the runs.
pub trait FailureRows: Letters {
    /// A group of failed runs, by its id.
    fn failure(&self, id: &str) -> Result<Option<FailureGroup>, Self::Error>;

    /// Stores a group, by one row. Before a new one, those are forgotten that have not failed since a time; and while there are
    /// more than so many, of the workflow that has the most the one that failed least lately: no workflow pushes out all others.
    fn keep_failure(
        &self,
        group: &FailureGroup,
        forget: Option<(Timestamp, usize)>,
    ) -> Result<(), Self::Error>;

    /// Gives all groups, in no order.
    fn each_failure(&self, each: &mut dyn FnMut(FailureGroup)) -> Result<(), Self::Error>;
}

/// After a commit: a run that has failed is counted.
pub(super) fn count_failure<R: Rows>(rows: &R, now: Timestamp, run: &Run, entries: &[Entry]) {
    for entry in entries {
        if let Entry::Failed { failure, .. } = entry {
            // No run depends on it.
            let _ = note(rows, now, run, failure);
        }
    }
}

impl Cell {
    /// The groups of one workflow, or of all.
    pub fn failures<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        workflow: Option<&str>,
    ) -> Result<Vec<FailureGroup>, Fault<R::Error>> {
        let since = kept_since(self.now(clock));
        let mut groups = Vec::new();
        let each = &mut |group: FailureGroup| {
            if group.last_at >= since && workflow.is_none_or(|wanted| wanted == group.workflow) {
                groups.push(group);
            }
        };
        rows.each_failure(each).map_err(Fault::Storage)?;
        Ok(groups)
    }
}

fn note<R: Rows>(rows: &R, now: Timestamp, run: &Run, failure: &Failure) -> Result<(), R::Error> {
    let (step, message) = of_step(run, &failure.message);
    let (step, message) = (step.map(alike), alike(message));
    let id = FailureGroup::id_of(&run.workflow, failure.code, step.as_deref(), &message);
    let known = rows.failure(&id)?;
    let forget = known.is_none().then(|| (kept_since(now), FAILURE_GROUPS_MAX - 1));
    let mut group = known.unwrap_or_else(|| FailureGroup {
        id,
        workflow: run.workflow.clone(),
        code: failure.code,
        step,
        message,
        count: 0,
        first_at: now,
        last_at: now,
        runs: Vec::new(),
    });
    group.count += 1;
    group.last_at = group.last_at.max(now);
    // A run that is retried may fail again.
    group.runs.retain(|id| *id != run.id);
    group.runs.insert(0, run.id.clone());
    group.runs.truncate(FailureGroup::RUNS_MAX);
    rows.keep_failure(&group, forget)
}

fn kept_since(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(FAILURES_KEPT_MS))
}

/// The step that a failure comes from, and its own message. The SDK writes the name of the step before it.
fn of_step<'a>(run: &'a Run, message: &'a str) -> (Option<&'a str>, &'a str) {
    let Some(step) = run.last_error.as_ref().map(|last| last.step.as_str()) else { return (None, message) };
    let words = format!("step '{step}' failed: ");
    match message.split_once(&words) {
        Some(("", own)) => (Some(step), own),
        // Somebody has put words of their own before it.
        Some(_) => (Some(step), message),
        None => (None, message),
    }
}

/// A message as all those have it that failed alike: numbers, ids and quotations have placeholders.
pub fn alike(message: &str) -> String {
    let mut message = message.to_owned();
    let is_cut = message.len() > LOOKED_AT_BYTES_MAX;
    text::cut(&mut message, LOOKED_AT_BYTES_MAX);
    let mut words = Words { rest: &message, out: String::new(), is_cut };
    while words.next() {}
    let mut out = words.out.trim_end().to_owned();
    text::cut(&mut out, MESSAGE_BYTES_MAX);
    out
}

struct Words<'a> {
    rest: &'a str,
    out: String,
    /// Whether there was more: then a quotation that does not end may have ended there.
    is_cut: bool,
}

impl Words<'_> {
    /// Takes over one more word, space or sign.
    fn next(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if first.is_whitespace() || text::is_hidden(first) {
            self.skip(first.len_utf8());
            if !self.out.is_empty() && !self.out.ends_with(' ') {
                self.out.push(' ');
            }
        } else if let Some(length) = self.address() {
            self.skip(length);
            self.out.push_str("<id>");
        } else if let Some(length) = self.quoted(first) {
            self.skip(length);
            self.out.push_str("<text>");
        } else if first.is_alphanumeric() {
            let is_in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
            let end = self.rest.find(|c| !is_in_word(c)).unwrap_or(self.rest.len());
            // A hyphen at the end is a dash.
            let word = self.rest[..end].trim_end_matches('-');
            let placed = placeholder(word);
            self.out.push_str(placed.as_deref().unwrap_or(word));
            let length = word.len();
            self.skip(length);
        } else {
            self.skip(first.len_utf8());
            self.out.push(first);
        }
        true
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// How long the word is that begins here, if it is an e-mail address or the like.
    fn address(&self) -> Option<usize> {
        let begins = !self.out.ends_with(char::is_alphanumeric);
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        (begins && self.rest[..end].contains('@')).then_some(end)
    }

    /// How long the quotation is that begins here, if one does. An apostrophe within a word begins none, and one that ends
    /// nothing does not either; any other quotation that does not end goes on to the end.
    fn quoted(&self, first: char) -> Option<usize> {
        let closing = match first {
            '"' | '`' => first,
            '\'' if !self.out.ends_with(char::is_alphanumeric) => first,
            '“' => '”',
            '‘' => '’',
            '«' => '»',
            _ => return None,
        };
        let start = first.len_utf8();
        let within = &self.rest[start..];
        let mut is_escaped = false;
        for (at, c) in within.char_indices() {
            let end = at + c.len_utf8();
            let is_end = c == closing && !is_escaped;
            if is_end && (first != '\'' || !within[end..].starts_with(char::is_alphanumeric)) {
                return Some(start + end);
            }
            is_escaped = c == '\\' && !is_escaped;
        }
        (first != '\'' || self.is_cut).then_some(self.rest.len())
    }
}

/// What stands for a word that differs from run to run; nothing for any other word.
fn placeholder(word: &str) -> Option<String> {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 {
        let is_hex = word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        return is_hex.then(|| "<id>".to_owned());
    }
    // Numbers, also with a unit: `30s`, `5000ms`, `0x1f`.
    let without_unit = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if !without_unit.is_empty() && without_unit.bytes().all(|byte| byte.is_ascii_digit()) {
        let unit = &word[without_unit.len()..];
        if unit.len() <= 3 {
            return Some(format!("<n>{unit}"));
        }
    }
    // Ids mix letters and digits, or are long: a name such as `s3` or `utf-8` stays as it is.
    let is_id = word.len() >= 8 && digits >= 2;
    let replaced = || {
        let mut out = String::new();
        for c in word.chars() {
            if !c.is_ascii_digit() {
                out.push(c);
            } else if !out.ends_with("<n>") {
                out.push_str("<n>");
            }
        }
        out
    };
    if is_id {
        Some("<id>".to_owned())
    } else if word.len() <= 3 {
        None
    } else {
        Some(replaced())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_has_a_placeholder() {
        let long = format!("gateway answered '{}'", "a body of somebody ".repeat(100));
        assert_eq!(alike(&long), "gateway answered <text>");
        for (message, wanted) in [
            ("busy", "busy"),
            ("order 4711 is unknown", "order <n> is unknown"),
            ("took 5000ms, limit 30s", "took <n>ms, limit <n>s"),
            ("user 'ada' and \"grace\" differ", "user <text> and <text> differ"),
            ("it doesn't exist and can't", "it doesn't exist and can't"),
            ("run 6f9619ff-8b86-d011-b42d-00cf4fc964ff ended", "run <id> ended"),
            ("digest deadbeefdeadbeefcafe differs", "digest <id> differs"),
            ("run default-1-3-1-bvyaw3bemryy", "run <id>"),
            ("at 2026-11-18T20:43:54Z", "at <id>:<n>:<n>Z"),
            ("HTTP 503 from s3 in utf-8", "HTTP <n> from s3 in utf-<n>"),
            ("a\u{0}b\u{202e}c\n\n  d", "a b c d"),
            ("string \"a \\\"quoted\\\" word\", expected i64", "string <text>, expected i64"),
            ("ada.lovelace@example.com is unknown", "<id> is unknown"),
            ("'don't' is no name", "<text> is no name"),
            ("it began with \"and never ended", "it began with <text>"),
            ("", ""),
        ] {
            assert_eq!(alike(message), wanted, "{message}");
        }
    }

    #[test]
    fn messages_are_bounded_and_end_between_characters() {
        let long = alike(&"ä ".repeat(5_000));
        assert!(long.len() <= MESSAGE_BYTES_MAX && long.starts_with("ä ä"), "{}", long.len());
        assert_eq!(alike(&format!("'{}' \"{}\" b", "y ".repeat(90), "z ".repeat(200))), "<text> <text> b");
    }

    #[test]
    fn a_message_that_was_looked_at_stays_the_same() {
        for message in ["order <n> is unknown", "run <id> ended: <text>", "took <n>ms"] {
            assert_eq!(alike(message), message);
        }
    }
}
