//! Handlers of jobs that the app declares: what a manifest changes, and which queues have to be told.

use stepwell_protocol::{
    Code,
    manifest::{Item, JobDescription, Manifest},
    queue::Push,
};

use super::{
    super::{Change, Input, Order, QueueWord},
    World, at,
    declared::{manifest, sync},
};
use crate::object::{Fault, Hosted as _, Machine as _};

fn with(uploaded: u64, jobs: &[(&str, u32)]) -> Manifest {
    let job = |(queue, concurrency): &(&str, u32)| JobDescription {
        queue: (*queue).to_owned(),
        push: Push { concurrency: *concurrency, ..Push::default() },
    };
    manifest(uploaded, &["a"]).with_jobs(jobs.iter().map(job).collect())
}

impl World {
    /// What queues are told.
    fn told_to_queues(&mut self) -> Vec<QueueWord> {
        let orders = self.desk.take_orders().own;
        let words = orders.into_iter().filter_map(|order| match order {
            Order::DeclareHandlers(words) => Some(words),
            Order::Tell(_)
            | Order::DeclareSchedules { .. }
            | Order::DeclareTriggers(_)
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

fn heard(word: &QueueWord) -> Input {
    Input::Declared(Change::QueueHeard { queue: word.queue.clone(), revision: word.revision })
}

fn said(word: &QueueWord) -> (&str, Option<u32>) {
    (&word.queue, word.handler.as_ref().map(|handler| handler.concurrency))
}

#[test]
fn queues_are_told_of_their_handlers_until_they_have_heard() {
    let mut world = World::default();
    world.must(0, sync(with(1, &[("mails", 2), ("images", 3)]), false));
    let told = world.told_to_queues();
    assert_eq!(told.iter().map(said).collect::<Vec<_>>(), [("images", Some(3)), ("mails", Some(2))]);
    world.must(1, heard(&told[0]));
    // The next instance tells whoever has not heard.
    world.lose_memory();
    world.desk.repair(&world.rows, at(2)).expect("the rows can be read");
    assert_eq!(world.told_to_queues(), told[1..]);
    world.must(3, heard(&told[1]));
    world.desk.alarm(&world.rows, at(5_000)).expect("the rows can be read");
    assert_eq!(world.told_to_queues(), []);
    // Another version changes one, and has no other.
    let next = with(2, &[("mails", 4)]);
    let plan = world.catalog().declared().preview(at(6_000), &next, false, true, &[]).expect("no mistakes");
    assert_eq!(plan.retired, [Item::job("images")]);
    assert_eq!(plan.changed[0].changes, ["concurrency: 2 -> 4"]);
    world.must(6_000, sync(next, false));
    let next = world.told_to_queues();
    assert_eq!(next.iter().map(said).collect::<Vec<_>>(), [("images", None), ("mails", Some(4))]);
    assert!(next[0].revision > told[0].revision && next[1].revision > told[1].revision);
    for word in &next {
        world.must(6_001, heard(word));
    }
    // A queue without a handler is not remembered.
    assert_eq!(world.catalog().declared().queues.keys().collect::<Vec<_>>(), ["mails"]);
}

#[test]
fn mistakes_of_handlers_refuse_the_whole_manifest() {
    let mut world = World::default();
    let bad = with(1, &[("mails", 0), ("a b", 1), ("images", 1), ("images", 2)]);
    let Err(Fault::Rejected(problem)) = world.drive(0, sync(bad, true)) else { panic!("it was taken") };
    assert_eq!(problem.code, Code::InvalidManifest);
    for mistake in ["3 mistakes", "`concurrency` is 1 to 384", "a queue is named \"a b\"", "two handlers"] {
        assert!(problem.detail.contains(mistake), "{mistake}: {}", problem.detail);
    }
    assert!(world.catalog().declared().holds().is_none());
}
