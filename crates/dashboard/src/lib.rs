//! The dashboard: pages that show runs and steer them, in a browser.
//!
//! Owns elements, requests and the clock. What it shows where is decided by `stepwell-dashboard-model`. Text of callers
//! and programs reaches the page as text only: nothing here makes markup of a string.

mod actions;
mod api;
mod app;
mod keyboard;
mod parts;
mod records;
mod run;
mod runs;
mod sign_in;
mod socket;
mod tables;
mod waterfall;

use leptos::prelude::*;
use stepwell_dashboard_model::place::Place;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::app::{App, Session};

/// Starts it.
#[wasm_bindgen(start)]
pub fn start() {
    leptos::mount::mount_to_body(shell);
}

/// Which view a place has. A view stays while its place changes.
#[derive(Clone, PartialEq)]
enum View {
    Runs,
    Run(String),
    Workflows,
    Schedules,
    Nowhere,
}

fn shell() -> impl IntoView {
    let app = App::new();
    provide_context(app);
    keyboard::listen(app);
    let is_in = Memo::new(move |_| app.session.with(|session| matches!(session, Session::In(_))));
    let is_known = Memo::new(move |_| app.session.with(|session| *session != Session::Unknown));
    view! {
        <Show when=move || is_known.get() fallback=|| view! { <p class="loading" role="status">"Loading…"</p> }>
            <Show when=move || is_in.get() fallback=sign_in::view>
                <a class="skip" href="#main">"Skip to content"</a>
                {header(app)}
                <main id="main">{content(app)}</main>
            </Show>
        </Show>
        {keyboard::help(app)}
    }
}

fn content(app: App) -> impl IntoView {
    let view = Memo::new(move |_| {
        app.place.with(|place| match place {
            Place::Runs { .. } => View::Runs,
            Place::Run { id, .. } => View::Run(id.clone()),
            Place::Workflows => View::Workflows,
            Place::Schedules => View::Schedules,
            Place::Nowhere => View::Nowhere,
        })
    });
    move || match view.get() {
        View::Runs => runs::view().into_any(),
        View::Run(id) => run::view(id).into_any(),
        View::Workflows => tables::workflows().into_any(),
        View::Schedules => tables::schedules().into_any(),
        View::Nowhere => parts::notice(view! {
            <h1>"There is no such page"</h1>
            <p>{parts::link(Place::Runs { filter: String::new() }, "", "Show all runs")}</p>
        })
        .into_any(),
    }
}

fn header(app: App) -> impl IntoView {
    let tab = move |place: Place, text: &'static str| {
        let (own, address) = (place.clone(), place.address());
        let is_here = Memo::new(move |_| {
            app.place.with(|shown| match (shown, &own) {
                (Place::Runs { .. } | Place::Run { .. }, Place::Runs { .. }) => true,
                (shown, own) => shown == own,
            })
        });
        let follow = move |click: leptos::ev::MouseEvent| {
            if !(click.ctrl_key() || click.meta_key() || click.shift_key() || click.button() != 0) {
                click.prevent_default();
                app.go(place.clone());
            }
        };
        let current = move || is_here.get().then_some("page");
        view! { <a href=address aria-current=current on:click=follow>{text}</a> }
    };
    let namespace = move || {
        app.session.with(|session| match session {
            Session::In(view) => (view.namespace.clone(), view.subject.clone()),
            Session::Unknown | Session::Out(_) => (String::new(), String::new()),
        })
    };
    let sign_out = move |_| {
        leptos::task::spawn_local(async move {
            // Whatever the engine says, the page shows nothing more.
            let _ = api::sign_out().await;
            app.session.set(Session::Out(None));
        });
    };
    view! {
        <header>
            <span class="brand"><i class="logo" aria-hidden="true"></i><b>"Stepwell"</b></span>
            <nav aria-label="Pages">
                {tab(Place::Runs { filter: String::new() }, "Runs")}
                {tab(Place::Workflows, "Workflows")}
                {tab(Place::Schedules, "Schedules")}
            </nav>
            <span class="link" role="status" data-link=move || app.link.get().as_str()>
                {move || app.link.get().as_str()}
            </span>
            <span class="space"></span>
            <span class="who" title=move || namespace().1>{move || namespace().0}</span>
            <button class="plain" title="Show times in UTC or in your own zone (u)" on:click=move |_| app.is_utc.update(|utc| *utc = !*utc)>
                {move || if app.is_utc.get() { "UTC" } else { "Local" }}
            </button>
            <button class="plain" title="Change the colours (t)" on:click=move |_| app.theme.update(|theme| *theme = theme.next())>
                {move || match app.theme.get() { app::Theme::System => "Auto", app::Theme::Light => "Light", app::Theme::Dark => "Dark" }}
            </button>
            <button class="plain keys" title="Keyboard (?)" aria-label="Keyboard" on:click=move |_| app.help.set(true)>"?"</button>
            <button class="plain" on:click=sign_out>"Sign out"</button>
        </header>
    }
}
