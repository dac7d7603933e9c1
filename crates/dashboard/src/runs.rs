//! The list of runs: filter, rows in sight, further pages as one scrolls, and changes as they happen.

use std::time::Duration;

use leptos::{ev, html, leptos_dom::helpers::set_timeout, prelude::*};
use stepwell_dashboard_model::{
    filter::{Ask, Filter, NotAFilter},
    following::Link,
    listing::{Change, Listing, RUNS_MAX},
    pacing::Pace,
    place::{Place, encoded},
    when,
};
use stepwell_protocol::{
    rest::{Metrics, RunList, RunView, Status},
    stream::{Kind, StatusView, StreamEvent},
};

use crate::{
    api::{self, Trouble},
    app::{App, now},
    keyboard::plain_key,
    parts::{self, Scroll, offset, windowed},
    socket::Stream,
    views,
};

const ROW_HEIGHT: f64 = 32.0;

/// How many runs a page of the API has.
const PAGE: u32 = 100;

/// How many of the newest runs are asked for again when something new has happened.
const HEAD: u32 = 50;

/// Pages without a run are skipped, up to so many: a filter may look at many runs and find none.
const EMPTY_PAGES_MAX: u32 = 50;

/// After a burst, so many pages are asked for to reach the runs that are in the list; then it begins anew.
const CATCH_UP_PAGES_MAX: u32 = 10;

/// Up to so many runs are asked for one by one, which is less work for the engine than a list.
const SINGLE_MAX: usize = 4;

/// So many milliseconds of changes are drawn at once.
const FLUSH_MS: u64 = 40;

/// Changes of one moment are asked for together.
const REFRESH_MS_FIRST: u64 = 40;

/// The shortest time between two counts: they are more work for the engine than a list.
const COUNT_MS: u64 = 10_000;

#[derive(Clone, Copy)]
struct List {
    app: App,
    filter: Memo<Result<Filter, NotAFilter>>,
    listing: RwSignal<Listing>,
    trouble: RwSignal<Option<String>>,
    metrics: RwSignal<Option<Metrics>>,
    counted_at: RwSignal<u64>,
    /// The id of the run that is selected: rows move.
    selected: RwSignal<Option<String>>,
    scroll: Scroll,
    is_loading: RwSignal<bool>,
    is_refreshing: RwSignal<bool>,
    /// Whether the newest runs are to be asked for, whoever has changed.
    is_head_due: RwSignal<bool>,
    pace: StoredValue<Pace>,
    /// Which filter an answer is for: one that comes late is for none.
    turn: RwSignal<u32>,
    stream: StoredValue<Option<Stream>, LocalStorage>,
    pending: StoredValue<Vec<StreamEvent>, LocalStorage>,
}

/// The view.
pub fn view() -> impl IntoView {
    let app = App::here();
    let text = Memo::new(move |_| {
        app.place.with(|place| match place {
            Place::Runs { filter } => filter.clone(),
            _ => String::new(),
        })
    });
    let list = List {
        app,
        filter: Memo::new(move |_| text.with(|text| Filter::of(text))),
        listing: RwSignal::new(Listing::default()),
        trouble: RwSignal::new(None),
        metrics: RwSignal::new(None),
        counted_at: RwSignal::new(0),
        selected: RwSignal::new(None),
        scroll: Scroll::new(ROW_HEIGHT),
        is_loading: RwSignal::new(false),
        is_refreshing: RwSignal::new(false),
        is_head_due: RwSignal::new(false),
        pace: StoredValue::new(Pace::default()),
        turn: RwSignal::new(0),
        stream: StoredValue::new_local(None),
        pending: StoredValue::new_local(Vec::new()),
    };
    Effect::new(move |_| {
        if let Ok(filter) = list.filter.get() {
            list.begin(&filter);
        }
    });
    on_cleanup(move || list.stop());
    list.listen();
    // The end of the list comes into sight: ask for more.
    Effect::new(move |_| {
        let (top, height) = (list.scroll.top.get(), list.scroll.height.get());
        let count = list.listing.with(|listing| listing.runs().len());
        #[expect(clippy::cast_precision_loss, reason = "no list has 2^52 rows")]
        if top + 2.0 * height > count as f64 * ROW_HEIGHT {
            list.more();
        }
    });
    view! {
        <section class="runs" aria-labelledby="runs-title">
            <h1 id="runs-title" class="hidden">"Runs"</h1>
            {bar(list, text)}
            {chips(list)}
            {views::line(list.app, list.filter)}
            {table(list)}
        </section>
    }
}

