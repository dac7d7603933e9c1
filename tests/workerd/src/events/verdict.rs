//! What must hold in the end, decided by what was seen from outside. Asks nobody.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// How long `ship` waits for its event.
pub const WAIT_MS: u64 = 60_000;

/// How old an event may be when a wait for it begins.
const LOOK_BACK_MS: u64 = 10_000;

/// How close to either end of a wait's time both ends are right: the cell that waits and the topic each have a clock, and an
/// event takes a while to be delivered.
const EDGE_MS: [u64; 2] = [500, 10_000];

/// An event as the list of its topic shows it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// When it was accepted.
    pub at: u64,
    /// The tag of the runs that it has started.
    pub tag: String,
    /// What it says.
    pub data: Value,
}

/// A run that a trigger has started.
#[derive(Clone, Debug)]
pub struct Started {
    /// The run.
    pub id: String,
    /// The tag that names its event.
    pub event: String,
    /// Its status.
    pub status: String,
}

/// A run that waits for an event, and what its history says.
#[derive(Clone, Debug)]
pub struct Waited {
    /// The run.
    pub run: String,
    /// The order that it waits for.
    pub order: u32,
    /// The event's id and when it was accepted, if one was sent.
    pub sent: Option<(String, u64)>,
    /// When the wait began, if the history tells.
    pub since: Option<u64>,
    /// The events that it got, by their ids.
    pub received: Vec<String>,
    /// The run that the event names as the first that got it.
    pub named: Option<String>,
    /// How often it has timed out.
    pub timeouts: usize,
    /// The run's status.
    pub status: String,
    /// What it has returned.
    pub output: Value,
}

/// A run that an event may cancel.
#[derive(Clone, Debug)]
pub struct Travelled {
    /// Its order.
    pub order: u32,
    /// The tag of the event that cancels it, if one was sent.
    pub sent: Option<String>,
    /// Its status.
    pub status: String,
    /// Who has cancelled it.
    pub by: Option<String>,
}

/// How a wait has ended, if that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has got its event.
    Met,
    /// No event was sent.
    TimedOut,
    /// An event was sent, but not in its time.
    Missed,
}

/// Each accepted event is there once, and no other is.
pub fn events_are_there_once(accepted: &BTreeSet<String>, listed: &[Listed]) -> Result<()> {
    let (mut ids, mut tags) = (BTreeSet::new(), BTreeSet::new());
    for event in listed {
        ensure!(ids.insert(&event.id), "event {} is there twice", event.id);
        ensure!(tags.insert(&event.tag), "{} is the tag of two events, {} too", event.tag, event.id);
        ensure!(accepted.contains(&event.id), "event {} is there, and nobody has sent it", event.id);
    }
    let missing: Vec<_> = accepted.iter().filter(|id| !ids.contains(id)).collect();
    ensure!(missing.is_empty(), "{} accepted events are missing: {:?}", missing.len(), first(&missing));
    Ok(())
}

/// Each of these events has one run by a trigger, which has completed, and no other event has one.
pub fn each_event_has_one_run(trigger: &str, events: &[&Listed], runs: &[Started]) -> Result<()> {
    let mut by_event = BTreeMap::new();
    for run in runs {
        if let Some(other) = by_event.insert(run.event.as_str(), run.id.as_str()) {
            bail!("{} has two runs by trigger '{trigger}': {other} and {}", run.event, run.id);
        }
        ensure!(run.status == "completed", "run {} by trigger '{trigger}' is {}", run.id, run.status);
    }
    let missing: Vec<_> =
        events.iter().filter(|event| by_event.remove(event.tag.as_str()).is_none()).map(|e| &e.id).collect();
    ensure!(
        missing.is_empty(),
        "{} events have no run by trigger '{trigger}': {:?}",
        missing.len(),
        first(&missing)
    );
    let beyond: Vec<_> = by_event.into_iter().collect();
    ensure!(
        beyond.is_empty(),
        "trigger '{trigger}' has started runs beyond its events: {:?}",
        first(&beyond)
    );
    Ok(())
}

