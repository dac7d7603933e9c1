//! What all views share: where the page is, who is signed in, how times and colours are shown.

use std::time::Duration;

use leptos::{leptos_dom::helpers::set_interval, prelude::*};
use stepwell_dashboard_model::{following::Link, may::May, nav, pages::Viewer, place::Place, when};
use stepwell_protocol::{
    Timestamp,
    access::{Scope, SessionView},
};
use wasm_bindgen::JsValue;

use crate::api::{self, Trouble};

/// Who is signed in.
#[derive(Clone, Debug, PartialEq)]
pub enum Session {
    /// Nobody knows yet.
    Unknown,
    /// Nobody; with what people are told about that.
    Out(Option<String>),
    /// This one.
    In(SessionView),
}

/// Which colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Those of the system.
    System,
    /// Light ones.
    Light,
    /// Dark ones.
    Dark,
}

impl Theme {
    fn of(word: &str) -> Self {
        match word {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::System => Self::Light,
            Self::Light => Self::Dark,
            Self::Dark => Self::System,
        }
    }
}

/// What all views share.
#[derive(Clone, Copy)]
pub struct App {
    /// Where the page is.
    pub place: RwSignal<Place>,
    /// Who is signed in.
    pub session: RwSignal<Session>,
    /// The time, by the second.
    pub now: RwSignal<Timestamp>,
    /// Whether times are shown in UTC.
    pub is_utc: RwSignal<bool>,
    /// The colours.
    pub theme: RwSignal<Theme>,
    /// How the stream of the view stands.
    pub link: RwSignal<Link>,
    /// Whether the list of keys is open.
    pub help: RwSignal<bool>,
    /// The deployment's own key, as somebody has typed it for the pages of namespaces. It is nowhere else, and gone when
    /// they leave these pages.
    pub root_key: RwSignal<Option<String>>,
}

/// The time.
pub fn now() -> Timestamp {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a browser's clock is after 1970"
    )]
    Timestamp::from_millis(js_sys::Date::now() as u64)
}

impl App {
    /// As the browser has it.
    pub fn new() -> Self {
        let app = Self {
            place: RwSignal::new(here()),
            session: RwSignal::new(Session::Unknown),
            now: RwSignal::new(now()),
            is_utc: RwSignal::new(stored("zone").as_deref() == Some("utc")),
            theme: RwSignal::new(Theme::of(&stored("theme").unwrap_or_default())),
            link: RwSignal::new(Link::Connecting),
            help: RwSignal::new(false),
            root_key: RwSignal::new(None),
        };
        set_interval(move || app.now.set(now()), Duration::from_secs(1));
        let _ = window_event_listener_untyped("popstate", move |_| app.place.set(here()));
        Effect::new(move |_| {
            let theme = app.theme.get();
            if let Some(root) = document().document_element() {
                let _ = root.set_attribute("data-theme", theme.as_str());
            }
            store("theme", theme.as_str());
        });
        Effect::new(move |_| store("zone", if app.is_utc.get() { "utc" } else { "local" }));
        Effect::new(move |_| {
            let is_in = app.session.with(|session| matches!(session, Session::In(_)));
            if !is_in || app.place.with(Place::list) != Place::Namespaces {
                app.root_key.set(None);
            }
        });
        Effect::new(move |_| document().set_title(&app.place.with(title)));
        app.ask_session(None);
        app
    }

    /// The one that is around a view.
    pub fn here() -> Self {
        use_context().expect("every view is within the app")
    }

    /// Shows something else.
    pub fn go(self, place: Place) {
        if self.place.with_untracked(|shown| *shown == place) {
            return;
        }
        if let Ok(history) = window().history() {
            let _ = history.push_state_with_url(&JsValue::NULL, "", Some(&place.address()));
        }
        self.place.set(place);
    }

