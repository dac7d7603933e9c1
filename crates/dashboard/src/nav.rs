//! The header: pages in groups, the state of the stream, and what people choose.

use leptos::{ev, html, prelude::*};
use stepwell_dashboard_model::{
    nav::{self, Entry, Group},
    place::Place,
};
use wasm_bindgen::JsCast as _;

use crate::{
    api,
    app::{App, Session, Theme},
    parts,
};

/// What is open of the menus.
#[derive(Clone, Copy)]
struct Menus {
    /// All of them, on a narrow screen.
    is_open: RwSignal<bool>,
    /// One group.
    group: RwSignal<Option<&'static str>>,
}

impl Menus {
    fn close(self) {
        self.is_open.set(false);
        self.group.set(None);
    }
}

/// The header.
pub fn header(app: App) -> impl IntoView {
    let menus = Menus { is_open: RwSignal::new(false), group: RwSignal::new(None) };
    let node = NodeRef::<html::Nav>::new();
    Effect::new(move |_| {
        app.place.track();
        menus.close();
    });
    let outside = window_event_listener(ev::click, move |click| {
        let target = click.target().and_then(|target| target.dyn_into::<web_sys::Node>().ok());
        if let Some(nav) = node.get_untracked()
            && !nav.contains(target.as_ref())
        {
            menus.close();
        }
    });
    on_cleanup(move || outside.remove());
    let escape = move |event: ev::KeyboardEvent| {
        if event.key() == "Escape" {
            menus.close();
        }
    };
    let groups = Memo::new(move |_| app.groups());
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
            <nav aria-label="Pages" node_ref=node on:keydown=escape data-open=move || menus.is_open.get().to_string()>
                <button class="plain burger" aria-expanded=move || menus.is_open.get().to_string()
                    on:click=move |_| menus.is_open.update(|is_open| *is_open = !*is_open)>
                    {move || app.place.with(|place| place.list().title())}" ▾"
                </button>
                <div class="pages">{move || groups.get().into_iter().map(|group| drawn(app, menus, group)).collect_view()}</div>
            </nav>
            <span class="link" role="status" data-link=move || app.link.get().as_str()>
                {move || app.link.get().as_str()}
            </span>
            <span class="space"></span>
            <span class="who" title=move || parts::word(&namespace().1)>{move || parts::word(&namespace().0)}</span>
            <button class="plain" title="Show times in UTC or in your own zone (u)" on:click=move |_| app.is_utc.update(|utc| *utc = !*utc)>
                {move || if app.is_utc.get() { "UTC" } else { "Local" }}
            </button>
            <button class="plain" title="Change the colours (t)" on:click=move |_| app.theme.update(|theme| *theme = theme.next())>
                {move || match app.theme.get() { Theme::System => "Auto", Theme::Light => "Light", Theme::Dark => "Dark" }}
            </button>
            <button class="plain keys" title="Keyboard (?)" aria-label="Keyboard" on:click=move |_| app.help.set(true)>"?"</button>
            <button class="plain" on:click=sign_out>"Sign out"</button>
        </header>
    }
}

fn drawn(app: App, menus: Menus, Group { name, entries }: Group) -> AnyView {
    let places: Vec<Place> = entries.iter().map(|entry| entry.place.clone()).collect();
    let links = entries.into_iter().map(|entry| tab(app, entry)).collect_view();
    if name.is_empty() {
        return links.into_any();
    }
    let is_here = move || app.place.with(|place| places.contains(&place.list())).then_some("true");
    let is_open = move || menus.group.get() == Some(name);
    let toggle =
        move |_| menus.group.update(|open| *open = if *open == Some(name) { None } else { Some(name) });
    view! {
        <div class="group">
            <button class="plain" aria-expanded=move || is_open().to_string() data-here=is_here on:click=toggle>{name}" ▾"</button>
            <span class="heading" aria-hidden="true">{name}</span>
            <div class="menu" data-open=move || is_open().to_string()>{links}</div>
        </div>
    }
    .into_any()
}

fn tab(app: App, Entry { name, place, .. }: Entry) -> impl IntoView {
    let address = place.address();
    let own = place.clone();
    let current = move || app.place.with(|shown| shown.list() == own).then_some("page");
    let follow = move |click: ev::MouseEvent| {
        if !(click.ctrl_key() || click.meta_key() || click.shift_key() || click.button() != 0) {
            click.prevent_default();
            app.go(place.clone());
        }
    };
    view! { <a href=address aria-current=current on:click=follow>{name}</a> }
}

/// The pages that can be reached, with their keys.
pub fn keys(app: App) -> Vec<(char, &'static str)> {
    app.groups().into_iter().flat_map(|group| group.entries).map(|entry| (entry.key, entry.name)).collect()
}

/// The page that a key leads to.
pub fn by_key(app: App, key: &str) -> Option<Place> {
    nav::by_key(&app.groups(), key)
}
