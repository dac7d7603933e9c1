//! Errors of user code: a step that returns one is retried, unless the error is terminal.

use std::{
    any::Any,
    error::Error as StdError,
    fmt::{self, Write},
    time::Duration,
};

use stepwell_protocol::{Code, Failure, RunId};

use crate::{env::EnvError, ops::millis};

/// What steps and workflows return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How many causes of an error its message tells.
const CAUSES_MAX: usize = 16;

/// Why a step or workflow failed. `?` makes one of any error, of `anyhow::Error`, and of text.
///
/// `ctx.step(…).await` returns one too, so a workflow can end with it:
///
/// ```
/// # use stepwell::prelude::*;
/// #[workflow]
/// async fn load(ctx: Ctx, id: String) -> Result<u32> {
///     ctx.step("load", async || Ok(id.parse::<u32>()?)).await
/// }
/// # let _ = load;
/// ```
pub struct Error {
    message: String,
    terminal: bool,
    code: Option<Code>,
    origin: Origin,
    retry_after_ms: Option<u64>,
}

/// What failed for good with an error.
enum Origin {
    /// Nothing yet: it comes from somebody's code.
    Code,
    /// A step.
    Step(String),
    Child(Box<FailedChild>),
}

/// The child that failed, if an error comes from `ctx.invoke(…).await`: see [`Error::child`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedChild {
    /// What the invocation is called: the name of the workflow, unless [`crate::Invoke::name`] says otherwise.
    pub name: String,
    /// The child's id, if there is a child and its parent knows it.
    pub run: Option<RunId>,
}

impl Error {
    /// An error with this message. A step that returns it is retried.
    pub fn msg(message: impl fmt::Display) -> Self {
        let (message, origin) = (message.to_string(), Origin::Code);
        Self { message, terminal: false, code: None, origin, retry_after_ms: None }
    }

    /// An error with this message. A step that returns it is not retried.
    pub fn terminal(message: impl fmt::Display) -> Self {
        Self { terminal: true, ..Self::msg(message) }
    }

    /// Says when to retry the step, instead of after its policy's next delay: what a server asks for with
    /// `Retry-After`. The step's attempts still count. The engine waits for at most 30 days.
    ///
    /// ```
    /// # use stepwell::prelude::*;
    /// fn read(status: u16) -> Result<()> {
    ///     match status {
    ///         429 => Err(Error::msg("rate limited").retry_after(Duration::from_secs(30))),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// # assert!(read(429).is_err());
    /// ```
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        Self { retry_after_ms: Some(millis(delay)), ..self }
    }

    /// Whether the step that returns it is not retried.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The step that failed for good with this error, if it comes from `ctx.step(…).await`.
    pub fn step(&self) -> Option<&str> {
        if let Origin::Step(step) = &self.origin { Some(step) } else { None }
    }

    /// The child that failed with this error, if it comes from `ctx.invoke(…).await`.
    ///
    /// ```
    /// # use stepwell::{Code, prelude::*};
    /// # #[workflow]
    /// # async fn charge(ctx: Ctx, cents: u32) -> Result<u32> { Ok(cents) }
    /// # #[workflow]
    /// # async fn order(ctx: Ctx) -> Result<u32> {
    /// match ctx.invoke(charge, 10).timeout("10m").await {
    ///     Err(error) if error.code() == Some(Code::ChildTimedOut) => Ok(0),
    ///     Err(error) => bail!("look at {:?}: {}", error.child(), error.message()),
    ///     Ok(cents) => Ok(cents),
    /// }
    /// # }
    /// # let _ = order;
    /// ```
    pub fn child(&self) -> Option<&FailedChild> {
        if let Origin::Child(child) = &self.origin { Some(child) } else { None }
    }

    /// The code of one of Stepwell's own problems, if it is one: a timeout, an interruption, a cancelled child.
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// What happened. Unlike the `Display` output, it does not name the step or child.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error as one of Stepwell's own problems.
    pub(crate) fn coded(self, code: Code) -> Self {
        Self { code: Some(code), ..self }
    }

    /// What a workflow gets when a step failed for good.
    pub(crate) fn of_step(step: &str, failure: Failure) -> Self {
        let Failure { message, code, .. } = failure;
        let origin = Origin::Step(step.to_owned());
        Self { message, terminal: false, code, origin, retry_after_ms: None }
    }

    /// What a workflow gets when a child has failed or could not be started.
    pub(crate) fn of_child(name: &str, run: Option<RunId>, failure: Failure) -> Self {
        let Failure { message, code, .. } = failure;
        let origin = Origin::Child(Box::new(FailedChild { name: name.to_owned(), run }));
        Self { message, terminal: false, code, origin, retry_after_ms: None }
    }

    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after_ms
    }

    pub(crate) fn into_failure(self) -> Failure {
        let failure = Failure::new(self.to_string());
        // What the engine has decided about a child, it has not decided about its parent.
        let code = self.code.filter(|code| self.child().is_none() || !is_about_a_run(*code));
        Failure { terminal: self.terminal, code, ..failure }
    }
}

