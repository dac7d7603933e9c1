//! Starts runs by their keys, many times at once, while the pool grows, and checks that each key has one run.

use std::process::ExitCode;

use clap::Parser;
use stepwell_workerd_tests::growth::{self, Plan};

/// Sends keyed starts through two Workers over the same cells, one that knows 16 cells and one that knows
/// that the pool has grown to 64 more, kills workerd in the middle, and checks that each key has one run.
#[derive(Parser)]
struct Arguments {
    /// Starts in all.
    starts: u32,
    /// How many of them are for the same key.
    #[arg(long, default_value_t = 10)]
    duplicates: u32,
    /// How many are under way at once.
    #[arg(long, default_value_t = 64)]
    at_once: usize,
    /// SIGKILLs in the middle.
    #[arg(long, default_value_t = 1)]
    kills: u32,
    /// Where chance comes from; printed, so that the same order can be made again.
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { starts, duplicates, at_once, kills, seed } = Arguments::parse();
    let seed = seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    match growth::run(&Plan { starts, duplicates, at_once, kills, seed }).await {
        Ok(report) => {
            println!("{report}\n1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("growth: {error:#}");
            ExitCode::FAILURE
        }
    }
}
