//! Asks every route as every kind of caller, and lets one namespace do what it can to another.

use std::process::ExitCode;

use clap::Parser;
use stepwell_workerd_tests::{
    access::{self, Plan},
    engine::Form,
};

/// Asks every route of the table as every kind of caller, does random operations on another namespace's things,
/// revokes keys while they are in use, and looks for keys and tokens in the storage files and the log.
#[derive(Parser)]
struct Arguments {
    /// Operations across namespaces.
    #[arg(long, default_value_t = 10_000)]
    crossings: u32,
    /// Keys that are revoked while they are in use.
    #[arg(long, default_value_t = 20)]
    revocations: u32,
    /// Where chance comes from; printed, so that the same operations can be made again.
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { crossings, revocations, seed } = Arguments::parse();
    let seed = seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    match access::run(&Plan { form: Form::AllInOne, crossings, revocations, seed }).await {
        Ok(report) => {
            println!("{report}\n1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("access-matrix: {error:#}");
            ExitCode::FAILURE
        }
    }
}