impl List {
    /// Begins anew, with another filter.
    fn begin(self, filter: &Filter) {
        self.stop();
        self.turn.update(|turn| *turn += 1);
        self.listing.set(Listing::default());
        self.selected.set(None);
        self.trouble.set(None);
        self.is_loading.set(false);
        self.scroll.top.set(0.0);
        self.more();
        self.count();
        let only = self.app.only_workflows();
        let address = match (&filter.workflow, only.as_deref()) {
            (None, None) => "/api/stream".into(),
            (Some(workflow), None) | (None, Some([workflow])) => of_workflow(workflow),
            (Some(workflow), Some(only)) if only.contains(workflow) => of_workflow(workflow),
            // There is no stream of several workflows.
            (_, Some(_)) => return self.app.link.set(Link::Over),
        };
        let stream = Stream::follow(self.app, address, None, move |event| self.take(event));
        self.stream.set_value(Some(stream));
    }

    fn stop(self) {
        // What an older filter has heard is for none.
        self.pending.try_update_value(Vec::clear);
        self.stream.try_update_value(|stream| {
            if let Some(stream) = stream.take() {
                stream.close();
            }
        });
    }

    /// Asks for the page that follows.
    fn more(self) {
        let has_more =
            self.listing.with_untracked(|listing| !listing.is_loaded() || listing.cursor().is_some());
        let Ok(filter) = self.filter.get_untracked() else { return };
        if !has_more || self.is_loading.get_untracked() || self.trouble.with_untracked(Option::is_some) {
            return;
        }
        self.is_loading.set(true);
        let turn = self.turn.get_untracked();
        leptos::task::spawn_local(async move {
            for _ in 0..EMPTY_PAGES_MAX {
                let cursor = self.listing.try_with_untracked(|listing| listing.cursor().map(str::to_owned));
                let answer = page(&filter, PAGE, cursor.flatten().as_deref()).await;
                if self.turn.try_get_untracked() != Some(turn) {
                    return;
                }
                match answer {
                    Ok(page) => {
                        let is_enough = !page.executions.is_empty() || page.cursor.is_none();
                        self.listing.update(|listing| listing.append(page));
                        if is_enough {
                            break;
                        }
                    }
                    Err(trouble) => {
                        self.trouble.set(Some(self.app.explain(&trouble)));
                        break;
                    }
                }
            }
            self.is_loading.set(false);
        });
    }

    /// Takes what the stream tells. What comes together is drawn together.
    fn take(self, event: StreamEvent) {
        let is_first = self.pending.try_update_value(|pending| {
            pending.push(event);
            pending.len() == 1
        });
        if is_first == Some(true) {
            set_timeout(move || self.flush(), Duration::from_millis(FLUSH_MS));
        }
    }

    fn flush(self) {
        let (Some(pending), Some(Ok(filter))) =
            (self.pending.try_update_value(std::mem::take), self.filter.try_get_untracked())
        else {
            return;
        };
        // Whatever happened since the page was asked for is in the list by then.
        if pending.iter().any(|event| event.kind == Kind::Ready) {
            self.is_head_due.set(true);
        }
        self.listing.maybe_update(|listing| {
            let statuses = pending.iter().filter(|event| event.kind == Kind::Status);
            let mut is_changed = false;
            for event in statuses {
                if let Ok(told) = event.data.read::<StatusView>() {
                    let change = listing.take(&told, event.at, &filter);
                    is_changed |= matches!(change, Change::Row(_) | Change::Gone(_));
                }
            }
            is_changed
        });
        if self.is_head_due.get_untracked() || self.listing.with_untracked(Listing::wants) {
            self.refresh();
        }
    }

