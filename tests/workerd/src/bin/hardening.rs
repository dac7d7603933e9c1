//! Runs the scenarios of `hardening` on the real workerd: a line for each, with its figure.

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use stepwell_workerd_tests::hardening::{SCENARIOS, Size};

/// Runs each scenario, prints its figure, and fails if a bound is broken.
#[derive(Parser)]
struct Arguments {
    /// Run at the sizes that the findings name (less than 25 minutes) instead of those for CI.
    #[arg(long)]
    full: bool,
    /// Run only the scenarios whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { full, only } = Arguments::parse();
    let size = if full { Size::Full } else { Size::Small };
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let (mut ran, mut broken) = (0, 0);
    for scenario in SCENARIOS.iter().filter(|scenario| wanted(scenario.name)) {
        let began = Instant::now();
        let outcome = (scenario.run)(size).await;
        let (mark, figure) = match outcome {
            Ok(figure) => ("ok", figure),
            Err(error) => {
                broken += 1;
                ("BROKEN", format!("{error:#}"))
            }
        };
        ran += 1;
        let seconds = began.elapsed().as_secs_f64();
        println!("{mark:<6} {} ({seconds:.1} s): {}: {figure}", scenario.name, scenario.shows);
    }
    println!("{ran} scenarios, {broken} broken");
    if ran == 0 || broken > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
