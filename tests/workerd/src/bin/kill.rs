//! Kills workerd again and again while runs go through it, and checks that nothing was lost.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use stepwell_workerd_tests::{
    engine::{Build, Form},
    kill::{self, Plan, Transport},
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
    /// What a panic does in the bundles: `abort`, `unwind` or `both`.
    #[arg(long, default_value = "abort")]
    build: String,
    /// Runs that are live at once, at the least.
    #[arg(long, default_value_t = 0)]
    live: u32,
    /// `direct`: cells call programs, on workerd; `queued`: through a queue, under Miniflare; `both`: half and
    /// half, under Miniflare.
    #[arg(long, default_value = "direct")]
    transport: String,
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
    let forms = Form::named(&arguments.form)?;
    let builds: &[Build] = match arguments.build.as_str() {
        "abort" => &[Build::Abort],
        "unwind" => &[Build::Unwind],
        "both" => &[Build::Abort, Build::Unwind],
        other => bail!("there is no build '{other}': say abort, unwind or both"),
    };
    ensure!(
        arguments.live <= arguments.runs,
        "{} runs cannot be live at once: there are fewer",
        arguments.live
    );
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let plan = Plan {
        kills: arguments.kills,
        runs: arguments.runs,
        live: arguments.live,
        cells: arguments.cells,
        transport: Transport::named(&arguments.transport)?,
        pause_ms: 300..1_200,
        seed,
    };
    println!("seed {seed}");
    for &build in builds {
        for &form in forms {
            let report = kill::run(form, build, &plan).await.with_context(|| {
                let (form, build, transport) = (form.name(), build.name(), &arguments.transport);
                format!(
                    "{form} failed; the same plan again: --seed {seed} --form {form} --build {build} \
                     --transport {transport}"
                )
            })?;
            println!("{report}");
        }
    }
    println!("{} passed, 0 failed", builds.len() * forms.len());
    Ok(())
}
