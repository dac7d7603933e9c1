//! What alarms do: over kills, inside `alarm()`, and beside requests.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use rand::Rng;
use serde_json::Value;
use stepwell_workerd_tests::{Object, TestResult, Workerd, probe};
use tokio::time::sleep;

/// One firing, as the object recorded it.
#[derive(Debug)]
struct Fired {
    began: f64,
    ended: Option<f64>,
    id_name: Option<String>,
    alarm_inside: Option<f64>,
}

async fn firings(object: &Object) -> Result<Vec<Fired>> {
    let rows = object.rows("SELECT began, ended, id_name, alarm_inside FROM fired ORDER BY seq").await?;
    Ok(rows
        .iter()
        .map(|row| Fired {
            began: row[0].as_f64().unwrap_or_default(),
            ended: row[1].as_f64(),
            id_name: row[2].as_str().map(str::to_owned),
            alarm_inside: row[3].as_f64(),
        })
        .collect())
}

async fn on_alarm(object: &Object, plan: &str) -> Result<()> {
    object.rows(&format!("INSERT OR REPLACE INTO settings VALUES('on_alarm', '{plan}')")).await?;
    Ok(())
}

async fn arm_in(object: &Object, in_ms: u32) -> Result<f64> {
    let at: Value = object.ask(&format!("arm?in_ms={in_ms}"), "").await?;
    Ok(at.as_f64().unwrap_or_default())
}

fn now_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set after 1970");
    since.as_secs_f64() * 1000.0
}

#[tokio::test]
async fn an_alarm_that_passed_while_workerd_was_down_fires_without_a_request() -> TestResult {
    let mut workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "ada");
    let at = arm_in(&object, 400).await?;
    workerd.kill();
    sleep(Duration::from_secs(1)).await;
    workerd.restart().await?;
    let restarted = now_ms();
    sleep(Duration::from_millis(1500)).await;
    let asked = now_ms();
    let fired = firings(&object).await?;
    assert_eq!(fired.len(), 1);
    assert!(fired[0].began >= at);
    assert!(fired[0].began < asked, "the alarm did not wait for a request");
    println!("fired {} ms after the restart", fired[0].began - restarted);
    // The name comes with the alarm too, although no request has named the object since the restart.
    assert_eq!(fired[0].id_name.as_deref(), Some("ada"));
    Ok(())
}

#[tokio::test]
async fn the_name_is_known_in_requests_and_after_a_restart() -> TestResult {
    let mut workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "ada");
    assert_eq!(object.ask("name", "").await?, "ada");
    workerd.restart().await?;
    assert_eq!(object.ask("name", "").await?, "ada");
    Ok(())
}

#[tokio::test]
async fn the_alarm_of_the_last_row_fires_after_sigkill() -> TestResult {
    const KILLS: u32 = 3;
    let mut workerd = Workerd::start(&probe()?).await?;
    for round in 0..KILLS {
        let object = Object::new(&workerd, &format!("round-{round}"));
        // The clock runs from the first turn on: loading takes a while on a busy machine.
        object.ask("insert-and-arm?in_ms=600", "").await?;
        let turning = {
            let object = object.clone();
            // Each turn moves the alarm on, so that it is armed anew at the moment of the kill.
            tokio::spawn(async move { while object.ask("insert-and-arm?in_ms=600", "").await.is_ok() {} })
        };
        let kill_in = Duration::from_millis(rand::rng().random_range(50..400));
        sleep(kill_in).await;
        workerd.kill();
        turning.await?;
        workerd.restart().await?;
        sleep(Duration::from_millis(1200)).await;
        let asked = now_ms();
        let last = object.rows("SELECT max(alarm_at) FROM numbers").await?;
        let fired = firings(&object).await?;
        let last = last[0][0].as_f64().unwrap_or_default();
        assert!(
            fired.iter().any(|fired| fired.began >= last && fired.began < asked),
            "armed for {last}, fired {fired:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_alarm_waits_for_the_running_one_and_requests_do_not() -> TestResult {
    let workerd = Workerd::start(&probe()?).await?;
    let object = Object::new(&workerd, "a");
    // Arms the next alarm 50 ms ahead, then takes 1.5 s.
    on_alarm(&object, "arm-next-and-sleep 1500").await?;
    arm_in(&object, 0).await?;
    sleep(Duration::from_millis(700)).await;
    let asked = Instant::now();
    let fired = firings(&object).await?;
    assert!(asked.elapsed() < Duration::from_millis(500), "{asked:?}");
    assert_eq!(fired.len(), 1, "{fired:?}");
    assert_eq!(fired[0].ended, None, "the request came while it ran");

    sleep(Duration::from_millis(1500)).await;
    let fired = firings(&object).await?;
    assert_eq!(fired.len(), 2, "{fired:?}");
    let first_ended = fired[0].ended.unwrap_or(f64::INFINITY);
    assert!(fired[1].began >= first_ended, "{fired:?}");
    Ok(())
}

/// Arms an alarm, lets it arm its successor by `plan`, and answers the firings and what `getAlarm()`
/// shows when all is over. `{at}` in the plan stands for the time of the first alarm.
async fn arm_inside(object: Object, plan: &str) -> Result<(f64, Vec<Fired>, Option<f64>)> {
    // Long enough for the plan to be there in time on a busy machine too.
    let at = arm_in(&object, 1_500).await?;
    on_alarm(&object, &plan.replace("{at}", &at.to_string())).await?;
    sleep(Duration::from_millis(2_700)).await;
    Ok((at, firings(&object).await?, object.alarm().await?))
}

/// Other versions of workerd lost an alarm that was armed, inside `alarm()`, for the millisecond of the
/// firing one, which a past time was moved to when `alarm()` ran within that millisecond.
#[tokio::test]
async fn a_past_time_armed_inside_an_alarm_is_moved_to_the_present_and_fires() -> TestResult {
    let workerd = Workerd::start(&probe()?).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for plan in ["arm-at {at}", "arm-in -1000", "arm-in 0"] {
        for round in 0..4 {
            let object = Object::new(&workerd, &format!("{}-{round}", &plan[..6]));
            tasks.spawn(arm_inside(object, plan));
        }
    }
    while let Some(outcome) = tasks.join_next().await {
        let (at, fired, alarm) = outcome??;
        assert!(fired[0].began > at, "not in its own millisecond: {fired:?}");
        assert!(fired[0].alarm_inside > Some(at), "{at}: {fired:?}");
        assert_eq!(fired.len(), 2, "the alarm is not lost: {fired:?}");
        assert_eq!(alarm, None, "a fired alarm is spent");
    }
    Ok(())
}

#[tokio::test]
async fn an_alarm_armed_after_the_present_inside_an_alarm_fires() -> TestResult {
    let workerd = Workerd::start(&probe()?).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for round in 0..8 {
        let object = Object::new(&workerd, &format!("{round}"));
        tasks.spawn(arm_inside(object, "arm-in 1"));
    }
    while let Some(outcome) = tasks.join_next().await {
        let (_, fired, alarm) = outcome??;
        assert_eq!(fired.len(), 2, "{fired:?}");
        assert!(Some(fired[1].began) >= fired[0].alarm_inside, "{fired:?}");
        assert_eq!(alarm, None, "a fired alarm is spent");
    }
    Ok(())
}
