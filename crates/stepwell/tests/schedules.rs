//! Schedules that an app declares, and the runs that they start in tests.

#![expect(clippy::unused_async, reason = "a workflow is asynchronous, also one that waits for nothing")]

use stepwell::{Overlap, Schedule, prelude::*, testing::Test};

const HOUR: Duration = Duration::from_secs(3_600);

#[workflow(cron = "0 9 * * MON-FRI", zone = "Europe/Berlin")]
async fn report(ctx: Ctx) -> Result<u64> {
    ctx.step("write", async || Ok(())).await?;
    Ok(ctx.now().as_millis())
}

#[workflow(every = "20 minutes")]
async fn tidy(_ctx: Ctx) -> Result<()> {
    Ok(())
}

#[workflow]
async fn slow(ctx: Ctx, hours: u64) -> Result<()> {
    ctx.sleep("work", Duration::from_secs(3_600 * hours)).await;
    Ok(())
}

fn app() -> App {
    App::new().workflow(report).workflow(tidy).workflow(slow)
}

#[test]
fn a_manifest_has_the_schedules_that_the_code_declares() {
    let app = app().every("day at 6:00", slow, &3).schedule(
        Schedule::cron("@hourly").named("hourly").overlap(Overlap::Skip),
        slow,
        &1,
    );
    let manifest = app.manifest();
    let said: Vec<_> = manifest
        .schedules
        .iter()
        .map(|one| format!("{} {} {:?} {}", one.name, one.spec.when, one.spec.zone, one.spec.input.text()))
        .collect();
    let expected = [
        "hourly @hourly None 1",
        "report 0 9 * * MON-FRI Some(\"Europe/Berlin\") null",
        "slow every day at 6:00 None 3",
        "tidy every 20 minutes None null",
    ];
    assert_eq!(said, expected);
}

#[test]
#[should_panic(expected = "two schedules named 'tidy'")]
fn two_schedules_of_one_name_are_a_mistake() {
    let _ = app().cron("@daily", tidy, &());
}

#[test]
fn time_that_passes_starts_the_runs_of_schedules() {
    // A week from Tuesday night: 9:00 in Berlin is 8:00 UTC in November.
    let ticks = Test::new(App::new().workflow(report)).advance(7 * 24 * HOUR);
    assert_eq!(ticks.len(), 5);
    for tick in &ticks {
        assert_eq!(tick.schedule, "report");
        assert_eq!(tick.outcome.output::<u64>(), tick.at.as_millis(), "the run begins at its tick");
        assert_eq!(tick.at.as_millis() % 86_400_000, 8 * 3_600_000);
    }
    assert_eq!(Test::new(app()).advance(HOUR).len(), 3, "three times 20 minutes");
}

#[test]
fn crashes_change_nothing_about_ticks() {
    let calm = Test::new(app()).advance(24 * HOUR);
    let crashed = Test::new(app()).advance_with_crashes(24 * HOUR);
    let said = |ticks: &[stepwell::testing::Tick]| {
        ticks.iter().map(|tick| (tick.schedule.clone(), tick.at)).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((calm.len(), said(&calm)), (crashed.len(), said(&crashed)));
    assert_eq!(calm.len(), 73);
}

#[test]
fn overlap_is_as_in_production() {
    let with = |overlap| {
        let schedule = Schedule::every("hour").overlap(overlap);
        let app = App::new().workflow(slow).schedule(schedule, slow, &2);
        Test::new(app).advance(12 * HOUR).len()
    };
    assert_eq!((with(Overlap::Allow), with(Overlap::Skip), with(Overlap::QueueOne)), (12, 6, 6));
}

#[test]
fn a_delayed_run_begins_at_its_time() {
    let outcome = Test::new(app()).delay(2 * HOUR).run("slow", &1);
    assert_eq!(outcome.took(), 3 * HOUR);
}
