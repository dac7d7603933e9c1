//! Worlds of schedules: one station, the production machine (`stepwell_core::schedule`) on the simulator's host, and the
//! cells, letters, operators and deployments around it.
//!
//! Instances die before and after their writes are durable, or lose their name; alarms come twice, late or never; calls
//! and their answers are lost, doubled and late; the storage refuses; clocks jump; letters die; words of the catalog come
//! late. After that all is well for long enough that every schedule must tick again.
//!
//! Owns: these worlds, and their planted bugs. Does not own: the host ([`crate::host`]). Cells are a map of keys and runs
//! here: what they do with a tick is theirs, and [`crate::world`] has them.

mod check;
mod events;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use stepwell_core::{
    object::{Fault, Hosted as _, Machine as _},
    pools::Pool,
    schedule::{Order, Schedules, StartEnd, TickStart, Zones},
};
use stepwell_protocol::{
    RunId, Timestamp,
    manifest::ScheduleDescription,
    rest::Status,
    schedule::{CATCH_UP_MS_DEFAULT, CatchUp, Overlap, ScheduleSpec, Ticked},
};

use self::{
    check::Model,
    events::{Act, Event, FaultKind, Letter, Out},
    rows::{Board, Stations},
};
use crate::{
    Violation,
    check::Checked,
    host::{Cause, Host, Refused, Turn},
    rng::Rng,
};

/// When worlds begin, and a day more, for clocks that are set back.
const BEGINNING_MS: u64 = 1_700_000_000_000 + 86_400_000;

/// How long everything breaks.
const BREAKS_MS: u64 = 300_000;

/// When a world ends: a run whose letter is dead is looked for after ten minutes.
const END_MS: u64 = BREAKS_MS + 1_800_000;

/// How long a caller waits for an answer.
const ANSWER_MS: u64 = 30_000;

/// A mechanism that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A tick counts as started before its cell has answered.
    MovedBeforeTheAnswer,
    /// The run of a tick is known by its schedule alone.
    KeyWithoutInstant,
    /// The run of a tick is known by nothing: an alarm or a call that comes twice starts two.
    KeyLost,
    /// However late a tick is, it is started.
    WindowForgotten,
    /// A paused schedule ticks.
    PauseForgotten,
    /// A run that has not ended keeps no other from starting.
    OverlapForgotten,
    /// What has left the code ticks on.
    RetirementForgotten,
    /// Nobody asks whether a run has ended whose letter is dead.
    NeverLooked,
    /// The clock that the alarm goes by is ahead.
    TickEarly,
    /// A fresh instance trusts that its alarm is set.
    NoRepair,
    /// A cell forgets which ticks were given up.
    GivenUpForgotten,
    /// A tick that is to be passed over is taken for one that has no run.
    PassedUnasked,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::MovedBeforeTheAnswer,
        Self::KeyWithoutInstant,
        Self::KeyLost,
        Self::WindowForgotten,
        Self::PauseForgotten,
        Self::OverlapForgotten,
        Self::RetirementForgotten,
        Self::NeverLooked,
        Self::TickEarly,
        Self::NoRepair,
        Self::GivenUpForgotten,
        Self::PassedUnasked,
    ];
}

/// How a world has ended.
#[derive(Debug)]
pub struct Outcome {
    /// How many turns of the machine there were.
    pub transitions: u64,
    /// How many faults.
    pub faults: u64,
    /// How many runs were started.
    pub runs: usize,
    /// The first rule that was broken.
    pub violation: Option<Violation>,
}

/// Runs the world of a seed.
pub fn simulate(seed: u64, planted: Option<Planted>) -> Outcome {
    World::new(seed, planted).run()
}

/// The only zone of these worlds.
struct Utc;

impl Zones for Utc {
    fn offset_s(&self, zone: &str, _: i64) -> Option<i32> {
        (zone == "UTC").then_some(0)
    }
}

