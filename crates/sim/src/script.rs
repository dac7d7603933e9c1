//! What will be done to a world: client actions, faults, and how bad the network is. Made from the seed alone,
//! so a failing script can be made smaller piece by piece.

mod catalog;

use stepwell_protocol::program::Dispatch;

use crate::{
    family::{self, FAMILY, Manner},
    flows::{BUILDS, Job, LIVES, NAMES, SPECIAL},
    rng::{Rng, hash},
};

/// Everything that happens to a world from outside.
#[derive(Clone, Debug)]
pub struct Script {
    /// How many cells there are.
    pub cells: usize,
    /// How many programs a cell calls at once.
    pub window: usize,
    /// Whether the host has a queue.
    pub queue: bool,
    /// How many events go into a page.
    pub page_events: usize,
    /// How many rows are deleted at once.
    pub delete_slice: usize,
    /// How many calls an activation may make.
    pub commits: Option<u32>,
    /// What clients do.
    pub actions: Vec<(u64, Action)>,
    /// What breaks.
    pub faults: Vec<(u64, Fault)>,
    /// What the network does, in percent of all messages.
    pub noise: Noise,
    /// How many of all messages between cells are refused for good, in percent.
    pub refuses_letters: u8,
    /// When faults stop.
    pub heal_at_ms: u64,
}

/// What a client does. Runs are named by the start that made them.
#[derive(Clone, Debug)]
pub enum Action {
    /// Starts a run.
    Start {
        /// The cell that it goes to.
        cell: usize,
        /// Its idempotency key.
        key: Option<String>,
        /// The workflow.
        workflow: &'static str,
        /// The input.
        job: Job,
        /// How long it may take.
        timeout_ms: Option<u64>,
        /// How long it is kept after its end.
        retention_ms: Option<u64>,
        /// How its program is called.
        dispatch: Dispatch,
        /// How much later it begins.
        delay_ms: Option<u64>,
    },
    /// Sends a signal.
    Signal {
        /// The action that has started the run.
        start: usize,
        /// The signal's name.
        name: &'static str,
        /// Its id.
        id: Option<String>,
        /// What comes with it.
        payload: u64,
    },
    /// Cancels.
    Cancel {
        /// The action that has started the run.
        start: usize,
    },
    /// Takes a run in hand.
    Manage {
        /// The action that has started the run.
        start: usize,
        /// What is done to it.
        how: Manage,
    },
    /// Looks at a run, and may wait for its end.
    Show {
        /// The action that has started the run.
        start: usize,
        /// For how long.
        wait_ms: u64,
    },
    /// Follows a run.
    Follow {
        /// The action that has started the run.
        start: usize,
    },
    /// Makes a key.
    CreateKey,
    /// Revokes a key.
    RevokeKey {
        /// The action that has made it.
        create: usize,
    },
    /// Shows a key.
    UseKey {
        /// The action that has made it.
        create: usize,
        /// To which cell; to the catalog, if to none.
        cell: Option<usize>,
    },
    /// A version of the app declares its workflows.
    Sync {
        /// Which one; a larger number is newer.
        version: u32,
        /// Whether a person has asked for it.
        is_explicit: bool,
    },
    /// Pauses a workflow.
    PauseWorkflow(&'static str),
    /// Resumes a workflow.
    ResumeWorkflow(&'static str),
}

/// The workflows that manifests may declare.
pub const DECLARED: [&str; 4] = ["bill", "greet", "report", "ship"];

/// What a person can do to a run by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manage {
    /// Stops it for a while.
    Pause,
    /// Lets it go on.
    Resume,
    /// Lets it go on from the step that failed.
    Retry,
    /// Lets it begin anew.
    Restart,
}

/// Something that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The cell's instance dies at once.
    Crash(usize),
    /// It dies before its next commit is durable.
    CrashBeforeCommit(usize),
    /// It dies after its next commit is durable, before anything leaves.
    CrashAfterCommit(usize),
    /// It dies after a commit that a client's answer waits for; the platform delivers that call again.
    DeliveredAgain(usize),
    /// It dies, and the next instance with its first commit.
    CrashInRecovery(usize),
    /// The next write is done, but answered with an error; the instance is reset.
    CommitThenError(usize),
    /// Nothing can be written for so long.
    RefuseWrites(usize, u64),
    /// The next alarm is late by so much.
    AlarmLate(usize, u64),
    /// The alarm fires, and it was not its time.
    AlarmTwice(usize),
    /// The alarm is gone, and the instance too.
    AlarmDropped(usize),
    /// The next alarm fires so much too early.
    AlarmEarly(usize, u64),
    /// Another instance takes over while the first does not know.
    SecondInstance(usize),
    /// The cell's clock jumps forward.
    ClockForward(usize, u64),
    /// The cell's clock jumps back.
    ClockBack(usize, u64),
    /// A program does nothing for so long, and is then killed.
    ProgramHangs(u64),
    /// A program throws.
    ProgramThrows,
    /// A program's connection breaks.
    ProgramDies,
    /// A program returns without a word.
    ProgramReturns,
    /// A program reports what makes no sense.
    ProgramGarbage,
    /// A program wants to go on later, whatever it has done.
    ProgramYields,
    /// Somebody speaks for an activation that is over.
    OldWord(usize),
    /// Programs that outlive their cell's instance can still reach the next one.
    ProgramsSurvive,
    /// Another build of the app is deployed.
    Deploy(usize),
    /// Cancel, signal and time-out of a run come in one tick.
    OneTick(usize),
    /// A consumer of the queue dies without a word.
    ConsumerDies,
    /// The queue loses what is sent to it, for so long.
    QueueLoses(u64),
}

