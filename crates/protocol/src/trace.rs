//! Traces: which one a run belongs to, and the ids of its spans.
//!
//! Owns: `traceparent` of [W3C Trace Context](https://www.w3.org/TR/trace-context/), and ids that follow from what a span
//! is about. So engine and program give a span the same id without a word between them, and so does whoever replays.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest, Sha256};

use crate::{Op, RunId, Seq, Timestamp, text::hex};

/// The id of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

/// The id of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// The trace of a run that came with none.
    pub fn of(run: &RunId) -> Self {
        Self(hash(&["trace", &run.to_string()]))
    }

    /// Where it stands among all, from 0 to 1: what a ratio of traces is chosen by.
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no 64 bits")]
    pub fn fraction(&self) -> f64 {
        let last = self.0.iter().skip(9).fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        last as f64 / (1_u64 << 56) as f64
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

/// Where the spans of a run belong, for its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Its trace, and its own span.
    pub parent: TraceParent,
    /// How many chapters it had before this one: see [`Chapter`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chapter: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A part of a run that has a span of its own. A chapter ends when the run ends or continues as new; the next one begins
/// when it is retried or restarted, or continues as new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chapter {
    /// How many there were before it.
    pub number: u32,
    /// When it began.
    pub began_at: Timestamp,
}

impl SpanId {
    /// The span of a run itself, in one of its chapters.
    pub fn of_run(run: &RunId, chapter: u32) -> Self {
        Self(hash(&["run", &run.to_string(), &chapter.to_string()]))
    }

    /// The span of an operation: of an attempt, if it is a step. Other operations have the attempt 0.
    pub fn of_op(run: &RunId, chapter: u32, op: &Op, attempt: u32) -> Self {
        let (run, chapter, attempt) = (run.to_string(), chapter.to_string(), attempt.to_string());
        Self(hash(&["op", &run, &chapter, &op.to_string(), &attempt]))
    }

    /// The span of something that is known by its position in the journal of a life: a signal, the invocation of a child.
    pub fn of_seq(run: &RunId, life: u32, seq: Seq) -> Self {
        Self(hash(&["seq", &run.to_string(), &life.to_string(), &seq.0.to_string()]))
    }
}

/// As many bytes as are wanted of a hash over texts of which none can stand for two.
fn hash<const N: usize>(texts: &[&str]) -> [u8; N] {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    let digest = hasher.finalize();
    let mut bytes = [0; N];
    for (byte, of) in bytes.iter_mut().zip(digest) {
        *byte = of;
    }
    // An id of zeros is none.
    if bytes.iter().all(|byte| *byte == 0) {
        bytes[N - 1] = 1;
    }
    bytes
}

/// A `traceparent`: a trace, the span that something happens within, and whether anybody keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether spans of this trace are kept.
    pub sampled: bool,
}

/// A text is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent of version 00")]
pub struct NoTraceParent;

impl FromStr for TraceParent {
    type Err = NoTraceParent;

    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        let mut parts = text.trim().split('-');
        let mut next = || parts.next().ok_or(NoTraceParent);
        let (version, trace, span, flags) = (next()?, next()?, next()?, next()?);
        let [version] = bytes(version)?;
        // A later version may say more; what it says first is the same.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return Err(NoTraceParent);
        }
        let (trace, span, [flags]) = (bytes(trace)?, bytes(span)?, bytes(flags)?);
        if trace == [0; 16] || span == [0; 8] {
            return Err(NoTraceParent);
        }
        Ok(Self { trace: TraceId(trace), span: SpanId(span), sampled: flags & 1 == 1 })
    }
}

/// Bytes in small hexadecimal digits, as the standard has them.
fn bytes<const N: usize>(text: &str) -> Result<[u8; N], NoTraceParent> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(NoTraceParent),
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return Err(NoTraceParent);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return Err(NoTraceParent) };
        *byte = (digit(*high)? << 4) | digit(*low)?;
    }
    Ok(bytes)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn run() -> RunId {
        "default-1-3-1-bvyaw3bemryy".parse().expect("an id")
    }

    #[test]
    fn a_traceparent_is_read_and_written_as_the_standard_has_it() {
        let parent: TraceParent = TEXT.parse().expect("the standard's example");
        assert_eq!((parent.to_string().as_str(), parent.sampled), (TEXT, true));
        let later = TEXT.replacen("00-", "cc-", 1) + "-what-the-future-will-be-like";
        assert_eq!(later.parse(), Ok(parent));
        let unsampled = TEXT.replace("-01", "-00");
        assert_eq!(unsampled.parse::<TraceParent>().map(|parent| parent.sampled), Ok(false));
    }

    #[test]
    fn what_is_no_traceparent_is_refused() {
        for text in [
            "",
            "00",
            &TEXT.to_uppercase(),
            &TEXT.replacen("00-", "ff-", 1),
            &format!("{TEXT}-more"),
            &TEXT.replace("b7ad6b7169203331", "0000000000000000"),
            &TEXT.replace("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            &TEXT.replace("0af7", "0ag7"),
            &TEXT.replace("0af7", "af7"),
            "00-é7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(NoTraceParent), "{text}");
        }
    }

    #[test]
    fn each_span_has_an_id_of_its_own_which_is_the_same_each_time() {
        let op = |text: &str| text.parse::<Op>().expect("an op");
        let ids = [
            SpanId::of_run(&run(), 0),
            SpanId::of_run(&run(), 1),
            SpanId::of_op(&run(), 0, &op("step:0:a"), 1),
            SpanId::of_op(&run(), 0, &op("step:0:a"), 2),
            SpanId::of_op(&run(), 1, &op("step:0:a"), 1),
            SpanId::of_op(&run(), 0, &op("step:1:a"), 1),
            SpanId::of_seq(&run(), 1, Seq(1)),
            SpanId::of_seq(&run(), 2, Seq(1)),
        ];
        let all: std::collections::BTreeSet<_> = ids.into_iter().collect();
        assert_eq!(all.len(), ids.len());
        assert_eq!(SpanId::of_run(&run(), 0), ids[0]);
        assert_eq!(TraceId::of(&run()).to_string().len(), 32);
        assert!((0.0..1.0).contains(&TraceId::of(&run()).fraction()));
    }
}
