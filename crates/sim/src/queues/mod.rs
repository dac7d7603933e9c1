//! Worlds of queues: one partition, the production machine (`stepwell_core::queue`) on the simulator's host, and whoever
//! sends to it, claims from it, is pushed to, and looks after it.
//!
//! Requests and answers are lost, doubled and late; consumers die, are slow, and say late that they are done; the endpoint
//! fails, hangs and is down; operators pause, purge and redrive. After that all is well for long enough that every job must
//! be done, or dead and visible.
//!
//! Owns: these worlds, and their planted bugs. Does not own: what breaks in the partition itself ([`crate::one`]), nor how
//! a request finds its partition: the real Worker does that in `tests/workerd`.

mod around;
mod check;
mod endpoint;
mod rows;

use std::rc::Rc;

use stepwell_core::queue::{Order, Queue};
use stepwell_protocol::Timestamp;

use self::{
    around::{Around, Event, Out},
    check::Model,
    endpoint::Endpoint,
    rows::{Entries, Queues, Tables},
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
    /// A job that is done stays in the rows.
    AckNotStored,
    /// That somebody holds a job is not stored.
    LeaseNotStored,
    /// A fresh instance does not know who holds what.
    LeasesNotRead,
    /// A fresh instance takes the row of a claim for another one.
    LeaseRowsMistaken,
    /// That somebody holds fewer jobs is not stored.
    LeaseNotShrunk,
    /// That a lease is longer is not stored.
    ExtensionLost,
    /// All jobs of a group are in line.
    AnyoneOfGroupInLine,
    /// The last job of a group comes first.
    GroupBackwards,
    /// Dedupe ids are not stored.
    DedupeForgotten,
    /// Idempotency keys are not stored.
    RequestForgotten,
    /// A fresh instance does not know which requests it has had.
    MarksNotRead,
    /// A job that dies is gone.
    DeadLetterLost,
    /// A job that is given back is gone.
    GiveBackForgotten,
    /// Attempts are not counted.
    AttemptsNotCounted,
    /// The counts stay as they were.
    CountsNotStored,
    /// A fresh instance takes the counts of the head for the latest.
    CountsNotRead,
    /// Jobs can be claimed at once.
    DelayIgnored,
    /// All jobs have the same priority.
    PriorityIgnored,
    /// A purge takes what came after it.
    PurgeTooFar,
    /// A purge takes what was given back, or has died, after it.
    PurgeTakesAll,
    /// A fresh instance does not know that its queue is paused.
    PauseForgotten,
    /// A fresh instance does not go on with a redrive.
    RedriveForgotten,
    /// A fresh instance takes pushes for claims.
    PushesNotCounted,
    /// A fresh instance takes all dead letters for told.
    DeathsTakenForTold,
    /// Jobs are pushed before that is durable.
    PushedEarly,
    /// Requests are answered before that is durable.
    AnsweredEarly,
    /// The alarm is never set.
    NeverArmed,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::AckNotStored,
        Self::LeaseNotStored,
        Self::LeasesNotRead,
        Self::LeaseRowsMistaken,
        Self::LeaseNotShrunk,
        Self::ExtensionLost,
        Self::AnyoneOfGroupInLine,
        Self::GroupBackwards,
        Self::DedupeForgotten,
        Self::RequestForgotten,
        Self::MarksNotRead,
        Self::DeadLetterLost,
        Self::GiveBackForgotten,
        Self::AttemptsNotCounted,
        Self::CountsNotStored,
        Self::CountsNotRead,
        Self::DelayIgnored,
        Self::PriorityIgnored,
        Self::PurgeTooFar,
        Self::PurgeTakesAll,
        Self::PauseForgotten,
        Self::RedriveForgotten,
        Self::PushesNotCounted,
        Self::DeathsTakenForTold,
        Self::PushedEarly,
        Self::AnsweredEarly,
        Self::NeverArmed,
    ];
}

/// Runs the world of a seed.
pub fn simulate(seed: u64, planted: Option<Planted>, is_traced: bool) -> Outcome {
    World::new(seed, planted, is_traced).live(|world| world.around.posts.len())
}

struct World {
    common: Common<Queues, Event, Out>,
    planted: Option<Planted>,
    around: Around,
    endpoint: Endpoint,
    model: Model,
}

impl World {
    fn new(seed: u64, planted: Option<Planted>, is_traced: bool) -> Self {
        let mut common = Common::new(seed ^ 0x7175_6575, is_traced);
        let around = Around::new(&mut common);
        common.break_things(25, 45);
        let model = Model::new(&around.settings);
        Self { common, planted, around, endpoint: Endpoint::default(), model }
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// Something has become durable.
    fn look(&mut self) {
        let (disk, latest) = (self.common.station.disk.clone(), self.common.latest);
        let checked = self.model.durable(&disk, latest, &self.around.posts);
        self.common.must(checked);
    }
}

impl OneStation for World {
    type Kind = Queues;
    type Event = Event;
    type Out = Out;

    /// A job that fails whenever it is pushed comes to its end within half an hour.
    const END_MS: u64 = BREAKS_MS + 3_300_000;

    fn common(&mut self) -> &mut Common<Queues, Event, Out> {
        &mut self.common
    }

    fn make(&mut self, disk: Rc<Tables>) -> (Queue, Entries) {
        (Queue::new(0), Entries::new(disk, self.planted))
    }

    fn perform(&mut self, id: u64, _: Timestamp, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Push(pushed) => {
                    let early = self.is(Planted::PushedEarly).then_some(Sabotage::GateOpen);
                    let jumps = self.common.jumps;
                    self.send(id, Out::Push { from: id, jumps, pushed }, early);
                }
                Order::Tell(telling) => self.send(id, Out::Tell { from: id, telling }, None),
                // Consumers here ask again and again, and nothing deletes the queue.
                Order::Wake(_) | Order::Delete => {}
            }
        }
    }

    fn release(&mut self, out: Out) {
        self.look();
        self.leaves_for(out);
    }

    fn happens(&mut self, event: Event) {
        self.look();
        self.on(event);
    }

    fn holds(&mut self, latest: Timestamp) -> Checked {
        self.look();
        Model::alarm(&self.common.station.disk, self.common.station.alarm, latest)
    }

    fn at_rest(&mut self) -> Checked {
        self.model.at_rest(&self.common.station.disk)
    }

    fn sabotage(&self, _: Cause) -> (Option<Sabotage>, u64) {
        (self.is(Planted::NeverArmed).then_some(Sabotage::NeverArmed), 0)
    }
}
