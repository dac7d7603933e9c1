//! An HTTP server inside the test that a Worker can call: each request waits until the test answers it,
//! which lets a test hold a program at a known place.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// Longest request head that is read; the Workers of the tests send far less.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Receives requests on a free loopback port.
#[derive(Debug)]
pub struct Listener {
    url: String,
    calls: mpsc::UnboundedReceiver<Call>,
}

/// One request. Dropping it answers it too.
#[derive(Debug)]
pub struct Call {
    /// The query's pairs, decoded.
    pub query: BTreeMap<String, String>,
    release: oneshot::Sender<()>,
    hung_up: oneshot::Receiver<()>,
}

impl Listener {
    /// Starts to listen.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        let (sender, calls) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                // A connection that breaks is a Worker that was killed, which is what tests do.
                tokio::spawn(async move { serve(stream, &sender).await });
            }
        });
        Ok(Self { url, calls })
    }

    /// The address to hand to a Worker.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The next request, waiting for it.
    pub async fn next(&mut self) -> Call {
        self.calls.recv().await.expect("the accepting task holds a sender as long as the listener lives")
    }
}

impl Call {
    /// Lets the Worker go on.
    pub fn answer(self) {
        // The Worker may have been killed meanwhile.
        let _ = self.release.send(());
    }

    /// Waits until the Worker has given up the request, by its end or by its process's.
    pub async fn hung_up(&mut self) {
        // The serving task drops its side, which is what is waited for.
        let _ = (&mut self.hung_up).await;
    }
}

/// The request line and the headers of a request.
pub(crate) async fn read_head(stream: &mut TcpStream) -> Result<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        anyhow::ensure!(
            head.len() < HEAD_BYTES_MAX && stream.read_buf(&mut head).await? > 0,
            "the request ended early"
        );
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

async fn serve(mut stream: TcpStream, calls: &mpsc::UnboundedSender<Call>) -> Result<()> {
    let head = read_head(&mut stream).await?;
    let target = head.split(' ').nth(1).context("a request line has a target")?;
    let url = reqwest::Url::parse("http://listener")?.join(target)?;
    let (release, released) = oneshot::channel();
    let (_connected, hung_up) = oneshot::channel();
    calls.send(Call { query: url.query_pairs().into_owned().collect(), release, hung_up })?;
    tokio::select! {
        // An error means that the call was dropped, which answers it as well.
        _ = released => {}
        // The Worker sends nothing more: whatever is read is the end of the connection.
        _ = stream.read_u8() => anyhow::bail!("the Worker hung up"),
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await?;
    Ok(())
}
