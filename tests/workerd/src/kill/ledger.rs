//! The ledger: a server on loopback that writes down every attempt of every step, in order.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::{Router, extract::State, http::StatusCode, routing::post};
use serde::Deserialize;
use tokio::{net::TcpListener, task::AbortHandle};

/// One attempt of one step.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    /// The run's id.
    pub run: String,
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
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}/", listener.local_addr()?);
        let entries = Entries::default();
        let router = Router::new().route("/", post(write)).with_state(entries.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Ok(Self { address, entries, server })
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

async fn write(State(entries): State<Entries>, body: String) -> Result<String, StatusCode> {
    let entry = serde_json::from_str(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let mut entries = entries.lock().expect("nobody panics while holding the ledger");
    entries.push(entry);
    Ok((entries.len() - 1).to_string())
}
