//! Gathers the figures that alert rules look at.

use std::rc::Rc;

use futures::future::join_all;
use stepwell_core::{
    alert::{Figures, Wanted},
    object::Address,
};
use stepwell_protocol::{
    Place, Timestamp, json,
    queue::{QueueCounts, QueueSettings},
    totals::Minute,
};

use super::Host;
use crate::{
    calls::{
        cell::{self, ListedMinutes, Measured, Operation},
        queues,
    },
    object::{self, in_time},
    runtime,
    settings::Deployment,
};

impl Host {
    /// Gathers figures. The machine hears them.
    pub(super) fn look(self: &Rc<Self>, flight: u64, wanted: Wanted) {
        let host = self.clone();
        self.go_on_with(async move {
            let figures = host.gather(&wanted).await;
            let namespace = &host.address.namespace;
            let heard = host.turn(|machine, store, now| {
                Ok(machine.looked(store, now, namespace, flight, Some(&figures))?)
            });
            if let Err(fault) = heard {
                worker::console_error!("stepwell: {fault}");
            }
        });
    }

    async fn gather(&self, Wanted { ends, cells, queues }: &Wanted) -> Figures {
        let mut figures = Figures::default();
        let Ok(deployment) = Deployment::known(&self.env) else { return figures };
        let places: Vec<_> = deployment.pool.places().collect();
        for (workflow, minutes) in ends {
            let since = runtime::clock().as_millis().saturating_sub(minutes * 60_000);
            let (since, workflow) = (Timestamp::from_millis(since), workflow.clone());
            let asked = places.iter().map(|place| {
                self.ask_cell(place, Operation::ListMinutes { since, workflow: workflow.clone() })
            });
            // Without the part of one cell, the others would say something else.
            let Some(listed) = join_all(asked).await.into_iter().collect::<Option<Vec<ListedMinutes>>>()
            else {
                continue;
            };
            let (mut failed, mut ended) = (0, 0);
            for Minute { totals, .. } in listed.into_iter().flat_map(|listed| listed.minutes) {
                failed += totals.failed;
                ended += totals.failed + totals.completed + totals.cancelled;
            }
            figures.ends.insert((workflow, *minutes), (failed, ended));
        }
        if *cells {
            let asked = places.iter().map(|place| self.ask_cell(place, Operation::Measure));
            if let Some(cells) = join_all(asked).await.into_iter().collect::<Option<Vec<Measured>>>() {
                measure(&mut figures, &cells);
            }
        }
        for queue in queues {
            if let Some(counts) = self.count(queue).await {
                figures.queues.insert(queue.clone(), (counts.depth, counts.dead));
            }
        }
        figures
    }

    async fn ask_cell<T: serde::de::DeserializeOwned>(
        &self,
        place: &Place,
        operation: Operation,
    ) -> Option<T> {
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
        let mut counts = QueueCounts::default();
        for partition in 0..settings.partitions {
            let settings = Some(settings.clone());
            let (status, body) =
                self.ask_partition(queue, partition, settings, queues::Request::Counts).await?;
            if status != 200 {
                return None;
            }
            counts = counts.plus(json::from_str(&body).ok()?);
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

fn measure(figures: &mut Figures, cells: &[Measured]) {
    let now = runtime::clock().as_millis();
    let due = cells.iter().filter_map(|cell| cell.due_since).min();
    figures.waiting_seconds = Some(due.map_or(0, |since| now.saturating_sub(since.as_millis()) / 1_000));
    figures.dead_letters = Some(cells.iter().map(|cell| cell.counted.letters.dead).sum());
    let filled = cells.iter().map(|cell| cell.bytes.saturating_mul(100) / cell.bytes_max.max(1));
    figures.cell_percent = filled.max();
}
