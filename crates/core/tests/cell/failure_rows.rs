//! Groups of failed runs in memory.

use std::{
    cell::{Cell as Slot, RefCell},
    collections::BTreeMap,
};

use stepwell_core::cell::FailureRows;
use stepwell_protocol::{Timestamp, failures::FailureGroup};

use super::{Failed, Memory};

/// The groups of [`Memory`], as a table has them.
#[derive(Default)]
pub struct Failures {
    rows: RefCell<BTreeMap<String, FailureGroup>>,
    /// How many rows were written.
    pub writes: Slot<usize>,
    /// Whether it takes none.
    pub refuses: Slot<bool>,
}

impl Failures {
    pub fn get(&self, id: &str) -> Option<FailureGroup> {
        self.rows.borrow().get(id).cloned()
    }

    pub fn all(&self) -> Vec<FailureGroup> {
        self.rows.borrow().values().cloned().collect()
    }

    /// Says whether it took it.
    pub fn keep(&self, group: &FailureGroup, forget: Option<(Timestamp, usize)>) -> bool {
        if self.refuses.get() {
            return false;
        }
        let mut rows = self.rows.borrow_mut();
        if let Some((before, most)) = forget {
            rows.retain(|_, group| group.last_at >= before);
            while rows.len() > most {
                let mut counts = BTreeMap::<String, usize>::new();
                rows.values().for_each(|group| *counts.entry(group.workflow.clone()).or_default() += 1);
                let largest = counts.iter().max_by_key(|(_, count)| **count).expect("there are some").0;
                let of_largest = rows.values().filter(|group| group.workflow == *largest);
                let oldest = of_largest.min_by_key(|group| group.last_at).map(|group| group.id.clone());
                rows.remove(&oldest.expect("there are some"));
            }
        }
        self.writes.set(self.writes.get() + 1);
        rows.insert(group.id.clone(), group.clone());
        true
    }
}

impl FailureRows for Memory {
    fn failure(&self, id: &str) -> Result<Option<FailureGroup>, Failed> {
        Ok(self.failures.get(id))
    }

    fn keep_failure(&self, group: &FailureGroup, forget: Option<(Timestamp, usize)>) -> Result<(), Failed> {
        if self.failures.keep(group, forget) { Ok(()) } else { Err(Failed::Refused) }
    }

    fn each_failure(&self, each: &mut dyn FnMut(FailureGroup)) -> Result<(), Failed> {
        self.failures.all().into_iter().for_each(each);
        Ok(())
    }
}
