//! Kills workerd again and again while runs go through limits and jobs through queues: see the module `lanes`.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use stepwell_workerd_tests::{engine::Form, lanes};

/// Kills workerd with SIGKILL while runs of fifty customers go through limits, and jobs through queues, and checks from outside
/// that no more of them were ever at work than the limits say, that all of them end, and that no place is left behind.
#[derive(Parser)]
struct Arguments {
    /// SIGKILLs for each form.
    kills: u32,
    /// Runs for each form.
    runs: u32,
    /// Jobs for each form: half of them are claimed, half are pushed.
    jobs: u32,
    /// `all-in-one`, `split` or `both`.
    #[arg(long, default_value = "both")]
    form: String,
    /// Where chance comes from; printed, so that the same plan can be made again.
    #[arg(long)]
    seed: Option<u64>,
    /// Cells in the pool.
    #[arg(long, default_value_t = 16)]
    cells: u32,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kill-lanes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    ensure!(arguments.runs > 0, "there have to be runs");
    for &form in Form::named(&arguments.form)? {
        let Arguments { kills, runs, jobs, cells, .. } = *arguments;
        let report = lanes::run(form, kills, runs, jobs, cells, seed).await;
        let report =
            report.with_context(|| format!("{} failed; the same plan again: --seed {seed}", form.name()))?;
        println!("{report}");
    }
    Ok(())
}