struct World {
    rng: Rng,
    planted: Option<Planted>,
    now_ms: u64,
    offset_ms: u64,
    /// The latest that the station's clock has ever shown.
    latest: Timestamp,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    station: Host<Stations, Out>,
    refuses_until_ms: u64,
    errs_next: bool,
    /// The runs that cells have started, by their keys.
    keys: BTreeMap<String, RunId>,
    /// Ticks that were given up before they had a run, by their keys.
    given_up: BTreeSet<String>,
    /// Ticks that cells refuse for good, by their keys.
    refused: BTreeSet<String>,
    /// Letters on their way, by number.
    letters: BTreeMap<u64, Letter>,
    letters_sent: u64,
    acts: Vec<Act>,
    acked: BTreeSet<usize>,
    model: Model,
    transitions: u64,
    faults: u64,
    violation: Option<Violation>,
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut world = Self {
            rng: Rng::new(seed ^ 0x7363_6865_6475_6c65),
            planted,
            now_ms: 0,
            offset_ms: 0,
            latest: Timestamp::default(),
            queue: BTreeMap::new(),
            events: 0,
            station: Host::default(),
            refuses_until_ms: 0,
            errs_next: false,
            keys: BTreeMap::new(),
            given_up: BTreeSet::new(),
            refused: BTreeSet::new(),
            letters: BTreeMap::new(),
            letters_sent: 0,
            acts: Vec::new(),
            acked: BTreeSet::new(),
            model: Model::default(),
            transitions: 0,
            faults: 0,
            violation: None,
        };
        world.write_script();
        world
    }

    fn write_script(&mut self) {
        let overlaps = [Overlap::Allow, Overlap::Skip, Overlap::QueueOne, Overlap::QueueAll, Overlap::Cancel];
        let mut declared = Vec::new();
        for n in 0..self.rng.between(3, 5) {
            let when = format!("every {} seconds", self.rng.between(5, 40));
            let spec = ScheduleSpec {
                overlap: *self.rng.pick(&overlaps),
                catch_up: if self.rng.percent(40) { CatchUp::All } else { CatchUp::Last },
                catch_up_ms: if self.rng.percent(50) { CATCH_UP_MS_DEFAULT } else { 60_000 },
                ..ScheduleSpec::new("w", &when)
            };
            let id = format!("s{n}");
            self.model.specs.insert(id.clone(), spec.clone());
            if n == 0 {
                declared.push(ScheduleDescription { name: id, spec });
                continue;
            }
            let at = self.rng.between(0, 20_000);
            self.act(at, Act::Put(id.clone(), Box::new(spec)));
            if self.rng.percent(40) {
                self.model.touched.insert(id.clone());
                let at = self.rng.between(30_000, BREAKS_MS);
                self.act(at, Act::Pause(id.clone()));
                let later = at + self.rng.between(20_000, 200_000);
                self.act(later, Act::Resume(id));
            }
        }
        // The code declares one schedule, and in half of the worlds drops it again.
        self.act(0, Act::Declare(1, declared.clone()));
        if self.rng.percent(50) {
            self.model.touched.insert("s0".into());
            let at = self.rng.between(40_000, BREAKS_MS);
            self.act(at, Act::Declare(2, Vec::new()));
            // The catalog's first word is delivered once more, late.
            let late = at + self.rng.between(1, 60_000);
            self.act(late, Act::Declare(1, declared));
        }
        for _ in 0..self.rng.between(25, 45) {
            let at = self.rng.between(1_000, BREAKS_MS);
            let kind = *self.rng.pick(&FaultKind::ALL);
            self.put_at(at, Event::Fault(kind));
        }
        self.put_at(BREAKS_MS, Event::Heal);
    }

    fn act(&mut self, at_ms: u64, act: Act) {
        self.acts.push(act);
        self.put_at(at_ms, Event::Act(self.acts.len() - 1));
    }

    fn run(mut self) -> Outcome {
        while self.violation.is_none() {
            let Some(((at_ms, _), event)) = self.queue.pop_first() else { break };
            if at_ms > END_MS {
                break;
            }
            self.now_ms = self.now_ms.max(at_ms);
            self.handle(event);
        }
        if self.violation.is_none() {
            let checked = self.model.at_rest(&self.station.disk, self.latest);
            self.must(checked);
        }
        let Self { transitions, faults, violation, .. } = self;
        Outcome { transitions, faults, runs: self.model.runs.len(), violation }
    }

    fn put_at(&mut self, at_ms: u64, event: Event) {
        self.events += 1;
        self.queue.insert((at_ms, self.events), event);
    }

    fn put(&mut self, delay_ms: u64, event: Event) {
        self.put_at(self.now_ms + delay_ms, event);
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    fn breaks(&self) -> bool {
        self.now_ms < BREAKS_MS
    }

    fn must(&mut self, checked: Checked) {
        if let Err((rule, detail)) = checked
            && self.violation.is_none()
        {
            self.violation = Some(Violation { rule, detail });
        }
    }

    fn clock(&mut self) -> Timestamp {
        let clock = Timestamp::from_millis(BEGINNING_MS + self.now_ms + self.offset_ms);
        self.latest = self.latest.max(clock);
        clock
    }

    fn world_time(&self, at: Timestamp) -> u64 {
        at.as_millis().saturating_sub(BEGINNING_MS + self.offset_ms)
    }

    /// The instance that has the name.
    fn load(&mut self) -> u64 {
        let planted = self.planted;
        let make = |disk, _| {
            let pool = Pool::parse("default", "3").expect("a pool");
            (Schedules::new("0".into(), Rc::new(Utc), pool), Board::new(disk, planted))
        };
        self.station.load(make).id
    }

    /// The same for a request: it looks after the alarm first. Now and then it is one that has lost the name.
    fn load_for_request(&mut self) -> Option<u64> {
        let stale = self.station.stale.as_ref().map(|stale| stale.id);
        let id = match stale {
            Some(stale) if self.rng.percent(30) => stale,
            Some(_) | None => self.load(),
        };
        if !self.is(Planted::NoRepair) {
            let believed = self.station.believed_alarm();
            let repaired = self.turn(id, Cause::Request, |machine, rows, now| {
                if machine.wants_repair() {
                    machine.found_alarm(believed);
                }
                machine.repair(rows, now)
            });
            repaired?.ok()?;
        }
        self.station.instance(id).map(|instance| instance.id)
    }

    /// Lets the machine do something and performs what it orders.
    fn turn<T>(
        &mut self,
        id: u64,
        cause: Cause,
        act: impl FnOnce(&mut Schedules, &Board, Timestamp) -> Result<T, Fault<Refused>>,
    ) -> Option<Result<T, Fault<Refused>>> {
        self.transitions += 1;
        let mut clock = self.clock();
        if self.is(Planted::TickEarly) && cause == Cause::Alarm {
            clock = clock.plus_millis(3_000);
        }
        let refuses = self.now_ms < self.refuses_until_ms;
        let errs = std::mem::take(&mut self.errs_next);
        let turn = Turn { cause, clock, refuses, unarmed: false, errs, sabotage: None };
        let turned = self.station.turn(id, turn, act)?;
        self.errs_next |= turned.still_errs;
        if turned.is_broken {
            // The write stands, an error came back, and the platform resets the instance.
            if !self.station.is_stale(id) {
                self.make_durable(id);
                self.station.firing |= cause == Cause::Alarm;
                let delay_ms = self.rng.between(50, 5_000);
                self.put(delay_ms, Event::Touch);
            }
            self.crash(id);
            return Some(turned.result);
        }
        if turned.batch.is_some() {
            let delay_ms = if self.rng.percent(70) { 0 } else { self.rng.between(1, 25) };
            self.put(delay_ms, Event::Flush(id));
        }
        self.perform(id, clock, turned.orders);
        Some(turned.result)
    }

    fn perform(&mut self, id: u64, clock: Timestamp, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Start(start) => {
                    if !self.station.is_stale(id) {
                        let checked = self.model.asks(&start, clock, self.latest);
                        self.must(checked);
                    }
                    if self.is(Planted::MovedBeforeTheAnswer) {
                        let run = self.run_of(&start);
                        self.answer(id, &start, StartEnd::Started(run));
                    }
                    self.send(id, Out::Ask(id, start));
                }
                Order::Cancel { schedule, run } => self.send(id, Out::Cancel(id, schedule, run)),
                Order::Look { .. } if self.is(Planted::NeverLooked) => {}
                Order::Look { schedule, run } => self.send(id, Out::Look(id, schedule, run)),
                Order::Report(schedule) => self.must(Err(("5 what was recorded stays", schedule))),
            }
        }
    }

    /// The id of the run that a tick gets.
    fn run_of(&self, start: &TickStart) -> RunId {
        let number = self.keys.len() as u64 + 1;
        RunId { place: start.to.clone(), number, suffix: RunId::suffix_from(number) }
    }

    fn answer(&mut self, id: u64, start: &TickStart, end: StartEnd) {
        self.turn(id, Cause::CallEnded, |machine, rows, now| machine.answered(rows, now, start, end));
    }

    /// Sends once everything that was written so far is durable.
    fn send(&mut self, id: u64, out: Out) {
        if let Some(out) = self.station.send(id, out, None) {
            self.release(out);
        }
    }

    /// What an instance has written reaches the disk, unless it was superseded.
    fn flush(&mut self, id: u64, dies: Option<bool>) {
        if self.station.instance(id).is_none_or(|instance| instance.pending.is_empty()) {
            return;
        }
        if self.station.is_stale(id) || dies == Some(false) {
            return self.crash(id);
        }
        self.make_durable(id);
        if dies == Some(true) {
            return self.crash(id);
        }
        for out in self.station.released(id) {
            self.release(out);
        }
        if self.station.knows_its_alarm() {
            let latest = self.station.instance(id).map(|instance| instance.latest);
            let checked = Model::alarm(&self.station.disk, self.station.alarm, latest.unwrap_or_default());
            self.must(checked);
        }
    }

    fn make_durable(&mut self, id: u64) {
        for batch in self.station.take_pending(id) {
            for write in &batch.writes {
                if let Err(refused) = self.station.apply(write) {
                    self.must(Err(("5 what was recorded stays", refused)));
                }
            }
            if let Some(at) = batch.alarm {
                self.set_alarm(at);
            }
            if batch.cause == Cause::Alarm {
                self.station.firing = false;
            }
        }
    }

    fn set_alarm(&mut self, at: Timestamp) {
        if self.station.set_alarm(at) {
            let late_ms = if self.breaks() && self.rng.percent(5) { self.rng.between(1, 20_000) } else { 0 };
            self.put_at(self.world_time(at).max(self.now_ms) + late_ms, Event::Alarm(at));
        }
    }

    fn fire(&mut self) {
        self.station.firing = true;
        let id = self.load();
        let fired = self.turn(id, Cause::Alarm, |machine, rows, now| {
            // What could not be read, the machine comes back to.
            let _ = machine.alarm(rows, now);
            Ok(())
        });
        let clock = self.clock();
        if let Some(again) = self.station.fired(id, matches!(fired, Some(Ok(()))), clock) {
            self.set_alarm(again);
        }
    }

    /// An instance dies, and everything that was only in memory.
    fn crash(&mut self, id: u64) {
        let Some(dead) = self.station.kill(id) else { return };
        if dead.was_firing {
            let again = self.clock().plus_millis(self.rng.between(1, 2_000));
            if self.station.alarm.is_none_or(|armed| again < armed) {
                self.set_alarm(again);
            }
        }
    }

    /// A run is over: its cell writes that to the station, if the station wants to know.
    fn end_run(&mut self, run: &RunId, how: Status) {
        let Some(known) = self.model.runs.get_mut(&run.to_string()).filter(|known| !known.ended) else {
            return;
        };
        known.ended = true;
        let ticked: Ticked = known.ticked.clone();
        let dies = self.breaks() && self.rng.percent(15);
        if ticked.tells.is_some() && !dies {
            self.letters_sent += 1;
            self.letters.insert(self.letters_sent, Letter { ticked, run: run.clone(), how });
            self.put(0, Event::Letter(self.letters_sent));
        }
    }
}
