//! What can happen next in a small world, and what each of that costs.

use super::{
    bounds::{Cost, Kind},
    post::receiver,
    state::{Message, Said, Stands, Storage, World},
};

/// How long nothing happens when nothing will, until somebody asks the cell something.
pub(super) const QUIET_MS: u64 = 10_000;

/// By how much everything is late, when it is: a moment, or longer than a dead cell stays unnoticed.
const LATE_MS: [u64; 2] = [1, 6_000];

/// How early an alarm may come although messages are under way.
const EARLY_MS: u64 = 25;

/// Something that can happen, and the faults that it stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    pub(super) what: What,
    pub(super) cost: Cost,
    pub(super) storage: Storage,
}

/// Something that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A client asks.
    Send(usize),
    /// A message arrives.
    Deliver(usize),
    /// A message arrives, and a copy of it stays under way.
    Copy(usize),
    /// A request arrives at the instance that has lost the name.
    ToOld(usize),
    /// A message does not arrive, and whoever waits for an answer hears that there is none.
    Lose(usize),
    /// A program is not heard of any more.
    Hang(usize),
    /// What an instance has written becomes durable.
    Flush(usize, u64),
    /// An instance dies.
    Crash { cell: usize, id: u64, when: When, survive: bool },
    /// Another instance gets the name.
    Supersede(usize),
    /// The alarm is called.
    Alarm(usize),
    /// The alarm is called a moment too early.
    AlarmEarly(usize),
    /// The alarm is called although it was not set, or was called before.
    AlarmTwice(usize),
    /// The platform loses the alarm.
    AlarmLost(usize),
    /// Nothing happens until the alarm.
    Tick(usize),
    /// Time passes, and whatever is under way stays there.
    Late(u64),
    /// Somebody asks the cell something, after nothing has happened for long.
    Touch(usize),
}

/// When an instance dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Before its writes are durable, if there are any: nobody will know of them.
    Before,
    /// After they are, and before anybody hears of it.
    After,
}

impl World {
    /// What can happen: first what does without a fault, and of that first what is under way.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut list = List { world: self, events: Vec::new() };
        // When clients and programs hear something changes nothing for a cell, only what they say then; and they may say
        // that at any time. So it is settled first, and no other order of it is looked at.
        let first = self.wire.iter().enumerate().find(|(_, message)| leaves_cells_alone(message));
        if let Some((index, message)) = first {
            list.add(What::Deliver(index), Cost::CALM);
            list.faults_of(index, message);
            return list.events;
        }
        list.calm();
        list.faults();
        list.events
    }
}

/// Whether a message goes to a client or to a program.
fn leaves_cells_alone(message: &Message) -> bool {
    match message {
        Message::Response(..) | Message::Begin(_) | Message::ToProgram(..) => true,
        Message::Request(_)
        | Message::ToCell(..)
        | Message::CallEnded { .. }
        | Message::Letter { .. }
        | Message::Receipt { .. } => false,
    }
}

struct List<'w> {
    world: &'w World,
    events: Vec<Event>,
}

