//! The bench: Stepwell beside hand-written Durable Objects, on the same workerd, with the same client.
//!
//! `just bench` and `just bench-cpu` build the release bundles and run this. See `docs/benchmarks.md`.

mod chart;
mod count;
mod cpu;
mod jobs;
mod load;
mod machine;
mod observers;
mod postgres;
mod report;
mod size;
mod speed;
mod system;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Stepwell beside hand-written Durable Objects on workerd.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs and steps per second, waiting times, rows and requests; and the size and cold start of the bundles.
    Speed(speed::Options),
    /// CPU time of a start, a commit, a run of ten steps, and of waking up after a thousand entries.
    Cpu(cpu::Options),
    /// Jobs of queues beside hand-written objects, and beside libraries on Postgres: speed, waiting times, rows.
    Jobs(jobs::Options),
    /// The size of the bundles, and how long a cold start takes.
    Size,
}

// One thread: the client shares the machine with what it measures.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<()> {
    machine::raise_limits()?;
    match command {
        Command::Speed(options) => {
            machine::print()?;
            speed::run(&options).await
        }
        Command::Cpu(options) => {
            machine::print()?;
            cpu::run(&options).await
        }
        Command::Jobs(options) => {
            machine::print()?;
            jobs::run(&options).await
        }
        Command::Size => size::print().await,
    }
}
