//! Signing in with a key. The key is sent once, for a session that the browser keeps as a cookie; the page forgets it.

use leptos::{ev, html, prelude::*};

use crate::{
    api::{self, Trouble},
    app::{App, Session},
};

/// The key was good, but the next request came without the session.
const NOT_KEPT: &str = "The key is valid, but your browser did not keep the session's cookie. Allow cookies for this \
                        site, and open it over https or on localhost.";

/// The form.
pub fn view() -> impl IntoView {
    let app = App::here();
    let field = NodeRef::<html::Input>::new();
    let (is_busy, wrong) = (RwSignal::new(false), RwSignal::new(None::<String>));
    Effect::new(move |_| {
        if let Some(field) = field.get() {
            let _ = field.focus();
        }
    });
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let Some(field) = field.get_untracked() else { return };
        let key = field.value().trim().to_owned();
        if key.is_empty() || is_busy.get_untracked() {
            return;
        }
        is_busy.set(true);
        wrong.set(None);
        leptos::task::spawn_local(async move {
            let answer = api::sign_in(&key).await;
            drop(key);
            is_busy.set(false);
            match answer {
                Ok(()) => {
                    field.set_value("");
                    app.ask_session(Some(NOT_KEPT));
                }
                Err(Trouble::SignedOut) => {
                    wrong.set(Some("This key is not valid here. Check that all of it was copied.".into()));
                }
                Err(trouble) => wrong.set(Some(trouble.words())),
            }
        });
    };
    let told = move || {
        wrong.get().or_else(|| {
            app.session.with(|session| match session {
                Session::Out(told) => told.clone(),
                Session::Unknown | Session::In(_) => None,
            })
        })
    };
    view! {
        <main id="main" class="sign-in">
            <form on:submit=submit>
                <h1><i class="logo" aria-hidden="true"></i>"Stepwell"</h1>
                <label for="key">"API key"</label>
                <input id="key" type="password" autocomplete="off" spellcheck="false" node_ref=field aria-describedby="told" />
                <p id="told" class="error" role="alert">{told}</p>
                <button class="main" disabled=move || is_busy.get()>"Sign in"</button>
                <p class="dim">
                    <code>"stepwell dev"</code>" prints the key of a project on your machine. For a deployment, "
                    <code>"stepwell keys create NAME --scope read"</code>" creates one."
                </p>
            </form>
        </main>
    }
}