impl List<'_> {
    fn calm(&mut self) {
        for (cell, site) in self.world.sites.iter().enumerate() {
            for instance in [&site.live, &site.stale].into_iter().flatten() {
                if !instance.pending.is_empty() {
                    self.add(What::Flush(cell, instance.id), Cost::CALM);
                }
            }
            // Sooner or later it hears that it was superseded.
            if let Some(stale) = site.stale.as_ref().filter(|stale| stale.pending.is_empty()) {
                self.crash(cell, stale.id, When::Before, Cost::CALM);
            }
        }
        for (index, message) in self.world.wire.iter().enumerate() {
            let cost = self.turn_cost(message);
            self.add(What::Deliver(index), cost);
        }
        let is_idle = self.world.is_idle();
        for (cell, site) in self.world.sites.iter().enumerate() {
            let due = site.alarm.filter(|_| !site.firing && site.awaited.is_empty());
            if due.is_some_and(|at| at <= self.world.clock()) {
                self.add(What::Alarm(cell), self.overlap(cell));
            }
        }
        for index in (0..self.world.tasks.len()).filter(|index| self.world.may_send(*index)) {
            self.add(What::Send(index), Cost::CALM);
        }
        if !is_idle {
            return;
        }
        let next = self.world.sites.iter().enumerate().filter_map(|(cell, site)| Some((site.alarm?, cell)));
        match next.min() {
            Some((at, cell)) if at > self.world.clock() => self.add(What::Tick(cell), Cost::CALM),
            Some(_) => {}
            None => (0..self.world.sites.len()).for_each(|cell| self.add(What::Touch(cell), Cost::CALM)),
        }
    }

    fn faults(&mut self) {
        for (index, message) in self.world.wire.iter().enumerate() {
            self.faults_of(index, message);
        }
        for (cell, site) in self.world.sites.iter().enumerate() {
            if let Some(live) = &site.live {
                self.crash(cell, live.id, When::Before, Cost::of(Kind::Crash));
                if !live.pending.is_empty() {
                    self.crash(cell, live.id, When::After, Cost::of(Kind::Crash));
                }
                if site.stale.is_none() && !site.firing {
                    self.add(What::Supersede(cell), Cost::of(Kind::Second));
                }
            }
            let overlap = self.overlap(cell);
            if let Some(at) = site.alarm.filter(|_| !site.firing) {
                let clock = self.world.clock();
                if at <= clock && site.awaited.is_empty() {
                    self.with_storage(What::Alarm(cell), overlap);
                }
                if at > clock && (self.world.is_idle() || at <= clock.plus_millis(EARLY_MS)) {
                    self.add(What::AlarmEarly(cell), overlap.and(Kind::Alarm));
                }
                self.add(What::AlarmLost(cell), Cost::of(Kind::Alarm));
            }
            if !site.firing && !site.disk.runs.is_empty() {
                self.add(What::AlarmTwice(cell), overlap.and(Kind::Alarm));
            }
        }
        let is_due =
            self.world.sites.iter().any(|site| site.alarm.is_some_and(|at| at <= self.world.clock()));
        if !self.world.is_idle() || is_due {
            for ms in LATE_MS {
                self.add(What::Late(ms), Cost::of(Kind::Late));
            }
        }
    }

    /// What can become of a message that is under way.
    fn faults_of(&mut self, index: usize, message: &Message) {
        let cost = self.turn_cost(message);
        match message {
            Message::Request(task) => {
                self.with_storage(What::Deliver(index), cost);
                self.add(What::Copy(index), cost.and(Kind::Twice));
                // Its client would send the same again.
                if self.world.tasks[*task].stands != Stands::Answered {
                    self.add(What::Lose(index), Cost::of(Kind::Lost));
                }
                let site = &self.world.sites[self.world.tasks[*task].cell];
                if site.stale.is_some() {
                    // The second instance was the fault.
                    self.add(What::ToOld(index), Cost::CALM);
                }
            }
            Message::Response(task, _) => {
                if self.world.tasks[*task].stands != Stands::Answered {
                    self.add(What::Lose(index), Cost::of(Kind::Lost));
                }
            }
            Message::Begin(_) => {
                self.add(What::Lose(index), Cost::of(Kind::Lost));
                self.add(What::Hang(index), Cost::of(Kind::Lost));
            }
            Message::ToCell(name, call, said) => {
                if matches!(said, Said::Commit(_)) {
                    self.with_storage(What::Deliver(index), cost);
                }
                let is_present = self.world.programs.get(name).is_some_and(|program| program.call == *call);
                if is_present {
                    self.add(What::Copy(index), cost.and(Kind::Twice));
                    self.add(What::Lose(index), Cost::of(Kind::Lost));
                    self.add(What::Hang(index), Cost::of(Kind::Lost));
                }
            }
            Message::ToProgram(..) => self.add(What::Lose(index), Cost::of(Kind::Lost)),
            Message::CallEnded { .. } => self.with_storage(What::Deliver(index), cost),
            Message::Letter { sending, .. } => {
                self.with_storage(What::Deliver(index), cost);
                self.add(What::Copy(index), cost.and(Kind::Twice));
                self.add(What::Lose(index), Cost::of(Kind::Lost));
                self.add(What::Hang(index), Cost::of(Kind::Lost));
                if self.world.sites[receiver(sending)].stale.is_some() {
                    self.add(What::ToOld(index), Cost::CALM);
                }
            }
            Message::Receipt { .. } => {
                self.with_storage(What::Deliver(index), cost);
                self.add(What::Copy(index), cost.and(Kind::Twice));
                self.add(What::Lose(index), Cost::of(Kind::Lost));
                self.add(What::Hang(index), Cost::of(Kind::Lost));
            }
        }
    }

    /// The death of an instance; its programs may outlive it.
    fn crash(&mut self, cell: usize, id: u64, when: When, cost: Cost) {
        self.add(What::Crash { cell, id, when, survive: false }, cost);
        let has_programs = self.world.programs.values().any(|program| {
            program.cell == cell && program.instance == id && !program.hung && !program.over && program.begun
        });
        if has_programs {
            self.add(What::Crash { cell, id, when, survive: true }, cost.and(Kind::Late));
        }
    }

    fn with_storage(&mut self, what: What, cost: Cost) {
        for storage in [Storage::Refuses, Storage::Unarmed, Storage::Errs] {
            self.push(Event { what, cost: cost.and(Kind::Storage), storage });
        }
    }

    /// Whether a turn of the cell comes before what it has written is durable.
    fn overlap(&self, cell: usize) -> Cost {
        let live = self.world.sites[cell].live.as_ref();
        overlap_of(live.is_some_and(|live| !live.pending.is_empty()))
    }

    /// What it costs that a message arrives.
    fn turn_cost(&self, message: &Message) -> Cost {
        match message {
            Message::Request(task) => self.overlap(self.world.tasks[*task].cell),
            Message::ToCell(name, ..) => {
                let Some(program) = self.world.programs.get(name) else { return Cost::CALM };
                let site = &self.world.sites[program.cell];
                let reached = self.world.reached_by(*name).flatten().and_then(|id| site.instance(id));
                overlap_of(reached.is_some_and(|instance| !instance.pending.is_empty()))
            }
            Message::Letter { sending, .. } => self.overlap(receiver(sending)),
            Message::CallEnded { cell, id, .. } | Message::Receipt { cell, id, .. } => {
                let instance = self.world.sites[*cell].instance(*id);
                overlap_of(instance.is_some_and(|instance| !instance.pending.is_empty()))
            }
            Message::Response(..) | Message::Begin(_) | Message::ToProgram(..) => Cost::CALM,
        }
    }

    fn add(&mut self, what: What, cost: Cost) {
        self.push(Event { what, cost, storage: Storage::Works });
    }

    fn push(&mut self, event: Event) {
        if self.world.left.without(event.cost).is_some() {
            self.events.push(event);
        }
    }
}

fn overlap_of(is_pending: bool) -> Cost {
    if is_pending { Cost::of(Kind::Overlap) } else { Cost::CALM }
}
