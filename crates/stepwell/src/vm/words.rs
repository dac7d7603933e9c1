//! What people are told when a workflow cannot go on.

use stepwell_protocol::{
    Code, Failure, Op, Problem,
    program::{Command, Retry},
    wait_token::URL_VARIABLE,
};

use crate::App;

/// How many things a person is shown of what a workflow waits for.
const SHOWN_MAX: usize = 8;

/// The program does not have the workflow that it was asked for.
pub(super) fn unknown_workflow(app: &App, name: &str) -> Problem {
    let known: Vec<_> = app.names().collect();
    let detail = format!(
        "The program has no workflow '{name}'; it has: {}. Deploy one that has it, then resume the run.",
        known.join(", ")
    );
    Problem::new(Code::WorkflowNotFound, detail)
}

/// The journal goes on with something that the code does not wait for.
pub(super) fn divergence<'a>(
    waits_for: impl ExactSizeIterator<Item = &'a Op>,
    expected: &Op,
    workflow_ended: bool,
) -> Problem {
    let more = waits_for.len().saturating_sub(SHOWN_MAX);
    let all = waits_for.map(|op| format!("{} '{}'", op.kind.as_str(), op.name));
    let mut waiting: Vec<_> = all.take(SHOWN_MAX).collect();
    if more > 0 {
        waiting.push(format!("{more} more"));
    }
    let actual = if workflow_ended {
        "the workflow has already returned".to_owned()
    } else if waiting.is_empty() {
        "the code waits for nothing".to_owned()
    } else {
        format!("the code waits for {}", waiting.join(", "))
    };
    let detail = format!(
        "The journal goes on with {} '{}' (occurrence {}), but {actual}. Code outside of steps must do \
         the same on every replay. If you renamed or moved it, restore the old code for this run, or keep both \
         ways with `ctx.patched`; then deploy and resume the run.",
        expected.kind.as_str(),
        expected.name,
        // People count from one, here as in `stepwell restart --occurrence`.
        u64::from(expected.occurrence) + 1
    );
    Problem::new(Code::Diverged, detail)
}

/// What is said of a step that must not run twice and was cut short.
pub(super) fn interrupted(op: &Op) -> Command {
    let message = "it was interrupted, and must not run twice: check whether it took effect";
    Command::StepFailed {
        op: op.clone(),
        attempt: 1,
        failure: Failure::coded(Code::StepInterrupted, message),
        retry: Retry { attempts: 1, ..Retry::default() },
        retry_after_ms: None,
        took_ms: None,
    }
}

/// The journal has another child than the code invokes: each with its workflow, and whether it is detached.
pub(super) fn another_child(op: &Op, recorded: (&str, bool), actual: (&str, bool)) -> Problem {
    let of = |(workflow, detached): (&str, bool)| {
        format!("{} run of workflow '{workflow}'", if detached { "a detached" } else { "an awaited" })
    };
    let detail = format!(
        "The journal goes on with child '{}' (occurrence {}) as {}, but the code invokes {}. Code outside of steps must \
         do the same on every replay. Restore the old code for this run, or keep both ways with `ctx.patched`; then \
         deploy and resume the run.",
        op.name,
        u64::from(op.occurrence) + 1,
        of(recorded),
        of(actual)
    );
    Problem::new(Code::Diverged, detail)
}

/// A token has a link, and there is nothing to make one with.
pub(crate) fn no_address(op: &Op) -> Problem {
    let detail = format!(
        "The workflow makes token '{}', and the engine does not know its public address. Set the variable \
         {URL_VARIABLE} of the engine to it, such as https://flows.example.com, then resume the run.",
        op.name
    );
    Problem::new(Code::UrlMissing, detail)
}
