//! Why a command did not do what it was asked for: what happened, and what to do next.
//!
//! Owns: the exit codes, and how a failure is written for a person or as JSON. A key is never part of one.

use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde_json::json;

use crate::words;

/// What a script can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The server refused the request.
    Refused = 1,
    /// The command line, an input or the configuration makes no sense.
    Usage = 2,
    /// No answer came from the address.
    Unreachable = 3,
    /// The run that was waited for has failed or was cancelled.
    RunFailed = 4,
    /// The run that was waited for is paused with a problem, and waits for a person.
    RunPaused = 5,
    /// Something on this machine: a tool that is missing, a build that fails, a file that cannot be written.
    Local = 6,
    /// The local build does not do what the journal says.
    Differs = 7,
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub struct Failure {
    /// What a script can tell apart.
    pub exit: Exit,
    /// Stepwell's own code, if the server gave one.
    pub code: Option<String>,
    /// What happened.
    pub what: String,
    /// What to do next.
    pub next: Option<String>,
    /// Whether all of it was shown already.
    pub told: bool,
}

impl Failure {
    /// A failure without advice.
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, code: None, what: what.into(), next: None, told: false }
    }

    /// A command line that makes no sense.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what)
    }

    /// Something on this machine.
    pub fn local(what: impl Into<String>) -> Self {
        Self::new(Exit::Local, what)
    }

    /// A failure of which the output has said everything: only the exit code is left.
    pub fn told(exit: Exit) -> Self {
        Self { told: true, ..Self::new(exit, "") }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Says what to do next about this code; about any other, what was said before.
    #[must_use]
    pub fn next_about(self, code: &str, next: &str) -> Self {
        if self.code.as_deref() == Some(code) { self.next(next) } else { self }
    }

    /// Adds Stepwell's own code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Writes it to standard error, and gives the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        let exit = ExitCode::from(self.exit as u8);
        if self.told {
            return exit;
        }
        // Whatever was refused may have been quoted.
        let what = words::without_keys(&self.what);
        let next = self.next.as_deref().map(words::without_keys);
        if json {
            let error = json!({
                "error": { "exit": self.exit as u8, "code": self.code, "message": what, "next": next }
            });
            anstream::eprintln!("{error}");
            return exit;
        }
        let (red, bold) = (AnsiColor::Red.on_default().bold(), Style::new().bold());
        let code = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        anstream::eprintln!("{red}error:{red:#} {what}{code}");
        if let Some(next) = next {
            anstream::eprintln!("{bold}next:{bold:#} {next}");
        }
        exit
    }
}

/// What a command gives.
pub type Result<T = ()> = std::result::Result<T, Failure>;
