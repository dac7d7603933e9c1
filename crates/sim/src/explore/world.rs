//! What happens in a small world when an event does.

use std::rc::Rc;

use stepwell_core::{object::Delivery, run::CallEnd};
use stepwell_protocol::{Place, Timestamp};

use super::{
    bounds::{Bounds, Cost},
    events::{Event, QUIET_MS, What, When},
    post::receiver,
    state::{Message, Setting, Site, Stands, Storage, Task, World},
};
use crate::{
    check::{AtEnd, Checker},
    outside::Received,
};

impl World {
    /// A world with so many empty cells, in which clients want this.
    pub(super) fn new(setting: Setting, cells: u32, tasks: Vec<Task>, left: Bounds, traced: bool) -> Self {
        let place = |cell| Place { pool: "default".into(), generation: 1, cell };
        Self {
            setting: Rc::new(setting),
            now_ms: 0,
            sites: (0..cells).map(|cell| Site::new(place(cell))).collect(),
            programs: std::collections::BTreeMap::new(),
            called: Vec::new(),
            wire: Vec::new(),
            tasks,
            check: Rc::new(Checker::new(cells as usize)),
            left,
            storage: Storage::Works,
            struck: false,
            broken: None,
            notes: traced.then(Vec::new),
        }
    }

    /// Lets an event happen. Says whether anything came of it.
    pub(super) fn happen(&mut self, event: Event) -> Result<bool, (&'static str, String)> {
        self.left = self.left.without(event.cost).expect("only what is left is offered");
        (self.storage, self.struck) = (event.storage, false);
        if event.storage != Storage::Works {
            self.note(|| format!("FAULT the storage: {:?}", event.storage));
        } else if event.cost != Cost::CALM {
            self.note(|| format!("FAULT {:?}", event.what));
        }
        self.do_it(event.what);
        let is_idle_fault = event.storage != Storage::Works && !self.struck;
        self.storage = Storage::Works;
        match self.broken.take() {
            Some(broken) => Err(broken),
            None => Ok(!is_idle_fault),
        }
    }

    fn do_it(&mut self, what: What) {
        match what {
            What::Send(task) => self.client_sends(task),
            What::Deliver(index) => {
                let message = self.wire.remove(index);
                self.arrive(message);
            }
            What::Copy(index) => self.arrive(self.wire[index].clone()),
            What::ToOld(index) => self.ask_old(index),
            What::Lose(index) => {
                let message = self.wire.remove(index);
                self.lose(&message);
            }
            What::Hang(index) => {
                // A message between cells is gone without a word.
                if let Message::Begin(name) | Message::ToCell(name, ..) = self.wire.remove(index)
                    && let Some(program) = self.programs.get_mut(&name)
                {
                    Rc::make_mut(program).hung = true;
                }
            }
            What::Flush(cell, id) => self.flush(cell, id),
            What::Crash { cell, id, when, survive } => {
                if when == When::After {
                    self.make_durable(cell, id);
                }
                self.crash(cell, id, survive);
            }
            What::Supersede(cell) => self.supersede(cell),
            What::Alarm(cell) => {
                self.sites[cell].alarm = None;
                self.fire(cell);
            }
            What::AlarmEarly(cell) => {
                if let Some(at) = self.sites[cell].alarm.take() {
                    self.now_ms = self.now_ms.max(Self::world_ms(at).saturating_sub(1));
                }
                self.fire(cell);
            }
            What::AlarmTwice(cell) => self.fire(cell),
            What::AlarmLost(cell) => {
                let site = &mut self.sites[cell];
                (site.lost, site.alarm_lost) = (site.alarm.take(), true);
            }
            What::Tick(cell) => {
                let at = self.sites[cell].alarm.map_or(0, Self::world_ms);
                self.now_ms = self.now_ms.max(at);
            }
            What::Late(ms) => self.now_ms += ms,
            What::Touch(cell) => {
                self.now_ms += QUIET_MS;
                self.note(|| format!("somebody asks cell {cell} something"));
                let id = self.load(cell);
                let _ = self.repair(cell, id);
                if self.is_idle() {
                    self.check_alarm(cell, id);
                }
            }
        }
    }