impl Fault {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash(_) => "crash",
            Self::CrashBeforeCommit(_) => "crash before a commit",
            Self::CrashAfterCommit(_) => "crash after a commit",
            Self::DeliveredAgain(_) => "crash before an answer",
            Self::CrashInRecovery(_) => "crash in recovery",
            Self::CommitThenError(_) => "commit done, error returned",
            Self::RefuseWrites(..) => "writes refused",
            Self::AlarmLate(..) => "alarm late",
            Self::AlarmTwice(_) => "alarm twice",
            Self::AlarmDropped(_) => "alarm dropped",
            Self::AlarmEarly(..) => "alarm early",
            Self::SecondInstance(_) => "second instance",
            Self::ClockForward(..) => "clock forward",
            Self::ClockBack(..) => "clock back",
            Self::ProgramHangs(_) => "program hangs",
            Self::ProgramThrows => "program throws",
            Self::ProgramDies => "program dies",
            Self::ProgramReturns => "program returns early",
            Self::ProgramGarbage => "program reports garbage",
            Self::ProgramYields => "program goes on later",
            Self::OldWord(_) => "word of an activation that is over",
            Self::ProgramsSurvive => "programs outlive their cell",
            Self::Deploy(_) => "deploy or rollback",
            Self::OneTick(_) => "cancel, signal, time-out at once",
            Self::ConsumerDies => "consumer dies in silence",
            Self::QueueLoses(_) => "queue loses messages",
        }
    }
}

/// What the network does to messages, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noise {
    /// Lost.
    pub lose: u64,
    /// Sent twice.
    pub duplicate: u64,
    /// Long under way, so that others overtake it.
    pub delay: u64,
}

