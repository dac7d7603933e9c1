//! One run: its state and why, its timeline, its events and logs, what went in and came out.

use std::{sync::Arc, time::Duration};

use leptos::{leptos_dom::helpers::set_timeout, prelude::*};
use serde::Deserialize;
use stepwell_dashboard_model::{
    following::Link,
    map::Map,
    number::fixed,
    pacing::Pace,
    place::{Place, encoded},
    recorded::{self, Recorded},
    shown,
    timeline::{Recording, Timeline},
    when,
};
use stepwell_protocol::{
    Seq, Timestamp,
    rest::{History, HistoryEvent, RunView, Why},
    stream::{Kind, StreamEvent, Working},
};

use crate::{
    actions,
    api::{self, Trouble},
    app::{App, now},
    parts,
    records::{self, Line},
    socket::Stream,
    waterfall,
};

/// What came together is drawn together.
const FLUSH_MS: u64 = 40;

/// How many pages of a history are asked for, to learn what no longer counts.
const PAGES_MAX: u32 = 64;

/// The most log lines that are kept; the oldest go first.
const LOGS_MAX: usize = 20_000;

#[derive(Deserialize)]
struct TooLarge {
    seq: Seq,
    at: Timestamp,
    left_out_bytes: usize,
}

/// What is known of the run.
#[derive(Clone, Copy)]
pub struct Page {
    /// What all views share.
    pub app: App,
    /// The run's id.
    pub id: StoredValue<String>,
    /// The run, once it has come.
    pub run: RwSignal<Option<RunView>>,
    /// What it waits for.
    pub why: RwSignal<Option<Why>>,
    /// Its history.
    pub events: RwSignal<Map<Seq, Recorded>>,
    /// Its history as bars.
    pub timeline: Memo<Arc<Timeline>>,
    /// What it was started with.
    pub input: RwSignal<Option<String>>,
    /// What its code has published.
    pub logs: RwSignal<Vec<Line>>,
    trouble: RwSignal<Option<(u16, String)>>,
    pending: StoredValue<Vec<StreamEvent>, LocalStorage>,
    stream: StoredValue<Option<Stream>, LocalStorage>,
    is_asking: RwSignal<bool>,
    /// Whether something has happened since it was asked.
    is_due: StoredValue<bool>,
    pace: StoredValue<Pace>,
    /// When the stream last named the steps under way.
    named_at: StoredValue<u64>,
    /// Where the stream ended: if the run is retried, the next one goes on from there.
    cursor: StoredValue<Option<String>>,
}

/// The view.
pub fn view(id: String) -> impl IntoView {
    let app = App::here();
    let (run, why) = (RwSignal::new(None::<RunView>), RwSignal::new(None::<Why>));
    let events = RwSignal::new(Map::default());
    let recording = Memo::new(move |_| {
        let read = |run: &RunView| {
            events.with(|events: &Map<Seq, Recorded>| {
                Recording::of(run, events.iter().filter_map(|(_, event)| event.whole()))
            })
        };
        Arc::new(run.with(|run| run.as_ref().map(read)).unwrap_or_default())
    });
    // Only this moves with the clock.
    let timeline = Memo::new(move |_| {
        let drawn = run.with(|run| {
            let run = run.as_ref()?;
            // A run that has ended does not grow.
            let now = run.ended_at.unwrap_or_else(|| app.now.get());
            Some(recording.with(|recording| why.with(|why| recording.until(run, why.as_ref(), now))))
        });
        Arc::new(drawn.unwrap_or_default())
    });
    let page = Page {
        app,
        id: StoredValue::new(id),
        run,
        why,
        events,
        timeline,
        input: RwSignal::new(None),
        logs: RwSignal::new(Vec::new()),
        trouble: RwSignal::new(None),
        pending: StoredValue::new_local(Vec::new()),
        stream: StoredValue::new_local(None),
        is_asking: RwSignal::new(false),
        is_due: StoredValue::new(false),
        pace: StoredValue::new(Pace::default()),
        named_at: StoredValue::new(0),
        cursor: StoredValue::new(None),
    };
    page.ask_history();
    page.ask();
    page.follow();
    // Somebody else may have continued a run that had ended.
    let handle = window_event_listener_untyped("focus", move |_| page.ask());
    on_cleanup(move || {
        handle.remove();
        page.stop();
    });
    let is_here = Memo::new(move |_| run.with(Option::is_some));
    view! {
        <Show when=move || is_here.get() fallback=move || missing(page)>
            <article class="run">
                {top(page)}
                <div class="columns">
                    <div class="column">
                        {waterfall::view(page)}
                        {records::journal(page)}
                        {records::log(page)}
                    </div>
                    <aside class="column" aria-label="Details">
                        {facts(page)}
                        {payloads(page)}
                    </aside>
                </div>
            </article>
        </Show>
    }
}

