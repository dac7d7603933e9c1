//! What can be done to a run. Whoever may not do it does not see it.

use leptos::{ev, html, prelude::*};
use stepwell_dashboard_model::{pages, place::encoded};
use stepwell_protocol::{
    manifest::WorkflowView,
    program::WorkflowDescription,
    rest::{Restart, RunView, SignalReceipt, Status, StepName},
};

use crate::{api, dialog, parts, run::Page};

/// Something that can be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// End it.
    Cancel,
    /// Start nothing new.
    Pause,
    /// Go on.
    Resume,
    /// Go on from the step that failed.
    Retry,
    /// Go on from a step, or from the beginning.
    Restart(Option<StepName>),
    /// Send it a signal.
    Signal,
}

impl Act {
    fn label(&self) -> &'static str {
        match self {
            Self::Cancel => "Cancel",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
            Self::Retry => "Retry",
            Self::Restart(_) => "Restart",
            Self::Signal => "Signal",
        }
    }

    /// What happens then.
    fn explained(&self) -> String {
        match self {
            Self::Cancel => "The run ends, and nothing more is recorded for it. You cannot undo this.".into(),
            Self::Pause => "The run starts nothing new. A step in progress can end.".into(),
            Self::Resume => "The run continues where it was paused.".into(),
            Self::Retry => {
                "The run continues from the step that failed, which gets all its attempts again. Steps that \
                 succeeded do not run again."
                    .into()
            }
            Self::Restart(None) => "The run starts over: all its steps run again. Signals are kept.".into(),
            Self::Restart(Some(from)) => {
                format!(
                    "The run goes back to before '{}'. That step and all later ones run again.",
                    parts::word(&from.step)
                )
            }
            Self::Signal => "The signal is recorded, even if the run does not wait for it yet.".into(),
        }
    }

    /// Whether it makes sense in a status.
    fn fits(&self, status: Status) -> bool {
        match self {
            Self::Cancel | Self::Signal => !status.is_terminal(),
            Self::Pause => !status.is_terminal() && status != Status::Paused,
            Self::Resume => status == Status::Paused,
            Self::Retry => status == Status::Failed,
            Self::Restart(_) => status.is_terminal() || status == Status::Paused,
        }
    }
}

/// A button for it, if the run's status and the key allow it.
pub fn offer(page: Page, act: Act, label: &'static str) -> impl IntoView {
    let chosen = RwSignal::new(false);
    let fitting = act.clone();
    let is_shown = Memo::new(move |_| {
        page.run.with(|run| {
            run.as_ref().is_some_and(|run| fitting.fits(run.status) && page.app.may_write(&run.workflow))
        })
    });
    let act = StoredValue::new(act);
    view! {
        <Show when=move || is_shown.get()>
            <button on:click=move |_| chosen.set(true)>{label}</button>
            <Show when=move || chosen.get()>{ask(page, act.get_value(), chosen)}</Show>
        </Show>
    }
}

/// All buttons.
pub fn view(page: Page) -> impl IntoView {
    let all = [Act::Signal, Act::Retry, Act::Resume, Act::Pause, Act::Restart(None), Act::Cancel];
    view! {
        <div class="actions" role="group" aria-label="Actions">
            {all.map(|act| { let label = act.label(); offer(page, act, label) })}
            {start_again(page)}
        </div>
    }
}

/// Starts another run with the same input, or with what somebody makes of it.
fn start_again(page: Page) -> impl IntoView {
    let is_shown = Memo::new(move |_| {
        let may = page.run.with(|run| run.as_ref().is_some_and(|run| page.app.may_write(&run.workflow)));
        may && page.input.with(Option::is_some)
    });
    let open = move |_| {
        let name = page.run.with_untracked(|run| run.as_ref().map(|run| run.workflow.clone()));
        let (Some(name), Some(input)) = (name, page.input.get_untracked()) else { return };
        leptos::task::spawn_local(async move {
            let view = api::get::<WorkflowView>(&format!("/api/workflows/{}", encoded(&name))).await;
            // Without the app's answer, the input is asked for as JSON.
            let declared = view.map_or_else(|_| WorkflowDescription::named(&name), |view| view.declared);
            let Some(viewer) = page.app.viewer() else { return };
            if let Some(action) = pages::start(&declared, Some(&input), &viewer) {
                dialog::open(page.app, action, None, Box::new(|| ()));
            }
        });
    };
    view! { <Show when=move || is_shown.get()><button on:click=open>"Start again"</button></Show> }
}

