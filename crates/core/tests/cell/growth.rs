//! Keyed starts while a pool grows: Workers with older and newer settings at once, in any order, each of which
//! may die between any two of its calls. A key never gets a second run, and whoever looks for it finds that one.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use stepwell_core::{
    cell::{Cell, KeyRow, NewRun, Reserved, Rows, StoredKey},
    object::{Fault, Hosted as _},
    pools::{Ask, Pool, Search, Walk},
};
use stepwell_protocol::{Code, Place, RunId, Timestamp};

use super::{at, memory::Memory, new_run};

/// The settings of three deployments, each with the growth after the one before.
const DEPLOYMENTS: [&str; 3] = ["2", "2,3", "2,3,5"];

/// Longer than any way: each step is one generation up.
const STEPS_MAX: usize = 8;

#[derive(Default)]
struct World {
    cells: BTreeMap<Place, (Memory, Option<Cell>)>,
    seeds: u64,
}

/// What a Worker was told.
#[derive(Debug, PartialEq)]
enum Told {
    Run(RunId),
    Moved(Place),
    Refused(Code),
}

impl World {
    fn ask(&mut self, ask: &Ask, key: &KeyRow) -> Told {
        self.seeds += 1;
        let (Ask::Reserve { at: place, .. } | Ask::Start { at: place }) = ask;
        let (rows, cell) = self.cells.entry(place.clone()).or_default();
        let cell = cell.get_or_insert_with(|| Cell::new(4));
        let answer = match ask {
            Ask::Reserve { to, .. } => cell.reserve(rows, key, to),
            Ask::Start { .. } => {
                let suffix = RunId::suffix_from(self.seeds);
                let new = NewRun { place: place.clone(), suffix, key: Some(key.clone()), ..new_run(None) };
                cell.start(rows, at(self.seeds), new).map(|started| Reserved::Run(Box::new(started.run)))
            }
        };
        let _orders = cell.take_orders();
        match answer {
            Ok(Reserved::Run(run)) => Told::Run(run.id),
            Ok(Reserved::Moved(place)) | Err(Fault::Moved(place)) => Told::Moved(place),
            Err(Fault::Rejected(problem)) => Told::Refused(problem.code),
            Err(Fault::Storage(error)) => panic!("{error:?}"),
        }
    }

    /// Asks the next cell whether it has the run of a key. Nothing, if the search goes on.
    #[expect(clippy::option_option, reason = "the search goes on, or ends with a run, or without")]
    fn look(&self, search: &mut Search<'_>, key: &str) -> Option<Option<RunId>> {
        let nobody = (Memory::default(), None);
        let (rows, cell) = self.cells.get(search.at()).unwrap_or(&nobody);
        let idle = Cell::new(4);
        let goes_on = match cell.as_ref().unwrap_or(&idle).find_key(rows, key) {
            Ok(Some(number)) => return Some(Some(rows.get(number).id)),
            Ok(None) => search.not_here(),
            Err(Fault::Moved(place)) => search.sent_on(place).expect("it leads on"),
            Err(fault) => panic!("{fault:?}"),
        };
        (!goes_on).then_some(None)
    }

    /// What each cell knows of a key.
    fn known(&self, key: &str) -> Vec<Option<StoredKey>> {
        self.cells.values().map(|(rows, _)| Rows::key(rows, key).expect("it can be read")).collect()
    }

    /// An instance is lost; its rows stay.
    fn reset(&mut self, index: usize) {
        if let Some((_, cell)) = self.cells.values_mut().nth(index) {
            *cell = None;
        }
    }

    fn runs(&self) -> usize {
        self.cells.values().map(|(rows, _)| rows.runs()).sum()
    }
}

/// A start under way in a Worker.
struct Start<'a> {
    key: KeyRow,
    walk: Walk<'a>,
}

/// A search under way in a Worker.
struct Look<'a> {
    key: String,
    search: Search<'a>,
    /// The run that somebody was told of before the search began.
    wanted: Option<RunId>,
}

fn pool(text: &str) -> Pool {
    Pool::parse("default", text).expect("it is a pool")
}

