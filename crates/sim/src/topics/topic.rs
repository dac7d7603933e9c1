//! The topic in its world: the production machine, what it asks of cells, and what they write to it.

use std::rc::Rc;

use stepwell_core::{
    object::{Delivery, Message, Receipt, Sending},
    topic::{EventStart, HookKeys, Meeting, Order, StartEnd, Topic as Machine, wait_id},
};
use stepwell_protocol::{
    Code, Problem, Timestamp,
    signature::{Key, Purpose},
};

use super::{
    Planted, World,
    cells::pool,
    events::{Event, Out, Post},
    host::{Any, At, Site, TheTopic},
    rows::{Board, Table, Topics, Write},
};
use crate::{
    check::Checked,
    host::{self, Cause},
};

/// What the topic is called.
pub const TOPIC: &str = "order";

impl At for TheTopic {
    type Kind = Topics;

    fn any(self) -> Any {
        Any::Topic
    }

    fn site(self, world: &World) -> &Site<Topics> {
        &world.topic
    }

    fn site_mut(self, world: &mut World) -> &mut Site<Topics> {
        &mut world.topic
    }

    fn make(self, world: &World, disk: Rc<Table>, is_second: bool) -> (Machine, Board) {
        let of = |purpose| vec![Key::derive("a secret of the deployment", purpose)];
        let keys = HookKeys {
            namespace: "default".into(),
            url: None,
            addresses: of(Purpose::Webhook),
            seals: of(Purpose::Seal),
        };
        let machine = Machine::new(TOPIC.into(), pool()).with_keys(keys);
        (machine, Board::new(disk, is_second, world.planted))
    }

