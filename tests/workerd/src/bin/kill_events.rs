//! Kills workerd again and again while events go through it: see the module `events`.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use futures::future::join_all;
use stepwell_workerd_tests::{engine::Form, events};

/// Kills workerd with SIGKILL while clients send events, and checks that each accepted event is there once, has started one
/// run for each trigger that it meets, and has reached the runs that wait for it or that it cancels.
#[derive(Parser)]
struct Arguments {
    /// SIGKILLs for each form.
    kills: u32,
    /// Events for each form.
    events: u32,
    /// `all-in-one`, `split` or `both`, which run at the same time: a wait takes a minute to time out.
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
            eprintln!("kill-events: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let forms = Form::named(&arguments.form)?;
    let seed = arguments.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    ensure!(arguments.events > 0, "there have to be events");
    let one = async |&form: &Form| {
        events::run(form, arguments.kills, arguments.events, arguments.cells, seed).await
    };
    let reports = join_all(forms.iter().map(one)).await;
    let mut failed = 0;
    for (form, report) in forms.iter().zip(reports) {
        match report.with_context(|| format!("{} failed; the same plan again: --seed {seed}", form.name())) {
            Ok(report) => println!("{report}"),
            Err(error) => {
                failed += 1;
                eprintln!("{error:#}");
            }
        }
    }
    println!("{} passed, {failed} failed", forms.len() - failed);
    ensure!(failed == 0, "{failed} of {} forms failed", forms.len());
    Ok(())
}