// `Error` itself converts into no boxed error, or this would contradict the standard library's `From<T> for T`.
impl<E: Into<Box<dyn StdError>> + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        let is_terminal = is_terminal(&error);
        let error = error.into();
        let terminal = is_terminal || error.is::<Terminal>() || error.is::<EnvError>();
        let mut message = error.to_string();
        let mut source = error.source();
        for _ in 0..CAUSES_MAX {
            let Some(cause) = source else { break };
            let cause_text = cause.to_string();
            // Many errors repeat their cause in their own words.
            if !message.contains(&cause_text) {
                let _ = write!(message, ": {cause_text}");
            }
            source = cause.source();
        }
        Self { terminal, ..Self::msg(message) }
    }
}

/// Whether the engine fails a run with this code, whatever its program says.
fn is_about_a_run(code: Code) -> bool {
    matches!(code, Code::RunTimedOut | Code::ProgramDied)
}

/// Whether an error is terminal under a wrapper that the box does not show.
#[cfg(feature = "anyhow")]
fn is_terminal(error: &dyn Any) -> bool {
    error.downcast_ref::<anyhow::Error>().is_some_and(|error| {
        error.downcast_ref::<Terminal>().is_some() || error.downcast_ref::<EnvError>().is_some()
    })
}

#[cfg(not(feature = "anyhow"))]
fn is_terminal(_error: &dyn Any) -> bool {
    false
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Code => {}
            Origin::Step(step) => write!(f, "step '{step}' failed: ")?,
            Origin::Child(child) => write!(f, "child '{}' failed: ", child.name)?,
        }
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error that must not be retried, for code that returns its own error type:
/// `Err(Terminal::new("the card was declined"))?`. Elsewhere, [`crate::bail!`] is shorter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Terminal {
    message: String,
}

impl Terminal {
    /// A terminal error with this message.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string() }
    }
}

/// Returns an error with a formatted message: `bail!("no answer from {host}")`.
///
/// A step that returns it is retried. Begin with `terminal:` if retrying is useless:
///
/// ```
/// # use stepwell::prelude::*;
/// fn pay(card: &str) -> Result<()> {
///     if card.is_empty() {
///         bail!(terminal: "there is no card");
///     }
///     Ok(())
/// }
/// # assert!(pay("").unwrap_err().is_terminal());
/// ```
#[macro_export]
macro_rules! bail {
    (terminal: $($message:tt)+) => {
        return ::core::result::Result::Err($crate::Error::terminal(::std::format!($($message)+)))
    };
    ($($message:tt)+) => {
        return ::core::result::Result::Err($crate::Error::msg(::std::format!($($message)+)))
    };
}

/// Returns an error unless a condition holds: `ensure!(total > 0, "the order is empty")`.
///
/// As with [`bail!`], `ensure!(total > 0, terminal: "the order is empty")` is not retried.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            $crate::bail!($($message)+);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the order could not be read")]
    struct Outer(#[source] std::num::ParseIntError);

    fn not_a_number() -> std::num::ParseIntError {
        "x".parse::<u8>().expect_err("x is no number")
    }

    #[test]
    fn an_error_tells_its_causes() {
        assert_eq!(
            Error::from(Outer(not_a_number())).to_string(),
            "the order could not be read: invalid digit found in string"
        );
    }

    #[test]
    fn only_terminal_errors_stop_the_retries() {
        assert!(Error::from(Terminal::new("declined")).is_terminal());
        assert!(!Error::from(not_a_number()).is_terminal());
        assert!(!Error::msg("try again").is_terminal());
        assert!(Error::terminal("declined").is_terminal());
    }

    #[test]
    fn text_and_anyhow_errors_convert() {
        fn text() -> Result<()> {
            Err("no such order")?
        }
        fn wrapped() -> Result<()> {
            Err(anyhow::Error::new(not_a_number()).context("reading the order"))?
        }
        assert_eq!(text().expect_err("it fails").to_string(), "no such order");
        let error = wrapped().expect_err("it fails");
        assert_eq!(error.to_string(), "reading the order: invalid digit found in string");
        assert!(!error.is_terminal());
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn a_terminal_error_stays_terminal_under_anyhow() {
        let wrapped = anyhow::Error::new(Terminal::new("declined")).context("charging");
        let error = Error::from(wrapped);
        assert!(error.is_terminal());
        assert_eq!(error.to_string(), "charging: declined");
    }

    #[test]
    fn bail_and_ensure_say_whether_a_retry_helps() {
        fn check(total: i32) -> Result<()> {
            ensure!(total >= 0, terminal: "{total} is below zero");
            ensure!(total != 0, "nothing yet");
            Ok(())
        }
        let below = check(-1).expect_err("it fails");
        assert_eq!((below.to_string().as_str(), below.is_terminal()), ("-1 is below zero", true));
        assert!(!check(0).expect_err("it fails").is_terminal());
        assert!(check(1).is_ok());
    }
}
