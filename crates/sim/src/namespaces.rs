//! Small worlds in which a namespace is made, used, deleted and made again.
//!
//! Both catalogs are the real machine ([`Desk`]): the deployment's, and the namespace's own. Cells and stations only do what
//! the engine's host does about lives: they ask for their life before their first row, refuse what is meant for another
//! one, and are emptied. Words between all of them are lost, doubled and late, and instances die.
//!
//! Owns: these worlds, what must hold in them, and the bugs that are planted in them.
//! Does not own: what runs do. That is [`crate::world`].

use std::{collections::BTreeMap, rc::Rc};

use stepwell_core::{
    catalog::{Batch, Desk, Emptied, Input, Order, Station},
    object::{Fault, Hosted as _, Machine},
};
use stepwell_protocol::{Code, Timestamp};

use crate::{
    catalog::Shelf,
    check::Checked,
    host::{Cause, Refused},
    rng::Rng,
};

/// A mechanism that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A station stores something before it is in the register.
    RegisterForgotten,
    /// A cell takes what is meant for an earlier life of the namespace.
    OldLifeAccepted,
    /// A word to empty an object counts for whatever life it is in.
    WordForAnyLife,
    /// An instance that was emptied goes on.
    EmptiedGoesOn,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::RegisterForgotten, Self::OldLifeAccepted, Self::WordForAnyLife, Self::EmptiedGoesOn];
}

/// What has happened in a world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Lives that were begun.
    pub lives: u64,
    /// Things that were stored.
    pub stored: u64,
    /// What was refused because it was meant for another life.
    pub of_other_lives: u64,
    /// Wishes for the name that were refused because it is being deleted.
    pub deleting: u64,
}

const NAME: &str = "acme";
const CELLS: usize = 3;
/// Stations come after the cells.
const HOLDERS: usize = CELLS + 2;
/// Until then, things go wrong and people want something.
const TROUBLE_MS: u64 = 40_000;
const END_MS: u64 = 240_000;

/// A catalog, and what is around it.
struct Site {
    desk: Desk,
    shelf: Shelf,
    instance: u32,
    alarm: Option<u64>,
}

/// A cell or a station: for the life of each thing that was asked of it, what it has stored.
#[derive(Default)]
struct Holder {
    life: Option<u64>,
    rows: Vec<u64>,
    instance: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Root,
    Own,
}

/// What happens at some time.
#[derive(Clone, Debug)]
enum Event {
    /// A person wants the name, or wants it to be deleted.
    Add,
    Remove,
    /// Somebody of the present life has a wish.
    Want,
    /// Somebody wants to store something, in this life.
    Put {
        at: usize,
        meant: u64,
    },
    /// An object that has nothing hears in which life it is.
    Begin {
        at: usize,
        instance: u32,
        life: u64,
        meant: u64,
    },
    /// The namespace's own catalog is asked something for the first time, in this life.
    Open {
        life: u64,
    },
    /// It hears whether that is the life that the name is in.
    Opened {
        life: u64,
        instance: u32,
        ends: u64,
    },
    /// The deployment's catalog asks it to delete that life, and hears that nothing is left.
    Delete {
        life: u64,
    },
    Gone {
        life: u64,
    },
    /// It empties others, hears of it, and goes last.
    EmptyAll {
        instance: u32,
        batch: Batch,
    },
    Empty {
        at: usize,
        life: u64,
    },
    Emptied {
        instance: u32,
        emptied: Emptied,
    },
    Clear {
        instance: u32,
        life: u64,
    },
    /// An instance dies.
    Crash(usize),
}

struct World {
    rng: Rng,
    bug: Option<Bug>,
    now_ms: u64,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    root: Site,
    own: Site,
    /// How often the own catalog was told to delete something.
    ends: u64,
    holders: Vec<Holder>,
    /// What was acknowledged, by object, in the present life.
    acknowledged: (u64, BTreeMap<usize, usize>),
    seen: Seen,
}

/// Runs the world of a seed.
pub fn simulate(seed: u64, bug: Option<Bug>) -> Result<Seen, (&'static str, String)> {
    let mut world = World {
        rng: Rng::new(seed ^ 0x6e61_6d65),
        bug,
        now_ms: 0,
        events: BTreeMap::new(),
        scheduled: 0,
        root: Site::new(),
        own: Site::new(),
        ends: 0,
        holders: (0..HOLDERS).map(|_| Holder::default()).collect(),
        acknowledged: (0, BTreeMap::new()),
        seen: Seen::default(),
    };
    world.plan();
    world.run()?;
    Ok(world.seen)
}

