//! Schedules that the app declares: what a manifest changes, and who has to be told.

use stepwell_protocol::{
    Code,
    manifest::{Item, Manifest, ScheduleDescription},
};

use super::{
    super::{Change, Input, Order},
    World, at,
    declared::{manifest, sync},
};
use crate::object::{Fault, Hosted as _, Machine as _};

fn with(uploaded: u64, schedules: &[(&str, &str)]) -> Manifest {
    let schedules = schedules.iter().map(|(name, when)| ScheduleDescription {
        name: (*name).into(),
        spec: serde_json::from_str(&format!(r#"{{"workflow":"a","when":"{when}"}}"#)).expect("a spec"),
    });
    manifest(uploaded, &["a"]).with_schedules(schedules.collect())
}

impl World {
    /// What the station of schedules is told.
    fn declared_to_station(&mut self) -> Option<(u64, Vec<String>)> {
        let orders = self.desk.take_orders().own;
        orders.into_iter().find_map(|order| match order {
            Order::DeclareSchedules { revision, schedules } => {
                Some((revision, schedules.into_iter().map(|schedule| schedule.name).collect()))
            }
            Order::Tell(_)
            | Order::Distrust(_)
            | Order::Report(_)
            | Order::Touch(_)
            | Order::Delete(_)
            | Order::Empty(_)
            | Order::DeclareTriggers(_)
            | Order::DeclareHandlers(_)
            | Order::Clear { .. } => None,
        })
    }
}

#[test]
fn a_plan_names_the_schedules_that_it_changes() {
    let mut world = World::default();
    world.must(0, sync(with(1, &[("x", "every day"), ("y", "every day")]), false));
    let next = with(2, &[("y", "every 5 minutes"), ("z", "every day")]);
    let plan = world.catalog().declared().preview(at(1), &next, false, true, &[]).expect("no mistakes");
    assert_eq!((plan.added, plan.retired), (vec![Item::schedule("z")], vec![Item::schedule("x")]));
    assert_eq!(plan.changed[0].item, Item::schedule("y"));
    assert_eq!(plan.changed[0].changes, ["when: every day -> every 5 minutes"]);
}

#[test]
fn mistakes_of_schedules_refuse_the_whole_manifest() {
    let mut world = World::default();
    let mut bad = with(1, &[("x", "61 * * * *"), ("y", "every day in Mars/Olympus"), ("y", "every day")]);
    bad.schedules[1].spec.workflow = "b".into();
    let change = Change::Sync {
        manifest: Box::new(bad.sealed()),
        is_explicit: true,
        unknown_zones: vec!["Mars/Olympus".into()],
    };
    let Err(Fault::Rejected(problem)) = world.drive(0, Input::Declared(change)) else {
        panic!("it was taken")
    };
    assert_eq!(problem.code, Code::InvalidManifest);
    for mistake in ["4 mistakes", "schedule 'x': ", "'Mars/Olympus'", "declared twice", "workflow 'b'"] {
        assert!(problem.detail.contains(mistake), "{mistake}: {}", problem.detail);
    }
    assert!(world.catalog().declared().holds().is_none());
}

#[test]
fn the_station_is_told_until_it_has_heard_also_after_a_crash() {
    let mut world = World::default();
    world.must(0, sync(manifest(1, &["a"]), false));
    assert_eq!(world.declared_to_station(), None, "nothing was ever declared");
    world.must(1, sync(with(2, &[("x", "every day")]), false));
    let (first, names) = world.declared_to_station().expect("it is told");
    assert_eq!(names, ["x"]);
    world.lose_memory();
    world.desk.repair(&world.rows, at(2)).expect("the rows can be read");
    assert_eq!(world.declared_to_station(), Some((first, names)), "the next instance tells it");
    world.must(3, Input::Declared(Change::Heard { revision: first }));
    world.desk.alarm(&world.rows, at(5_000)).expect("the rows can be read");
    assert_eq!(world.declared_to_station(), None);
    world.must(6_000, sync(with(3, &[("x", "every day")]), false));
    assert_eq!(world.declared_to_station(), None, "another version declares the same");
    world.must(7_000, sync(manifest(4, &["a"]), false));
    let (second, names) = world.declared_to_station().expect("it is told that nothing is declared");
    assert!(second > first && names.is_empty());
    world.must(8_000, Input::Declared(Change::Heard { revision: first }));
    world.desk.alarm(&world.rows, at(9_000)).expect("the rows can be read");
    assert!(world.declared_to_station().is_some(), "an old answer is not about this");
}
