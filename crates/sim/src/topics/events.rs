//! What happens in a world of topics, what travels in it, and what breaks.

use stepwell_core::{
    object::{Delivery, Receipt, Sending},
    run::CallEnd,
    topic::{EventStart, Meeting, StartEnd},
};
use stepwell_protocol::{Epoch, Timestamp};

use super::{
    World,
    cells::Said,
    host::{Any, At, Trap, with_address},
    people::Answered,
};
use crate::outside::Received;

/// How long a caller waits for an answer.
const ANSWER_MS: u64 = 30_000;

/// How long until a sender hears that a message was lost, if it hears so at all.
const BROKEN_MS: u64 = 200;

/// Something that happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// What an instance has written reaches the disk.
    Flush(Any, u64),
    /// The platform calls an alarm.
    Alarm(Any, Timestamp),
    /// Somebody asks an object for anything at all.
    Touch(Any),
    /// Something breaks.
    Fault(Any, FaultKind),
    /// Somebody does something.
    Act(usize),
    /// From now on all is well.
    Heal,
    /// The call of a program arrives there.
    Begin(u32),
    /// What a program says arrives at its cell.
    ToCell(u32, u32, Said),
    /// The answer arrives at the program.
    ToProgram(u32, u32, Received),
    /// The end of a program's call arrives at its cell.
    CallEnded(usize, u64, u64, Epoch, CallEnd),
    /// A letter of a cell arrives at the topic.
    Letter(Post),
    /// What became of it arrives at the cell.
    Receipt(Post, Delivery),
    /// A cell is asked to start the run of an event.
    Start(u64, Box<EventStart>),
    /// It has answered.
    Started(u64, Box<EventStart>, StartEnd),
    /// A cell is told of an event.
    Meet(u64, Box<Meeting>),
    /// It has answered.
    Met(u64, Box<Meeting>, Option<Vec<Receipt>>),
}

/// What leaves an instance once its commits are durable.
#[derive(Clone, Debug)]
pub enum Out {
    /// The call of a program.
    Begin(u32),
    /// An answer to a program.
    ToProgram(u32, u32, Received),
    /// A letter.
    Letter(Post),
    /// What became of one, and in which turn.
    Receipt(Post, Delivery, u64),
    /// A cell is to start the run of an event.
    Start(u64, Box<EventStart>),
    /// What became of that.
    Started(u64, Box<EventStart>, StartEnd),
    /// A cell is to be told of an event.
    Meet(u64, Box<Meeting>),
    /// What it answers.
    Met(u64, Box<Meeting>, Option<Vec<Receipt>>),
    /// Somebody is answered.
    Answer(usize, Answered),
}

/// A letter on its way, and the instance that waits for the answer.
#[derive(Clone, Debug)]
pub struct Post {
    /// The sender's cell.
    pub cell: usize,
    /// Its instance.
    pub id: u64,
    /// The message.
    pub sending: Sending,
}

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The instance dies at once.
    Crash,
    /// The instance dies at the next write, before that is durable.
    CrashBefore,
    /// The instance dies at the next write, as soon as that is durable.
    CrashAfter,
    /// Another instance gets the name.
    Supersede,
    /// The alarm is called once more.
    DoubledAlarm,
    /// The platform loses the alarm.
    LostAlarm,
    /// Nothing can be written for some seconds.
    StorageRefuses,
    /// The next write is done, and answered with an error.
    StorageErrs,
    /// The clock is put forward.
    ClockForward,
    /// The clock is put back.
    ClockBack,
}

impl FaultKind {
    /// All of them; some happen more often.
    pub const ALL: [Self; 12] = [
        Self::Crash,
        Self::CrashBefore,
        Self::CrashBefore,
        Self::CrashAfter,
        Self::Supersede,
        Self::Supersede,
        Self::DoubledAlarm,
        Self::LostAlarm,
        Self::StorageRefuses,
        Self::StorageErrs,
        Self::ClockForward,
        Self::ClockBack,
    ];
}

