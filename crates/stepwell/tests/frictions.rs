//! What makes workflows short to write: text for lengths of time, errors that convert, a step for each item.

use std::cell::Cell;

use stepwell::{
    Timestamp,
    prelude::*,
    testing::{Test, effect, takes},
};
use stepwell_protocol::{Code, Event, Record};

#[workflow]
async fn nap(ctx: Ctx, how_long: String) -> Result<u64> {
    let before = ctx.now();
    ctx.sleep("nap", &how_long).await;
    Ok(ctx.now().as_millis() - before.as_millis())
}

#[workflow]
async fn patient(ctx: Ctx, how_long: String) -> Result<Option<bool>> {
    ctx.wait::<bool>("decision").timeout(how_long).or_none().await
}

#[workflow]
async fn bounded(ctx: Ctx, how_long: String) -> Result<()> {
    let step = ctx.step("slow", async || {
        takes(Duration::from_secs(60)).await;
        Ok(())
    });
    step.attempts(1).timeout(how_long).await
}

fn app() -> App {
    App::new().workflow(nap).workflow(patient).workflow(bounded)
}

#[test]
fn a_sleep_has_a_name_and_a_length_in_words() {
    let outcome = Test::new(app()).crash_everywhere("nap", "1h 30m");
    assert_eq!(outcome.slept(), Duration::from_secs(5_400));
    assert!(
        matches!(&outcome.history()[0].event, Event::TimerFired { op, .. } if op.to_string() == "sleep:0:nap")
    );
}

#[test]
fn sleeps_of_two_names_are_two_things() {
    #[workflow]
    async fn two(ctx: Ctx) -> Result<()> {
        ctx.sleep("first", "1 s").await;
        ctx.sleep_until("second", Timestamp::from_millis(ctx.now().as_millis() + 5)).await;
        ctx.sleep("first", "1 s").await;
        Ok(())
    }
    let outcome = Test::new(App::new().workflow(two)).run("two", &());
    let ops: Vec<_> = outcome
        .history()
        .iter()
        .filter_map(|record| {
            if let Event::TimerFired { op, .. } = &record.event { Some(op.to_string()) } else { None }
        })
        .collect();
    assert_eq!(ops, ["sleep:0:first", "sleep:0:second", "sleep:1:first"]);
}

#[test]
fn a_length_that_cannot_be_read_fails_the_run_with_a_code() {
    for workflow in ["nap", "patient", "bounded"] {
        let outcome = Test::new(app()).crash_everywhere(workflow, "three days");
        assert_eq!(outcome.error().code, Some(Code::InvalidDuration), "{workflow}");
        assert!(outcome.error().message.starts_with("'three days' is not a length of time"), "{workflow}");
        assert_eq!(outcome.slept(), Duration::ZERO, "{workflow}");
    }
    let outcome = Test::new(app()).run("nap", &"9".repeat(5_000));
    assert!(outcome.error().message.len() < 300, "{}", outcome.error().message);
}

#[test]
fn a_wait_can_end_without_its_signal() {
    let outcome = Test::new(app()).crash_everywhere("patient", "3 days");
    assert_eq!(outcome.output::<Option<bool>>(), None);
    assert_eq!(outcome.slept(), Duration::from_secs(3 * 86_400));
    let outcome = Test::new(app()).signal_when_waiting("decision", &false).run("patient", "3 days");
    assert_eq!(outcome.output::<Option<bool>>(), Some(false));
    let outcome = Test::new(app()).signal("decision", "perhaps").run("patient", "3 days");
    assert!(outcome.error().message.contains("something else than expected"), "{}", outcome.error().message);
}

#[test]
fn a_text_bounds_an_attempt() {
    let outcome = Test::new(app()).run("bounded", "10 seconds");
    assert_eq!(outcome.error().code, Some(Code::StepTimedOut));
    assert_eq!(outcome.took(), Duration::from_secs(10));
}

