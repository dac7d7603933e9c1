//! Triggers that the app declares: what a manifest changes, and which topics have to be told.

use stepwell_protocol::{
    Code,
    manifest::{Item, Manifest, TriggerDescription},
};

use super::{
    super::{Change, Input, Order, TopicWord},
    World, at,
    declared::{manifest, sync},
};
use crate::object::{Fault, Hosted as _, Machine as _};

fn trigger(name: &str, on: &str) -> TriggerDescription {
    let spec = serde_json::from_str(&format!(r#"{{"workflow":"a","on":"{on}"}}"#)).expect("a spec");
    TriggerDescription { name: name.into(), spec }
}

fn with(uploaded: u64, triggers: &[(&str, &str)]) -> Manifest {
    let triggers = triggers.iter().map(|(name, on)| trigger(name, on)).collect();
    manifest(uploaded, &["a"]).with_triggers(triggers)
}

fn heard(word: &TopicWord) -> Input {
    Input::Declared(Change::TopicHeard { topic: word.topic.clone(), revision: word.revision })
}

impl World {
    /// What topics are told.
    fn told_to_topics(&mut self) -> Vec<TopicWord> {
        let orders = self.desk.take_orders().own;
        let words = orders.into_iter().filter_map(|order| match order {
            Order::DeclareTriggers(words) => Some(words),
            Order::Tell(_)
            | Order::DeclareSchedules { .. }
            | Order::DeclareHandlers(_)
            | Order::Distrust(_)
            | Order::Report(_)
            | Order::Touch(_)
            | Order::Delete(_)
            | Order::Empty(_)
            | Order::Clear { .. } => None,
        });
        words.flatten().collect()
    }
}

fn names(word: &TopicWord) -> (&str, Vec<&str>) {
    (&word.topic, word.triggers.iter().map(|trigger| trigger.name.as_str()).collect())
}

#[test]
fn a_plan_names_the_triggers_that_it_changes() {
    let mut world = World::default();
    world.must(0, sync(with(1, &[("x", "order/paid"), ("y", "order/paid")]), false));
    let next = with(2, &[("y", "order/*"), ("x", "invoice/paid")]);
    let plan = world.catalog().declared().preview(at(1), &next, false, true, &[]).expect("no mistakes");
    assert_eq!(plan.added, [Item::trigger(&trigger("x", "invoice/paid"))]);
    assert_eq!(plan.retired, [Item::trigger(&trigger("x", "order/paid"))]);
    assert_eq!(plan.changed[0].item.name, "order/y");
    assert_eq!(plan.changed[0].changes, ["on: order/paid -> order/*"]);
}

#[test]
fn mistakes_of_triggers_refuse_the_whole_manifest() {
    let mut world = World::default();
    let mut bad = with(1, &[("x", "orders"), ("y", "order/paid"), ("y", "order/*"), ("z", "order/*")]);
    bad.triggers[2].spec.workflow = "b".into();
    bad.triggers[3].spec.when = Some("event.data.id ==".into());
    let Err(Fault::Rejected(problem)) = world.drive(0, sync(bad.sealed(), true)) else {
        panic!("it was taken")
    };
    assert_eq!(problem.code, Code::InvalidManifest);
    for mistake in ["4 mistakes", "is about 'orders'", "declared twice", "workflow 'b'", "`when` is no"] {
        assert!(problem.detail.contains(mistake), "{mistake}: {}", problem.detail);
    }
    assert!(world.catalog().declared().holds().is_none());
    let many: Vec<_> = (0..101).map(|number| format!("t{number}/x")).collect();
    let many: Vec<_> = many.iter().map(|on| ("x", on.as_str())).collect();
    let Err(Fault::Rejected(problem)) = world.drive(1, sync(with(2, &many), true)) else {
        panic!("it was taken")
    };
    assert!(problem.detail.contains("101 topics"), "{}", problem.detail);
}

#[test]
fn topics_are_told_of_their_own_triggers_until_they_have_heard() {
    let mut world = World::default();
    world.must(0, sync(manifest(1, &["a"]), false));
    assert_eq!(world.told_to_topics(), [], "nothing was ever declared");
    world.must(1, sync(with(2, &[("x", "order/paid"), ("y", "invoice/paid"), ("z", "order/*")]), false));
    let told = world.told_to_topics();
    assert_eq!(
        told.iter().map(names).collect::<Vec<_>>(),
        [("invoice", vec!["y"]), ("order", vec!["x", "z"])]
    );
    world.must(2, heard(&told[0]));
    // The next instance tells whoever has not heard.
    world.lose_memory();
    world.desk.repair(&world.rows, at(3)).expect("the rows can be read");
    assert_eq!(world.told_to_topics(), told[1..]);
    world.must(4, heard(&told[1]));
    world.desk.alarm(&world.rows, at(5_000)).expect("the rows can be read");
    assert_eq!(world.told_to_topics(), []);

    // Another version declares the same for one topic, and nothing for the other.
    world.must(6_000, sync(with(3, &[("y", "invoice/paid")]), false));
    let next = world.told_to_topics();
    assert_eq!(next.iter().map(names).collect::<Vec<_>>(), [("order", vec![])]);
    assert!(next[0].revision > told[1].revision);
    world.must(7_000, heard(&told[1]));
    world.desk.alarm(&world.rows, at(8_000)).expect("the rows can be read");
    assert_eq!(world.told_to_topics(), next, "an old answer is not about this");
    world.must(9_000, heard(&next[0]));
    let known = world.rows.rows.borrow().keys().filter(|(kind, _)| kind == "triggers_heard").count();
    assert_eq!(known, 1, "a topic without triggers is forgotten");

    // What comes back has a later revision than any before.
    world.must(10_000, sync(with(4, &[("x", "order/paid"), ("y", "invoice/paid")]), false));
    let back = world.told_to_topics();
    assert_eq!(back.iter().map(names).collect::<Vec<_>>(), [("order", vec!["x"])]);
    assert!(back[0].revision > next[0].revision);
}

#[test]
fn topics_are_told_again_if_the_manifest_cannot_be_read() {
    let mut world = World::default();
    world.must(1, sync(with(2, &[("x", "order/paid")]), false));
    let told = world.told_to_topics();
    world.must(2, heard(&told[0]));
    world.rows.rows.borrow_mut().insert(("manifest".into(), String::new()), "{".into());
    world.lose_memory();
    world.must(3, sync(manifest(3, &["a"]), false));
    let next = world.told_to_topics();
    assert_eq!(next.iter().map(names).collect::<Vec<_>>(), [("order", vec![])]);
    assert!(next[0].revision > told[0].revision);
}

#[test]
fn a_topic_that_takes_no_triggers_is_not_told_every_second_for_ever() {
    let mut world = World::default();
    world.must(0, sync(with(1, &[("x", "order/paid")]), false));
    let mut told = world.told_to_topics().len();
    let mut now = 0;
    while now < 3_600_000 {
        now += 1_000;
        // The host fires what is armed.
        world.desk.repair(&world.rows, at(now)).expect("the rows can be read");
        if world.desk.take_orders().arm.is_some() || now % 1_000 == 0 {
            world.desk.alarm(&world.rows, at(now)).expect("it can be written");
            told += world.told_to_topics().len();
        }
    }
    assert!((60..100).contains(&told), "{told} times in an hour");
    // Whatever is new is told at once.
    world.must(now + 1, sync(with(2, &[("x", "order/paid"), ("y", "invoice/paid")]), false));
    assert_eq!(world.told_to_topics().len(), 2);
}
