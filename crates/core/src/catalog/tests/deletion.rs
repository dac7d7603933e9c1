//! The deletion of a namespace: the deployment's catalog, the namespace's own, and the objects that it empties.

use std::collections::{BTreeSet, VecDeque};

use stepwell_protocol::Code;

use super::{
    super::{
        BEHIND_MAX, Batch, DELETE_AGAIN_MS, EMPTIED_AT_ONCE, EMPTIED_MS_MAX, Emptied, Input, Order, Station,
    },
    World, at, create, credential, key,
};
use crate::object::{Fault, Hosted as _, Machine as _};

const CELLS: [u32; 2] = [16, 5];

/// A deployment with one namespace, and the objects of that namespace that hold something.
#[derive(Default)]
struct Deployment {
    registry: World,
    acme: World,
    /// Whether the rows of the namespace's catalog were ever deleted.
    cleared: usize,
    full: BTreeSet<String>,
    /// Objects that do not answer.
    silent: BTreeSet<String>,
    /// What is under way: lost with a crash.
    work: VecDeque<Work>,
    ms: u64,
}

/// Something that a host does.
enum Work {
    Order(Order),
    /// Tell the deployment's catalog that nothing is left of this life.
    Gone(u64),
}

fn station(name: usize) -> Station {
    format!("schedules/{name}").parse().expect("it names one")
}

impl Deployment {
    /// With the namespace `acme`, a key, some stations, and something in each of its cells.
    fn with(stations: usize) -> Self {
        let mut all = Self::default();
        all.make();
        for name in 0..stations {
            all.acme.desk.register(&all.acme.rows, at(0), station(name)).expect("it may");
            all.full.insert(station(name).to_string());
        }
        all
    }

    /// Makes the namespace, as the host does it.
    fn make(&mut self) {
        self.registry.must(self.ms, Input::AddNamespace { name: "acme".into() });
        let life = self.life();
        assert!(self.registry.catalog().is_alive("acme", life));
        self.acme.must(self.ms, Input::Begin { life });
        self.acme.must(self.ms, create(key("k1", &["admin"])));
        self.acme
            .desk
            .confirm(&self.acme.rows, at(self.ms), &credential("k1"), None, "default-1-0")
            .expect("it is good");
        for (generation, cells) in (1..).zip(CELLS) {
            self.full.extend((0..cells).map(|cell| format!("default-{generation}-{cell}")));
        }
        drop(self.registry.desk.take_orders());
        drop(self.acme.desk.take_orders());
    }

    fn life(&mut self) -> u64 {
        self.registry.catalog().namespace("acme").expect("it is there").life
    }

    fn delete(&mut self) {
        self.registry.must(self.ms, Input::DeleteNamespace { name: "acme".into() });
    }

    fn is_there(&mut self) -> bool {
        self.registry.catalog().namespace("acme").is_some()
    }

    /// What one object does when it is told that it is over.
    fn empty(&mut self, name: &str) -> bool {
        if self.silent.contains(name) {
            return false;
        }
        self.full.remove(name);
        true
    }

    /// Performs one batch, as the host does it.
    fn perform(&mut self, batch: Batch) -> Emptied {
        assert!(batch.cells.len() <= EMPTIED_AT_ONCE && batch.stations.len() <= EMPTIED_AT_ONCE);
        let mut emptied = Emptied { life: batch.life, ..Emptied::default() };
        for (cell, place) in batch.cells {
            if self.empty(&place.to_string()) {
                emptied.cells.insert(cell);
            } else {
                emptied.silent.insert(cell);
            }
        }
        for station in batch.stations {
            if self.empty(&station.to_string()) {
                emptied.stations.push(station);
            }
        }
        emptied
    }