fn ask(page: Page, act: Act, chosen: RwSignal<bool>) -> impl IntoView {
    let node = NodeRef::<html::Dialog>::new();
    let (name, body) = (NodeRef::<html::Input>::new(), NodeRef::<html::Textarea>::new());
    let (is_busy, wrong) = (RwSignal::new(false), RwSignal::new(None::<String>));
    Effect::new(move |_| {
        if let Some(node) = node.get()
            && !node.open()
        {
            let _ = node.show_modal();
        }
    });
    let wait = page.why.with_untracked(|why| {
        why.as_ref().and_then(|why| why.waits_for.iter().find(|wait| wait.kind == "wait").cloned())
    });
    let is_signal = act == Act::Signal;
    // One for the dialog: an attempt whose answer was lost may have arrived.
    let once = StoredValue::new(api::random_key());
    let (label, explained) = (act.label(), act.explained());
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if is_busy.get_untracked() {
            return;
        }
        is_busy.set(true);
        wrong.set(None);
        let (act, id, once) = (act.clone(), page.id.get_value(), once.get_value());
        let name = name.get_untracked().map(|field| field.value()).unwrap_or_default();
        let body = body.get_untracked().map(|field| field.value()).unwrap_or_default();
        leptos::task::spawn_local(async move {
            let answer = perform(page, &act, &id, name.trim(), body, &once).await;
            is_busy.try_set(false);
            match answer {
                Ok(()) => {
                    chosen.try_set(false);
                }
                Err(trouble) => {
                    let words = page.app.explain(&trouble);
                    wrong.try_set(Some(words));
                }
            }
        });
    };
    let fields = is_signal.then(|| {
        let expects = wait.as_ref().and_then(|wait| wait.expects.clone()).map(|it| format!("The run expects {}.", parts::word(&it)));
        view! {
            <label for="signal-name">"Name"</label>
            <input id="signal-name" type="text" required autocomplete="off" spellcheck="false" node_ref=name
                value=wait.map(|wait| wait.name).unwrap_or_default() />
            <label for="signal-body">"Payload, as JSON"</label>
            <textarea id="signal-body" rows="5" spellcheck="false" node_ref=body placeholder="null"></textarea>
            <p class="dim">{expects}</p>
        }
    });
    view! {
        <dialog node_ref=node aria-labelledby="act-title" on:close=move |_| { chosen.try_set(false); }>
            <form on:submit=submit>
                <h2 id="act-title">{label}" this run"</h2>
                <p>{explained}</p>
                {fields}
                <p class="error" role="alert">{move || wrong.get()}</p>
                <div class="buttons">
                    <button type="button" on:click=move |_| { if let Some(node) = node.get_untracked() { node.close(); } }>"Close"</button>
                    <button class="main" disabled=move || is_busy.get()>{label}</button>
                </div>
            </form>
        </dialog>
    }
}

async fn perform(
    page: Page,
    act: &Act,
    id: &str,
    name: &str,
    body: String,
    once: &str,
) -> Result<(), api::Trouble> {
    let path = |what: &str| format!("/api/executions/{}/{what}", encoded(id));
    let run: RunView = match act {
        Act::Cancel => api::post(&path("cancel"), None).await?,
        Act::Pause => api::post(&path("pause"), None).await?,
        Act::Resume => api::post(&path("resume"), None).await?,
        Act::Retry => api::post(&path("retry"), None).await?,
        Act::Restart(from) => {
            api::post_value(&path("restart"), &Restart { from: from.clone(), without_signal: None }).await?
        }
        Act::Signal => {
            let body = Some(body).filter(|body| !body.trim().is_empty());
            let _: SignalReceipt =
                api::post_once(&path(&format!("signals/{}", encoded(name))), body, once).await?;
            page.ask();
            return Ok(());
        }
    };
    page.show(run);
    page.ask();
    Ok(())
}
