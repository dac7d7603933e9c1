//! CPU time of single things: the workerd process's own, over many of them, divided by their number.
//!
//! The process also parses HTTP, writes to the disk and collects garbage, and all of that is in the figures. So
//! they are an upper bound of the CPU time that Cloudflare bills, which leaves much of it out.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use stepwell_workerd_tests::{Workerd, engine::KEY};

use crate::{
    load::{Load, as_f64},
    report,
    system::System,
};

/// Runs before anything is measured.
const WARM_UP_RUNS: u64 = 3_000;

/// Steps of the long run, whose cost beyond that of an empty run is that of its commits.
const LONG: u32 = 100;

/// Sleeps of one run whose wake-ups are measured.
const NAPS: u32 = 200;

/// What the wake-ups of a long run find in the journal on average.
const ENTRIES: u32 = 1_000;

/// How long a run may take to get where it is wanted.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to measure, and for how long.
#[derive(Args, Debug)]
pub struct Options {
    /// Only these; may be given several times.
    #[arg(long = "system", value_enum)]
    systems: Vec<System>,
    /// Seconds for each figure.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Runs whose wake-ups are measured.
    #[arg(long, default_value_t = 5)]
    sleepers: u32,
}

/// One element of `cpu.json`, in milliseconds of CPU time.
#[derive(Clone, Debug, Serialize)]
struct Figure {
    system: &'static str,
    start_ms: f64,
    commit_ms: f64,
    ten_step_run_ms: f64,
    /// Only Stepwell replays.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_up_short_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_up_1000_entries_ms: Option<f64>,
}

/// Measures, prints and writes.
pub async fn run(options: &Options) -> Result<()> {
    ensure!((0.1..=600.0).contains(&options.seconds), "--seconds is from 0.1 to 600");
    let systems = match options.systems.as_slice() {
        [] => vec![System::Bare, System::BareSplit, System::Stepwell, System::StepwellSplit],
        chosen => chosen.to_vec(),
    };
    let mut figures = Vec::new();
    for system in systems {
        figures.push(measure(system, options).await.with_context(|| system.name())?);
    }
    print(&figures);
    report::write_json(&report::folder()?.join("cpu.json"), &figures)?;
    println!("\nwritten: target/bench/cpu.json");
    Ok(())
}

async fn measure(system: System, options: &Options) -> Result<Figure> {
    let workerd = Workerd::start(&system.config(false, "")?).await?;
    let seconds = Duration::from_secs_f64(options.seconds);
    load(system, &workerd.address(), 10, seconds)
        .warm_process(WARM_UP_RUNS.min(system.runs_max() / 8))
        .await?;
    let empty = cpu_of_runs(&workerd, system, 0, seconds).await?;
    let ten = cpu_of_runs(&workerd, system, 10, seconds).await?;
    let long = cpu_of_runs(&workerd, system, LONG, seconds).await?;
    let (mut short, mut replay) = (None, None);
    if system.is_stepwell() {
        short = Some(cpu_of_wake_ups(&workerd, system, 0, options.sleepers).await?);
        // Besides its steps, a journal has the signal, and on average half of the sleeps.
        let steps = ENTRIES - 1 - NAPS / 2;
        replay = Some(cpu_of_wake_ups(&workerd, system, steps, options.sleepers).await?);
    }
    Ok(Figure {
        system: system.name(),
        start_ms: report::rounded(empty),
        commit_ms: report::rounded((long - empty) / f64::from(LONG)),
        ten_step_run_ms: report::rounded(ten),
        wake_up_short_ms: short.map(report::rounded),
        wake_up_1000_entries_ms: replay.map(report::rounded),
    })
}

/// Milliseconds of CPU time for each run, from its start to its end, one at a time.
async fn cpu_of_runs(workerd: &Workerd, system: System, steps: u32, seconds: Duration) -> Result<f64> {
    let address = workerd.address();
    let load = load(system, &address, steps, seconds);
    let before = cpu_time(workerd)?;
    let sample = load.run(|_, _| Ok(())).await?;
    let spent = cpu_time(workerd)?.saturating_sub(before);
    let runs = as_f64(usize::try_from(sample.runs)?);
    eprintln!("{}: {runs} runs of {steps} steps, {:.2} s of CPU time", system.name(), spent.as_secs_f64());
    Ok(spent.as_secs_f64() * 1_000.0 / runs)
}

fn load(system: System, address: &str, steps: u32, measured: Duration) -> Load<'_> {
    let runs_max = system.runs_max() / 8;
    Load { system, address, steps, concurrency: 1, warm_up: Duration::ZERO, measured, runs_max }
}

