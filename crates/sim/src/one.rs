//! Worlds of one station: the production machine on the simulator's host, and whoever is around it.
//!
//! Instances die before and after their writes are durable, or lose their name; alarms come twice, late or never; the
//! storage refuses; clocks jump. After [`BREAKS_MS`] all is well.
//!
//! Owns: time, the queue of what happens, what becomes of the station's instances, and its faults. Does not own: the host
//! itself ([`crate::host`]), what a machine orders, and what must hold. That is each world's.

use std::{collections::BTreeMap, fmt::Debug, rc::Rc};

use stepwell_core::object::{Fault, Hosted as _, Machine as _};
use stepwell_protocol::Timestamp;

use crate::{
    Violation,
    check::Checked,
    host::{Cause, Host, OrderOf, Refused, Simulated, Turn},
    rng::Rng,
    sabotage::Sabotage,
};

/// When worlds begin, and a day more, for clocks that are set back.
pub const BEGINNING_MS: u64 = 1_700_000_000_000 + 86_400_000;

/// How long everything breaks.
pub const BREAKS_MS: u64 = 300_000;

/// How often the deployment's cron trigger fires.
const SWEEP_MS: u64 = 900_000;

/// Something that happens: to the station, or in the world around it.
#[derive(Clone, Debug)]
pub enum Event<E> {
    /// What an instance has written reaches the disk.
    Flush(u64),
    /// The platform calls an alarm.
    Alarm(Timestamp),
    /// Something breaks.
    Fault(FaultKind),
    /// Somebody asks for anything at all.
    Touch,
    /// From now on all is well.
    Heal,
    /// The deployment's cron trigger fires.
    Sweep,
    /// Something of the world's own.
    Own(E),
}

/// What breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The instance dies, with what it has not flushed.
    Crash,
    /// The instance dies as soon as what it has written is durable.
    CrashAfterFlush,
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
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Crash,
        Self::CrashAfterFlush,
        Self::Supersede,
        Self::DoubledAlarm,
        Self::LostAlarm,
        Self::StorageRefuses,
        Self::StorageErrs,
        Self::ClockForward,
        Self::ClockBack,
    ];
}

/// How a world has ended.
#[derive(Debug)]
pub struct Outcome {
    /// How many turns of the machine there were.
    pub transitions: u64,
    /// How many faults.
    pub faults: u64,
    /// How many runs there were.
    pub runs: usize,
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// What happened, if that was asked for.
    pub transcript: Vec<String>,
}

/// The station, and the time.
pub struct Common<K: Simulated, E, M: Clone> {
    /// Chance.
    pub rng: Rng,
    /// The time, since the beginning.
    pub now_ms: u64,
    offset_ms: u64,
    /// How often the clock has jumped.
    pub jumps: u32,
    /// The latest that the station's clock has ever shown.
    pub latest: Timestamp,
    queue: BTreeMap<(u64, u64), Event<E>>,
    events: u64,
    /// The station.
    pub station: Host<K, M>,
    refuses_until_ms: u64,
    errs_next: bool,
    transitions: u64,
    faults: u64,
    violation: Option<Violation>,
    /// What happened; nothing, if nobody wants to know.
    transcript: Option<Vec<String>>,
}

