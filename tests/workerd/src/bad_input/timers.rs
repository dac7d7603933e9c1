//! Times that are over, never come, or are none: as inputs of workflows that sleep and wait. There is no cron yet.

use anyhow::{Result, ensure};
use stepwell_protocol::Timestamp;

use super::{
    bench::{Bench, expect_success, run_id, shown},
    case::{Case, Kind},
    wire::Request,
};

/// What becomes of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// It is over at once.
    Over,
    /// It waits, until whenever that is.
    Waits,
    /// What it was told is no time.
    Fails,
}

const NUMBERS: &[(&str, Then)] = &[
    ("0", Then::Over),
    ("-0", Then::Fails),
    ("1", Then::Over),
    ("3600000", Then::Waits),
    // A second more than 32 bits of seconds, and of milliseconds.
    ("2147483648000", Then::Waits),
    ("4294967296", Then::Waits),
    ("9007199254740991", Then::Waits),
    ("9007199254740993", Then::Waits),
    // The end of the year 9999, and a millisecond after it.
    ("253402300799999", Then::Waits),
    ("253402300800000", Then::Waits),
    // What a date of JavaScript can hold, and cannot.
    ("8640000000000000", Then::Waits),
    ("8640000000000001", Then::Waits),
    ("9223372036854775807", Then::Waits),
    ("9223372036854775808", Then::Waits),
    ("18446744073709551615", Then::Waits),
    ("18446744073709551616", Then::Fails),
    ("1e400", Then::Fails),
    ("1.5", Then::Fails),
    ("1e3", Then::Fails),
    ("-1", Then::Fails),
    ("-9223372036854775808", Then::Fails),
    ("null", Then::Fails),
    ("true", Then::Fails),
    ("\"CANARY\"", Then::Fails),
    ("\"1s\"", Then::Fails),
    ("\"2026-02-30\"", Then::Fails),
    ("\"2026-03-29T02:30:00+01:00\"", Then::Fails),
    ("[]", Then::Fails),
    ("{}", Then::Fails),
];

/// All of them.
pub fn make(_: &Bench) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, (input, then)) in NUMBERS.iter().enumerate() {
        cases.push(timer(format!("sleep-{number}"), "nap", input, *then));
        // A wait that is over without a signal is over.
        cases.push(timer(format!("wait-{number}"), "wait", input, *then));
        // An hour after 1970 is over, too.
        let is_past = input.parse::<u64>().is_ok_and(|at_ms| at_ms < 1_700_000_000_000);
        let then = if is_past { Then::Over } else { *then };
        cases.push(timer(format!("until-{number}"), "until", input, then));
    }
    cases
}

fn timer(name: String, workflow: &'static str, input: &'static str, then: Then) -> Case {
    // A run is accepted whatever its input is, if that is JSON: only its workflow can read it.
    Case::new(Kind::Accepted, name, move |bench| async move {
        let start = Request::post(format!("/api/workflows/{workflow}/start"), input);
        let wait = if then == Then::Waits { "wait=0" } else { "wait=10" };
        let answer = bench.ask(&start.header("Prefer", wait)).await?;
        expect_success(&answer)?;
        let run = run_id(&answer)?;
        let wanted = match (then, workflow) {
            (Then::Over, _) => "completed",
            (Then::Fails, _) => "failed",
            (Then::Waits, "wait") => "waiting",
            (Then::Waits, _) => "sleeping",
        };
        let view = bench.admin.until(&run, wanted).await?;
        look(&bench, &run).await?;
        if then != Then::Waits {
            return Ok(());
        }
        let wakes_at = view["wakes_at"].as_u64();
        let is_sane = wakes_at.is_some_and(|at| at <= Timestamp::MAX.as_millis());
        ensure!(is_sane, "it wakes at {}", shown(&view.to_string()));
        expect_success(&bench.ask(&Request::post(format!("/api/executions/{run}/cancel"), "")).await?)
    })
}

async fn look(bench: &Bench, run: &str) -> Result<()> {
    for what in ["", "/why", "/history", "/stream"] {
        expect_success(&bench.ask(&Request::get(format!("/api/executions/{run}{what}"))).await?)?;
    }
    Ok(())
}
