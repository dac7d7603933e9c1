//! Panics in users' code, where they can be caught: natively, and in bundles that unwind.

use stepwell::{prelude::*, testing::Test};
use stepwell_protocol::Code;

const RETRY: Retry = Retry { attempts: 3, initial_ms: 10, factor: 1.0, max_ms: 10, jitter: 0.0 };

#[workflow]
async fn slips(ctx: Ctx, how: String) -> Result<u32> {
    let first = ctx.step("first", async || Ok(1)).await?;
    match how.as_str() {
        "workflow" => panic!("the workflow slipped"),
        "step" => {
            let slips = ctx.step_with("slips", async |info: stepwell::StepInfo| {
                assert!(info.attempt > 2, "attempt {} slipped", info.attempt);
                Ok(info.attempt)
            });
            Ok(first + slips.retry(RETRY).await?)
        }
        "always" => {
            let slips = ctx.step("slips", async || -> Result<u32> { panic!("no") });
            Ok(first + slips.retry(RETRY).await?)
        }
        "once" => {
            let slips = ctx.step("slips", async || -> Result<u32> { panic!("no") }).at_most_once();
            Ok(first + slips.or_none().await.unwrap_or(10))
        }
        "beside" => {
            let slips = async { panic!("the other branch slipped") };
            let (other, ()) = futures::join!(ctx.step("other", async || Ok(2)), slips);
            Ok(other?)
        }
        "drop" => {
            struct Slips;
            impl Drop for Slips {
                fn drop(&mut self) {
                    // A second panic in the same moment would end the process: that is Rust's own rule.
                    assert!(std::thread::panicking(), "the drop slipped");
                }
            }
            let _slips = Slips;
            Err(Error::msg("on the way out"))
        }
        _ => Ok(0),
    }
}

fn run(how: &str) -> stepwell::testing::Outcome {
    Test::new(App::new().workflow(slips)).run("slips", how)
}

#[test]
fn a_panic_of_the_workflow_fails_the_run() {
    for (how, said) in [
        ("workflow", "the code panicked: the workflow slipped"),
        ("beside", "the code panicked: the other branch slipped"),
        ("drop", "the code panicked: the drop slipped"),
    ] {
        let outcome = run(how);
        let error = outcome.error();
        assert_eq!((error.code, error.message.as_str()), (Some(Code::Panicked), said));
    }
}

#[test]
fn a_panic_of_a_step_is_a_failed_attempt_and_tried_again() {
    assert_eq!(run("step").output::<u32>(), 4);
    assert_eq!(run("step").ran(), ["first", "slips", "slips", "slips"]);
}

#[test]
fn a_step_that_always_panics_uses_up_its_attempts() {
    let outcome = run("always");
    let error = outcome.error();
    assert_eq!(error.message, "step 'slips' failed: the code panicked: no");
    assert_eq!(error.code, Some(Code::Panicked));
    assert_eq!(outcome.ran(), ["first", "slips", "slips", "slips"]);
}

#[test]
fn a_step_that_must_not_run_twice_does_not_after_a_panic() {
    let outcome = run("once");
    assert_eq!(outcome.output::<u32>(), 11);
    assert_eq!(outcome.ran(), ["first", "slips"]);
}