    /// Does one thing of all that both catalogs have ordered: one commit in one of them. Says whether there was anything.
    fn turn(&mut self) -> bool {
        let orders = self.registry.desk.take_orders().own.into_iter().chain(self.acme.desk.take_orders().own);
        self.work.extend(orders.map(Work::Order));
        loop {
            match self.work.pop_front() {
                Some(Work::Order(Order::Delete(names))) => {
                    for (name, life) in names {
                        assert_eq!(name, "acme");
                        let deletion =
                            self.acme.desk.delete(&self.acme.rows, at(self.ms), life, "default", &CELLS);
                        if deletion.expect("it can be written").is_none() {
                            self.work.push_back(Work::Gone(life));
                        }
                    }
                    return true;
                }
                Some(Work::Order(Order::Empty(batch))) => {
                    let emptied = self.perform(batch);
                    self.acme.desk.emptied(&self.acme.rows, at(self.ms), emptied).expect("it can be written");
                    return true;
                }
                Some(Work::Order(Order::Clear { life })) => {
                    self.clear(life);
                    return true;
                }
                Some(Work::Gone(life)) => {
                    self.registry.must(self.ms, Input::NamespaceGone { name: "acme".into(), life });
                    return true;
                }
                Some(Work::Order(
                    Order::Tell(_)
                    | Order::Report(_)
                    | Order::Distrust(_)
                    | Order::Touch(_)
                    | Order::DeclareTriggers(_)
                    | Order::DeclareHandlers(_)
                    | Order::DeclareSchedules { .. },
                )) => {}
                None => return false,
            }
        }
    }

    fn clear(&mut self, life: u64) {
        if self.acme.desk.is_last(&self.acme.rows, life).expect("the rows can be read") {
            assert_eq!(self.full, BTreeSet::new(), "the catalog's rows go last");
            self.acme = World::default();
            self.cleared += 1;
            self.work.push_back(Work::Gone(life));
        }
    }

    /// Time goes by, and the alarms fire.
    fn wait(&mut self, ms: u64) {
        self.ms += ms;
        for world in [&mut self.registry, &mut self.acme] {
            world.desk.alarm(&world.rows, at(self.ms)).expect("the rows can be read");
        }
    }

    fn until_it_is_gone(&mut self) -> usize {
        for turns in 0..2_000 {
            if !self.is_there() {
                return turns;
            }
            if !self.turn() {
                self.wait(DELETE_AGAIN_MS);
            }
        }
        panic!("{} objects are left", self.full.len());
    }

    fn crash(&mut self) {
        self.registry.lose_memory();
        self.acme.lose_memory();
        self.work.clear();
    }
}

#[test]
fn every_cell_of_every_generation_and_every_station_is_emptied_and_the_catalog_last() {
    let mut all = Deployment::with(20);
    all.delete();
    assert!(all.is_there());
    all.until_it_is_gone();
    assert_eq!((all.full.len(), all.cleared), (0, 1));
    assert!(all.acme.rows.rows.borrow().is_empty());
}

#[test]
fn from_its_commit_on_a_namespace_that_is_deleted_refuses_everything() {
    let mut all = Deployment::with(1);
    all.delete();
    assert_eq!(
        all.registry.code(1, Input::AddNamespace { name: "acme".into() }),
        Some(Code::NamespaceDeleting)
    );
    let life = all.life();
    assert!(!all.registry.catalog().is_alive("acme", life), "it cannot be begun again");
    all.turn();
    assert_eq!(all.acme.code(1, create(key("k2", &["read"]))), Some(Code::NamespaceDeleting));
    assert_eq!(all.acme.code(1, Input::RevokeKey { id: "k1".into() }), Some(Code::NamespaceDeleting));
    let code = |result: Result<_, Fault<super::Failed>>| match result {
        Err(Fault::Rejected(problem)) => problem.code,
        Err(other @ (Fault::Storage(_) | Fault::Moved(_))) => panic!("{other}"),
        Ok(()) => panic!("it is refused"),
    };
    let (desk, rows) = (&mut all.acme.desk, &all.acme.rows);
    assert_eq!(code(desk.register(rows, at(1), station(9)).map(drop)), Code::NamespaceDeleting);
    let good = desk.confirm(rows, at(1), &credential("k1"), None, "default-1-1");
    assert_eq!(code(good.map(drop)), Code::NamespaceDeleting, "whoever has a good key is told why");
    let bad = desk.confirm(rows, at(1), &credential("k9"), None, "default-1-1");
    assert_eq!(code(bad.map(drop)), Code::Unauthorized, "and nobody else");
}

