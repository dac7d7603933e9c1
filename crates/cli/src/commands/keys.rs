//! `stepwell keys`: the keys of a namespace.
//!
//! A new key is shown once, alone on standard output, so that it can be piped to where it is kept; what is said about
//! it goes to standard error.

use anstyle::{AnsiColor, Style};
use clap::{Args, Subcommand, ValueEnum};
use stepwell_protocol::{
    Timestamp,
    access::{CreatedKey, KeyList, KeyStatus, KeyView, NewKey, Permission, Rotation},
    key,
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::{Failure, Result},
    table, words,
};

/// What to do if nobody knows whether a key was made.
const DOUBT: &str =
    "It may have succeeded. Check with `stepwell keys list`, and revoke keys that you have not received.";

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// List the keys, newest first.
    List,
    /// Create a key. It is shown only once.
    Create(Create),
    /// Replace a key. The old key stays active for the overlap.
    Rotate(Rotate),
    /// Revoke a key, within a second.
    Revoke(Revoke),
}

/// What making a key takes.
#[derive(Debug, Args)]
pub struct Create {
    /// A name for people.
    name: String,
    /// A scope: read, write or admin, or read:NAME or write:NAME for one workflow. Repeatable.
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<Permission>,
    /// When it expires: 2026-11-15, 2026-11-15T08:00:00Z, or a time from now such as 12h or 30d.
    #[arg(long, value_name = "TIME", value_parser = words::parse_end)]
    expires: Option<Timestamp>,
    /// A label in the key's text, for people.
    #[arg(long, value_name = "KIND", default_value = "live")]
    environment: Environment,
    /// The namespace to create it in. Needs the deployment's own key.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    quietly: Quietly,
}

/// What a key is for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Environment {
    Live,
    Test,
}

/// What rotating a key takes.
#[derive(Debug, Args)]
pub struct Rotate {
    /// The key's id.
    #[arg(value_name = "KEY-ID", value_parser = id)]
    id: String,
    /// How long the old key stays active, such as 1h; the default is a day, the maximum 30 days, and 0s revokes it.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    overlap: Option<u64>,
    #[command(flatten)]
    quietly: Quietly,
}

/// What revoking a key takes.
#[derive(Debug, Args)]
pub struct Revoke {
    /// The key's id.
    #[arg(value_name = "KEY-ID", value_parser = id)]
    id: String,
}

/// How much is said about something secret.
#[derive(Debug, Args)]
pub struct Quietly {
    /// Print only the secret.
    #[arg(long, short)]
    pub quiet: bool,
}

impl Keys {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        match self {
            Self::List => list(global),
            Self::Create(create) => create.run(global),
            Self::Rotate(rotate) => rotate.run(global),
            Self::Revoke(revoke) => revoke.run(global),
        }
    }
}

