//! The timeline of a run as bars, and what is behind the row that is open.

use std::sync::Arc;

use leptos::{ev, prelude::*};
use stepwell_dashboard_model::{
    number::fixed,
    place::Place,
    recorded::Recorded,
    shown,
    timeline::{Axis, Row},
    when,
};
use stepwell_protocol::{Event, OpKind, Outcome, Seq, rest::StepName};

use crate::{
    actions::{self, Act},
    keyboard::plain_key,
    parts::{self, Scroll, offset, windowed},
    records::told,
    run::Page,
};

const ROW_HEIGHT: f64 = 26.0;

/// How far apart the marks of the axis are, at least, in pixels.
const TICKS_APART: f64 = 72.0;

/// About which part of the width the axis has.
const AXIS_SHARE: f64 = 0.6;

/// The most attempts that are shown of one step: the latest.
const ATTEMPTS_SHOWN_MAX: usize = 50;

/// The view.
pub fn view(page: Page) -> impl IntoView {
    let scroll = Scroll::new(ROW_HEIGHT);
    let axis = Memo::new(move |_| page.timeline.with(|timeline| Axis::of(timeline)));
    let count = Signal::derive(move || page.timeline.with(|timeline| timeline.rows.len()));
    let item = move |index: usize| page.timeline.with(|timeline| timeline.rows.get(index).cloned());
    listen(page, scroll);
    let ticks = move || {
        let tick = |tick: stepwell_dashboard_model::timeline::Tick| {
            view! { <span class="tick num" style:left=percent(tick.at)>{tick.label}</span> }
        };
        let apart = (TICKS_APART / (scroll.width.get() * AXIS_SHARE)).clamp(0.05, 1.0);
        axis.with(|axis| axis.ticks(apart)).into_iter().map(tick).collect_view()
    };
    view! {
        <section class="panel waterfall" aria-labelledby="timeline-title">
            <h2 id="timeline-title">"Timeline"<span class="num dim">{move || count.get()}</span></h2>
            <div class="bar axis" aria-hidden="true" prop:hidden=move || count.get() == 0><span></span><span class="track">{ticks}</span><span></span></div>
            <div class="scroll tall" tabindex="0" role="list" prop:hidden=move || count.get() == 0 aria-label="Timeline" node_ref=scroll.node on:scroll=move |_| scroll.measure()>
                {windowed(scroll, count, item, |row: &Arc<Row>| row.key.clone(), move |row| bar(page, axis, row))}
            </div>
            <Show when=move || count.get() == 0>
                <p class="dim">"No step has ended yet."</p>
            </Show>
            {detail(page)}
        </section>
    }
}

fn percent(part: f64) -> String {
    format!("{}%", fixed(part * 100.0, 3))
}

fn bar(page: Page, axis: Memo<Axis>, row: Memo<(usize, Arc<Row>)>) -> impl IntoView {
    let index = Memo::new(move |_| row.with(|(index, _)| *index));
    let key = row.with_untracked(|(_, row)| row.key.clone());
    let (opened, selected) = (key.clone(), key);
    let open = move |_| {
        let is_open = page.selected().as_deref() == Some(&opened);
        page.select((!is_open).then(|| opened.clone()));
    };
    let is_open = Memo::new(move |_| page.selected().as_deref() == Some(&selected));
    let of = move |read: fn(&Row) -> String| row.with(|(_, row)| read(row));
    let pieces = move || {
        let drawn = row.with(|(_, row)| {
            axis.with(|axis| {
                let pieces = row.bar.parts.iter().map(|part| {
                    let (from, to) = (axis.place(part.from), axis.place(part.to));
                    (from, to - from, part.kind.as_str())
                });
                let pauses =
                    axis.pauses().into_iter().take(20).map(|(from, to, _)| (from, to - from, "pause"));
                pauses.chain(pieces).collect::<Vec<_>>()
            })
        });
        let piece = |(left, width, kind): (f64, f64, &'static str)| {
            view! { <i class="piece" data-kind=kind style:left=percent(left) style:width=percent(width)></i> }
        };
        drawn.into_iter().map(piece).collect_view()
    };
    let attempts = |row: &Row| match row.bar.attempts {
        0 | 1 => String::new(),
        attempts => format!("×{attempts}"),
    };
    view! {
        <div class="bar" role="listitem" class:open=move || is_open.get() style:transform=move || offset(index.get(), ROW_HEIGHT)
            class:cut=move || row.with(|(_, row)| row.bar.is_cut)>
            <button class="plain label" data-mark=move || row.with(|(_, row)| row.bar.mark.as_str()) on:click=open
                aria-expanded=move || is_open.get().to_string() title=move || of(|row| row.note.clone())>
                <span class="what">{move || of(|row| row.bar.thing.as_str().to_owned())}</span>
                <span class="name">{move || of(|row| row.label.clone())}</span>
                <span class="num dim">{move || of(attempts)}</span>
            </button>
            <span class="track" aria-hidden="true">{pieces}</span>
            <span class="num right">{move || of(|row| when::length(row.bar.took_ms()))}</span>
        </div>
    }
}

