//! What a workflow says beside its steps: which patches it applies, how far it has come, what it can be
//! found by, what it publishes.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    rc::Rc,
};

use stepwell_protocol::{
    Op, Payload,
    program::{Attributes, Progress, Then},
    stream::Item,
};

use super::publishing::Publishing;
use crate::{Result, StepInfo};

/// How code waits for a while: gives a future that is ready after so many milliseconds.
pub type Timer = Rc<dyn Fn(u64) -> Pin<Box<dyn Future<Output = ()>>>>;

/// What passes for a clock where the code runs, in milliseconds: only how far it gets on counts.
pub type Clock = Rc<dyn Fn() -> u64>;

/// What is asked before a step's code runs: a result, if that is to count instead. For tests.
pub type Hook = Rc<dyn Fn(&Op, &StepInfo) -> Option<Result<Payload>>>;

/// How many waits a commit names that are over.
const OVER_MAX: usize = 1_000;

/// What a workflow says beside its steps.
pub struct Asides {
    /// What each patch was answered in this activation, and what the run has on record.
    patches: BTreeMap<String, bool>,
    new_patches: Vec<String>,
    progress: Option<Progress>,
    /// What the run is found by, as far as the engine knows, and what the code has said.
    attributes: BTreeMap<String, String>,
    said: BTreeMap<String, String>,
    /// The id of the key that the code has made tokens with in this activation.
    token_key: Option<String>,
    /// The waits with tokens that nobody awaits any more and no token has completed, and whether the engine should hear
    /// of that at once.
    over: BTreeSet<Op>,
    over_is_news: bool,
    /// Whether the code only repeats what an earlier activation did.
    replaying: bool,
    pub(super) publishing: Publishing,
    pub(super) timer: Option<Timer>,
    /// The same for steps that say nothing about how long they may take.
    pub(super) default_timer: Option<Timer>,
    pub(super) clock: Option<Clock>,
    pub(super) hook: Option<Hook>,
}

/// What is to be told with the next commit.
pub struct Said {
    pub patches: Vec<String>,
    pub progress: Option<Progress>,
    pub attributes: BTreeMap<String, String>,
    pub token_key: Option<String>,
    pub over: Vec<Op>,
}

/// Shortens a text to so many bytes.
fn cut(text: &mut String, length_max: usize) {
    if text.len() > length_max {
        let at = (0..=length_max).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(at.unwrap_or_default());
    }
}

impl Asides {
    pub fn new(patches: Vec<String>, attributes: BTreeMap<String, String>) -> Self {
        Self {
            patches: patches.into_iter().map(|name| (name, true)).collect(),
            new_patches: Vec::new(),
            progress: None,
            attributes,
            said: BTreeMap::new(),
            token_key: None,
            over: BTreeSet::new(),
            over_is_news: false,
            replaying: true,
            publishing: Publishing::default(),
            timer: None,
            default_timer: None,
            clock: None,
            hook: None,
        }
    }

    /// From here on the code does what no activation has done before.
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
            cut(&mut progress.message, Progress::MESSAGE_LENGTH_MAX);
            self.progress = Some(progress);
        }
    }

    /// Takes something that is to be published; what a replay says was said before. A step's code is never repeated by
    /// one.
    pub fn publish(&mut self, item: Item, in_step: bool) {
        if in_step || !self.replaying {
            self.publishing.add(item);
        }
    }

    pub fn has_new_patches(&self) -> bool {
        !self.new_patches.is_empty()
    }

    /// What a replay says counts too: it may never have reached the engine, if something came from outside before
    /// the next report. What the engine knows is not said again.
    pub fn set_attribute(&mut self, name: String, mut value: String) {
        cut(&mut value, Attributes::VALUE_LENGTH_MAX);
        self.said.insert(name, value);
    }

    /// Goes with the next commit, and is worth none of its own: as long as nothing is on record, nothing depends on it.
    pub fn use_token_key(&mut self, id: &str) {
        self.token_key = Some(id.to_owned());
    }

    /// Nobody awaits this wait any more: until the engine knows, it takes an answer that nobody will read. A replay says so
    /// too, with the next commit: the engine may never have heard.
    pub fn end_wait(&mut self, op: Op, is_news: bool) {
        self.over.insert(op);
        self.over_is_news |= is_news && !self.replaying;
    }

    /// Nobody awaits a step any more that its lane has let in: until the engine knows, nobody else has the place.
    pub fn leave_place(&mut self, op: Op) {
        self.over.insert(op);
        self.over_is_news = true;
    }

    pub fn has_ended_waits(&self) -> bool {
        self.over_is_news
    }

    pub fn is_empty(&self) -> bool {
        self.new_patches.is_empty() && self.progress.is_none() && !self.is_attributed_anew()
    }

    /// What goes with a commit that says this.
    pub fn take(&mut self, then: &Then) -> Said {
        // No token outlives its run, or its life.
        if let Then::Anew { .. } | Then::Complete { .. } | Then::Fail { .. } = then {
            self.over.clear();
        }
        let mut attributes = std::mem::take(&mut self.said);
        attributes.retain(|name, value| self.attributes.get(name) != Some(value));
        self.attributes.extend(attributes.clone());
        let (patches, progress) = (std::mem::take(&mut self.new_patches), self.progress.take());
        let over = std::iter::from_fn(|| self.over.pop_first()).take(OVER_MAX).collect();
        self.over_is_news &= !self.over.is_empty();
        Said { patches, progress, attributes, token_key: self.token_key.take(), over }
    }

    fn is_attributed_anew(&self) -> bool {
        self.said.iter().any(|(name, value)| self.attributes.get(name) != Some(value))
    }
}
