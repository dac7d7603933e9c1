//! Watches from outside how many steps are at work at once: each step asks it, and is answered after a while.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::sleep,
};

use crate::listener::read_head;

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How many are at work now, by customer.
    now: BTreeMap<String, u32>,
    /// The most of a customer at once.
    pub most_of_one: u32,
    /// The most at once.
    pub most: u32,
    /// How often it was asked.
    pub asked: u64,
    /// Whose steps were asked for, in order.
    pub order: Vec<String>,
    /// Whose steps a kill has ended, and when.
    killed: BTreeMap<String, Instant>,
    /// How many steps kills have ended.
    pub killed_steps: u32,
    /// The longest time from such a kill until a step of the same customer was at work.
    pub slowest_return: Duration,
    /// The customer who waited that long.
    pub slowest_customer: String,
}

/// A server on loopback that steps ask. Ends when dropped.
#[derive(Debug)]
pub struct Observer {
    address: String,
    seen: Arc<Mutex<Seen>>,
    server: AbortHandle,
}

impl Observer {
    /// Starts one on a free port, which lets each step work for so long.
    pub async fn start(work: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let shared = Arc::clone(&seen);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&shared);
                // A connection that breaks is a Worker that was killed, which is what tests do.
                tokio::spawn(async move { serve(stream, &seen, work).await });
            }
        });
        Ok(Self { address, seen, server: server.abort_handle() })
    }

    /// Where the steps of a customer ask.
    pub fn url(&self, customer: &str) -> String {
        format!("{}/{customer}", self.address)
    }

    /// Whoever asks is about to be killed.
    pub fn kill(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let at_work: Vec<_> =
            seen.now.iter().filter(|(_, count)| **count > 0).map(|(of, _)| of.clone()).collect();
        for customer in at_work {
            seen.killed_steps += 1;
            seen.killed.insert(customer, Instant::now());
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(mut stream: TcpStream, seen: &Mutex<Seen>, work: Duration) -> Result<()> {
    let head = read_head(&mut stream).await?;
    let customer = head.split(' ').nth(1).context("a request line has a target")?.trim_start_matches('/');
    let with = |change: &dyn Fn(&mut Seen)| change(&mut seen.lock().unwrap_or_else(PoisonError::into_inner));
    with(&|seen| {
        let mine = seen.now.entry(customer.to_owned()).or_default();
        *mine += 1;
        seen.most_of_one = seen.most_of_one.max(*mine);
        seen.most = seen.most.max(seen.now.values().sum());
        seen.asked += 1;
        if let Some(since) = seen.killed.remove(customer)
            && since.elapsed() > seen.slowest_return
        {
            seen.slowest_return = since.elapsed();
            customer.clone_into(&mut seen.slowest_customer);
        }
        seen.order.push(customer.to_owned());
    });
    tokio::select! {
        () = sleep(work) => {}
        // Whoever asked is gone: nothing more is sent.
        _ = stream.read_u8() => {}
    }
    // Before the answer: who gets it may be gone from its place when it has it.
    with(&|seen| {
        if let Some(mine) = seen.now.get_mut(customer) {
            *mine -= 1;
        }
    });
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await?;
    Ok(())
}
