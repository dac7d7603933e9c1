//! All that there is of a small world at one moment: cells, what is under way between them and everybody else, and what
//! is known beside. Whatever is large is shared by states until one of them changes it.

use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    rc::Rc,
};

use stepwell::App;
use stepwell_core::{
    object::{Delivery, Sending},
    run::{CallEnd, Run},
};
use stepwell_protocol::{Code, Epoch, Payload, Place, RunId, Seq, Timestamp, program::Activation};

use super::{
    bounds::Bounds,
    canon::{Canon, Text, Texts},
};
use crate::{
    check::Checker,
    host::{self, Cells, Host},
    outside::Received,
    sabotage::Sabotage,
    tables::Tables,
};

/// When the world begins.
pub(super) const BEGINNING_MS: u64 = 1_700_000_000_000;

/// What is the same in all states of a model.
pub(super) struct Setting {
    /// The programs of its runs.
    pub app: Rc<App>,
    /// How many events of a journal go into a page.
    pub page_events: usize,
    /// A mechanism that is switched off.
    pub sabotage: Option<Sabotage>,
    /// What is remembered of what states share.
    pub known: Known,
}

/// The texts of what states share.
#[derive(Default)]
pub(super) struct Known {
    tables: Texts<Tables>,
    machines: Texts<Instance>,
    checkers: Texts<Checker>,
    programs: Texts<Program>,
}

/// A small world.
#[derive(Clone)]
pub struct World {
    pub(super) setting: Rc<Setting>,
    pub(super) now_ms: u64,
    pub(super) sites: Vec<Site>,
    pub(super) programs: BTreeMap<u32, Rc<Program>>,
    /// The run and the activation of every program that there was, by its name.
    pub(super) called: Vec<(u64, Epoch)>,
    /// What is under way.
    pub(super) wire: Vec<Message>,
    pub(super) tasks: Vec<Task>,
    pub(super) check: Rc<Checker>,
    /// How much may still break.
    pub(super) left: Bounds,
    /// What the storage does in the present event, and whether it came to that.
    pub(super) storage: Storage,
    pub(super) struck: bool,
    pub(super) broken: Option<(&'static str, String)>,
    pub(super) notes: Option<Vec<String>>,
}

/// A cell's place.
#[derive(Clone)]
pub(super) struct Site {
    pub place: Place,
    pub host: Host<Cells, Message>,
    /// Programs that the alarm waits for: only a planted bug makes it.
    pub awaited: Vec<u32>,
}

impl Deref for Site {
    type Target = Host<Cells, Message>;

    fn deref(&self) -> &Self::Target {
        &self.host
    }
}

impl DerefMut for Site {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.host
    }
}

/// An instance of a cell.
pub(super) type Instance = host::Instance<Cells, Message>;

/// Something that is under way.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// A client's request, to the cell: which task.
    Request(usize),
    /// What it is told.
    Response(usize, Response),
    /// The call of a program.
    Begin(u32),
    /// What a program says in its n-th call to its cell.
    ToCell(u32, u32, Said),
    /// What is answered to that.
    ToProgram(u32, u32, Received),
    /// The end of a program's call, to the instance that has called it.
    CallEnded { cell: usize, id: u64, number: u64, epoch: Epoch, end: CallEnd },
    /// A message of a cell's instance to another cell.
    Letter { cell: usize, id: u64, sending: Rc<Sending> },
    /// What became of it, to that instance.
    Receipt { cell: usize, id: u64, sending: Rc<Sending>, delivery: Delivery },
}

/// What a client is told.
#[derive(Clone, Debug)]
pub(super) enum Response {
    Started(RunId),
    Signalled,
    Problem(Code),
}

/// What a program says.
#[derive(Clone, Debug)]
pub(super) enum Said {
    /// It reports. As text, which is what travels.
    Commit(Rc<str>),
    /// It reads on in its journal.
    Page(Seq),
}