#[test]
fn a_failed_step_says_which_it_was() {
    #[workflow]
    async fn falls_back(ctx: Ctx) -> Result<String> {
        match ctx.step("charge", async || -> Result<()> { bail!(terminal: "declined") }).await {
            Ok(()) => bail!("it must fail"),
            Err(error) => Ok(format!("{:?}|{}|{error}", error.step(), error.message())),
        }
    }
    let outcome = Test::new(App::new().workflow(falls_back)).run("falls_back", &());
    assert_eq!(outcome.output::<String>(), "Some(\"charge\")|declined|step 'charge' failed: declined");
    assert_eq!(outcome.ran(), ["charge"]);
}

#[test]
fn an_error_chooses_its_next_delay() {
    #[workflow]
    async fn polite(ctx: Ctx) -> Result<u32> {
        ctx.step_with("ask", async |info| match info.attempt {
            1 => Err(Error::msg("rate limited").retry_after(Duration::from_secs(90))),
            2 => Err(Error::msg("rate limited").retry_after(Duration::from_secs(100 * 86_400))),
            attempt => Ok(attempt),
        })
        .await
    }
    let outcome = Test::new(App::new().workflow(polite)).crash_everywhere("polite", &());
    assert_eq!(outcome.output::<u32>(), 3);
    assert_eq!(outcome.slept(), Duration::from_secs(90 + 30 * 86_400));
}

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    id: String,
    notify: Vec<String>,
}

#[workflow]
async fn notify(ctx: Ctx, order: Order) -> Result<Vec<String>> {
    let sent = ctx
        .each("notify", &order.notify, async |address, info| {
            effect(&info, address);
            takes(Duration::from_secs(10)).await;
            Ok(format!("{} to {address}", order.id))
        })
        .at_once(2)
        .await?;
    ctx.step("log", async || Ok(())).await?;
    Ok(sent)
}

fn order(addresses: usize) -> Order {
    Order { id: "o-1".into(), notify: (0..addresses).map(|n| format!("a{n}")).collect() }
}

#[test]
fn each_item_has_a_step_and_results_keep_the_order_of_the_items() {
    let outcome = Test::new(App::new().workflow(notify)).crash_everywhere("notify", &order(5));
    let expected: Vec<_> = (0..5).map(|n| format!("o-1 to a{n}")).collect();
    assert_eq!(outcome.output::<Vec<String>>(), expected);
    assert_eq!(outcome.effects().len(), 5);
    assert_eq!(outcome.took(), Duration::from_secs(30), "two at once, ten seconds each");
    Test::new(App::new().workflow(notify)).run("notify", &order(0)).output::<Vec<String>>();
}

#[test]
fn no_more_steps_run_at_once_than_each_says() {
    thread_local! {
        static NOW: Cell<usize> = const { Cell::new(0) };
        static MOST: Cell<usize> = const { Cell::new(0) };
    }
    #[workflow]
    async fn busy(ctx: Ctx, at_once: Option<usize>) -> Result<()> {
        let each = ctx.each("work", 0..20, async |_, _| {
            NOW.set(NOW.get() + 1);
            MOST.set(MOST.get().max(NOW.get()));
            takes(Duration::from_secs(1)).await;
            NOW.set(NOW.get() - 1);
            Ok(())
        });
        match at_once {
            Some(steps) => each.at_once(steps).await?,
            None => each.await?,
        };
        Ok(())
    }
    for (at_once, most) in [(Some(1), 1), (Some(4), 4), (None, 6)] {
        MOST.set(0);
        Test::new(App::new().workflow(busy)).run("busy", &at_once).output::<()>();
        assert_eq!(MOST.get(), most);
    }
}

