//! `stepwell schedules`: runs that are started at certain times.

use clap::{Args, Subcommand, ValueEnum};
use serde::de::IgnoredAny;
use serde_json::json;
use stepwell_protocol::{
    Payload, Timestamp,
    schedule::{
        Backfill, CATCH_UP_MS_DEFAULT, CatchUp, NextTicks, Overlap, ScheduleList, ScheduleSpec, ScheduleView,
    },
};

use super::start::Json;
use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What to do if nobody knows whether a change was made.
const DOUBT: &str = "Look with `stepwell schedules show`; setting it again is safe.";

/// What can be done with schedules.
#[derive(Debug, Subcommand)]
pub enum Schedules {
    /// List the schedules of the namespace.
    List,
    /// Show a schedule.
    Show(One),
    /// Create a schedule, or replace what it does.
    Set(Box<Set>),
    /// Show the next ten ticks of a schedule.
    Next(One),
    /// Stop a schedule from ticking until it is resumed.
    Pause(One),
    /// Let a paused schedule tick again.
    Resume(One),
    /// Start a run of a schedule now.
    Trigger(One),
    /// Start a run for each tick of a range, also for those that have started one.
    Backfill(Range),
    /// Delete a schedule. Its runs continue.
    Delete(One),
}

/// A schedule.
#[derive(Debug, Args)]
pub struct One {
    /// Its id.
    #[arg(value_name = "SCHEDULE")]
    id: String,
}

/// A range of its ticks.
#[derive(Debug, Args)]
pub struct Range {
    /// The schedule's id.
    #[arg(value_name = "SCHEDULE")]
    id: String,
    /// From this time on: 2026-11-13, 2026-11-13T09:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = words::parse_time)]
    from: Timestamp,
    /// Up to this time.
    #[arg(long, value_name = "TIME", value_parser = words::parse_time)]
    to: Timestamp,
}

/// What a schedule is to do.
#[derive(Debug, Args)]
pub struct Set {
    /// Its id.
    #[arg(value_name = "SCHEDULE")]
    id: String,
    /// The workflow that each tick starts a run of.
    workflow: String,
    /// When it ticks: '0 9 * * MON-FRI', 'every 5 minutes', 'every weekday at 9:00 in Europe/Berlin', 'at
    /// 2026-12-01T09:00:00Z'.
    when: String,
    #[command(flatten)]
    input: Json,
    /// The time zone; UTC, if neither this nor WHEN names one.
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// A tag of its runs; up to eight.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// When it does not tick: a date, or a cron expression. Repeatable.
    #[arg(long, value_name = "WHEN")]
    except: Vec<String>,
    /// It does not tick before.
    #[arg(long, value_name = "TIME", value_parser = words::parse_time)]
    starts: Option<Timestamp>,
    /// It does not tick after.
    #[arg(long, value_name = "TIME", value_parser = words::parse_end)]
    ends: Option<Timestamp>,
    /// Delay its runs by a fixed part of this time, such as 5m.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    jitter: Option<u64>,
    /// What happens while an earlier run has not ended.
    #[arg(long, value_enum, default_value_t)]
    overlap: WhenBusy,
    /// Start every tick that was missed, not only the latest.
    #[arg(long)]
    catch_up_all: bool,
    /// How late a tick may still start, such as 6h; a day, if that is not said.
    #[arg(long, value_name = "TIME", value_parser = words::parse_length)]
    catch_up: Option<u64>,
    /// Pause it after so many failed runs in a row.
    #[arg(long, value_name = "RUNS")]
    pause_after_failures: Option<u32>,
}

/// What happens to a tick while an earlier run has not ended.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum WhenBusy {
    /// Start a run beside it.
    #[default]
    Allow,
    /// Skip the tick.
    Skip,
    /// Wait for its end; of several ticks, start the latest.
    QueueOne,
    /// Wait for its end, and so for each tick after it.
    QueueAll,
    /// Cancel it first.
    Cancel,
}

impl From<WhenBusy> for Overlap {
    fn from(busy: WhenBusy) -> Self {
        match busy {
            WhenBusy::Allow => Self::Allow,
            WhenBusy::Skip => Self::Skip,
            WhenBusy::QueueOne => Self::QueueOne,
            WhenBusy::QueueAll => Self::QueueAll,
            WhenBusy::Cancel => Self::Cancel,
        }
    }
}

impl Schedules {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let ask = Ask { doubt: Some(DOUBT), ..Ask::default() };
        let answer: Answer<ScheduleView> = match self {
            Self::List => return list(global),
            Self::Next(One { id }) => return next(global, &id),
            Self::Delete(One { id }) => return delete(global, &id),
            Self::Show(One { id }) => client.get(&["schedules", &id], &ask)?,
            Self::Set(set) => {
                let (id, spec) = set.spec()?;
                let body = Some(serde_json::to_string(&spec).expect("it holds only what JSON can say"));
                client.put(&["schedules", &id], &Ask { body, ..ask })?
            }
            Self::Pause(One { id }) => client.post(&["schedules", &id, "pause"], &ask)?,
            Self::Resume(One { id }) => client.post(&["schedules", &id, "resume"], &ask)?,
            Self::Trigger(One { id }) => client.post(&["schedules", &id, "trigger"], &ask)?,
            Self::Backfill(Range { id, from, to }) => {
                let range = Backfill { from, to };
                let body = Some(serde_json::to_string(&range).expect("it holds only what JSON can say"));
                client.post(&["schedules", &id, "backfill"], &Ask { body, ..ask })?
            }
        };
        if global.json {
            anstream::println!("{}", answer.text);
        } else {
            show(&answer.value);
        }
        Ok(())
    }
}

