//! Spans: what runs have done, for whoever collects traces.
//!
//! Owns: which spans follow from what was recorded, and the few that wait to be sent. They are kept in memory only: what
//! dies with the instance is missing in a trace, and in nothing else. A span leaves when it has ended, so each leaves once;
//! those of a run that is still there are sent before it has.

use stepwell_protocol::{
    Event, Failure, Op, OpKind, Outcome, Record, RunId, Seq, Timestamp, text,
    trace::{SpanId, TraceId, TraceParent, Traced},
};

use super::{Cell, Order};
use crate::run::{Entry, Phase, Run};

/// How many spans wait to be sent at the most. What comes beyond that is left out, and counted.
pub const SPANS_MAX: usize = 2_000;

/// How long the first of them waits for others.
pub const SPAN_LINGER_MS: u64 = 1_000;

/// How much of the message of a failure is told.
const MESSAGE_BYTES_MAX: usize = 512;

/// From how many on they wait no longer.
const SPANS_SENT_AT: usize = 500;

/// Something that a run has done, from when to when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace.
    pub trace: TraceId,
    /// Its own id.
    pub id: SpanId,
    /// The span that it happened within.
    pub parent: Option<SpanId>,
    /// The step, sleep, wait, signal, child or workflow.
    pub name: String,
    /// What of these it is.
    pub what: &'static str,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// The run.
    pub run: RunId,
    /// Its workflow.
    pub workflow: String,
    /// Which attempt of a step, from 1; 0 for all else.
    pub attempt: u32,
    /// How it went wrong, if it did.
    pub failure: Option<Failure>,
    /// How a run's own span ended: its status, `continued_as_new` or `restarted`.
    pub ended: Option<&'static str>,
}

/// Spans that are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpansToSend {
    /// They.
    pub spans: Vec<Span>,
    /// How many were left out since the last ones.
    pub left_out: u64,
}

/// Which runs are sampled: their spans are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Which part of the traces, from 0 to 1.
    pub ratio: f64,
    /// Whether the flag of a `traceparent` decides, where there is one.
    pub by_caller: bool,
}

/// What is told to whoever collects traces.
#[derive(Clone, Debug)]
pub(super) struct Tracing {
    sampling: Sampling,
    waiting: SpansToSend,
    /// Whether the host was told to send them.
    is_ordered: bool,
}

impl Run {
    /// The trace that it belongs to.
    fn trace_id(&self) -> TraceId {
        self.trace.map_or_else(|| TraceId::of(&self.id), |parent| parent.trace)
    }

    fn chapter_number(&self) -> u32 {
        self.chapter.map_or(0, |chapter| chapter.number)
    }
}

impl Cell {
    /// Tells whoever collects traces of these runs from here on.
    pub fn trace(&mut self, sampling: Sampling) {
        self.tracing = Some(Tracing { sampling, waiting: SpansToSend::default(), is_ordered: false });
    }

    /// Whether spans of a run are sent.
    fn is_sampled(&self, run: &Run) -> bool {
        self.tracing.as_ref().is_some_and(|Tracing { sampling, .. }| match run.trace {
            Some(parent) if sampling.by_caller => parent.sampled,
            Some(_) | None => run.trace_id().fraction() < sampling.ratio,
        })
    }

    /// Where the spans of a run belong, for its program; nothing, if nobody ever traces it. What is not sampled is said to
    /// be so: otherwise whoever is called next would decide again.
    pub(super) fn traced(&self, run: &Run) -> Option<Traced> {
        let sampled = match (&self.tracing, run.trace) {
            (Some(_), _) => self.is_sampled(run),
            // Others may collect what this deployment does not.
            (None, Some(parent)) => parent.sampled,
            (None, None) => return None,
        };
        let chapter = run.chapter_number();
        let span = SpanId::of_run(&run.id, chapter);
        Some(Traced { parent: TraceParent { trace: run.trace_id(), span, sampled }, chapter })
    }

    /// What a child happens within that is invoked at this position of the journal.
    pub(super) fn invocation_span(&self, run: &Run, invoked: Seq) -> Option<TraceParent> {
        let span = SpanId::of_seq(&run.id, run.life_number(), invoked);
        self.traced(run).map(|traced| TraceParent { span, ..traced.parent })
    }

    /// The spans that have ended with these entries, of a run as it was before them.
    pub(super) fn spans_of(&self, run: &Run, entries: &[Entry]) -> Vec<Span> {
        if entries.is_empty() || !self.is_sampled(run) {
            return Vec::new();
        }
        // Whoever takes a run up again records the signals again that it keeps. They were told when they came.
        let is_reopened = entries.iter().any(|entry| matches!(entry, Entry::Reopened { .. }));
        let mut telling = Telling { run, chapter: run.chapter_number(), spans: Vec::new() };
        for entry in entries {
            if let Entry::Recorded { record, .. } = entry {
                if !is_reopened {
                    telling.take(record);
                }
            } else if let Entry::Completed { at, .. } = entry {
                telling.end(*at, "completed", None);
            } else if let Entry::Failed { at, failure } = entry {
                telling.end(*at, "failed", Some(failure));
            } else if let Entry::Cancelled { at } = entry {
                telling.end(*at, "cancelled", None);
            } else if let Entry::BegunAnew { at, .. } = entry {
                telling.end(*at, "continued_as_new", None);
            } else if let Entry::Reopened { at, .. } = entry
                && !matches!(run.phase, Phase::Ended { .. })
            {
                telling.end(*at, "restarted", None);
            }
        }
        telling.spans
    }

