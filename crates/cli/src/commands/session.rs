//! `stepwell session`: signs in and out. A session's token is sent like a key.

use clap::{Args, Subcommand};
use serde::de::IgnoredAny;
use stepwell_protocol::access::{OpenedSession, SessionList, SessionView};

use super::keys::{Quietly, scopes};
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub enum Session {
    /// Sign in with a key, and print a session token with the key's scopes. It ends after twelve hours without a
    /// request.
    Open(Open),
    /// Show the current session.
    Show,
    /// List the sessions of the namespace. Needs the scope admin.
    List,
    /// Sign out, or end another session.
    End(End),
}

/// Which session to end.
#[derive(Debug, Args)]
pub struct End {
    /// The id of a session of the namespace; the default is your own.
    #[arg(value_name = "ID")]
    id: Option<String>,
}

/// What signing in takes.
#[derive(Debug, Args)]
pub struct Open {
    #[command(flatten)]
    quietly: Quietly,
}

impl Session {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        match self {
            Self::Open(Open { quietly }) => {
                let doubt = Some("It may be open. Nobody has its token, and it ends by itself: try again.");
                let ask = Ask { doubt, ..Ask::default() };
                let sent = client.post(&["session"], &ask);
                let next = "Name a key instead of a token, with STEPWELL_KEY or a profile.";
                let answer: Answer<OpenedSession> =
                    sent.map_err(|failure| failure.next_about("wrong_status", next))?;
                let OpenedSession { token, view } = &answer.value;
                let about = format!("{} Send it as a key: STEPWELL_KEY.", described(view));
                quietly.show(global, &answer.text, token, &about);
            }
            Self::Show => {
                let sent = client.get(&["session"], &Ask::default());
                let next = "`stepwell session open` opens one.";
                let answer: Answer<SessionView> =
                    sent.map_err(|failure| failure.next_about("wrong_status", next))?;
                let text = if global.json { answer.text } else { described(&answer.value) };
                anstream::println!("{text}");
            }
            Self::List => {
                let answer: Answer<SessionList> = client.get(&["sessions"], &Ask::default())?;
                if global.json {
                    anstream::println!("{}", answer.text);
                    return Ok(());
                }
                if answer.value.sessions.is_empty() {
                    anstream::eprintln!("Nobody is signed in.");
                }
                table::print(&answer.value.sessions.iter().map(row).collect::<Vec<_>>());
            }
            Self::End(End { id }) => {
                let (path, done) = match &id {
                    Some(id) => (vec!["sessions", id], format!("Session {} has ended.", words::plain(id))),
                    None => (vec!["session"], "Signed out.".to_owned()),
                };
                let next = "`stepwell session list` lists the sessions.";
                let sent = client.delete(&path, &Ask::default());
                let _: Answer<IgnoredAny> =
                    sent.map_err(|failure| failure.next_about("key_not_found", next))?;
                anstream::println!("{}", if global.json { r#"{"ended":true}"# } else { &done });
            }
        }
        Ok(())
    }
}

fn row(view: &SessionView) -> Vec<String> {
    let times = [view.created_at, view.expires_at].map(words::date);
    let [opened, until] = times;
    let until = format!("until {until}");
    vec![words::plain(&view.id), words::plain(&view.subject), scopes(&view.scopes), opened, until]
}

fn described(view: &SessionView) -> String {
    format!(
        "Signed in to {} as {}, until {}. It allows {}.",
        words::plain(&view.namespace),
        words::plain(&view.subject),
        words::date(view.expires_at),
        scopes(&view.scopes)
    )
}