impl Set {
    fn spec(self) -> Result<(String, ScheduleSpec)> {
        let input = match self.input.json()? {
            Some(text) => Payload::from_text(text).unwrap_or_default(),
            None => Payload::null(),
        };
        let spec = ScheduleSpec {
            workflow: self.workflow,
            when: self.when,
            zone: self.zone,
            input,
            tags: self.tags,
            starts_at: self.starts,
            ends_at: self.ends,
            except: self.except,
            jitter_ms: self.jitter.unwrap_or_default(),
            overlap: self.overlap.into(),
            catch_up: if self.catch_up_all { CatchUp::All } else { CatchUp::Last },
            catch_up_ms: self.catch_up.unwrap_or(CATCH_UP_MS_DEFAULT),
            pause_after_failures: self.pause_after_failures,
        };
        Ok((self.id, spec))
    }
}

fn list(global: &Global) -> Result {
    let client = global.client()?;
    let (mut all, mut unreadable, mut after) = (Vec::new(), Vec::new(), String::new());
    loop {
        let query = vec![("after", after), ("limit", "100".to_owned())];
        let page: Answer<ScheduleList> = client.get(&["schedules"], &Ask { query, ..Ask::default() })?;
        all.extend(page.value.schedules);
        unreadable.extend(page.value.unreadable);
        match page.value.next {
            Some(next) => after = next,
            None => break,
        }
    }
    if global.json {
        anstream::println!("{}", json!({ "schedules": all, "unreadable": unreadable }));
        return Ok(());
    }
    for id in &unreadable {
        anstream::eprintln!(
            "This release cannot read the schedule '{}'. Replace or delete it.",
            words::plain(id)
        );
    }
    if all.is_empty() {
        anstream::eprintln!("There are no schedules. `stepwell schedules set` creates one.");
    }
    table::print(&all.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

fn row(schedule: &ScheduleView) -> Vec<String> {
    let next = match (&schedule.paused, schedule.next_tick) {
        _ if retired(schedule).is_some() => "retired".to_owned(),
        (Some(_), _) => "paused".to_owned(),
        (None, Some(at)) => words::date(at),
        (None, None) => "never again".to_owned(),
    };
    let spec = &schedule.spec;
    vec![words::plain(&schedule.id), words::plain(&spec.workflow), words::plain(&spec.when), next]
}

/// When it was removed from the code.
fn retired(schedule: &ScheduleView) -> Option<Timestamp> {
    schedule.declared.as_ref().and_then(|declared| declared.retired_at)
}

fn next(global: &Global, id: &str) -> Result {
    let answer: Answer<NextTicks> = global.client()?.get(&["schedules", id, "next"], &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    for at in answer.value.ticks {
        anstream::println!("{}", words::date(at));
    }
    Ok(())
}

fn delete(global: &Global, id: &str) -> Result {
    let ask = Ask { doubt: Some(DOUBT), ..Ask::default() };
    let _: Answer<IgnoredAny> = global.client()?.delete(&["schedules", id], &ask)?;
    if global.json {
        anstream::println!("{}", json!({ "deleted": id }));
    } else {
        anstream::println!("The schedule {} is deleted.", words::plain(id));
    }
    Ok(())
}

fn show(schedule: &ScheduleView) {
    let field = |name: &str, value: String| anstream::println!("  {name:9} {value}");
    let (spec, counts) = (&schedule.spec, &schedule.counts);
    anstream::println!("{}", words::plain(&schedule.id));
    field("workflow", words::plain(&spec.workflow));
    let zone = spec.zone.as_deref().map(|zone| format!(" in {zone}")).unwrap_or_default();
    field("when", words::plain(&format!("{}{zone}", spec.when)));
    match (&schedule.paused, schedule.next_tick) {
        (Some(paused), _) => {
            let why = paused.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            let since = words::date(paused.at);
            field("paused", words::plain(&format!("since {since} by {}{why}", paused.by)));
        }
        (None, Some(at)) => field("next", words::date(at)),
        (None, None) => field("next", "never again".to_owned()),
    }
    match &schedule.declared {
        Some(declared) if declared.changed => {
            field(
                "declared",
                words::plain(&format!("in code as: {}; an operator has changed it", declared.spec.when)),
            );
        }
        Some(_) => match retired(schedule) {
            Some(at) => field("retired", format!("removed from the code on {}", words::date(at))),
            None => field("declared", "in code".to_owned()),
        },
        None => {}
    }
    if let Some(last) = &schedule.last {
        field("last", words::plain(&format!("{} {}", words::date(last.at), last.run)));
    }
    if let Some(problem) = &schedule.problem {
        field("problem", words::plain(&problem.detail));
    }
    let told = format!("{} started, {} skipped, {} missed", counts.started, counts.skipped, counts.missed);
    field("ticks", told);
}