impl<K: Simulated, E, M: Clone> Common<K, E, M> {
    /// At the beginning.
    pub fn new(seed: u64, is_traced: bool) -> Self {
        Self {
            rng: Rng::new(seed),
            now_ms: 0,
            offset_ms: 0,
            jumps: 0,
            latest: Timestamp::default(),
            queue: BTreeMap::new(),
            events: 0,
            station: Host::default(),
            refuses_until_ms: 0,
            errs_next: false,
            transitions: 0,
            faults: 0,
            violation: None,
            transcript: is_traced.then(Vec::new),
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("{} {}", self.now_ms, what()));
        }
    }

    /// Lets something happen at a time.
    pub fn put_at(&mut self, at_ms: u64, event: E) {
        self.put_event(at_ms, Event::Own(event));
    }

    /// Lets something happen after a while.
    pub fn put(&mut self, delay_ms: u64, event: E) {
        self.put_at(self.now_ms + delay_ms, event);
    }

    fn put_event(&mut self, at_ms: u64, event: Event<E>) {
        self.events += 1;
        self.queue.insert((at_ms, self.events), event);
    }

    /// Lets so many things break, and then all be well.
    pub fn break_things(&mut self, fewest: u64, most: u64) {
        for _ in 0..self.rng.between(fewest, most) {
            let at_ms = self.rng.between(1_000, BREAKS_MS);
            let kind = *self.rng.pick(&FaultKind::ALL);
            self.put_event(at_ms, Event::Fault(kind));
        }
        self.put_event(BREAKS_MS, Event::Heal);
    }

    /// Whether anything breaks now.
    pub fn breaks(&self) -> bool {
        self.now_ms < BREAKS_MS
    }

    /// Notes the first rule that is broken.
    pub fn must(&mut self, checked: Checked) {
        if let Err((rule, detail)) = checked
            && self.violation.is_none()
        {
            self.violation = Some(Violation { rule, detail });
        }
    }

    /// What the station's clock shows.
    pub fn clock(&mut self) -> Timestamp {
        let clock = Timestamp::from_millis(BEGINNING_MS + self.now_ms + self.offset_ms);
        self.latest = self.latest.max(clock);
        clock
    }

    fn world_time(&self, at: Timestamp) -> u64 {
        at.as_millis().saturating_sub(BEGINNING_MS + self.offset_ms)
    }

    /// How long a message takes; nothing, if it is lost.
    pub fn travels(&mut self) -> Option<u64> {
        if !self.breaks() {
            return Some(self.rng.between(1, 10));
        }
        match self.rng.below(100) {
            0..=6 => None,
            7..=14 => Some(self.rng.between(1_000, 40_000)),
            _ => Some(self.rng.between(1, 60)),
        }
    }

    fn set_alarm(&mut self, at: Timestamp) {
        if self.station.set_alarm(at) {
            let late_ms = if self.breaks() && self.rng.percent(5) { self.rng.between(1, 20_000) } else { 0 };
            let at_ms = self.world_time(at).max(self.now_ms) + late_ms;
            self.put_event(at_ms, Event::Alarm(at));
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

    /// An instance dies, and everything that was only in memory.
    pub fn crash(&mut self, id: u64) {
        let Some(dead) = self.station.kill(id) else { return };
        if dead.was_firing {
            let again = self.clock().plus_millis(self.rng.between(1, 2_000));
            if self.station.alarm.is_none_or(|armed| again < armed) {
                self.set_alarm(again);
            }
        }
    }
}

/// A machine of a world's kind.
type MachineOf<W> = <<W as OneStation>::Kind as Simulated>::Machine;

/// The rows of a world's kind.
type RowsOf<W> = <<W as OneStation>::Kind as Simulated>::Rows;

/// A world with one station in it.
pub trait OneStation: Sized {
    /// The station's kind.
    type Kind: Simulated;
    /// What happens around it.
    type Event: Debug;
    /// What leaves it.
    type Out: Clone + Debug;

    /// When the world ends.
    const END_MS: u64;

    /// What all these worlds have.
    fn common(&mut self) -> &mut Common<Self::Kind, Self::Event, Self::Out>;

    /// A machine that has looked at nothing yet, and its rows.
    fn make(&mut self, disk: Rc<<Self::Kind as Simulated>::Disk>) -> (MachineOf<Self>, RowsOf<Self>);

    /// Does what was ordered.
    fn perform(&mut self, id: u64, clock: Timestamp, orders: Vec<OrderOf<Self::Kind>>);

    /// Something leaves the station: all that was written before is durable.
    fn release(&mut self, out: Self::Out);

    /// Something of the world's own happens.
    fn happens(&mut self, event: Self::Event);

    /// What must hold whenever something has become durable, and the instance knows its alarm.
    fn holds(&mut self, latest: Timestamp) -> Checked;

    /// What must hold at the end.
    fn at_rest(&mut self) -> Checked;

    /// Planted: a fresh instance trusts that its alarm is set.
    fn trusts_alarms(&self) -> bool {
        false
    }

    /// Planted: what goes wrong in a turn, and how much its clock is ahead.
    fn sabotage(&self, _: Cause) -> (Option<Sabotage>, u64) {
        (None, 0)
    }

    /// Runs it to its end; `runs` says how many there were.
    fn live(mut self, runs: impl FnOnce(&mut Self) -> usize) -> Outcome {
        while self.common().violation.is_none() {
            let Some(((at_ms, _), event)) = self.common().queue.pop_first() else { break };
            if at_ms > Self::END_MS {
                break;
            }
            let common = self.common();
            common.now_ms = common.now_ms.max(at_ms);
            common.note(|| format!("{event:?}"));
            self.handle(event);
        }
        if self.common().violation.is_none() {
            let checked = self.at_rest();
            self.common().must(checked);
        }
        let runs = runs(&mut self);
        let common = self.common();
        Outcome {
            transitions: common.transitions,
            faults: common.faults,
            runs,
            violation: common.violation.take(),
            transcript: common.transcript.take().unwrap_or_default(),
        }
    }

    /// Something happens.
    fn handle(&mut self, event: Event<Self::Event>) {
        match event {
            Event::Own(event) => self.happens(event),
            Event::Flush(id) => self.flush(id, false),
            Event::Alarm(at) => {
                let common = self.common();
                if common.station.alarm != Some(at) {
                    return;
                }
                let due_ms = common.world_time(at);
                if due_ms > common.now_ms {
                    // Set back, the clock has to get there again.
                    return common.put_event(due_ms, Event::Alarm(at));
                }
                common.station.alarm = None;
                self.fire();
            }
            Event::Fault(kind) => self.fault(kind),
            Event::Touch => {
                self.load_for_request();
            }
            Event::Heal => {
                let common = self.common();
                common.refuses_until_ms = 0;
                common.errs_next = false;
                if let Some(stale) = common.station.stale.as_ref().map(|stale| stale.id) {
                    common.crash(stale);
                }
                let at_ms = common.now_ms + 10;
                common.put_event(at_ms, Event::Sweep);
            }
            Event::Sweep => {
                // It visits all stations again and again: they may have lost their alarms.
                let common = self.common();
                let at_ms = common.now_ms + SWEEP_MS;
                common.put_event(at_ms, Event::Sweep);
                self.load_for_request();
            }
        }
    }

    /// The instance that has the name.
    fn load(&mut self) -> u64 {
        let host = &self.common().station;
        if let Some(live) = &host.live {
            return live.id;
        }
        let disk = host.disk.clone();
        let made = self.make(disk);
        self.common().station.load(|_, _| made).id
    }

    /// The same for a request: it looks after the alarm first. Now and then it is one that has lost the name.
    fn load_for_request(&mut self) -> Option<u64> {
        let common = self.common();
        let stale = common.station.stale.as_ref().map(|stale| stale.id);
        let id = match stale {
            Some(stale) if common.rng.percent(30) => stale,
            Some(_) | None => self.load(),
        };
        if !self.trusts_alarms() {
            let believed = self.common().station.believed_alarm();
            let repaired = self.turn(id, Cause::Request, |machine, rows, now| {
                if machine.wants_repair() {
                    machine.found_alarm(believed);
                }
                machine.repair(rows, now)
            });
            repaired?.ok()?;
        }
        self.common().station.instance(id).map(|instance| instance.id)
    }

    /// Lets the machine do something and performs what it orders.
    fn turn<T>(
        &mut self,
        id: u64,
        cause: Cause,
        act: impl FnOnce(&mut MachineOf<Self>, &RowsOf<Self>, Timestamp) -> Result<T, Fault<Refused>>,
    ) -> Option<Result<T, Fault<Refused>>> {
        let (sabotage, ahead_ms) = self.sabotage(cause);
        let common = self.common();
        common.transitions += 1;
        let clock = common.clock().plus_millis(ahead_ms);
        let refuses = common.now_ms < common.refuses_until_ms;
        let errs = std::mem::take(&mut common.errs_next);
        let turn = Turn { cause, clock, refuses, unarmed: false, errs, sabotage };
        let turned = common.station.turn(id, turn, act)?;
        common.errs_next |= turned.still_errs;
        if turned.is_broken {
            // The write stands, an error came back, and the platform resets the instance.
            if !common.station.is_stale(id) {
                common.make_durable(id);
                common.station.firing |= cause == Cause::Alarm;
                let at_ms = common.now_ms + common.rng.between(50, 5_000);
                common.put_event(at_ms, Event::Touch);
            }
            common.crash(id);
            return Some(turned.result);
        }
        if turned.batch.is_some() {
            let delay_ms = if common.rng.percent(70) { 0 } else { common.rng.between(1, 25) };
            let at_ms = common.now_ms + delay_ms;
            common.put_event(at_ms, Event::Flush(id));
        }
        self.perform(id, clock, turned.orders);
        Some(turned.result)
    }

    /// Sends once everything that was written so far is durable; or, planted, at once.
    fn send(&mut self, id: u64, out: Self::Out, sabotage: Option<Sabotage>) {
        if let Some(out) = self.common().station.send(id, out, sabotage) {
            self.leaves(out);
        }
    }

    /// Something leaves the station, and that is noted.
    fn leaves(&mut self, out: Self::Out) {
        self.common().note(|| format!("leaves {out:?}"));
        self.release(out);
    }

    /// What an instance has written reaches the disk, unless it was superseded.
    fn flush(&mut self, id: u64, dies: bool) {
        let common = self.common();
        if common.station.instance(id).is_none_or(|instance| instance.pending.is_empty()) {
            return;
        }
        if common.station.is_stale(id) {
            return common.crash(id);
        }
        common.make_durable(id);
        if dies {
            return common.crash(id);
        }
        for out in common.station.released(id) {
            self.leaves(out);
        }
        let common = self.common();
        if common.station.knows_its_alarm() {
            let latest = common.station.instance(id).map(|instance| instance.latest).unwrap_or_default();
            let checked = self.holds(latest);
            self.common().must(checked);
        }
    }

    /// The platform calls the alarm.
    fn fire(&mut self) {
        self.common().station.firing = true;
        let id = self.load();
        let fired = self.turn(id, Cause::Alarm, |machine, rows, now| {
            // What could not be read, the machine comes back to.
            let _ = machine.alarm(rows, now);
            Ok(())
        });
        let common = self.common();
        let clock = common.clock();
        if let Some(again) = common.station.fired(id, matches!(fired, Some(Ok(()))), clock) {
            common.set_alarm(again);
        }
    }

    /// Something breaks.
    fn fault(&mut self, kind: FaultKind) {
        let common = self.common();
        common.faults += 1;
        common.jumps += u32::from(matches!(kind, FaultKind::ClockForward | FaultKind::ClockBack));
        let live = common.station.live.as_ref().map(|live| live.id);
        match kind {
            FaultKind::Crash => {
                if let Some(id) = live {
                    common.crash(id);
                }
            }
            FaultKind::CrashAfterFlush => {
                if let Some(id) = live {
                    self.flush(id, true);
                }
            }
            FaultKind::Supersede => drop(common.station.supersede()),
            FaultKind::DoubledAlarm => self.fire(),
            FaultKind::LostAlarm => {
                if let Some(at) = common.station.alarm.take() {
                    common.station.lost = Some(at);
                    common.station.alarm_lost = true;
                    let at_ms = common.now_ms + common.rng.between(100, 60_000);
                    common.put_event(at_ms, Event::Touch);
                }
            }
            FaultKind::StorageRefuses => {
                common.refuses_until_ms = common.now_ms + common.rng.between(100, 8_000);
            }
            FaultKind::StorageErrs => common.errs_next = true,
            FaultKind::ClockForward => common.offset_ms += common.rng.between(1, 600_000),
            FaultKind::ClockBack => {
                common.offset_ms = common.offset_ms.saturating_sub(common.rng.between(1, 60_000));
            }
        }
    }
}
