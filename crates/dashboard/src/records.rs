//! What was recorded of a run: its events one below the other, and the lines of its log.

use leptos::prelude::*;
use stepwell_dashboard_model::{recorded::Recorded, shown};
use stepwell_protocol::{
    Event, Outcome, Seq, Timestamp,
    stream::{Chunk, Kind, Level, LogLine, StreamEvent},
};

use crate::{
    parts::{self, Scroll, offset, windowed},
    run::Page,
};

const ROW_HEIGHT: f64 = 26.0;

/// A line of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its place among all of them.
    pub number: usize,
    at: Timestamp,
    level: &'static str,
    text: String,
    step: String,
}

/// The line of a log or a chunk; nothing, if it is neither.
pub fn read_line(event: &StreamEvent) -> Option<Line> {
    let step =
        |op: &Option<stepwell_protocol::Op>| op.as_ref().map_or_else(String::new, |op| parts::word(&op.name));
    let line =
        |level, text: &str, step| Line { number: 0, at: event.at, level, text: shown::line(text), step };
    if event.kind == Kind::Log {
        let log = event.data.read::<LogLine>().ok()?;
        let level = match log.level {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        return Some(line(level, &log.message, step(&log.op)));
    }
    let chunk = event.data.read::<Chunk>().ok()?;
    Some(line("chunk", &format!("{}: {}", chunk.name, chunk.value.text()), step(&chunk.op)))
}

/// An event in words: what, about what, and how.
pub fn told(event: &Event) -> (&'static str, String, String) {
    let named = |op: &stepwell_protocol::Op| {
        let name = parts::word(&op.name);
        if op.occurrence == 0 { name } else { format!("{name} #{}", op.occurrence + 1) }
    };
    let ended = |outcome: &Outcome| match outcome {
        Outcome::Ok(value) => short(value.text()),
        Outcome::Err(failure) => format!("✗ {}", short(&failure.message)),
    };
    match event {
        Event::StepFinished { op, attempt, outcome, .. } => {
            let attempt = if *attempt > 1 { format!("attempt {attempt}: ") } else { String::new() };
            ("step finished", named(op), format!("{attempt}{}", ended(outcome)))
        }
        Event::StepRetrying { op, attempt, failure, .. } => {
            ("step retrying", named(op), format!("attempt {attempt} ✗ {}", short(&failure.message)))
        }
        Event::StepBegun { op } => ("step begun", named(op), String::new()),
        Event::StepLetIn { op, lane, .. } => ("step let in", named(op), parts::word(lane)),
        Event::TimerFired { op, .. } => ("timer fired", named(op), String::new()),
        Event::SignalReceived { name, payload, .. } => {
            ("signal received", parts::word(name), short(payload.text()))
        }
        Event::ChildInvoked { op, workflow, .. } => ("child invoked", named(op), parts::word(workflow)),
        Event::ChildStarted { op, run, .. } => ("child started", named(op), run.to_string()),
        Event::ChildFinished { op, outcome, .. } => ("child finished", named(op), ended(outcome)),
    }
}

fn short(text: &str) -> String {
    const CHARS_MAX: usize = 160;
    let mut cut: String = text.chars().take(CHARS_MAX + 1).collect();
    if cut.chars().count() > CHARS_MAX {
        cut.pop();
        cut.push('…');
    }
    shown::line(&cut)
}

/// The events, in order.
pub fn journal(page: Page) -> impl IntoView {
    let scroll = Scroll::new(ROW_HEIGHT);
    let keys =
        Memo::new(move |_| page.events.with(|events| events.iter().map(|(seq, _)| *seq).collect::<Vec<_>>()));
    let count = Signal::derive(move || keys.with(Vec::len));
    let item = move |index: usize| {
        let seq = keys.with(|keys| keys.get(index).copied())?;
        page.events.with(|events| events.get(&seq).map(|event| (seq, event.clone())))
    };
    let line = move |row: Memo<(usize, (Seq, Recorded))>| {
        let index = Memo::new(move |_| row.with(|(index, _)| *index));
        let seq = row.with_untracked(|(_, (seq, _))| *seq);
        let inside = move || {
            row.with(|(_, (_, event))| match event {
                Recorded::Whole(event) => {
                    let (what, about, how) = told(&event.event);
                    (event.at, what, about, how, event.cut)
                }
                Recorded::Large { at, bytes } => {
                    let size = stepwell_dashboard_model::json::size(*bytes);
                    (*at, "event", String::new(), format!("{size}: open it to load it"), false)
                }
            })
        };
        let inside = Memo::new(move |_| inside());
        let open = move |_| {
            if page.events.with_untracked(|events| matches!(events.get(&seq), Some(Recorded::Large { .. }))) {
                page.ask_event(seq);
            }
            page.select(Some(format!("@{}", seq.0)));
        };
        view! {
            <div class="event" role="listitem" style:transform=move || offset(index.get(), ROW_HEIGHT)
                class:cut=move || inside.with(|inside| inside.4)>
                <span class="num dim seq">{seq.0}</span>
                <span class="num dim">{move || page.app.absolute(inside.with(|inside| inside.0))}</span>
                <button class="plain what" on:click=open>{move || inside.with(|inside| inside.1)}</button>
                <span class="name">{move || inside.with(|inside| inside.2.clone())}</span>
                <span class="how mono">{move || inside.with(|inside| inside.3.clone())}</span>
            </div>
        }
    };
    view! {
        <section class="panel">
            <h2>"Events"<span class="num dim">{move || count.get()}</span></h2>
            <div class="scroll short" tabindex="0" role="list" prop:hidden=move || count.get() == 0 aria-label="Events" node_ref=scroll.node on:scroll=move |_| scroll.measure()>
                {windowed(scroll, count, item, |(seq, _): &(Seq, Recorded)| seq.0.to_string(), line)}
            </div>
            <Show when=move || count.get() == 0>
                <p class="dim">"Nothing is recorded yet. A step is recorded when it ends."</p>
            </Show>
        </section>
    }
}

/// What the run's code has logged and published.
pub fn log(page: Page) -> impl IntoView {
    let scroll = Scroll::new(ROW_HEIGHT);
    let count = Signal::derive(move || page.logs.with(Vec::len));
    let item = move |index: usize| page.logs.with(|logs| logs.get(index).cloned());
    let line = move |row: Memo<(usize, Line)>| {
        let index = Memo::new(move |_| row.with(|(index, _)| *index));
        let Line { at, level, text, step, .. } = row.with_untracked(|(_, line)| line.clone());
        view! {
            <div class="event log" role="listitem" data-level=level style:transform=move || offset(index.get(), ROW_HEIGHT)>
                <span class="num dim">{move || page.app.absolute(at)}</span>
                <span class="level">{level}</span>
                <span class="name dim">{step}</span>
                <span class="how mono">{text}</span>
            </div>
        }
    };
    let copy = move |_| {
        let text = page.logs.with_untracked(|logs| {
            let lines = logs
                .iter()
                .map(|line| format!("{} {} {}\n", page.app.absolute(line.at), line.level, line.text));
            lines.collect::<String>()
        });
        let _ = window().navigator().clipboard().write_text(&text);
    };
    view! {
        <Show when=move || { count.get() > 0 }>
            <section class="panel">
                <h2>"Logs"<span class="num dim">{move || count.get()}</span><button class="plain" on:click=copy>"Copy"</button></h2>
                <div class="scroll short" tabindex="0" role="list" prop:hidden=move || count.get() == 0 aria-label="Logs" node_ref=scroll.node on:scroll=move |_| scroll.measure()>
                    {windowed(scroll, count, item, |line: &Line| line.number.to_string(), line)}
                </div>
            </section>
        </Show>
    }
}
