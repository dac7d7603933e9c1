//! A page of tables, facts and actions, as the model makes it of the API's answers: asks for them, has them drawn, and
//! asks again.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use leptos::{ev, html, leptos_dom::helpers::set_interval_with_handle, prelude::*};
use stepwell_dashboard_model::{
    book::{Book, Refused, Stop},
    following::Link,
    form::Action,
    may::May,
    pages,
    place::Place,
    sheet::{Body, Sheet},
};
use wasm_bindgen::JsCast as _;
use web_sys::{Element, HtmlInputElement, VisibilityState};

use crate::{
    api::{self, Trouble},
    app::{App, now},
    dialog::{self, NOT_THE_KEY},
    draw::{self, Drawn},
    element::{around, button, clear, el},
    parts,
};

/// How often it is looked whether the page is to be asked for again.
const LOOK_MS: u64 = 1_000;

/// The shortest time between two times that it is.
const POLL_MS_MIN: u64 = 10_000;

/// For each answer that it is made of, so much time.
const POLL_MS_EACH: u64 = 1_000;

/// Answers can show what else is to be asked for, so many times.
const ROUNDS_MAX: u32 = 6;

/// A page that is shown.
#[derive(Clone)]
pub struct Page(Rc<Inner>);

struct Inner {
    app: App,
    place: Place,
    root: RefCell<Option<Element>>,
    drawn: RefCell<Drawn>,
    is_asking: Cell<bool>,
    /// Whether something was done since it was asked for.
    is_due: Cell<bool>,
    next_ms: Cell<u64>,
    is_gone: Cell<bool>,
}

/// The view.
pub fn view(place: Place) -> impl IntoView {
    let app = App::here();
    app.link.set(Link::Over);
    let page = Page(Rc::new(Inner {
        app,
        place,
        root: RefCell::default(),
        drawn: RefCell::default(),
        is_asking: Cell::new(false),
        is_due: Cell::new(false),
        next_ms: Cell::new(0),
        is_gone: Cell::new(false),
    }));
    let node = NodeRef::<html::Section>::new();
    let kept = StoredValue::new_local(page);
    Effect::new(move |_| {
        let (Some(root), Some(page)) = (node.get(), kept.try_get_value()) else { return };
        *page.0.root.borrow_mut() = Some(root.unchecked_into());
        page.say_missing(None);
        page.ask();
    });
    // Only texts of times move with the clock.
    Effect::new(move |_| {
        app.now.track();
        app.is_utc.track();
        if let Some(page) = kept.try_get_value() {
            page.tick(app);
        }
    });
    if let Ok(handle) = set_interval_with_handle(
        move || {
            if let Some(page) = kept.try_get_value() {
                page.poll();
            }
        },
        Duration::from_millis(LOOK_MS),
    ) {
        on_cleanup(move || handle.clear());
    }
    on_cleanup(move || {
        if let Some(page) = kept.try_get_value() {
            page.0.is_gone.set(true);
            dialog::close_all();
        }
    });
    let click = move |event: ev::MouseEvent| kept.with_value(|page| page.click(&event));
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        kept.with_value(|page| page.submit(&event));
    };
    view! { <section class="page" node_ref=node on:click=click on:submit=submit></section> }
}

impl Page {
    fn root(&self) -> Option<Element> {
        self.0.root.borrow().clone()
    }

    /// Asks for it again; once more, if something was done meanwhile.
    fn ask(&self) {
        if self.0.is_gone.get() {
            return;
        }
        if self.0.is_asking.replace(true) {
            return self.0.is_due.set(true);
        }
        let page = self.clone();
        leptos::task::spawn_local(async move {
            loop {
                page.0.is_due.set(false);
                let began = now().as_millis();
                let count = page.make().await;
                page.0.next_ms.set(began + POLL_MS_MIN.max(count * POLL_MS_EACH));
                if page.0.is_gone.get() || !page.0.is_due.get() {
                    break;
                }
            }
            page.0.is_asking.set(false);
        });
    }

    /// Asks again if it is time, somebody looks, and nobody is about to do something.
    fn poll(&self) {
        let is_seen = document().visibility_state() == VisibilityState::Visible;
        let is_idle = document().query_selector("dialog[open]").is_ok_and(|found| found.is_none());
        if is_seen && is_idle && now().as_millis() >= self.0.next_ms.get() {
            self.ask();
        }
    }

    /// Makes the page of fresh answers, and says how many it took.
    async fn make(&self) -> u64 {
        let app = self.0.app;
        let mut book = Book::default();
        let mut count = 0;
        for _ in 0..ROUNDS_MAX {
            let Some(mut viewer) = app.viewer() else { break };
            let key = self.key();
            if key.is_some() {
                viewer.may = May::root();
            }
            let made = pages::sheet(&self.0.place, &viewer, &mut book);
            let wanted = book.take_wanted();
            if wanted.is_empty() {
                self.show(made);
                break;
            }
            count += wanted.len() as u64;
            for (path, answer) in api::get_all(wanted, key.as_deref()).await {
                if self.0.is_gone.get() {
                    return count;
                }
                if let Err(trouble) = &answer
                    && self.is_over(trouble)
                {
                    return count;
                }
                let refused = |trouble: Trouble| Refused { status: trouble.status(), words: trouble.words() };
                book.put(path, answer.map_err(refused));
            }
        }
        count
    }

