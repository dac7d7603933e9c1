//! The rows of the outbox, which a host has: one for each letter.

use stepwell_protocol::{Timestamp, outbox::MessageHead};

use crate::object::{Address, Letter};

/// The letters of one object. Every method that writes is one transaction.
pub trait Letters {
    /// Why the storage failed.
    type Error;

    /// The largest number of any letter that there is; 0 if there is none.
    fn last_letter(&self) -> Result<u64, Self::Error>;

    /// The letters after a number that are not dead, in order, without what they say; at most so many.
    fn letters(&self, after: u64, limit: usize) -> Result<Vec<Slip>, Self::Error>;

    /// A letter, if it is there and not dead. One that cannot be read has no envelopes.
    fn letter(&self, id: u64) -> Result<Option<Letter>, Self::Error>;

    /// Deletes a letter: all of it has arrived.
    fn forget_letter(&self, id: u64) -> Result<(), Self::Error>;

    /// Lays a letter aside: nobody sends it any more before a person says so.
    fn bury_letter(&self, id: u64) -> Result<(), Self::Error>;

    /// Puts two letters in the place of one: what nobody sends any more, and what is left of it to be sent.
    fn split_letter(&self, id: u64, dead: &Letter, rest: Option<&Letter>) -> Result<(), Self::Error>;

    /// Lets a dead letter be sent again: see [`Letter::revive`]. Says whether there is one of this number that was dead;
    /// nothing if there is none at all.
    fn revive_letter(&self, id: u64, now: Timestamp) -> Result<Option<bool>, Self::Error>;

    /// Deletes a letter if it is dead. Gives what it said; nothing, if there is none of this number. One that is still
    /// sent stays, and says nothing.
    fn discard_letter(&self, id: u64) -> Result<Option<Discarded>, Self::Error>;
}

/// What became of a letter that somebody wants to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// It was dead, and is deleted. It said this, as far as that can be read.
    Dead(Vec<MessageHead>),
    /// It is still being sent.
    Alive,
}

/// A letter without what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slip {
    /// Its number.
    pub id: u64,
    /// When it was written.
    pub posted_at: Timestamp,
    /// Where its messages go, in their order; nothing if that cannot be read.
    pub to: Vec<Address>,
}

impl From<&Letter> for Slip {
    fn from(letter: &Letter) -> Self {
        let to = letter.envelopes.iter().map(|envelope| envelope.to.clone()).collect();
        Self { id: letter.id, posted_at: letter.posted_at, to }
    }
}