impl Page {
    fn path(self, rest: &str) -> String {
        self.id.with_value(|id| format!("/api/executions/{}{rest}", encoded(id)))
    }

    /// Asks how the run stands. Once more, if something has happened meanwhile.
    pub fn ask(self) {
        match self.is_asking.try_get_untracked() {
            None => return,
            Some(true) => return self.is_due.set_value(true),
            Some(false) => self.is_asking.set(true),
        }
        let (path, why_path) = (self.path(""), self.path("/why"));
        let pause_ms = self.pace.with_value(|pace| pace.pause_ms(now().as_millis()));
        let ask = move || leptos::task::spawn_local(self.ask_at(path, why_path));
        if pause_ms == 0 {
            return ask();
        }
        set_timeout(ask, Duration::from_millis(pause_ms));
    }

    async fn ask_at(self, path: String, why_path: String) {
        // What has happened so far is in the answer.
        self.is_due.try_set_value(false);
        let began = now().as_millis();
        match api::get::<RunView>(&path).await {
            Ok(mut run) => {
                // The answer may have been on its way for longer than the word of the stream.
                if self.named_at.try_get_value().is_some_and(|named_at| named_at >= began) {
                    let named = |known: &Option<RunView>| known.as_ref().map(|known| known.working.clone());
                    run.working = self.run.try_with_untracked(named).flatten().unwrap_or_default();
                }
                self.show(run);
                if let Ok(why) = api::get::<Why>(&why_path).await {
                    self.why.try_set(Some(why));
                }
            }
            Err(trouble) => self.fail(&trouble),
        }
        // The view may be gone.
        if self.is_asking.try_set(false).is_some() {
            return;
        }
        self.pace.update_value(|pace| pace.took(began, now().as_millis()));
        if self.is_due.get_value() {
            self.ask();
        }
    }

    /// Shows the run as an answer has it.
    pub fn show(self, run: RunView) {
        let known =
            self.run.try_with_untracked(|known| known.as_ref().map(|known| (known.acts.len(), known.life)));
        // The view may be gone.
        let Some(known) = known else { return };
        let is_over = run.status.is_terminal();
        // A retry or restart changes which events count, and the next life has others.
        let is_taken_back = known.is_some_and(|(acts, _)| acts != run.acts.len());
        let next_life = run.life.filter(|life| known.is_some_and(|(_, known)| known != Some(*life)));
        self.trouble.set(None);
        self.run.set(Some(run));
        if let Some(life) = next_life {
            self.events.update(|events| events.retain(|_, event| event.at() >= life.began_at));
        }
        if is_taken_back || next_life.is_some() {
            self.ask_history();
        }
        let is_followed = self.stream.with_value(Option::is_some);
        if !is_over && !is_followed {
            self.follow();
        }
    }

    fn fail(self, trouble: &Trouble) {
        let words = self.app.explain(trouble);
        // The view may be gone. Nothing more comes of a run that is not there.
        if self.trouble.try_set(Some((trouble.status(), words))).is_none() && trouble.status() == 404 {
            self.stop();
            self.app.link.set(Link::Over);
        }
    }

