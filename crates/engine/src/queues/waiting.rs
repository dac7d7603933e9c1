//! Claims that wait for a job. They hold nothing: whoever is woken looks again.

use std::{cell::RefCell, collections::VecDeque, time::Duration};

use futures::{
    channel::oneshot::{Receiver, Sender, channel},
    future::select,
};
use stepwell_core::queue::WAITING_MAX;
use worker::Delay;

/// Those who wait, the one that waits for the longest first.
#[derive(Default)]
pub struct Waiting(RefCell<VecDeque<Sender<()>>>);

impl Waiting {
    /// One more waits; nothing if too many do.
    pub fn join(&self) -> Option<Receiver<()>> {
        let mut waiting = self.0.borrow_mut();
        waiting.retain(|sender| !sender.is_canceled());
        if waiting.len() >= WAITING_MAX {
            return None;
        }
        let (sender, receiver) = channel();
        waiting.push_back(sender);
        Some(receiver)
    }

    /// Lets as many go on as there are jobs.
    pub fn wake(&self, jobs: usize) {
        let mut left = jobs;
        while left > 0
            && let Some(sender) = self.0.borrow_mut().pop_front()
        {
            // One who has gone needs no job.
            left -= usize::from(sender.send(()).is_ok());
        }
    }
}

/// Waits until it is woken, or for so long.
pub async fn until_woken(receiver: Receiver<()>, ms: u64) {
    select(receiver, Delay::from(Duration::from_millis(ms))).await;
}
