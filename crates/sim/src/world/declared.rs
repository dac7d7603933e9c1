//! Manifests and paused workflows in a world: versions of the app that declare what they have, in any order and more than
//! once, while people pause and resume workflows.

use stepwell_core::{
    access::ROOT,
    catalog::{Change, Input},
    object::Fault,
};
use stepwell_protocol::{
    Timestamp,
    manifest::{Manifest, WorkerVersion},
    program::WorkflowDescription,
};

use super::{World, catalog::TheCatalog, events::Response};
use crate::{
    check::Served,
    host::{Cause, Refused},
    sabotage::Sabotage,
    script::DECLARED,
};

/// What a version of the app declares. The oldest does not know its version.
fn manifest(version: u32) -> Manifest {
    let declares = |(index, name): (usize, &&str)| {
        let timeout_ms = Some(1_000 * u64::from(version) + 1);
        let described = WorkflowDescription { timeout_ms, ..WorkflowDescription::named(name) };
        (index == 0 || version >> (index - 1) & 1 == 1).then_some(described)
    };
    let workflows = DECLARED.iter().enumerate().filter_map(declares).collect();
    let at = Timestamp::from_millis(1_000 * u64::from(version));
    Manifest::new(workflows, (version > 0).then(|| WorkerVersion { id: version.to_string(), at }))
}

impl World {
    /// A version of the app declares what it has.
    pub(super) fn sync(
        &mut self,
        id: u64,
        version: u32,
        is_explicit: bool,
    ) -> Result<Response, Fault<Refused>> {
        let sees = self.catalog.instance(id).map(|instance| instance.store.all().catalog());
        let count = sees.map_or(0, |sees| self.check.syncs(&sees, version, is_explicit));
        let is_explicit = is_explicit || self.is(Sabotage::OlderManifestWins);
        self.declare(
            id,
            Change::Sync { manifest: Box::new(manifest(version)), is_explicit, unknown_zones: Vec::new() },
        )?;
        if self.is(Sabotage::DeployResumes) {
            for workflow in DECLARED {
                self.declare(id, Change::Resume { workflow: workflow.into() })?;
            }
        }
        Ok(Response::Synced(version, self.served(id, count)))
    }

    /// A person pauses a workflow.
    pub(super) fn pause_workflow(
        &mut self,
        id: u64,
        workflow: &'static str,
    ) -> Result<Response, Fault<Refused>> {
        let count = self.check.resumed(workflow);
        self.declare(id, Change::Pause { workflow: workflow.into() })?;
        Ok(Response::WorkflowPaused(workflow, self.served(id, count)))
    }

    /// A person resumes a workflow.
    pub(super) fn resume_workflow(
        &mut self,
        id: u64,
        workflow: &'static str,
    ) -> Result<Response, Fault<Refused>> {
        self.check.resumes(workflow);
        self.declare(id, Change::Resume { workflow: workflow.into() })?;
        Ok(Response::Managed)
    }

    fn declare(&mut self, id: u64, change: Change) -> Result<(), Fault<Refused>> {
        if self.catalog.instance(id).is_none() {
            return Err(Fault::Storage(Refused));
        }
        self.turn(TheCatalog, id, Cause::Request, |desk, rows, now| {
            desk.drive(rows, now, ROOT, Input::Declared(change)).map(drop)
        })
    }

    fn served(&mut self, id: u64, count: u64) -> Served {
        let at = self.catalog.clock(self.now_ms);
        Served { at, count, is_stale: self.catalog.is_stale(id) }
    }
}