    /// Asks for what has changed, soon. One request after the other: an older answer would undo a newer one.
    fn refresh(self) {
        if self.is_refreshing.try_get_untracked() != Some(false) {
            return;
        }
        self.is_refreshing.set(true);
        let pause_ms = self.pace.with_value(|pace| pace.pause_ms(now().as_millis())).max(REFRESH_MS_FIRST);
        let ask = move || leptos::task::spawn_local(self.ask());
        set_timeout(ask, Duration::from_millis(pause_ms));
    }

    async fn ask(self) {
        let (Some(turn), Some(Ok(filter))) = (self.turn.try_get_untracked(), self.filter.try_get_untracked())
        else {
            return;
        };
        let began = now().as_millis();
        let mut ids = Vec::new();
        self.listing.update_untracked(|listing| ids = listing.asking());
        let is_single = (1..=SINGLE_MAX).contains(&ids.len()) && !filter.is_of_one();
        let is_head = self.is_head_due.get_untracked() || !is_single;
        self.is_head_due.set(false);
        let answer = if is_head { self.newest(&filter).await } else { some(&filter, &ids).await };
        // The view may be gone.
        if self.is_refreshing.try_set(false).is_some() {
            return;
        }
        self.pace.update_value(|pace| pace.took(began, now().as_millis()));
        if self.turn.get_untracked() == turn {
            match answer {
                Ok(page) => {
                    self.merge(page, is_head);
                    self.listing.update_untracked(|listing| listing.asked(ids, &filter));
                    self.count();
                }
                Err(trouble) => {
                    self.app.explain(&trouble);
                    self.pace.update_value(|pace| pace.failed(began));
                    self.is_head_due.update(|is_due| *is_due |= is_head);
                    self.listing.update_untracked(|listing| listing.want(ids));
                }
            }
        }
        if self.is_head_due.get_untracked() || self.listing.with_untracked(Listing::wants) {
            self.refresh();
        }
    }

    /// The newest runs, down to those that are in the list.
    async fn newest(self, filter: &Filter) -> Result<RunList, Trouble> {
        let mut newest = page(filter, HEAD, None).await?;
        for _ in 0..CATCH_UP_PAGES_MAX {
            // A view that is gone needs none.
            if self.listing.try_with_untracked(|listing| listing.reaches(&newest)) != Some(false) {
                break;
            }
            let next = page(filter, PAGE, newest.cursor.as_deref()).await?;
            newest.executions.extend(next.executions);
            newest.cursor = next.cursor;
        }
        Ok(newest)
    }

    fn merge(self, page: RunList, is_head: bool) {
        let top = self.scroll.top.get_untracked();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a row's number")]
        let above = (top / ROW_HEIGHT) as usize;
        let mut added = 0;
        self.listing.update(|listing| {
            added =
                if is_head { listing.refresh(page, above) } else { listing.place(page.executions, above) };
        });
        // What somebody reads stays where it is.
        if added > 0 && top > 0.0 {
            self.scroll.shift(added);
        }
    }

    fn count(self) {
        let now = now().as_millis();
        if now < self.counted_at.get_untracked() + COUNT_MS {
            return;
        }
        self.counted_at.set(now);
        leptos::task::spawn_local(async move {
            // A key for some workflows may not count all of them.
            if let Ok(metrics) = api::get::<Metrics>("/api/metrics").await {
                self.metrics.try_set(Some(metrics));
            }
        });
    }

    fn go(self, filter: &Filter) {
        self.app.go(Place::Runs { filter: filter.text() });
    }