impl Script {
    /// The script of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let cells = usize::try_from(rng.between(2, 3)).expect("small");
        let heal_at_ms = rng.between(15_000, 30_000);
        let mut actions = actions(&mut rng, cells, heal_at_ms);
        special(seed, &mut actions);
        lives(seed, &mut actions);
        let delete_slice = keep_for_a_while(seed, &mut actions);
        put_off(seed, &mut actions, heal_at_ms);
        let refuses_letters = families(seed, cells, &mut actions, heal_at_ms);
        let mut faults = faults(&mut rng, cells, heal_at_ms, &actions);
        let queue = queue(seed, &mut actions, &mut faults, heal_at_ms);
        catalog::keys(seed, cells, &mut actions, &mut faults, heal_at_ms);
        followers(seed, &mut actions);
        catalog::manifests(seed, cells, &mut actions, &mut faults, heal_at_ms);
        deliver_again(seed, cells, &mut faults, heal_at_ms);
        stand_still(seed, cells, &mut faults, heal_at_ms);
        Self {
            cells,
            window: usize::try_from(rng.between(2, 6)).expect("small"),
            queue,
            page_events: usize::try_from(rng.between(1, 6)).expect("small"),
            delete_slice,
            refuses_letters,
            actions,
            faults,
            commits: rng.percent(40).then(|| 1 + small(&mut rng, 5)),
            noise: Noise { lose: rng.below(4), duplicate: rng.below(6), delay: rng.below(6) },
            heal_at_ms,
        }
    }
}

impl Script {
    /// Whether anybody needs a catalog.
    pub fn has_catalog(&self) -> bool {
        let is_for_catalog = |action: &Action| {
            matches!(action, Action::CreateKey | Action::Sync { .. } | Action::PauseWorkflow(_))
        };
        self.actions.iter().any(|(_, action)| is_for_catalog(action))
    }
}

fn actions(rng: &mut Rng, cells: usize, heal_at_ms: u64) -> Vec<(u64, Action)> {
    let mut actions: Vec<(u64, Action)> = Vec::new();
    let runs = rng.between(14, 22);
    // Now and then a program that kills its cell, or one that throws, with all the time that it needs to be
    // found out.
    let villain = match rng.below(4) {
        0 => Some("poison"),
        1 => Some("thrower"),
        _ => None,
    };
    for n in 0..runs {
        let at = if rng.percent(40) { rng.between(0, 50) } else { rng.between(0, heal_at_ms * 2 / 3) };
        let (at, workflow) = match villain {
            Some(villain) if n == 0 => (0, villain),
            Some(_) | None => (at, NAMES[usize::try_from(rng.below(14)).expect("small")]),
        };
        let tag = format!("r{n}");
        let (count, ms, fails) = (1 + small(rng, 7), rng.between(1, 120), small(rng, 6));
        let job = Job { tag, n: count, ms, fails, taken: Vec::new() };
        let key = rng.percent(50).then(|| format!("k{n}"));
        let cell = match &key {
            Some(key) => home(key, cells),
            None => usize::try_from(rng.below(cells as u64)).expect("small"),
        };
        let start = actions.len();
        let timeout_ms = (rng.percent(12) && n > 0).then(|| rng.between(100, 5_000));
        let (retention_ms, delay_ms, dispatch) = (None, None, Dispatch::Direct);
        let start_of = |key, job| Action::Start {
            cell,
            key,
            workflow,
            job,
            timeout_ms,
            retention_ms,
            dispatch,
            delay_ms,
        };
        actions.push((at, start_of(key.clone(), job.clone())));
        if let Some(key) = key {
            for _ in 0..rng.below(3) {
                let again = at + rng.below(2_000);
                let job = if rng.percent(25) { Job { n: job.n + 1, ..job.clone() } } else { job.clone() };
                actions.push((again, start_of(Some(key.clone()), job)));
            }
        }
        follow(rng, start, at, workflow, &mut actions);
    }
    actions
}

/// In some worlds, runs are deleted soon after their end: so many rows at once. Chance of its own, so that all
/// other worlds stay as they are.
fn keep_for_a_while(seed: u64, actions: &mut [(u64, Action)]) -> usize {
    let mut rng = Rng::new(seed ^ 0x6b65_708f);
    if rng.percent(35) {
        for (_, action) in actions {
            if let Action::Start { retention_ms, .. } = action
                && rng.percent(70)
            {
                *retention_ms = Some(rng.between(500, 8_000));
            }
        }
    }
    usize::try_from(rng.between(3, 12)).expect("small")
}

