//! Requests as bytes on a socket: what a well-behaved client would mend or refuse has to arrive as it is.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::Answer;

/// The longest that any answer may take. Nothing that is refused has to be waited for.
const WITHIN: Duration = Duration::from_secs(15);

/// How long nothing comes before an answer without an end is taken for all that there is.
const QUIET: Duration = Duration::from_millis(150);

/// The largest answer that anybody expects.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A request that has the form of one.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its path and query, as they stand in the first line.
    pub target: String,
    /// Its headers, but for those that every request has.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body.
    pub body: Vec<u8>,
    /// Whose key it brings, instead of the namespace's own.
    pub key: Option<String>,
    /// Whether the answer may say a part of what was sent again.
    pub echoes: bool,
}

impl Request {
    /// A request without a body.
    pub fn new(method: &str, target: impl Into<String>) -> Self {
        Self {
            method: method.to_owned(),
            target: target.into(),
            headers: Vec::new(),
            body: Vec::new(),
            key: None,
            echoes: false,
        }
    }

    /// Asks for something.
    pub fn get(target: impl Into<String>) -> Self {
        Self::new("GET", target)
    }

    /// Sends something.
    pub fn post(target: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::new("POST", target) }
    }

    /// The same with a header more.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The same with another key; with none at all, if it is empty.
    #[must_use]
    pub fn by(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// The same, whose answer may name what was sent, in short.
    #[must_use]
    pub fn may_echo(mut self) -> Self {
        self.echoes = true;
        self
    }

    /// Its bytes, for a host and with a key.
    pub fn bytes(&self, host: &str, key: &str) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\nHost: {host}\r\n", self.method, self.target).into_bytes();
        let key = self.key.as_deref().unwrap_or(key);
        let has = |wanted: &str| self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let mut headers = Vec::new();
        if !has("authorization") && !key.is_empty() {
            headers.push(("Authorization".to_owned(), format!("Bearer {key}").into_bytes()));
        }
        if !has("connection") {
            headers.push(("Connection".to_owned(), b"close".to_vec()));
        }
        let has_body = !self.body.is_empty() || ["POST", "PUT", "PATCH"].contains(&self.method.as_str());
        if has_body && !has("content-length") && !has("transfer-encoding") {
            headers.push(("Content-Length".to_owned(), self.body.len().to_string().into_bytes()));
        }
        for (name, value) in headers.iter().chain(&self.headers) {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// One thing that happens on a socket.
#[derive(Clone, Debug)]
pub enum Act {
    /// These bytes are sent.
    Send(Vec<u8>),
    /// Nothing is sent for so long.
    Pause(Duration),
    /// The client says that nothing more comes.
    End,
    /// The client is gone, and hears no answer.
    Leave,
}

/// Does this on a fresh socket, and gives the answer; none if the connection was closed without one.
pub async fn perform(address: &str, acts: &[Act]) -> Result<Option<Answer>> {
    timeout(WITHIN, exchange(address, acts)).await.context("there was no answer in time")?
}

/// Sends bytes, and gives the answer.
pub async fn ask(address: &str, bytes: Vec<u8>) -> Result<Answer> {
    perform(address, &[Act::Send(bytes)]).await?.context("the connection was closed without an answer")
}

async fn exchange(address: &str, acts: &[Act]) -> Result<Option<Answer>> {
    let mut stream = TcpStream::connect(address).await?;
    for act in acts {
        match act {
            // A server that has seen enough closes the connection before it has read all.
            Act::Send(bytes) => drop(send(&mut stream, bytes).await),
            Act::Pause(time) => tokio::time::sleep(*time).await,
            Act::End => drop(stream.shutdown().await),
            Act::Leave => return Ok(None),
        }
    }
    let mut received = Received { stream, bytes: Vec::new(), is_over: false };
    received.answer().await
}

/// Sends while there is nothing to be read: a server may answer, and wait for nothing more.
async fn send(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    let (mut reading, mut writing) = stream.split();
    let mut first = [0_u8; 1];
    tokio::select! {
        sent = writing.write_all(bytes) => sent?,
        _ = reading.peek(&mut first) => {}
    }
    Ok(())
}

/// What has come so far.
struct Received {
    stream: TcpStream,
    bytes: Vec<u8>,
    is_over: bool,
}

impl Received {
    async fn answer(&mut self) -> Result<Option<Answer>> {
        loop {
            let Some(head) = self.head().await? else { return Ok(None) };
            let (status, headers) = read_head(&head)?;
            // The server is about to read the body; the answer follows.
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            let body = self.body(status, &headers).await?;
            let body = String::from_utf8_lossy(&body).into_owned();
            return Ok(Some(Answer { status, headers, body }));
        }
    }

    async fn head(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = find(&self.bytes, b"\r\n\r\n") {
                return Ok(Some(self.bytes.drain(..at + 4).collect()));
            }
            if self.is_over {
                ensure!(self.bytes.is_empty(), "an answer broke off in its headers");
                return Ok(None);
            }
            self.read().await?;
        }
    }

    async fn body(&mut self, status: u16, headers: &HeaderMap) -> Result<Vec<u8>> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if status == 101 || status == 204 {
            return Ok(Vec::new());
        }
        let is_endless = header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let length = header("content-length").and_then(|length| length.parse::<usize>().ok());
        while !self.is_over && length.is_none_or(|length| self.bytes.len() < length) {
            if is_endless {
                if timeout(QUIET, self.read()).await.is_err() {
                    break;
                }
            } else {
                self.read().await?;
            }
        }
        let bytes = std::mem::take(&mut self.bytes);
        let is_chunked = header("transfer-encoding").is_some_and(|how| how.contains("chunked"));
        Ok(if is_chunked { unchunked(&bytes) } else { bytes })
    }

    async fn read(&mut self) -> Result<()> {
        let mut some = vec![0; 64 << 10];
        // A connection that is reset after the answer has come has come to its end, too.
        let count = self.stream.read(&mut some).await.unwrap_or(0);
        self.is_over = count == 0;
        self.bytes.extend_from_slice(&some[..count]);
        ensure!(self.bytes.len() < ANSWER_BYTES_MAX, "the answer is too large");
        Ok(())
    }
}

fn read_head(head: &[u8]) -> Result<(u16, HeaderMap)> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("'{first}' is no status"))?;
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
    }
    Ok((status, headers))
}

/// A body without what says how long its pieces are; as much of it as has come.
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = find(bytes, b"\r\n") {
        let size =
            std::str::from_utf8(&bytes[..at]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size) = size.filter(|size| *size > 0) else { break };
        let rest = &bytes[at + 2..];
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        bytes = rest.get(size + 2..).unwrap_or_default();
    }
    body
}

/// Where some bytes are first found.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_as_it_is() {
        let request = Request::post("/api/../x", "[1]").header("X", b"\xff".to_vec());
        let bytes = request.bytes("here", "key");
        let expected =
            b"POST /api/../x HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer key\r\nConnection: close\r\n\
                         Content-Length: 3\r\nX: \xff\r\n\r\n[1]";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn the_pieces_of_a_body_are_put_together() {
        assert_eq!(unchunked(b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"), b"abc0123456789");
        assert_eq!(unchunked(b"3\r\nabc\r\nff\r\n01"), b"abc01");
    }
}
