//! Triggers that an app declares: what its manifest says, and the runs that an event starts in a test.

use serde_json::json;
use stepwell::{Event, Trigger, prelude::*, testing::Test};

#[derive(Debug, Serialize, Deserialize)]
struct Paid {
    order: u64,
    amount: u64,
}

#[workflow(on = "order/paid", when = "event.data.amount > 100")]
async fn charge(ctx: Ctx, paid: Paid) -> Result<u64> {
    ctx.step("charge", async || Ok(paid.amount)).await
}

#[workflow]
async fn note(ctx: Ctx, event: Event<serde_json::Value>) -> Result<String> {
    ctx.step("note", async || Ok(format!("{} {}", event.name, event.data["order"]))).await
}

fn app() -> App {
    App::new()
        .workflow(charge)
        .workflow(note)
        .trigger(Trigger::on("order/*").named("notes").with_event().tag("all"), note)
}

#[test]
fn a_manifest_has_the_triggers_that_the_code_declares() {
    let manifest = serde_json::to_value(app().manifest()).expect("it is JSON");
    let expected = json!([
        {"name": "charge", "spec": {"on": "order/paid", "when": "event.data.amount > 100", "workflow": "charge"}},
        {"name": "notes", "spec": {"on": "order/*", "workflow": "note", "input": "event", "tags": ["all"]}},
    ]);
    assert_eq!(manifest["triggers"], expected);
    assert_ne!(app().manifest().hash, App::new().workflow(charge).workflow(note).manifest().hash);
}

#[test]
#[should_panic(expected = "two triggers named 'order/charge'")]
fn two_triggers_of_one_name_in_a_topic_are_a_mistake() {
    let _ = app().on("order/*", charge);
}

#[test]
fn another_topic_may_have_the_same_name() {
    assert_eq!(app().on("invoice/paid", charge).manifest().triggers.len(), 3);
}

#[test]
fn an_event_starts_a_run_for_each_trigger_that_it_meets() {
    let runs = Test::new(app()).triggered_by("order/paid", &Paid { order: 7, amount: 120 });
    let names: Vec<_> = runs.iter().map(|run| run.trigger.as_str()).collect();
    assert_eq!(names, ["charge", "notes"]);
    assert_eq!(runs[0].outcome.output::<u64>(), 120);
    assert_eq!(runs[1].outcome.output::<String>(), "order/paid 7");

    let runs = Test::new(app()).triggered_by_with_crashes("order/paid", &Paid { order: 8, amount: 5 });
    assert_eq!(runs.len(), 1, "the condition does not hold");
    assert_eq!(runs[0].outcome.output::<String>(), "order/paid 8");
    assert!(Test::new(app()).triggered_by("invoice/paid", &()).is_empty());
}

#[test]
#[should_panic(expected = "trigger 'note': `when` is no expression")]
fn a_condition_that_the_engine_refuses_fails_the_test() {
    let app = App::new().workflow(note).trigger(Trigger::on("order/*").when("event.data >"), note);
    let _ = Test::new(app).triggered_by("order/paid", &1);
}
