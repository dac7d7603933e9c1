//! The dashboard: pages that show runs and steer them, in a browser.
//!
//! Owns elements, requests and the clock. What it shows where is decided by `stepwell-dashboard-model`. Text of callers
//! and programs reaches the page as text only: nothing here makes markup of a string.

mod actions;
mod api;
mod app;
mod dialog;
mod draw;
mod element;
mod keyboard;
mod list;
mod nav;
mod page;
mod parts;
mod records;
mod run;
mod runs;
mod sign_in;
mod socket;
mod views;
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
    Page(Place),
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
                {nav::header(app)}
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
            Place::Nowhere => View::Nowhere,
            other => View::Page(other.clone()),
        })
    });
    move || match view.get() {
        View::Runs => runs::view().into_any(),
        View::Run(id) => run::view(id).into_any(),
        View::Page(place) => page::view(place).into_any(),
        View::Nowhere => parts::notice(view! {
            <h1>"There is no such page"</h1>
            <p>{parts::link(Place::all_runs(), "", "Show all runs")}</p>
        })
        .into_any(),
    }
}
