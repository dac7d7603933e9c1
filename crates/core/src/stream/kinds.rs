//! Which kinds of events a reader wants.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use stepwell_protocol::stream::{Kind, NotAKind};

use crate::ordered::OrdSet;

/// The kinds that a reader wants: all, or those that it names. Written `step,log`; all is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kinds(OrdSet<Kind>);

impl Kinds {
    /// Whether it wants events of a kind.
    pub fn has(&self, kind: Kind) -> bool {
        self.0.is_empty() || self.0.contains(&kind)
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|kind| kind.as_str()).collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for Kinds {
    type Err = NotAKind;

    fn from_str(text: &str) -> Result<Self, NotAKind> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_named_is_everything() {
        let all: Kinds = "".parse().expect("nothing is all");
        assert!(Kind::SELECTABLE.into_iter().all(|kind| all.has(kind)));
        let some: Kinds = "step,log".parse().expect("both are kinds");
        assert!(some.has(Kind::Step) && some.has(Kind::Log) && !some.has(Kind::Status));
        assert_eq!(some.to_string().parse(), Ok(some));
    }

    #[test]
    fn words_that_name_no_kind_are_refused() {
        for text in ["steps", "step,", "step, log", "end", "ack", "ready", "STEP"] {
            assert_eq!(text.parse::<Kinds>(), Err(NotAKind), "{text}");
        }
    }
}
