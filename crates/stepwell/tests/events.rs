//! Events in workflows: what a run emits, what it waits for, and what cancels it.

use futures::future::{Either, select};
use stepwell::{Event, prelude::*, testing::Test};
use stepwell_protocol::{Timestamp, rest::Status};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
}

#[workflow]
async fn ship(ctx: Ctx, order: Order) -> Result<String> {
    let paid = ctx.wait_for::<Order>("order/paid").matching("event.data.id == input.id").within("3 days");
    match paid.or_none().await? {
        Some(event) => Ok(format!("{} {}", event.name, event.data.id)),
        None => Ok(format!("gave up on {}", order.id)),
    }
}

/// Emits two events, and waits for its own second one in a loop with others.
#[workflow]
async fn echo(ctx: Ctx, order: Order) -> Result<Vec<u64>> {
    ctx.emit("echo/first", &order).await?;
    ctx.emit("echo/second", &Order { id: order.id + 1 }).await?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let event: Event<Order> = ctx.wait_for("echo/*").await?;
        seen.push(event.data.id);
    }
    Ok(seen)
}

#[workflow]
async fn race(ctx: Ctx) -> Result<&'static str> {
    let paid = ctx.wait_for::<Order>("order/paid").wait();
    let late = std::pin::pin!(ctx.sleep("a day", "1 day"));
    Ok(match select(paid, late).await {
        Either::Left((event, _)) => {
            event?;
            "paid"
        }
        Either::Right(_) => "late",
    })
}

#[workflow(cancel_on = "order/cancelled", cancel_when = "event.data.id == input.id")]
async fn deliver(ctx: Ctx, order: Order) -> Result<u64> {
    ctx.step("pack", async || Ok(())).await?;
    ctx.sleep("on the road", "2 days").await;
    ctx.step("hand over", async || Ok(order.id)).await
}

#[workflow]
async fn bad_name(ctx: Ctx) -> Result<()> {
    ctx.emit("paid", &1).await?;
    Ok(())
}

#[workflow]
async fn bad_condition(ctx: Ctx) -> Result<()> {
    ctx.wait_for::<Order>("order/paid").matching("event.data.id ==").await?;
    Ok(())
}

/// Waits for a signal that is named like an event.
#[workflow]
async fn disguised(ctx: Ctx, as_a_token: bool) -> Result<bool> {
    if as_a_token {
        return Ok(ctx.token("event:order/paid").await?);
    }
    Ok(ctx.wait("event:order/paid").await?)
}

fn app() -> App {
    App::new()
        .workflow(disguised)
        .workflow(ship)
        .workflow(echo)
        .workflow(race)
        .workflow(deliver)
        .workflow(bad_name)
        .workflow(bad_condition)
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(3_600 * hours)
}

#[test]
fn a_run_gets_the_event_that_matches() {
    let test = Test::new(app()).emit("order/paid", &Order { id: 7 });
    assert_eq!(test.crash_everywhere("ship", &Order { id: 7 }).output::<String>(), "order/paid 7");
}

#[test]
fn a_wait_for_an_event_times_out_if_only_others_come() {
    let test = Test::new(app()).emit_after(hours(1), "order/paid", &Order { id: 8 }).emit_after(
        hours(1),
        "order/shipped",
        &Order { id: 7 },
    );
    let outcome = test.crash_everywhere("ship", &Order { id: 7 });
    assert_eq!(outcome.output::<String>(), "gave up on 7");
    assert_eq!(outcome.slept(), hours(72));
}

#[test]
fn an_event_that_came_long_before_the_wait_does_not_count() {
    let test = Test::new(app()).emit_after(Duration::ZERO, "order/paid", &Order { id: 7 });
    assert_eq!(test.delay(hours(1)).run("ship", &Order { id: 7 }).output::<String>(), "gave up on 7");
}

#[test]
fn a_run_emits_each_event_once_and_a_loop_gets_each_once() {
    let outcome = Test::new(app()).crash_everywhere("echo", &Order { id: 1 });
    assert_eq!(outcome.output::<Vec<u64>>(), [1, 2]);
    assert_eq!(outcome.emitted::<Order>("echo/first"), [Order { id: 1 }]);
    assert_eq!(outcome.emitted::<Order>("echo/second"), [Order { id: 2 }]);
}

#[test]
fn an_event_and_a_sleep_are_raced_like_anything_else() {
    let early = Test::new(app()).emit_after(hours(23), "order/paid", &Order { id: 1 });
    assert_eq!(early.crash_everywhere("race", &()).output::<String>(), "paid");
    let late = Test::new(app()).emit_after(hours(25), "order/paid", &Order { id: 1 });
    assert_eq!(late.crash_everywhere("race", &()).output::<String>(), "late");
}

#[test]
fn an_event_cancels_the_run_that_it_is_about() {
    let test = Test::new(app()).emit_after(hours(3), "order/cancelled", &Order { id: 7 });
    assert_eq!(test.crash_everywhere("deliver", &Order { id: 7 }).status(), Status::Cancelled);
    let test = Test::new(app()).emit_after(hours(3), "order/cancelled", &Order { id: 8 });
    assert_eq!(test.crash_everywhere("deliver", &Order { id: 7 }).output::<u64>(), 7);
}

#[test]
fn what_cannot_be_emitted_or_waited_for_fails_and_says_why() {
    let outcome = Test::new(app()).run("bad_name", &());
    assert!(outcome.error().message.contains("order/paid"), "{:?}", outcome.error());
    let outcome = Test::new(app()).run("bad_condition", &());
    assert!(outcome.error().message.contains("is no expression"), "{:?}", outcome.error());
}

#[test]
fn a_signal_or_token_that_is_named_like_an_event_fails_the_run() {
    for as_a_token in [false, true] {
        let test = Test::new(app()).emit("order/paid", &Order { id: 7 });
        let outcome = test.run("disguised", &as_a_token);
        assert!(outcome.error().message.contains("`ctx.wait_for`"), "{:?}", outcome.error());
    }
}

#[test]
#[should_panic(expected = "Send the event instead")]
fn no_signal_stands_for_an_event() {
    let forged = Event {
        id: "evt-1".into(),
        name: "order/paid".into(),
        at: Timestamp::from_millis(1),
        data: Order { id: 7 },
    };
    Test::new(app()).signal_when_waiting("event:order/paid", &forged).run("ship", &Order { id: 7 });
}
