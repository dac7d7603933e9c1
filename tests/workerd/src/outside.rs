//! A server on loopback that misbehaves on purpose: what the steps of workflows call.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};

use crate::listener::read_head;

/// One call that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The idempotency key of the step.
    pub key: String,
    /// The attempt that the step was told it is.
    pub attempt: u32,
}

/// A running server; ends when dropped. The first part of a path says what it does:
///
/// - `ok`: answers the number of the call.
/// - `hang`: does its work and never answers; from attempt 2 on, answers.
/// - `die`: does its work and breaks the connection; from attempt 2 on, answers.
/// - `garbage`: answers something that is no number; from attempt 2 on, a number.
/// - `late`: answers only after [`Outside::let_go`].
#[derive(Debug)]
pub struct Outside {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    count: watch::Receiver<usize>,
    release: watch::Sender<bool>,
    server: AbortHandle,
}

#[derive(Clone)]
struct Desk {
    asked: Arc<Mutex<Vec<Asked>>>,
    count: Arc<watch::Sender<usize>>,
    released: watch::Receiver<bool>,
}

impl Outside {
    /// Starts one on a free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let (count_sender, count) = watch::channel(0);
        let (release, released) = watch::channel(false);
        let asked = Arc::default();
        let desk = Desk { asked: Arc::clone(&asked), count: Arc::new(count_sender), released };
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let desk = desk.clone();
                // A connection that breaks is a Worker that was killed, which is what tests do.
                tokio::spawn(async move { serve(stream, desk).await });
            }
        });
        Ok(Self { address, asked, count, release, server: server.abort_handle() })
    }

    /// The address of one of its ways to misbehave.
    pub fn url(&self, how: &str) -> String {
        format!("{}/{how}", self.address)
    }

    /// Everything that it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("nobody panics while holding it").clone()
    }

    /// Waits until it was asked so often.
    pub async fn until_asked(&self, times: usize) -> Result<()> {
        let mut count = self.count.clone();
        let asked = count.wait_for(|count| *count >= times);
        tokio::time::timeout(Duration::from_secs(20), asked).await.context("nobody asked")??;
        Ok(())
    }

    /// Answers everyone who was kept waiting by `late`.
    pub fn let_go(&self) {
        self.release.send_replace(true);
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(mut stream: TcpStream, mut desk: Desk) -> Result<()> {
    let (path, headers) = head(&mut stream).await?;
    let of = |name: &str| headers.get(name).cloned().unwrap_or_default();
    let asked = Asked { key: of("idempotency-key"), attempt: of("attempt").parse().unwrap_or_default() };
    let again = asked.attempt > 1;
    let number = {
        let mut all = desk.asked.lock().expect("nobody panics while holding it");
        all.push(asked);
        all.len()
    };
    desk.count.send_replace(number);
    match path.trim_start_matches('/') {
        "hang" if !again => {
            // Until the other side gives up.
            let _ = stream.read_u8().await;
        }
        "die" if !again => drop(stream),
        "garbage" if !again => answer(&mut stream, "<html>502 Bad Gateway</html>").await?,
        "late" => {
            desk.released.wait_for(|released| *released).await?;
            answer(&mut stream, &number.to_string()).await?;
        }
        _ => answer(&mut stream, &number.to_string()).await?,
    }
    Ok(())
}

async fn head(stream: &mut TcpStream) -> Result<(String, BTreeMap<String, String>)> {
    let head = read_head(stream).await?;
    let path = head.split(' ').nth(1).context("a request line has a target")?.to_owned();
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    Ok((path, headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect()))
}

async fn answer(stream: &mut TcpStream, body: &str) -> Result<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await?;
    Ok(())
}
