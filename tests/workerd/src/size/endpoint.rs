//! A server that takes its time: answers after a while, or never.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use axum::{Router, routing::get};
use tokio::net::TcpListener;

/// A slow server on a free loopback port.
pub struct Endpoint {
    /// Where it is.
    pub address: String,
    asked: Arc<AtomicU32>,
    answered: Arc<AtomicU32>,
}

impl Endpoint {
    /// One that answers after so long; without a time, never.
    pub async fn start(after: Option<Duration>) -> Result<Self> {
        let (asked, answered) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let counts = (asked.clone(), answered.clone());
        let handler = move || async move {
            counts.0.fetch_add(1, Ordering::Relaxed);
            match after {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
            counts.1.fetch_add(1, Ordering::Relaxed);
            "done"
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}/", listener.local_addr()?);
        let app = Router::new().route("/", get(handler));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, asked, answered })
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
