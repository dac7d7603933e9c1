//! A consumer of jobs on loopback: what it was called with, and how many calls it had at once.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

/// The most lines of a request's head.
const LINES_MAX: usize = 100;

/// The largest body that is read.
const BODY_BYTES_MAX: usize = 4_000_000;

/// One call.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Its path.
    pub path: String,
    /// Its headers, with their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Pushed {
    /// A header, or nothing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The body as a text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What to answer: after how long, with which status line and headers.
#[derive(Clone, Debug)]
pub struct Reply {
    /// How long it takes.
    pub after: Duration,
    /// `200 OK`, and more lines of headers.
    pub head: String,
    /// What it says.
    pub body: String,
}

impl Reply {
    /// An answer with this status line, at once.
    pub fn new(head: &str) -> Self {
        Self { after: Duration::ZERO, head: head.to_owned(), body: String::new() }
    }
}

/// What is answered to a call, by how many there were before it, and what is dropped when that is over.
type Replies = dyn Fn(&Pushed, usize) -> (Reply, Box<dyn Send>) + Send + Sync;

#[derive(Debug, Default)]
struct Seen {
    calls: Vec<Pushed>,
    at_once: usize,
    most: usize,
}

/// A running consumer; ends when dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: String,
    seen: Arc<Mutex<Seen>>,
    server: AbortHandle,
}

impl Endpoint {
    /// Starts one on a free port that answers as it is told, by the call and how many there were before it.
    pub async fn start(reply: impl Fn(&Pushed, usize) -> Reply + Send + Sync + 'static) -> Result<Self> {
        Self::start_watched(move |pushed, before| (reply(pushed, before), Box::new(()))).await
    }

    /// The same, with something that is dropped when the call is over: answered, or its connection broken.
    pub async fn start_watched(
        reply: impl Fn(&Pushed, usize) -> (Reply, Box<dyn Send>) + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let seen = Arc::<Mutex<Seen>>::default();
        let (shared, reply) = (Arc::clone(&seen), Arc::new(reply));
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, reply) = (Arc::clone(&shared), Arc::clone(&reply));
                // A connection that breaks is a Worker that was killed, which is what tests do.
                tokio::spawn(async move { serve(stream, &seen, reply.as_ref()).await });
            }
        });
        Ok(Self { address, seen, server: server.abort_handle() })
    }

    /// Its address.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Pushed> {
        self.seen.lock().expect("nobody panics while holding it").calls.clone()
    }

    /// How many calls it had.
    pub fn count(&self) -> usize {
        self.seen.lock().expect("nobody panics while holding it").calls.len()
    }

    /// The most calls that it had at once.
    pub fn most(&self) -> usize {
        self.seen.lock().expect("nobody panics while holding it").most
    }

    /// Waits until it was called so often.
    pub async fn until(&self, calls: usize) -> Result<Vec<Pushed>> {
        for _ in 0..1_200 {
            let seen = self.calls();
            if seen.len() >= calls {
                return Ok(seen);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("it was called {} times, and not {calls}", self.calls().len())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A call that is under way; over when dropped, also if its connection breaks.
struct UnderWay<'a>(&'a Mutex<Seen>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.lock().expect("nobody panics while holding it").at_once -= 1;
    }
}

async fn serve(stream: TcpStream, seen: &Mutex<Seen>, reply: &Replies) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    for _ in 0..LINES_MAX {
        if stream.read_line(&mut head).await? <= 2 {
            break;
        }
    }
    let path = head.split(' ').nth(1).context("a request line has a target")?.to_owned();
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<_, _> =
        headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let length: usize = headers.get("content-length").map_or(Ok(0), |length| length.parse())?;
    ensure!(length <= BODY_BYTES_MAX, "a body of {length} bytes");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let pushed = Pushed { path, headers, body };
    let before = {
        let mut seen = seen.lock().expect("nobody panics while holding it");
        seen.calls.push(pushed.clone());
        seen.at_once += 1;
        seen.most = seen.most.max(seen.at_once);
        seen.calls.len() - 1
    };
    let under_way = UnderWay(seen);
    let (Reply { after, head, body }, watch) = reply(&pushed, before);
    tokio::select! {
        () = tokio::time::sleep(after) => {}
        // The caller has hung up.
        _ = stream.read_u8() => return Ok(()),
    }
    drop((under_way, watch));
    let length = body.len();
    let text = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await?;
    Ok(())
}
