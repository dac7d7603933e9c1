//! `stepwell session`: signs in and out. A session's token is sent like a key.

use clap::{Args, Subcommand};
use serde::de::IgnoredAny;
use stepwell_protocol::access::{OpenedSession, SessionView};

use super::keys::{Quietly, scopes};
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    words,
};

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub enum Session {
    /// Sign in with a key: gives a token of twelve hours, with the key's scopes.
    Open(Open),
    /// Show who is signed in with the token that is sent.
    Show,
    /// Sign out: the token that is sent is good no more.
    End,
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
            Self::End => {
                let _: Answer<IgnoredAny> = client.delete(&["session"], &Ask::default())?;
                anstream::println!("{}", if global.json { r#"{"ended":true}"# } else { "Signed out." });
            }
        }
        Ok(())
    }
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
