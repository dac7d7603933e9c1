//! Follows streams as a client does, by either way.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest as _, error::Error, protocol::CloseFrame},
};

use crate::{Http, engine::Client};

/// How long anything that a test waits for may take to come.
const WITHIN: Duration = Duration::from_secs(30);

/// By which way a stream is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Server-sent events.
    Events,
    /// A WebSocket.
    Socket,
}

impl Way {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Events, Self::Socket];
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The cursor after it.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// When it happened, by the engine's clock.
    pub at: u64,
    /// What happened.
    pub data: Value,
    /// When it came here, by the same machine's clock.
    pub came_at: u64,
}

/// A client of one stream.
pub struct Follower(Inner);

enum Inner {
    Events { response: reqwest::Response, text: String },
    Socket { socket: Box<WebSocketStream<MaybeTlsStream<TcpStream>>>, closed: Option<CloseFrame> },
}

impl Follower {
    /// Opens a stream: a path with its parameters, and where to go on.
    pub async fn open(http: &Http, path: &str, way: Way, cursor: Option<&str>) -> Result<Self> {
        Self::open_as(&Client::new(http.clone()), path, way, cursor).await
    }

    /// The same with the key of a client.
    pub async fn open_as(client: &Client, path: &str, way: Way, cursor: Option<&str>) -> Result<Self> {
        let (http, key) = (client.http(), client.key());
        let opened = async {
            match way {
                Way::Events => Self::open_events(http, key, path, cursor).await,
                Way::Socket => Self::open_socket(http, key, path, cursor).await,
            }
        };
        timeout(WITHIN, opened).await.context("the stream was not opened")?
    }

    async fn open_events(http: &Http, key: &str, path: &str, cursor: Option<&str>) -> Result<Self> {
        // A stream is open for longer than any other answer.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build()?;
        let mut request = client.get(http.url(path)).bearer_auth(key).header("accept", "text/event-stream");
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        let response = request.send().await?;
        let status = response.status();
        if status != 200 {
            bail!("status {status}: {}", response.text().await?);
        }
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        ensure!(kind == Some("text/event-stream"), "it is {kind:?}");
        Ok(Self(Inner::Events { response, text: String::new() }))
    }

    async fn open_socket(http: &Http, key: &str, path: &str, cursor: Option<&str>) -> Result<Self> {
        let mut url = http.url(path).replacen("http:", "ws:", 1);
        if let Some(cursor) = cursor {
            let mark = if path.contains('?') { '&' } else { '?' };
            url = format!("{url}{mark}cursor={cursor}");
        }
        let mut request = url.into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse()?);
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Self(Inner::Socket { socket: Box::new(socket), closed: None })),
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                bail!("status {}: {body}", response.status())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The next event; nothing when the stream is over, an error if it broke or nothing comes for long.
    pub async fn next(&mut self) -> Result<Option<Seen>> {
        timeout(WITHIN, self.receive()).await.context("nothing came")?
    }

    /// The same, but for nothing that comes within a time.
    pub async fn next_within(&mut self, within: Duration) -> Result<Option<Seen>> {
        timeout(within, self.receive()).await.unwrap_or(Ok(None))
    }

    async fn receive(&mut self) -> Result<Option<Seen>> {
        loop {
            let event = match &mut self.0 {
                Inner::Events { response, text } => {
                    if let Some((block, rest)) = text.split_once("\n\n") {
                        let (block, rest) = (block.to_owned(), rest.to_owned());
                        *text = rest;
                        read_block(&block)?
                    } else {
                        let Some(chunk) = response.chunk().await? else { return Ok(None) };
                        text.push_str(std::str::from_utf8(&chunk)?);
                        continue;
                    }
                }
                Inner::Socket { socket, closed } => match socket.next().await {
                    Some(Ok(Message::Text(text))) if text.as_str() == "pong" => continue,
                    Some(Ok(Message::Text(text))) => Some(seen(&text)?),
                    Some(Ok(Message::Close(frame))) => {
                        *closed = frame;
                        return Ok(None);
                    }
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(None),
                },
            };
            match event {
                Some(event) if event.kind == "ack" => self.say("ack").await?,
                Some(event) => return Ok(Some(event)),
                None => {}
            }
        }
    }

    /// All events until the end.
    pub async fn rest(&mut self) -> Result<Vec<Seen>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }

    /// Says something to the other end, if this is a socket.
    pub async fn say(&mut self, text: &str) -> Result<()> {
        if let Inner::Socket { socket, .. } = &mut self.0 {
            socket.send(Message::text(text)).await?;
        }
        Ok(())
    }

    /// The next raw text of a socket: for what is no event.
    pub async fn next_text(&mut self) -> Result<String> {
        let Inner::Socket { socket, .. } = &mut self.0 else { bail!("only a socket has texts") };
        let message = timeout(WITHIN, socket.next()).await?.context("it is over")??;
        if let Message::Text(text) = message { Ok(text.to_string()) } else { bail!("it is {message}") }
    }

    /// The code and the reason by which a socket was closed.
    pub fn closed(&self) -> Option<(u16, String)> {
        match &self.0 {
            Inner::Events { .. } => None,
            Inner::Socket { closed, .. } => {
                closed.as_ref().map(|frame| (u16::from(frame.code), frame.reason.to_string()))
            }
        }
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// One block of server-sent events; nothing if it has no data.
fn read_block(block: &str) -> Result<Option<Seen>> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let Some(data) = field("data") else { return Ok(None) };
    let event = seen(data)?;
    ensure!(field("id") == Some(event.id.as_str()), "another id in {block}");
    ensure!(field("event") == Some(event.kind.as_str()), "another type in {block}");
    Ok(Some(event))
}

fn seen(text: &str) -> Result<Seen> {
    let mut event: Value = serde_json::from_str(text).with_context(|| text.to_owned())?;
    let word = |name: &str| event[name].as_str().map(str::to_owned).with_context(|| text.to_owned());
    let (id, kind) = (word("id")?, word("type")?);
    let at = event["at"].as_u64().with_context(|| text.to_owned())?;
    Ok(Seen { id, kind, at, data: event["data"].take(), came_at: now_ms() })
}
