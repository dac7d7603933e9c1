//! The routes that the catalog answers: each one is sent to the file that owns it.

use std::collections::BTreeMap;

use axum::{
    Extension,
    extract::{Path, RawQuery},
    response::Response,
    routing::{self, MethodFilter, MethodRouter},
};
use worker::send::SendFuture;

use super::{audit, error::Refusal, forward::Front, issuers, keys, namespaces, sessions, settings};

/// What is asked for, as the table of routes has it.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    ListKeys,
    CreateKey,
    RotateKey,
    RevokeKey,
    ShowSession,
    OpenSession,
    EndSession,
    ListSessions,
    RevokeSession,
    ShowSettings,
    SetSettings,
    SetWorkflowSettings,
    RemoveWorkflowSettings,
    Audit,
    ListNamespaces,
    CreateNamespace,
    ShowNamespace,
    CreateNamespaceKey,
    SetLimits,
    ListIssuers,
    SetIssuer,
    RemoveIssuer,
}

/// Routes one of these. All have the same form: axum makes as much code of each form as of a large part of the rest.
pub fn on(method: MethodFilter, asked: Asked) -> MethodRouter {
    let handler = move |Extension(front): Extension<Front>,
                        Path(named): Path<BTreeMap<String, String>>,
                        RawQuery(query): RawQuery,
                        body: String| {
        SendFuture::new(async move { answer_to(asked, &front, named, query, body).await })
    };
    routing::on(method, handler)
}

async fn answer_to(
    asked: Asked,
    front: &Front,
    mut named: BTreeMap<String, String>,
    query: Option<String>,
    body: String,
) -> Result<Response, Refusal> {
    let mut name = |what: &str| named.remove(what).unwrap_or_default();
    match asked {
        Asked::ListKeys => keys::list(front).await,
        Asked::CreateKey => keys::create(front, body).await,
        Asked::RotateKey => keys::rotate(front, name("key"), body).await,
        Asked::RevokeKey => keys::revoke(front, name("key")).await,
        Asked::ShowSession => sessions::show(front).await,
        Asked::OpenSession => sessions::open(front).await,
        Asked::EndSession => sessions::end(front).await,
        Asked::ListSessions => sessions::list(front).await,
        Asked::RevokeSession => sessions::revoke(front, name("session")).await,
        Asked::ShowSettings => settings::show(front).await,
        Asked::SetSettings => settings::set(front, body).await,
        Asked::SetWorkflowSettings => settings::set_workflow(front, name("workflow"), body).await,
        Asked::RemoveWorkflowSettings => settings::remove_workflow(front, name("workflow")).await,
        Asked::Audit => audit::show(front, query).await,
        Asked::ListNamespaces => namespaces::list(front).await,
        Asked::CreateNamespace => namespaces::create(front, body).await,
        Asked::ShowNamespace => namespaces::show(front, name("namespace")).await,
        Asked::CreateNamespaceKey => namespaces::create_key(front, name("namespace"), body).await,
        Asked::SetLimits => namespaces::set_limits(front, name("namespace"), body).await,
        Asked::ListIssuers => issuers::list(front).await,
        Asked::SetIssuer => issuers::set(front, body).await,
        Asked::RemoveIssuer => issuers::remove(front, query).await,
    }
}