    /// Shows something of the same view, without another entry in the browser's history.
    pub fn stay(self, place: Place) {
        if let Ok(history) = window().history() {
            let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&place.address()));
        }
        self.place.set(place);
    }

    /// Asks who is signed in; if nobody is, says this.
    pub fn ask_session(self, otherwise: Option<&'static str>) {
        leptos::task::spawn_local(async move {
            self.session.set(match api::get("/api/session").await {
                Ok(view) => Session::In(view),
                Err(Trouble::SignedOut) => Session::Out(otherwise.map(str::to_owned)),
                Err(trouble) => Session::Out(Some(trouble.words())),
            });
        });
    }

    /// The session is over, whoever ended it.
    pub fn signed_out(self) {
        if self.session.try_with_untracked(|session| matches!(session, Session::In(_))) == Some(true) {
            self.session.set(Session::Out(Some(Trouble::SignedOut.words())));
        }
    }

    /// Says what went wrong; a session that is over ends the view.
    pub fn explain(self, trouble: &Trouble) -> String {
        if *trouble == Trouble::SignedOut {
            self.signed_out();
        }
        trouble.words()
    }

    /// Whether runs of a workflow may be changed.
    pub fn may_write(self, workflow: &str) -> bool {
        self.session.with(|session| match session {
            Session::In(view) => view.scopes.iter().any(|permission| {
                permission.scope >= Scope::Write
                    && permission.workflow.as_ref().is_none_or(|only| only == workflow)
            }),
            Session::Unknown | Session::Out(_) => false,
        })
    }

    /// What may be done.
    fn may(self) -> May {
        self.session.with(|session| match session {
            Session::In(view) => May::of(view),
            Session::Unknown | Session::Out(_) => May::default(),
        })
    }

    /// The pages that may be seen, in groups.
    pub fn groups(self) -> Vec<nav::Group> {
        let is_root = self.session.with(|session| match session {
            Session::In(view) => view.subject == "root",
            Session::Unknown | Session::Out(_) => false,
        });
        nav::groups(&self.may(), is_root)
    }

    /// Who looks; nobody, if the view is gone.
    pub fn viewer(self) -> Option<Viewer> {
        let may = self.session.try_with_untracked(|session| match session {
            Session::In(view) => May::of(view),
            Session::Unknown | Session::Out(_) => May::default(),
        })?;
        Some(Viewer { may, now: now() })
    }

    /// What was saved of a kind in this namespace.
    pub fn remembered(self, kind: &str) -> Vec<String> {
        let text = stored(&self.remembered_as(kind)).unwrap_or_default();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// By what they are remembered.
    pub fn remembered_as(self, kind: &str) -> String {
        let namespace = self.session.try_with_untracked(|session| match session {
            Session::In(view) => view.namespace.clone(),
            Session::Unknown | Session::Out(_) => String::new(),
        });
        format!("{kind}.{}", namespace.unwrap_or_default())
    }

    /// The workflows that may be seen, if not all.
    pub fn only_workflows(self) -> Option<Vec<String>> {
        self.session.with_untracked(|session| match session {
            Session::In(view) => view.scopes.iter().map(|permission| permission.workflow.clone()).collect(),
            Session::Unknown | Session::Out(_) => None,
        })
    }

    /// An instant in the chosen zone.
    pub fn absolute(self, at: Timestamp) -> String {
        if self.is_utc.get() {
            return format!("{} UTC", when::absolute(at, 0));
        }
        #[expect(clippy::cast_precision_loss, reason = "times have less than 2^52 milliseconds")]
        let date = js_sys::Date::new(&JsValue::from_f64(at.as_millis() as f64));
        #[expect(clippy::cast_possible_truncation, reason = "minutes of a day")]
        let behind = date.get_timezone_offset() as i32;
        when::absolute(at, behind)
    }
}

fn here() -> Place {
    let location = window().location();
    Place::of(&location.pathname().unwrap_or_default(), &location.search().unwrap_or_default())
}

fn title(place: &Place) -> String {
    let title = place.title();
    if title.is_empty() { "Stepwell".into() } else { format!("{title} · Stepwell") }
}

/// What people have chosen is kept in the browser; keys never are.
pub fn stored(name: &str) -> Option<String> {
    window().local_storage().ok().flatten()?.get_item(&format!("stepwell.{name}")).ok().flatten()
}

/// Keeps it.
pub fn store(name: &str, value: &str) {
    if let Ok(Some(storage)) = window().local_storage() {
        // A browser that keeps nothing asks again.
        let _ = storage.set_item(&format!("stepwell.{name}"), value);
    }
}
