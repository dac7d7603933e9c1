//! Keys that work everywhere, and the list of them.

use leptos::{ev, html, prelude::*};
use stepwell_dashboard_model::place::Place;
use wasm_bindgen::JsCast as _;

use crate::{
    app::{App, now},
    nav,
};

/// What each key does.
const KEYS: [(&str, &str); 11] = [
    ("/", "filter runs"),
    ("j / k", "next and previous row"),
    ("x", "select the row for an action"),
    ("Enter", "open the row"),
    ("b", "back to the runs"),
    ("a", "actions of the page"),
    ("u", "times in UTC or in your own zone"),
    ("t", "colours: system, light, dark"),
    ("r", "refresh the page"),
    ("?", "this list"),
    ("Esc", "close"),
];

/// A key that was pressed outside of a field, without a modifier.
pub fn plain_key(event: &ev::KeyboardEvent) -> Option<String> {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let is_typing = target.is_some_and(|element| {
        let is_field = ["INPUT", "TEXTAREA", "SELECT"].contains(&element.tag_name().as_str());
        is_field && element.get_attribute("type").as_deref() != Some("checkbox")
            || element.closest("dialog").ok().flatten().is_some()
    });
    let is_plain = !(event.ctrl_key() || event.meta_key() || event.alt_key() || is_typing);
    is_plain.then(|| event.key())
}

/// How long a `g` waits for the key of a page.
const PAUSE_MS: u64 = 1_500;

/// Listens for the keys of all views.
pub fn listen(app: App) {
    let went_ms = StoredValue::new(0);
    let _ = window_event_listener(ev::keydown, move |event| {
        let Some(key) = plain_key(&event) else { return };
        let is_after_g = now().as_millis() < went_ms.get_value() + PAUSE_MS;
        went_ms.set_value(if key == "g" { now().as_millis() } else { 0 });
        if is_after_g && let Some(place) = nav::by_key(app, &key) {
            event.prevent_default();
            return app.go(place);
        }
        match key.as_str() {
            "?" => app.help.set(true),
            "t" => app.theme.update(|theme| *theme = theme.next()),
            "u" => app.is_utc.update(|utc| *utc = !*utc),
            "b" => app.go(Place::all_runs()),
            "/" => {
                if !focus("#filter") {
                    app.go(Place::all_runs());
                    request_animation_frame(|| {
                        focus("#filter");
                    });
                }
            }
            "a" => {
                focus(".actions button");
            }
            "r" => {
                press(".refresh");
            }
            // The list of runs has rows of its own.
            "j" => step(1),
            "k" => step(-1),
            _ => return,
        }
        event.prevent_default();
    });
}

fn focus(selector: &str) -> bool {
    let found = document().query_selector(selector).ok().flatten();
    let element = found.and_then(|element| element.dyn_into::<web_sys::HtmlElement>().ok());
    element.is_some_and(|element| element.focus().is_ok())
}

fn press(selector: &str) {
    let found = document().query_selector(selector).ok().flatten();
    if let Some(button) = found.and_then(|element| element.dyn_into::<web_sys::HtmlElement>().ok()) {
        button.click();
    }
}

/// Goes to the link of the next row of the page's tables, or of the one before.
fn step(by: i32) {
    let Ok(links) = document().query_selector_all(".page tbody th a") else { return };
    let links: Vec<web_sys::HtmlElement> =
        (0..links.length()).filter_map(|index| links.get(index)?.dyn_into().ok()).collect();
    let active = document().active_element();
    let now =
        links.iter().position(|link| active.as_ref().is_some_and(|active| link.is_same_node(Some(active))));
    let next = match (now, by > 0) {
        (None, _) => 0,
        (Some(at), true) => (at + 1).min(links.len().saturating_sub(1)),
        (Some(at), false) => at.saturating_sub(1),
    };
    if let Some(link) = links.get(next) {
        let _ = link.focus();
    }
}

/// The list of keys.
pub fn help(app: App) -> impl IntoView {
    let dialog = NodeRef::<html::Dialog>::new();
    Effect::new(move |_| {
        let Some(dialog) = dialog.get() else { return };
        if app.help.get() && !dialog.open() {
            let _ = dialog.show_modal();
        }
    });
    let pages = move || {
        let page = |(key, name)| view! { <dt><kbd>"g"</kbd>" "<kbd>{key}</kbd></dt><dd>{name}</dd> };
        nav::keys(app).into_iter().map(page).collect_view()
    };
    view! {
        <dialog node_ref=dialog aria-labelledby="help-title" on:close=move |_| app.help.set(false)>
            <h2 id="help-title">"Keyboard"</h2>
            <dl class="keys">
                {KEYS.map(|(key, does)| view! { <dt><kbd>{key}</kbd></dt><dd>{does}</dd> })}
            </dl>
            <h2>"Pages"</h2>
            <dl class="keys">{pages}</dl>
            <div class="buttons">
                <button on:click=move |_| { if let Some(dialog) = dialog.get_untracked() { dialog.close(); } }>"Close"</button>
            </div>
        </dialog>
    }
}