/// A wait has got its event once, or has timed out because there was none in its time; never both.
pub fn wait_has_one_end(wait: &Waited) -> Result<End> {
    let Waited { order, received, timeouts, status, .. } = wait;
    ensure!(received.len() <= 1, "order {order} got {} events: {received:?}", received.len());
    ensure!(*timeouts <= 1, "the wait of order {order} has timed out {timeouts} times");
    match (received.first(), timeouts) {
        (Some(id), 1..) => bail!("order {order} got event {id}, and its wait has timed out"),
        (None, 0) => bail!("order {order} got no event, and its wait has not timed out: it is {status}"),
        (Some(id), 0) => {
            let (sent, _) = wait.sent.as_ref().with_context(|| format!("order {order} got {id}"))?;
            ensure!(sent == id, "order {order} got {id}, not {sent}");
            ensure!(status == "completed", "order {order} got its event, and is {status}");
            let other = wait.named.as_ref().filter(|named| **named != wait.run);
            ensure!(other.is_none(), "run {} got {id}, which names {other:?}", wait.run);
            let output = format!("order/paid {order} of {order}");
            ensure!(wait.output == output.as_str(), "order {order} has returned {}", wait.output);
            Ok(End::Met)
        }
        (None, 1..) => {
            ensure!(status == "failed", "the wait of order {order} has timed out, and it is {status}");
            let Some((id, at)) = &wait.sent else { return Ok(End::TimedOut) };
            let since = wait.since.with_context(|| format!("order {order} has waited since some time"))?;
            let from = since - LOOK_BACK_MS + EDGE_MS[0];
            let until = since + WAIT_MS - EDGE_MS[1];
            ensure!(
                !(from..until).contains(at),
                "order {order} has waited since {since} and timed out, but {id} was accepted at {at}"
            );
            Ok(End::Missed)
        }
    }
}

/// A run is cancelled by its event, if one was sent, and not otherwise.
pub fn only_its_event_cancels(run: &Travelled) -> Result<()> {
    let Travelled { order, sent, status, by } = run;
    match sent {
        Some(event) => {
            ensure!(status == "cancelled", "{event} cancels order {order}, which is {status}");
            ensure!(by.as_ref() == Some(event), "order {order} was cancelled by {by:?}, not by {event}");
        }
        None => ensure!(status == "sleeping", "nothing cancels order {order}, which is {status}"),
    }
    Ok(())
}

