//! Starts that are put off.

use stepwell_protocol::Timestamp;

use crate::schedule::starts_at;

#[test]
fn a_delay_is_a_length_of_time_or_an_instant() {
    let now = Timestamp::from_millis(1_794_733_445_000);
    for (text, ms) in [
        ("2h", 1_794_740_645_000),
        (" 1d 12h ", 1_794_863_045_000),
        ("0s", 1_794_733_445_000),
        ("2026-12-01T09:00:00Z", 1_796_115_600_000),
        ("2026-12-01t09:00+01:00", 1_796_112_000_000),
        ("2020-01-01 00:00:00Z", 1_577_836_800_000),
    ] {
        assert_eq!(starts_at(text, now), Ok(Timestamp::from_millis(ms)), "{text}");
    }
    for bad in [
        "",
        "2",
        "-2h",
        "soon",
        "2026-12-01",
        "2026-12-01 09:00",
        "367 days",
        "2027-12-01T00:00:00Z",
        "at 9:00",
    ] {
        assert!(starts_at(bad, now).is_err(), "{bad}");
    }
}
