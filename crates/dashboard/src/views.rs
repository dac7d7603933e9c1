//! What is beside the list of runs: saved filters, and what can be done to all runs that match the filter.

use leptos::prelude::*;
use stepwell_dashboard_model::{
    bulk,
    filter::{Filter, NotAFilter},
    form::Action,
    place::Place,
};
use stepwell_protocol::filter::Filter as Which;

use crate::{
    app::{self, App, now},
    dialog, parts,
};

/// How many filters are saved.
const SAVED_MAX: usize = 20;

/// Where they are, in the browser.
const NAME: &str = "views";

/// The line with both; instead of all runs, those that are checked.
pub fn line(
    app: App,
    filter: Memo<Result<Filter, NotAFilter>>,
    checked: RwSignal<Vec<String>>,
) -> impl IntoView {
    let saved = RwSignal::new(app.remembered(NAME));
    let keep = move |views: Vec<String>| {
        app::store(&app.remembered_as(NAME), &views.join("\n"));
        saved.set(views);
    };
    let text = Memo::new(move |_| filter.get().map(|filter| filter.text()).unwrap_or_default());
    let can_be_saved = Memo::new(move |_| {
        let text = text.get();
        // Each is a line of what is stored.
        !text.is_empty() && !text.contains('\n') && saved.with(|saved| !saved.contains(&text))
    });
    let save = move |_| {
        let mut views = saved.get_untracked();
        views.insert(0, text.get_untracked());
        views.truncate(SAVED_MAX);
        keep(views);
    };
    let view = move |own: String| {
        let (shown, place) = (parts::word(&own), Place::Runs { filter: own.clone() });
        let label = format!("Remove {shown}");
        let remove = move |_| keep(saved.get_untracked().into_iter().filter(|one| *one != own).collect());
        view! {
            <span class="label view">{parts::link(place, "quiet", shown)}
                <button class="plain" aria-label=label on:click=remove>"×"</button></span>
        }
    };
    let bulk = move || {
        let may = app.viewer().map(|viewer| viewer.may).unwrap_or_default();
        let ids = checked.get();
        if !ids.is_empty() {
            return bulk::of_selected(&ids, &may);
        }
        filter.get().map(|filter| bulk::actions(&filter, &may, now())).unwrap_or_default()
    };
    let button = move |action: Action| {
        let label = action.label.clone();
        let open =
            move |_| dialog::open(app, action.clone(), None, Box::new(move || checked.set(Vec::new())));
        view! { <button on:click=open>{label}</button> }
    };
    view! {
        <div class="views">
            {move || saved.get().into_iter().map(view).collect_view()}
            <Show when=move || can_be_saved.get()>
                <button class="plain" on:click=save>"Save this view"</button>
            </Show>
            <span class="space"></span>
            <Show when=move || !checked.with(Vec::is_empty)>
                <button class="plain" on:click=move |_| checked.set(Vec::new())>
                    {move || {
                        let count = checked.with(Vec::len);
                        let most = if count < Which::IDS_MAX { "" } else { ", the most" };
                        format!("Deselect {count}{most}")
                    }}
                </button>
            </Show>
            {move || bulk().into_iter().map(button).collect_view()}
        </div>
    }
}