    /// Whether nothing more can be asked: the session has ended, or the key that somebody typed is not the one.
    fn is_over(&self, trouble: &Trouble) -> bool {
        if self.key().is_some() && matches!(trouble.status(), 401 | 403) {
            self.0.app.root_key.set(None);
            self.say(NOT_THE_KEY);
            return true;
        }
        if *trouble == Trouble::SignedOut {
            self.0.app.signed_out();
            return true;
        }
        false
    }

    /// The deployment's own key, where it is needed and somebody has typed it.
    fn key(&self) -> Option<String> {
        let is_asked = self.0.place.list() == Place::Namespaces;
        self.0.app.root_key.try_get_untracked().flatten().filter(|_| is_asked)
    }

    fn show(&self, made: Result<Sheet, Stop>) {
        let Some(root) = self.root().filter(|_| !self.0.is_gone.get()) else { return };
        match made {
            Ok(sheet) => {
                self.0.drawn.borrow_mut().draw(self.0.app, &root, sheet);
                self.say("");
            }
            Err(Stop::Refused(refused)) if self.0.drawn.borrow().sheet.is_none() => {
                self.say_missing(Some(&refused));
            }
            Err(Stop::Refused(refused)) => self.say(&refused.words),
            // A page that is not done after so many rounds stays as it was.
            Err(Stop::Asking) => {}
        }
    }

    /// Says what is wrong above a page that is shown.
    fn say(&self, words: &str) {
        let line = self.root().and_then(|root| root.query_selector(".top > .error").ok().flatten());
        if let Some(line) = line {
            line.set_text_content(Some(&parts::word(words)));
        }
    }

    /// Says that there is no page yet, or why there is none.
    fn say_missing(&self, refused: Option<&Refused>) {
        let Some(root) = self.root() else { return };
        let list = self.0.place.list();
        clear(&root);
        let told = match refused {
            None => el("p", "loading").attr("role", "status").text("Loading…"),
            Some(Refused { status: 404, words }) => el("div", "notice")
                .attr("role", "status")
                .with(el("h1", "").text("There is no such page"))
                .with(el("p", "").text(&parts::word(words)))
                .with(
                    el("a", "")
                        .attr("href", &list.address())
                        .text(&format!("Show all {}", list.title().to_ascii_lowercase())),
                ),
            Some(Refused { words, .. }) => el("div", "notice")
                .attr("role", "alert")
                .with(el("h1", "").text(&parts::word(&self.0.place.title())))
                .with(el("p", "").text(&parts::word(words)))
                .with(button("", "Try again", "refresh")),
        };
        let _ = root.append_child(&told.0);
    }

    fn tick(&self, app: App) {
        let Some(root) = self.root() else { return };
        let Ok(times) = root.query_selector_all("time") else { return };
        for index in 0..times.length() {
            if let Some(time) = times.get(index).and_then(|node| node.dyn_into::<Element>().ok()) {
                draw::tell(app, &time);
            }
        }
    }

    /// Follows links, and does what buttons are for.
    fn click(&self, event: &ev::MouseEvent) {
        let is_plain = !(event.ctrl_key() || event.meta_key() || event.shift_key() || event.button() != 0);
        if let Some(link) = around(event, "a[href]") {
            let address = link.get_attribute("href").unwrap_or_default();
            // With a modifier, the browser opens another tab.
            if is_plain {
                event.prevent_default();
                let (path, query) = address.split_once('?').unwrap_or((&address, ""));
                self.0.app.go(Place::of(path, query));
            }
            return;
        }
        let Some(pressed) = around(event, "button[data-do]") else { return };
        let at = pressed.get_attribute("data-at").unwrap_or_default();
        match pressed.get_attribute("data-do").as_deref() {
            Some("refresh") => self.ask(),
            Some("act") => {
                let action = self.0.drawn.borrow().action(&at);
                if let Some(action) = action {
                    self.begin(action);
                }
            }
            Some(what @ ("copy" | "save")) => {
                if let Some(Body::Payload(text, name)) = self.0.drawn.borrow().body(&at) {
                    if what == "save" {
                        parts::save(name, text);
                    } else {
                        let _ = window().navigator().clipboard().write_text(text);
                        pressed.set_text_content(Some("Copied"));
                    }
                }
            }
            Some(_) | None => {}
        }
    }

    fn submit(&self, event: &ev::SubmitEvent) {
        let Some(form) = around(event, "form") else { return };
        let input = form.query_selector("input").ok().flatten();
        let text = input.map(|input| input.unchecked_into::<HtmlInputElement>().value()).unwrap_or_default();
        if form.class_list().contains("unlock") {
            self.0.app.root_key.set(Some(text.trim().to_owned()).filter(|key| !key.is_empty()));
            return self.ask();
        }
        let at = form.get_attribute("data-at").unwrap_or_default();
        let place = match self.0.drawn.borrow().body(&at) {
            Some(Body::Find(find)) => find.of.place(&text),
            _ => None,
        };
        if let Some(place) = place {
            self.0.app.go(place);
        }
    }

    /// Asks whether to do it, and what it takes.
    fn begin(&self, action: Action) {
        let page = self.clone();
        dialog::open(self.0.app, action, self.key(), Box::new(move || page.ask()));
    }
}
