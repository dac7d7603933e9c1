//! What a workflow says beside its steps: which patches it applies, how far it has come.

use std::{collections::BTreeMap, pin::Pin, rc::Rc};

use stepwell_protocol::{Op, Payload, program::Progress};

use crate::{Result, StepInfo};

/// How code waits for a while: gives a future that is ready after so many milliseconds.
pub type Timer = Rc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = ()>>>>;

/// What is asked before a step's code runs: a result, if that is to count instead. For tests.
pub type Hook = Rc<dyn Fn(&Op, &StepInfo) -> Option<Result<Payload>>>;

/// What a workflow says beside its steps.
pub(super) struct Asides {
    /// What each patch was answered in this activation, and what the run has on record.
    patches: BTreeMap<String, bool>,
    new_patches: Vec<String>,
    progress: Option<Progress>,
    /// Whether the code only repeats what an earlier activation did.
    replaying: bool,
    pub(super) timer: Option<Timer>,
    pub(super) hook: Option<Hook>,
}

impl Asides {
    pub fn new(patches: Vec<String>) -> Self {
        Self {
            patches: patches.into_iter().map(|name| (name, true)).collect(),
            new_patches: Vec::new(),
            progress: None,
            replaying: true,
            timer: None,
            hook: None,
        }
    }

    pub fn end_of_replay(&mut self) {
        self.replaying = false;
    }

    /// Whether a patch applies. A run that came past here without it stays without it: the first answer is
    /// the one for all, or a loop would change its mind half way.
    pub fn is_patched(&mut self, name: &str) -> bool {
        if let Some(answer) = self.patches.get(name) {
            return *answer;
        }
        let applies = !self.replaying;
        self.patches.insert(name.to_owned(), applies);
        if applies {
            self.new_patches.push(name.to_owned());
        }
        applies
    }

    /// The latest counts; what a replay says was said before.
    pub fn set_progress(&mut self, mut progress: Progress) {
        if !self.replaying {
            // What the engine would refuse to store is worth less than the run.
            if progress.message.len() > Progress::MESSAGE_LENGTH_MAX {
                let cut = (0..=Progress::MESSAGE_LENGTH_MAX)
                    .rev()
                    .find(|&at| progress.message.is_char_boundary(at));
                progress.message.truncate(cut.unwrap_or_default());
            }
            self.progress = Some(progress);
        }
    }

    pub fn has_new_patches(&self) -> bool {
        !self.new_patches.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.new_patches.is_empty() && self.progress.is_none()
    }

    pub fn take(&mut self) -> (Vec<String>, Option<Progress>) {
        (std::mem::take(&mut self.new_patches), self.progress.take())
    }
}
