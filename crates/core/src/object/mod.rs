//! What all kinds of objects have in common: a clock that never goes back, one alarm, and what a host has to do for them.
//!
//! Owns: when the alarm must fire, how an instance finds out that it was lost, and what was written to other objects
//! ([`Outbox`]).
//! Does not own: what is due. A machine holds an [`Object`], and says by [`Machine`] what it does when something is due
//! and when that is; its rows are its own.
//!
//! Everything is synchronous. A host calls a method of the machine, which reads and commits rows, and then performs the
//! [`Orders`] that it takes from it, in the same turn: so rows and alarm are one commit, and nothing goes out before
//! what it stands for is stored.
//!
//! Invariant: the alarm is never later than the earliest time at which something is due.

mod address;
mod alarm;
mod flights;
mod letter;
mod outbox;

use stepwell_protocol::{Place, Problem, Timestamp};

pub use address::{Address, Kind, NoAddress};
use alarm::Alarm;
pub use flights::{ASKS_MAX, Flights};
pub use letter::{Delivery, Envelope, LETTER_BYTES_MAX, LETTER_MESSAGES_MAX, Letter, Message, Receipt};
pub use outbox::{
    ANSWER_MS, Arrival, DEAD_AFTER_MS, Discarded, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, IN_FLIGHT_TO_ONE_MAX,
    KNOWN_MAX, Letters, Outbox, SEND_AGAIN_MS_MAX, SENDS_MAX, Sending, Slip, pause_ms,
};

/// How long a dead instance stays unnoticed at the most while there is something to do, if nobody asks it anything.
pub const DEAD_MAN_MS: u64 = 5_000;

/// The longest time between two turns of an instance that has something under way: its alarm fires that often, or a
/// little late. Whatever is longer, it has not lived through.
pub const TURN_GAP_MS: u64 = 2 * DEAD_MAN_MS;

/// How long until an object that could not read its letters looks again.
const READ_AGAIN_MS: u64 = 1_000;

/// How long until an object that could not do something looks again.
pub const LOOK_AGAIN_MS: u64 = 100;

/// What an instance of an object has, whatever its kind. Lost with the instance, and made anew from rows.
#[derive(Clone, Debug)]
pub struct Object<O> {
    /// The latest time that was seen: the clock may be set back, an object's time never is.
    latest: Timestamp,
    alarm: Alarm,
    /// What it has written to others.
    outbox: Outbox,
    sends: Vec<Sending>,
    orders: Vec<O>,
}

/// What the host has to do in the same turn.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "orders that are not performed are lost"]
pub struct Orders<O> {
    /// Set the alarm. Whether it can be set or not, the rest is done as well; if not, the machine is told so.
    pub arm: Option<Timestamp>,
    /// Send these messages, and say what became of each.
    pub send: Vec<Sending>,
    /// What only this kind of object has to have done, in this order.
    pub own: Vec<O>,
}

/// Why an object did not do what it was asked. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum Fault<E> {
    /// The caller's fault.
    #[error(transparent)]
    Rejected(#[from] Problem),
    /// The storage's.
    #[error("the storage failed")]
    Storage(E),
    /// Nobody's: the key is at home in another cell by now, which has to be asked instead.
    #[error("the key has gone to cell {0}")]
    Moved(Place),
}

/// Whoever has an [`Object`].
pub trait Hosted {
    /// What the host has to do for this kind besides setting the alarm.
    type Order;

    /// What it has in common with the others.
    fn object(&mut self) -> &mut Object<Self::Order>;

    /// A request or an alarm has come: a fresh invocation of the platform, with all that one may do.
    fn begin(&mut self) {}

    /// The instance has stood still for so long, or its clock was set forward. Whatever was under way may have gone on
    /// meanwhile, and comes after this turn.
    fn stood_still(&mut self, _clock: Timestamp, _ms: u64) {}

    /// The time, which never goes back while this instance lives. Each turn begins with it.
    fn now(&mut self, clock: Timestamp) -> Timestamp {
        let gap_ms = clock.as_millis().saturating_sub(self.object().latest.as_millis());
        if gap_ms > TURN_GAP_MS {
            self.stood_still(clock, gap_ms - TURN_GAP_MS);
        }
        let object = self.object();
        object.latest = object.latest.max(clock);
        object.latest
    }

    /// What the host has to do now. To be asked for after every call, whether it failed or not.
    fn take_orders(&mut self) -> Orders<Self::Order> {
        let object = self.object();
        Orders {
            arm: object.alarm.take(),
            send: std::mem::take(&mut object.sends),
            own: std::mem::take(&mut object.orders),
        }
    }

