//! Worlds of lanes: one lane, the production machine (`stepwell_core::lane`) on the simulator's host, and the cells whose
//! runs it lets in.
//!
//! Questions, answers and words are lost, doubled and late; cells die and forget what they were about to say. After that
//! all is well for long enough that every run must come to its end, and the lane forget it.
//!
//! Owns: these worlds, and their planted bugs. Does not own: what breaks in the lane itself ([`crate::one`]). Cells are a map
//! of runs and tickets here, which keeps what a cell promises to a lane; the real ones stand beside a lane in the tests of
//! `stepwell-core`.

mod cells;
mod check;
mod rows;

use std::rc::Rc;

use stepwell_core::lane::{Lane, Order};
use stepwell_protocol::{Timestamp, lane::Standing};

use self::{
    cells::{Event, House},
    check::Model,
    rows::{Lanes, Table, Waiters},
};
pub use crate::one::Outcome;
use crate::{
    Sabotage,
    check::Checked,
    host::Cause,
    one::{BREAKS_MS, Common, OneStation},
};

/// A mechanism that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A fresh instance does not know who was let in.
    HoldersForgotten,
    /// A fresh instance does not know somebody who waits.
    WaiterHidden,
    /// That somebody was let in is not stored.
    LetInLost,
    /// Whose ticket is over stays in the rows.
    RowStays,
    /// A fresh instance does not know when somebody was let in.
    BeginningForgotten,
    /// Rates forget whose ticket is over.
    RateForgotten,
    /// A cell is answered before that is durable.
    AnsweredEarly,
    /// Nobody is told that they were let in while they waited.
    NeverTold,
    /// A cell that does not answer is taken for one whose tickets are over.
    SilenceIsOver,
    /// A fresh instance trusts that its alarm is set.
    NoRepair,
    /// The alarm is never set.
    NeverArmed,
    /// A limit is not passed on.
    LimitLost,
    /// The answers to a question are in another order than its tickets.
    AnswersMixedUp,
    /// Another ticket is over than the one that is meant.
    WrongTicketOver,
    /// A cell says of a ticket that works that it is over.
    TicketDenied,
    /// A run wants to go to work again by the ticket that it has given back.
    TicketReused,
    /// A cell takes the answer about an earlier ticket for one about this.
    LateAnswerTaken,
    /// A run that gets no answer goes to work.
    Impatient,
    /// The ticket of a step is taken for its run's own, which stands for those before it.
    StepTakenForRun,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::HoldersForgotten,
        Self::WaiterHidden,
        Self::LetInLost,
        Self::RowStays,
        Self::BeginningForgotten,
        Self::RateForgotten,
        Self::AnsweredEarly,
        Self::NeverTold,
        Self::SilenceIsOver,
        Self::NoRepair,
        Self::NeverArmed,
        Self::LimitLost,
        Self::AnswersMixedUp,
        Self::WrongTicketOver,
        Self::TicketDenied,
        Self::TicketReused,
        Self::LateAnswerTaken,
        Self::Impatient,
        Self::StepTakenForRun,
    ];
}

/// Runs the world of a seed.
pub fn simulate(seed: u64, planted: Option<Planted>, is_traced: bool) -> Outcome {
    World::new(seed, planted, is_traced).live(|world| world.house.runs.len())
}

/// What leaves a lane.
#[derive(Clone, Debug)]
enum Out {
    /// The answer to a cell's question.
    Answer { question: u64, standings: Vec<Standing> },
    /// Tickets that were let in, for their cell.
    Tell { from: u64, telling: Box<stepwell_core::lane::Telling> },
}

struct World {
    common: Common<Lanes, Event, Out>,
    planted: Option<Planted>,
    house: House,
    model: Model,
}

impl World {
    fn new(seed: u64, planted: Option<Planted>, is_traced: bool) -> Self {
        let mut common = Common::new(seed ^ 0x6c61_6e65, is_traced);
        let house = House::new(&mut common);
        common.break_things(25, 45);
        Self { common, planted, house, model: Model::default() }
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }
}

impl OneStation for World {
    type Kind = Lanes;
    type Event = Event;
    type Out = Out;

    /// A run that is in line asks again after an hour, if its lane has lost it. It must not have to.
    const END_MS: u64 = BREAKS_MS + 3_300_000;

    fn common(&mut self) -> &mut Common<Lanes, Event, Out> {
        &mut self.common
    }

    fn make(&mut self, disk: Rc<Table>) -> (Lane, Waiters) {
        (Lane::default(), Waiters::new(disk, self.planted))
    }

    fn perform(&mut self, id: u64, _: Timestamp, orders: Vec<Order>) {
        for Order::Tell(telling) in orders {
            if !self.is(Planted::NeverTold) {
                self.send(id, Out::Tell { from: id, telling }, None);
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
        self.model.durable(&self.common.station.disk, self.common.jumps)?;
        Model::alarm(&self.common.station.disk, self.common.station.alarm, latest)
    }

    fn at_rest(&mut self) -> Checked {
        Model::at_rest(&self.house, &self.common.station.disk)
    }

    fn trusts_alarms(&self) -> bool {
        self.is(Planted::NoRepair)
    }

    fn sabotage(&self, _: Cause) -> (Option<Sabotage>, u64) {
        (self.is(Planted::NeverArmed).then_some(Sabotage::NeverArmed), 0)
    }
}
