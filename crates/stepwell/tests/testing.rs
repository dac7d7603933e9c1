//! What `stepwell::testing` promises to those who test their workflows with it.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    time::SystemTime,
};

use stepwell::{
    prelude::*,
    testing::{Test, crash_everywhere, effect, takes},
};
use stepwell_protocol::{Code, rest::Status};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[workflow]
async fn order(ctx: Ctx, price: u32) -> Result<String> {
    let retry = Retry { attempts: 3, initial_ms: 1_000, factor: 1.0, max_ms: 1_000, jitter: 0.0 };
    let charge = ctx.step_with("charge", async |info| {
        effect(&info, &price);
        Ok(format!("ch_{price}"))
    });
    let charge = charge.retry(retry).await?;
    match ctx.wait::<bool>("shipped").timeout(DAY * 30).await {
        Ok(true) => Ok(charge),
        Ok(false) => {
            ctx.step_with("refund", async |info| {
                effect(&info, &price);
                Ok(())
            })
            .await?;
            Ok("refunded".into())
        }
        Err(_) => Err(Error::msg("nobody knows where it is")),
    }
}

fn app() -> App {
    App::new().workflow(order)
}

/// What a test that must fail says.
fn complaint(test: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(test)).expect_err("it should complain");
    panic.downcast_ref::<String>().expect("it says something").clone()
}

#[test]
fn a_run_gives_its_output_its_history_and_its_effects() {
    let outcome = Test::new(app()).signal("shipped", &true).run("order", &7);
    assert_eq!(outcome.output::<String>(), "ch_7");
    assert_eq!(outcome.status(), Status::Completed);
    assert_eq!(outcome.history().len(), 2, "a signal and a step");
    assert_eq!(outcome.ran(), ["charge"]);
    assert_eq!(outcome.effects().by_key().map(|(_, what)| what).collect::<Vec<_>>(), ["7"]);
    assert_eq!(outcome.slept(), Duration::ZERO);
}

#[test]
fn a_month_passes_at_once() {
    let outcome = Test::new(app()).run("order", &7);
    assert_eq!(outcome.error().message, "nobody knows where it is");
    assert_eq!(outcome.slept(), DAY * 30);
    assert_eq!(outcome.took(), DAY * 30);
}

#[test]
fn a_signal_comes_at_its_time_or_when_somebody_waits_for_it() {
    let later = Test::new(app()).signal_after(DAY * 3, "shipped", &true).run("order", &7);
    assert_eq!(later.slept(), DAY * 3);
    let waiting = Test::new(app()).signal_when_waiting("shipped", &false).run("order", &7);
    assert_eq!(waiting.output::<String>(), "refunded");
    assert_eq!(waiting.slept(), Duration::ZERO);
    let late = Test::new(app()).signal_after(DAY * 31, "shipped", &true).run("order", &7);
    assert_eq!(late.status(), Status::Failed);
}

#[test]
fn a_mock_replaces_the_code_of_a_step_in_every_attempt() {
    let outcome = Test::new(app())
        .mock("charge", |info| if info.attempt < 3 { Err(Error::msg("busy")) } else { Ok("mocked") })
        .signal_when_waiting("shipped", &true)
        .run("order", &7);
    assert_eq!(outcome.output::<String>(), "mocked");
    assert_eq!(outcome.ran(), ["charge", "charge", "charge"]);
    assert_eq!(outcome.slept(), Duration::from_secs(2));
    assert!(outcome.effects().is_empty());
}

#[test]
fn a_mock_that_fails_for_good_fails_the_run() {
    let mock = |_: &stepwell::StepInfo| Err::<(), _>(Terminal::new("declined").into());
    let outcome = Test::new(app()).mock("charge", mock).run("order", &7);
    assert_eq!(outcome.error().message, "step 'charge' failed: declined");
    assert_eq!(outcome.ran(), ["charge"]);
}

#[test]
fn a_run_can_be_cancelled_paused_and_timed_out() {
    let cancelled = Test::new(app()).cancel_after(DAY).run("order", &7);
    assert_eq!(cancelled.status(), Status::Cancelled);
    assert_eq!(cancelled.took(), DAY);
    let paused = Test::new(app())
        .pause_between(DAY, DAY * 60)
        .signal_after(DAY * 2, "shipped", &true)
        .run("order", &7);
    assert_eq!(paused.output::<String>(), "ch_7");
    let late = Test::new(app()).timeout(DAY).run("order", &7);
    assert_eq!(late.error().code, Some(Code::RunTimedOut));
}

#[workflow]
async fn waits(ctx: Ctx) -> Result<()> {
    Ok(ctx.wait("go").await?)
}

