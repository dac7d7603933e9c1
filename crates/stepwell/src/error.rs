//! Errors of user code: any `std::error::Error` may be tried again, [`Terminal`] must not.

use std::{any::Any, error::Error as StdError, fmt};

use stepwell_protocol::{Code, Failure};

use crate::ops::StepError;

/// What steps and workflows return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a step or workflow did not succeed. Made from any error by `?`.
pub struct Error {
    message: String,
    terminal: bool,
    code: Option<Code>,
}

impl Error {
    /// An error with these words; a step that returns it is tried again.
    pub fn msg(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), terminal: false, code: None }
    }

    /// Whether trying again is useless.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The same error as one of Stepwell's own problems.
    pub(crate) fn coded(self, code: Code) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(crate) fn into_failure(self) -> Failure {
        let failure = Failure::new(self.message);
        Failure { terminal: self.terminal, code: self.code, ..failure }
    }
}

// Not itself an `Error`, or the conversion below would contradict the standard library's.
impl<E: StdError + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let terminal = (&error as &dyn Any).is::<Terminal>();
        let code = (&error as &dyn Any).downcast_ref::<StepError>().and_then(|error| error.code);
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Many errors repeat their cause in their own words.
            if !message.contains(&cause_text) {
                message.push_str(": ");
                message.push_str(&cause_text);
            }
            source = cause.source();
        }
        Self { message, terminal, code }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error that must not be tried again: `return Err(Terminal::new("the card was declined").into())`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Terminal {
    message: String,
}

impl Terminal {
    /// A terminal error with these words.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the order could not be read")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn an_error_tells_its_causes() {
        let cause = "x".parse::<u8>().expect_err("x is no number");
        assert_eq!(
            Error::from(Outer(cause)).to_string(),
            "the order could not be read: invalid digit found in string"
        );
    }

    #[test]
    fn only_terminal_errors_stop_the_retries() {
        assert!(Error::from(Terminal::new("declined")).is_terminal());
        assert!(!Error::from("x".parse::<u8>().expect_err("x is no number")).is_terminal());
        assert!(!Error::msg("try again").is_terminal());
    }
}
