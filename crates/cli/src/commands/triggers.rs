//! `stepwell triggers`: runs that events start, and jobs that they become.

use clap::{Args, Subcommand};
use serde::de::IgnoredAny;
use serde_json::json;
use stepwell_protocol::{
    Timestamp,
    topic::{TriggerInput, TriggerList, TriggerSpec, TriggerView},
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::Result,
    table, words,
};

/// What to do if nobody knows whether a change was made.
const DOUBT: &str = "Look with `stepwell triggers show`; setting it again is safe.";

/// What can be done with triggers.
#[derive(Debug, Subcommand)]
pub enum Triggers {
    /// List the triggers of a topic.
    List(Topic),
    /// Show a trigger.
    Show(One),
    /// Create a trigger, or replace what it does.
    Set(Set),
    /// Pause a trigger: events start no runs and send no jobs until it is resumed.
    Pause(One),
    /// Resume a paused trigger.
    Resume(One),
    /// Delete a trigger. Its runs continue.
    Delete(One),
}

/// A topic.
#[derive(Debug, Args)]
pub struct Topic {
    /// The topic: order, for events such as order/paid.
    topic: String,
}

/// A trigger.
#[derive(Debug, Args)]
pub struct One {
    /// Its topic.
    topic: String,
    /// Its id.
    #[arg(value_name = "TRIGGER")]
    id: String,
}

/// What a trigger is to do.
#[derive(Debug, Args)]
pub struct Set {
    /// Its id.
    #[arg(value_name = "TRIGGER")]
    id: String,
    /// The events: order/paid, or 'order/*'.
    on: String,
    /// The workflow that each of them starts a run of.
    #[arg(required_unless_present = "queue", conflicts_with = "queue")]
    workflow: Option<String>,
    /// Send each of them to this queue as a job, instead of starting a run.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// A condition on the event: 'event.data.amount > 100'.
    #[arg(long, value_name = "EXPRESSION")]
    when: Option<String>,
    /// Start runs, or send jobs, with the whole event instead of its data.
    #[arg(long)]
    whole_event: bool,
    /// A tag of its runs; up to seven.
    #[arg(long = "tag", value_name = "TAG", conflicts_with = "queue")]
    tags: Vec<String>,
}

impl Triggers {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let ask = Ask { doubt: Some(DOUBT), ..Ask::default() };
        let answer: Answer<TriggerView> = match self {
            Self::List(Topic { topic }) => return list(global, topic),
            Self::Delete(One { topic, id }) => return delete(global, &topic, &id),
            Self::Show(One { topic, id }) => client.get(&["triggers", &topic, &id], &ask)?,
            Self::Set(set) => {
                let topic = set.on.split('/').next().unwrap_or_default().to_owned();
                let input = if set.whole_event { TriggerInput::Event } else { TriggerInput::Data };
                let Set { on, when, queue, tags, .. } = set;
                let workflow = set.workflow.unwrap_or_default();
                let spec = TriggerSpec { on, when, workflow, queue, input, tags };
                let body = Some(serde_json::to_string(&spec).expect("it holds only what JSON can say"));
                client.put(&["triggers", &topic, &set.id], &Ask { body, ..ask })?
            }
            Self::Pause(One { topic, id }) => client.post(&["triggers", &topic, &id, "pause"], &ask)?,
            Self::Resume(One { topic, id }) => client.post(&["triggers", &topic, &id, "resume"], &ask)?,
        };
        if global.json {
            anstream::println!("{}", answer.text);
        } else {
            show(&answer.value);
        }
        Ok(())
    }
}

fn list(global: &Global, topic: String) -> Result {
    let ask = Ask { query: vec![("topic", topic)], ..Ask::default() };
    let answer: Answer<TriggerList> = global.client()?.get(&["triggers"], &ask)?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    for id in &answer.value.unreadable {
        anstream::eprintln!(
            "This release cannot read the trigger '{}'. Replace or delete it.",
            words::plain(id)
        );
    }
    if answer.value.triggers.is_empty() {
        anstream::eprintln!("The topic has no triggers. `stepwell triggers set` creates one.");
    }
    table::print(&answer.value.triggers.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

fn row(trigger: &TriggerView) -> Vec<String> {
    let spec = &trigger.spec;
    let state = match &trigger.paused {
        _ if retired(trigger).is_some() => "retired".to_owned(),
        Some(_) => "paused".to_owned(),
        None if trigger.spec.queue.is_some() => format!("{} sent", trigger.counts.started),
        None => format!("{} started", trigger.counts.started),
    };
    vec![words::plain(&trigger.id), words::plain(&spec.on), target(spec), state]
}

/// What its events become.
fn target(spec: &TriggerSpec) -> String {
    match &spec.queue {
        Some(queue) => format!("queue {}", words::plain(queue)),
        None => words::plain(&spec.workflow),
    }
}

/// When it was removed from the code.
fn retired(trigger: &TriggerView) -> Option<Timestamp> {
    trigger.declared.as_ref().and_then(|declared| declared.retired_at)
}

fn delete(global: &Global, topic: &str, id: &str) -> Result {
    let ask = Ask { doubt: Some(DOUBT), ..Ask::default() };
    let _: Answer<IgnoredAny> = global.client()?.delete(&["triggers", topic, id], &ask)?;
    if global.json {
        anstream::println!("{}", json!({ "deleted": id }));
    } else {
        anstream::println!("The trigger {} is deleted.", words::plain(id));
    }
    Ok(())
}

fn show(trigger: &TriggerView) {
    let field = |name: &str, value: String| anstream::println!("  {name:9} {value}");
    let (spec, counts) = (&trigger.spec, &trigger.counts);
    anstream::println!("{}", words::plain(&trigger.id));
    field("on", words::plain(&spec.on));
    if let Some(when) = &spec.when {
        field("when", words::plain(when));
    }
    match &spec.queue {
        Some(queue) => field("queue", words::plain(queue)),
        None => field("workflow", words::plain(&spec.workflow)),
    }
    if let Some(paused) = &trigger.paused {
        field("paused", words::plain(&format!("since {} by {}", words::date(paused.at), paused.by)));
    }
    match &trigger.declared {
        Some(declared) if declared.changed => {
            let when = declared.spec.when.as_deref().map(|when| format!(" when {when}")).unwrap_or_default();
            let spec = format!("in code as: {}{when}; an operator has changed it", declared.spec.on);
            field("declared", words::plain(&spec));
        }
        Some(_) => match retired(trigger) {
            Some(at) => field("retired", format!("removed from the code on {}", words::date(at))),
            None => field("declared", "in code".to_owned()),
        },
        None => {}
    }
    if let Some(last) = &trigger.last {
        let became = last.run.as_ref().map_or_else(|| last.event.clone(), ToString::to_string);
        field("last", words::plain(&format!("{} {became}", words::date(last.at))));
    }
    let done = if spec.queue.is_some() { "sent" } else { "started" };
    let told = format!(
        "{} {done}, {} waiting, {} refused, {} failed conditions",
        counts.started, counts.waiting, counts.refused, counts.failed
    );
    field("events", told);
    for failure in &trigger.failures {
        field("failure", words::plain(&format!("{} {}", failure.event, failure.why)));
    }
}
