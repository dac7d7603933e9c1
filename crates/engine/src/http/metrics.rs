//! What there is and what has happened, in numbers: for people, for charts, and for Prometheus.

use std::fmt::Write as _;

use futures::future::join_all;
use stepwell_core::{
    cell::{MINUTES_KEPT, NO_WORKFLOW},
    ordered::OrdMap,
};
use stepwell_protocol::{
    Code, Place, Timestamp,
    outbox::LetterCounts,
    rest::Metrics,
    totals::{Durations, LATE_BOUNDS_MS, Minute, MinuteList, RUN_BOUNDS_MS, STEP_BOUNDS_MS, Totals},
};

use super::{answers, error::Refusal, front::Front, request::pairs, response::Response};
use crate::{
    calls::{
        cell::Operation,
        figures::{CountedRuns, ListedMinutes, Measured},
    },
    runtime,
};

/// How often a cell is asked for one answer. Each time it counts a slice of its runs.
const ROUNDS_MAX: usize = 20;

/// For how long it is asked again at the most. What it has counted by then is shown.
const ROUNDS_MS_MAX: u64 = 2_000;

/// How many minutes are listed, unless the request says it.
const MINUTES_LISTED: u64 = 60;

/// How Prometheus calls its text.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /api/metrics`
pub async fn count(front: &Front, query: &str) -> Result<Response, Refusal> {
    let mut wanted = None;
    for (name, value) in pairs(query) {
        if name != "workflow" {
            return Err(Refusal::new(Code::InvalidRequest, "The only parameter is `workflow`."));
        }
        wanted = Some(value);
    }
    // Letters belong to no workflow.
    let letters = wanted.is_none().then(LetterCounts::default);
    let mut metrics = Metrics { letters, complete: true, ..Metrics::default() };
    for counted in join_all(front.cells().map(|place| count_cell(front, place))).await {
        let CountedRuns { workflows, is_all, letters } = counted?;
        metrics.complete &= is_all;
        if let Some(all) = &mut metrics.letters {
            (all.waiting, all.dead) = (all.waiting + letters.waiting, all.dead + letters.dead);
        }
        let fits = |name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
        for (name, counts) in workflows.into_iter().filter(|(name, _)| fits(name)) {
            let of_workflow = metrics.workflows.entry(name).or_default();
            for (status, count) in counts {
                *of_workflow.entry(status).or_default() += count;
                *metrics.statuses.entry(status).or_default() += count;
                metrics.total += count;
            }
        }
    }
    Ok(Response::of(200, &metrics))
}

/// All that a cell has, if it does not take too long.
async fn count_cell(front: &Front, place: Place) -> Result<CountedRuns, Refusal> {
    let until = runtime::clock().plus_millis(ROUNDS_MS_MAX);
    let mut counted: CountedRuns = front.ask_in_time(&place, Operation::Count).await?;
    for _ in 1..ROUNDS_MAX {
        if counted.is_all || runtime::clock() >= until {
            break;
        }
        counted = front.ask_in_time(&place, Operation::Count).await?;
    }
    Ok(counted)
}

/// `GET /api/metrics/minutes`
pub async fn minutes(front: &Front, query: &str) -> Result<Response, Refusal> {
    let (mut workflow, mut count) = (None, MINUTES_LISTED);
    for (name, value) in pairs(query) {
        match name.as_str() {
            "workflow" => workflow = Some(value),
            "minutes" => {
                let number = value.parse().ok().filter(|count| (1..=MINUTES_KEPT).contains(count));
                count = number.ok_or_else(|| {
                    let detail = format!("`minutes` is a number from 1 to {MINUTES_KEPT}.");
                    Refusal::new(Code::InvalidRequest, detail)
                })?;
            }
            _ => {
                let detail = "The parameters are `workflow` and `minutes`.";
                return Err(Refusal::new(Code::InvalidRequest, detail));
            }
        }
    }
    let since = Timestamp::from_millis(runtime::clock().as_millis().saturating_sub(count * 60_000));
    let asked = front.cells().map(|place| {
        let operation = Operation::ListMinutes { since, workflow: workflow.clone() };
        async move { front.ask_in_time::<ListedMinutes>(&place, operation).await }
    });
    let (mut all, mut complete) = (OrdMap::<Timestamp, Totals>::new(), true);
    for listed in join_all(asked).await {
        match listed {
            Ok(ListedMinutes { minutes }) => {
                for Minute { at, totals } in minutes {
                    all.get_or_default(at).add(&totals);
                }
            }
            Err(refusal) if is_one_cells(&refusal) => complete = false,
            Err(refusal) => return Err(refusal),
        }
    }
    let minutes = all.into_iter().map(|(at, totals)| Minute { at, totals }).collect();
    Ok(Response::of(200, &MinuteList { minutes, complete }))
}