#[test]
fn its_cells_forget_all_keys() {
    let mut all = Deployment::with(0);
    let life = all.life();
    all.acme.desk.delete(&all.acme.rows, at(1), life, "default", &CELLS).expect("it can be written");
    let orders = all.acme.desk.take_orders().own;
    let forgets_all =
        |order: &Order| matches!(order, Order::Tell(words) if words.iter().all(|word| word.ids.is_none()));
    assert!(orders.iter().any(forgets_all), "{orders:?}");
}

#[test]
fn neither_the_default_namespace_nor_one_that_is_not_there_is_deleted() {
    let mut all = Deployment::with(0);
    let delete = |name: &str| Input::DeleteNamespace { name: name.into() };
    assert_eq!(all.registry.code(1, delete("default")), Some(Code::InvalidRequest));
    assert_eq!(all.registry.code(1, delete("nobody")), Some(Code::NamespaceNotFound));
    assert_eq!(all.registry.code(1, delete("acme")), None);
    let since = all.registry.catalog().namespace("acme").and_then(|one| one.leaving.clone());
    assert_eq!(all.registry.code(2, delete("acme")), None, "twice is once");
    assert_eq!(all.registry.catalog().namespace("acme").and_then(|one| one.leaving.clone()), since);
}

#[test]
fn it_survives_a_crash_between_any_two_of_its_commits() {
    let whole = {
        let mut all = Deployment::with(20);
        all.delete();
        all.until_it_is_gone()
    };
    for crash in 0..=whole {
        let mut all = Deployment::with(20);
        all.delete();
        for turn in 0..=crash {
            if turn == crash {
                all.crash();
            } else if !all.turn() {
                all.wait(DELETE_AGAIN_MS);
            }
        }
        // What was under way is heard of by nobody.
        all.wait(EMPTIED_MS_MAX);
        all.until_it_is_gone();
        assert_eq!((all.full.len(), all.cleared), (0, 1), "after a crash at {crash}");
    }
}

#[test]
fn an_object_that_is_down_keeps_no_other_waiting_and_is_emptied_when_it_is_back() {
    let mut all = Deployment::with(30);
    let down = ["default-1-0", "default-1-3", "default-2-4", "schedules/0", "schedules/7"];
    all.silent.extend(down.map(str::to_owned));
    all.delete();
    for _ in 0..100 {
        if !all.turn() {
            all.wait(DELETE_AGAIN_MS);
        }
    }
    assert_eq!(all.full, all.silent);
    let left = all.acme.catalog().deletion().expect("it goes on").cells_left();
    assert_eq!((left, all.cleared), (3, 0));
    all.crash();
    all.silent.clear();
    all.wait(EMPTIED_MS_MAX);
    all.until_it_is_gone();
    assert_eq!((all.full.len(), all.cleared), (0, 1));
}

#[test]
fn a_pool_that_is_down_is_remembered_in_a_bounded_row() {
    let mut all = Deployment::with(0);
    let (life, cells) = (all.life(), [4_096]);
    all.acme.desk.delete(&all.acme.rows, at(1), life, "default", &cells).expect("it can be written");
    for turn in 0..200 {
        let ms = 1 + turn * EMPTIED_MS_MAX;
        all.acme.desk.alarm(&all.acme.rows, at(ms)).expect("the rows can be read");
        for order in all.acme.desk.take_orders().own {
            if let Order::Empty(batch) = order {
                let silent = batch.cells.iter().map(|(cell, _)| *cell).collect();
                let emptied = Emptied { life, silent, ..Emptied::default() };
                all.acme.desk.emptied(&all.acme.rows, at(ms), emptied).expect("it can be written");
            }
        }
    }
    let deletion = all.acme.catalog().deletion().expect("it goes on").clone();
    assert!(deletion.behind.len() <= BEHIND_MAX, "{}", deletion.behind.len());
    assert_eq!(deletion.cells_left(), 4_096);
}

