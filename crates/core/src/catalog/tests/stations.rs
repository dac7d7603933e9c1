//! The register of stations.

use std::collections::BTreeSet;

use stepwell_protocol::{Code, Problem};

use super::{
    super::{
        Desk, Named, Order, Registered, Station, TOUCHED_AT_ONCE,
        stations::{QUEUES_MAX, TOPICS_MAX},
    },
    World, at,
};
use crate::object::{Fault, Hosted as _, Machine as _};

fn station(number: usize) -> Station {
    format!("schedules/{number:04}").parse().expect("it names one")
}

impl World {
    fn register(&mut self, ms: u64, station: &Station) -> Result<Registered, Fault<super::Failed>> {
        self.desk.repair(&self.rows, at(ms)).expect("the rows can be read");
        self.desk.register(&self.rows, at(ms), station.clone())
    }

    fn registered(&self) -> Vec<Station> {
        self.desk.stations(&self.rows, None, usize::MAX).expect("the rows can be read")
    }

    /// What the sweep touches.
    fn touched(&mut self, ms: u64) -> Vec<Station> {
        drop(self.desk.take_orders());
        self.desk.touch(&self.rows, at(ms)).expect("it can be written");
        let orders = self.desk.take_orders().own.into_iter();
        orders
            .flat_map(|order| if let Order::Touch(stations) = order { stations } else { Vec::new() })
            .collect()
    }
}

#[test]
fn a_station_is_in_the_register_once_however_often_it_registers() {
    let mut world = World::default();
    for ms in 0..3 {
        assert_eq!(world.register(ms, &station(7)).expect("it may"), Registered { life: 0 });
        world.lose_memory();
    }
    assert_eq!(world.registered(), [station(7)]);
}

#[test]
fn a_station_that_is_not_stored_is_not_registered() {
    let mut world = World::default();
    world.rows.fails.set(true);
    assert!(matches!(world.register(0, &station(1)), Err(Fault::Storage(_))));
    assert_eq!(world.registered(), []);
}

#[test]
fn the_register_is_read_in_pages_and_is_no_part_of_the_catalog_in_memory() {
    let mut world = World::default();
    for number in 0..25 {
        world.register(0, &station(number)).expect("it may");
    }
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = world.desk.stations(&world.rows, after.as_ref(), 10).expect("the rows can be read");
        assert!(page.len() <= 10);
        let Some(last) = page.last().cloned() else { break };
        all.extend(page);
        after = Some(last);
    }
    assert_eq!(all, (0..25).map(station).collect::<Vec<_>>());
    let before = world.catalog().clone();
    world.register(1, &station(99)).expect("it may");
    assert_eq!(*world.catalog(), before);
}

#[test]
fn every_station_is_touched_before_any_is_touched_again() {
    let count = 3 * TOUCHED_AT_ONCE + 5;
    let mut world = World::default();
    for number in 0..count {
        world.register(0, &station(number)).expect("it may");
    }
    let mut seen = BTreeSet::new();
    for sweep in 0..4 {
        let touched = world.touched(sweep);
        assert!(touched.len() <= TOUCHED_AT_ONCE);
        assert!(touched.into_iter().all(|station| seen.insert(station)), "once in a round");
        // The catalog does not live from one sweep to the next.
        world.lose_memory();
    }
    assert_eq!(seen.len(), count);
    assert_eq!(world.touched(9).first(), Some(&station(0)), "then the next round begins");
}

#[test]
fn a_catalog_without_stations_touches_nobody_and_writes_nothing() {
    let mut world = World::default();
    assert_eq!(world.touched(0), []);
    assert!(world.rows.rows.borrow().is_empty());
}

#[test]
fn a_station_is_named_by_its_kind_and_its_name() {
    for text in ["schedules/3", "topic/orders/7", "definitions/"] {
        let station: Station = text.parse().expect("it names one");
        assert_eq!(station.to_string(), text);
    }
    for text in ["", "schedules", "/3", &format!("topic/{}", "x".repeat(600))] {
        assert!(text.parse::<Station>().is_err(), "{text}");
    }
    let catalog: Station = "catalog/".parse().expect("it names one");
    assert_eq!(catalog.address("acme").map(|address| address.to_string()).as_deref(), Some("catalog/acme"));
    let unknown: Station = "lathe/3".parse().expect("a newer release may have it");
    assert_eq!(unknown.address("acme"), None);
}

#[test]
fn a_namespace_has_only_so_many_topics() {
    let mut world = World::default();
    let topic = |number: usize| format!("topic/order-{number:04}").parse::<Station>().expect("it names one");
    for number in 0..TOPICS_MAX {
        world.register(0, &topic(number)).expect("it may");
    }
    let refused = world.register(1, &topic(TOPICS_MAX));
    assert!(matches!(refused, Err(Fault::Rejected(Problem { code: Code::TooMany, .. }))));
    world.register(2, &topic(7)).expect("it is known");
    world.register(2, &station(1)).expect("it is no topic");
}

#[test]
fn a_namespace_has_only_so_many_queues_however_many_partitions_they_have() {
    let mut world = World::default();
    let partition = |queue: usize, partition: u32| -> Station {
        format!("queue/{partition}/q{queue:04}").parse().expect("it names one")
    };
    for queue in 0..QUEUES_MAX {
        world.register(0, &partition(queue, 0)).expect("it may");
    }
    world.register(1, &partition(7, 63)).expect("it is a partition of one that is known");
    let refused = world.register(1, &partition(QUEUES_MAX, 0));
    assert!(matches!(refused, Err(Fault::Rejected(Problem { code: Code::LimitReached, status: 429, .. }))));
    world.register(2, &partition(7, 0)).expect("it is known");
    let page = Desk::named(&world.rows, Named::Queues, "q0997", 10).expect("the rows can be read");
    assert_eq!(page, ["q0998", "q0999"], "partitions are not in the list");
    for name in
        ["lane/greet", "lane/stepwell.lane.partner", "lane/stepwell.steps.openai", "lane/stepwell.steps.pay"]
    {
        world.register(2, &name.parse().expect("it names one")).expect("it may");
    }
    world.register(2, &"topic/order".parse().expect("it names one")).expect("it may");
    let named = |which, after| Desk::named(&world.rows, which, after, 10).expect("the rows can be read");
    assert_eq!(named(Named::StepLanes, ""), ["openai", "pay"], "those of workflows are not in the list");
    assert_eq!(named(Named::StepLanes, "openai"), ["pay"]);
    assert_eq!(named(Named::Topics, ""), ["order"]);
    // One that was deleted makes room for another.
    world.desk.forget(&world.rows, at(3), partition(7, 0)).expect("it can be written");
    world.register(4, &partition(QUEUES_MAX, 0)).expect("it may");
}

#[test]
fn a_name_that_cannot_be_read_keeps_no_station_from_being_touched() {
    let mut world = World::default();
    for number in 0..100 {
        world.register(0, &station(number)).expect("it may");
    }
    world.rows.rows.borrow_mut().insert(("station".into(), "aa".into()), "{}".into());
    world.lose_memory();
    let mut seen = BTreeSet::new();
    for sweep in 0..4 {
        seen.extend(world.touched(sweep));
    }
    assert!(seen.contains(&station(99)), "{} were touched", seen.len());
}