/// What is behind the open row.
fn detail(page: Page) -> impl IntoView {
    let open = Memo::new(move |_| {
        let selected = page.selected()?;
        let found =
            page.timeline.with(|timeline| timeline.rows.iter().find(|row| row.key == selected).cloned());
        let of_one = selected.strip_prefix('@').and_then(|seq| seq.parse().ok()).map(Seq);
        let seqs = match (&of_one, &found) {
            (Some(seq), None) => vec![*seq],
            (_, Some(row)) => row.bar.events.iter().rev().take(ATTEMPTS_SHOWN_MAX).copied().collect(),
            (None, None) => return None,
        };
        let events = page.events.with(|events| {
            let known = seqs.into_iter().filter_map(|seq| Some((seq, events.get(&seq)?.clone())));
            known.collect::<Vec<_>>()
        });
        Some((found, events))
    });
    move || {
        open.get().map(|(row, events)| {
            let title = row.as_ref().map_or_else(|| "Event".into(), |row| format!("{} {}", row.bar.thing.as_str(), row.label));
            let note = row.as_ref().filter(|row| !row.note.is_empty()).map(|row| row.note.clone());
            let child = row.as_ref().and_then(|row| row.bar.child.clone()).map(|id| {
                let id = id.to_string();
                let place = Place::Run { id: id.clone(), step: None };
                view! { <p>"Child: "{parts::link(place, "mono", id)}</p> }
            });
            let step = row.as_ref().and_then(|row| row.bar.op.clone()).filter(|op| op.kind == OpKind::Step);
            let restart = step.map(|op| {
                let from = StepName { step: op.name, occurrence: op.occurrence };
                actions::offer(page, Act::Restart(Some(from)), "Restart from this step")
            });
            view! {
                <div class="detail" role="region" aria-label="Selected">
                    <h3>{title}<span class="space"></span>{restart}<button class="plain" on:click=move |_| page.select(None)>"Close"</button></h3>
                    {note.map(|note| view! { <p class="dim">{note}</p> })}
                    {child}
                    {events.into_iter().map(|(seq, event)| one(page, seq, event)).collect_view()}
                </div>
            }
        })
    }
}

/// One event, with its payload.
fn one(page: Page, seq: Seq, recorded: Recorded) -> impl IntoView {
    let event = match recorded {
        Recorded::Whole(event) => event,
        Recorded::Large { bytes, .. } => {
            let size = stepwell_dashboard_model::json::size(bytes);
            return view! { <p>{size}" "<button on:click=move |_| page.ask_event(seq)>"Load"</button></p> }
                .into_any();
        }
    };
    let (what, _, _) = told(&event.event);
    let took = match &event.event {
        Event::StepFinished { attempt, took_ms, .. } | Event::StepRetrying { attempt, took_ms, .. } => {
            let took = took_ms.map(|ms| format!(", {}", when::length(ms))).unwrap_or_default();
            format!("attempt {attempt}{took}")
        }
        Event::StepBegun { .. }
        | Event::StepLetIn { .. }
        | Event::TimerFired { .. }
        | Event::SignalReceived { .. }
        | Event::ChildInvoked { .. }
        | Event::ChildStarted { .. }
        | Event::ChildFinished { .. } => String::new(),
    };
    let failure = match &event.event {
        Event::StepRetrying { failure, .. }
        | Event::StepFinished { outcome: Outcome::Err(failure), .. }
        | Event::ChildFinished { outcome: Outcome::Err(failure), .. } => Some(shown::block(&failure.message)),
        _ => None,
    };
    let value = match &event.event {
        Event::StepFinished { outcome: Outcome::Ok(value), .. }
        | Event::ChildFinished { outcome: Outcome::Ok(value), .. }
        | Event::SignalReceived { payload: value, .. } => Some(value.text().to_owned()),
        _ => None,
    };
    let name = format!("{}-{}.json", page.id.get_value(), seq.0);
    view! {
        <div class="one">
            <p class="dim"><span class="num">{seq.0}</span>" · "{what}" · "{took}" · "{parts::instant(event.at)}</p>
            {failure.map(|message| view! { <pre class="failure" tabindex="0">{message}</pre> })}
            {value.map(|text| parts::payload(text, name))}
        </div>
    }
    .into_any()
}

/// `j` and `k` go from row to row.
fn listen(page: Page, scroll: Scroll) {
    let handle = window_event_listener(ev::keydown, move |event| {
        let Some(key) = plain_key(&event) else { return };
        let selected = page.app.place.with_untracked(|place| match place {
            Place::Run { step, .. } => step.clone(),
            _ => None,
        });
        let keys: Vec<_> = page
            .timeline
            .with_untracked(|timeline| timeline.rows.iter().map(|row| row.key.clone()).collect());
        let at = selected.and_then(|selected| keys.iter().position(|key| *key == selected));
        let next = match key.as_str() {
            "j" => at.map_or(0, |at| at + 1),
            "k" => at.map_or(0, |at| at.saturating_sub(1)),
            _ => return,
        };
        if let Some(key) = keys.get(next) {
            page.select(Some(key.clone()));
            scroll.show(next);
        }
    });
    on_cleanup(move || handle.remove());
}