fn hash(key: usize) -> u64 {
    // Whatever spreads them.
    (key as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7
}

fn key_row(key: usize, fingerprint: usize) -> KeyRow {
    KeyRow { key: format!("k{key}"), fingerprint: format!("f{fingerprint}") }
}

/// What happens next.
#[derive(Clone, Debug)]
enum Happens {
    /// Somebody starts a run by a key, at a Worker of one of the deployments.
    Arrives { key: usize, fingerprint: usize, deployment: usize },
    /// A Worker that is under way makes its next call.
    Calls(usize),
    /// A Worker's next call is made, and its answer is never heard: it has died.
    Dies(usize),
    /// A cell's instance is lost.
    Resets(usize),
    /// Somebody looks for the run of a key, at a Worker of one of the deployments.
    Seeks { key: usize, deployment: usize },
    /// A Worker that looks for one makes its next call.
    Looks(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..3_usize, 0..10_usize, 0..3_usize).prop_map(|(key, fingerprint, deployment)| {
            // Most repeat what they said; few make a mistake.
            Happens::Arrives { key, fingerprint: usize::from(fingerprint == 0), deployment }
        }),
        10 => (0..8_usize).prop_map(Happens::Calls),
        2 => (0..8_usize).prop_map(Happens::Dies),
        1 => (0..10_usize).prop_map(Happens::Resets),
        3 => (0..3_usize, 0..3_usize).prop_map(|(key, deployment)| Happens::Seeks { key, deployment }),
        6 => (0..8_usize).prop_map(Happens::Looks),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_key_gets_one_run_whoever_starts_it_and_whoever_dies(
        script in prop::collection::vec(happens(), 1..80),
    ) {
        let pools = DEPLOYMENTS.map(pool);
        let (mut world, mut under_way) = (World::default(), Vec::<Start<'_>>::new());
        let mut answers: BTreeMap<String, BTreeSet<RunId>> = BTreeMap::new();
        let (mut arrived, mut looking) = (BTreeSet::new(), Vec::<Look<'_>>::new());
        let now = Timestamp::from_millis(1_800_000_000_000);
        for event in script {
            match event {
                Happens::Arrives { key, fingerprint, deployment } => {
                    arrived.insert((key, fingerprint));
                    let walk = Walk::new(&pools[deployment], hash(key), now, 30);
                    under_way.push(Start { key: key_row(key, fingerprint), walk });
                }
                Happens::Calls(index) if index < under_way.len() => {
                    let start = &mut under_way[index];
                    match world.ask(&start.walk.ask(), &start.key) {
                        Told::Moved(place) => prop_assert!(start.walk.sent_on(place)),
                        Told::Run(run) => {
                            answers.entry(start.key.key.clone()).or_default().insert(run);
                            under_way.remove(index);
                        }
                        Told::Refused(code) => {
                            prop_assert_eq!(code, Code::IdempotencyKeyReused);
                            under_way.remove(index);
                        }
                    }
                }
                Happens::Dies(index) if index < under_way.len() => {
                    let start = under_way.remove(index);
                    world.ask(&start.walk.ask(), &start.key);
                }
                Happens::Resets(index) => world.reset(index),
                Happens::Seeks { key, deployment } => {
                    let search = Search::new(&pools[deployment], hash(key), now, 30);
                    let key = key_row(key, 0).key;
                    let wanted = answers.get(&key).and_then(|runs| runs.first().cloned());
                    looking.push(Look { key, search, wanted });
                }
                Happens::Looks(index) if index < looking.len() => {
                    let Look { key, search, wanted } = &mut looking[index];
                    let before = world.known(key);
                    let Some(found) = world.look(search, key) else { continue };
                    prop_assert_eq!(&before, &world.known(key), "a search leaves nothing behind");
                    if let Some(wanted) = wanted {
                        prop_assert_eq!(found.as_ref(), Some(&*wanted));
                    }
                    if let Some(found) = found {
                        answers.entry(key.clone()).or_default().insert(found);
                    }
                    looking.remove(index);
                }
                Happens::Calls(_) | Happens::Dies(_) | Happens::Looks(_) => {}
            }
        }
        // Whoever got no answer asks again, by any deployment, and so completes what was left half done.
        let mut decided = BTreeSet::new();
        for (turn, (key, fingerprint)) in arrived.into_iter().enumerate() {
            for pool in pools.iter().cycle().skip(turn).take(pools.len()) {
                let row = key_row(key, fingerprint);
                let mut walk = Walk::new(pool, hash(key), now, 30);
                let mut told = world.ask(&walk.ask(), &row);
                for _ in 0..STEPS_MAX {
                    let Told::Moved(place) = told else { break };
                    prop_assert!(walk.sent_on(place));
                    told = world.ask(&walk.ask(), &row);
                }
                match told {
                    Told::Run(run) => {
                        answers.entry(row.key.clone()).or_default().insert(run);
                    }
                    Told::Refused(code) => prop_assert_eq!(code, Code::IdempotencyKeyReused),
                    Told::Moved(place) => prop_assert!(false, "still sent on, to {}", place),
                }
                decided.insert(key);
            }
        }
        for (key, runs) in &answers {
            prop_assert_eq!(runs.len(), 1, "key {} gave {:?}", key, runs);
        }
        for key in 0..3 {
            let text = key_row(key, 0).key;
            for pool in &pools {
                let mut search = Search::new(pool, hash(key), now, 30);
                let found = (0..STEPS_MAX).find_map(|_| world.look(&mut search, &text));
                let wanted = answers.get(&text).and_then(|runs| runs.first());
                prop_assert_eq!(found.as_ref().map(Option::as_ref), Some(wanted), "key {}", text);
            }
        }
        prop_assert_eq!(answers.len(), decided.len());
        prop_assert_eq!(world.runs(), decided.len());
    }
}

#[test]
fn a_worker_of_before_the_growth_is_sent_to_a_generation_that_it_does_not_know() {
    let (old, new) = (pool("2"), pool("2,3"));
    let (mut world, key) = (World::default(), key_row(0, 0));
    let now = Timestamp::from_millis(1_800_000_000_000);
    // The new one reserves and dies before it starts the run.
    let walk = Walk::new(&new, hash(0), now, 30);
    let Told::Moved(home) = world.ask(&walk.ask(), &key) else { panic!("it knew the key") };
    assert_eq!((home.generation, world.runs()), (2, 0));
    let mut walk = Walk::new(&old, hash(0), now, 30);
    assert_eq!(world.ask(&walk.ask(), &key), Told::Moved(home.clone()));
    assert!(walk.sent_on(home.clone()));
    let Told::Run(run) = world.ask(&walk.ask(), &key) else { panic!("it was not started") };
    assert_eq!((run.place, world.runs()), (home, 1));
}

#[test]
fn a_key_that_has_a_run_is_not_sent_on() {
    let (old, new) = (pool("2"), pool("2,3"));
    let (mut world, key) = (World::default(), key_row(0, 0));
    let now = Timestamp::from_millis(1_800_000_000_000);
    let Told::Run(run) = world.ask(&Walk::new(&old, hash(0), now, 30).ask(), &key) else { panic!("no run") };
    let again = Walk::new(&new, hash(0), now, 30).ask();
    assert!(matches!(again, Ask::Reserve { .. }));
    assert_eq!(world.ask(&again, &key), Told::Run(run.clone()));
    assert_eq!(world.ask(&again, &key_row(0, 1)), Told::Refused(Code::IdempotencyKeyReused));
    let rows = &world.cells[&run.place].0;
    assert!(matches!(Rows::key(rows, "k0"), Ok(Some(StoredKey::Run(_)))));
}

#[test]
fn a_run_that_outlives_the_memory_of_keys_is_found_until_its_key_has_started_another() {
    let (old, new) = (pool("2"), pool("2,3@2026-12-01"));
    let (mut world, key) = (World::default(), key_row(0, 0));
    let late = Timestamp::from_millis(1_900_000_000_000);
    let find = |world: &World| {
        let mut search = Search::new(&new, hash(0), late, 30);
        (0..STEPS_MAX).find_map(|_| world.look(&mut search, &key.key)).expect("it ends")
    };
    let Told::Run(first) = world.ask(&Walk::new(&old, hash(0), at(0), 30).ask(), &key) else {
        panic!("no run")
    };
    assert_eq!(find(&world), Some(first.clone()), "starts do not ask its cell any more");
    let Told::Run(second) = world.ask(&Walk::new(&new, hash(0), late, 30).ask(), &key) else {
        panic!("no run")
    };
    assert_ne!(first, second);
    assert_eq!(find(&world), Some(second));
}
