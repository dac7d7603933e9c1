//! Time zones, as the runtime knows them: all of them, up to date, and at no cost in the bundle.

use stepwell_core::{
    ordered::OrdSet,
    schedule::{Zones, zone_of},
    sorting::sort,
};
use stepwell_protocol::manifest::Manifest;

use crate::runtime;

/// The runtime's own time zones.
pub struct Runtime;

impl Zones for Runtime {
    fn offset_s(&self, zone: &str, at_s: i64) -> Option<i32> {
        #[expect(clippy::cast_precision_loss, reason = "times are below 2^53")]
        let offset = runtime::zone_offset(zone, at_s as f64)?;
        #[expect(clippy::cast_possible_truncation, reason = "no zone is more than a day off")]
        offset.is_finite().then_some(offset as i32)
    }
}

/// The zones of a manifest's schedules that do not exist.
pub fn unknown(manifest: &Manifest) -> Vec<String> {
    let zones = manifest.schedules.iter().filter_map(|schedule| zone_of(&schedule.spec).ok());
    let mut zones: Vec<_> = zones.collect();
    sort(&mut zones);
    zones.dedup();
    // To the runtime, names that differ only in their case are the same.
    let mut unknown: OrdSet<_> = zones.iter().map(|zone| zone.to_ascii_lowercase()).collect();
    unknown.retain(|zone| Runtime.offset_s(zone, 0).is_none());
    zones.retain(|zone| unknown.contains(&zone.to_ascii_lowercase()));
    zones
}
