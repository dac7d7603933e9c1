//! Triggers that the code declares: what an operator has done stays, and what leaves the code stops.

use serde_json::json;
use stepwell_protocol::{Code, Problem, manifest::TriggerDescription, topic::TriggerSpec};

use super::{Full, World, event, on};
use crate::{
    access::APP,
    object::Fault,
    topic::{TRIGGERS_MAX, layers::RETIRED_MS},
};

fn declared(name: &str, spec: TriggerSpec) -> TriggerDescription {
    TriggerDescription { name: name.into(), spec }
}

impl World {
    fn declare(&mut self, revision: u64, triggers: &[TriggerDescription]) {
        self.topic.declare(&self.rows, self.now, revision, triggers).expect("it is taken");
    }

    fn pay(&mut self) -> usize {
        let before = self.runs.len();
        let mark = self.rows.last.get().to_string();
        self.send(&mark, vec![event("order/paid", None, &json!({"amount": 120}))]);
        self.settle(10_000);
        self.runs.len() - before
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, Fault<Full>>) -> Code {
    match result {
        Err(Fault::Rejected(Problem { code, .. })) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_code_declares_starts_runs_of_the_events_from_then_on() {
    let mut world = World::new();
    assert_eq!(world.pay(), 0);
    world.declare(7, &[declared("charge", on("order/*", None))]);
    assert_eq!(world.pay(), 1);
    world.crash();
    assert_eq!(world.pay(), 1);
    let view = world.trigger("charge");
    assert_eq!((view.changed_by.as_str(), view.counts.started), (APP, 2));
    // A word that comes late, or again, changes nothing.
    world.declare(6, &[]);
    world.declare(7, &[]);
    assert_eq!(world.pay(), 1);
    let deleted = world.topic.delete_trigger(&world.rows, world.now, "charge");
    assert_eq!(refused(deleted), Code::WrongStatus);
}

#[test]
fn what_an_operator_has_done_stays() {
    let mut world = World::new();
    world.put("mine", on("order/paid", None)).expect("a trigger");
    world.declare(1, &[declared("charge", on("order/*", None)), declared("mine", on("order/*", None))]);
    assert_eq!(world.trigger("mine").spec.on, "order/paid", "one that a person has made goes on as it is");
    world.topic.pause_trigger(&world.rows, world.now, "ada", "charge").expect("it is paused");
    world.declare(2, &[declared("charge", on("order/p*", None)), declared("mine", on("order/*", None))]);
    let charge = world.trigger("charge");
    assert_eq!(
        (charge.spec.on.as_str(), charge.paused.is_some()),
        ("order/p*", true),
        "no deploy un-pauses it"
    );
    assert_eq!(world.pay(), 1, "that of the other one");

    world.put("charge", on("order/shipped", None)).expect("it is changed");
    world.declare(3, &[declared("charge", on("order/*", None)), declared("mine", on("order/*", None))]);
    let charge = world.trigger("charge");
    assert_eq!(charge.spec.on, "order/shipped");
    assert!(charge.declared.is_some_and(|declared| declared.changed && declared.spec.on == "order/*"));
    // Once the code says the same, it is the code's again.
    world.declare(4, &[declared("charge", on("order/shipped", None))]);
    assert!(world.trigger("charge").declared.is_some_and(|declared| !declared.changed));
}

#[test]
fn what_leaves_the_code_stops_and_is_deleted_after_a_month() {
    let mut world = World::new();
    world.declare(1, &[declared("charge", on("order/*", None)), declared("other", on("order/x", None))]);
    world.topic.pause_trigger(&world.rows, world.now, "ada", "other").expect("it is paused");
    world.declare(2, &[]);
    assert_eq!(world.pay(), 0);
    let charge = world.trigger("charge");
    assert!(charge.declared.is_some_and(|declared| declared.retired_at == Some(charge.changed_at)));
    let paused = world.topic.pause_trigger(&world.rows, world.now, "ada", "charge");
    assert_eq!(refused(paused), Code::WrongStatus);

    // It comes back, for the events from then on, and as it was paused.
    world.later(RETIRED_MS - 1_000_000);
    world.declare(3, &[declared("other", on("order/*", None))]);
    assert!(world.trigger("other").paused.is_some());
    // Whoever puts what was retired has a trigger of their own.
    world.put("charge", on("order/*", None)).expect("it is taken up");
    assert_eq!(world.trigger("charge").declared, None);
    assert_eq!(world.pay(), 1);
    world.declare(4, &[]);
    world.settle(RETIRED_MS + 60_000);
    world.crash();
    let left = world.topic.list_triggers(&world.rows, world.now).expect("a list").triggers;
    assert_eq!(left.iter().map(|trigger| trigger.id.as_str()).collect::<Vec<_>>(), ["charge"]);
}

#[test]
fn a_topic_full_of_triggers_of_people_takes_those_of_the_code() {
    let mut world = World::new();
    for number in 0..TRIGGERS_MAX {
        world.put(&format!("own-{number}"), on("order/x", None)).expect("a trigger");
    }
    world.declare(1, &[declared("charge", on("order/*", None))]);
    assert_eq!(world.pay(), 1);
    let one_more = world.put("one-more", on("order/x", None));
    assert_eq!(refused(one_more), Code::TooMany);
}

#[test]
fn nothing_is_heard_that_is_not_stored() {
    let mut world = World::new();
    world.rows.is_full.set(true);
    let charge = [declared("charge", on("order/*", None))];
    let told = world.topic.declare(&world.rows, world.now, 1, &charge);
    assert!(matches!(told, Err(Fault::Storage(Full))));
    world.rows.is_full.set(false);
    assert_eq!(world.pay(), 0);
    world.declare(1, &charge);
    assert_eq!(world.pay(), 1);
}
