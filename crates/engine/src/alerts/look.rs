//! Gathers the figures that alert rules look at.
//!
//! Each cell is asked once, and each partition of a queue, a few at a time. What does not answer in time is left out.

use std::{pin::pin, rc::Rc, time::Duration};

use futures::{
    StreamExt as _,
    future::{Either, join, select},
    stream,
};
use serde::de::DeserializeOwned;
use stepwell_core::{
    alert::{Figures, Span, Wanted},
    object::Address,
    ordered::OrdMap,
};
use stepwell_protocol::{
    Place, json,
    queue::{QueueCounts, QueueSettings},
    totals::Totals,
};
use worker::Delay;

use super::Host;
use crate::{
    calls::{
        cell::{self, Operation},
        figures::Summed,
        queues,
    },
    log,
    object::{self, in_time},
    runtime,
    settings::Deployment,
};

/// How long a look takes at the most: what was found by then counts.
const LOOK_MS: u64 = 20_000;

/// How many questions of a kind are under way at once.
const AT_ONCE: usize = 3;

impl Host {
    /// Gathers figures. The machine hears them.
    pub(super) fn look(self: &Rc<Self>, flight: u64, wanted: Wanted) {
        let host = self.clone();
        self.go_on_with(async move {
            let (mut figures, mut queues) = (Figures::default(), OrdMap::new());
            let time = Delay::from(Duration::from_millis(LOOK_MS));
            // Beside each other: slow queues say nothing about cells.
            let gathered = join(host.gather(&wanted, &mut figures), host.gather_queues(&wanted, &mut queues));
            if let Either::Right(_) = select(pin!(gathered), time).await {
                log::warn!("not all figures for alerts were found in time");
            }
            figures.queues = queues;
            let namespace = &host.address.namespace;
            let heard =
                host.turn(|machine, store, now| Ok(machine.looked(store, now, namespace, flight, &figures)?));
            if let Err(fault) = heard {
                log::error!("{fault}");
            }
        });
    }

    async fn gather_queues(&self, wanted: &Wanted, queues: &mut OrdMap<String, (u64, u64)>) {
        let counted =
            stream::iter(&wanted.queues).map(|queue| async move { (queue, self.count(queue).await) });
        let mut counted = pin!(counted.buffer_unordered(AT_ONCE));
        while let Some((queue, counts)) = counted.next().await {
            if let Some(counts) = counts {
                queues.insert(queue.clone(), (counts.depth, counts.dead));
            }
        }
    }

    async fn gather(&self, wanted: &Wanted, figures: &mut Figures) {
        let Ok(deployment) = Deployment::known(&self.env) else { return };
        if !wanted.cells && wanted.spans.is_empty() {
            return;
        }
        let spans: Vec<_> = wanted.spans.iter().cloned().collect();
        let spans = &spans;
        let asked = stream::iter(deployment.pool.places()).map(|place| async move {
            self.ask_cell::<Summed>(&place, Operation::Sum { spans: spans.clone() }).await
        });
        let mut asked = pin!(asked.buffer_unordered(AT_ONCE));
        let (mut answers, mut unreached) = (Vec::new(), 0);
        while let Some(answer) = asked.next().await {
            if answer.is_none() {
                unreached += 1;
                // If the time runs out, these are known. That there are none is known only at the end.
                figures.unreached = Some(unreached);
            }
            answers.push(answer);
        }
        figures.unreached = Some(unreached);
        // Without the part of one cell, the others would say something else.
        if let Some(cells) = answers.into_iter().collect::<Option<Vec<_>>>() {
            add_up(figures, spans, &cells);
        }
    }

    async fn ask_cell<T: DeserializeOwned>(&self, place: &Place, operation: Operation) -> Option<T> {
        let namespace = &self.address.namespace;
        let call = cell::Call::new(namespace, place, None, operation).in_life(self.life().ok()?);
        let to = Address::cell(namespace, place);
        let (status, body) = in_time(object::ask(&self.env, &to, &call)).await.ok()?;
        if status == 200 { json::from_str(&body).ok() } else { None }
    }

    /// How many jobs a queue has. One that is not there has none.
    async fn count(&self, queue: &str) -> Option<QueueCounts> {
        let open = queues::Request::Open { create: false };
        let (status, body) = self.ask_partition(queue, 0, None, open).await?;
        match status {
            404 => return Some(QueueCounts::default()),
            200 => {}
            _ => return None,
        }
        let settings: QueueSettings = json::from_str(&body).ok()?;
        let settings = &settings;
        let asked = stream::iter(0..settings.partitions).map(|partition| async move {
            self.ask_partition(queue, partition, Some(settings.clone()), queues::Request::Counts).await
        });
        let mut asked = pin!(asked.buffer_unordered(AT_ONCE));
        let mut counts = QueueCounts::default();
        while let Some(answer) = asked.next().await {
            match answer? {
                (200, body) => counts = counts.plus(json::from_str(&body).ok()?),
                _ => return None,
            }
        }
        Some(counts)
    }

    async fn ask_partition(
        &self,
        queue: &str,
        partition: u32,
        settings: Option<QueueSettings>,
        request: queues::Request,
    ) -> Option<(u16, String)> {
        let to = Address::queue(&self.address.namespace, queue, partition);
        in_time(object::ask(&self.env, &to, &queues::Call { settings, request })).await.ok()
    }
}

fn add_up(figures: &mut Figures, spans: &[Span], cells: &[Summed]) {
    for (at, span) in spans.iter().enumerate() {
        let mut all = Totals::default();
        cells.iter().filter_map(|cell| cell.spans.get(at)).for_each(|of| all.add(of));
        figures.spans.insert(span.clone(), all);
    }
    let now = runtime::clock().as_millis();
    let due = cells.iter().filter_map(|cell| cell.due_since).min();
    figures.waiting_seconds = Some(due.map_or(0, |since| now.saturating_sub(since.as_millis()) / 1_000));
    figures.dead_letters = Some(cells.iter().map(|cell| cell.dead_letters).sum());
    let filled = cells.iter().map(|cell| cell.bytes.saturating_mul(100) / cell.bytes_max.max(1));
    figures.cell_percent = filled.max();
}
