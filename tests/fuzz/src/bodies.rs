//! Bodies of the REST interface: what clients send, and what they get.

use stepwell_protocol::{
    Problem, Timestamp,
    access::{
        AuditPage, CreatedKey, CreatedNamespace, Issuer, KeyList, Limits, NewKey, NewNamespace,
        OpenedSession, Rotation, RunSettings, Settings,
    },
    filter::Filter,
    rest::{Bulk, History, Metrics, Restart, RunList, RunView, Status, Why, WorkflowList},
    stream::{Kind, StreamEvent},
    topic::{EventBatch, NewEvent, TriggerSpec},
    webhook::WebhookSpec,
};

use crate::{json, text};

/// What clients send, as every body that there is.
pub fn request_body(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(Bulk { filter, .. }) = json::read_back::<Bulk>(text) {
        check_filter(&filter);
    }
    if let Some(filter) = json::read_back::<Filter>(text) {
        check_filter(&filter);
    }
    if let Some(NewKey { scopes, expires_at, .. }) = json::read_back::<NewKey>(text) {
        assert!(scopes.iter().all(|scope| scope.to_string().parse().as_ref() == Ok(scope)));
        assert!(expires_at.is_none_or(|at| at <= Timestamp::MAX));
    }
    json::check::<Restart>(text);
    json::check::<Rotation>(text);
    json::check::<Limits>(text);
    json::check::<RunSettings>(text);
    json::check::<NewNamespace>(text);
    json::check::<Issuer>(text);
    json::check::<NewEvent>(text);
    json::check::<EventBatch>(text);
    json::check::<TriggerSpec>(text);
    json::check::<WebhookSpec>(text);
}

/// What a server answers, as the command line reads it.
pub fn server_answer(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(RunView { id, status, created_at, wakes_at, .. }) = json::read_back::<RunView>(text) {
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(json::read_back::<Status>(&format!("\"{}\"", status.as_str())), Some(status));
        assert!(created_at <= Timestamp::MAX && wakes_at.is_none_or(|at| at <= Timestamp::MAX));
    }
    if let Some(StreamEvent { kind, .. }) = json::read_back::<StreamEvent>(text) {
        assert_eq!(kind.as_str().parse::<Kind>().is_ok(), Kind::SELECTABLE.contains(&kind));
    }
    if let Some(problem) = json::read_back::<Problem>(text) {
        assert!(problem.code.page().ends_with(&format!("{}.md", problem.code.as_str())));
    }
    json::check::<RunList>(text);
    json::check::<History>(text);
    json::check::<Why>(text);
    json::check::<Metrics>(text);
    json::check::<WorkflowList>(text);
    json::check::<KeyList>(text);
    json::check::<CreatedKey>(text);
    json::check::<OpenedSession>(text);
    json::check::<CreatedNamespace>(text);
    json::check::<Settings>(text);
    json::check::<AuditPage>(text);
}

fn check_filter(filter: &Filter) {
    let times = [filter.from, filter.until].into_iter().flatten();
    assert!(times.into_iter().all(|at| at <= Timestamp::MAX), "a time that cannot be stored");
}
