//! The dialog of something that can be done: what happens then, what it asks for, and what came of it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use leptos::prelude::{Set as _, document, request_animation_frame, window};
use stepwell_dashboard_model::{
    form::{Action, Field, Kind, Then},
    place::Place,
};
use wasm_bindgen::{JsCast as _, prelude::Closure};
use web_sys::{Event, HtmlDialogElement, HtmlElement, HtmlInputElement};

use crate::{
    api::{self, Trouble},
    app::App,
    element::{Made, around, button, clear, el},
    parts::word,
};

/// Said of a key that is good for nothing, or not for this.
pub const NOT_THE_KEY: &str = "This is not the deployment's own key, STEPWELL_KEY.";

/// What hears of an event of this name.
type Listener = (&'static str, Closure<dyn FnMut(Event)>);

/// A dialog that is open. It is kept by its listeners, until it is closed.
struct Dialog {
    app: App,
    node: HtmlDialogElement,
    action: Action,
    /// The deployment's own key, if the page was made with it.
    key: Option<String>,
    /// One for the dialog: an attempt whose answer was lost may have arrived.
    once: String,
    is_busy: Cell<bool>,
    answer: RefCell<String>,
    after: Box<dyn Fn()>,
    listeners: RefCell<Vec<Listener>>,
}

/// Asks whether to do something, and what it takes, and does it. `after` is called when something was done and the page
/// stays.
pub fn open(app: App, action: Action, key: Option<String>, after: Box<dyn Fn()>) {
    let mut asked = el("div", "asked");
    for (index, field) in action.fields.iter().enumerate() {
        asked = asked.with_all(drawn(index, field));
    }
    let explained = (!action.explained.is_empty()).then(|| el("p", "").text(&word(&action.explained)));
    let confirm = el("button", if action.is_grave { "main grave" } else { "main" })
        .text(&word(action.confirm.unwrap_or(&action.label)));
    let form = el("form", "")
        .with_any(explained)
        .with(asked)
        .with(el("p", "error").attr("role", "alert"))
        .with(el("div", "buttons").with(button("", "Close", "close")).with(confirm));
    let node = el("dialog", "act")
        .attr("aria-labelledby", "action-title")
        .with(el("h2", "").attr("id", "action-title").text(&word(&action.title)))
        .with(form)
        .0;
    let Some(body) = document().body() else { return };
    let _ = body.append_child(&node);
    let node: HtmlDialogElement = node.unchecked_into();
    let _ = node.show_modal();
    focus_first(&node);
    let (once, is_busy) = (api::random_key(), Cell::new(false));
    let (answer, listeners) = (RefCell::default(), RefCell::default());
    let dialog = Rc::new(Dialog { app, node, action, key, once, is_busy, answer, after, listeners });
    dialog.listen("close", |dialog, _| dialog.closed());
    dialog.listen("cancel", |dialog, event| {
        if is_kept(&dialog.node) {
            event.prevent_default();
        }
    });
    dialog.listen("click", |dialog, event| dialog.click(event));
    dialog.listen("submit", |dialog, event| {
        event.prevent_default();
        dialog.perform();
    });
}

/// The attribute of a dialog that waits for something which is shown only once.
const KEPT: &str = "data-kept";

/// Whether a dialog must not be closed yet: what it waits for would be lost.
fn is_kept(node: &HtmlDialogElement) -> bool {
    node.has_attribute(KEPT)
}

/// Closes all: their page is gone.
pub fn close_all() {
    let Ok(found) = document().query_selector_all("dialog.act") else { return };
    for index in 0..found.length() {
        if let Some(node) = found.get(index).and_then(|node| node.dyn_into::<HtmlDialogElement>().ok())
            && !is_kept(&node)
        {
            node.close();
        }
    }
}

impl Dialog {
    fn listen(self: &Rc<Self>, event: &'static str, does: fn(&Rc<Self>, &Event)) {
        let dialog = self.clone();
        let closure = Closure::<dyn FnMut(Event)>::new(move |event: Event| does(&dialog, &event));
        let _ = self.node.add_event_listener_with_callback(event, closure.as_ref().unchecked_ref());
        self.listeners.borrow_mut().push((event, closure));
    }

    fn closed(self: &Rc<Self>) {
        self.node.remove();
        if !self.answer.borrow().is_empty() {
            (self.after)();
        }
        // Not within its own event: its listener would be gone while it runs.
        let dialog = self.clone();
        request_animation_frame(move || {
            for (event, closure) in dialog.listeners.borrow_mut().drain(..) {
                let _ =
                    dialog.node.remove_event_listener_with_callback(event, closure.as_ref().unchecked_ref());
            }
        });
    }

    fn click(&self, event: &Event) {
        let Some(pressed) = around(event, "button[data-do]") else { return };
        if pressed.get_attribute("data-do").as_deref() == Some("close") {
            if !is_kept(&self.node) {
                self.node.close();
            }
        } else {
            let _ = window().navigator().clipboard().write_text(&self.answer.borrow());
            pressed.set_text_content(Some("Copied"));
        }
    }

    fn value(&self, index: usize) -> String {
        let found = self.node.query_selector(&format!("#field-{index}")).ok().flatten();
        // A text area and a list of choices have a value by the same name.
        let Some(field) = found.map(wasm_bindgen::JsCast::unchecked_into::<HtmlInputElement>) else {
            return String::new();
        };
        if field.type_() == "checkbox" { field.checked().to_string() } else { field.value() }
    }

    fn perform(self: &Rc<Self>) {
        if self.is_busy.get() {
            return;
        }
        let values: Vec<_> = (0..self.action.fields.len()).map(|index| self.value(index)).collect();
        let request = match self.action.request(&values, &self.once) {
            Ok(request) => request,
            Err(words) => return self.say(&words),
        };
        self.say("");
        self.is_busy.set(true);
        if matches!(self.action.then, Then::Show(..)) {
            let _ = self.node.set_attribute(KEPT, "");
        }
        let dialog = self.clone();
        leptos::task::spawn_local(async move {
            let sent = api::send(&request, dialog.key.as_deref()).await;
            dialog.is_busy.set(false);
            let _ = dialog.node.remove_attribute(KEPT);
            match sent {
                Ok(text) => dialog.done(&text),
                Err(trouble) => dialog.say(&dialog.explain(&trouble)),
            }
        });
    }

    fn explain(&self, trouble: &Trouble) -> String {
        if self.key.is_some() && matches!(trouble.status(), 401 | 403) {
            self.app.root_key.set(None);
            return NOT_THE_KEY.into();
        }
        self.app.explain(trouble)
    }

    /// What follows when it is done.
    fn done(&self, text: &str) {
        let found = |names: &[&str]| {
            let value: serde_json::Value = serde_json::from_str(text).ok()?;
            let found = names.iter().try_fold(&value, |value, name| value.get(name))?;
            found.as_str().map(str::to_owned)
        };
        let is_open = self.node.open();
        if let Then::Show(names, words) = &self.action.then
            && let Some(shown) = found(names)
        {
            return self.show(&shown, words);
        }
        self.node.close();
        match &self.action.then {
            Then::Run if is_open => match found(&["id"]) {
                Some(id) => self.app.go(Place::of_run(id)),
                None => (self.after)(),
            },
            Then::Go(place) if is_open => {
                self.app.go(place.clone());
                (self.after)();
            }
            Then::Run | Then::Go(_) | Then::Show(..) | Then::Stay => (self.after)(),
        }
    }

    fn say(&self, words: &str) {
        if let Ok(Some(line)) = self.node.query_selector(".error") {
            line.set_text_content(Some(&word(words)));
        }
    }

    /// Shows a text of the answer, instead of the form.
    fn show(&self, text: &str, words: &str) {
        text.clone_into(&mut self.answer.borrow_mut());
        if let Ok(Some(form)) = self.node.query_selector("form") {
            clear(&form);
            let answer = el("div", "answer")
                .attr("role", "status")
                .with(el("p", "").text(words))
                .with(el("pre", "whole").attr("tabindex", "0").text(&word(text)));
            let buttons =
                el("div", "buttons").with(button("", "Copy", "copy")).with(button("main", "Close", "close"));
            let _ = Made(form).with(answer).with(buttons);
        }
    }
}

/// The first field has the focus; without one, the button that closes.
fn focus_first(node: &HtmlDialogElement) {
    let found = node.query_selector("input, textarea, select, button").ok().flatten();
    if let Some(element) = found.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// A field with its label and what people should know.
fn drawn(index: usize, field: &Field) -> Vec<Made> {
    let (id, hint_id) = (format!("field-{index}"), format!("hint-{index}"));
    let has_hint = !field.hint.is_empty();
    let label = format!("{}{}", word(&field.label), if field.is_required { " *" } else { "" });
    let hint = has_hint.then(|| el("p", "dim").attr("id", &hint_id).text(&word(&field.hint)));
    let described = |made: Made| {
        let made = made.attr("id", &id);
        if has_hint { made.attr("aria-describedby", &hint_id) } else { made }
    };
    let line = |kind: &str| {
        el("input", "")
            .attr("type", kind)
            .attr("autocomplete", "off")
            .attr("spellcheck", "false")
            .attr("value", &field.value)
    };
    if field.kind == Kind::Switch {
        let input =
            described(el("input", "").attr("type", "checkbox").flag("checked", field.value == "true"));
        let switch = el("label", "switch").with(input).text(&label);
        return [Some(switch), hint].into_iter().flatten().collect();
    }
    let is_required = field.is_required;
    let input = match &field.kind {
        Kind::Json | Kind::Lines => area(field, if field.kind == Kind::Json { 4 } else { 2 }),
        Kind::Free if field.value.contains('\n') => area(field, 2),
        Kind::Choice(options) => {
            let none = field.value.is_empty().then(|| el("option", "").attr("value", "").text("–"));
            let option = |(json, name): &(String, String)| {
                el("option", "").attr("value", json).flag("selected", *json == field.value).text(&word(name))
            };
            el("select", "")
                .flag("required", is_required)
                .with_any(none)
                .with_all(options.iter().map(option).collect())
        }
        Kind::Secret => line("password").flag("required", is_required),
        Kind::Number => line("text").attr("inputmode", "decimal").flag("required", is_required),
        // A text that may be empty may be so even where it has to be sent.
        Kind::Free => line("text"),
        Kind::Text | Kind::Span | Kind::Instant | Kind::Switch => line("text").flag("required", is_required),
    };
    let label = el("label", "").attr("for", &id).text(&label);
    [Some(label), Some(described(input)), hint].into_iter().flatten().collect()
}

/// A field of many lines.
fn area(field: &Field, least: usize) -> Made {
    let rows = field.value.lines().count().clamp(least, 12).to_string();
    el("textarea", "").attr("rows", &rows).attr("spellcheck", "false").text(&field.value)
}