    fn listen(self) {
        let handle = window_event_listener(ev::keydown, move |event| {
            let Some(key) = plain_key(&event) else { return };
            let count = self.listing.with_untracked(|listing| listing.runs().len());
            let selected = self.selected.get_untracked().and_then(|id| {
                self.listing
                    .with_untracked(|listing| listing.runs().iter().position(|run| run.id.to_string() == id))
            });
            match key.as_str() {
                "j" if count > 0 => self.select(selected.map_or(0, |row| (row + 1).min(count - 1))),
                "k" if count > 0 => self.select(selected.map_or(0, |row| row.saturating_sub(1))),
                "Enter" => {
                    let id = self.listing.with_untracked(|listing| {
                        selected.and_then(|row| listing.runs().get(row)).map(|run| run.id.to_string())
                    });
                    // A link or button that has the focus is what Enter is for.
                    let is_free = document()
                        .active_element()
                        .is_none_or(|element| !["A", "BUTTON"].contains(&element.tag_name().as_str()));
                    if let Some(id) = id.filter(|_| is_free) {
                        self.app.go(Place::Run { id, step: None });
                    }
                }
                _ => {}
            }
        });
        on_cleanup(move || handle.remove());
    }

    fn select(self, row: usize) {
        let id = self.listing.with_untracked(|listing| listing.runs().get(row).map(|run| run.id.to_string()));
        self.selected.set(id);
        self.scroll.show(row);
    }
}

