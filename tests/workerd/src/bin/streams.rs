//! Follows runs on workerd: how soon streams show a step, and that nothing is missing or twice whatever breaks.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use stepwell_workerd_tests::streams::{self, Plan};

/// Opens streams, half of them server-sent events and half WebSockets: measures how long after its commit a step is
/// shown; kills workerd and lets clients leave and come back, and compares what they saw with the runs' histories; and
/// looks whether a cell sleeps whose streams are idle.
#[derive(Parser)]
struct Arguments {
    /// Runs that are live at once, for the measurement.
    #[arg(long, default_value_t = 200)]
    runs: u32,
    /// Streams that are open at once, for the measurement.
    #[arg(long, default_value_t = 50)]
    streams: u32,
    /// How often clients leave and come back.
    #[arg(long, default_value_t = 100)]
    reconnects: u32,
    /// SIGKILLs of workerd.
    #[arg(long, default_value_t = 10)]
    kills: u32,
    /// Cells in the pool.
    #[arg(long, default_value_t = 16)]
    cells: u32,
    /// Where chance comes from; printed, so that the same plan can be made again.
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { runs, streams, reconnects, kills, cells, seed } = Arguments::parse();
    let seed = seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    match run(&Plan { runs: runs.max(1), streams, reconnects, kills, cells, seed }).await {
        Ok(()) => {
            println!("3 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("streams: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(plan: &Plan) -> Result<()> {
    println!("{}", streams::soon(plan).await?);
    println!("{}", streams::through_breaks(plan).await?);
    println!("{}", streams::asleep().await?);
    Ok(())
}
