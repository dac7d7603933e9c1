//! The page's WebSockets, and the streams of server-sent events that they show: both have the same events.
//!
//! The page wants WebSockets, because a browser opens only six other connections to a server. The deployment is asked
//! for server-sent events, with the client that asks for everything else: its proxies, certificates and times hold.

use std::{
    io::{self, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use sha1::{Digest as _, Sha1};
use stepwell_protocol::Code;

use super::{End, Site, api, http::Request, problem};
use crate::events::{Blocks, Said};

/// What a handshake is answered with is a hash of what it brings and this: RFC 6455.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The longest message of a page: it has nothing to say.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// How long a page may say nothing. It answers pings.
const SILENT_PAGE: Duration = Duration::from_secs(60);

/// How often it is pinged where there are events all the time. Where there are none, each sign of life is passed on.
const PING_EVERY: Duration = Duration::from_secs(15);

/// The longest answer of a deployment that refuses a stream.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The stream has ended with its run.
const DONE: u16 = 1_000;
/// The stream broke: come back.
const COME_BACK: u16 = 1_012;

/// The connection, which two threads write to.
type Socket = Arc<Mutex<TcpStream>>;

/// Whether a request asks for a WebSocket.
pub fn is_wanted(request: &Request) -> bool {
    request.header("upgrade").is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
}

/// Shows a stream on a WebSocket until one of both ends.
pub fn follow(mut stream: TcpStream, request: &Request, site: &Site) -> io::Result<()> {
    let key = request.header("sec-websocket-key").filter(|key| key.len() == 24);
    let (Some(key), Some("13"), "GET") =
        (key, request.header("sec-websocket-version"), request.method.as_str())
    else {
        return problem(Code::InvalidRequest, "This is no handshake of a WebSocket.")
            .send(&mut stream, false);
    };
    let mut response = match site.client.pass_on_stream(&request.target, &api::sent(request)) {
        Ok(response) => response,
        Err(failure) => return api::unreachable(&failure.what).send(&mut stream, false),
    };
    let status = response.status().as_u16();
    let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    if status != 200 || kind != Some("text/event-stream") {
        let kind = kind.unwrap_or("text/plain").to_owned();
        let body =
            response.body_mut().with_config().limit(REFUSAL_BYTES_MAX).read_to_vec().unwrap_or_default();
        let status = if status < 400 { 502 } else { status };
        let sent = super::Answer::new(status, &kind, body).send(&mut stream, false);
        if status == 401 {
            site.end(End::Refused);
        }
        return sent;
    }
    let accepted = STANDARD.encode(Sha1::digest(format!("{key}{MAGIC}")));
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {accepted}\r\n\r\n"
    )?;
    let incoming = stream.try_clone()?;
    incoming.set_read_timeout(Some(SILENT_PAGE))?;
    let socket = Arc::new(Mutex::new(stream));
    let heard = socket.clone();
    thread::spawn(move || {
        // However it ends, nobody is there any more: the next write fails, and the stream is left.
        let _ = hear(incoming, &heard);
        let _ = locked(&heard).shutdown(Shutdown::Both);
    });
    let blocks = Blocks::new(BufReader::new(response.into_body().into_reader()));
    let shown = show(blocks, &socket).and_then(|code| {
        let stream = locked(&socket);
        send(&stream, CLOSE, &code.to_be_bytes())?;
        stream.shutdown(Shutdown::Write)
    });
    if shown.is_err() {
        // The page is to see that it is over, and the other thread, too.
        let _ = locked(&socket).shutdown(Shutdown::Both);
    }
    shown
}

/// Shows event after event; gives the code to close with.
fn show(mut blocks: Blocks<impl io::BufRead>, socket: &Socket) -> io::Result<u16> {
    #[derive(Deserialize)]
    struct Event {
        #[serde(rename = "type")]
        kind: String,
    }
    let (mut code, mut pinged) = (COME_BACK, Instant::now());
    loop {
        match blocks.next() {
            Ok(Some(Said::Event(text))) => {
                send(&locked(socket), TEXT, text.as_bytes())?;
                // A deployment with events all the time says nothing else.
                if pinged.elapsed() >= PING_EVERY {
                    pinged = Instant::now();
                    send(&locked(socket), PING, &[])?;
                }
                if serde_json::from_str::<Event>(&text).is_ok_and(|event| event.kind == "end") {
                    code = DONE;
                }
            }
            // Also to learn whether the page is still there.
            Ok(Some(Said::Alive)) => {
                pinged = Instant::now();
                send(&locked(socket), PING, &[])?;
            }
            Ok(None) | Err(_) => return Ok(code),
        }
    }
}

/// Reads what the page sends, which is nothing but answers to pings and the end.
fn hear(mut incoming: TcpStream, socket: &Socket) -> io::Result<()> {
    loop {
        let mut head = [0; 2];
        incoming.read_exact(&mut head)?;
        let (kind, is_masked) = (head[0] & 0x0f, head[1] & 0x80 != 0);
        let length = match head[1] & 0x7f {
            126 => {
                let mut length = [0; 2];
                incoming.read_exact(&mut length)?;
                usize::from(u16::from_be_bytes(length))
            }
            127 => return Ok(()),
            length => usize::from(length),
        };
        if !is_masked || length > MESSAGE_BYTES_MAX {
            return Ok(());
        }
        let mut mask = [0; 4];
        incoming.read_exact(&mut mask)?;
        let mut message = vec![0; length];
        incoming.read_exact(&mut message)?;
        for (byte, mask) in message.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        match kind {
            CLOSE => return send(&locked(socket), CLOSE, message.get(..2).unwrap_or_default()),
            PING if length < 126 => send(&locked(socket), PONG, &message)?,
            _ => {}
        }
    }
}

fn locked(socket: &Socket) -> std::sync::MutexGuard<'_, TcpStream> {
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a message. Those of a server are not masked.
fn send(mut stream: &TcpStream, kind: u8, message: &[u8]) -> io::Result<()> {
    let mut frame = vec![0x80 | kind];
    match (u8::try_from(message.len()), u16::try_from(message.len())) {
        (Ok(length @ ..126), _) => frame.push(length),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend(length.to_be_bytes());
        }
        (_, Err(_)) => {
            frame.push(127);
            frame.extend((message.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(message);
    stream.write_all(&frame)
}