impl World {
    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Flush(any, id) => with_address!(any, at => self.flush(at, id)),
            Event::Alarm(any, alarm) => with_address!(any, at => self.on_alarm(at, alarm)),
            Event::Touch(any) => with_address!(any, at => {
                self.reach(at);
            }),
            Event::Fault(any, kind) => with_address!(any, at => self.on_fault(at, kind)),
            Event::Act(index) => self.on_act(index),
            Event::Heal => self.heal(),
            Event::Begin(program) => self.begin(program),
            Event::ToCell(program, call, said) => self.on_said(program, call, said),
            Event::ToProgram(program, call, received) => self.hear(program, call, received),
            Event::CallEnded(cell, id, number, epoch, end) => self.call_ended(cell, id, number, epoch, end),
            Event::Letter(post) => self.on_letter(post),
            Event::Receipt(post, delivery) => self.on_receipt(&post, delivery),
            Event::Start(from, start) => self.on_start(from, start),
            Event::Started(to, start, end) => self.on_started(to, &start, end),
            Event::Meet(from, meeting) => self.on_meet(from, meeting),
            Event::Met(to, meeting, receipts) => self.on_met(to, &meeting, receipts),
        }
    }

    fn heal(&mut self) {
        for cell in 0..self.cells.len() {
            self.heal_one(cell);
            self.resume_all(cell);
        }
        self.heal_one(super::host::TheTopic);
    }

    fn heal_one<A: At>(&mut self, at: A) {
        let site = at.site_mut(self);
        (site.refuses_until_ms, site.errs_next, site.trap) = (0, false, None);
        if let Some(stale) = site.host.stale.as_ref().map(|stale| stale.id) {
            self.crash(at, stale);
        }
        // The sweep visits objects that have lost their alarms.
        self.put(10, Event::Touch(at.any()));
    }

    /// How long the copies of a message take: none, if it is lost; a second one may be long under way.
    fn copies(&mut self) -> Vec<u64> {
        if !self.breaks() {
            return vec![self.rng.between(1, 10)];
        }
        let first = self.rng.between(1, 60);
        match self.rng.below(100) {
            0..=6 => {
                self.note("a message is lost");
                Vec::new()
            }
            7..=11 => {
                self.note("a message is late");
                vec![self.rng.between(1_000, 40_000)]
            }
            12..=17 => {
                self.note("a message comes twice");
                vec![first, self.rng.between(1, 500)]
            }
            18..=23 => {
                self.note("an old copy of a message comes late");
                vec![first, self.rng.between(5_000, 120_000)]
            }
            _ => vec![first],
        }
    }

    /// Something leaves an object.
    pub(super) fn release(&mut self, out: Out) {
        let copies = match &out {
            Out::Answer(..) => Vec::new(),
            Out::Begin(_) | Out::ToProgram(..) => return self.release_to_program(out),
            Out::Letter(_)
            | Out::Receipt(..)
            | Out::Start(..)
            | Out::Started(..)
            | Out::Meet(..)
            | Out::Met(..) => self.copies(),
        };
        match out {
            Out::Begin(_) | Out::ToProgram(..) => {}
            Out::Answer(index, answered) => self.on_answer(index, &answered),
            Out::Letter(post) => {
                // Its sender may see the connection break; if not, it hears nothing for long.
                if copies.is_empty() && self.rng.percent(70) {
                    self.put(BROKEN_MS, Event::Receipt(post.clone(), Delivery::Failed));
                }
                self.put_all(&copies, &Event::Letter(post));
            }
            Out::Receipt(post, delivery, turn) => {
                self.check_receipt(&post, &delivery, turn);
                if copies.is_empty() && self.rng.percent(70) {
                    self.put(BROKEN_MS, Event::Receipt(post.clone(), Delivery::Failed));
                }
                self.put_all(&copies, &Event::Receipt(post, delivery));
            }
            Out::Start(from, start) => {
                self.put(ANSWER_MS, Event::Started(from, start.clone(), StartEnd::Failed));
                self.put_all(&copies, &Event::Start(from, start));
            }
            Out::Started(to, start, end) => self.put_all(&copies, &Event::Started(to, start, end)),
            Out::Meet(from, meeting) => {
                self.put(ANSWER_MS, Event::Met(from, meeting.clone(), None));
                self.put_all(&copies, &Event::Meet(from, meeting));
            }
            Out::Met(to, meeting, receipts) => self.put_all(&copies, &Event::Met(to, meeting, receipts)),
        }
    }

    fn put_all(&mut self, copies: &[u64], event: &Event) {
        for delay_ms in copies {
            self.put(*delay_ms, event.clone());
        }
    }

    fn on_fault<A: At>(&mut self, at: A, kind: FaultKind) {
        self.faults += 1;
        self.tell(|| format!("{:?}: {kind:?}", at.any()));
        let live = at.site(self).host.live.as_ref().map(|live| live.id);
        match kind {
            FaultKind::Crash => {
                self.note("an instance dies");
                if let Some(id) = live {
                    self.crash(at, id);
                }
            }
            FaultKind::CrashBefore => at.site_mut(self).trap = Some(Trap::Before),
            FaultKind::CrashAfter => at.site_mut(self).trap = Some(Trap::After),
            FaultKind::Supersede => {
                // Whoever was there before is dead by now.
                if let Some(stale) = at.site(self).host.stale.as_ref().map(|stale| stale.id) {
                    self.crash(at, stale);
                }
                at.site_mut(self).host.supersede();
                self.note("another instance gets the name");
            }
            FaultKind::DoubledAlarm => {
                self.note("an alarm is called once more");
                self.fire(at);
            }
            FaultKind::LostAlarm => self.lose_alarm(at),
            FaultKind::StorageRefuses => {
                self.note("the storage refuses");
                let until_ms = self.now_ms + self.rng.between(100, 8_000);
                at.site_mut(self).refuses_until_ms = until_ms;
            }
            FaultKind::StorageErrs => at.site_mut(self).errs_next = true,
            FaultKind::ClockForward => {
                self.note("a clock is put forward");
                let ms = self.rng.between(1, 90_000);
                at.site_mut(self).offset_ms += ms;
            }
            FaultKind::ClockBack => {
                self.note("a clock is put back");
                let ms = self.rng.between(1, 30_000);
                let site = at.site_mut(self);
                site.offset_ms = site.offset_ms.saturating_sub(ms);
            }
        }
    }

    fn lose_alarm<A: At>(&mut self, at: A) {
        let host = &mut at.site_mut(self).host;
        if let Some(alarm) = host.alarm.take() {
            (host.lost, host.alarm_lost) = (Some(alarm), true);
            self.note("an alarm is lost");
            let touched_ms = self.rng.between(100, 60_000);
            self.put(touched_ms, Event::Touch(at.any()));
        }
    }
}
