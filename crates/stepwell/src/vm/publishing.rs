//! What a program publishes, until its cell has it.
//!
//! Each item has a number within the activation, by which the cell knows what it was sent before. So whatever got no
//! answer is simply sent again, with the next commit if not earlier.

use stepwell_protocol::{
    Op,
    stream::{Item, Published},
};

use super::State;

/// How much waits at the most, in bytes of JSON: what is published beyond that before the cell has taken some of it is
/// left out.
const WAITING_BYTES_MAX: usize = 512 << 10;

/// How much of what nobody was told a panic leaves to the next activation, in bytes of JSON.
#[cfg(any(target_arch = "wasm32", test))]
const LEFT_BYTES_MAX: usize = 16 << 10;

/// What was published, and is not known to be taken.
#[derive(Debug, Default)]
pub(super) struct Publishing {
    /// How many items of this activation the cell has.
    taken: u32,
    items: Vec<Item>,
    bytes: usize,
    /// Items that were left out since the last one.
    left_out: u32,
    /// How many of the items are on their way, by a call of their own and with a commit.
    in_call: usize,
    in_commit: usize,
    /// Whether a call of its own got no answer: the engine may not know what that is.
    is_mute: bool,
}

impl Publishing {
    pub fn add(&mut self, item: Item) {
        let bytes = item.size();
        if !item.fits() || self.bytes + bytes > WAITING_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        if self.left_out > 0 {
            let count = std::mem::take(&mut self.left_out);
            self.push(Item::LeftOut { count });
        }
        self.push(item);
    }

    /// What a commit takes along: all of it.
    pub fn send_with_commit(&mut self) -> Published {
        if self.left_out > 0 {
            let count = std::mem::take(&mut self.left_out);
            self.push(Item::LeftOut { count });
        }
        self.in_commit = self.items.len();
        Published { first: self.taken, items: self.items.clone() }
    }

    /// What a call of its own takes along, if there is anything and no other such call is under way.
    pub fn send(&mut self) -> Option<Published> {
        if self.is_mute || self.in_call > 0 || self.items.is_empty() {
            return None;
        }
        self.in_call = self.items.len();
        Some(Published { first: self.taken, items: self.items.clone() })
    }

    /// The commit was recorded.
    pub fn commit_answered(&mut self) {
        let count = std::mem::take(&mut self.in_commit);
        self.forget(count);
    }

    /// The call of its own is over.
    pub fn answered(&mut self, is_taken: bool) {
        let count = std::mem::take(&mut self.in_call);
        if is_taken {
            self.forget(count);
        } else {
            self.is_mute = true;
        }
    }

    /// The last of what was never sent, for the activation after a panic. What was sent may have arrived, and would be there twice.
    #[cfg(any(target_arch = "wasm32", test))]
    fn left(&self) -> Vec<Item> {
        let unsent = self.items.get(self.in_call.max(self.in_commit)..).unwrap_or_default();
        let mut bytes = 0;
        let fits = |item: &&Item| {
            bytes += item.size();
            bytes <= LEFT_BYTES_MAX
        };
        let (left_out, left) = unsent.split_at(unsent.len() - unsent.iter().rev().take_while(fits).count());
        let count = u32::try_from(left_out.len()).unwrap_or(u32::MAX).saturating_add(self.left_out);
        let gap = (count > 0).then_some(Item::LeftOut { count });
        gap.into_iter().chain(left.iter().cloned()).collect()
    }

    fn push(&mut self, item: Item) {
        self.bytes += item.size();
        self.items.push(item);
    }

    /// The cell has the first items.
    fn forget(&mut self, count: usize) {
        let gone = count.min(self.items.len());
        self.bytes -= self.items.drain(..gone).map(|item| item.size()).sum::<usize>();
        self.taken += u32::try_from(gone).expect("there are fewer items than 2^32");
        // Both ways may have taken the same ones.
        self.in_call -= gone.min(self.in_call);
        self.in_commit -= gone.min(self.in_commit);
    }
}

impl State {
    /// Publishes what `item` makes of the step whose code says it.
    pub fn publish(&mut self, item: impl FnOnce(Option<Op>) -> Item) {
        let (op, in_step) = (self.inside.clone(), self.inside.is_some());
        self.asides.publish(item(op), in_step);
    }

    /// What a panic leaves of it.
    #[cfg(target_arch = "wasm32")]
    pub fn left(&self) -> Vec<Item> {
        self.asides.publishing.left()
    }

    pub(super) fn publishing(&mut self) -> &mut Publishing {
        &mut self.asides.publishing
    }

    /// Whether a call that only publishes may be made: whatever is under way must still be reported.
    pub(super) fn may_publish(&self) -> bool {
        self.covers(1)
    }
}

#[cfg(test)]
mod tests {
    use stepwell_protocol::stream::{Level, LogLine};

    use super::*;

    fn log(message: &str) -> Item {
        Item::Log(LogLine { level: Level::Info, message: message.into(), op: None })
    }

    #[test]
    fn what_is_not_known_to_be_taken_is_sent_again_under_its_number() {
        let mut publishing = Publishing::default();
        publishing.add(log("a"));
        assert_eq!(publishing.send(), Some(Published { first: 0, items: vec![log("a")] }));
        publishing.add(log("b"));
        assert_eq!(publishing.send(), None, "one call at a time");
        assert_eq!(publishing.send_with_commit(), Published { first: 0, items: vec![log("a"), log("b")] });
        publishing.answered(true);
        publishing.commit_answered();
        publishing.add(log("c"));
        assert_eq!(publishing.send(), Some(Published { first: 2, items: vec![log("c")] }));
    }

    #[test]
    fn an_engine_that_does_not_answer_is_told_by_commits() {
        let mut publishing = Publishing::default();
        publishing.add(log("a"));
        assert!(publishing.send().is_some());
        publishing.answered(false);
        publishing.add(log("b"));
        assert_eq!(publishing.send(), None);
        assert_eq!(publishing.send_with_commit().items.len(), 2);
        publishing.commit_answered();
        assert_eq!(publishing.send_with_commit(), Published { first: 2, items: vec![] });
    }

    #[test]
    fn a_panic_leaves_the_last_of_what_was_not_sent() {
        let mut publishing = Publishing::default();
        publishing.add(log("sent"));
        assert!(publishing.send().is_some());
        publishing.add(log("unsent"));
        assert_eq!(publishing.left(), [log("unsent")]);
        (0..40).for_each(|_| publishing.add(log(&"x".repeat(1_000))));
        let left = publishing.left();
        assert!(left.iter().map(Item::size).sum::<usize>() <= LEFT_BYTES_MAX + 100);
        let Some(Item::LeftOut { count }) = left.first() else { panic!("{left:?}") };
        assert_eq!((*count as usize + left.len() - 1, left.len() > 10), (41, true));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut publishing = Publishing::default();
        let long = "x".repeat(Item::MESSAGE_LENGTH_MAX);
        let fit = WAITING_BYTES_MAX / log(&long).size();
        (0..fit + 3).for_each(|_| publishing.add(log(&long)));
        let sent = publishing.send_with_commit();
        assert_eq!(sent.items.len(), fit + 1);
        assert_eq!(sent.items.last(), Some(&Item::LeftOut { count: 3 }));
        publishing.commit_answered();
        publishing.add(log("again"));
        assert_eq!(publishing.send_with_commit().items, [log("again")]);
    }
}
