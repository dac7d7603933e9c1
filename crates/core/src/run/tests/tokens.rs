//! Many links at once.

use std::time::{Duration, Instant};

use stepwell_protocol::wait_token::Asked;

use super::*;

/// A run that waits for so many links.
fn asking(count: u32) -> Run {
    let asked = Asked { title: String::new(), detail: String::new(), expires_at: Timestamp::from_millis(1) };
    let open = |occurrence| OpenOp {
        signal: Some("ok".into()),
        asked: Some(Box::new(asked.clone())),
        ..OpenOp::plain(Op { kind: OpKind::Wait, name: "ok".into(), occurrence })
    };
    let mut run = Bench::start(Some(SLOT)).run;
    run.open = (0..count).map(open).collect();
    run
}

/// How long it takes at best to find out which links are over when one of so many is.
fn takes(count: u32) -> Duration {
    let run = asking(count);
    let once = |_| {
        let began = Instant::now();
        assert_eq!(run.tokens_over(&run.open[1..]).count(), 1);
        began.elapsed()
    };
    (0..3).map(once).min().unwrap_or_default()
}

#[test]
fn ten_times_as_many_links_take_about_ten_times_as_long() {
    // The shortest of some: other tests take time, too.
    let shortest = |links| (0..15).map(|_| takes(links)).min().unwrap_or_default();
    let (few, many) = (shortest(1_000), shortest(10_000));
    assert!(many < few * 60, "{few:?} for 1,000, {many:?} for 10,000");
}