#[test]
fn a_run_that_waits_for_ever_says_for_what() {
    let outcome = Test::new(App::new().workflow(waits)).run("waits", &());
    assert_eq!(outcome.status(), Status::Waiting);
    assert!(complaint(|| outcome.output()).contains("a signal that the test does not send: 'go'"));
}

#[test]
fn a_workflow_that_the_app_does_not_have_is_named() {
    let complaint = complaint(|| drop(Test::new(app()).run("ordre", &7)));
    assert_eq!(complaint, "the app has no workflow 'ordre'; it has: order");
}

#[workflow]
async fn slow(ctx: Ctx) -> Result<()> {
    let slow = ctx.step("slow", async || {
        takes(Duration::from_secs(3_600)).await;
        Ok(())
    });
    slow.timeout("2 hours").await?;
    ctx.sleep("sleep", Duration::from_secs(60)).await;
    Ok(())
}

#[test]
fn the_time_of_steps_is_virtual_too() {
    let outcome = crash_everywhere(App::new().workflow(slow), "slow", &());
    assert_eq!(outcome.took(), Duration::from_secs(3_660));
    assert_eq!(outcome.slept(), Duration::from_secs(60));
}

#[workflow]
async fn another_thread(ctx: Ctx) -> Result<u32> {
    let step = ctx.step("compute", async || {
        let (sender, receiver) = futures::channel::oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender.send(7)
        });
        Ok(receiver.await?)
    });
    step.await
}

#[test]
fn a_step_may_wait_for_another_thread() {
    let outcome = Test::new(App::new().workflow(another_thread)).run("another_thread", &());
    assert_eq!(outcome.output::<u32>(), 7);
}

#[test]
fn a_sound_workflow_survives_a_crash_at_every_commit() {
    for shipped in [true, false] {
        let test = Test::new(app()).signal_when_waiting("shipped", &shipped);
        let outcome = test.crash_everywhere("order", &7);
        assert_eq!(outcome.effects().len(), if shipped { 1 } else { 2 });
    }
    let busy = Test::new(app())
        .mock("charge", |info| if info.attempt < 2 { Err(Error::msg("busy")) } else { Ok("mocked") })
        .signal_after(DAY, "shipped", &true);
    assert_eq!(busy.crash_everywhere("order", &7).output::<String>(), "mocked");
}

#[workflow]
async fn pays_once(ctx: Ctx) -> Result<()> {
    let pay = ctx.step_with("pay", async |info| {
        effect(&info, "10");
        Ok(())
    });
    pay.at_most_once().await?;
    ctx.step("mail", async || Ok(())).await?;
    Ok(())
}

#[test]
fn a_step_that_must_not_run_twice_may_fail_in_a_crash() {
    crash_everywhere(App::new().workflow(pays_once), "pays_once", &());
}

#[workflow]
async fn misses_its_limit(ctx: Ctx) -> Result<u32> {
    let step = ctx.step_with("slow", async |info| {
        takes(Duration::from_secs(if info.attempt == 1 { 3_600 } else { 1 })).await;
        Ok(info.attempt)
    });
    step.timeout(Duration::from_secs(60)).await
}

#[test]
fn the_limits_of_steps_hold_in_virtual_time() {
    let outcome = crash_everywhere(App::new().workflow(misses_its_limit), "misses_its_limit", &());
    assert_eq!(outcome.output::<u32>(), 2);
    assert!(outcome.took() < Duration::from_secs(70));
}

#[workflow]
async fn says_no_limit(ctx: Ctx, minutes: u64) -> Result<()> {
    ctx.step("slow", async || {
        takes(Duration::from_secs(60 * minutes)).await;
        Ok(())
    })
    .attempts(1)
    .await?;
    Ok(())
}

#[workflow]
async fn says_an_hour(ctx: Ctx, minutes: u64) -> Result<()> {
    let slow = ctx.step("slow", async || {
        takes(Duration::from_secs(60 * minutes)).await;
        Ok(())
    });
    slow.timeout(Duration::from_secs(3_600)).await?;
    Ok(())
}

#[test]
fn a_step_takes_at_most_five_minutes_unless_it_says_otherwise() {
    let app = || App::new().workflow(says_no_limit).workflow(says_an_hour);
    assert_eq!(Test::new(app()).run("says_no_limit", &4).status(), Status::Completed);
    let failed = Test::new(app()).run("says_no_limit", &6);
    assert_eq!(failed.status(), Status::Failed);
    assert_eq!(failed.took(), Duration::from_secs(300));
    assert_eq!(Test::new(app()).run("says_an_hour", &6).status(), Status::Completed);
}

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// How often this was asked before.
fn calls() -> u32 {
    CALLS.replace(CALLS.get() + 1)
}

