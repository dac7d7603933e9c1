//! The ledger: a server on loopback that writes down every attempt of every step, in order.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::server;

/// One attempt of one step.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// The run's id.
    pub run: String,
    /// What the step is called there.
    pub step: String,
    /// The idempotency key that the step was given.
    pub key: String,
    /// The attempt that it was told it is.
    pub attempt: u32,
}

type Entries = Arc<Mutex<Vec<Entry>>>;

/// A running ledger; ends when dropped.
#[derive(Debug)]
pub struct Ledger {
    address: String,
    entries: Entries,
    server: AbortHandle,
}

impl Ledger {
    /// Starts one on a free port.
    pub async fn start() -> Result<Self> {
        let entries = Entries::default();
        let written = entries.clone();
        let (address, server) = server::serve(move |body| std::future::ready(write(&written, &body))).await?;
        Ok(Self { address: format!("{address}/"), entries, server })
    }

    /// Where steps write.
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Everything written so far; an entry's number is its place.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.lock().expect("nobody panics while holding the ledger").clone()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn write(entries: &Entries, body: &str) -> (u16, String) {
    let Ok(entry) = serde_json::from_str(body) else { return (400, String::new()) };
    let mut entries = entries.lock().expect("nobody panics while holding the ledger");
    entries.push(entry);
    (200, (entries.len() - 1).to_string())
}
