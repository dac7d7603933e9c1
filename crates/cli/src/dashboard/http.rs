//! HTTP/1.1 as far as a page on this machine needs it: one bounded request for each connection, and its answer.

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use stepwell_protocol::Code;

use super::problem;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most headers of a request.
const HEADERS_MAX: usize = 64;

/// The longest body of a request. The engine takes less.
const BODY_BYTES_MAX: usize = 4 << 20;

/// How long a request may take to arrive. Browsers open connections that they may need; those end with it.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);

/// How long a browser may take to accept a part of an answer.
const TAKES_WITHIN: Duration = Duration::from_secs(30);

/// How long it is read on after an answer.
const FINISH: Duration = Duration::from_secs(2);

/// The parts in which an answer of unknown length is passed on.
const PART_BYTES: usize = 64 << 10;

/// A request.
#[derive(Debug)]
pub struct Request {
    /// Such as `GET`.
    pub method: String,
    /// The path and the query.
    pub target: String,
    /// Its headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// Limits how long the other side may take.
pub fn bound(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(TAKES_WITHIN))
}

impl Request {
    /// Reads one without the rest of its body; or the answer to whatever is none.
    pub fn read_head(stream: &mut TcpStream) -> io::Result<Result<Self, Answer>> {
        let until = Instant::now() + ARRIVES_WITHIN;
        let mut read: Vec<u8> = Vec::new();
        let mut looked_at = 0_usize;
        let end = loop {
            // The end may have come in two parts.
            let from = looked_at.saturating_sub(3);
            if let Some(at) = read[from..].windows(4).position(|window| window == b"\r\n\r\n") {
                break from + at + 4;
            }
            looked_at = read.len();
            if read.len() >= HEAD_BYTES_MAX {
                return Ok(Err(Answer::text(431, "The head of the request is too long.\n")));
            }
            more(stream, &mut read, until, HEAD_BYTES_MAX)?;
        };
        let mut request = match Self::of_head(&read[..end]) {
            Ok(request) => request,
            Err(answer) => return Ok(Err(answer)),
        };
        request.body = read.split_off(end);
        Ok(Ok(request))
    }

    /// Reads the rest of its body; or gives the answer to one that is too long. To be asked once it may come in: whoever may
    /// not is given no memory.
    pub fn read_body(&mut self, stream: &mut TcpStream) -> io::Result<Option<Answer>> {
        let length = match self.length() {
            Ok(length) => length,
            Err(answer) => return Ok(Some(answer)),
        };
        let until = Instant::now() + ARRIVES_WITHIN;
        while self.body.len() < length {
            more(stream, &mut self.body, until, length)?;
        }
        self.body.truncate(length);
        Ok(None)
    }

    fn of_head(head: &[u8]) -> Result<Self, Answer> {
        let no_request = || Answer::text(400, "This is no request of HTTP/1.1.\n");
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) | Err(_) => return Err(no_request()),
        }
        let (Some(method), Some(target)) = (parsed.method, parsed.path) else { return Err(no_request()) };
        // What comes after `#` would be looked at here, and not be sent.
        if !target.starts_with('/') || !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err(no_request());
        }
        let mut headers = Vec::new();
        for header in &*parsed.headers {
            let value = std::str::from_utf8(header.value).map_err(|_| no_request())?;
            headers.push((header.name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        // Which of two counts is what attacks live from.
        let is_double = |name: &str| headers.iter().filter(|(other, _)| other == name).count() > 1;
        if ["host", "origin", "content-length", "sec-fetch-site", "upgrade"].into_iter().any(is_double) {
            return Err(no_request());
        }
        Ok(Self { method: method.to_owned(), target: target.to_owned(), headers, body: Vec::new() })
    }

    fn length(&self) -> Result<usize, Answer> {
        if self.header("transfer-encoding").is_some() {
            return Err(Answer::text(411, "Send the length of the body.\n"));
        }
        let Some(text) = self.header("content-length") else { return Ok(0) };
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(length) if is_number && length <= BODY_BYTES_MAX => Ok(length),
            Ok(_) if is_number => Err(problem(Code::PayloadTooLarge, "A request can have up to 4 MiB.")),
            Ok(_) | Err(_) => Err(Answer::text(400, "The length of the body is no number.\n")),
        }
    }

    /// Its path, as it was written.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads on, until a request has had its time.
fn more(stream: &mut TcpStream, read: &mut Vec<u8>, until: Instant, bytes_max: usize) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    let mut part = [0; 16 << 10];
    let wanted = part.len().min(bytes_max - read.len());
    match stream.read(&mut part[..wanted])? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => {
            read.extend_from_slice(&part[..length]);
            Ok(())
        }
    }
}

/// An answer that is whole.
#[derive(Debug)]
pub struct Answer {
    /// Such as 200.
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    /// An answer of this type.
    pub fn new(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let answer = Self { status, headers: Vec::new(), body };
        answer.with("content-type", content_type).with("cache-control", "no-store")
    }

    /// A text for a person.
    pub fn text(status: u16, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", text.as_bytes().to_vec())
    }

    /// Sets a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A header of it.
    #[cfg(test)]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Sends it, or its head alone.
    pub fn send(&self, stream: &mut TcpStream, is_head: bool) -> io::Result<()> {
        self.write(stream, is_head)?;
        finish(stream)
    }

    /// Sends it without a look at what was asked: it may be lost, and takes nobody's time.
    pub fn turn_away(&self, stream: &mut TcpStream) -> io::Result<()> {
        self.write(stream, false)
    }

    fn write(&self, stream: &mut TcpStream, is_head: bool) -> io::Result<()> {
        let mut text = head(self.status, &self.headers);
        let _ = write!(text, "content-length: {}\r\n\r\n", self.body.len());
        stream.write_all(text.as_bytes())?;
        if is_head { Ok(()) } else { stream.write_all(&self.body) }
    }
}

/// Passes an answer on as it comes, however long it is.
pub fn send_parts(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(String, String)],
    mut body: impl Read,
) -> io::Result<()> {
    let text = head(status, headers) + "transfer-encoding: chunked\r\n\r\n";
    stream.write_all(text.as_bytes())?;
    let mut part = vec![0; PART_BYTES];
    loop {
        // If it breaks off, so does the answer: nobody takes a part for the whole.
        let length = body.read(&mut part)?;
        stream.write_all(format!("{length:x}\r\n").as_bytes())?;
        stream.write_all(&part[..length])?;
        stream.write_all(b"\r\n")?;
        if length == 0 {
            return finish(stream);
        }
    }
}

fn head(status: u16, headers: &[(String, String)]) -> String {
    let mut text = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text + "x-content-type-options: nosniff\r\nconnection: close\r\n"
}

/// Says that nothing follows, and reads what was sent meanwhile: a connection that is closed with something unread is
/// reset, and the answer is lost.
fn finish(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut rest = [0; 16 << 10];
    let mut read = 0;
    // Somebody who sends a byte now and then does not keep the connection for that.
    let until = Instant::now() + FINISH;
    while read < BODY_BYTES_MAX && Instant::now() < until {
        match stream.read(&mut rest) {
            Ok(0) | Err(_) => break,
            Ok(length) => read += length,
        }
    }
    Ok(())
}

fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200..300 => "OK",
        300..400 => "See Other",
        400..500 => "Refused",
        _ => "Error",
    }
}
