//! What must hold of manifests and of paused workflows: the newest manifest wins, and a pause stays until a person resumes.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_core::catalog::{Catalog, declared::ROLLBACK_MS};
use stepwell_protocol::Timestamp;

use super::{Checked, Checker};

/// By how much less than ten minutes a rollback may come: the catalog's clock may have been set back meanwhile.
const MARGIN_MS: u64 = 60_000;

/// What is known of manifests and pauses.
#[derive(Clone, Debug, Default)]
pub(super) struct Manifests {
    /// How often an older manifest has taken the place of a newer one.
    lowered: u64,
    /// People who have asked for an older version, and have not got it yet.
    asked_for: BTreeMap<u32, u32>,
    /// When the catalog has last seen a version, as far as anybody was told.
    seen: BTreeMap<u32, Timestamp>,
    /// The workflows whose pause was acknowledged.
    paused: BTreeSet<&'static str>,
    /// How often somebody has asked for a workflow to be resumed.
    resumed: BTreeMap<&'static str, u64>,
}

/// What was known when a request was served whose answer is on its way.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// When.
    pub at: Timestamp,
    /// How often an older manifest had won, or the workflow had been resumed.
    pub count: u64,
    /// Whether the instance has lost the name: what it says may be old.
    pub is_stale: bool,
}

/// The version of the manifest that holds.
pub fn version(catalog: &Catalog) -> Option<u32> {
    let manifest = catalog.declared().holds()?;
    let number = manifest.version.as_ref().and_then(|version| version.id.parse().ok());
    Some(number.unwrap_or_default())
}

impl Checker {
    /// A sync is about to be served by an instance that sees this. Gives how often an older manifest has won.
    pub fn syncs(&mut self, sees: &Catalog, version_asked: u32, is_explicit: bool) -> u64 {
        if is_explicit && version(sees) > Some(version_asked) {
            *self.manifests.asked_for.entry(version_asked).or_default() += 1;
        }
        self.manifests.lowered
    }

    /// A workflow is about to be resumed.
    pub fn resumes(&mut self, workflow: &'static str) {
        *self.manifests.resumed.entry(workflow).or_default() += 1;
        self.manifests.paused.remove(workflow);
    }

    /// How often somebody has asked for a workflow to be resumed.
    pub fn resumed(&self, workflow: &'static str) -> u64 {
        self.manifests.resumed.get(workflow).copied().unwrap_or_default()
    }

    /// Somebody was told that a manifest was taken note of.
    pub fn synced(&mut self, disk: &Catalog, version_asked: u32, served: Served) -> Checked {
        if served.is_stale {
            return Ok(());
        }
        let held = version(disk);
        if self.manifests.lowered == served.count && held < Some(version_asked) {
            let detail = format!("version {version_asked} was synced, and {held:?} holds");
            return Err(("31 the newest manifest wins", detail));
        }
        let seen = self.manifests.seen.entry(version_asked).or_default();
        *seen = served.at.max(*seen);
        Ok(())
    }

    /// Somebody was told that a workflow is paused.
    pub fn workflow_paused(&mut self, disk: &Catalog, workflow: &'static str, served: Served) -> Checked {
        if served.is_stale || self.resumed(workflow) != served.count {
            return Ok(());
        }
        self.manifests.paused.insert(workflow);
        self.pauses_stand(disk)
    }

    /// The catalog's rows have changed.
    pub fn declared(&mut self, before: &Catalog, after: &Catalog, latest: Timestamp) -> Checked {
        let (held, holds) = (version(before), version(after));
        if holds < held {
            self.manifests.lowered += 1;
            let asked_for = holds.and_then(|holds| self.manifests.asked_for.get_mut(&holds));
            if let Some(count) = asked_for.filter(|count| **count > 0) {
                *count -= 1;
            } else {
                let seen = held.and_then(|held| self.manifests.seen.get(&held));
                if seen.is_some_and(|seen| seen.plus_millis(ROLLBACK_MS - MARGIN_MS) > latest) {
                    let detail = format!("{held:?} was seen less than ten minutes ago, and {holds:?} holds");
                    return Err(("31 an older manifest does not win", detail));
                }
            }
        }
        self.pauses_stand(after)
    }

    /// What people have paused stays so until somebody resumes it.
    pub fn pauses_stand(&self, disk: &Catalog) -> Checked {
        let paused: BTreeSet<_> = disk.declared().paused().map(|(workflow, _)| workflow).collect();
        match self.manifests.paused.iter().find(|workflow| !paused.contains(**workflow)) {
            Some(workflow) => {
                Err(("31 a pause stays until a person resumes", format!("'{workflow}' is not paused")))
            }
            None => Ok(()),
        }
    }
}
