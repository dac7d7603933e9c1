//! A server that takes its time: answers a while after it was allowed to, or never.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::sync::watch;

use crate::server;

/// A slow server on a free loopback port.
pub struct Endpoint {
    /// Where it is.
    pub address: String,
    asked: Arc<AtomicU32>,
    answered: Arc<AtomicU32>,
    gate: watch::Sender<bool>,
}

impl Endpoint {
    /// One that answers after so long, and not before it is allowed to.
    pub async fn start(after: Duration) -> Result<Self> {
        let (asked, answered) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (gate, is_open) = watch::channel(false);
        let state = (asked.clone(), answered.clone(), is_open);
        let answer = move |_| {
            let (asked, answered, mut is_open) = state.clone();
            async move {
                asked.fetch_add(1, Ordering::Relaxed);
                // Its other end lives as long as whoever started this.
                let _ = is_open.wait_for(|is_open| *is_open).await;
                tokio::time::sleep(after).await;
                answered.fetch_add(1, Ordering::Relaxed);
                (200, "done".to_owned())
            }
        };
        let (address, _) = server::serve(answer).await?;
        Ok(Self { address: format!("{address}/"), asked, answered, gate })
    }

    /// Lets it answer.
    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// How many requests have come.
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    /// How many were answered.
    pub fn answered(&self) -> u32 {
        self.answered.load(Ordering::Relaxed)
    }
}
