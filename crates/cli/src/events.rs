//! Server-sent events, as far as Stepwell writes them: blocks of lines with an empty line after each.

use std::io::{self, BufRead, Read as _};

/// The longest line that is read: an event has at most 256 KiB of data, and a little around it.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// What a block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The data of an event.
    Event(String),
    /// Nothing but that the stream is alive: a comment.
    Alive,
}

/// Reads a stream block by block.
#[derive(Debug)]
pub struct Blocks<R> {
    lines: R,
}

impl<R: BufRead> Blocks<R> {
    /// Reads from here.
    pub fn new(lines: R) -> Self {
        Self { lines }
    }

    /// The next block that says something; nothing at the end. One that was cut off is none.
    pub fn next(&mut self) -> io::Result<Option<Said>> {
        let mut data: Option<String> = None;
        let mut is_alive = false;
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            if line.is_empty() {
                let said = data.take().map(Said::Event).or_else(|| is_alive.then_some(Said::Alive));
                if said.is_some() {
                    return Ok(said);
                }
                continue;
            }
            is_alive |= line.starts_with(':');
            let Some(value) = line.strip_prefix("data:") else { continue };
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut data {
                Some(data) => {
                    if (data.len() + value.len()) as u64 >= LINE_BYTES_MAX {
                        return Err(io::Error::other("an event of the stream is too long"));
                    }
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            }
        }
    }

    /// The next line that is whole.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        self.lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            if line.len() as u64 + 1 >= LINE_BYTES_MAX {
                return Err(io::Error::other("a line of the stream is too long"));
            }
            return Ok(None);
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map(Some).map_err(|_| io::Error::other("the stream is not UTF-8 text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<Said> {
        let mut blocks = Blocks::new(text.as_bytes());
        std::iter::from_fn(|| blocks.next().expect("it can be read")).collect()
    }

    #[test]
    fn a_stream_is_read_block_by_block() {
        let event = |text: &str| Said::Event(text.to_owned());
        let text = "retry: 1000\n\nid: 1\nevent: log\ndata: {\"a\":1}\n\n:\n\ndata: x\r\ndata:y\r\n\r\n";
        assert_eq!(blocks(text), [event("{\"a\":1}"), Said::Alive, event("x\ny")], "`retry` says nothing");
    }

    #[test]
    fn what_was_cut_off_was_not_said() {
        for cut in ["data: 1\n\ndata: 2", "data: 1\n\ndata: 2\n", "data: 1\n\nda"] {
            assert_eq!(blocks(cut), [Said::Event("1".into())], "{cut:?}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_kept_in_memory() {
        struct Endless;
        impl io::Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                buffer.fill(b'x');
                Ok(buffer.len())
            }
        }
        assert!(Blocks::new(io::BufReader::new(Endless)).next().is_err());
    }

    #[test]
    fn an_event_without_an_end_is_not_kept_in_memory() {
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        let endless = line.repeat(9);
        assert!(Blocks::new(endless.as_bytes()).next().is_err());
    }
}