    pub(super) fn keep_spans(&mut self, now: Timestamp, spans: Vec<Span>) {
        let Some(tracing) = self.tracing.as_mut().filter(|_| !spans.is_empty()) else { return };
        let waiting = &mut tracing.waiting;
        let before = waiting.spans.len();
        let room = SPANS_MAX.saturating_sub(before);
        waiting.left_out += spans.len().saturating_sub(room) as u64;
        waiting.spans.extend(spans.into_iter().take(room));
        let is_many = before < SPANS_SENT_AT && waiting.spans.len() >= SPANS_SENT_AT;
        if is_many || !tracing.is_ordered {
            tracing.is_ordered = true;
            let at = if is_many { now } else { now.plus_millis(SPAN_LINGER_MS) };
            self.object.order(Order::SendSpansAt(at));
        }
    }

    /// What is to be sent. For the host, at the time that it was ordered to.
    pub fn take_spans(&mut self) -> SpansToSend {
        let Some(tracing) = &mut self.tracing else { return SpansToSend::default() };
        tracing.is_ordered = false;
        std::mem::take(&mut tracing.waiting)
    }
}

/// Goes through what is recorded of a run.
struct Telling<'a> {
    run: &'a Run,
    chapter: u32,
    spans: Vec<Span>,
}

impl Telling<'_> {
    /// The run's own span of this chapter.
    fn end(&mut self, at: Timestamp, ended: &'static str, failure: Option<&Failure>) {
        let from = self.run.chapter.map_or(self.run.created_at, |chapter| chapter.began_at);
        let span = self.span(SpanId::of_run(&self.run.id, self.chapter), &self.run.workflow, "run");
        self.spans.push(Span {
            parent: self.run.trace.map(|parent| parent.span),
            from: from.min(at),
            to: at,
            failure: failure.map(cut),
            ended: Some(ended),
            ..span
        });
    }

    fn take(&mut self, Record { seq, at, event }: &Record) {
        let at = *at;
        match event {
            Event::StepFinished { op, attempt, outcome, took_ms } => {
                self.push(op, *attempt, began(at, *took_ms), at, failure(outcome));
            }
            Event::StepRetrying { op, attempt, failure, took_ms, .. } => {
                self.push(op, *attempt, began(at, *took_ms), at, Some(failure));
            }
            Event::TimerFired { op, since } => self.push(op, 0, since.unwrap_or(at), at, None),
            // What the child happens within. It is told at once: whatever becomes of the run, the child has a parent.
            Event::ChildInvoked { op, workflow, .. } => {
                let name = if op.name.is_empty() { workflow } else { &op.name };
                self.push_at(*seq, name, "invocation", at, at);
            }
            // How long the run has waited for it, if it has.
            Event::ChildFinished { op, outcome, .. } => {
                let since = self.run.open.iter().find(|open| open.op == *op).and_then(|open| open.since);
                if since.is_some() || failure(outcome).is_some() {
                    self.push(op, 0, since.unwrap_or(at), at, failure(outcome));
                }
            }
            Event::SignalReceived { name, since, .. } => {
                self.push_at(*seq, name, "signal", since.unwrap_or(at), at);
            }
            Event::StepLetIn { lane, since: Some(since), .. } => {
                self.push_at(*seq, lane, "lane", *since, at);
            }
            // What they begin has its own end.
            Event::StepLetIn { since: None, .. } | Event::StepBegun { .. } | Event::ChildStarted { .. } => {}
        }
    }

    fn push(&mut self, op: &Op, attempt: u32, from: Timestamp, to: Timestamp, failure: Option<&Failure>) {
        let what = match op.kind {
            OpKind::Step => "step",
            OpKind::Sleep => "sleep",
            OpKind::Wait => "wait",
            OpKind::Child => "child",
        };
        let span = self.span(SpanId::of_op(&self.run.id, self.chapter, op, attempt), &op.name, what);
        self.spans.push(Span { from: from.min(to), to, attempt, failure: failure.map(cut), ..span });
    }

    /// Something that is known by its position in the journal.
    fn push_at(&mut self, seq: Seq, name: &str, what: &'static str, from: Timestamp, to: Timestamp) {
        let span = self.span(SpanId::of_seq(&self.run.id, self.run.life_number(), seq), name, what);
        self.spans.push(Span { from: from.min(to), to, ..span });
    }

    fn span(&self, id: SpanId, name: &str, what: &'static str) -> Span {
        Span {
            trace: self.run.trace_id(),
            id,
            parent: Some(SpanId::of_run(&self.run.id, self.chapter)),
            name: name.to_owned(),
            what,
            from: Timestamp::default(),
            to: Timestamp::default(),
            run: self.run.id.clone(),
            workflow: self.run.workflow.clone(),
            attempt: 0,
            failure: None,
            ended: None,
        }
    }
}

fn failure(outcome: &Outcome) -> Option<&Failure> {
    match outcome {
        Outcome::Ok(_) => None,
        Outcome::Err(failure) => Some(failure),
    }
}

/// A failure with the beginning of its message: many of them wait in memory.
fn cut(failure: &Failure) -> Failure {
    let message = text::beginning(&failure.message, MESSAGE_BYTES_MAX).to_owned();
    Failure { message, terminal: failure.terminal, code: failure.code }
}

fn began(ended: Timestamp, took_ms: Option<u64>) -> Timestamp {
    Timestamp::from_millis(ended.as_millis().saturating_sub(took_ms.unwrap_or(0)))
}
