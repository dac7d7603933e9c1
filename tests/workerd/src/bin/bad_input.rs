//! Sends what nobody should send to the real Worker.

use std::process::ExitCode;

use clap::Parser;
use stepwell_workerd_tests::bad_input::{self, Plan};

/// Sends broken JSON, naughty strings, what is just too long, broken HTTP, tampered cursors, calls in the wrong state and
/// more to the real Worker. Whatever is refused is refused with a problem that has a page, and leaves nothing behind;
/// whatever is accepted comes back as it was sent.
#[derive(Parser)]
struct Arguments {
    /// Only this class, or this one case of it: `json`, `json/NAME`.
    #[arg(long)]
    only: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { only } = Arguments::parse();
    let is_all = only.is_none();
    let report = match bad_input::run(&Plan { only }).await {
        Ok(report) => report,
        Err(error) => {
            eprintln!("bad-input: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    println!("{report}");
    match report.check(is_all) {
        Ok(()) => {
            println!("1 passed, 0 failed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bad-input: {error:#}");
            ExitCode::FAILURE
        }
    }
}
