//! Which pages of the journal the VM asks for: the ones that it does not know, in order, and now and then one that it has
//! seen, for a signal that it had no room for.

use std::task::Poll;

use stepwell_protocol::{Seq, program::Page};

use super::{Journal, Order, Vm};

impl Vm {
    /// Takes a page of the journal that it has asked for. Says whether to go on.
    pub fn page(&mut self, page: Page) -> bool {
        if std::mem::take(&mut self.reads_again) {
            // A journal that has lost what it had is not this activation's any more.
            return self.state.borrow_mut().read_again(page.events);
        }
        self.journal = if page.more { Journal::More } else { Journal::Complete };
        for record in page.events {
            self.learn(record);
        }
        true
    }

    /// What to do first if the workflow waits for something that has to be read again.
    pub(super) fn read_again(&mut self) -> Option<Poll<Order>> {
        let seq = self.state.borrow().missing()?;
        // The driver brings one answer at a time.
        if self.reads_again || self.in_flight.is_some() || self.journal == Journal::Asked {
            return Some(Poll::Pending);
        }
        self.reads_again = true;
        self.state.borrow_mut().allowance().count_page();
        Some(Poll::Ready(Order::Page(Seq(seq.0.saturating_sub(1)))))
    }
}