impl Site {
    fn new() -> Self {
        Self { desk: Desk::new(Vec::new()), shelf: Shelf::new(Rc::default(), None), instance: 0, alarm: None }
    }

    /// A fresh instance on the same rows.
    fn crash(&mut self) {
        self.instance += 1;
        self.desk = Desk::new(Vec::new());
        self.shelf = Shelf::new(self.shelf.shared(), None);
    }
}

impl World {
    fn plan(&mut self) {
        self.put(0, Event::Add);
        for _ in 0..self.rng.between(2, 6) {
            let at = self.rng.below(TROUBLE_MS);
            self.put(at, Event::Remove);
            for _ in 0..4 {
                let after = at + self.rng.below(8_000);
                self.put(after, Event::Add);
            }
        }
        for _ in 0..60 {
            let at = self.rng.below(TROUBLE_MS);
            self.put(at, Event::Want);
        }
        for _ in 0..self.rng.below(8) {
            let (at, who) = (self.rng.below(TROUBLE_MS), self.rng.below(2 + HOLDERS as u64));
            self.put(at, Event::Crash(usize::try_from(who).expect("it is small")));
        }
    }

    fn put(&mut self, after_ms: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.now_ms + after_ms, self.scheduled), event);
    }

    fn is_troubled(&self) -> bool {
        self.now_ms < TROUBLE_MS
    }

    /// Sends something: it may be lost, late, and doubled.
    fn send(&mut self, event: Event) {
        let troubled = self.is_troubled();
        let (lost, doubled) = (self.rng.percent(12), self.rng.percent(12));
        if troubled && doubled {
            let late = self.rng.below(8_000);
            self.put(late, event.clone());
        }
        let most = if troubled && self.rng.percent(20) { 4_000 } else { 40 };
        let after = self.rng.between(1, most);
        if !(troubled && lost) {
            self.put(after, event);
        }
    }

    fn clock(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + self.now_ms)
    }

    fn site(&mut self, who: Who) -> &mut Site {
        match who {
            Who::Root => &mut self.root,
            Who::Own => &mut self.own,
        }
    }

    /// One turn of a catalog, and what it orders.
    fn turn<T>(
        &mut self,
        who: Who,
        act: impl FnOnce(&mut Desk, &Shelf, Timestamp) -> Result<T, Fault<Refused>>,
    ) -> Result<T, Fault<Refused>> {
        let clock = self.clock();
        let site = self.site(who);
        let instance = site.instance;
        site.shelf.begin(Cause::Request, false);
        if site.desk.wants_repair() {
            let armed = site.alarm.map(|ms| Timestamp::from_millis(1_700_000_000_000 + ms));
            site.desk.found_alarm(armed);
        }
        let repaired = site.desk.repair(&site.shelf, clock);
        let result = repaired.and_then(|()| act(&mut site.desk, &site.shelf, clock));
        let orders = site.desk.take_orders();
        let _ = site.shelf.take();
        if let Some(at) = orders.arm {
            site.alarm = Some(at.as_millis().saturating_sub(1_700_000_000_000));
        }
        for order in orders.own {
            match order {
                Order::Delete(names) => {
                    for (_, life) in names {
                        self.send(Event::Delete { life });
                    }
                }
                Order::Empty(batch) => {
                    let after = self.rng.between(1, 200);
                    self.put(after, Event::EmptyAll { instance, batch });
                }
                Order::Clear { life } => {
                    let after = self.rng.between(1, 200);
                    self.put(after, Event::Clear { instance, life });
                }
                // Nobody remembers a key here, no code declares a schedule, and there is no sweep.
                Order::Tell(_)
                | Order::Report(_)
                | Order::Touch(_)
                | Order::Distrust(_)
                | Order::DeclareTriggers(_)
                | Order::DeclareHandlers(_)
                | Order::DeclareSchedules { .. } => {}
            }
        }
        result
    }

    fn run(&mut self) -> Checked {
        let mut turns = 0_u32;
        while let Some(next) = self.next_ms().filter(|ms| *ms <= END_MS) {
            self.now_ms = self.now_ms.max(next);
            turns += 1;
            if turns > 100_000 {
                return Err(("a deletion comes to its end", "it goes on and on".into()));
            }
            let due = [Who::Root, Who::Own].into_iter().find(|who| {
                let site = if *who == Who::Root { &self.root } else { &self.own };
                site.alarm.is_some_and(|at| at <= self.now_ms)
            });
            if let Some(who) = due {
                self.site(who).alarm = None;
                let _ = self.turn(who, Machine::alarm);
            } else if let Some((_, event)) = self.events.pop_first() {
                self.happen(event)?;
            }
            self.check()?;
        }
        match self.name() {
            Some((life, true)) => {
                Err(("a deletion comes to its end", format!("life {life} is still being deleted")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn next_ms(&self) -> Option<u64> {
        let first = self.events.first_key_value().map(|((ms, _), _)| *ms);
        // Nothing but the tidying of each day is left when both are at rest.
        [first, self.root.alarm, self.own.alarm].into_iter().flatten().min()
    }

    /// Somebody wants an object to store something; it may take a while until that arrives.
    fn want_something(&mut self) {
        let Some((meant, _)) = self.name() else { return };
        let at = usize::try_from(self.rng.below(HOLDERS as u64)).expect("it is small");
        self.send(Event::Open { life: meant });
        // What is meant for a station has no life: it was let in just now.
        if at < CELLS {
            self.send(Event::Put { at, meant });
        } else {
            self.put(0, Event::Put { at, meant });
        }
    }

    /// The life of the name, and whether it is being deleted.
    fn name(&self) -> Option<(u64, bool)> {
        let catalog = self.root.shelf.all().catalog();
        catalog.namespace(NAME).map(|known| (known.life, known.leaving.is_some()))
    }

    fn happen(&mut self, event: Event) -> Checked {
        match event {
            Event::Add => self.add()?,
            Event::Remove => {
                let input = Input::DeleteNamespace { name: NAME.into() };
                let _ = self.turn(Who::Root, |desk, shelf, now| desk.drive(shelf, now, "root", input));
            }
            Event::Want => self.want_something(),
            Event::Put { at, meant } => self.store(at, meant),
            Event::Begin { at, instance, life, meant } => {
                if self.holders[at].instance == instance {
                    let life = *self.holders[at].life.get_or_insert(life);
                    self.take(at, life, meant);
                    if self.holders[at].rows.is_empty() {
                        self.holders[at].life = None;
                    }
                }
            }
            Event::Open { life } => {
                let is_alive = self.root.shelf.all().catalog().is_alive(NAME, life);
                if self.own_life().is_none() && is_alive {
                    let (instance, ends) = (self.own.instance, self.ends);
                    self.send(Event::Opened { life, instance, ends });
                }
            }
            Event::Opened { life, instance, ends } => {
                if (instance, ends) == (self.own.instance, self.ends) && self.own_life().is_none() {
                    let input = Input::Begin { life };
                    let _ = self.turn(Who::Own, |desk, shelf, now| desk.drive(shelf, now, "", input));
                    self.seen.lives += 1;
                }
            }
            Event::Delete { life } => {
                self.ends += 1;
                let cells = [u32::try_from(CELLS).expect("there are few")];
                let left =
                    self.turn(Who::Own, |desk, shelf, now| desk.delete(shelf, now, life, "default", &cells));
                if let Ok(None) = left {
                    self.send(Event::Gone { life });
                }
            }
            Event::Gone { life } => {
                let input = Input::NamespaceGone { name: NAME.into(), life };
                let _ = self.turn(Who::Root, |desk, shelf, now| desk.drive(shelf, now, "", input));
            }
            Event::EmptyAll { instance, batch } => self.empty_all(instance, batch),
            Event::Empty { at, life } => self.empty(at, life),
            Event::Emptied { instance, emptied } => {
                if instance == self.own.instance {
                    let _ = self.turn(Who::Own, |desk, shelf, now| desk.emptied(shelf, now, emptied));
                }
            }
            Event::Clear { instance, life } => {
                let is_last = instance == self.own.instance
                    && self.turn(Who::Own, |desk, shelf, _| desk.is_last(shelf, life)).unwrap_or(false);
                if is_last {
                    let instance = self.own.instance + 1;
                    self.own = Site { instance, ..Site::new() };
                }
            }
            Event::Crash(0) => self.root.crash(),
            Event::Crash(1) => self.own.crash(),
            Event::Crash(other) => self.holders[other - 2].instance += 1,
        }
        Ok(())
    }

    fn add(&mut self) -> Checked {
        let before = self.name();
        let input = Input::AddNamespace { name: NAME.into() };
        let added = self.turn(Who::Root, |desk, shelf, now| desk.drive(shelf, now, "root", input));
        let code = match added {
            Ok(()) => None,
            Err(Fault::Rejected(problem)) => Some(problem.code),
            Err(Fault::Storage(_) | Fault::Moved(_)) => return Ok(()),
        };
        let refusal = |deletes| if deletes { Code::NamespaceDeleting } else { Code::NamespaceExists };
        let expected = before.map(|(_, deletes)| refusal(deletes));
        self.seen.deleting += u64::from(code == Some(Code::NamespaceDeleting));
        if code != expected {
            return Err(("a name is free or refused", format!("{before:?}, and the answer is {code:?}")));
        }
        Ok(())
    }

    /// The life that the namespace's own catalog is in, once it has begun one.
    fn own_life(&self) -> Option<u64> {
        Some(self.own.shelf.all().catalog().life()).filter(|life| *life > 0)
    }

    /// Somebody wants an object to store something.
    fn store(&mut self, at: usize, meant: u64) {
        if let Some(life) = self.holders[at].life {
            return self.take(at, life, meant);
        }
        // It has to ask first. A catalog that has nothing, or is being deleted, refuses.
        let Some(life) = self.own_life() else { return };
        let is_open = self.own.shelf.all().catalog().deletion().is_none();
        let life = if at < CELLS || self.bug == Some(Bug::RegisterForgotten) {
            is_open.then_some(life)
        } else {
            let station: Station = format!("schedules/{at}").parse().expect("it names a station");
            let registered = self.turn(Who::Own, |desk, shelf, now| desk.register(shelf, now, station));
            registered.ok().map(|registered| registered.life)
        };
        if let Some(life) = life {
            let instance = self.holders[at].instance;
            self.send(Event::Begin { at, instance, life, meant });
        }
    }

    /// An object of this life stores what is meant for it.
    fn take(&mut self, at: usize, life: u64, meant: u64) {
        if life != meant && self.bug != Some(Bug::OldLifeAccepted) {
            self.seen.of_other_lives += 1;
            return;
        }
        self.holders[at].rows.push(meant);
        self.seen.stored += 1;
        if self.acknowledged.0 != meant {
            self.acknowledged = (meant, BTreeMap::new());
        }
        *self.acknowledged.1.entry(at).or_default() += 1;
    }

    fn empty_all(&mut self, instance: u32, Batch { life, cells, stations }: Batch) {
        let mut emptied = Emptied { life, ..Emptied::default() };
        for (cell, place) in cells {
            let at = usize::try_from(place.cell).expect("there are few");
            if self.tell_to_empty(at, life) {
                emptied.cells.insert(cell);
            } else {
                emptied.silent.insert(cell);
            }
        }
        for station in stations {
            let at = station.to_string().rsplit('/').next().and_then(|name| name.parse().ok());
            if at.is_some_and(|at| self.tell_to_empty(at, life)) {
                emptied.stations.push(station);
            }
        }
        self.send(Event::Emptied { instance, emptied });
    }

    /// Tells an object to delete everything. Says whether it has answered.
    fn tell_to_empty(&mut self, at: usize, life: u64) -> bool {
        let (arrives, answers, again) = (!self.rng.percent(15), !self.rng.percent(10), self.rng.percent(25));
        if self.is_troubled() && again {
            let late = self.rng.below(9_000);
            self.put(late, Event::Empty { at, life });
        }
        let (arrives, answers) = (arrives || !self.is_troubled(), answers || !self.is_troubled());
        if arrives {
            self.empty(at, life);
        }
        arrives && answers
    }

    fn empty(&mut self, at: usize, life: u64) {
        let bug = self.bug;
        let holder = &mut self.holders[at];
        if holder.life.is_some_and(|own| own > life) && bug != Some(Bug::WordForAnyLife) {
            return;
        }
        let goes_on = u32::from(bug != Some(Bug::EmptiedGoesOn));
        *holder = Holder { instance: holder.instance + goes_on, ..Holder::default() };
    }

    /// Nothing outlives its life, and nothing of the present one is lost.
    fn check(&self) -> Checked {
        let Some((life, deletes)) = self.name() else {
            if self.holders.iter().any(|holder| holder.life.is_some()) || self.own_life().is_some() {
                return Err(("nothing is left of a name that is free", self.held()));
            }
            return Ok(());
        };
        let is_old = |holder: &Holder| holder.rows.iter().any(|of| *of != life);
        if self.holders.iter().any(is_old) {
            return Err(("nothing of an old life is in a new one", format!("life {life}: {}", self.held())));
        }
        let (of, counts) = &self.acknowledged;
        let is_kept = |(at, count): (&usize, &usize)| self.holders[*at].rows.len() >= *count;
        if !deletes && *of == life && !counts.iter().all(is_kept) {
            return Err(("what was stored stays", format!("life {life}: {}", self.held())));
        }
        Ok(())
    }

    fn held(&self) -> String {
        let held = self.holders.iter().map(|holder| format!("{:?} {:?}", holder.life, holder.rows));
        format!("own {:?}; {}", self.own_life(), held.collect::<Vec<_>>().join("; "))
    }
}
