//! Lengths of time, as a `Duration` or as text.

use std::time::Duration;

use stepwell_protocol::{
    Code,
    span::{TEXT_LENGTH_MAX, parse},
};

use crate::{Error, ops::millis};

/// How long something takes: a [`Duration`], or text such as `"3 days"`, `"90 minutes"` or `"1h 30m"`.
///
/// Text is one or more whole numbers with a unit: milliseconds, seconds, minutes, hours, days or weeks, in full or as
/// `ms`, `s`, `m`, `h`, `d`, `w`. Text that cannot be read fails the run with `invalid_duration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span(Result<u64, String>);

impl Span {
    /// Whole milliseconds, rounded up; or the error that the run fails with.
    pub(crate) fn millis(self) -> Result<u64, Error> {
        self.0.map_err(|mut text| {
            if text.len() > TEXT_LENGTH_MAX {
                text = text.chars().take(TEXT_LENGTH_MAX / 4).chain(['…']).collect();
            }
            let message = format!(
                "'{text}' is not a length of time. Write whole numbers with a unit, such as '3 days', \
                 '90 minutes' or '1h 30m'"
            );
            Error::terminal(message).coded(Code::InvalidDuration)
        })
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(Ok(millis(duration)))
    }
}

impl From<&str> for Span {
    fn from(text: &str) -> Self {
        Self(parse(text).ok_or_else(|| text.to_owned()))
    }
}

impl From<&String> for Span {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Span {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = parse(&text);
        }

        #[test]
        fn whole_numbers_come_back(days in 0..100_000_u64, ms in 0..86_400_000_u64) {
            prop_assert_eq!(parse(&format!("{days} days {ms} ms")), Some(days * 86_400_000 + ms));
        }
    }
}
