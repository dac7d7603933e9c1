//! One world: cells, programs, clients, a network between them, and time.
//!
//! Everything that happens is an event in one queue, ordered by time and then by when it was put there. The
//! seed decides all the rest, so a world can be run again and does the same.

mod catalog;
mod cells;
mod clients;
mod consumers;
mod covers;
mod declared;
mod events;
mod faults;
mod host;
mod post;
mod programs;
mod readers;
mod site;

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use stepwell::App;
use stepwell_core::run::CallEnd;
use stepwell_protocol::{Epoch, Place};

use crate::{
    catalog::Catalogs,
    check::Checker,
    coverage::Coverage,
    flows,
    host::Cells,
    outside,
    rng::{Rng, mix},
    sabotage::Sabotage,
    script::Script,
};
use catalog::TheCatalog;
use events::Event;
use host::{Any, with_address};
use programs::Program;
pub(crate) use programs::{refused, short};
use site::Site;

/// How long everything has to come to rest once faults have stopped: a call that hangs is noticed after a minute, and
/// whoever was struck by it may have to pause before the next one.
pub const HEALED_WITHIN_MS: u64 = 150_000;

/// Events after which a world does not come to rest any more.
const EVENTS_MAX: u64 = 200_000;

/// What came of a world.
#[derive(Debug)]
pub struct Outcome {
    /// Which rule was broken, and how.
    pub violation: Option<Violation>,
    /// Turns of machines.
    pub transitions: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Which pairs of phase and input came up.
    pub coverage: Coverage,
    /// A hash of everything that happened.
    pub digest: u64,
    /// What happened, if it was asked for.
    pub transcript: Vec<String>,
    /// Runs that were started.
    pub runs: u64,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// How.
    pub detail: String,
}

/// A call that there was.
#[derive(Clone, Copy)]
struct Called {
    number: u64,
    epoch: Epoch,
    /// The build of the app that it ran.
    build: usize,
}

/// One world.
pub struct World {
    now_ms: u64,
    queued: u64,
    /// Apart from their times: a map moves what it holds.
    queue: BTreeMap<(u64, u64), Box<Event>>,
    rng: Rng,
    script: Script,
    sabotage: Option<Sabotage>,
    sites: Vec<Site<Cells>>,
    catalog: Site<Catalogs, ()>,
    programs: BTreeMap<u32, Program>,
    last_program: u32,
    clients: clients::Clients,
    followers: Vec<readers::Follower>,
    check: Checker,
    coverage: Coverage,
    apps: Vec<Rc<App>>,
    build: usize,
    /// Until when the queue loses what is sent to it.
    queue_loses_until_ms: u64,
    /// Whether programs that outlive their cell's instance reach the next one.
    survive: bool,
    healed: bool,
    transitions: u64,
    faults: BTreeMap<&'static str, u64>,
    digest: u64,
    transcript: Option<Vec<String>>,
    violation: Option<Violation>,
    /// Runs that the present turn speaks to.
    addressed: BTreeSet<u64>,
    /// Every call that there was.
    called: BTreeMap<u32, Called>,
    /// What was answered to a program's commits.
    commits: BTreeMap<(u32, u32), programs::Committed>,
}

impl World {
    /// The world of a seed and a script.
    pub fn new(seed: u64, script: Script, sabotage: Option<Sabotage>, traced: bool) -> Self {
        outside::reset(sabotage == Some(Sabotage::StepTimerLost));
        let place = |cell| Place { pool: "default".into(), generation: 1, cell };
        let cells = u32::try_from(script.cells).expect("small");
        Self {
            now_ms: 0,
            queued: 0,
            queue: BTreeMap::new(),
            rng: Rng::new(seed ^ 0x0077_0071_d000),
            sites: (0..cells).map(|cell| Site::new(place(cell))).collect(),
            catalog: Site::new(()),
            programs: BTreeMap::new(),
            last_program: 0,
            clients: clients::Clients::default(),
            followers: Vec::new(),
            check: Checker::new(script.cells),
            coverage: Coverage::default(),
            apps: (0..flows::BUILDS).map(|build| Rc::new(flows::build(build))).collect(),
            build: 0,
            queue_loses_until_ms: 0,
            survive: false,
            healed: false,
            transitions: 0,
            faults: BTreeMap::new(),
            digest: seed,
            transcript: traced.then(Vec::new),
            violation: None,
            addressed: BTreeSet::new(),
            called: BTreeMap::new(),
            commits: BTreeMap::new(),
            script,
            sabotage,
        }
    }

