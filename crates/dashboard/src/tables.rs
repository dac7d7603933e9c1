//! Pages that are one table: workflows and schedules, each with links to its runs.

use leptos::prelude::*;
use serde::de::DeserializeOwned;
use stepwell_dashboard_model::{filter::Filter, following::Link, place::Place};
use stepwell_protocol::{
    rest::{Metrics, Status, WorkflowList},
    schedule::ScheduleList,
};

use crate::{
    api,
    app::App,
    parts::{self, word},
};

/// What was asked for: nothing yet, an answer, or why there is none.
type Answer<T> = RwSignal<Option<Result<T, String>>>;

fn ask<T: DeserializeOwned + Clone + Send + Sync + 'static>(app: App, path: &'static str) -> Answer<T> {
    let answer = RwSignal::new(None);
    leptos::task::spawn_local(async move {
        let told = api::get::<T>(path).await.map_err(|trouble| app.explain(&trouble));
        answer.try_set(Some(told));
    });
    answer
}

fn runs_of(workflow: &str, status: Option<Status>, text: String) -> impl IntoView + use<> {
    let filter = Filter { workflow: Some(workflow.to_owned()), status, ..Filter::default() };
    parts::link(Place::Runs { filter: filter.text() }, "quiet", text)
}

/// The workflows of the app.
pub fn workflows() -> impl IntoView {
    let app = App::here();
    app.link.set(Link::Over);
    let (list, metrics) = (ask::<WorkflowList>(app, "/api/workflows"), ask::<Metrics>(app, "/api/metrics"));
    let count = move |workflow: &str, status: Status| {
        metrics.with(|metrics| match metrics {
            Some(Ok(metrics)) => {
                let counts = metrics.workflows.get(workflow);
                counts.and_then(|counts| counts.get(&status)).copied().unwrap_or(0)
            }
            Some(Err(_)) | None => 0,
        })
    };
    let rows = move || {
        match list.get() {
        None => view! { <p class="loading" role="status">"Loading…"</p> }.into_any(),
        Some(Err(words)) => parts::notice(view! { <p>{words}</p> }).into_any(),
        Some(Ok(list)) if list.workflows.is_empty() => {
            parts::notice(view! { <p>"The app has no workflows. Add one with "<code>"App::new().workflow(…)"</code>" and deploy it."</p> }).into_any()
        }
        Some(Ok(list)) => {
            let row = move |workflow: stepwell_protocol::manifest::WorkflowView| {
                let name = workflow.declared.name;
                let state = serde_json::to_value(workflow.status).ok();
                let state = state.as_ref().and_then(|state| state.as_str()).unwrap_or_default().to_owned();
                let counts = Status::ALL.map(|status| {
                    let count = count(&name, status);
                    let shown = (count > 0).then(|| runs_of(&name, Some(status), count.to_string()));
                    view! { <td class="right num">{shown}</td> }
                });
                view! {
                    <tr><th scope="row">{runs_of(&name, None, word(&name))}</th><td>{state}</td>{counts}</tr>
                }
            };
            view! {
                <div class="scroll" tabindex="0" role="region" aria-label="Workflows">
                    <table>
                        <thead><tr><th scope="col">"Workflow"</th><th scope="col">"State"</th>
                            {Status::ALL.map(|status| view! { <th scope="col" class="right">{status.as_str()}</th> })}
                        </tr></thead>
                        <tbody>{list.workflows.into_iter().map(row).collect_view()}</tbody>
                    </table>
                </div>
            }
            .into_any()
        }
    }
    };
    view! { <section class="page"><h1>"Workflows"</h1>{rows}</section> }
}

/// The schedules of the namespace.
pub fn schedules() -> impl IntoView {
    let app = App::here();
    app.link.set(Link::Over);
    let list = ask::<ScheduleList>(app, "/api/schedules");
    let rows = move || match list.get() {
        None => view! { <p class="loading" role="status">"Loading…"</p> }.into_any(),
        Some(Err(words)) => parts::notice(view! { <p>{words}</p> }).into_any(),
        Some(Ok(list)) if list.schedules.is_empty() => parts::notice(view! {
            <p>"There are no schedules. Declare one in code, or create one:"</p>
            <pre>"stepwell schedules set nightly report 'every weekday at 9:00'"</pre>
        })
        .into_any(),
        Some(Ok(list)) => {
            let row = |schedule: stepwell_protocol::schedule::ScheduleView| {
                let state = match (&schedule.paused, &schedule.problem) {
                    (Some(paused), _) => format!("paused by {}", word(&paused.by)),
                    (None, Some(problem)) => word(&problem.title),
                    (None, None) => "active".into(),
                };
                view! {
                    <tr>
                        <th scope="row">{word(&schedule.id)}</th>
                        <td>{runs_of(&schedule.spec.workflow, None, word(&schedule.spec.workflow))}</td>
                        <td class="mono">{word(&schedule.spec.when)}</td>
                        <td>{state}</td>
                        <td>{schedule.next_tick.map(parts::instant)}</td>
                    </tr>
                }
            };
            view! {
                <div class="scroll" tabindex="0" role="region" aria-label="Schedules">
                    <table>
                        <thead><tr>
                            <th scope="col">"Schedule"</th><th scope="col">"Workflow"</th><th scope="col">"When"</th>
                            <th scope="col">"State"</th><th scope="col">"Next tick"</th>
                        </tr></thead>
                        <tbody>{list.schedules.into_iter().map(row).collect_view()}</tbody>
                    </table>
                </div>
            }
            .into_any()
        }
    };
    view! { <section class="page"><h1>"Schedules"</h1>{rows}</section> }
}
