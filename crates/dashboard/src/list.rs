//! The list of runs: what it knows, what it asks for as one scrolls, and changes as they happen.

use std::time::Duration;

use leptos::{ev, leptos_dom::helpers::set_timeout, prelude::*};
use stepwell_dashboard_model::{
    counts::Metrics,
    filter::{Ask, Filter, NotAFilter},
    following::Link,
    listing::{Change, Listing},
    pacing::Pace,
    place::{Place, encoded},
};
use stepwell_protocol::{
    filter::Filter as Which,
    rest::{RunList, RunView},
    routes::Route,
    stream::{Kind, StatusView, StreamEvent},
};

use crate::{
    api::{self, Trouble},
    app::{App, now},
    keyboard::plain_key,
    parts::Scroll,
    socket::Stream,
};

/// The height of a row, in pixels.
pub const ROW_HEIGHT: f64 = 32.0;

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

/// The list.
#[derive(Clone, Copy)]
pub struct List {
    pub app: App,
    pub filter: Memo<Result<Filter, NotAFilter>>,
    pub listing: RwSignal<Listing>,
    pub trouble: RwSignal<Option<String>>,
    pub metrics: RwSignal<Option<Metrics>>,
    /// When the runs were counted, or will be.
    counted_at: RwSignal<u64>,
    /// The id of the run that is selected: rows move.
    pub selected: RwSignal<Option<String>>,
    /// The ids of the runs that are checked.
    pub checked: RwSignal<Vec<String>>,
    pub scroll: Scroll,
    pub is_loading: RwSignal<bool>,
    is_refreshing: RwSignal<bool>,
    /// Whether the newest runs are to be asked for, whoever has changed.
    is_head_due: RwSignal<bool>,
    pace: StoredValue<Pace>,
    /// Which filter an answer is for: one that comes late is for none.
    turn: RwSignal<u32>,
    stream: StoredValue<Option<Stream>, LocalStorage>,
    pending: StoredValue<Vec<StreamEvent>, LocalStorage>,
}

impl List {
    /// A list that has asked for nothing yet; the filter is this text.
    pub fn new(app: App, text: Memo<String>) -> Self {
        Self {
            app,
            filter: Memo::new(move |_| text.with(|text| Filter::of(text))),
            listing: RwSignal::new(Listing::default()),
            trouble: RwSignal::new(None),
            metrics: RwSignal::new(None),
            counted_at: RwSignal::new(0),
            selected: RwSignal::new(None),
            checked: RwSignal::new(Vec::new()),
            scroll: Scroll::new(ROW_HEIGHT),
            is_loading: RwSignal::new(false),
            is_refreshing: RwSignal::new(false),
            is_head_due: RwSignal::new(false),
            pace: StoredValue::new(Pace::default()),
            turn: RwSignal::new(0),
            stream: StoredValue::new_local(None),
            pending: StoredValue::new_local(Vec::new()),
        }
    }

    /// Shows and follows nothing any more.
    pub fn clear(self) {
        self.stop();
        self.app.link.set(Link::Over);
        self.turn.update(|turn| *turn += 1);
        self.listing.set(Listing::default());
        self.selected.set(None);
        // What is no longer in sight is not acted on.
        self.checked.set(Vec::new());
        self.trouble.set(None);
        self.is_loading.set(false);
        self.scroll.top.set(0.0);
    }

    /// Begins anew, with another filter.
    pub fn begin(self, filter: &Filter) {
        self.clear();
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

    pub fn stop(self) {
        // What an older filter has heard is for none.
        self.pending.try_update_value(Vec::clear);
        self.stream.try_update_value(|stream| {
            if let Some(stream) = stream.take() {
                stream.close();
            }
        });
    }

    /// Asks for the page that follows.
    pub fn more(self) {
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
        self.count();
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
            self.is_refreshing.try_set(false);
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
                    let found: Vec<_> = page.executions.iter().map(|run| run.id.to_string()).collect();
                    if !is_head {
                        self.listing.update_untracked(|listing| listing.found(&ids, &found));
                    }
                    self.merge(page, is_head);
                    self.listing.update_untracked(|listing| listing.asked(ids, &filter));
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

    /// Counts all runs, soon: the last change of a burst is counted too.
    fn count(self) {
        let (now, due) = (now().as_millis(), self.counted_at.get_untracked() + COUNT_MS);
        // One is on its way.
        if now + COUNT_MS < due {
            return;
        }
        let ask = move || {
            // The view may be gone.
            if self.counted_at.try_get_untracked().is_none() {
                return;
            }
            leptos::task::spawn_local(async move {
                // A key for some workflows may not count all of them.
                if let Ok(metrics) = api::get::<Metrics>("/api/metrics").await {
                    self.metrics.try_set(Some(metrics));
                }
            });
        };
        self.counted_at.set(now.max(due));
        set_timeout(ask, Duration::from_millis(due.saturating_sub(now)));
    }

    pub fn go(self, filter: &Filter) {
        self.app.go(Place::Runs { filter: filter.text() });
    }

    /// Whether something can be done to many runs.
    pub fn can_act(self) -> bool {
        self.app.viewer().is_some_and(|viewer| viewer.may.ask(Route::StartBulk, None))
    }

    /// Checks a run, or does not any more. Beyond so many, no other is.
    pub fn check(self, id: &str) {
        self.checked.update(|checked| match checked.iter().position(|one| one == id) {
            Some(at) => drop(checked.remove(at)),
            None if checked.len() < Which::IDS_MAX => checked.push(id.to_owned()),
            None => {}
        });
    }

    pub fn listen(self) {
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
                "x" if self.can_act() => {
                    if let Some(id) = self.selected.get_untracked() {
                        self.check(&id);
                    }
                }
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
