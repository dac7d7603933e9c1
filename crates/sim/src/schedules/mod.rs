//! Worlds of schedules: one station, the production machine (`stepwell_core::schedule`) on the simulator's host, and the
//! cells, letters, operators and deployments around it.
//!
//! Calls and their answers are lost, doubled and late; letters die; words of the catalog come late. After that all is well
//! for long enough that every schedule must tick again.
//!
//! Owns: these worlds, and their planted bugs. Does not own: what breaks in the station itself ([`crate::one`]). Cells are a map of keys and runs
//! here: what they do with a tick is theirs, and [`crate::world`] has them.

mod check;
mod events;
mod rows;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use stepwell_core::{
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
    events::{Act, Event, Letter, Out},
    rows::{Board, Stations, Table},
};
pub use crate::one::Outcome;
use crate::{
    Sabotage,
    check::Checked,
    host::Cause,
    one::{BREAKS_MS, Common, OneStation},
};

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

/// Runs the world of a seed.
pub fn simulate(seed: u64, planted: Option<Planted>, is_traced: bool) -> Outcome {
    World::new(seed, planted, is_traced).live(|world| world.model.runs.len())
}

/// The only zone of these worlds.
struct Utc;

impl Zones for Utc {
    fn offset_s(&self, zone: &str, _: i64) -> Option<i32> {
        (zone == "UTC").then_some(0)
    }
}

struct World {
    common: Common<Stations, Event, Out>,
    planted: Option<Planted>,
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
}

impl World {
    fn new(seed: u64, planted: Option<Planted>, is_traced: bool) -> Self {
        let mut world = Self {
            common: Common::new(seed ^ 0x7363_6865_6475_6c65, is_traced),
            planted,
            keys: BTreeMap::new(),
            given_up: BTreeSet::new(),
            refused: BTreeSet::new(),
            letters: BTreeMap::new(),
            letters_sent: 0,
            acts: Vec::new(),
            acked: BTreeSet::new(),
            model: Model::default(),
        };
        world.write_script();
        world
    }

    fn write_script(&mut self) {
        let overlaps = [Overlap::Allow, Overlap::Skip, Overlap::QueueOne, Overlap::QueueAll, Overlap::Cancel];
        let mut declared = Vec::new();
        for n in 0..self.common.rng.between(3, 5) {
            let when = format!("every {} seconds", self.common.rng.between(5, 40));
            let spec = ScheduleSpec {
                overlap: *self.common.rng.pick(&overlaps),
                catch_up: if self.common.rng.percent(40) { CatchUp::All } else { CatchUp::Last },
                catch_up_ms: if self.common.rng.percent(50) { CATCH_UP_MS_DEFAULT } else { 60_000 },
                ..ScheduleSpec::new("w", &when)
            };
            let id = format!("s{n}");
            self.model.specs.insert(id.clone(), spec.clone());
            if n == 0 {
                declared.push(ScheduleDescription { name: id, spec });
                continue;
            }
            let at = self.common.rng.between(0, 20_000);
            self.act(at, Act::Put(id.clone(), Box::new(spec)));
            if self.common.rng.percent(40) {
                self.model.touched.insert(id.clone());
                let at = self.common.rng.between(30_000, BREAKS_MS);
                self.act(at, Act::Pause(id.clone()));
                let later = at + self.common.rng.between(20_000, 200_000);
                self.act(later, Act::Resume(id));
            }
        }
        // The code declares one schedule, and in half of the worlds drops it again.
        self.act(0, Act::Declare(1, declared.clone()));
        if self.common.rng.percent(50) {
            self.model.touched.insert("s0".into());
            let at = self.common.rng.between(40_000, BREAKS_MS);
            self.act(at, Act::Declare(2, Vec::new()));
            // The catalog's first word is delivered once more, late.
            let late = at + self.common.rng.between(1, 60_000);
            self.act(late, Act::Declare(1, declared));
        }
        self.common.break_things(25, 45);
    }

    fn act(&mut self, at_ms: u64, act: Act) {
        self.acts.push(act);
        self.common.put_at(at_ms, Event::Act(self.acts.len() - 1));
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// The id of the run that a tick gets.
    fn run_of(&self, start: &TickStart) -> RunId {
        let number = self.keys.len() as u64 + 1;
        RunId { place: start.to.clone(), number, suffix: RunId::suffix_from(number) }
    }

    fn answer(&mut self, id: u64, start: &TickStart, end: StartEnd) {
        self.turn(id, Cause::CallEnded, |machine, rows, now| machine.answered(rows, now, start, end));
    }

    /// A run is over: its cell writes that to the station, if the station wants to know.
    fn end_run(&mut self, run: &RunId, how: Status) {
        let Some(known) = self.model.runs.get_mut(&run.to_string()).filter(|known| !known.ended) else {
            return;
        };
        known.ended = true;
        let ticked: Ticked = known.ticked.clone();
        let dies = self.common.breaks() && self.common.rng.percent(15);
        if ticked.tells.is_some() && !dies {
            self.letters_sent += 1;
            self.letters.insert(self.letters_sent, Letter { ticked, run: run.clone(), how });
            self.common.put(0, Event::Letter(self.letters_sent));
        }
    }
}

impl OneStation for World {
    type Kind = Stations;
    type Event = Event;
    type Out = Out;

    const END_MS: u64 = END_MS;

    fn common(&mut self) -> &mut Common<Stations, Event, Out> {
        &mut self.common
    }

    fn make(&mut self, disk: Rc<Table>) -> (Schedules, Board) {
        let pool = Pool::parse("default", "3").expect("a pool");
        (Schedules::new("0".into(), Rc::new(Utc), pool), Board::new(disk, self.planted))
    }

    fn perform(&mut self, id: u64, clock: Timestamp, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Start(start) => {
                    if !self.common.station.is_stale(id) {
                        let checked = self.model.asks(&start, clock, self.common.latest);
                        self.common.must(checked);
                    }
                    if self.is(Planted::MovedBeforeTheAnswer) {
                        let run = self.run_of(&start);
                        self.answer(id, &start, StartEnd::Started(run));
                    }
                    self.send(id, Out::Ask(id, start), None);
                }
                Order::Cancel { schedule, run } => self.send(id, Out::Cancel(id, schedule, run), None),
                Order::Look { .. } if self.is(Planted::NeverLooked) => {}
                Order::Look { schedule, run } => self.send(id, Out::Look(id, schedule, run), None),
                Order::Report(schedule) => self.common.must(Err(("5 what was recorded stays", schedule))),
            }
        }
    }

    fn release(&mut self, out: Out) {
        self.leaves(out);
    }

    fn happens(&mut self, event: Event) {
        self.on(event);
    }

    fn holds(&mut self, latest: Timestamp) -> Checked {
        Model::alarm(&self.common.station.disk, self.common.station.alarm, latest)
    }

    fn at_rest(&mut self) -> Checked {
        self.model.at_rest(&self.common.station.disk, self.common.latest)
    }

    fn trusts_alarms(&self) -> bool {
        self.is(Planted::NoRepair)
    }

    fn sabotage(&self, cause: Cause) -> (Option<Sabotage>, u64) {
        let is_early = self.is(Planted::TickEarly) && cause == Cause::Alarm;
        (None, if is_early { 3_000 } else { 0 })
    }
}
