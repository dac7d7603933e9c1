//! How large it gets on the real workerd: prints counts, times and memory.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use stepwell_workerd_tests::{
    engine::Form,
    size::{bulk, hung, jobs, lane, listed, live, long, sleeping},
};

/// Runs Stepwell at a size, and prints what that took. Fails if something that must hold does not.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Many runs at once, each with a step of about a second.
    Live {
        /// How many.
        runs: u32,
        /// Cells in the pool.
        #[arg(long, default_value_t = 16)]
        cells: u32,
        /// Programs that one cell calls at once.
        #[arg(long, default_value_t = 100)]
        window: u32,
    },
    /// Many runs asleep in one cell, which is then loaded anew.
    Sleeping {
        /// How many.
        runs: u32,
    },
    /// One run with many steps, whose results have 1,000 bytes.
    Long {
        /// How many steps.
        steps: u32,
        /// Kills workerd half way.
        #[arg(long)]
        kill: bool,
        /// Engine and app in two processes.
        #[arg(long)]
        split: bool,
        /// What one activation may do: `STEPWELL_COMMITS`.
        #[arg(long)]
        commits: Option<u32>,
        /// The most that the heap of the isolate may take, in MiB.
        #[arg(long, default_value_t = long::HEAP_MIB)]
        heap: u32,
    },
    /// Many runs cancelled by a filter, with a kill half way.
    Bulk {
        /// How many.
        runs: u32,
        /// Cells in the pool.
        #[arg(long, default_value_t = 16)]
        cells: u32,
        /// Engine and app in two processes.
        #[arg(long)]
        split: bool,
    },
    /// Pages, searches and counts over many runs.
    Listed {
        /// How many.
        runs: u32,
        /// Cells in the pool.
        #[arg(long, default_value_t = 16)]
        cells: u32,
    },
    /// Endpoints that never answer, and another workflow beside them.
    Hung,
    /// Jobs in one queue, which others are sent to and claimed from.
    Jobs {
        /// How many.
        jobs: u32,
        /// Partitions of the queue.
        #[arg(long, default_value_t = 16)]
        partitions: u32,
    },
    /// Runs that wait in one lane, each with a key of its own, and then end ten at once.
    Lane {
        /// How many.
        runs: u32,
        /// Only ten go to work, and the others stay in line.
        #[arg(long)]
        stay: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse().what).await {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("size: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(what: What) -> Result<String> {
    Ok(match what {
        What::Live { runs, cells, window } => live::run(runs, cells, window).await?.to_string(),
        What::Sleeping { runs } => sleeping::run(runs).await?.to_string(),
        What::Long { steps, kill, split, commits, heap } => {
            let form = if split { Form::Split } else { Form::AllInOne };
            long::run(form, steps, commits, heap, kill).await?.to_string()
        }
        What::Bulk { runs, cells, split } => {
            let form = if split { Form::Split } else { Form::AllInOne };
            bulk::run(form, runs, cells).await?.to_string()
        }
        What::Listed { runs, cells } => listed::run(runs, cells).await?.to_string(),
        What::Hung => hung::run().await?.to_string(),
        What::Jobs { jobs, partitions } => jobs::run(jobs, partitions).await?.to_string(),
        What::Lane { runs, stay } => lane::run(runs, stay).await?.to_string(),
    })
}
