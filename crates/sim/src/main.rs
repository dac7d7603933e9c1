//! The command `stepwell-sim`.

use std::{collections::BTreeMap, fmt::Debug, ops::Range, time::Instant};

use anyhow::bail;
use clap::{Parser, Subcommand, ValueEnum};
use stepwell_sim::{
    Sabotage, Script, World, coverage,
    explore::{Bounds, Family, OneRun, Report, Start, explore},
    lanes,
    one::Outcome,
    queues, schedules, shrink, simulate,
    sweep::{Seeds, Sweep, sweep},
    topics,
};

// A world is mostly small things that are made and dropped.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Small worlds in which everything breaks, and the rules that must hold in them.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds.
    Run {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first one; all others follow from it.
        #[arg(long)]
        first: Option<u64>,
        /// Makes half of them new: this text, the hash of the sources, decides which.
        #[arg(long)]
        tree: Option<String>,
        /// How many at a time.
        #[arg(long, default_value_t = 2)]
        threads: usize,
    },
    /// Counts the rules that many seeds break, with the first seed of each.
    Survey {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        first: u64,
    },
    /// Plants each bug in turn and says whether it was noticed.
    Planted {
        /// How many seeds each gets.
        #[arg(long, default_value_t = 300)]
        seeds: u64,
    },
    /// Runs many seeds of schedules' own worlds, and plants each of their bugs.
    Schedules {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Runs the first one alone, and prints what happened in it.
        #[arg(long)]
        trace: bool,
    },
    /// Runs many seeds of lanes' own worlds, and plants each of their bugs.
    Lanes {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Runs the first one alone, and prints what happened in it.
        #[arg(long)]
        trace: bool,
    },
    /// Runs many seeds of queues' own worlds, and plants each of their bugs.
    Queues {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Runs the first one alone, and prints what happened in it.
        #[arg(long)]
        trace: bool,
    },
    /// Runs many seeds of topics' own worlds, and plants each of their bugs.
    Topics {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Runs the first one alone, and prints what happened in it.
        #[arg(long)]
        trace: bool,
    },
    /// Runs one seed, prints what happened; if a rule is broken, also the smallest world that breaks it.
    Seed {
        /// The seed.
        seed: u64,
        /// Leaves the world as it is.
        #[arg(long)]
        whole: bool,
    },
    /// Looks at every world of a small size.
    Explore {
        /// How many faults there may be on one way.
        #[arg(default_value_t = 1)]
        faults: u8,
        /// What is looked at; everything, if nothing is named.
        #[arg(long)]
        model: Option<ModelName>,
        /// How many states to look at, at the most.
        #[arg(long, default_value_t = 10_000_000)]
        states: usize,
        /// Plants each bug in turn instead, and says how it shows; many concern none of the models.
        #[arg(long)]
        planted: bool,
    },
}

/// The models of the explorer.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelName {
    /// One run that is started with an idempotency key, and gets a signal with an id.
    OneRunByKey,
    /// The same without either: only the nonces of requests tell that one comes again.
    OneRunByNonce,
    /// Two cells, with a parent that waits for its child.
    ParentAndChild,
    /// The same, but the parent does not wait for long enough and cancels its child.
    ImpatientParent,
    /// The same, but the parent ends as soon as its child is started, which cancels it.
    LeavingParent,
    /// A sender and a receiver with one message.
    OneMessage,
}

