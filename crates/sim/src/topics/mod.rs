//! Worlds of topics: one topic and two cells, the production machines (`stepwell_core::topic`, `stepwell_core::cell`) on the
//! simulator's host, and the callers, operators, deployments and senders of webhooks around them. Runs are programs of the
//! production VM: they wait for events, emit them, are started and cancelled by them.
//!
//! Instances die before and after their writes are durable, or lose their name; alarms come twice, late or never; letters,
//! calls and their answers are lost, doubled and late, and old copies of them come minutes later; cells decline and refuse
//! runs; letters are refused for good; storages refuse, or err after a write; each object's clock jumps by itself. After
//! that all is well for long enough that everything which was accepted must have come to its end.
//!
//! Owns: these worlds, and their planted bugs. Does not own: the host ([`crate::host`]), and what holds of runs apart from
//! events, which [`crate::world`] checks.

mod cells;
mod check;
mod events;
mod flows;
mod host;
mod people;
mod planted;
mod rows;
mod script;
mod topic;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use stepwell::App;
use stepwell_core::object::Message;

pub use self::planted::Planted;
use self::{cells::Program, check::Model, events::Event, host::Site, people::Act, rows::Topics};
use crate::{Violation, check::Checked, host::Cells, rng::Rng};

/// When worlds begin, and a day more, for clocks that are set back.
const BEGINNING_MS: u64 = 1_700_000_000_000 + 86_400_000;

/// How long everything breaks.
const BREAKS_MS: u64 = 240_000;

/// When a world ends.
const END_MS: u64 = BREAKS_MS + 420_000;

/// How many cells there are.
const CELLS: usize = 2;

/// What has to happen in many worlds: faults, and what topics and cells come to.
pub const COVERED: [&str; 37] = [
    "a cell says that a wait is over",
    "a clock is put back",
    "a clock is put forward",
    "a delivery is kept",
    "a delivery is made an event once more",
    "a letter is refused for good",
    "a message comes twice",
    "a message is late",
    "a message is lost",
    "a request reaches an instance that has lost its name",
    "a run is cancelled",
    "a run is declined for now",
    "a run is refused for good",
    "a run is taken back",
    "a start is parked",
    "a token is completed",
    "a trigger is deleted",
    "a wait cannot take its event yet",
    "a wait expires",
    "a wait is over when its event comes",
    "a wait is registered",
    "a wait passes an event that its run has had",
    "a wait takes an event",
    "a write is done, and answered with an error",
    "an alarm is called once more",
    "an alarm is lost",
    "an event is parked for waits",
    "an instance dies",
    "an instance dies after its write is durable",
    "an instance dies before its write is durable",
    "an instance that has lost its name is fenced",
    "an old copy of a message comes late",
    "another instance gets the name",
    "something parked is done",
    "the connection with a program breaks",
    "the storage refuses",
    "what the code declares is heard",
];

/// How a world has ended.
#[derive(Debug)]
pub struct Outcome {
    /// How many turns of machines there were.
    pub transitions: u64,
    /// How many faults, apart from what becomes of messages.
    pub faults: u64,
    /// How many events were accepted.
    pub events: usize,
    /// How many runs they have started.
    pub runs: usize,
    /// How many waits were registered.
    pub waits: usize,
    /// What has happened, and how often.
    pub met: BTreeMap<&'static str, u64>,
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// What happened, if it was asked for.
    pub transcript: Vec<String>,
}

/// Runs the world of a seed.
pub fn simulate(seed: u64, planted: Option<Planted>) -> Outcome {
    World::new(seed, planted).run()
}

/// The same, and says what happened.
pub fn trace(seed: u64, planted: Option<Planted>) -> Outcome {
    let mut world = World::new(seed, planted);
    world.transcript = Some(Vec::new());
    world.run()
}