    fn perform(self, world: &mut World, id: u64, _: Cause, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Start(start) => world.send(self, id, Out::Start(id, start)),
                Order::Meet(meeting) => world.send(self, id, Out::Meet(id, meeting)),
            }
        }
    }

    fn post(self, _: &mut World, _: u64, sends: Vec<Sending>) {
        assert!(sends.is_empty(), "a topic writes no letters");
    }

    fn durable(self, world: &mut World, write: &Write) {
        let (order, now_ms) = (world.order, world.now_ms);
        world.tell(|| format!("[{order}] topic: {}", brief(write)));
        let checked = world.model.topic_wrote(write, (order, now_ms));
        world.must(checked);
        world.cover(write);
    }

    fn died(self, _: &mut World, _: u64) {}

    fn check_alarm(self, world: &World, latest: Timestamp) -> Checked {
        let host = &world.topic.host;
        match host.disk.due_by(latest) {
            Some((by, what)) if host.alarm.is_none_or(|alarm| alarm > by) => {
                let (by, alarm) = (by.as_millis(), host.alarm.map(Timestamp::as_millis));
                let detail = format!("{what}: the alarm has to come by {by}, and is set to {alarm:?}");
                Err(("12 the alarm is never later than what is due", detail))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl World {
    /// A letter of a cell arrives.
    pub(super) fn on_letter(&mut self, post: Post) {
        let is_dead = self.breaks() && self.rng.percent(1);
        if is_dead {
            self.note("a letter is refused for good");
            let problem = Problem::new(Code::InvalidRequest, "It is refused.");
            return self.release(Out::Receipt(post, Delivery::Refused(problem), self.transitions));
        }
        let Some(id) = self.reach(TheTopic) else {
            return self.put(1, Event::Receipt(post, Delivery::Failed));
        };
        if self.is(Planted::AnsweredWithoutEffect) && self.rng.percent(10) {
            let taken = Delivery::Arrived(Receipt::Taken);
            return self.send(TheTopic, id, Out::Receipt(post, taken, self.transitions));
        }
        let received = match post.sending.message.clone() {
            Message::Emitted { run, mut event } => {
                let mut mark = String::new();
                if self.is(Planted::EmittedAnew) {
                    (event.id, mark) = (None, self.rng.bits().to_string());
                }
                self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                    machine.accept(rows, now, &mark, Some(&format!("run:{run}")), vec![*event])?;
                    Ok(Receipt::Taken)
                })
            }
            Message::Waits { mut waiter } => {
                if self.is(Planted::OwnEventGot) {
                    waiter.except = None;
                }
                if self.is(Planted::ConditionDropped) {
                    waiter.when = None;
                }
                let wait = wait_id(&waiter.run, waiter.life, &waiter.op);
                self.model.told.insert(wait, self.transitions);
                self.turn(TheTopic, id, Cause::Request, |machine, rows, now| machine.wait(rows, now, *waiter))
            }
            Message::WaitOver { run, life, op, epoch } => {
                self.note("a cell says that a wait is over");
                self.turn(TheTopic, id, Cause::Request, |machine, rows, now| {
                    machine.wait_over(rows, now, &wait_id(&run, life, &op), epoch)
                })
            }
            Message::Start { .. }
            | Message::Ended { .. }
            | Message::TickEnded { .. }
            | Message::Cancel { .. }
            | Message::TicketOver { .. }
            | Message::Job { .. }
            | Message::Callback { .. }
            | Message::Unbind { .. } => Ok(Receipt::Gone),
        };
        let delivery = host::delivery(received, self.topic.host.is_stale(id));
        if self.topic.host.instance(id).is_some() {
            self.send(TheTopic, id, Out::Receipt(post, delivery, self.transitions));
        } else {
            self.put(1, Event::Receipt(post, Delivery::Failed));
        }
    }

    /// What a cell is told to have arrived has had its effect.
    pub(super) fn check_receipt(&mut self, post: &Post, delivery: &Delivery, turn: u64) {
        if *delivery == Delivery::Arrived(Receipt::Taken) {
            let checked = self.model.letter_taken(&self.topic.host.disk, &post.sending.message, turn);
            self.must(checked);
        }
    }

    /// A cell has answered whether it has started a run.
    pub(super) fn on_started(&mut self, to: u64, start: &EventStart, end: StartEnd) {
        // What the storage does not take is asked again.
        let _ = self.turn(TheTopic, to, Cause::CallEnded, |machine, rows, now| {
            machine.answered(rows, now, start, end)
        });
    }

    /// A cell has answered what its runs have done with an event.
    pub(super) fn on_met(&mut self, to: u64, meeting: &Meeting, receipts: Option<Vec<Receipt>>) {
        let _ = self.turn(TheTopic, to, Cause::CallEnded, |machine, rows, now| {
            machine.met(rows, now, meeting, receipts)
        });
    }

    /// What the topic has written, for whoever wants to know what these worlds come to.
    fn cover(&mut self, write: &Write) {
        match write {
            Write::Park(parked) if parked.trigger.starts_with('\n') => {
                self.note("an event is parked for waits");
            }
            Write::Park(_) => self.note("a start is parked"),
            Write::Unpark(_) => self.note("something parked is done"),
            Write::Expired(..) => self.note("a wait expires"),
            Write::Wait(_) => self.note("a wait is registered"),
            Write::TriggerGone(_) => self.note("a trigger is deleted"),
            Write::Triggers(Some(_), _) => self.note("what the code declares is heard"),
            Write::Delivery(..) => self.note("a delivery is kept"),
            Write::Triggers(None, _)
            | Write::Events(_)
            | Write::Flush(..)
            | Write::Tidy
            | Write::Ended(..)
            | Write::Expire(..)
            | Write::Webhook(_)
            | Write::WebhookGone(_) => {}
        }
    }
}

/// What was written, in a few words.
fn brief(write: &Write) -> String {
    match write {
        Write::Events(events) => {
            let of = |event: &stepwell_core::topic::EventRow| {
                format!(
                    "event {} {} {} at {} {}",
                    event.number,
                    event.id,
                    event.name,
                    event.at.as_millis(),
                    event.data.text()
                )
            };
            events.iter().map(|(event, _)| of(event)).collect::<Vec<_>>().join(", ")
        }
        Write::Wait(wait) => format!("wait {} after {}: {:?}", wait.number, wait.after, wait.waiter),
        Write::Ended(event, over) => {
            let over: Vec<_> = over.iter().map(|(wait, is_met)| (wait.number, is_met)).collect();
            format!("waits end by event {event}: {over:?}")
        }
        Write::Flush(through, looked, _) => format!("done through {through}, looked back through {looked}"),
        Write::Triggers(revision, triggers) => {
            let ids: Vec<_> = triggers.iter().map(|trigger| &trigger.id).collect();
            format!("triggers {ids:?} of revision {revision:?}")
        }
        Write::Webhook(_) | Write::Delivery(..) => "a webhook or a delivery".into(),
        Write::TriggerGone(_)
        | Write::Park(_)
        | Write::Unpark(_)
        | Write::Tidy
        | Write::Expired(..)
        | Write::Expire(..)
        | Write::WebhookGone(_) => format!("{write:?}"),
    }
}