impl ModelName {
    fn explore(self, bounds: Bounds, sabotage: Option<Sabotage>, states: usize) -> Report {
        match self {
            Self::OneRunByKey => explore(&OneRun::new(Start::ByKey, bounds, sabotage), states),
            Self::OneRunByNonce => explore(&OneRun::new(Start::ByNonce, bounds, sabotage), states),
            Self::ParentAndChild => explore(&Family::waiting(bounds, sabotage), states),
            Self::ImpatientParent => explore(&Family::impatient(bounds, sabotage), states),
            Self::LeavingParent => explore(&Family::leaving(bounds, sabotage), states),
            Self::OneMessage => explore(&Family::message(bounds, sabotage), states),
        }
    }
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Run { seeds, first, tree, threads } => {
            let seeds = match (first, tree) {
                (None, Some(tree)) => Seeds::of_tree(&tree, seeds),
                (first, _) => Seeds::from(first.unwrap_or(1), seeds),
            };
            run(seeds, threads)
        }
        Command::Seed { seed, whole } => one(seed, whole),
        Command::Planted { seeds } => planted(seeds),
        Command::Schedules { first, trace: true, .. } => {
            world_of("schedules", first, schedules::simulate(first, None, true))
        }
        Command::Schedules { seeds, first, trace: false } => {
            let planted = schedules::Planted::ALL;
            worlds_of("schedules", first..first + seeds, &planted, schedules::simulate)
        }
        Command::Lanes { first, trace: true, .. } => {
            world_of("lanes", first, lanes::simulate(first, None, true))
        }
        Command::Lanes { seeds, first, trace: false } => {
            worlds_of("lanes", first..first + seeds, &lanes::Planted::ALL, lanes::simulate)
        }
        Command::Queues { first, trace: true, .. } => {
            world_of("queues", first, queues::simulate(first, None, true))
        }
        Command::Queues { seeds, first, trace: false } => {
            worlds_of("queues", first..first + seeds, &queues::Planted::ALL, queues::simulate)
        }
        Command::Topics { first, trace: true, .. } => topics_world(first),
        Command::Topics { seeds, first, trace: false } => topics_worlds(first, seeds),
        Command::Survey { seeds, first } => {
            survey(first, seeds);
            Ok(())
        }
        Command::Explore { faults, model, states, planted: false } => {
            explore_all(Bounds::of(faults), model, states)
        }
        Command::Explore { faults, model, states, planted: true } => {
            explore_planted(Bounds::of(faults), model.unwrap_or(ModelName::OneRunByKey), states);
            Ok(())
        }
    }
}

fn explore_all(bounds: Bounds, only: Option<ModelName>, states: usize) -> anyhow::Result<()> {
    println!("{bounds}");
    for model in ModelName::value_variants().iter().filter(|model| only.is_none_or(|only| only == **model)) {
        let report = model.explore(bounds, None, states);
        let name = model.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        println!(
            "{name}: {} states, {} of them at rest; {} transitions; depth {}; {:.1} s",
            report.states, report.at_rest, report.transitions, report.depth, report.seconds
        );
        if let Some(found) = report.found {
            println!("a shortest way to break a rule has {} events:", found.events);
            for line in &found.transcript {
                println!("{line}");
            }
            println!("{name} breaks a rule: {}\n  {}", found.rule, found.detail);
            bail!("a rule is broken");
        }
        if report.cut_short {
            bail!("there are more than {states} states: allow fewer faults, or more states");
        }
    }
    Ok(())
}

fn explore_planted(bounds: Bounds, model: ModelName, states: usize) {
    println!("{bounds}");
    for sabotage in Sabotage::ALL {
        let report = model.explore(bounds, Some(sabotage), states);
        match report.found {
            Some(found) => println!("{sabotage:?}: {} events: {}", found.events, found.rule),
            None => println!("{sabotage:?}: not noticed in {} states", report.states),
        }
    }
}

fn run(seeds: Seeds, threads: usize) -> anyhow::Result<()> {
    let (began, count) = (Instant::now(), seeds.count());
    let ((first, fixed), (fresh, new)) = (seeds.fixed, seeds.fresh);
    println!("{fixed} seeds from {first} on");
    if new > 0 {
        println!(
            "{new} seeds of this tree from {fresh} on: `just sim {new} --first {fresh}` runs them again"
        );
    }
    let sum = sweep(seeds, threads, None, |done| {
        if done.is_multiple_of(250) {
            eprint!("\r{done} of {count} seeds, {:.0} s ", began.elapsed().as_secs_f64());
        }
    });
    eprintln!();
    print(&sum, began.elapsed().as_secs_f64());
    if let Some((seed, violation)) = &sum.failure {
        println!("seed {seed} breaks a rule: {}\n  {}", violation.rule, violation.detail);
        println!("to see it again: just sim-seed {seed}");
        bail!("a rule is broken");
    }
    let missing = sum.coverage.missing();
    for (phase, input) in &missing {
        println!("never met: input '{input}' in phase '{phase}'");
    }
    let surprising = sum.coverage.surprising();
    for (phase, input) in &surprising {
        println!("met although it is said to be impossible: input '{input}' in phase '{phase}'");
    }
    if !surprising.is_empty() {
        bail!("{} impossible pairs of phase and input were met: correct `IMPOSSIBLE`", surprising.len());
    }
    if !missing.is_empty() {
        bail!(
            "{} pairs of phase and input were never met: run more seeds, or make them happen",
            missing.len()
        );
    }
    if sum.transitions_min < 200 || sum.faults_min < 20 {
        bail!("a world was too quiet: at least 200 transitions and 20 faults make one");
    }
    Ok(())
}

