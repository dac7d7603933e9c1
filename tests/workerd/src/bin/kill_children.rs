//! Kills workerd again and again while families of runs go through it: see the module `family`.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use stepwell_workerd_tests::{
    engine::Form,
    family::{self, PARENTS},
};

/// The most rows that a child costs beyond a run of its own.
const ROWS_MAX: f64 = 10.0;

/// Kills workerd with SIGKILL while parents invoke children on three levels, and checks that none is lost, none is
/// started twice, and each parent has each result once.
#[derive(Parser)]
struct Arguments {
    /// SIGKILLs for each form.
    kills: u32,
    /// Parents for each form: each family has 11, and 110 children.
    parents: u32,
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
            eprintln!("kill-children: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let forms = Form::named(&arguments.form)?;
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let families = arguments.parents.div_ceil(PARENTS);
    println!("seed {seed}");
    for &form in forms {
        let report = family::run(form, arguments.kills, families, arguments.cells, seed)
            .await
            .with_context(|| format!("{} failed; the same plan again: --seed {seed}", form.name()))?;
        println!("{report}");
        let rows = family::rows_for_each_child(form).await?;
        println!("  {rows:.1} rows for each child beyond a run of its own");
        ensure!(rows <= ROWS_MAX, "a child costs more than {ROWS_MAX} rows");
    }
    println!("{} passed, 0 failed", forms.len());
    Ok(())
}