    /// A message arrives.
    fn arrive(&mut self, message: Message) {
        match message {
            Message::Request(task) => {
                let id = self.load(self.tasks[task].cell);
                self.on_request(task, id);
            }
            Message::Response(task, response) => self.on_response(task, &response),
            Message::Begin(name) => self.begin(name),
            Message::ToCell(name, call, said) => {
                self.on_message(name, call, &said);
                self.forget_silent(name);
            }
            Message::ToProgram(name, call, received) => self.hear(name, call, received),
            Message::CallEnded { cell, id, number, epoch, end } => {
                self.call_ended(cell, id, number, epoch, end);
            }
            Message::Letter { cell, id, sending } => {
                let to = self.load(receiver(&sending));
                self.on_letter((cell, id), &sending, to);
            }
            Message::Receipt { cell, id, sending, delivery } => {
                self.on_receipt(cell, id, &sending, delivery);
            }
        }
    }

    /// A message arrives at the instance that has lost the name.
    fn ask_old(&mut self, index: usize) {
        let message = self.wire.remove(index);
        self.note(|| "it reaches the instance that has lost the name".into());
        let stale_of = |cell: usize| self.sites[cell].stale.as_ref().map(|stale| stale.id);
        match message {
            Message::Request(task) => {
                if let Some(stale) = stale_of(self.tasks[task].cell) {
                    self.on_request(task, stale);
                }
            }
            Message::Letter { cell, id, sending } => {
                if let Some(stale) = stale_of(receiver(&sending)) {
                    self.on_letter((cell, id), &sending, stale);
                }
            }
            Message::Response(..)
            | Message::Begin(_)
            | Message::ToCell(..)
            | Message::ToProgram(..)
            | Message::CallEnded { .. }
            | Message::Receipt { .. } => {}
        }
    }

    /// A message does not arrive, and the one who waits hears that much.
    fn lose(&mut self, message: &Message) {
        match message {
            // A client asks again, and whoever holds a call sees it end.
            Message::Request(_) | Message::Response(..) | Message::CallEnded { .. } => {}
            Message::Begin(name) => self.end_program(*name, CallEnd::Lost("it was not reached".into())),
            Message::ToCell(name, call, _) | Message::ToProgram(name, call, _) => {
                self.hear(*name, *call, Received::Lost);
                self.forget_silent(*name);
            }
            Message::Letter { cell, id, sending } | Message::Receipt { cell, id, sending, .. } => {
                let (sending, delivery) = (sending.clone(), Delivery::Failed);
                self.wire.push(Message::Receipt { cell: *cell, id: *id, sending, delivery });
            }
        }
    }

    /// Whether all that clients want is done, and nothing is under way; whatever was promised must hold then.
    pub(super) fn is_at_rest(&self) -> Result<bool, (&'static str, String)> {
        let is_done = self.tasks.iter().all(|task| task.stands == Stands::Answered);
        let has_ended = |row: &crate::tables::Row| matches!(row.status, "completed" | "failed" | "cancelled");
        let have_ended = self.sites.iter().flat_map(|site| site.disk.runs.values()).all(has_ended);
        let is_sent = self.sites.iter().all(|site| site.disk.letters.values().all(|(_, is_dead)| *is_dead));
        if !is_done || !have_ended || !is_sent || !self.is_idle() || !self.programs.is_empty() {
            return Ok(false);
        }
        self.check.mail_at_end(&self.disks())?;
        for (cell, site) in self.sites.iter().enumerate() {
            let clock: Timestamp = self.clock();
            let at = AtEnd { cell, place: &site.place, disk: &site.disk, clock };
            self.check.at_end(&at, std::slice::from_ref(&self.setting.app), 0)?;
        }
        Ok(true)
    }
}