#[workflow]
async fn counts_itself(ctx: Ctx) -> Result<()> {
    let name = if calls().is_multiple_of(2) { "heads" } else { "tails" };
    ctx.step(name, async || Ok(())).await?;
    ctx.step("more", async || Ok(())).await?;
    Ok(())
}

#[test]
fn a_branch_on_a_variable_outside_of_the_run_is_found() {
    CALLS.set(0);
    let complaint =
        complaint(|| drop(crash_everywhere(App::new().workflow(counts_itself), "counts_itself", &())));
    assert!(complaint.contains("likely cause"), "{complaint}");
    assert!(complaint.contains("'heads'") && complaint.contains("'tails'"), "{complaint}");
}

#[workflow]
async fn hashes(ctx: Ctx) -> Result<()> {
    // Every HashMap has its own order.
    let prices: HashMap<_, _> = (0..20).map(|n| (format!("item {n}"), n)).collect();
    for (item, price) in prices {
        ctx.step(item, async || Ok(price)).await?;
    }
    Ok(())
}

#[test]
fn the_order_of_a_hash_map_is_found() {
    let complaint = complaint(|| drop(crash_everywhere(App::new().workflow(hashes), "hashes", &())));
    assert!(complaint.contains("HashMap"), "{complaint}");
}

#[workflow]
async fn looks_at_the_clock(ctx: Ctx) -> Result<u128> {
    ctx.step("begin", async || Ok(())).await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    ctx.sleep("sleep", Duration::from_secs(1)).await;
    Ok(now.as_nanos())
}

#[test]
fn a_clock_outside_of_a_step_is_found() {
    let app = App::new().workflow(looks_at_the_clock);
    let complaint = complaint(|| drop(crash_everywhere(app, "looks_at_the_clock", &())));
    assert!(complaint.contains("ends otherwise"), "{complaint}");
    assert!(complaint.contains("the clock"), "{complaint}");
}

#[workflow]
async fn awaits_something_else(ctx: Ctx) -> Result<()> {
    ctx.step("begin", async || Ok(())).await?;
    pending::<()>().await;
    Ok(())
}

#[test]
fn an_await_outside_of_a_step_is_found() {
    let app = App::new().workflow(awaits_something_else);
    let complaint = complaint(|| drop(crash_everywhere(app, "awaits_something_else", &())));
    assert!(complaint.contains("not a step, sleep, wait or invocation"), "{complaint}");
}

#[workflow]
async fn pays_a_new_bill_each_time(ctx: Ctx) -> Result<()> {
    ctx.step_with("pay", async |info| {
        // The same key must always mean the same payment.
        effect(&info, &calls());
        Ok(())
    })
    .await?;
    Ok(())
}

#[test]
fn an_effect_that_differs_when_a_step_runs_again_is_found() {
    CALLS.set(0);
    let app = App::new().workflow(pays_a_new_bill_each_time);
    let complaint = complaint(|| drop(crash_everywhere(app, "pays_a_new_bill_each_time", &())));
    assert!(complaint.contains("before commit 1 of 1 (the result of step 'pay', it returns)"), "{complaint}");
    assert!(complaint.contains("step:0:pay"), "{complaint}");
}

#[workflow]
async fn sound(ctx: Ctx) -> Result<Vec<u64>> {
    let items: HashSet<_> = (0..20_u64).collect();
    // The order is drawn once, within a step.
    let items = ctx.step("order", async || Ok(items.iter().copied().collect::<Vec<_>>())).await?;
    let mut drawn = vec![ctx.random(), ctx.now().as_millis()];
    for item in items {
        drawn.push(ctx.step(format!("item {item}"), async || Ok(item)).await?);
    }
    drawn.sort_unstable();
    Ok(drawn)
}

#[test]
fn what_is_drawn_within_steps_or_from_the_context_is_sound() {
    crash_everywhere(App::new().workflow(sound), "sound", &());
}

/// How the run ended says more than what it did not come to.
#[test]
fn a_mock_of_a_step_that_the_run_did_not_come_to_hides_no_error() {
    let outcome = Test::new(app())
        .mock("charge", |_| Err::<String, _>(Error::terminal("no bank")))
        .mock("never", |_| Ok(1))
        .run("order", &7);
    assert!(outcome.error().message.contains("no bank"), "{:?}", outcome.error());
}

#[test]
#[should_panic(
    expected = "no step 'chagre' ran, so its mock replaced nothing; the steps that ran without a mock: [\"charge\""
)]
fn a_misspelt_mock_fails_the_test() {
    let _ = Test::new(app()).mock("chagre", |_| Ok("mocked")).run("order", &7);
}
