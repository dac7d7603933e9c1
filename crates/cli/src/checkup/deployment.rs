//! The configuration of the command line, and the deployment that it names.

use super::{Check, State};
use crate::{
    Global,
    client::{Ask, Client},
    config, private, words,
};

/// The shortest key that a deployment accepts.
const KEY_LENGTH_MIN: usize = 32;

/// The configuration, and whether the deployment that it names answers.
pub fn checks(global: &Global) -> Vec<Check> {
    let target = match global.target() {
        Ok(target) => target,
        Err(failure) => return vec![Check::of("configuration", State::Bad, failure)],
    };
    let mut checks = Vec::new();
    if let Some(path) = config::path().filter(|path| path.exists()) {
        let has_key = std::fs::read_to_string(&path).is_ok_and(|text| text.lines().any(sets_key));
        checks.push(if has_key && private::is_open_to_others(&path) {
            Check::bad(
                "configuration",
                format!("others on this machine can read {}", path.display()),
                format!("chmod 600 {}", path.display()),
            )
        } else {
            Check::good("configuration", path.display().to_string())
        });
    }
    let address = target.address.clone();
    let source = target.source.clone();
    let key_source = target.key_source.clone();
    let key_length = target.key.as_ref().map(|key| key.secret().len());
    let client = Client::new(target);
    let ask = Ask { query: vec![("limit", "1".into())], ..Ask::default() };
    let answer = client.status(&["executions"], &ask);
    match answer {
        Err(failure) => checks.push(Check::of("address", State::Bad, failure)),
        Ok((status, text)) => {
            let is_ours = status == 200 || text.contains("\"code\":");
            if !is_ours {
                let what = format!("{address} answers {status}, and not as Stepwell does");
                checks.push(Check::bad("address", what, format!("It comes from {source}.")));
                return checks;
            }
            checks.push(Check::good("address", format!("{address}, from {source}")));
            checks.push(match status {
                200 => Check::good("key", format!("accepted, from {key_source}")),
                401 => refused(key_length, &key_source),
                _ if text.contains("\"misconfigured\"") => Check::bad(
                    "key",
                    format!("the deployment refuses everybody: {}", detail(&text)),
                    "openssl rand -hex 32 | npx wrangler secret put STEPWELL_KEY   (see docs/errors/misconfigured.md)",
                ),
                other => Check::bad("key", format!("the answer is {other}"), "Look into the Worker's log."),
            });
        }
    }
    checks
}

/// What to do about a key that is refused.
fn refused(length: Option<usize>, source: &str) -> Check {
    let remedy = "Set STEPWELL_KEY, or `key` in a profile, to the key of this deployment.";
    match length {
        None => Check::bad("key", "there is none", "Set STEPWELL_KEY, or `key` in a profile."),
        Some(length @ ..KEY_LENGTH_MIN) => {
            let found = format!(
                "refused; it comes from {source} and has {length} characters, while every key has at least \
                 {KEY_LENGTH_MIN}"
            );
            Check::bad("key", found, remedy)
        }
        Some(_) => Check::bad("key", format!("refused; it comes from {source}"), remedy),
    }
}

/// What a problem says, as the engine writes it.
fn detail(text: &str) -> String {
    let problem = serde_json::from_str::<serde_json::Value>(text).ok();
    let detail = problem.as_ref().and_then(|problem| problem.get("detail")?.as_str());
    detail.map_or_else(
        || "its settings make no sense, or its key is missing or too short".to_owned(),
        |detail| words::plain(detail.trim_end_matches('.')),
    )
}

/// Whether a line of the configuration has a key in it.
fn sets_key(line: &str) -> bool {
    line.trim_start().strip_prefix("key").is_some_and(|rest| rest.trim_start().starts_with('='))
}