/// Six recipients that are busy for an hour, with six places.
#[test]
fn steps_that_wait_for_a_retry_keep_no_other_from_running() {
    #[workflow]
    async fn send(ctx: Ctx, items: u32) -> Result<Vec<u32>> {
        let each = ctx.each("send", 0..items, async |n, info| {
            if n < 6 && info.attempt == 1 {
                return Err(Error::msg("429").retry_after(Duration::from_secs(3_600)));
            }
            effect(&info, &n);
            takes(Duration::from_secs(1)).await;
            Ok(n)
        });
        each.timeout("2 seconds").await
    }
    for items in [7, 1_000] {
        let outcome = Test::new(App::new().workflow(send)).run("send", &items);
        assert_eq!(outcome.output::<Vec<u32>>(), (0..items).collect::<Vec<_>>());
        let first = outcome.history().first().expect("something was recorded").at;
        let minutes = |record: &Record| (record.at.as_millis() - first.as_millis()) / 60_000;
        for record in outcome.history() {
            if let Event::StepFinished { op, attempt, .. } = &record.event {
                let (expected, expected_attempt) = if op.occurrence < 6 { (60, 2) } else { (0, 1) };
                assert_eq!((minutes(record) / 60 * 60, *attempt), (expected, expected_attempt), "{op}");
            }
        }
    }
    let outcome = Test::new(App::new().workflow(send)).crash_everywhere("send", &9);
    assert_eq!(outcome.output::<Vec<u32>>(), (0..9).collect::<Vec<_>>());
}

#[test]
fn no_more_steps_are_announced_at_once_than_may_run() {
    #[workflow]
    async fn once(ctx: Ctx) -> Result<Vec<u32>> {
        let each = ctx.each("send", 0..7, async |n, info| {
            effect(&info, &n);
            takes(Duration::from_secs(1)).await;
            Ok(n)
        });
        each.at_once(2).at_most_once().await
    }
    let outcome = Test::new(App::new().workflow(once)).run("once", &());
    assert_eq!(outcome.output::<Vec<u32>>(), (0..7).collect::<Vec<_>>());
    let mut begun = 0;
    for record in outcome.history() {
        match record.event {
            Event::StepBegun { .. } => begun += 1,
            Event::StepFinished { .. } => begun -= 1,
            Event::StepRetrying { .. }
            | Event::StepLetIn { .. }
            | Event::TimerFired { .. }
            | Event::SignalReceived { .. }
            | Event::ChildInvoked { .. }
            | Event::ChildStarted { .. }
            | Event::ChildFinished { .. } => {}
        }
        assert!(begun <= 2, "{begun} steps would be cut short by a crash");
    }
}

#[test]
fn one_item_that_fails_keeps_no_other_from_its_end() {
    #[workflow]
    async fn all(ctx: Ctx) -> Result<Vec<u32>> {
        ctx.each("halve", [4, 3, 2, 1], async |n: u32, _| {
            ensure!(n.is_multiple_of(2), terminal: "{n} is odd");
            Ok(n / 2)
        })
        .await
    }
    #[workflow]
    async fn some(ctx: Ctx) -> Result<Vec<Option<u32>>> {
        let halves = ctx.each("halve", [4, 3], async |n: u32, _| {
            ensure!(n.is_multiple_of(2), terminal: "{n} is odd");
            Ok(n / 2)
        });
        Ok(halves.results().await.into_iter().map(Result::ok).collect())
    }
    let outcome = Test::new(App::new().workflow(all)).crash_everywhere("all", &());
    assert_eq!(outcome.error().message, "step 'halve' failed: 3 is odd");
    assert_eq!(outcome.ran().len(), 4);
    let outcome = Test::new(App::new().workflow(some)).run("some", &());
    assert_eq!(outcome.output::<Vec<Option<u32>>>(), [Some(2), None]);
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Decision {
    approved: bool,
    note: Option<String>,
}

#[workflow]
async fn decide(ctx: Ctx) -> Result<bool> {
    Ok(ctx.wait::<Decision>("decision").await?.approved)
}

#[test]
#[should_panic(
    expected = "the test sends a signal that is refused: The run waits for signal 'decision' with an object with \
                approved, and the payload is a boolean"
)]
fn a_signal_of_another_type_is_refused_while_the_run_waits_for_it() {
    Test::new(App::new().workflow(decide)).signal_when_waiting("decision", &true).run("decide", &());
}

#[test]
fn a_signal_of_the_right_type_is_taken() {
    let decision = Decision { approved: true, note: None };
    let test = Test::new(App::new().workflow(decide)).signal_when_waiting("decision", &decision);
    assert!(test.crash_everywhere("decide", &()).output::<bool>());
}