/// One call of a program: what it was called with, and all that it has heard since. What it says next follows from that.
#[derive(Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and they go together in any way"
)]
pub(super) struct Program {
    pub cell: usize,
    /// The instance that has called it.
    pub instance: u64,
    pub number: u64,
    pub epoch: Epoch,
    /// How much of the journal it was called with.
    pub head: Seq,
    pub activation: Rc<Activation>,
    pub begun: bool,
    pub heard: Vec<Rc<Received>>,
    /// Its latest call on its session.
    pub call: u32,
    /// Whether nothing is heard of it any more.
    pub hung: bool,
    /// Whether it reaches whichever instance has the name.
    pub survives: bool,
    /// Whether it has ended. A copy of what it has said may still be under way.
    pub over: bool,
    /// What was answered to its latest commit, and how the run stood after that.
    pub committed: Option<(u32, &'static str, Option<Rc<Run>>)>,
}

/// Something that a client wants.
#[derive(Clone)]
pub(super) struct Task {
    pub cell: usize,
    pub ask: Rc<Ask>,
    /// Which task must have been done before.
    pub after: Option<usize>,
    pub stands: Stands,
    /// The run that it has started.
    pub run: Option<RunId>,
}

/// How far a client has come with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    Unsent,
    Sent,
    Answered,
}

/// What a client asks.
#[derive(Debug)]
pub(super) enum Ask {
    Start { key: Option<String>, nonce: String, workflow: &'static str, input: Payload, seed: u64 },
    Signal { to: usize, name: &'static str, id: Option<String>, nonce: String, payload: u64 },
}

/// What the storage does in one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Storage {
    /// What it should.
    #[default]
    Works,
    /// It takes nothing.
    Refuses,
    /// It takes rows; the alarm cannot be set.
    Unarmed,
    /// It writes, says that it has not, and does nothing any more.
    Errs,
}

impl World {
    pub(super) fn clock(&self) -> Timestamp {
        Timestamp::from_millis(BEGINNING_MS + self.now_ms)
    }

    /// A time as the world's own milliseconds.
    pub(super) fn world_ms(at: Timestamp) -> u64 {
        at.as_millis().saturating_sub(BEGINNING_MS)
    }

    pub(super) fn is(&self, sabotage: Sabotage) -> bool {
        self.setting.sabotage == Some(sabotage)
    }

    pub(super) fn check(&mut self) -> &mut Checker {
        Rc::make_mut(&mut self.check)
    }

    pub(super) fn must(&mut self, checked: crate::check::Checked) {
        if let Err((rule, detail)) = &checked {
            self.note(|| format!("VIOLATION of {rule}: {detail}"));
        }
        super::hold(checked, &mut self.broken);
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(format!("{:>7} {}", self.now_ms, text()));
        }
    }

    /// Whether nothing is under way: whatever happens next takes time, or somebody who begins.
    pub(super) fn is_idle(&self) -> bool {
        let is_idle = |site: &Site| {
            site.stale.is_none() && site.live.as_ref().is_none_or(|live| live.pending.is_empty())
        };
        self.wire.is_empty() && self.sites.iter().all(is_idle)
    }

    /// A hash of all that matters.
    pub(super) fn digest(&self) -> u64 {
        let mut canon = Canon::new(BEGINNING_MS + self.now_ms);
        canon.add(format_args!("{:?}", self.left), &[]);
        for task in &self.tasks {
            canon.add(format_args!("{:?}", task.stands), &[]);
        }
        for site in &self.sites {
            let Host { alarm, lost, alarm_lost, firing, alarm_failures, .. } = &site.host;
            canon.add(format_args!("{alarm:?} {lost:?} {alarm_lost} {firing} {alarm_failures}"), &[]);
            self.add_tables(&mut canon, &site.disk);
            match &site.live {
                Some(live) => self.add_instance(&mut canon, live, live.pending.is_empty()),
                None => canon.add(format_args!("none"), &[]),
            }
            if let Some(stale) = &site.stale {
                self.add_instance(&mut canon, stale, false);
            }
        }
        // What is under way has no order.
        let mut wire: Vec<_> = self.wire.iter().map(|message| self.digest_of(message)).collect();
        wire.sort_unstable();
        canon.add(format_args!("{wire:?}"), &[]);
        let mut programs: Vec<_> =
            self.programs.values().map(|program| self.digest_of_program(program)).collect();
        programs.sort_unstable();
        canon.add(format_args!("{programs:?}"), &[]);
        let known = &self.setting.known;
        canon.add_text(&known.checkers.of(&self.check, |text| {
            text.add(format_args!("{:?}", self.check), &["journal"]);
        }));
        canon.finish()
    }