#[test]
fn what_is_heard_twice_or_late_changes_nothing() {
    let mut all = Deployment::with(3);
    all.delete();
    all.turn();
    let mut heard = Vec::new();
    while all.is_there() {
        for order in all.acme.desk.take_orders().own {
            if let Order::Empty(batch) = order {
                let emptied = all.perform(batch);
                heard.push(emptied.clone());
                for _ in 0..2 {
                    all.acme
                        .desk
                        .emptied(&all.acme.rows, at(all.ms), emptied.clone())
                        .expect("it can be written");
                }
            } else {
                all.work.push_back(Work::Order(order));
            }
        }
        if !all.turn() {
            all.wait(EMPTIED_MS_MAX);
        }
    }
    // The name is used again, and all that was ever said comes once more.
    all.make();
    let second = all.life();
    assert_eq!(second, 2, "each life has its own number");
    for emptied in heard {
        all.acme.desk.emptied(&all.acme.rows, at(all.ms), emptied).expect("it can be written");
    }
    all.registry.must(all.ms, Input::NamespaceGone { name: "acme".into(), life: 1 });
    let late = all.acme.desk.delete(&all.acme.rows, at(all.ms), 1, "default", &CELLS);
    assert_eq!(late.expect("the rows can be read"), None, "nothing is left of that life");
    all.acme.must(all.ms, Input::Begin { life: 1 });
    assert_eq!(all.acme.catalog().life(), 2);
    assert!(all.is_there() && all.acme.catalog().deletion().is_none());
    assert!(all.acme.is_good(all.ms, "k1"));
    // A word about the end of an earlier deletion does not end this one.
    all.delete();
    all.registry.must(all.ms, Input::NamespaceGone { name: "acme".into(), life: 1 });
    assert!(all.is_there());
}

#[test]
fn the_number_of_a_life_is_never_used_again() {
    let mut all = Deployment::with(0);
    for life in 1..4 {
        assert_eq!(all.life(), life);
        all.delete();
        all.until_it_is_gone();
        all.crash();
        all.make();
    }
}

#[test]
fn a_namespace_whose_catalog_was_never_begun_is_gone_at_once() {
    let mut all = Deployment::default();
    all.registry.must(0, Input::AddNamespace { name: "acme".into() });
    all.delete();
    assert!(all.turn() && all.turn(), "it is asked, and says so");
    assert!(!all.is_there());
}

#[test]
fn an_issuer_vouches_for_nobody_in_it_and_is_forgotten_with_it() {
    use stepwell_protocol::access::{Issuer, NamespaceOf};
    let issuer = Issuer {
        issuer: "https://issuer.example".into(),
        audience: "stepwell".into(),
        jwks_url: "https://issuer.example/jwks".into(),
        namespace: NamespaceOf::Fixed("acme".into()),
        namespaces: Vec::new(),
        scopes_claim: None,
        scopes_max: Vec::new(),
        scopes: vec!["read".parse().expect("a scope")],
    };
    let mut all = Deployment::with(0);
    all.registry.must(0, Input::SetIssuer(issuer.clone()));
    let vouch = Input::Vouch { namespace: "acme".into(), issuer: issuer.issuer.clone(), revision: 1 };
    all.registry.must(0, vouch.clone());
    all.delete();
    assert_eq!(all.registry.code(1, vouch), Some(Code::Unauthorized));
    all.until_it_is_gone();
    all.registry.must(9, Input::RemoveIssuer { issuer: issuer.issuer });
    let orders = all.registry.desk.take_orders().own;
    assert!(!orders.iter().any(|order| matches!(order, Order::Distrust(_))), "there is nobody to be told");
}