struct World {
    rng: Rng,
    planted: Option<Planted>,
    app: App,
    now_ms: u64,
    queue: BTreeMap<(u64, u64), Event>,
    queued: u64,
    topic: Site<Topics>,
    cells: Vec<Site<Cells>>,
    /// When cells decline runs: which one, from when, until when.
    declining: Vec<(usize, u64, u64)>,
    programs: BTreeMap<u32, Program>,
    last_program: u32,
    acts: Vec<Act>,
    acked: BTreeSet<usize>,
    model: Model,
    /// How many transactions became durable anywhere.
    order: u64,
    transitions: u64,
    faults: u64,
    met: BTreeMap<&'static str, u64>,
    violation: Option<Violation>,
    transcript: Option<Vec<String>>,
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut world = Self {
            rng: Rng::new(seed ^ 0x746f_7069_6373),
            planted,
            app: flows::app(),
            now_ms: 0,
            queue: BTreeMap::new(),
            queued: 0,
            topic: Site::default(),
            cells: (0..CELLS).map(|_| Site::default()).collect(),
            declining: Vec::new(),
            programs: BTreeMap::new(),
            last_program: 0,
            acts: Vec::new(),
            acked: BTreeSet::new(),
            model: Model::default(),
            order: 0,
            transitions: 0,
            faults: 0,
            met: BTreeMap::new(),
            violation: None,
            transcript: None,
        };
        world.write_script();
        world
    }

    fn run(mut self) -> Outcome {
        while self.violation.is_none() {
            let Some(((at_ms, _), event)) = self.queue.pop_first() else { break };
            if at_ms > END_MS {
                break;
            }
            self.now_ms = self.now_ms.max(at_ms);
            self.handle(event);
        }
        if self.violation.is_none() {
            let checked = self.at_rest();
            self.must(checked);
        }
        let Self { transitions, faults, met, violation, model, .. } = self;
        let (events, runs, waits) = (model.log.len(), model.runs.len(), model.waits.count());
        let transcript = self.transcript.unwrap_or_default();
        Outcome { transitions, faults, events, runs, waits, met, violation, transcript }
    }

    /// Everything has been well for long.
    fn at_rest(&self) -> Checked {
        let mut lost = BTreeSet::new();
        for site in &self.cells {
            for (letter, is_dead) in site.host.disk.letters.values() {
                if !is_dead {
                    let detail = format!("{letter:?}");
                    return Err(("27 every letter is delivered or dead", detail));
                }
                lost.extend(letter.envelopes.iter().filter_map(|envelope| match &envelope.message {
                    Message::Emitted { event, .. } => event.id.clone(),
                    Message::Waits { .. }
                    | Message::WaitOver { .. }
                    | Message::Start { .. }
                    | Message::Ended { .. }
                    | Message::TickEnded { .. }
                    | Message::Cancel { .. }
                    | Message::TicketOver { .. }
                    | Message::Job { .. }
                    | Message::Callback { .. }
                    | Message::Unbind { .. } => None,
                }));
            }
        }
        // Those who want something of a run that there may never be wait for it.
        let waits = |act: &Act| matches!(act, Act::Manage(..) | Act::Token(..));
        let mut acts = self.acts.iter().enumerate().filter(|(_, act)| !waits(act));
        if let Some((_, act)) = acts.find(|(index, _)| !self.acked.contains(index)) {
            return Err(("15 everybody is answered once all is well", format!("{act:?}")));
        }
        self.check_emitted(&lost)?;
        self.model.at_rest(&self.topic.host.disk)
    }

    /// What runs have emitted was accepted, but for what is in dead letters.
    fn check_emitted(&self, lost: &BTreeSet<String>) -> Checked {
        let accepted: BTreeSet<_> = self.model.log.values().map(|known| known.row.id.as_str()).collect();
        for disk in self.cells.iter().map(|site| &site.host.disk) {
            for row in disk.journal.values().flat_map(|journal| journal.iter()) {
                let stepwell_protocol::Event::StepFinished { outcome, op, .. } = row.says() else { continue };
                let stepwell_protocol::Outcome::Ok(id) = outcome else { continue };
                let id = id.decode::<String>().unwrap_or_default();
                if !accepted.contains(id.as_str()) && !lost.contains(&id) {
                    return Err(("1 what a run emits is accepted", format!("{id} of {op}")));
                }
            }
        }
        Ok(())
    }

    fn put_at(&mut self, at_ms: u64, event: Event) {
        self.queued += 1;
        self.queue.insert((at_ms, self.queued), event);
    }

    fn put(&mut self, delay_ms: u64, event: Event) {
        self.put_at(self.now_ms + delay_ms, event);
    }

    fn act(&mut self, at_ms: u64, act: Act) {
        self.acts.push(act);
        self.put_at(at_ms, Event::Act(self.acts.len() - 1));
    }

    fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    fn breaks(&self) -> bool {
        self.now_ms < BREAKS_MS
    }

    fn declines(&self, cell: usize) -> bool {
        self.declining.iter().any(|(of, from, to)| *of == cell && (*from..*to).contains(&self.now_ms))
    }

    /// Counts something that has happened.
    fn note(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
        self.tell(|| what.into());
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("{:>7} {}", self.now_ms, text()));
        }
    }

    fn must(&mut self, checked: Checked) {
        if let Err((rule, detail)) = checked
            && self.violation.is_none()
        {
            self.violation = Some(Violation { rule, detail });
        }
    }
}
