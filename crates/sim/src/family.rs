//! Parents and children: a workflow that invokes itself, down to a level, as a program that speaks the protocol itself.
//!
//! What it says next follows from its input and its journal alone, so random worlds and the explorer share it.

use std::collections::BTreeMap;

use stepwell::drive::Session as _;
use stepwell_protocol::{
    Awaits, Event, Failure, Invocation, Life, OnClose, Op, OpKind, Outcome, Payload, Record, RunId, Seq,
    program::{Activation, Answer, Command, Commit, Dispatch, News, Open, Then},
};

use crate::{flows::Job, outside::Wire, rng::hash};

/// The workflow's name.
pub const FAMILY: &str = "family";

/// What a family does, besides invoking. The tag of its job says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Parents wait for all their children.
    Plain = 0,
    /// They go on as soon as their children are started; these end with them.
    Detached = 1,
    /// They go on, and nobody hears of their children any more.
    Abandoned = 2,
    /// They wait, and then begin anew once.
    Anew = 3,
    /// Children at the lowest level fail.
    Failing = 4,
    /// They do not wait for long.
    Impatient = 5,
}

impl Manner {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Plain, Self::Detached, Self::Abandoned, Self::Anew, Self::Failing, Self::Impatient];

    fn of(job: &Job) -> Self {
        let tag = job.tag.split('.').next().unwrap_or_default();
        let is = |manner: &&Self| tag.ends_with(&format!("-{}", **manner as u8));
        Self::ALL.iter().find(is).copied().unwrap_or(Self::Plain)
    }
}

/// A family with so many levels below the first run, and so many children of each parent.
pub fn job(tag: &str, levels: u32, children: u32, ms: u64, manner: Manner) -> Job {
    Job { tag: format!("{tag}-{}", manner as u8), n: children, ms, fails: levels, taken: Vec::new() }
}

/// What a program knows.
#[derive(Clone, Debug)]
pub struct Member {
    run: RunId,
    life: Option<Life>,
    job: Job,
    base: Seq,
    invoked: BTreeMap<u32, Seq>,
    started: BTreeMap<u32, RunId>,
    finished: BTreeMap<u32, Outcome>,
    has_slept: bool,
    /// The signals that came, and how many bytes each has.
    signals: BTreeMap<Seq, u64>,
}

impl Member {
    /// What it knows at the beginning of an activation.
    pub fn new(activation: &Activation) -> Self {
        let mut member = Self {
            run: activation.run.clone(),
            life: activation.life,
            job: activation.input.decode().expect("families are started with jobs"),
            base: Seq(0),
            invoked: BTreeMap::new(),
            started: BTreeMap::new(),
            finished: BTreeMap::new(),
            has_slept: false,
            signals: BTreeMap::new(),
        };
        activation.journal.events.iter().for_each(|record| member.read(record));
        member
    }

    /// Reads an event.
    pub fn read(&mut self, record: &Record) {
        self.base = self.base.max(record.seq);
        if let Event::ChildInvoked { op, .. } = &record.event {
            self.invoked.insert(op.occurrence, record.seq);
        } else if let Event::ChildStarted { op, run, .. } = &record.event {
            self.started.insert(op.occurrence, run.clone());
        } else if let Event::ChildFinished { op, outcome, .. } = &record.event {
            self.finished.insert(op.occurrence, outcome.clone());
        } else if let Event::TimerFired { .. } = &record.event {
            self.has_slept = true;
        } else if let Event::SignalReceived { payload, .. } = &record.event {
            self.signals.insert(record.seq, payload.size() as u64);
        }
    }

    /// The last position that it knows.
    pub fn base(&self) -> Seq {
        self.base
    }

    /// Hears what was answered to what it has said. Says whether it goes on; if not all of the news came with it, it has
    /// to read on first.
    pub fn hear(&mut self, said: &Commit, answer: &Answer) -> Heard {
        let Answer::Go { news, .. } = answer else { return Heard::Over };
        for news in news {
            match news {
                News::Record(record) => self.read(record),
                News::Yours { seq, command, .. } => {
                    self.base = self.base.max(*seq);
                    if let Some(Command::ChildInvoked { op, .. }) = said.commands.get(*command) {
                        self.invoked.insert(op.occurrence, *seq);
                    }
                }
                News::More => return Heard::More,
            }
        }
        Heard::All
    }

    /// What it says next.
    pub fn say(&self, activation: &Activation) -> Commit {
        let (commands, then) = if self.job.fails == 0 { (Vec::new(), self.leaf()) } else { self.parent() };
        Commit::new(activation.epoch, self.base, commands, then)
    }

