//! Who in this instance waits for what: programs for news, callers for the end. Only in memory: whoever
//! waits is gone when the instance is.

use std::collections::BTreeMap;

use futures::channel::oneshot;

/// Who waits for what.
#[derive(Default)]
pub struct Listeners {
    programs: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
    ends: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
}

impl Listeners {
    /// Ready when a run's program should look for news, or its call is over.
    pub fn program(&mut self, number: u64) -> oneshot::Receiver<()> {
        listen(&mut self.programs, number)
    }

    /// Ready when a run ends.
    pub fn end(&mut self, number: u64) -> oneshot::Receiver<()> {
        listen(&mut self.ends, number)
    }

    /// There is news for a run's program.
    pub fn tell_program(&mut self, number: u64) {
        tell(&mut self.programs, number);
    }

    /// A run has ended.
    pub fn tell_end(&mut self, number: u64) {
        tell(&mut self.ends, number);
    }
}

fn listen(who: &mut BTreeMap<u64, Vec<oneshot::Sender<()>>>, number: u64) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    let waiting = who.entry(number).or_default();
    waiting.retain(|other| !other.is_canceled());
    waiting.push(sender);
    receiver
}

fn tell(who: &mut BTreeMap<u64, Vec<oneshot::Sender<()>>>, number: u64) {
    for sender in who.remove(&number).unwrap_or_default() {
        // Whoever has stopped waiting need not be told.
        let _ = sender.send(());
    }
}
