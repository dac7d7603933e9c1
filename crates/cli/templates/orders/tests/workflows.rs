//! Orders in memory: their ends, and a crash at every commit. What is outside is mocked.

use std::time::Duration;

use example_orders::{Order, Receipt, Status, app};
use stepwell::{
    Error, Result, StepInfo,
    testing::{Test, effect},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn order(cents: u32) -> Order {
    Order { id: "o-1".into(), cents, notify: vec!["ada".into(), "grace".into(), "mary".into()] }
}

/// What a step does to the world outside, once for each idempotency key.
fn does(what: &'static str) -> impl Fn(&StepInfo) -> Result<()> {
    move |info| {
        effect(info, what);
        Ok(())
    }
}

/// A shop whose bank and books do what they are told.
fn shop() -> Test {
    Test::new(app())
        .var("APPROVAL_CENTS", "10000")
        .mock("open", does("open"))
        .mock("charge", |info| {
            effect(info, "charge");
            Ok("ch_1")
        })
        .mock("notify", does("notify"))
        .mock("keep receipt", does("receipt"))
        .mock("close", does("close"))
}

fn receipt(status: Status, told: usize) -> Receipt {
    Receipt { status, charge: "ch_1".into(), told }
}

#[test]
fn a_small_order_is_charged_and_shipped_whatever_crashes() {
    let outcome = shop().crash_everywhere("order", &order(500));
    assert_eq!(outcome.output::<Receipt>(), receipt(Status::Shipped, 3));
    assert_eq!(outcome.effects().len(), 7, "open, charge, three messages, receipt, close");
}

#[test]
fn a_large_order_waits_for_a_person() {
    let outcome = shop().signal_after(DAY, "approval", &true).crash_everywhere("order", &order(10_000));
    assert_eq!(outcome.output::<Receipt>(), receipt(Status::Shipped, 3));
    assert_eq!(outcome.slept(), DAY);
}

#[test]
fn a_large_order_that_is_refused_gets_its_money_back() {
    let test = shop().mock("refund", does("refund")).signal_when_waiting("approval", &false);
    let outcome = test.crash_everywhere("order", &order(10_000));
    assert_eq!(outcome.output::<Receipt>(), receipt(Status::Refunded, 3));
    assert!(outcome.ran().contains(&"refund"));
}

#[test]
fn a_large_order_that_nobody_looks_at_gets_its_money_back_after_three_days() {
    let outcome = shop().mock("refund", does("refund")).crash_everywhere("order", &order(10_000));
    assert_eq!(outcome.output::<Receipt>(), receipt(Status::Refunded, 3));
    assert_eq!(outcome.slept(), DAY * 3);
}

#[test]
fn a_busy_bank_is_asked_again_when_it_says() {
    let test = shop().mock("charge", |info| match info.attempt {
        1 => Err(Error::msg("the bank is busy").retry_after(Duration::from_secs(120))),
        _ => Ok("ch_1"),
    });
    let outcome = test.run("order", &order(500));
    assert_eq!(outcome.output::<Receipt>(), receipt(Status::Shipped, 3));
    assert_eq!(outcome.slept(), Duration::from_secs(120));
}

#[test]
fn a_message_that_is_not_delivered_keeps_no_order_from_its_end() {
    let test = shop().mock("notify", |info| {
        if info.idempotency_key.contains(":1:") { Err(Error::terminal("no such address")) } else { Ok(()) }
    });
    assert_eq!(test.run("order", &order(500)).output::<Receipt>(), receipt(Status::Shipped, 2));
}

#[test]
fn a_step_that_is_not_mocked_says_so() {
    let outcome = Test::new(app()).run("order", &order(500));
    let message = &outcome.error().message;
    assert!(message.contains("the D1 database 'ORDERS' works only in a Worker"), "{message}");
    assert!(message.contains("`.mock(\"open\", |_| Ok(…))`"), "{message}");
}
