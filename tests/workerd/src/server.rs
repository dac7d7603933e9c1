//! A small HTTP server inside the test, for what Workers ask of the outside: each body in, a status and a text out.

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

/// The most that is read of one request; the Workers of the tests send far less.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// Answers requests on a free loopback port. Gives its address, and how to stop it.
pub(crate) async fn serve<F, A>(answer: F) -> Result<(String, AbortHandle)>
where
    F: Fn(String) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = (u16, String)> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            // A connection that breaks is a Worker that was killed, which is what tests do.
            tokio::spawn(async move { converse(stream, &answer).await });
        }
    });
    Ok((address, server.abort_handle()))
}

/// Answers one request after the other, until the other side hangs up.
async fn converse<F, A>(mut stream: TcpStream, answer: &F) -> Result<()>
where
    F: Fn(String) -> A,
    A: Future<Output = (u16, String)>,
{
    loop {
        let body = read_body(&mut stream).await?;
        let (status, text) = tokio::select! {
            answered = answer(body) => answered,
            // Nothing more is sent before the answer: whatever is read is the end of the connection.
            _ = stream.read_u8() => return Ok(()),
        };
        let length = text.len();
        let written = format!("HTTP/1.1 {status} Answered\r\ncontent-length: {length}\r\n\r\n{text}");
        stream.write_all(written.as_bytes()).await?;
    }
}

async fn read_body(stream: &mut TcpStream) -> Result<String> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        read_more(stream, &mut read).await?;
    };
    let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
    let mut lengths = head.lines().filter_map(|line| line.strip_prefix("content-length:"));
    let length: usize = lengths.next().map_or(Ok(0), |length| length.trim().parse())?;
    while read.len() < end + length {
        read_more(stream, &mut read).await?;
    }
    let body = read.get(end..end + length).context("the body is there")?;
    Ok(String::from_utf8_lossy(body).into_owned())
}

async fn read_more(stream: &mut TcpStream, read: &mut Vec<u8>) -> Result<()> {
    let is_more = read.len() < REQUEST_BYTES_MAX && stream.read_buf(read).await? > 0;
    anyhow::ensure!(is_more, "the request ended early");
    Ok(())
}