/// What clients do to a run after it was started.
fn follow(rng: &mut Rng, start: usize, at: u64, workflow: &str, actions: &mut Vec<(u64, Action)>) {
    let (name, signals) = match workflow {
        "approval" | "patience" | "race_signal" | "three_ways" | "stuck" => ("go", rng.below(3)),
        "collect" => ("item", rng.below(4)),
        _ => ("go", u64::from(rng.percent(15))),
    };
    for n in 0..signals {
        let id = rng.percent(70).then(|| format!("s{start}.{n}"));
        let signal = |payload| Action::Signal { start, name, id: id.clone(), payload };
        let sent = at + rng.below(3_000);
        let payload = rng.below(1_000);
        actions.push((sent, signal(payload)));
        if id.is_some() && rng.percent(40) {
            actions.push((sent + rng.below(1_500), signal(payload)));
        }
    }
    if rng.percent(14) {
        let sent = at + rng.below(2_500);
        actions.push((sent, Action::Cancel { start }));
        if rng.percent(30) {
            actions.push((sent + rng.below(500), Action::Cancel { start }));
        }
    }
    if rng.percent(15) {
        let sent = at + rng.below(1_500);
        actions.push((sent, Action::Manage { start, how: Manage::Pause }));
        if rng.percent(80) {
            let resumed = sent + rng.between(1, 3_000);
            actions.push((resumed, Action::Manage { start, how: Manage::Resume }));
        }
    }
    if rng.percent(if matches!(workflow, "doomed" | "sequential" | "looping") { 40 } else { 12 }) {
        let how = *rng.pick(&[Manage::Resume, Manage::Retry, Manage::Retry, Manage::Restart]);
        actions.push((at + rng.between(1, 6_000), Action::Manage { start, how }));
    }
    if rng.percent(40) {
        let wait_ms = if rng.percent(60) { rng.between(500, 8_000) } else { 0 };
        actions.push((at + rng.below(4_000), Action::Show { start, wait_ms }));
    }
}

fn faults(rng: &mut Rng, cells: usize, heal_at_ms: u64, actions: &[(u64, Action)]) -> Vec<(u64, Fault)> {
    let count = rng.between(28, 50);
    (0..count)
        .map(|_| {
            // Most of them while most is going on.
            let at = if rng.percent(50) { rng.between(1, 4_000) } else { rng.between(1, heal_at_ms - 1) };
            let cell = usize::try_from(rng.below(cells as u64)).expect("small");
            let fault = match rng.below(35) {
                0..=2 => Fault::Crash(cell),
                3..=5 => Fault::CrashBeforeCommit(cell),
                6..=8 => Fault::CrashAfterCommit(cell),
                9 => Fault::CrashInRecovery(cell),
                10 => Fault::CommitThenError(cell),
                11 => Fault::RefuseWrites(cell, rng.between(5, 3_000)),
                12 => Fault::AlarmLate(cell, rng.between(1, 4_000)),
                13 => Fault::AlarmTwice(cell),
                14 => Fault::AlarmDropped(cell),
                15 => Fault::AlarmEarly(cell, rng.between(1, 20)),
                16..=17 => Fault::SecondInstance(cell),
                18 => Fault::ClockForward(cell, rng.between(1, 5_000)),
                19 => Fault::ClockBack(cell, rng.between(1, 5_000)),
                20 => Fault::ProgramHangs(rng.between(100, 6_000)),
                21..=22 => Fault::ProgramThrows,
                23..=24 => Fault::ProgramDies,
                25 => Fault::ProgramReturns,
                26 => Fault::ProgramGarbage,
                27..=28 => Fault::ProgramsSurvive,
                30..=31 => Fault::OldWord(cell),
                29 => Fault::Deploy(usize::try_from(rng.below(BUILDS as u64)).expect("small")),
                32 => Fault::ProgramYields,
                _ => Fault::OneTick(usize::try_from(rng.below(actions.len() as u64)).expect("small")),
            };
            (at, fault)
        })
        .collect()
}

