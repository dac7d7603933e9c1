//! Kills workerd again and again while runs go through it, and checks that nothing was lost.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use stepwell_workerd_tests::{
    engine::Form,
    kill::{self, Plan},
};

/// Kills workerd with SIGKILL while runs with steps, sleeps, signals and retries go through, and checks with
/// an outside ledger that no run is lost and no acknowledged step runs again.
#[derive(Parser)]
struct Arguments {
    /// SIGKILLs for each form.
    kills: u32,
    /// Runs for each form.
    runs: u32,
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
            eprintln!("kill: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let forms: &[Form] = match arguments.form.as_str() {
        "all-in-one" => &[Form::AllInOne],
        "split" => &[Form::Split],
        "both" => &[Form::AllInOne, Form::Split],
        other => bail!("there is no form '{other}': say all-in-one, split or both"),
    };
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let plan = Plan {
        kills: arguments.kills,
        runs: arguments.runs,
        cells: arguments.cells,
        pause_ms: 300..1_200,
        seed,
    };
    println!("seed {seed}");
    for &form in forms {
        let report = kill::run(form, &plan).await.with_context(|| {
            format!("{} failed; the same plan again: --seed {seed} --form {}", form.name(), form.name())
        })?;
        println!("{report}");
    }
    println!("{} passed, 0 failed", forms.len());
    Ok(())
}