/// Milliseconds of CPU time for each activation of a run that sleeps again and again after this many steps.
async fn cpu_of_wake_ups(workerd: &Workerd, system: System, steps: u32, sleepers: u32) -> Result<f64> {
    let plan = json!({ "steps": steps, "naps": NAPS });
    let (mut spent, mut activations) = (Duration::ZERO, 0);
    for _ in 0..sleepers {
        let run = post(workerd, "/api/workflows/naps/start", &plan).await?;
        let run = run["id"].as_str().context("a run has an id")?.to_owned();
        let activated_before = until(workerd, &run, "waiting").await?;
        let before = cpu_time(workerd)?;
        post(workerd, &format!("/api/executions/{run}/signals/go"), &Value::Null).await?;
        activations += until(workerd, &run, "completed").await? - activated_before;
        spent += cpu_time(workerd)?.saturating_sub(before);
    }
    ensure!(
        activations >= u64::from(NAPS * sleepers),
        "only {activations} activations: not every sleep has called the program again"
    );
    eprintln!(
        "{}: {activations} activations after {steps} steps, {:.2} s of CPU time",
        system.name(),
        spent.as_secs_f64()
    );
    Ok(spent.as_secs_f64() * 1_000.0 / as_f64(usize::try_from(activations)?))
}

async fn post(workerd: &Workerd, path: &str, body: &Value) -> Result<Value> {
    let http = workerd.http();
    let request = http.client().post(http.url(path)).bearer_auth(KEY).body(body.to_string());
    http.send(request, path).await?.json()
}

/// Waits until a run has this status; gives how often its program was called. The engine holds the answer back
/// for an end, so that waiting costs it nothing; other statuses are asked for now and then.
async fn until(workerd: &Workerd, run: &str, wanted: &str) -> Result<u64> {
    let (http, path, began) = (workerd.http(), format!("/api/executions/{run}"), Instant::now());
    let wait = if wanted == "completed" { "wait=20" } else { "wait=0" };
    loop {
        let request = http.client().get(http.url(&path)).bearer_auth(KEY).header("prefer", wait);
        let view = http.send(request, &path).await?.json()?;
        if view["status"] == wanted {
            return view["activations"].as_u64().context("a run has activations");
        }
        ensure!(began.elapsed() < PATIENCE, "{run} never was {wanted}: {view}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The CPU time that a process has used so far, in all its threads.
fn cpu_time(workerd: &Workerd) -> Result<Duration> {
    let path = format!("/proc/{}/stat", workerd.pid().context("workerd does not run")?);
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let ticks = ticks(&text).with_context(|| format!("{path}: {text}"))?;
    Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second())?)
}

/// User and system time in a line of `/proc/PID/stat`: fields 14 and 15. The second one is a name in brackets,
/// which may have spaces.
fn ticks(stat: &str) -> Option<u64> {
    let after_name = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn print(figures: &[Figure]) {
    println!("CPU time of the workerd process (user and system, /proc/PID/stat), one run at a time.");
    println!("It has HTTP, storage and garbage collection in it: an upper bound of what is billed.\n");
    println!("  start     a run without steps, from the request to the answer that it has completed");
    println!("  commit    a run of {LONG} steps less one without, divided by {LONG}");
    println!("  ten steps a run of ten steps, from the request to the answer that it has completed");
    println!(
        "  wake-up   an alarm, a new call of the program and its replay, over {NAPS} sleeps of 1 ms of a"
    );
    println!("            run; short: it did no steps before, so {} entries on average;", NAPS / 2 + 1);
    println!("            1,000: it did {} before, so {ENTRIES} on average\n", ENTRIES - 1 - NAPS / 2);
    println!(
        "{:<15}{:>10}{:>11}{:>14}{:>18}{:>18}",
        "ms", "start", "commit", "ten steps", "wake-up, short", "wake-up, 1,000"
    );
    for figure in figures {
        let optional = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.3}"));
        println!(
            "{:<15}{:>10.3}{:>11.3}{:>14.3}{:>18}{:>18}",
            figure.system,
            figure.start_ms,
            figure.commit_ms,
            figure.ten_step_run_ms,
            optional(figure.wake_up_short_ms),
            optional(figure.wake_up_1000_entries_ms)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticks_are_found_behind_any_name() {
        let line = "4711 (a (strange) name) S 1 4711 4711 0 -1 4194304 500 0 0 0 120 34 0 0 20 0 8 0";
        assert_eq!(ticks(line), Some(154));
        assert_eq!(ticks("4711 (cut off) S 1 2"), None);
    }
}
