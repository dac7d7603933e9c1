//! Time zones, as the runtime knows them: all of them, up to date, and at no cost in the bundle.

use stepwell_core::schedule::Zones;

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