    /// Asks for input and history; further pages only where something no longer counts.
    fn ask_history(self) {
        let path = self.path("/history");
        leptos::task::spawn_local(async move {
            let mut after = Seq(0);
            for _ in 0..PAGES_MAX {
                let Ok(page) = api::get::<History>(&format!("{path}?after={}", after.0)).await else {
                    return;
                };
                let is_taken_back = page.events.iter().any(|event| event.cut)
                    || self
                        .run
                        .try_with_untracked(|run| run.as_ref().is_some_and(|run| !run.acts.is_empty()))
                        == Some(true);
                if let Some(input) = page.input {
                    self.input.try_set(Some(input.text().to_owned()));
                }
                self.events.try_update(|events| {
                    for event in page.events {
                        events.insert(event.seq, Recorded::Whole(event));
                    }
                });
                match page.next {
                    Some(next) if is_taken_back => after = next,
                    Some(_) | None => return,
                }
            }
        });
    }

    /// Gives the run and the pages of its history to the browser, as one file.
    fn export(self) {
        let (run, history, name) = (self.path(""), self.path("/history"), self.id.get_value());
        leptos::task::spawn_local(async move {
            let exported = exported(&run, &history).await;
            match exported {
                Ok(text) => parts::save(&format!("{name}.json"), &text),
                Err(trouble) => self.fail(&trouble),
            }
        });
    }

    /// Asks for one event that was too large for the stream.
    pub fn ask_event(self, seq: Seq) {
        let path = self.path(&format!("/history?after={}", seq.0.saturating_sub(1)));
        leptos::task::spawn_local(async move {
            if let Ok(page) = api::get::<History>(&path).await
                && let Some(event) = page.events.into_iter().find(|event| event.seq == seq)
            {
                self.events.try_update(|events| events.insert(seq, Recorded::Whole(event)));
            }
        });
    }

    fn follow(self) {
        let cursor = self.cursor.get_value();
        let stream =
            Stream::follow(self.app, self.path("/stream"), cursor.as_deref(), move |event| self.take(event));
        self.stream.set_value(Some(stream));
    }

    fn stop(self) {
        self.stream.try_update_value(|stream| {
            if let Some(stream) = stream.take() {
                stream.close();
            }
        });
    }

    fn take(self, event: StreamEvent) {
        let is_first = self.pending.try_update_value(|pending| {
            pending.push(event);
            pending.len() == 1
        });
        if is_first == Some(true) {
            set_timeout(move || self.flush(), Duration::from_millis(FLUSH_MS));
        }
    }

    /// Draws what has come.
    fn flush(self) {
        let Some(pending) = self.pending.try_update_value(std::mem::take) else { return };
        let (mut told, mut lines, mut is_changed) = (Vec::new(), Vec::new(), false);
        for event in pending {
            match event.kind {
                Kind::Step | Kind::Timer | Kind::Signal => {
                    if let Ok(whole) = event.data.read::<HistoryEvent>() {
                        told.push((whole.seq, Recorded::Whole(whole)));
                    } else if let Ok(large) = event.data.read::<TooLarge>() {
                        told.push((large.seq, Recorded::Large { at: large.at, bytes: large.left_out_bytes }));
                    }
                }
                Kind::Log | Kind::Chunk => lines.extend(records::read_line(&event)),
                Kind::Progress => {
                    if let Ok(progress) = event.data.read() {
                        self.run.update(|run| {
                            if let Some(run) = run {
                                run.progress = Some(progress);
                            }
                        });
                    }
                }
                Kind::Working => {
                    if let Ok(Working { steps }) = event.data.read() {
                        self.named_at.set_value(now().as_millis());
                        self.run.update(|run| {
                            if let Some(run) = run {
                                run.working = steps;
                            }
                        });
                    }
                }
                Kind::Status => is_changed = true,
                Kind::End => {
                    is_changed = true;
                    self.cursor.set_value(Some(event.id));
                    self.stream.update_value(|stream| *stream = None);
                }
                Kind::Ready | Kind::Ack => {}
            }
        }
        if !told.is_empty() {
            is_changed = true;
            self.events.update(|events| {
                for (seq, event) in told {
                    recorded::take(events, seq, event);
                }
            });
        }
        if !lines.is_empty() {
            self.logs.update(|logs| {
                for mut line in lines {
                    line.number = logs.last().map_or(0, |last| last.number + 1);
                    logs.push(line);
                }
                let excess = logs.len().saturating_sub(LOGS_MAX);
                logs.drain(..excess);
            });
        }
        if is_changed {
            self.ask();
        }
    }

