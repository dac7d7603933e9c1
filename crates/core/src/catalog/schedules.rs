//! The schedules that the app declares, on their way to the station that has them.
//!
//! The catalog keeps which revision of them the station has heard of, and tells it until it has: a crash in between
//! leaves that to be done. What an operator does to a schedule is the station's.

use stepwell_protocol::{
    Timestamp,
    manifest::{ItemKind, Manifest, Plan, ScheduleDescription},
    program::is_reserved,
    schedule::ScheduleSpec,
    text::is_visible,
};

use super::{
    Declared,
    declared::{NAME_LENGTH_MAX, plan_kind},
};
use crate::{ordered::OrdSet, schedule::zone_of};

/// The most schedules of a manifest.
pub const SCHEDULES_MAX: usize = 1_000;

impl Declared {
    /// What the station of schedules has yet to hear of.
    pub fn untold(&self) -> Option<(u64, &[ScheduleDescription])> {
        let holds = self.holds.as_deref().filter(|holds| holds.revision > self.heard)?;
        Some((holds.revision, &holds.manifest.schedules))
    }

    /// The revision of the schedules of a manifest that holds from now on. By the clock, so that it grows even if what
    /// was stored cannot be read any more.
    pub(super) fn revision_of(&self, now: Timestamp, manifest: &Manifest) -> u64 {
        let before = self.holds.as_deref();
        let revision = before.map_or(self.heard, |holds| holds.revision.max(self.heard));
        let is_same = before.map_or(manifest.schedules.is_empty() && revision == 0, |before| {
            before.manifest.schedules == manifest.schedules
        });
        if is_same { revision } else { (revision + 1).max(now.as_millis()) }
    }

    /// Adds to a plan what it changes in schedules.
    pub(super) fn plan_schedules(&self, manifest: &Manifest, plan: &mut Plan) {
        let before = self.holds().into_iter().flat_map(|holds| &holds.schedules);
        plan_kind(plan, ItemKind::Schedule, before.map(by_name), manifest.schedules.iter().map(by_name));
    }
}

fn by_name(schedule: &ScheduleDescription) -> (String, &ScheduleSpec) {
    (schedule.name.clone(), &schedule.spec)
}

/// What is wrong with the schedules of a manifest.
pub(super) fn check_schedules(manifest: &Manifest, unknown_zones: &[String], mut note: impl FnMut(String)) {
    let count = manifest.schedules.len();
    if count > SCHEDULES_MAX {
        return note(format!("there are {count} schedules; the most is {SCHEDULES_MAX}"));
    }
    let workflows: OrdSet<_> = manifest.workflows.iter().map(|workflow| workflow.name.as_str()).collect();
    let mut names = OrdSet::new();
    for ScheduleDescription { name, spec } in &manifest.schedules {
        // One that is too long is not said whole.
        let shown: String = name.chars().take(NAME_LENGTH_MAX).collect();
        if name.is_empty() || name.len() > NAME_LENGTH_MAX || !is_visible(name) {
            note(format!(
                "a schedule is named {shown:?}; use 1 to {NAME_LENGTH_MAX} bytes without invisible characters"
            ));
        } else if !names.insert(name) {
            note(format!("schedule '{shown}' is declared twice"));
        }
        if is_reserved(&spec.workflow) || !workflows.contains(spec.workflow.as_str()) {
            let workflow: String = spec.workflow.chars().take(NAME_LENGTH_MAX).collect();
            note(format!("schedule '{shown}' starts workflow '{workflow}', which the app does not have"));
        }
        match zone_of(spec) {
            Ok(zone) if unknown_zones.contains(&zone) => {
                note(format!("schedule '{shown}' names the time zone '{zone}', which does not exist"));
            }
            Ok(_) => {}
            Err(bad) => note(format!("schedule '{shown}': {bad}")),
        }
    }
}
