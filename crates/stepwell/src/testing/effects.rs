//! What steps do to the outside world, as a test sees it.

use std::{cell::RefCell, collections::BTreeMap};

use serde::Serialize;
use stepwell_protocol::Payload;

use crate::StepInfo;

thread_local! {
    static EFFECTS: RefCell<Effects> = const { RefCell::new(Effects(BTreeMap::new())) };
}

/// All effects of a run: what each idempotency key has done, every time that it was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects(BTreeMap<String, Vec<String>>);

/// Says what a step has done to the outside world: money taken, a mail sent.
///
/// Call it where the step's code, or its mock, would call that world. A step's code may run more than once,
/// so the world must know it by the idempotency key and do it once: what [`super::Test::crash_everywhere`]
/// compares is what each key has done.
pub fn effect<T: Serialize + ?Sized>(info: &StepInfo, what: &T) {
    let what = Payload::encode(what).expect("an effect can be written as JSON").text().to_owned();
    EFFECTS.with_borrow_mut(|effects| effects.0.entry(info.idempotency_key.clone()).or_default().push(what));
}

/// Takes all effects since this was last asked.
pub(super) fn take() -> Effects {
    EFFECTS.take()
}

impl Effects {
    /// What each key has done, in the order of the keys: once each, however often it was done.
    pub fn by_key(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(key, done)| Some((key.as_str(), done.first()?.as_str())))
    }

    /// How many there are, by key.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A key that has done different things when it was used again, if there is one.
    pub(super) fn contradiction(&self) -> Option<String> {
        self.0.iter().find_map(|(key, done)| {
            let (first, again) = done.split_first()?;
            let other = again.iter().find(|other| *other != first)?;
            Some(format!("the effect of {key} was {first}, and {other} when it ran again"))
        })
    }

    /// How these differ from what they should be, if they do.
    pub(super) fn difference(&self, expected: &Self) -> Option<String> {
        let unexpected = self.by_key().find_map(|(key, done)| match expected.first(key) {
            Some(other) if other == done => None,
            Some(other) => Some(format!("the effect of {key} is {done} instead of {other}")),
            None => Some(format!("{key} has the effect {done}, which was not there without a crash")),
        });
        unexpected.or_else(|| {
            let missing = expected.0.keys().find(|key| !self.0.contains_key(*key))?;
            Some(format!("{missing} has no effect, and has one without a crash"))
        })
    }

    fn first(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.first().map(String::as_str)
    }
}
