//! Who in this instance waits for what: programs for news, callers for the end. Only in memory: whoever
//! waits is gone when the instance is.

use futures::channel::oneshot;
use stepwell_core::ordered::{OrdMap, OrdSet};
use stepwell_protocol::rest::RunView;

/// Who waits for what.
#[derive(Default)]
pub struct Listeners {
    programs: Ears<()>,
    /// Programs that were told while they did not listen: not all news is in the journal.
    missed: OrdSet<u64>,
    ends: Ears<RunView>,
    /// Runs whose first start still waits for their end.
    starts: OrdSet<u64>,
}

impl Listeners {
    /// Ready when a run's program should look for news, or its call is over; at once, if it was told since it
    /// last listened.
    pub fn program(&mut self, number: u64) -> oneshot::Receiver<()> {
        let receiver = listen(&mut self.programs, number);
        if self.missed.remove(&number) {
            self.tell_program(number);
        }
        receiver
    }

    /// Ready when a run ends: the run as it is then.
    pub fn end(&mut self, number: u64) -> oneshot::Receiver<RunView> {
        listen(&mut self.ends, number)
    }

    /// A run was started, and whoever did that waits for its end.
    pub fn begin_start(&mut self, number: u64) {
        self.starts.insert(number);
    }

    /// They wait no more.
    pub fn end_start(&mut self, number: u64) {
        self.starts.remove(&number);
    }

    /// Whether they wait.
    pub fn is_starting(&self, number: u64) -> bool {
        self.starts.contains(&number)
    }

    /// There is news for a run's program.
    pub fn tell_program(&mut self, number: u64) {
        if !tell(&mut self.programs, number, &()) {
            self.missed.insert(number);
        }
    }

    /// A run has no program to be told any more.
    pub fn forget_program(&mut self, number: u64) {
        let _ = tell(&mut self.programs, number, &());
        self.missed.remove(&number);
    }

    /// A run has ended.
    pub fn tell_end(&mut self, view: &RunView) {
        let _ = tell(&mut self.ends, view.id.number, view);
    }
}

/// Whoever listens, by the run's number.
type Ears<T> = OrdMap<u64, Vec<oneshot::Sender<T>>>;

fn listen<T>(who: &mut Ears<T>, number: u64) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    let waiting = who.get_or_default(number);
    waiting.retain(|other| !other.is_canceled());
    waiting.push(sender);
    receiver
}

/// Tells everyone, and says whether anyone heard.
fn tell<T: Clone>(who: &mut Ears<T>, number: u64, what: &T) -> bool {
    let waiting = who.remove(&number).unwrap_or_default();
    // Whoever has stopped waiting need not be told.
    waiting.into_iter().filter_map(|sender| sender.send(what.clone()).ok()).count() > 0
}