    /// Lets everything happen that will, and checks what must hold.
    pub fn run(mut self) -> Outcome {
        for index in 0..self.script.actions.len() {
            self.put_at(self.script.actions[index].0, Event::Act(index, 0));
        }
        for index in 0..self.script.faults.len() {
            self.put_at(self.script.faults[index].0, Event::Fault(index));
        }
        let heal_at_ms = self.script.heal_at_ms;
        self.put_at(heal_at_ms, Event::Heal);
        let end_ms = heal_at_ms + HEALED_WITHIN_MS;
        let mut events = 0;
        while self.violation.is_none()
            && let Some(((at_ms, _), event)) = self.queue.pop_first()
        {
            if at_ms > end_ms {
                break;
            }
            events += 1;
            if events > EVENTS_MAX {
                self.fail("time", "the world does not come to rest".into());
                break;
            }
            self.now_ms = at_ms;
            outside::set_now(at_ms);
            self.happen(*event);
        }
        self.now_ms = self.now_ms.max(end_ms);
        if self.violation.is_none() {
            self.check_end();
        }
        Outcome {
            violation: self.violation,
            transitions: self.transitions,
            faults: self.faults,
            coverage: self.coverage,
            digest: self.digest,
            transcript: self.transcript.unwrap_or_default(),
            runs: self.sites.iter().map(|site| site.disk.runs.len() as u64).sum(),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act(index, times) => self.act(index, times),
            Event::Fault(index) => self.fault(index),
            Event::Touch(any) => self.touch(any),
            Event::Request(request) => self.on_request(request),
            Event::Response(request, response) => self.on_response(request, &response),
            Event::GiveUp(request) => self.give_up(request),
            Event::Flush(any, id) => with_address!(any, at => self.flush(at, id)),
            Event::Alarm(any, at_ms) => with_address!(any, at => self.on_alarm(at, at_ms)),
            Event::Begin(program) => self.begin(program),
            Event::ToCell(program, call, message) => self.on_message(program, call, message),
            Event::ToProgram(program, call, received) => self.hand_over(program, call, received),
            Event::Nudged(cell, number, tries) => self.nudged(cell, number, tries),
            Event::Claim(cell, number, alone, tries) => self.on_claim(cell, number, alone, tries),
            Event::Word(word) => self.on_word(word),
            Event::Impatient(program, call, tries) => self.impatient(program, call, tries),
            Event::Beat(program) => self.beat(program),
            Event::Dropped(program) => self.vanish(program),
            Event::ListenOver(cell, id, listener) => self.listen_over(cell, id, listener),
            Event::Hear(cell, id, listener) => self.hear(cell, id, listener),
            Event::WaitOver(cell, id, number, request) => self.wait_over(cell, id, number, request),
            Event::Work(program) => {
                outside::finish_work(program);
                self.poll(program);
            }
            Event::CallEnded(cell, id, number, epoch, end) => self.call_ended(cell, id, number, epoch, end),
            Event::Kill(program, end) => self.kill(program, end),
            Event::Question(question) => self.on_question(question),
            Event::Told(question, answer) => self.on_told(question, *answer),
            Event::Telling(telling) => self.on_telling(&telling),
            Event::Forgot(telling) => self.on_forgot(telling),
            Event::Letter(post) => self.on_letter(&post),
            Event::Receipt(post, delivery) => self.on_receipt(&post, delivery),
            Event::Connect(follower) => self.connect(follower),
            Event::Unconnected(connection) => self.unconnected(connection),
            Event::Follow(connection) => self.on_follow(connection),
            Event::Serve(cell, id, number) => self.serve(cell, id, number),
            Event::Shown(connection, shown) => self.on_shown(connection, shown),
            Event::Broken(connection) => self.broken(connection),
            Event::Heal => self.heal(),
        }
    }

    /// Faults stop: every cell gets a request, so that an alarm that was lost is noticed.
    fn heal(&mut self) {
        self.note(|| "faults stop".into());
        self.healed = true;
        self.survive = false;
        for cell in 0..self.sites.len() {
            self.sites[cell].platform.heal();
            if let Some(stale) = self.sites[cell].stale.as_ref().map(|stale| stale.id) {
                self.crash(cell, stale);
            }
            self.touch(Any::Cell(cell));
            self.resume_all(cell);
        }
        if self.script.has_catalog() {
            self.catalog.platform.heal();
            if let Some(stale) = self.catalog.stale.as_ref().map(|stale| stale.id) {
                self.crash(TheCatalog, stale);
            }
            self.touch(Any::Catalog);
        }
        let hung: Vec<_> = self
            .programs
            .values()
            .filter(|program| program.hung && !program.hangs_for_ever)
            .map(|program| program.number_of)
            .collect();
        for program in hung {
            self.kill(program, CallEnd::Lost("it was killed".into()));
        }
    }

    fn put(&mut self, delay_ms: u64, event: Event) {
        self.put_at(self.now_ms + delay_ms, event);
    }

    fn put_at(&mut self, at_ms: u64, event: Event) {
        self.queued += 1;
        self.queue.insert((at_ms.max(self.now_ms), self.queued), Box::new(event));
    }

    fn is(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// The first rule that is broken ends the world.
    fn fail(&mut self, rule: &'static str, detail: String) {
        self.note(|| format!("VIOLATION of {rule}: {detail}"));
        self.violation.get_or_insert(Violation { rule, detail });
    }

    fn must(&mut self, result: Result<(), (&'static str, String)>) {
        if let Err((rule, detail)) = result {
            self.fail(rule, detail);
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("{:>7} {}", self.now_ms, text()));
        }
    }

    /// Makes what has happened part of what the world is known by.
    fn digest(&mut self, facts: [u64; 4]) {
        for fact in facts {
            self.digest = mix(self.digest.rotate_left(9) ^ fact);
        }
        self.digest = mix(self.digest ^ self.now_ms);
    }
}
