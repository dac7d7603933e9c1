//! Keys that work everywhere, and the list of them.

use leptos::{ev, html, prelude::*};
use stepwell_dashboard_model::place::Place;
use wasm_bindgen::JsCast as _;

use crate::app::App;

/// What each key does.
const KEYS: [(&str, &str); 9] = [
    ("/", "filter runs"),
    ("j / k", "next and previous row"),
    ("Enter", "open the row"),
    ("b", "back to the runs"),
    ("a", "actions of the run"),
    ("u", "times in UTC or in your own zone"),
    ("t", "colours: system, light, dark"),
    ("?", "this list"),
    ("Esc", "close"),
];

/// A key that was pressed outside of a field, without a modifier.
pub fn plain_key(event: &ev::KeyboardEvent) -> Option<String> {
    let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
    let is_typing = target.is_some_and(|element| {
        ["INPUT", "TEXTAREA", "SELECT"].contains(&element.tag_name().as_str())
            || element.closest("dialog").ok().flatten().is_some()
    });
    let is_plain = !(event.ctrl_key() || event.meta_key() || event.alt_key() || is_typing);
    is_plain.then(|| event.key())
}

/// Listens for the keys of all views.
pub fn listen(app: App) {
    let _ = window_event_listener(ev::keydown, move |event| {
        let Some(key) = plain_key(&event) else { return };
        match key.as_str() {
            "?" => app.help.set(true),
            "t" => app.theme.update(|theme| *theme = theme.next()),
            "u" => app.is_utc.update(|utc| *utc = !*utc),
            "b" => app.go(Place::Runs { filter: String::new() }),
            "/" => {
                if !focus("#filter") {
                    app.go(Place::Runs { filter: String::new() });
                    request_animation_frame(|| {
                        focus("#filter");
                    });
                }
            }
            "a" => {
                focus(".actions button");
            }
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

/// The list of keys.
pub fn help(app: App) -> impl IntoView {
    let dialog = NodeRef::<html::Dialog>::new();
    Effect::new(move |_| {
        let Some(dialog) = dialog.get() else { return };
        if app.help.get() && !dialog.open() {
            let _ = dialog.show_modal();
        }
    });
    view! {
        <dialog node_ref=dialog aria-labelledby="help-title" on:close=move |_| app.help.set(false)>
            <h2 id="help-title">"Keyboard"</h2>
            <dl class="keys">
                {KEYS.map(|(key, does)| view! { <dt><kbd>{key}</kbd></dt><dd>{does}</dd> })}
            </dl>
            <div class="buttons">
                <button on:click=move |_| { if let Some(dialog) = dialog.get_untracked() { dialog.close(); } }>"Close"</button>
            </div>
        </dialog>
    }
}