    /// Opens a row of the timeline or an event; `None` closes it.
    pub fn select(self, step: Option<String>) {
        self.app.stay(Place::Run { id: self.id.get_value(), step });
    }

    /// What is open.
    pub fn selected(self) -> Option<String> {
        self.app.place.with(|place| match place {
            Place::Run { step, .. } => step.clone(),
            _ => None,
        })
    }
}

/// A run and its history, as the API says them.
async fn exported(run: &str, history: &str) -> Result<String, Trouble> {
    #[derive(Deserialize)]
    struct Next {
        #[serde(default)]
        next: Option<Seq>,
    }
    let mut text = format!("{{\"run\":{},\"history\":[", api::get_text(run).await?);
    let mut after = Seq(0);
    for number in 0..PAGES_MAX {
        let page = api::get_text(&format!("{history}?after={}", after.0)).await?;
        text.push_str(if number == 0 { "" } else { "," });
        text.push_str(&page);
        match api::read::<Next>(&page)?.next {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok(format!("{text}]}}"))
}

fn missing(page: Page) -> impl IntoView {
    let told = move || match page.trouble.get() {
        None => view! { <p class="loading" role="status">"Loading…"</p> }.into_any(),
        Some((404, _)) => parts::notice(view! {
            <h1>"There is no such run"</h1>
            <p>"It was deleted, it belongs to another namespace, or its id is incomplete."</p>
            <p>{parts::link(Place::Runs { filter: String::new() }, "", "Show all runs")}</p>
        })
        .into_any(),
        Some((_, words)) => parts::notice(view! {
            <p>{words}</p>
            <button on:click=move |_| page.ask()>"Try again"</button>
        })
        .into_any(),
    };
    view! { {told} }
}

/// What is wrong with a run: a heading, and what there is to say. Nothing, if nothing is.
fn wrong(run: Option<&RunView>) -> (String, String) {
    let Some(run) = run else { return Default::default() };
    let last = run.last_error.as_ref().filter(|_| !run.status.is_terminal());
    let (title, message, code) = if let Some(error) = &run.error {
        ("Error", error.message.clone(), error.code)
    } else if let Some(problem) = &run.problem {
        ("Problem", format!("{}: {}", problem.title, problem.detail), Some(problem.code))
    } else if let Some(last) = last {
        ("Latest error", format!("{} (attempt {}): {}", last.step, last.attempt, last.message), last.code)
    } else {
        return Default::default();
    };
    let code = code.map(|code| format!(" · {}", code.as_str())).unwrap_or_default();
    (format!("{title}{code}"), shown::block(&message))
}

/// What the run is, how it stands, and what can be done.
fn top(page: Page) -> impl IntoView {
    let of =
        move |read: fn(&RunView) -> String| page.run.with(|run| run.as_ref().map(read).unwrap_or_default());
    let status = Memo::new(move |_| page.run.with(|run| run.as_ref().map(|run| run.status)));
    let because =
        move || page.why.with(|why| why.as_ref().map(|why| parts::word(&why.because)).unwrap_or_default());
    let took = move || {
        page.run.with(|run| {
            run.as_ref().map(|run| {
                let end = run.ended_at.unwrap_or_else(|| page.app.now.get()).max(run.created_at);
                when::between(run.created_at, end)
            })
        })
    };
    // Two texts, so that what somebody reads stays in place while the run goes on.
    let heading = Memo::new(move |_| page.run.with(|run| wrong(run.as_ref()).0));
    let message = Memo::new(move |_| page.run.with(|run| wrong(run.as_ref()).1));
    let shown_error = view! {
        <Show when=move || heading.with(|heading| !heading.is_empty())>
            <div class="wrong" role="group" aria-label=move || heading.get()>
                <b>{move || heading.get()}</b>
                <pre tabindex="0">{move || message.get()}</pre>
            </div>
        </Show>
    };
    let progress = move || {
        page.run.with(|run| {
            let progress = run.as_ref()?.progress.clone()?;
            let label = parts::progress(&progress);
            Some(view! {
                <div class="progress">
                    <progress max="100" prop:value=progress.percent aria-label="Progress"></progress>
                    <span class="num">{label}</span>
                </div>
            })
        })
    };
    let trouble =
        move || page.trouble.get().map(|(_, words)| view! { <p class="error" role="alert">{words}</p> });
    view! {
        <div class="top">
            <div class="title">
                {parts::link(Place::Runs { filter: String::new() }, "back", "← Runs")}
                <h1>{move || of(|run| parts::word(&run.workflow))}</h1>
                {move || status.get().map(parts::status)}
                <span class="num dim">{took}</span>
                <code class="id">{page.id.get_value()}</code>
                <span class="space"></span>
                {actions::view(page)}
            </div>
            <p class="why">{because}</p>
            {trouble}
            {progress}
            {shown_error}
        </div>
    }
}

/// What else is known of the run.
fn facts(page: Page) -> impl IntoView {
    let list = move || {
        page.run.with(|run| {
            let run = run.as_ref()?;
            let mut facts: Vec<(&'static str, AnyView)> = Vec::new();
            facts.push(("Accepted", parts::instant(run.created_at).into_any()));
            for (name, at) in [
                ("Starts", run.starts_at),
                ("Ended", run.ended_at),
                ("Wakes", run.wakes_at),
                ("Times out", run.deadline),
                ("Deleted", run.expires_at),
            ] {
                if let Some(at) = at {
                    facts.push((name, parts::instant(at).into_any()));
                }
            }
            if !run.waits_for.is_empty() {
                facts.push(("Waits for", parts::word(&run.waits_for.join(", ")).into_any()));
            }
            if let Some(by) = &run.started_by {
                facts.push(("Started by", parts::word(by).into_any()));
            }
            if let Some(parent) = &run.parent {
                let place = Place::Run { id: parent.to_string(), step: None };
                facts.push(("Parent", parts::link(place, "mono", parent.to_string()).into_any()));
            }
            if run.children > 0 {
                facts.push(("Open children", run.children.to_string().into_any()));
            }
            if !run.tags.is_empty() || !run.attributes.is_empty() {
                facts.push(("Labels", parts::labels(run)));
            }
            facts.push(("Activations", run.activations.to_string().into_any()));
            let meter = run.meter;
            let cost = format!(
                "${} for a million runs; rows: {}, requests: {}",
                fixed(meter.dollars_per_million, 2),
                meter.rows_written,
                meter.requests
            );
            facts.push(("Cost", cost.into_any()));
            for act in run.acts.iter().rev().take(5) {
                let what = act.what.as_str();
                let by = parts::word(&act.by);
                facts.push(("Done by hand", view! { {what}" by "{by}", "{parts::ago(act.at)} }.into_any()));
            }
            let rows = facts.into_iter().map(|(name, value)| view! { <dt>{name}</dt><dd>{value}</dd> });
            Some(rows.collect_view())
        })
    };
    view! {
        <section class="panel">
            <div class="head-of">
                <h2>"Facts"</h2>
                <button class="plain" on:click=move |_| page.export()>"Export as JSON"</button>
            </div>
            <dl class="facts">{list}</dl>
        </section>
    }
}

/// What went in and came out.
fn payloads(page: Page) -> impl IntoView {
    let output = Memo::new(move |_| {
        page.run.with(|run| run.as_ref()?.output.as_ref().map(|output| output.text().to_owned()))
    });
    let name = move |what: &str| format!("{}-{what}.json", page.id.get_value());
    view! {
        <section class="panel">
            <h2>"Input"</h2>
            {move || page.input.get().map(|text| parts::payload(text, name("input")))}
        </section>
        <Show when=move || output.with(Option::is_some)>
            <section class="panel">
                <h2>"Output"</h2>
                {move || output.get().map(|text| parts::payload(text, name("output")))}
            </section>
        </Show>
    }
}