fn print(sum: &Sweep, seconds: f64) {
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let each_second = sum.seeds as f64 / seconds;
    println!("{} seeds in {seconds:.1} s ({each_second:.0} a second), {} runs", sum.seeds, sum.runs);
    println!("{} transitions, at least {} in a world", sum.transitions, sum.transitions_min);
    println!("what happened hashes to {:016x}", sum.digest);
    println!("{} faults, at least {} in a world:", sum.faults.values().sum::<u64>(), sum.faults_min);
    for (kind, count) in &sum.faults {
        println!("  {count:>9} {kind}");
    }
    let possible = coverage::possible();
    println!("{} of {possible} pairs of phase and input were met", possible - sum.coverage.missing().len());
}

fn planted(seeds: u64) -> anyhow::Result<()> {
    let mut missed = 0;
    for sabotage in Sabotage::ALL {
        match sweep(Seeds::from(1, seeds), 2, Some(sabotage), |_| ()).failure {
            Some((seed, violation)) => println!("{sabotage:?}: seed {seed}: {}", violation.rule),
            None => {
                missed += 1;
                println!("{sabotage:?}: NOT NOTICED");
            }
        }
    }
    if missed > 0 {
        bail!("{missed} of {} planted bugs were not noticed", Sabotage::ALL.len());
    }
    Ok(())
}

/// Runs the worlds of one station, without a bug and with each of those that are planted.
fn worlds_of<P: Copy + Debug>(
    what: &str,
    seeds: Range<u64>,
    planted: &[P],
    simulate: fn(u64, Option<P>, bool) -> Outcome,
) -> anyhow::Result<()> {
    let (mut transitions, mut faults, mut runs) = (0, 0, 0);
    for seed in seeds.clone() {
        let outcome = simulate(seed, None, false);
        if let Some(violation) = outcome.violation {
            println!("to see it again: just sim-{what} 1 --first {seed} --trace");
            bail!("seed {seed} of {what}: {}: {}", violation.rule, violation.detail);
        }
        (transitions, faults, runs) =
            (transitions + outcome.transitions, faults + outcome.faults, runs + outcome.runs);
    }
    let count = seeds.end - seeds.start;
    println!(
        "{count} worlds of {what}: {transitions} transitions, {faults} faults, {runs} runs; no rule is broken"
    );
    for &planted in planted {
        let mut worlds = seeds.clone().map(|seed| (seed, simulate(seed, Some(planted), false)));
        match worlds.find_map(|(seed, outcome)| outcome.violation.map(|violation| (seed, violation))) {
            Some((seed, violation)) => println!("{planted:?}: seed {seed}: {}", violation.rule),
            None => bail!("{planted:?}: NOT NOTICED"),
        }
    }
    Ok(())
}

/// Prints what happened in a world of one station.
fn world_of(what: &str, seed: u64, outcome: Outcome) -> anyhow::Result<()> {
    for line in &outcome.transcript {
        println!("{line}");
    }
    match outcome.violation {
        Some(violation) => bail!("seed {seed} of {what}: {}: {}", violation.rule, violation.detail),
        None => Ok(()),
    }
}

