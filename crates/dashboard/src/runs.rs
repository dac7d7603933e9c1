//! The page of all runs: filter, statuses, saved views, and rows in sight.

use leptos::{ev, html, prelude::*};
use stepwell_dashboard_model::{
    filter::Filter,
    listing::{Listing, RUNS_MAX},
    place::Place,
    when,
};
use stepwell_protocol::rest::{RunView, Status};

use crate::{
    app::App,
    list::{List, ROW_HEIGHT},
    parts::{self, offset, windowed},
    views,
};

/// The view.
pub fn view() -> impl IntoView {
    let app = App::here();
    let text = Memo::new(move |_| {
        app.place.with(|place| match place {
            Place::Runs { filter } => filter.clone(),
            _ => String::new(),
        })
    });
    let list = List::new(app, text);
    Effect::new(move |_| {
        // What cannot be read finds nothing.
        match list.filter.get() {
            Ok(filter) => list.begin(&filter),
            Err(_) => list.clear(),
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
            {views::line(list.app, list.filter, list.checked)}
            {table(list)}
        </section>
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
        let mut names: Vec<String> = list.metrics.with(|metrics| {
            metrics.iter().flat_map(|it| it.workflows.iter().map(|(name, _)| name.clone())).collect()
        });
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
        let is_on = move || {
            list.filter.with(|filter| {
                filter.as_ref().is_ok_and(|filter| match status {
                    Some(status) => filter.status.contains(&status),
                    None => filter.status.is_empty(),
                })
            })
        };
        let count = move || {
            list.metrics.with(|metrics| {
                let metrics = metrics.as_ref()?;
                let filter = list.filter.get().ok()?;
                // Nobody counts those that match anything else.
                if (Filter { workflow: None, ..filter.with_status(None) }) != Filter::default() {
                    return None;
                }
                let counts = match &filter.workflow {
                    Some(workflow) => metrics.workflows.get(workflow).copied().unwrap_or_default(),
                    None => metrics.statuses,
                };
                let count = status.map_or(counts.live() + counts.ended(), |status| counts.of(status));
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
    let is_loading = move || !list.listing.with(Listing::is_loaded) && list.filter.with(Result::is_ok);
    let is_empty = move || !is_loading() && count.get() == 0;
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
        <Show when=move || is_loading() && list.trouble.with(Option::is_none)>
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
    let state = Memo::new(move |_| row.with(|(_, run)| Some(run.status)));
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
            let error = run.error.as_ref().map(|error| &error.message);
            let error = error.or(run.problem.as_ref().map(|problem| &problem.detail));
            let error = error.map(|message| parts::word(message));
            let progress = run.progress.as_ref().filter(|_| !run.status.is_terminal());
            let note = progress.map(parts::progress);
            let note = note.or_else(|| {
                let names: Vec<_> = run.waits_for.iter().map(|name| parts::word(name)).collect();
                (!names.is_empty()).then(|| format!("waits for {}", names.join(", ")))
            });
            view! {
                {parts::labels(run)}
                {error.map(|text| view! { <span class="error" title=text.clone()>{text.clone()}</span> })}
                {note.map(|text| view! { <span class="dim">{text}</span> })}
            }
        })
    };
    let (opened, chosen, place) = (id.clone(), id.clone(), Place::Run { id: id.clone(), step: None });
    let (own, other, label) = (id.clone(), id.clone(), format!("Select {id}"));
    let is_checked = move || list.checked.with(|checked| checked.contains(&own));
    let check = move |_| list.check(&other);
    let open = move |_: ev::MouseEvent| app.go(Place::Run { id: opened.clone(), step: None });
    view! {
        <div class="row" role="row" aria-rowindex=move || (index.get() + 1).to_string()
            class:selected=move || list.selected.with(|selected| selected.as_deref() == Some(&chosen))
            style:transform=move || offset(index.get(), ROW_HEIGHT) on:dblclick=open>
            <span role="cell">
                <Show when=move || list.can_act()>
                    {
                        let (label, is_checked, check) = (label.clone(), is_checked.clone(), check.clone());
                        view! { <input type="checkbox" aria-label=label prop:checked=is_checked on:change=check /> }
                    }
                </Show>
                {move || state.get().map(parts::status)}
            </span>
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
    let is_filtered =
        move || list.filter.with(|filter| !filter.as_ref().is_ok_and(|filter| *filter == Filter::default()));
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