/// In some worlds, some runs begin later than they are started. Drawn apart, like the queue.
fn put_off(seed: u64, actions: &mut [(u64, Action)], heal_at_ms: u64) {
    let mut rng = Rng::new(hash(&format!("put off {seed}")));
    if !rng.percent(40) {
        return;
    }
    for (_, action) in actions {
        if let Action::Start { delay_ms, .. } = action
            && rng.percent(30)
        {
            *delay_ms = Some(rng.between(1, heal_at_ms / 3));
        }
    }
}

/// Whether there is a queue, and what that brings along. Drawn apart, so that worlds without one stay as they are.
fn queue(seed: u64, actions: &mut [(u64, Action)], faults: &mut Vec<(u64, Fault)>, heal_at_ms: u64) -> bool {
    let mut rng = Rng::new(hash(&format!("queue {seed}")));
    let has_queue = rng.percent(50);
    for (_, action) in actions {
        if let Action::Start { dispatch, .. } = action
            && rng.percent(45)
        {
            *dispatch = Dispatch::Queued;
        }
    }
    if has_queue {
        for _ in 0..rng.between(3, 10) {
            let at = if rng.percent(50) { rng.between(1, 6_000) } else { rng.between(1, heal_at_ms - 1) };
            let fault = match rng.below(4) {
                0 => Fault::QueueLoses(rng.between(100, 5_000)),
                _ => Fault::ConsumerDies,
            };
            faults.push((at, fault));
        }
    }
    has_queue
}

/// In some worlds there are parents and children, on up to three levels and on all cells. Some are cancelled, and some
/// are taken in hand. Says how many of their messages are refused for good. Drawn apart, like the queue.
fn families(seed: u64, cells: usize, actions: &mut Vec<(u64, Action)>, heal_at_ms: u64) -> u8 {
    let mut rng = Rng::new(hash(&format!("families {seed}")));
    if !rng.percent(45) {
        return 0;
    }
    for n in 0..rng.between(1, 3) {
        let start = actions.len();
        let at = if rng.percent(50) { rng.between(0, 2_000) } else { rng.between(0, heal_at_ms / 2) };
        let (levels, children) = (1 + small(&mut rng, 2), 1 + small(&mut rng, 2));
        let manner = *rng.pick(&Manner::ALL);
        let job = family::job(&format!("f{n}"), levels, children, rng.between(0, 150), manner);
        let cell = usize::try_from(rng.below(cells as u64)).expect("small");
        let (key, dispatch) = (None, Dispatch::Direct);
        let (timeout_ms, retention_ms) = (rng.percent(10).then(|| rng.between(100, 3_000)), None);
        let workflow = FAMILY;
        let delay_ms = None;
        let start_of =
            Action::Start { cell, key, workflow, job, timeout_ms, retention_ms, dispatch, delay_ms };
        actions.push((at, start_of));
        if rng.percent(35) {
            actions.push((at + rng.between(10, 3_000), Action::Cancel { start }));
        }
        if rng.percent(15) {
            let how = *rng.pick(&[Manage::Retry, Manage::Restart]);
            actions.push((at + rng.between(10, 6_000), Action::Manage { start, how }));
        }
    }
    if rng.percent(20) { 10 } else { 0 }
}

/// In some worlds, clients follow some of the runs. Drawn apart, like the queue.
fn followers(seed: u64, actions: &mut Vec<(u64, Action)>) {
    let mut rng = Rng::new(hash(&format!("followers {seed}")));
    if !rng.percent(40) {
        return;
    }
    let starts = actions.iter().enumerate().filter(|(_, (_, action))| matches!(action, Action::Start { .. }));
    let starts: Vec<_> = starts.map(|(start, (at, _))| (start, *at)).collect();
    for _ in 0..rng.between(1, 5) {
        let (start, at) = *rng.pick(&starts);
        let at = if rng.percent(70) { at + rng.below(300) } else { at + rng.below(8_000) };
        actions.push((at, Action::Follow { start }));
    }
}