    /// `sees_disk` says that all it sees is on disk, and nothing else.
    fn add_instance(&self, canon: &mut Canon, instance: &Rc<Instance>, sees_disk: bool) {
        canon.add_text(&self.setting.known.machines.of(instance, |text| {
            text.add(format_args!("{:?}", instance.machine), &[]);
            text.add(format_args!("{} {:?}", instance.id > 1, instance.latest), &[]);
        }));
        if !sees_disk {
            self.add_tables(canon, &instance.store.shared());
        }
        for batch in &instance.pending {
            canon.add(format_args!("{:?} {}", batch.alarm, batch.writes.len()), &[]);
        }
        let mut held: Vec<_> = instance.held.iter().map(|(_, message)| self.digest_of(message)).collect();
        held.sort_unstable();
        let calls: Vec<_> = instance.own.calls.iter().map(|(number, (epoch, _))| (number, epoch)).collect();
        let ending: Vec<_> = instance.still_ending().collect();
        canon.add(format_args!("{held:?} {calls:?} {ending:?}"), &[]);
    }

    fn digest_of(&self, message: &Message) -> u64 {
        let mut canon = Canon::new(BEGINNING_MS + self.now_ms);
        let whose = |name: &u32| self.programs.get(name).map(|program| self.digest_of_program(program));
        match message {
            Message::Request(task) => canon.add(format_args!("request {task}"), &[]),
            Message::Response(task, response) => canon.add(format_args!("{task} {response:?}"), &[]),
            Message::Begin(name) => canon.add(format_args!("begin {:?}", whose(name)), &[]),
            Message::ToCell(name, call, said) => {
                canon.add(format_args!("{:?} {call} {said:?}", whose(name)), &[]);
            }
            Message::ToProgram(name, call, received) => {
                canon.add(format_args!("{:?} {call} {received:?}", whose(name)), TIMELESS);
            }
            Message::CallEnded { cell, id, number, epoch, end } => {
                let role = self.role(*cell, *id);
                canon.add(format_args!("{cell} {role} {number} {epoch:?} {end:?}"), &[]);
            }
            Message::Letter { cell, id, sending } => {
                canon.add(format_args!("{cell} {} {sending:?}", self.role(*cell, *id)), &[]);
            }
            Message::Receipt { cell, id, sending, delivery } => {
                canon.add(format_args!("{cell} {} {sending:?} {delivery:?}", self.role(*cell, *id)), &[]);
            }
        }
        canon.finish()
    }

    fn digest_of_program(&self, program: &Rc<Program>) -> u64 {
        let mut canon = Canon::new(BEGINNING_MS + self.now_ms);
        canon.add(format_args!("{}", self.role(program.cell, program.instance)), &[]);
        canon.add_text(&self.setting.known.programs.of(program, |text| {
            let Program { cell, number, epoch, head, begun, call, hung, survives, over, .. } = &**program;
            let stands =
                format_args!("{cell} {number} {epoch:?} {head:?} {begun} {call} {hung} {survives} {over}");
            text.add(stands, &[]);
            // What it was called with is in the journal up to the head.
            text.add(format_args!("{} {:?}", program.activation.journal.more, program.heard), TIMELESS);
            let committed = program.committed.as_ref().map(|(call, answer, run)| (call, answer, run));
            text.add(format_args!("{committed:?}"), TIMELESS);
        }));
        canon.finish()
    }

    fn add_tables(&self, canon: &mut Canon, tables: &Rc<Tables>) {
        canon.add_text(&self.setting.known.tables.of(tables, |text| write_tables(text, tables)));
    }

    /// What an instance is, whichever it was.
    fn role(&self, cell: usize, id: u64) -> &'static str {
        let is = |instance: &Option<Rc<Instance>>| instance.as_ref().is_some_and(|known| known.id == id);
        if is(&self.sites[cell].live) {
            "live"
        } else if is(&self.sites[cell].stale) {
            "stale"
        } else {
            "gone"
        }
    }
}

/// When something was recorded is of no interest to a program that asks no clock.
const TIMELESS: &[&str] = &["at", "now", "since"];

fn write_tables(text: &mut Text, tables: &Tables) {
    for (number, row) in &tables.runs {
        text.add(format_args!("{number} {} {:?} {:?}", row.suffix, row.status, row.wake_at), &[]);
        text.add(format_args!("{} {:?}", row.state, row.result), &[]);
        for event in tables.journal(*number) {
            text.add(format_args!("{} {} {:?}", event.seq.0, event.event, event.trailer), &["since"]);
        }
    }
    let Tables { keys, given_up, signals, letters, .. } = tables;
    text.add(format_args!("{keys:?} {given_up:?} {signals:?} {letters:?}"), &[]);
}

impl Site {
    pub fn new(place: Place) -> Self {
        Self { place, host: Host::default(), awaited: Vec::new() }
    }
}