    /// A child at the lowest level takes its time.
    fn leaf(&self) -> Then {
        if self.job.ms > 0 && !self.has_slept {
            let op = Op { kind: OpKind::Sleep, name: "nap".into(), occurrence: 0 };
            return Then::Suspend { open: vec![Open::Sleep { op, ms: self.job.ms }] };
        }
        if Manner::of(&self.job) == Manner::Failing {
            return Then::Fail { failure: Failure::new("it fails") };
        }
        Then::Complete { output: Payload::encode(&value(&self.run)).expect("a number is JSON") }
    }

    fn parent(&self) -> (Vec<Command>, Then) {
        let manner = Manner::of(&self.job);
        let all = 0..self.job.n;
        let is_known = |child: &u32| self.invoked.contains_key(child) || self.finished.contains_key(child);
        let missing: Vec<_> = all.clone().filter(|child| !is_known(child)).collect();
        if !missing.is_empty() {
            let commands = missing.into_iter().map(|child| self.invoke(child, manner)).collect();
            return (commands, Then::Continue { open: None });
        }
        let goes_on = matches!(manner, Manner::Detached | Manner::Abandoned);
        let is_over =
            |child: &u32| self.finished.contains_key(child) || goes_on && self.started.contains_key(child);
        let open: Vec<_> = all.clone().filter(|child| !is_over(child)).collect();
        if !open.is_empty() {
            let awaits = if goes_on { Awaits::Started } else { Awaits::Finished };
            let timeout_ms = (manner == Manner::Impatient).then_some(self.job.ms / 2 + 20);
            let wait =
                |child| Open::Child { op: op(child), invoked: self.invoked[&child], awaits, timeout_ms };
            return (Vec::new(), Then::Suspend { open: open.into_iter().map(wait).collect() });
        }
        if manner == Manner::Anew && self.life.is_none() {
            let input = Payload::encode(&self.job).expect("a job is JSON");
            // Nobody in a family takes signals.
            let (keeps, keeps_bytes) = (self.signals.keys().copied().collect(), self.signals.values().sum());
            return (Vec::new(), Then::Anew { input, keeps, keeps_bytes });
        }
        let given = |child| match self.finished.get(&child) {
            // Whoever does not wait may hear of it or not.
            Some(Outcome::Ok(output)) if !goes_on => output.text().to_owned(),
            Some(_) | None => "null".to_owned(),
        };
        let output = format!("[{}]", all.map(given).collect::<Vec<_>>().join(","));
        (Vec::new(), Then::Complete { output: Payload::from_text(output).expect("it is JSON") })
    }

    fn invoke(&self, child: u32, manner: Manner) -> Command {
        let Job { tag, n, ms, fails, .. } = &self.job;
        let job = Job { tag: format!("{tag}.{child}"), n: *n, ms: *ms, fails: fails - 1, taken: Vec::new() };
        let invocation = Invocation {
            workflow: FAMILY.into(),
            input: Payload::encode(&job).expect("a job is JSON"),
            detached: matches!(manner, Manner::Detached | Manner::Abandoned),
            on_close: if manner == Manner::Abandoned { OnClose::Abandon } else { OnClose::Cancel },
            timeout_ms: None,
            // Some are deleted while messages about them may still be under way.
            retention_ms: (ms % 4 == 2).then_some(900),
            dispatch: Dispatch::Direct,
            callback: None,
            flow: None,
        };
        Command::ChildInvoked { op: op(child), invocation: Box::new(invocation) }
    }
}

/// What came with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All that there is to know.
    All,
    /// There is more to be read.
    More,
    /// Nothing: this activation is over.
    Over,
}

fn op(child: u32) -> Op {
    Op { kind: OpKind::Child, name: "member".into(), occurrence: child }
}

/// What a child at the lowest level gives.
fn value(run: &RunId) -> u64 {
    hash(&run.to_string()) >> 12
}

/// The program of a family, on its wire.
pub async fn drive(activation: Activation, wire: Wire) -> Result<(), ()> {
    let mut member = Member::new(&activation);
    let mut more = activation.journal.more;
    loop {
        while more {
            let page = wire.page(member.base()).await?;
            page.events.iter().for_each(|record| member.read(record));
            more = page.more;
        }
        let commit = member.say(&activation);
        let answer = wire.commit(&commit).await?;
        match member.hear(&commit, &answer) {
            Heard::All => {}
            Heard::More => more = true,
            Heard::Over => return Ok(()),
        }
    }
}
