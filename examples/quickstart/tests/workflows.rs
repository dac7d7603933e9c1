//! The two workflows in memory: their ends, and a crash at every commit.

use std::time::Duration;

use example_quickstart::app;
use stepwell::testing::Test;

const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[test]
fn greet_sends_its_greeting_after_ten_seconds() {
    let outcome = Test::new(app()).run("greet", "Ada");
    assert_eq!(outcome.output::<String>(), "Hello, Ada!");
    assert_eq!(outcome.ran(), ["compose", "send"]);
    assert_eq!(outcome.slept(), Duration::from_secs(10));
}

#[test]
fn greet_survives_a_crash_at_every_commit() {
    let outcome = Test::new(app()).crash_everywhere("greet", "Ada");
    assert_eq!(outcome.output::<String>(), "Hello, Ada!");
}

#[test]
fn approval_publishes_what_was_approved() {
    let test = Test::new(app()).signal_after(WEEK / 2, "decision", &true);
    let outcome = test.crash_everywhere("approval", "the plan");
    assert_eq!(outcome.output::<String>(), "published the plan");
}

#[test]
fn approval_rejects_what_was_rejected() {
    let outcome = Test::new(app()).signal_when_waiting("decision", &false).run("approval", "the plan");
    assert_eq!(outcome.output::<String>(), "rejected the plan");
    assert!(outcome.ran().is_empty());
}

#[test]
fn approval_gives_up_after_a_week() {
    let outcome = Test::new(app()).crash_everywhere("approval", "the plan");
    assert_eq!(outcome.output::<String>(), "nobody decided about the plan");
    assert_eq!(outcome.slept(), WEEK);
}
