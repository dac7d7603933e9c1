//! Who observes a deployment: a collector that is sent its spans, and somebody who scrapes its metrics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use stepwell_workerd_tests::{
    Http,
    endpoint::{Endpoint, Reply},
    engine::KEY,
};
use tokio::{task::AbortHandle, time::interval};

use crate::system::System;

/// More often than people do: a figure takes only some seconds.
const SCRAPE_EVERY: Duration = Duration::from_secs(2);

/// Them; nobody, around a system that is not observed.
pub struct Observers {
    collector: Option<Endpoint>,
    scrapes: Arc<AtomicU64>,
    scraper: Option<AbortHandle>,
}

impl Observers {
    /// Those of a system.
    pub async fn of(system: System) -> Result<Self> {
        let collector = if system.is_observed() {
            Some(Endpoint::start(|_, _| Reply::new("200 OK")).await?)
        } else {
            None
        };
        Ok(Self { collector, scrapes: Arc::default(), scraper: None })
    }

    /// The collector's address.
    pub fn collector(&self) -> String {
        self.collector.as_ref().map_or_else(String::new, |collector| collector.url(""))
    }

    /// Scrapes a deployment from here on.
    pub fn watch(&mut self, http: Http) {
        if self.collector.is_none() {
            return;
        }
        let seen = Arc::clone(&self.scrapes);
        let scraper = tokio::spawn(async move {
            let mut times = interval(SCRAPE_EVERY);
            loop {
                times.tick().await;
                let path = "/api/metrics/prometheus";
                let request = http.client().get(http.url(path)).bearer_auth(KEY);
                if http.send(request, path).await.is_ok_and(|answer| answer.status == 200) {
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        self.scraper = Some(scraper.abort_handle());
    }

    /// What they have seen, in words.
    pub fn saw(&self) -> String {
        self.collector.as_ref().map_or_else(String::new, |collector| {
            let scrapes = self.scrapes.load(Ordering::Relaxed);
            format!(" ({} requests with spans, {scrapes} scrapes)", collector.count())
        })
    }
}

impl Drop for Observers {
    fn drop(&mut self) {
        if let Some(scraper) = &self.scraper {
            scraper.abort();
        }
    }
}