fn list(global: &Global) -> Result {
    let answer: Answer<KeyList> = global.client()?.get(&["keys"], &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    if answer.value.keys.is_empty() {
        anstream::eprintln!("There are no keys except the deployment's own.");
        anstream::eprintln!("next: stepwell keys create NAME --scope read");
    }
    let now = words::now();
    let rows: Vec<_> = answer.value.keys.iter().map(|key| row(key, now)).collect();
    table::print(&rows);
    Ok(())
}

fn row(key: &KeyView, now: Timestamp) -> Vec<String> {
    let (style, status) = match key.status {
        KeyStatus::Active => (AnsiColor::Green.on_default(), "active"),
        KeyStatus::Expired => (Style::new().dimmed(), "expired"),
        KeyStatus::Revoked => (AnsiColor::Red.on_default(), "revoked"),
    };
    let mut notes =
        vec![format!("made {} by {}", words::distance(key.created_at, now), words::plain(&key.created_by))];
    let ago = |at| words::distance(at, now);
    match (key.status, key.revoked_at, key.expires_at) {
        (KeyStatus::Revoked, Some(at), _) => notes.push(format!("revoked {}", ago(at))),
        (KeyStatus::Active, _, Some(at)) => notes.push(format!("expires {}", ago(at))),
        (KeyStatus::Expired, _, Some(at)) => notes.push(format!("expired {}", ago(at))),
        (KeyStatus::Active | KeyStatus::Expired | KeyStatus::Revoked, ..) => {}
    }
    if let Some(next) = &key.replaced_by {
        notes.push(format!("{} replaces it", words::plain(next)));
    }
    if key.environment != "live" {
        notes.push(format!("for {}", words::plain(&key.environment)));
    }
    vec![
        words::plain(&key.id),
        words::plain(&key.name),
        format!("{style}{status}{style:#}"),
        scopes(&key.scopes),
        notes.join(", "),
    ]
}

impl Create {
    fn run(self, global: &Global) -> Result {
        let environment = match self.environment {
            Environment::Live => None,
            Environment::Test => Some("test".to_owned()),
        };
        let new = NewKey { name: self.name, scopes: self.scopes, environment, expires_at: self.expires };
        let body = serde_json::to_string(&new).expect("it holds only what JSON can say");
        let ask = Ask { body: Some(body), doubt: Some(DOUBT), ..Ask::default() };
        let path = match &self.namespace {
            Some(namespace) => vec!["namespaces", namespace, "keys"],
            None => vec!["keys"],
        };
        let answer = global.client()?.post(&path, &ask)?;
        self.quietly.show_key(global, &answer);
        Ok(())
    }
}

impl Rotate {
    fn run(self, global: &Global) -> Result {
        let rotation = Rotation { overlap_ms: self.overlap };
        let body = serde_json::to_string(&rotation).expect("it holds only what JSON can say");
        let ask = Ask { body: Some(body), doubt: Some(DOUBT), ..Ask::default() };
        let sent = global.client()?.post(&["keys", &self.id, "rotate"], &ask);
        let next = "`stepwell keys list` shows its replacement.";
        let answer = sent.map_err(|failure| failure.next_about("wrong_status", next))?;
        self.quietly.show_key(global, &answer);
        if !self.quietly.quiet && !global.json {
            let overlap = self.overlap.map_or_else(|| "a day".to_owned(), words::length);
            anstream::eprintln!("{} stays active for {overlap}, or until it expires.", self.id);
        }
        Ok(())
    }
}

impl Revoke {
    fn run(self, global: &Global) -> Result {
        let doubt = Some("It may have been done: do it again, that does no harm.");
        let ask = Ask { doubt, ..Ask::default() };
        let answer: Answer<KeyView> = global.client()?.post(&["keys", &self.id, "revoke"], &ask)?;
        if global.json {
            anstream::println!("{}", answer.text);
        } else {
            let KeyView { id, name, .. } = &answer.value;
            anstream::println!("{} ({}) is revoked", words::plain(id), words::plain(name));
        }
        Ok(())
    }
}

impl Quietly {
    /// Shows a new key, for the only time.
    fn show_key(&self, global: &Global, answer: &Answer<CreatedKey>) {
        let CreatedKey { key, view } = &answer.value;
        let ends = view.expires_at.map_or_else(
            || "It does not expire.".to_owned(),
            |at| format!("It expires {}, at {}.", words::distance(at, words::now()), words::date(at)),
        );
        let about = format!(
            "{} ({}) allows {}. {ends}",
            words::plain(&view.id),
            words::plain(&view.name),
            scopes(&view.scopes)
        );
        self.show(global, &answer.text, key, &about);
    }

    /// Shows something secret alone on standard output, and says beside it what it is.
    pub fn show(&self, global: &Global, json: &str, secret: &str, about: &str) {
        anstream::println!("{}", if global.json { json } else { secret });
        if self.quiet {
            return;
        }
        if !global.json {
            anstream::eprintln!("{about}");
        }
        anstream::eprintln!("It is shown only once and not stored: keep it in a safe place.");
    }
}

/// Scopes in a row.
pub fn scopes(scopes: &[Permission]) -> String {
    let scopes: Vec<_> = scopes.iter().map(|scope| words::plain(&scope.to_string())).collect();
    scopes.join(", ")
}

/// The id of a key. Who has only the key itself may give that: its id stands in it, and nothing else of it is sent.
fn id(text: &str) -> std::result::Result<String, String> {
    match key::read(text) {
        Ok(named) => Ok(named.id),
        Err(_) if text.starts_with("sw_") => {
            Err("a key has an id of eight characters, see `keys list`".into())
        }
        Err(_) => Ok(text.to_owned()),
    }
}

/// Refuses a command that would change nothing.
pub fn nothing_to_set() -> Failure {
    Failure::usage("there is nothing to set").next("--help lists the settings.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_key_nothing_but_its_id_is_sent() {
        let fresh = key::make(key::Kind::Live, "acme", [7; key::RANDOM_BYTES]);
        assert_eq!(id(&fresh.text), Ok(fresh.named.id));
        assert_eq!(id("00jmmvwm"), Ok("00jmmvwm".to_owned()));
        let cut = &fresh.text[..fresh.text.len() - 1];
        let error = id(cut).expect_err("a part of a key is no id");
        assert!(!error.contains(cut), "{error}");
    }
}