    /// The alarm could not be set: what was ordered does not hold.
    fn not_armed(&mut self) {
        self.object().alarm.not_set();
    }

    /// Whether [`Machine::repair`] has still to look at the rows.
    fn wants_repair(&mut self) -> bool {
        !self.object().alarm.is_compared()
    }

    /// Says what the platform believes the alarm to be set for. To be called before [`Machine::repair`].
    fn found_alarm(&mut self, at: Option<Timestamp>) {
        self.object().alarm.found(at);
    }

    /// Whether the platform had lost the alarm when this instance was loaded. Said once, after [`Machine::repair`].
    fn alarm_was_missing(&mut self) -> bool {
        self.object().alarm.was_missing()
    }
}

/// A machine over the rows of one object.
pub trait Machine<R>: Hosted {
    /// Why the storage failed.
    type Error;

    /// Does what is due, and says when the next thing is.
    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<Self::Error>>;

    /// When the first thing is due, by all rows: asked once by each instance, and again when an alarm could not be set or
    /// was lost. Whatever was armed before counts for nothing then, so nothing may be due that no row tells of, unless this
    /// instance still knows it.
    fn first_due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<Self::Error>>;

    /// The alarm has fired: does what is due and orders the next alarm. Whatever takes time comes after that, by the
    /// orders: an alarm that waited for one thing would keep all others waiting.
    ///
    /// If the rows cannot be read, the next alarm is ordered as well: only a host that cannot set it has to tell its
    /// platform that this one has failed.
    fn alarm(&mut self, rows: &R, clock: Timestamp) -> Result<(), Fault<Self::Error>> {
        let now = self.now(clock);
        self.begin();
        self.object().outbox.begin();
        self.object().alarm.fired();
        let next = self.due(rows, now);
        let object = self.object();
        match next {
            Ok(next) => {
                object.alarm.succeeded();
                if let Some(at) = next {
                    object.arm_by(now, at);
                }
                Ok(())
            }
            Err(fault) => {
                let pause_ms = object.alarm.failed();
                object.arm_by(now, now.plus_millis(pause_ms));
                Err(fault)
            }
        }
    }

    /// A request has come. A fresh instance trusts rows, not alarms: one may have been lost. An instance that an alarm
    /// has loaded looks at all rows anyway.
    fn repair(&mut self, rows: &R, clock: Timestamp) -> Result<(), Fault<Self::Error>> {
        self.begin();
        self.object().outbox.begin();
        let now = self.now(clock);
        self.object().alarm.notice_loss(now);
        if !self.wants_repair() {
            return Ok(());
        }
        self.object().alarm.forget();
        let first = self.first_due(rows, now)?;
        let object = self.object();
        if let Some(at) = object.alarm.compare(first, now) {
            object.arm_by(now, at);
        }
        Ok(())
    }
}

impl<O> Object<O> {
    /// Of an instance that has looked at nothing yet.
    pub fn new() -> Self {
        Self {
            latest: Timestamp::default(),
            alarm: Alarm::default(),
            outbox: Outbox::default(),
            sends: Vec::new(),
            orders: Vec::new(),
        }
    }

    /// The latest time that was seen.
    pub fn latest(&self) -> Timestamp {
        self.latest
    }

    /// Makes sure that the alarm fires by then.
    pub fn arm_by(&mut self, now: Timestamp, at: Timestamp) {
        self.alarm.by(now, at);
    }

    /// Sets the alarm once more, at another time that is not later. What is answered in this turn then waits for a write.
    pub fn arm_anew(&mut self, now: Timestamp) {
        self.alarm.anew(now);
    }

    /// What it has written to others.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Lets the host send what may go out now, and makes sure that the alarm goes on with the rest.
    pub fn send<R: Letters>(&mut self, rows: &R, now: Timestamp) -> Result<(), R::Error> {
        let sent = self.outbox.send(rows, now, &mut self.sends);
        // A storage that fails is not asked again at once.
        let soonest = if sent.is_err() { now.plus_millis(READ_AGAIN_MS) } else { now };
        if let Some(at) = self.outbox.next_look(now) {
            self.alarm.by(now, at.max(soonest));
        }
        sent
    }

    /// The messages that go out with this turn.
    pub fn sends(&mut self) -> &mut Vec<Sending> {
        &mut self.sends
    }

    /// When there is a letter to be sent, by all rows.
    pub fn first_letter<R: Letters>(
        &mut self,
        rows: &R,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, R::Error> {
        Ok(rows.letters(0, 1)?.first().map(|_| now))
    }

    /// Lets the host do something.
    pub fn order(&mut self, order: O) {
        self.orders.push(order);
    }
}

impl<O> Default for Object<O> {
    fn default() -> Self {
        Self::new()
    }
}
