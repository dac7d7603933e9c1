//! What is seen from outside when all is at rest, for the verdict.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use super::{
    LARGE, Report, TOPIC, TRIGGERS,
    clients::Done,
    verdict::{self, End, Listed, Started, Travelled, Waited},
};
use crate::engine::Client;

/// How many requests are under way at once.
const AT_ONCE: usize = 8;

/// The size of a page: the last one is not full.
const PAGE: usize = 97;

/// Looks at everything, and adds what is right to the report.
pub async fn check(client: &Client, done: &[Done], report: &mut Report) -> Result<()> {
    let accepted: BTreeSet<_> = done.iter().flat_map(|one| one.wish.events()).map(|sent| sent.id).collect();
    let listed = events(client).await?;
    verdict::events_are_there_once(&accepted, &listed)?;
    report.events = listed.len();
    report.repeats = done.iter().map(|one| one.repeats).sum();
    report.unheard = done.iter().map(|one| one.unheard).sum();

    let large = listed.iter().filter(|event| event.data["amount"].as_u64() > Some(LARGE));
    for ((trigger, _), events) in TRIGGERS.iter().zip([listed.iter().collect(), large.collect::<Vec<_>>()]) {
        let runs = started(client, trigger).await?;
        verdict::each_event_has_one_run(trigger, &events, &runs)?;
        report.started.push(runs.len());
    }

    let by_id: BTreeMap<_, _> = listed.iter().map(|event| (event.id.as_str(), event)).collect();
    let waits = stream::iter(done.iter().filter(|one| one.wish.waits()))
        .map(|one| waited(client, one, &by_id))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    for (is_early, wait) in &waits {
        match verdict::wait_has_one_end(wait)? {
            End::Met if *is_early => report.met_early += 1,
            End::Met => report.met += 1,
            End::TimedOut => report.timed_out += 1,
            End::Missed => report.missed += 1,
        }
        report.unnamed += u32::from(!wait.received.is_empty() && wait.named.is_none());
    }
    let travels = stream::iter(done.iter().filter(|one| one.wish.travels()))
        .map(|one| travelled(client, one, &by_id))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    for run in &travels {
        verdict::only_its_event_cancels(run)?;
        let count = if run.sent.is_some() { &mut report.cancelled } else { &mut report.left };
        *count += 1;
    }
    Ok(())
}

fn text(value: &Value, field: &str) -> Result<String> {
    Ok(value[field].as_str().with_context(|| format!("{value} has '{field}'"))?.to_owned())
}

/// The events of the topic, page by page.
async fn events(client: &Client) -> Result<Vec<Listed>> {
    let (mut listed, mut before) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/api/events?topic={TOPIC}&limit={PAGE}{before}")).await?.json()?;
        for event in page["events"].as_array().context("a page has events")? {
            listed.push(Listed {
                id: text(event, "id")?,
                at: event["at"].as_u64().context("an event has a time")?,
                tag: text(event, "tag")?,
                data: event["data"].clone(),
            });
        }
        match page["next"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => return Ok(listed),
        }
    }
}

/// The runs that a trigger has started, by its tag.
async fn started(client: &Client, trigger: &str) -> Result<Vec<Started>> {
    let runs = client.list(&format!("tag={trigger}"), PAGE).await?;
    let started = |run: &Value| {
        let tags = run["tags"].as_array().map_or(&[][..], Vec::as_slice);
        let event = tags.iter().filter_map(Value::as_str).find(|tag| tag.starts_with("event:"));
        let event = event.with_context(|| format!("{run} names no event"))?.to_owned();
        Ok(Started { id: text(run, "id")?, event, status: text(run, "status")? })
    };
    runs.iter().map(started).collect()
}

/// A run that waits, and whether its event was sent before it was started.
async fn waited(client: &Client, one: &Done, events: &BTreeMap<&str, &Listed>) -> Result<(bool, Waited)> {
    let run = one.run.as_deref().context("it has started a run")?;
    let view = client.show(run, 0).await?.json()?;
    let sent = one.wish.events().first().and_then(|sent| events.get(sent.id.as_str()).copied());
    let (mut since, mut received, mut timeouts) = (None, Vec::new(), 0);
    for record in client.history(run).await? {
        let (signal, timer) = (&record["event"]["signal_received"], &record["event"]["timer_fired"]);
        if signal.is_object() {
            received.push(text(&signal["payload"], "id")?);
        }
        timeouts += usize::from(timer.is_object());
        since = since.or(signal["since"].as_u64()).or(timer["since"].as_u64());
    }
    let mut named = None;
    if let Some(sent) = sent {
        let shown = client.get(&format!("/api/events/{TOPIC}/{}", sent.id)).await?.json()?;
        named = shown["waits"][0]["run"].as_str().map(str::to_owned);
    }
    let wait = Waited {
        run: run.to_owned(),
        order: one.wish.order,
        sent: sent.map(|event| (event.id.clone(), event.at)),
        since,
        received,
        named,
        timeouts,
        status: text(&view, "status")?,
        output: view["output"].clone(),
    };
    Ok((one.wish.is_early(), wait))
}

/// A run that its event cancels.
async fn travelled(client: &Client, one: &Done, events: &BTreeMap<&str, &Listed>) -> Result<Travelled> {
    let run = one.run.as_deref().context("it has started a run")?;
    let view = client.show(run, 0).await?.json()?;
    let sent = one.wish.events().first().and_then(|sent| events.get(sent.id.as_str()).copied());
    Ok(Travelled {
        order: one.wish.order,
        sent: sent.map(|event| event.tag.clone()),
        status: text(&view, "status")?,
        by: view["acts"][0]["by"].as_str().map(str::to_owned),
    })
}