/// These runs, as far as they are in the list.
async fn some(filter: &Filter, ids: &[String]) -> Result<RunList, Trouble> {
    let mut executions = Vec::new();
    for id in ids {
        match api::get::<RunView>(&format!("/api/executions/{}", encoded(id))).await {
            Ok(run) if filter.admits(&run, now()) => executions.push(run),
            Ok(_) => {}
            // It was deleted, or is another key's.
            Err(trouble) if trouble.status() == 404 => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(RunList { executions, cursor: None })
}

fn of_workflow(workflow: &str) -> String {
    format!("/api/stream?workflow={}", encoded(workflow))
}

/// A page of the list; for a filter that means one run, that run.
async fn page(filter: &Filter, limit: u32, cursor: Option<&str>) -> Result<RunList, Trouble> {
    match filter.ask(now(), limit, cursor) {
        Ask::List(path) => api::get(&path).await,
        Ask::One(path) => match api::get::<RunView>(&path).await {
            Ok(run) => {
                let executions = Some(run).filter(|run| filter.admits(run, now())).into_iter().collect();
                Ok(RunList { executions, cursor: None })
            }
            Err(trouble) if trouble.status() == 404 => Ok(RunList { executions: Vec::new(), cursor: None }),
            Err(trouble) => Err(trouble),
        },
    }
}

fn bar(list: List, text: Memo<String>) -> impl IntoView {
    let field = NodeRef::<html::Input>::new();
    let apply = move || {
        if let Some(field) = field.get_untracked() {
            list.app.go(Place::Runs { filter: field.value().trim().to_owned() });
        }
    };
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        apply();
    };
    let escape = move |event: ev::KeyboardEvent| {
        if event.key() == "Escape"
            && let Some(field) = field.get_untracked()
        {
            let _ = field.blur();
        }
    };
    let wrong = move || list.filter.get().err().map(|error| error.to_string());
    let workflows = move || {
        let mut names: Vec<String> =
            list.metrics.with(|metrics| metrics.iter().flat_map(|it| it.workflows.keys().cloned()).collect());
        if let Ok(Some(chosen)) = list.filter.get().map(|filter| filter.workflow)
            && !names.contains(&chosen)
        {
            names.push(chosen);
        }
        names
    };
    let chosen = move || list.filter.get().ok().and_then(|filter| filter.workflow).unwrap_or_default();
    let choose = move |event: ev::Event| {
        let name = event_target_value(&event);
        if let Ok(filter) = list.filter.get_untracked() {
            list.go(&filter.with_workflow((!name.is_empty()).then_some(name)));
        }
    };
    view! {
        <form class="filter" role="search" on:submit=submit>
            <label class="hidden" for="filter">"Filter"</label>
            <input id="filter" type="text" autocomplete="off" spellcheck="false" node_ref=field
                placeholder="status:failed workflow:greet tag:vip attr:customer=acme since:2h"
                prop:value=move || text.get() on:change=move |_| apply() on:keydown=escape
                aria-invalid=move || wrong().is_some().then_some("true") aria-describedby="filter-wrong" />
            <label class="hidden" for="workflow">"Workflow"</label>
            <select id="workflow" on:change=choose prop:value=chosen>
                <option value="" selected=move || chosen().is_empty()>"All workflows"</option>
                <For each=workflows key=Clone::clone let:name>
                    {
                        let (value, own, shown) = (name.clone(), name.clone(), parts::word(&name));
                        view! { <option value=value selected=move || chosen() == own>{shown}</option> }
                    }
                </For>
            </select>
            <p id="filter-wrong" class="error" role="alert">{wrong}</p>
        </form>
    }
}

/// The statuses, to choose one.
fn chips(list: List) -> impl IntoView {
    let chip = move |status: Option<Status>| {
        let is_on = move || list.filter.get().is_ok_and(|filter| filter.status == status);
        let count = move || {
            list.metrics.with(|metrics| {
                let metrics = metrics.as_ref()?;
                let workflow = list.filter.get().ok().and_then(|filter| filter.workflow);
                let counts = match &workflow {
                    Some(workflow) => metrics.workflows.get(workflow),
                    None => Some(&metrics.statuses),
                };
                let count: u64 = counts.map_or(0, |counts| match status {
                    Some(status) => counts.get(&status).copied().unwrap_or(0),
                    None => counts.values().sum(),
                });
                Some(format!("{count}{}", if metrics.complete { "" } else { "+" }))
            })
        };
        let choose = move |_| {
            if let Ok(filter) = list.filter.get_untracked() {
                list.go(&filter.with_status(status));
            }
        };
        view! {
            <button class="chip" data-status=status.map(Status::as_str) aria-pressed=move || is_on().to_string() on:click=choose>
                {status.map_or("all", Status::as_str)}<span class="num">{count}</span>
            </button>
        }
    };
    view! {
        <div class="chips" role="group" aria-label="Status">
            {chip(None)}
            {Status::ALL.map(|status| chip(Some(status)))}
        </div>
    }
}

fn table(list: List) -> impl IntoView {
    let count = Signal::derive(move || list.listing.with(|listing| listing.runs().len()));
    let item = move |index: usize| list.listing.with(|listing| listing.runs().get(index).cloned());
    let is_empty = move || list.listing.with(|listing| listing.is_loaded() && listing.runs().is_empty());
    let ending = move || {
        let (is_loaded, has_more, has_older) = list
            .listing
            .with(|listing| (listing.is_loaded(), listing.cursor().is_some(), listing.has_older()));
        if list.is_loading.get() || !is_loaded {
            "Loading…".into()
        } else if has_more {
            String::new()
        } else if has_older {
            format!("Older runs are not shown: a list has up to {RUNS_MAX}. Filter with until: to see them.")
        } else {
            "No older runs.".into()
        }
    };
    let again = move |_| {
        list.trouble.set(None);
        list.more();
    };
    view! {
        <Show when=move || list.trouble.with(Option::is_some)>
            {parts::notice(view! {
                <p>{move || list.trouble.get()}</p>
                <button on:click=again>"Try again"</button>
            })}
        </Show>
        <Show when=is_empty>{empty(list)}</Show>
        <Show when=move || !list.listing.with(Listing::is_loaded) && list.trouble.with(Option::is_none)>
            <p class="loading" role="status">"Loading…"</p>
        </Show>
        <div class="table" role="table" aria-label="Runs" prop:hidden=move || count.get() == 0 aria-rowcount=move || count.get().to_string()>
            <div class="head" role="row">
                <span role="columnheader">"Status"</span>
                <span role="columnheader">"Workflow"</span>
                <span role="columnheader">"Run"</span>
                <span role="columnheader" class="wide">"Details"</span>
                <span role="columnheader" class="right">"Events"</span>
                <span role="columnheader" class="right">"Duration"</span>
                <span role="columnheader" class="right">"Started"</span>
            </div>
            <div class="scroll" role="rowgroup" tabindex="0" aria-label="Runs, newest first" node_ref=list.scroll.node
                on:scroll=move |_| list.scroll.measure()>
                {windowed(list.scroll, count, item, |run: &RunView| run.id.to_string(), move |row| line(list, row))}
                <p class="end dim" role="presentation">{ending}</p>
            </div>
        </div>
    }
}

fn line(list: List, row: Memo<(usize, RunView)>) -> impl IntoView {
    let app = list.app;
    let index = Memo::new(move |_| row.with(|(index, _)| *index));
    let state = Memo::new(move |_| row.with(|(_, run)| run.status));
    let (id, workflow, created_at) =
        row.with_untracked(|(_, run)| (run.id.to_string(), run.workflow.clone(), run.created_at));
    let took = move || {
        row.with(|(_, run)| match run.ended_at {
            Some(ended) => when::between(run.created_at, ended),
            None => when::between(run.created_at, app.now.get().max(run.created_at)),
        })
    };
    let labels = move || {
        row.with(|(_, run)| {
            let tags = run.tags.iter().map(|tag| parts::word(tag));
            let attributes =
                run.attributes.iter().map(|(name, value)| parts::word(&format!("{name}={value}")));
            let labels = tags.chain(attributes).map(|label| view! { <span class="label">{label}</span> });
            let error = run.error.as_ref().map(|error| &error.message);
            let error = error.or(run.problem.as_ref().map(|problem| &problem.detail));
            let error = error.map(|message| parts::word(message));
            let progress = run.progress.as_ref().filter(|_| !run.status.is_terminal());
            let note = progress.map(|it| format!("{:.0} % {}", it.percent, parts::word(&it.message)));
            let note = note.or_else(|| {
                let names: Vec<_> = run.waits_for.iter().map(|name| parts::word(name)).collect();
                (!names.is_empty()).then(|| format!("waits for {}", names.join(", ")))
            });
            view! {
                {labels.collect_view()}
                {error.map(|text| view! { <span class="error" title=text.clone()>{text.clone()}</span> })}
                {note.map(|text| view! { <span class="dim">{text}</span> })}
            }
        })
    };
    let (opened, chosen, place) = (id.clone(), id.clone(), Place::Run { id: id.clone(), step: None });
    let open = move |_: ev::MouseEvent| app.go(Place::Run { id: opened.clone(), step: None });
    view! {
        <div class="row" role="row" aria-rowindex=move || (index.get() + 1).to_string()
            class:selected=move || list.selected.with(|selected| selected.as_deref() == Some(&chosen))
            style:transform=move || offset(index.get(), ROW_HEIGHT) on:dblclick=open>
            <span role="cell">{move || parts::status(state.get())}</span>
            <span role="cell" class="name" title=parts::word(&workflow)>{parts::word(&workflow)}</span>
            <span role="cell" class="mono">{parts::run_link(place, &id)}</span>
            <span role="cell" class="wide labels">{labels}</span>
            <span role="cell" class="right num">{move || row.with(|(_, run)| run.head.0.to_string())}</span>
            <span role="cell" class="right num">{took}</span>
            <span role="cell" class="right">{parts::ago(created_at)}</span>
        </div>
    }
}

fn empty(list: List) -> impl IntoView {
    let is_filtered = move || list.filter.get().is_ok_and(|filter| filter != Filter::default());
    parts::notice(view! {
        <Show when=is_filtered fallback=|| view! {
            <p>"There are no runs yet. Start one:"</p>
            <pre>"stepwell start greet '\"Ada\"'"</pre>
        }>
            <p>"No run matches this filter. Runs are deleted some time after they end."</p>
            <button on:click=move |_| list.go(&Filter::default())>"Show all runs"</button>
        </Show>
    })
}