/// Some runs become those of other workflows, with what these need. All starts of one key change in the same way.
fn special(seed: u64, actions: &mut Vec<(u64, Action)>) {
    let mut more = Vec::new();
    for (index, (at, action)) in actions.iter_mut().enumerate() {
        let Action::Start { workflow, job, .. } = action else { continue };
        let mut rng = Rng::new(hash(&format!("special {seed} {}", job.tag)));
        if !rng.percent(20) || NAMES[14..].contains(workflow) {
            continue;
        }
        *workflow = *rng.pick(&SPECIAL);
        let (soon, later) = (*at + rng.below(2_500), *at + rng.between(500, 9_000));
        let how = if *workflow == "ruined" { Manage::Retry } else { Manage::Restart };
        if *workflow == "upgraded" {
            more.push((soon, Action::Signal { start: index, name: "go", id: None, payload: rng.below(9) }));
        }
        if rng.percent(if *workflow == "ruined" { 80 } else { 10 }) {
            more.push((later, Action::Manage { start: index, how }));
        }
    }
    actions.extend(more);
}

/// In some worlds, some runs begin anew, with signals in between. Drawn apart, so that all other worlds stay as they are.
fn lives(seed: u64, actions: &mut Vec<(u64, Action)>) {
    if !Rng::new(hash(&format!("lives {seed}"))).percent(40) {
        return;
    }
    let mut more = Vec::new();
    for (index, (at, action)) in actions.iter_mut().enumerate() {
        let Action::Start { workflow, job, .. } = action else { continue };
        let mut rng = Rng::new(hash(&format!("lives {seed} {}", job.tag)));
        if !rng.percent(25) || NAMES[14..].contains(workflow) || SPECIAL.contains(workflow) {
            continue;
        }
        *workflow = LIVES;
        let end = *at + (u64::from(job.n) + 1) * job.ms * 4;
        for n in 0..rng.between(2, 9) {
            let id = rng.percent(60).then(|| format!("l{index}.{n}"));
            let payload = rng.below(1_000_000);
            more.push((rng.between(*at, end), Action::Signal { start: index, name: "item", id, payload }));
        }
    }
    actions.extend(more);
}

/// A machine that sleeps, or whose clock is set: by far more than a call may be silent. Drawn apart, like the queue.
fn stand_still(seed: u64, cells: usize, faults: &mut Vec<(u64, Fault)>, heal_at_ms: u64) {
    let mut rng = Rng::new(hash(&format!("still {seed}")));
    if rng.percent(15) {
        let cell = usize::try_from(rng.below(cells as u64)).expect("small");
        faults
            .push((rng.between(1, heal_at_ms - 1), Fault::ClockForward(cell, rng.between(60_000, 600_000))));
    }
}

/// Calls that the platform delivers to the next instance because the last one died before it could answer.
fn deliver_again(seed: u64, cells: usize, faults: &mut Vec<(u64, Fault)>, heal_at_ms: u64) {
    let mut rng = Rng::new(hash(&format!("again {seed}")));
    for _ in 0..rng.below(5) {
        let at = if rng.percent(40) { rng.between(0, 60) } else { rng.between(1, heal_at_ms * 2 / 3) };
        let cell = usize::try_from(rng.below(cells as u64)).expect("small");
        faults.push((at, Fault::DeliveredAgain(cell)));
    }
}

/// The cell that a key belongs to.
fn home(key: &str, cells: usize) -> usize {
    usize::try_from(hash(key) % cells as u64).expect("below the number of cells")
}

fn small(rng: &mut Rng, limit: u64) -> u32 {
    u32::try_from(rng.below(limit)).expect("small")
}
