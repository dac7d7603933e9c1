//! A start that is put off: how people say when a run begins.

use stepwell_protocol::{Timestamp, span};

use super::{
    BadSpec,
    spec::{Moment, SPAN_MS_MAX, read_moment},
};

/// When a run begins that is started now: after a length of time such as `2h`, or at an instant such as
/// `2026-12-01T09:00:00Z`. An instant that is over is now.
pub fn starts_at(text: &str, now: Timestamp) -> Result<Timestamp, BadSpec> {
    let text = text.trim();
    let at = match span::parse(text) {
        Some(ms) => now.plus_millis(ms),
        None => match read_moment(&text.to_ascii_lowercase()) {
            Some(Moment::Instant(at)) => at,
            Some(Moment::Shown(_)) | None => {
                return Err(BadSpec(
                    "A delay is a length of time such as `2h` or `1d 12h`, or an instant such as `2026-12-01T09:00:00Z`."
                        .into(),
                ));
            }
        },
    };
    if at > now.plus_millis(SPAN_MS_MAX) {
        return Err(BadSpec("A run starts a year from now at the latest.".into()));
    }
    Ok(at)
}
