//! The answers that a page is made of. A page that needs one which is not there says so, and is made again when it is.

use serde::de::DeserializeOwned;
use stepwell_protocol::json;

use crate::map::Map;

/// The most answers that a page is made of.
pub const ASKED_MAX: usize = 120;

/// The answers that are there, and those that are wanted.
#[derive(Clone, Debug, Default)]
pub struct Book {
    answers: Map<String, Result<String, Refused>>,
    wanted: Vec<String>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status; 0 if the engine did not answer.
    pub status: u16,
    /// What people are told.
    pub words: String,
}

/// Why a page could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An answer is wanted first.
    Asking,
    /// The engine has refused one.
    Refused(Refused),
}

impl Book {
    /// The answer to a `GET` of this path.
    pub fn ask<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, Stop> {
        let text = self.text(path)?;
        json::from_str(text).map_err(|error| {
            let words = format!("The answer to {path} is not understood: {error}. Reload the page.");
            Stop::Refused(Refused { status: 0, words })
        })
    }

    /// The same of what a page can do without.
    pub fn maybe<T: DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        self.ask(path).ok()
    }

    fn text(&mut self, path: &str) -> Result<&str, Stop> {
        if !self.answers.has(path) {
            if self.answers.len() + self.wanted.len() < ASKED_MAX
                && !self.wanted.iter().any(|one| one == path)
            {
                self.wanted.push(path.to_owned());
            }
            return Err(Stop::Asking);
        }
        match self.answers.get(path) {
            Some(Ok(text)) => Ok(text),
            Some(Err(refused)) => Err(Stop::Refused(refused.clone())),
            None => Err(Stop::Asking),
        }
    }

    /// What is wanted, which is asked for after that.
    pub fn take_wanted(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wanted)
    }

    /// Writes down an answer.
    pub fn put(&mut self, path: String, answer: Result<String, Refused>) {
        self.answers.insert(path, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_wanted_once() {
        let mut book = Book::default();
        assert_eq!(book.ask::<u32>("/a"), Err(Stop::Asking));
        assert_eq!(book.maybe::<u32>("/a"), None);
        assert_eq!(book.maybe::<u32>("/b"), None);
        assert_eq!(book.take_wanted(), ["/a", "/b"]);
        book.put("/a".into(), Ok("7".into()));
        let refused = Refused { status: 404, words: "no".into() };
        book.put("/b".into(), Err(refused.clone()));
        assert_eq!(book.ask::<u32>("/a"), Ok(7));
        assert_eq!(book.ask::<u32>("/b"), Err(Stop::Refused(refused)));
        assert!(matches!(book.ask::<String>("/a"), Err(Stop::Refused(_))));
        assert!(book.take_wanted().is_empty());
    }

    #[test]
    fn no_page_asks_without_end() {
        let mut book = Book::default();
        for number in 0..2 * ASKED_MAX {
            let _ = book.maybe::<u32>(&number.to_string());
        }
        assert_eq!(book.take_wanted().len(), ASKED_MAX);
    }
}