/// The first few.
fn first<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(5)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// When the waits of these tests begin.
    const SINCE: u64 = 1_000_000;

    fn event(number: u32) -> Listed {
        let (id, tag) = (format!("paid-{number}"), format!("event:order/{number}"));
        Listed { id, at: SINCE, tag, data: Value::Null }
    }

    fn accepted(count: u32) -> BTreeSet<String> {
        (0..count).map(|number| event(number).id).collect()
    }

    fn run(number: u32, event: u32) -> Started {
        let (id, event) = (format!("run-{number}"), format!("event:order/{event}"));
        Started { id, event, status: "completed".into() }
    }

    /// A run that got its event.
    fn met() -> Waited {
        Waited {
            run: "run-7".into(),
            order: 7,
            sent: Some(("paid-7".into(), SINCE + 10)),
            since: Some(SINCE),
            received: vec!["paid-7".into()],
            named: Some("run-7".into()),
            timeouts: 0,
            status: "completed".into(),
            output: json!("order/paid 7 of 7"),
        }
    }

    /// A run whose event was never sent.
    fn unpaid() -> Waited {
        let (status, output) = ("failed".into(), Value::Null);
        Waited { sent: None, received: Vec::new(), timeouts: 1, status, output, ..met() }
    }

    fn on_the_road(is_sent: bool, status: &str) -> Travelled {
        let sent = is_sent.then(|| "event:order/3".to_owned());
        Travelled { order: 3, by: sent.clone(), sent, status: status.into() }
    }

    /// The words of a verdict; none if it is a good one.
    fn says<T>(verdict: Result<T>) -> String {
        verdict.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn all_events_once_is_right() {
        assert_eq!(says(events_are_there_once(&accepted(3), &[event(2), event(0), event(1)])), "");
    }

    #[test]
    fn an_accepted_event_that_is_not_in_the_list_is_missed() {
        let verdict = says(events_are_there_once(&accepted(3), &[event(2), event(0)]));
        assert_eq!(verdict, "1 accepted events are missing: [\"paid-1\"]");
    }

    #[test]
    fn an_event_that_is_there_twice_is_noticed() {
        let again = Listed { tag: "event:order/9".into(), ..event(1) };
        let verdict = says(events_are_there_once(&accepted(2), &[event(0), event(1), again]));
        assert_eq!(verdict, "event paid-1 is there twice");
    }

    #[test]
    fn an_event_that_nobody_has_sent_is_noticed() {
        let verdict = says(events_are_there_once(&accepted(1), &[event(0), event(1)]));
        assert_eq!(verdict, "event paid-1 is there, and nobody has sent it");
    }

    #[test]
    fn one_run_for_each_event_is_right() {
        let verdict = each_event_has_one_run("all", &[&event(0), &event(1)], &[run(5, 1), run(6, 0)]);
        assert_eq!(says(verdict), "");
    }

    #[test]
    fn an_event_without_its_run_is_missed() {
        let verdict = each_event_has_one_run("all", &[&event(0), &event(1)], &[run(5, 1)]);
        assert_eq!(says(verdict), "1 events have no run by trigger 'all': [\"paid-0\"]");
    }

    #[test]
    fn an_event_with_two_runs_is_noticed() {
        let verdict = each_event_has_one_run("all", &[&event(0)], &[run(5, 0), run(6, 0)]);
        assert_eq!(says(verdict), "event:order/0 has two runs by trigger 'all': run-5 and run-6");
    }

    #[test]
    fn a_run_for_an_event_that_does_not_match_is_noticed() {
        let verdict = says(each_event_has_one_run("large", &[&event(0)], &[run(5, 0), run(6, 1)]));
        assert!(verdict.starts_with("trigger 'large' has started runs beyond its events"), "{verdict}");
    }

    #[test]
    fn a_run_that_has_not_completed_is_noticed() {
        let running = Started { status: "running".into(), ..run(5, 0) };
        let verdict = each_event_has_one_run("all", &[&event(0)], &[running]);
        assert_eq!(says(verdict), "run run-5 by trigger 'all' is running");
    }

    #[test]
    fn a_wait_ends_by_its_event_or_by_its_time() {
        assert_eq!(wait_has_one_end(&met()).ok(), Some(End::Met));
        assert_eq!(wait_has_one_end(&unpaid()).ok(), Some(End::TimedOut));
    }

    #[test]
    fn a_wait_that_was_met_and_has_timed_out_is_noticed() {
        let both = Waited { timeouts: 1, ..met() };
        assert_eq!(says(wait_has_one_end(&both)), "order 7 got event paid-7, and its wait has timed out");
    }

    #[test]
    fn a_wait_that_was_met_twice_is_noticed() {
        let twice = Waited { received: vec!["paid-7".into(), "paid-7".into()], ..met() };
        assert_eq!(says(wait_has_one_end(&twice)), "order 7 got 2 events: [\"paid-7\", \"paid-7\"]");
    }

    #[test]
    fn a_wait_that_never_ends_is_noticed() {
        let lost = Waited { received: Vec::new(), status: "waiting".into(), ..met() };
        let verdict = says(wait_has_one_end(&lost));
        assert_eq!(verdict, "order 7 got no event, and its wait has not timed out: it is waiting");
    }

    #[test]
    fn a_wait_that_got_the_event_of_another_is_noticed() {
        let other = Waited { received: vec!["paid-8".into()], ..met() };
        assert_eq!(says(wait_has_one_end(&other)), "order 7 got paid-8, not paid-7");
        let unsent = Waited { sent: None, ..met() };
        assert_eq!(says(wait_has_one_end(&unsent)), "order 7 got paid-7");
    }

    #[test]
    fn an_event_that_names_another_run_is_noticed() {
        let other = Waited { named: Some("run-8".into()), ..met() };
        assert_eq!(says(wait_has_one_end(&other)), "run run-7 got paid-7, which names Some(\"run-8\")");
        assert_eq!(wait_has_one_end(&Waited { named: None, ..met() }).ok(), Some(End::Met));
    }

    #[test]
    fn a_wait_times_out_beside_its_event_only_if_that_came_too_early_or_too_late() {
        let sent = |at: u64| wait_has_one_end(&Waited { sent: Some(("paid-7".into(), at)), ..unpaid() });
        assert_eq!(sent(SINCE - LOOK_BACK_MS - 1).ok(), Some(End::Missed));
        assert_eq!(sent(SINCE + WAIT_MS + 1).ok(), Some(End::Missed));
        for at in [SINCE - LOOK_BACK_MS + 1_000, SINCE, SINCE + WAIT_MS / 2] {
            assert!(says(sent(at)).starts_with("order 7 has waited since"), "{at}");
        }
    }

    #[test]
    fn a_run_is_cancelled_by_its_event_and_by_nothing_else() {
        assert_eq!(says(only_its_event_cancels(&on_the_road(true, "cancelled"))), "");
        assert_eq!(says(only_its_event_cancels(&on_the_road(false, "sleeping"))), "");
        let verdict = says(only_its_event_cancels(&on_the_road(true, "sleeping")));
        assert_eq!(verdict, "event:order/3 cancels order 3, which is sleeping");
        let verdict = says(only_its_event_cancels(&on_the_road(false, "cancelled")));
        assert_eq!(verdict, "nothing cancels order 3, which is cancelled");
        let other = Travelled { by: Some("event:order/4".into()), ..on_the_road(true, "cancelled") };
        assert!(
            says(only_its_event_cancels(&other)).starts_with("order 3 was cancelled by"),
            "another event"
        );
    }
}