/// `GET /api/metrics/prometheus`
pub async fn scrape(front: &Front) -> Result<Response, Refusal> {
    // Prometheus waits for ten seconds: a first cell that hangs is not waited for twice.
    let is_hung = !answers::tell_now(front).await;
    let (mut cells, mut unreached) = (Vec::new(), u64::from(is_hung));
    let asked = front.cells().skip(usize::from(is_hung)).map(|place| measure_cell(front, place));
    for (place, measured) in join_all(asked).await {
        match measured {
            Ok(measured) => cells.push((place.to_string(), measured)),
            // What the others say is worth more than nothing.
            Err(refusal) if is_one_cells(&refusal) => unreached += 1,
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(Response::new(200, TEXT, exposition(front.namespace(), &cells, unreached, runtime::clock())))
}

pub(super) async fn measure_cell(front: &Front, place: Place) -> (Place, Result<Measured, Refusal>) {
    let until = runtime::clock().plus_millis(ROUNDS_MS_MAX);
    let mut measured = front.ask_in_time::<Measured>(&place, Operation::Measure).await;
    for _ in 1..ROUNDS_MAX {
        let is_over = measured.as_ref().is_ok_and(|measured| measured.counted.is_all) || measured.is_err();
        if is_over || runtime::clock() >= until {
            break;
        }
        measured = front.ask_in_time(&place, Operation::Measure).await;
    }
    (place, measured)
}

/// Whether it is the trouble of one cell, and not what the caller may not see.
pub(super) fn is_one_cells(refusal: &Refusal) -> bool {
    refusal.0.status >= 500 || refusal.0.code == Code::LimitReached
}

/// What Prometheus reads.
fn exposition(namespace: &str, cells: &[(String, Measured)], unreached: u64, now: Timestamp) -> String {
    let mut text = Exposition { namespace, text: String::new() };
    // Without the part of one cell, counters would go back, which is read as a reset. A gap is not.
    if unreached == 0 {
        counters(&mut text, cells);
    }
    gauges(&mut text, cells, unreached, now);
    text.text
}

/// A metric, what it is, and where it is found.
type Counter = (&'static str, &'static str, fn(&Totals) -> u64);

/// One that is split by a label, and the label's values.
type Split = (&'static str, &'static str, &'static str, fn(&Totals) -> Vec<(&'static str, u64)>);

/// One of durations, with their bounds.
type Histogram = (&'static str, &'static str, &'static [u64], fn(&Totals) -> &Durations);

/// What has ever happened.
fn counters(text: &mut Exposition<'_>, cells: &[(String, Measured)]) {
    let mut totals = OrdMap::<&str, Totals>::new();
    for (workflow, more) in cells.iter().flat_map(|(_, cell)| cell.totals.iter()) {
        totals.get_or_default(workflow.as_str()).add(more);
    }
    // Of these, some may be counted with the workflows that are beyond the most.
    let mut besides = Totals::default();
    totals.values().for_each(|it| besides.add(it));
    totals.remove(NO_WORKFLOW);
    for (name, help, count) in [
        (
            "stepwell_requests_refused_total",
            "Requests that a limit of the namespace refused.",
            besides.refused,
        ),
        ("stepwell_spans_lost_total", "Spans that did not reach the collector.", besides.spans_lost),
    ] {
        text.family(name, "counter", help);
        text.sample(name, &[], count);
    }
    let counters: [Counter; 5] = [
        ("stepwell_runs_started_total", "Runs that were started.", |it| it.started),
        ("stepwell_rows_written_total", "Rows that were written for runs.", |it| it.rows),
        ("stepwell_activations_total", "Calls of workflow code.", |it| it.activations),
        ("stepwell_step_retries_total", "Attempts of steps that failed and are retried.", |it| it.retries),
        ("stepwell_signals_total", "Signals that runs received.", |it| it.signals),
    ];
    for (name, help, of) in counters {
        text.family(name, "counter", help);
        totals.iter().for_each(|(workflow, it)| text.sample(name, &[("workflow", workflow)], of(it)));
    }
    let split: [Split; 4] = [
        ("stepwell_runs_ended_total", "Runs that ended, by status.", "status", |it| {
            vec![("completed", it.completed), ("failed", it.failed), ("cancelled", it.cancelled)]
        }),
        ("stepwell_run_pauses_total", "Times that a run was paused, by reason.", "reason", |it| {
            let by_person = it.paused.saturating_sub(it.diverged + it.stopped);
            vec![("request", by_person), ("diverged", it.diverged), ("problem", it.stopped)]
        }),
        ("stepwell_activations_broken_total", "Calls of workflow code that broke off.", "reason", |it| {
            vec![("died", it.deaths), ("unreached", it.losses)]
        }),
        ("stepwell_steps_total", "Steps that ended, by outcome.", "outcome", |it| {
            vec![("succeeded", it.steps), ("failed", it.steps_failed)]
        }),
    ];
    for (name, help, label, of) in split {
        text.family(name, "counter", help);
        for (workflow, it) in &totals {
            for (value, count) in of(it) {
                text.sample(name, &[("workflow", workflow), (label, value)], count);
            }
        }
    }
    let histograms: [Histogram; 4] = [
        (
            "stepwell_run_duration_seconds",
            "The time from the start of a run to its end.",
            &RUN_BOUNDS_MS,
            |it| &it.run_ms,
        ),
        (
            "stepwell_step_duration_seconds",
            "The time that an attempt of a step took.",
            &STEP_BOUNDS_MS,
            |it| &it.step_ms,
        ),
        ("stepwell_timer_lag_seconds", "How late sleeps and timeouts ended.", &LATE_BOUNDS_MS, |it| {
            &it.timer_late_ms
        }),
        ("stepwell_schedule_delay_seconds", "How late schedules started runs.", &LATE_BOUNDS_MS, |it| {
            &it.tick_late_ms
        }),
    ];
    for (name, help, bounds, of) in histograms {
        text.family(name, "histogram", help);
        totals.iter().for_each(|(workflow, it)| text.histogram(name, ("workflow", workflow), bounds, of(it)));
    }
    requests(text, cells);
}

/// What the API has answered.
fn requests(text: &mut Exposition<'_>, cells: &[(String, Measured)]) {
    let (mut codes, mut routes) = (OrdMap::<(&str, &str), u64>::new(), OrdMap::<&str, Durations>::new());
    for (name, took) in cells.iter().flat_map(|(_, cell)| cell.answers.iter()) {
        let (route, code) = name.rsplit_once(' ').unwrap_or((name, ""));
        *codes.get_or_default((route, code)) += took.counts.iter().sum::<u64>();
        routes.get_or_default(route).add(took);
        // What is there before it first happens can be seen to grow.
        codes.get_or_default((route, "500"));
    }
    let name = "stepwell_requests_total";
    text.family(name, "counter", "Requests with a key that were answered, by route and status.");
    codes.iter().for_each(|((route, code), count)| {
        text.sample(name, &[("route", route), ("code", code)], *count);
    });
    let name = "stepwell_request_duration_seconds";
    text.family(name, "histogram", "The time until a request was answered.");
    routes.iter().for_each(|(route, took)| text.histogram(name, ("route", route), &STEP_BOUNDS_MS, took));
}

/// What there is now.
fn gauges(text: &mut Exposition<'_>, cells: &[(String, Measured)], unreached: u64, now: Timestamp) {
    let (mut runs, mut letters, mut is_all) = (OrdMap::<(String, &str), u64>::new(), (0, 0), true);
    for (_, Measured { counted, .. }) in cells {
        is_all &= counted.is_all;
        letters = (letters.0 + counted.letters.waiting, letters.1 + counted.letters.dead);
        for (workflow, counts) in &counted.workflows {
            for (status, count) in counts {
                *runs.get_or_default((workflow.clone(), status.as_str())) += count;
            }
        }
    }
    if is_all && unreached == 0 {
        text.family("stepwell_runs", "gauge", "Runs that are stored, by status.");
        for ((workflow, status), count) in &runs {
            text.sample("stepwell_runs", &[("workflow", workflow), ("status", status)], *count);
        }
    }
    text.one(
        "stepwell_runs_counted",
        "Whether all runs were counted: 1, or 0 until they are.",
        u64::from(is_all),
    );
    let name = "stepwell_outbox_letters";
    text.family(name, "gauge", "Messages between objects that have not arrived.");
    text.sample(name, &[("state", "waiting")], letters.0);
    text.sample(name, &[("state", "dead")], letters.1);
    let mut longest = |name: &str, help: &str, since: fn(&Measured) -> Option<Timestamp>| {
        let oldest = cells.iter().filter_map(|(_, cell)| since(cell)).min();
        let waits_ms = oldest.map_or(0, |since| now.as_millis().saturating_sub(since.as_millis()));
        text.family(name, "gauge", help);
        text.line(name, &[], &seconds(waits_ms));
    };
    let help = "How long the message has waited that has waited longest to arrive, without dead ones.";
    longest("stepwell_outbox_oldest_seconds", help, |it| it.posted_since);
    let help = "How long the run has waited that has waited longest for a place in its cell.";
    longest("stepwell_oldest_due_seconds", help, |it| it.due_since);
    text.family("stepwell_cell_bytes", "gauge", "What a cell stores.");
    for (place, cell) in cells {
        text.sample("stepwell_cell_bytes", &[("cell", place)], cell.bytes);
    }
    text.family("stepwell_cell_bytes_max", "gauge", "What a cell can store.");
    for (place, cell) in cells {
        text.sample("stepwell_cell_bytes_max", &[("cell", place)], cell.bytes_max);
    }
    text.family("stepwell_cell_programs", "gauge", "Programs that a cell calls at this moment.");
    for (place, cell) in cells {
        text.sample("stepwell_cell_programs", &[("cell", place)], cell.at_work);
    }
    let streams = |of: fn(&Measured) -> u64| cells.iter().map(|(_, cell)| of(cell)).sum();
    text.one("stepwell_streams", "Streams that are open.", streams(|it| it.streams));
    let help = "Streams whose readers have not kept up for 30 seconds.";
    text.one("stepwell_streams_behind", help, streams(|it| it.streams_behind));
    text.one("stepwell_cells_unreached", "Cells that did not answer this scrape.", unreached);
    text.family("stepwell_build_info", "gauge", "The engine's version.");
    text.sample("stepwell_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
}

/// A text as Prometheus reads it.
struct Exposition<'a> {
    namespace: &'a str,
    text: String,
}

impl Exposition<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn one(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.line(name, labels, &value.to_string());
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let _ = write!(self.text, "{name}{{namespace=\"{}\"", escaped(self.namespace));
        for (label, of) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(of));
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    fn histogram(&mut self, name: &str, of: (&str, &str), bounds: &[u64], durations: &Durations) {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (at, bound) in bounds.iter().enumerate() {
            below += durations.counts.get(at).copied().unwrap_or_default();
            self.sample(&bucket, &[of, ("le", &seconds(*bound))], below);
        }
        below += durations.counts.get(bounds.len()).copied().unwrap_or_default();
        self.sample(&bucket, &[of, ("le", "+Inf")], below);
        self.line(&format!("{name}_sum"), &[of], &seconds(durations.sum_ms));
        self.sample(&format!("{name}_count"), &[of], below);
    }
}

/// Milliseconds as seconds, without zeros at the end.
fn seconds(ms: u64) -> String {
    let text = format!("{}.{:03}", ms / 1_000, ms % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::figures::Answers;

    #[test]
    fn times_are_seconds() {
        for (ms, text) in [(0, "0"), (10, "0.01"), (1_000, "1"), (86_400_000, "86400"), (1_234, "1.234")] {
            assert_eq!(seconds(ms), text);
        }
    }

    #[test]
    fn labels_stay_within_their_quotes() {
        assert_eq!(escaped("a\"b\\c\nd"), r#"a\"b\\c\nd"#);
    }

    #[test]
    fn a_scrape_adds_cells_up_and_has_a_gap_if_one_is_missing() {
        let mut it =
            Totals { started: 2, failed: 1, paused: 3, diverged: 1, losses: 2, rows: 7, ..Totals::default() };
        it.tick_late_ms.note(&LATE_BOUNDS_MS, 2_000);
        it.run_ms.note(&RUN_BOUNDS_MS, 50);
        it.run_ms.note(&RUN_BOUNDS_MS, 700_000_000);
        let none = Totals { refused: 4, spans_lost: 5, ..Totals::default() };
        let totals: OrdMap<_, _> =
            [("pay".to_owned(), it), (NO_WORKFLOW.to_owned(), none)].into_iter().collect();
        let mut answers = Answers::new();
        for code in ["200", "429"] {
            let mut took = Durations::default();
            took.note(&STEP_BOUNDS_MS, 30);
            answers.insert(format!("GET /api/executions/{{id}} {code}"), took);
        }
        let cell = |at: u64| Measured {
            totals: totals.clone(),
            answers: answers.clone(),
            bytes: at,
            streams: 3,
            streams_behind: at,
            due_since: (at > 1).then(|| Timestamp::from_millis(1_000)),
            posted_since: Some(Timestamp::from_millis(at * 1_000)),
            ..Measured::default()
        };
        let cells = [("default-1-0".to_owned(), cell(1)), ("default-1-1".to_owned(), cell(2))];
        let text = exposition("acme", &cells, 0, Timestamp::from_millis(3_500));
        for line in [
            r#"stepwell_runs_started_total{namespace="acme",workflow="pay"} 4"#,
            r#"stepwell_runs_ended_total{namespace="acme",workflow="pay",status="failed"} 2"#,
            r#"stepwell_rows_written_total{namespace="acme",workflow="pay"} 14"#,
            r#"stepwell_requests_refused_total{namespace="acme"} 8"#,
            r#"stepwell_spans_lost_total{namespace="acme"} 10"#,
            r#"stepwell_run_pauses_total{namespace="acme",workflow="pay",reason="request"} 4"#,
            r#"stepwell_run_pauses_total{namespace="acme",workflow="pay",reason="diverged"} 2"#,
            r#"stepwell_activations_broken_total{namespace="acme",workflow="pay",reason="unreached"} 4"#,
            r#"stepwell_schedule_delay_seconds_bucket{namespace="acme",workflow="pay",le="1"} 0"#,
            r#"stepwell_schedule_delay_seconds_bucket{namespace="acme",workflow="pay",le="5"} 2"#,
            r#"stepwell_run_duration_seconds_bucket{namespace="acme",workflow="pay",le="0.1"} 2"#,
            r#"stepwell_run_duration_seconds_bucket{namespace="acme",workflow="pay",le="604800"} 2"#,
            r#"stepwell_run_duration_seconds_bucket{namespace="acme",workflow="pay",le="+Inf"} 4"#,
            r#"stepwell_run_duration_seconds_sum{namespace="acme",workflow="pay"} 1400000.1"#,
            r#"stepwell_requests_total{namespace="acme",route="GET /api/executions/{id}",code="429"} 2"#,
            r#"stepwell_requests_total{namespace="acme",route="GET /api/executions/{id}",code="500"} 0"#,
            r#"stepwell_request_duration_seconds_count{namespace="acme",route="GET /api/executions/{id}"} 4"#,
            r#"stepwell_streams{namespace="acme"} 6"#,
            r#"stepwell_streams_behind{namespace="acme"} 3"#,
            r#"stepwell_cell_bytes{namespace="acme",cell="default-1-1"} 2"#,
            r#"stepwell_oldest_due_seconds{namespace="acme"} 2.5"#,
            r#"stepwell_outbox_oldest_seconds{namespace="acme"} 2.5"#,
            r#"stepwell_cells_unreached{namespace="acme"} 0"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in:\n{text}");
        }
        // A counter that is lower for once would be taken for one that has begun again.
        let text = exposition("acme", &cells[..1], 1, Timestamp::from_millis(3_500));
        assert!(!text.contains("_total") && !text.contains("_bucket"), "{text}");
        assert!(text.contains(r#"stepwell_cells_unreached{namespace="acme"} 1"#), "{text}");
    }
}