fn topics_world(seed: u64) -> anyhow::Result<()> {
    let outcome = topics::trace(seed, None);
    for line in &outcome.transcript {
        println!("{line}");
    }
    match outcome.violation {
        Some(violation) => bail!("seed {seed} of topics: {}: {}", violation.rule, violation.detail),
        None => Ok(()),
    }
}

fn topics_worlds(first: u64, seeds: u64) -> anyhow::Result<()> {
    let (mut transitions, mut faults, mut events, mut runs, mut waits) = (0, 0, 0, 0, 0);
    let (mut met, mut broken): (BTreeMap<&str, u64>, BTreeMap<_, _>) = (BTreeMap::new(), BTreeMap::new());
    for seed in first..first + seeds {
        let outcome = topics::simulate(seed, None);
        (transitions, faults) = (transitions + outcome.transitions, faults + outcome.faults);
        (events, runs, waits) = (events + outcome.events, runs + outcome.runs, waits + outcome.waits);
        for (what, count) in outcome.met {
            *met.entry(what).or_default() += count;
        }
        if let Some(violation) = outcome.violation {
            broken.entry(violation.rule).or_insert((0, seed, violation.detail)).0 += 1;
        }
    }
    println!(
        "{seeds} worlds of topics: {transitions} transitions, {faults} faults, {events} events, {runs} runs of events, \
         {waits} waits"
    );
    for (what, count) in &met {
        println!("  {count:>9} {what}");
    }
    for (rule, (count, seed, detail)) in &broken {
        println!("{count} worlds break a rule: {rule}\n  {detail}");
        println!("to see it again: just sim-topics 1 --first {seed} --trace");
    }
    if !broken.is_empty() {
        bail!("{} rules are broken", broken.len());
    }
    topics_planted(first, seeds)?;
    let missing: Vec<_> = topics::COVERED.iter().filter(|what| !met.contains_key(**what)).collect();
    if !missing.is_empty() {
        bail!("never met: {missing:?}: run more seeds, or make them happen");
    }
    Ok(())
}

fn topics_planted(first: u64, seeds: u64) -> anyhow::Result<()> {
    let mut missed = 0;
    for planted in topics::Planted::ALL {
        let mut worlds = (first..first + seeds).map(|seed| (seed, topics::simulate(seed, Some(planted))));
        match worlds.find_map(|(seed, outcome)| outcome.violation.map(|violation| (seed, violation))) {
            Some((seed, violation)) => println!("{planted:?}: seed {seed}: {}", violation.rule),
            None => {
                missed += 1;
                println!("{planted:?}: NOT NOTICED");
            }
        }
    }
    if missed > 0 {
        bail!("{missed} of {} planted bugs were not noticed", topics::Planted::ALL.len());
    }
    Ok(())
}

fn survey(first: u64, seeds: u64) {
    let mut broken = BTreeMap::new();
    for seed in first..first + seeds {
        if let Some(violation) = simulate(seed, None, false).violation {
            broken.entry(violation.rule).or_insert((0, seed, violation.detail)).0 += 1;
        }
    }
    for (rule, (count, seed, detail)) in &broken {
        println!("{count:>6} seeds, first {seed}: {rule}\n         {detail}");
    }
    println!("{} rules are broken", broken.len());
}

fn one(seed: u64, whole: bool) -> anyhow::Result<()> {
    let outcome = simulate(seed, None, true);
    let Some(violation) = outcome.violation else {
        for line in &outcome.transcript {
            println!("{line}");
        }
        println!("seed {seed}: no rule is broken; {} transitions", outcome.transitions);
        return Ok(());
    };
    let transcript = if whole {
        outcome.transcript
    } else {
        let script = shrink::shrink(seed, Script::of(seed), None, &violation);
        println!("the smallest script that breaks it:");
        for (at, action) in &script.actions {
            println!("  {at:>7} {action:?}");
        }
        for (at, fault) in &script.faults {
            println!("  {at:>7} {fault:?}");
        }
        println!("  network: {:?}\nwhat happened:", script.noise);
        World::new(seed, script, None, true).run().transcript
    };
    for line in &transcript {
        println!("{line}");
    }
    println!("seed {seed} breaks a rule: {}\n  {}", violation.rule, violation.detail);
    bail!("a rule is broken")
}
