//! From a route to its handler. Which route a request takes was looked up once, by whoever let it in
//! ([`Route::find`]): no request is let in by one route and answered by another.

use stepwell_protocol::{queue::QueueState, routes::Route};

use super::{
    alerts, audit, by_key, cells, described, error::Refusal, events, failures, front::Front, issuers, keys,
    lanes, list, manifest, metrics, names, namespaces, outbox, overview, pauses, queues, request::Incoming,
    response::Response, runs, schedules, sessions, settings, starts, streams, totals, wait_tokens, webhooks,
};
use crate::calls::topics::{Request, WebhookAsk};

/// Answers a request by its route.
#[expect(clippy::too_many_lines, reason = "one arm for each route")]
pub async fn answer(route: Route, front: &Front, request: Incoming) -> Result<Response, Refusal> {
    let Incoming { mut names, query, headers, sent, body } = request;
    let mut name = |wanted: &str| names.take(wanted);
    match route {
        Route::ListAlerts => alerts::list(front).await,
        Route::ShowAlert => alerts::show(front, name("alert")).await,
        Route::PutAlert => alerts::put(front, name("alert"), &body).await,
        Route::DeleteAlert => alerts::delete(front, name("alert")).await,
        Route::ListWorkflows => overview::workflows(front).await,
        Route::ShowWorkflow => overview::workflow(front, &name("workflow")).await,
        Route::ShowMetrics => metrics::count(front, &query).await,
        Route::ListMinutes => metrics::minutes(front, &query).await,
        Route::ListTotals => totals::list(front, &query).await,
        Route::ListCells => cells::list(front).await,
        Route::ListFailures => failures::list(front, &query).await,
        Route::Scrape => metrics::scrape(front).await,
        Route::StartRun => starts::run(front, name("workflow"), &query, &headers, body).await,
        Route::PauseWorkflow => pauses::pause(front, name("workflow")).await,
        Route::ResumeWorkflow => pauses::resume(front, name("workflow")).await,
        Route::SetLimit => lanes::set_limit(front, &name("workflow"), &body).await,
        Route::ShowLane => lanes::show(front, &name("workflow"), &query).await,
        Route::ListStepLanes => names::lanes(front, &query).await,
        Route::ListTopics => names::topics(front, &query).await,
        Route::ShowStepLane => lanes::show_steps(front, &name("lane"), &query).await,
        Route::SetStepLimit => lanes::set_step_limit(front, &name("lane"), &body).await,
        Route::Sync => manifest::sync(front, &query, &body).await,
        Route::ListRuns => list::list(front, &query).await,
        Route::StartBulk => starts::bulk(front, &headers, &body).await,
        Route::ShowRun => runs::show(front, &name("id"), &headers).await,
        Route::Why => runs::why(front, &name("id")).await,
        Route::History => runs::history(front, &name("id"), &query).await,
        Route::CancelRun => runs::cancel(front, &name("id")).await,
        Route::PauseRun => runs::pause(front, &name("id")).await,
        Route::ResumeRun => runs::resume(front, &name("id")).await,
        Route::RetryRun => runs::retry(front, &name("id")).await,
        Route::RestartRun => runs::restart(front, &name("id"), &body).await,
        Route::SendSignal => runs::signal(front, &name("id"), name("name"), &headers, body).await,
        Route::CreateToken => wait_tokens::create(front, &name("id"), &body).await,
        Route::ShowToken => wait_tokens::show(front, &name("token")).await,
        Route::CompleteToken => wait_tokens::complete(front, &name("token"), &body).await,
        Route::ShowRunByKey => by_key::show(front, &name("workflow"), &name("key"), &headers).await,
        Route::CancelRunByKey => by_key::cancel(front, &name("workflow"), &name("key")).await,
        Route::SendSignalByKey => {
            by_key::signal(front, &name("workflow"), &name("key"), name("name"), &headers, body).await
        }
        Route::FollowRun => streams::run(front, &name("id"), &query, &headers).await,
        Route::FollowAll => streams::pool(front, &query, &headers).await,
        Route::ShowApi => Ok(described::openapi()),
        Route::ShowDocs => Ok(described::page()),
        Route::ShowHealth => Ok(described::health()),
        Route::ListKeys => keys::list(front).await,
        Route::CreateKey => keys::create(front, &body).await,
        Route::RotateKey => keys::rotate(front, name("key"), &body).await,
        Route::RevokeKey => keys::revoke(front, name("key")).await,
        Route::ShowSession => sessions::show(front).await,
        Route::OpenSession => sessions::open(front).await,
        Route::EndSession => sessions::end(front).await,
        Route::ListSessions => sessions::list(front).await,
        Route::RevokeSession => sessions::revoke(front, name("session")).await,
        Route::ShowSettings => settings::show(front).await,
        Route::SetSettings => settings::set(front, &body).await,
        Route::SetWorkflowSettings => settings::set_workflow(front, name("workflow"), &body).await,
        Route::RemoveWorkflowSettings => settings::remove_workflow(front, name("workflow")).await,
        Route::ListOutbox => outbox::list(front, &query).await,
        Route::Redeliver => outbox::redeliver(front, &name("letter")).await,
        Route::Discard => outbox::discard(front, &name("letter")).await,
        Route::ListSchedules => schedules::list(front, &query).await,
        Route::ShowSchedule => schedules::show(front, name("schedule")).await,
        Route::PutSchedule => schedules::put(front, name("schedule"), &body).await,
        Route::DeleteSchedule => schedules::delete(front, name("schedule")).await,
        Route::PauseSchedule => schedules::pause(front, name("schedule")).await,
        Route::ResumeSchedule => schedules::resume(front, name("schedule")).await,
        Route::TriggerSchedule => schedules::trigger(front, name("schedule"), &headers).await,
        Route::BackfillSchedule => schedules::backfill(front, name("schedule"), &body).await,
        Route::NextTicks => schedules::next(front, name("schedule")).await,
        Route::SendEvents => events::send(front, &body).await,
        Route::ListEvents => events::list(front, &query).await,
        Route::ShowEvent => events::show(front, &name("topic"), name("event")).await,
        Route::ListTriggers => events::list_triggers(front, &query).await,
        Route::PutTrigger => events::put_trigger(front, &name("topic"), name("trigger"), &body).await,
        Route::ShowTrigger => {
            events::trigger(front, &name("topic"), Request::GetTrigger { id: name("trigger") }).await
        }
        Route::DeleteTrigger => {
            events::trigger(front, &name("topic"), Request::DeleteTrigger { id: name("trigger") }).await
        }
        Route::PauseTrigger => {
            events::trigger(front, &name("topic"), Request::PauseTrigger { id: name("trigger") }).await
        }
        Route::ResumeTrigger => {
            events::trigger(front, &name("topic"), Request::ResumeTrigger { id: name("trigger") }).await
        }
        Route::ListWebhooks => webhooks::list(front, &query).await,
        Route::ShowWebhook => webhooks::ask(front, &name("topic"), name("webhook"), WebhookAsk::Get).await,
        Route::PutWebhook => webhooks::put(front, &name("topic"), name("webhook"), &body).await,
        Route::DeleteWebhook => {
            webhooks::ask(front, &name("topic"), name("webhook"), WebhookAsk::Delete).await
        }
        Route::ListDeliveries => {
            webhooks::ask(front, &name("topic"), name("webhook"), WebhookAsk::Deliveries).await
        }
        Route::ShowDelivery => {
            webhooks::show(front, &name("topic"), name("webhook"), &name("delivery")).await
        }
        Route::RedeliverWebhook => {
            webhooks::redeliver(front, &name("topic"), name("webhook"), &name("delivery")).await
        }
        Route::ReceiveWebhook => {
            webhooks::receive(front, &name("namespace"), &name("topic"), &name("hook"), sent, body).await
        }
        Route::ListQueues => queues::settings::list(front, &query).await,
        Route::ShowQueue => queues::settings::show(front, name("queue")).await,
        Route::SetQueue => queues::settings::set(front, &name("queue"), &body).await,
        Route::DeleteQueue => queues::settings::delete(front, &name("queue"), &query).await,
        Route::ShowQueueSecret => queues::settings::secret(front, &name("queue")).await,
        Route::PauseQueue => queues::settings::put_state(front, &name("queue"), QueueState::Paused).await,
        Route::DrainQueue => queues::settings::put_state(front, &name("queue"), QueueState::Draining).await,
        Route::ResumeQueue => queues::settings::put_state(front, &name("queue"), QueueState::Active).await,
        Route::PurgeQueue => queues::jobs::purge(front, &name("queue"), &body).await,
        Route::SendJobs => queues::sends::send(front, &name("queue"), &query, &headers, sent, body).await,
        Route::ShowJob => queues::jobs::show(front, &name("queue"), &name("job")).await,
        Route::EditJob => queues::jobs::edit(front, &name("queue"), &name("job"), body).await,
        Route::DiscardJob => queues::jobs::discard(front, &name("queue"), &name("job")).await,
        Route::RedriveJob => queues::jobs::redrive_one(front, &name("queue"), &name("job")).await,
        Route::ClaimJobs => queues::claims::claim(front, &name("queue"), &body).await,
        Route::AckJobs => queues::claims::ack(front, &name("queue"), &body).await,
        Route::NackJobs => queues::claims::nack(front, &name("queue"), &body).await,
        Route::ExtendJobs => queues::claims::extend(front, &name("queue"), &body).await,
        Route::ListDead => queues::jobs::dead(front, &name("queue"), &query).await,
        Route::RedriveJobs => queues::jobs::redrive(front, &name("queue"), &body).await,
        Route::Audit => audit::show(front, &query).await,
        Route::ListNamespaces => namespaces::list(front).await,
        Route::CreateNamespace => namespaces::create(front, &body).await,
        Route::ShowNamespace => namespaces::show(front, &name("namespace")).await,
        Route::DeleteNamespace => namespaces::delete(front, &name("namespace")).await,
        Route::CreateNamespaceKey => namespaces::create_key(front, &name("namespace"), &body).await,
        Route::SetLimits => namespaces::set_limits(front, &name("namespace"), &body).await,
        Route::ListIssuers => issuers::list(front).await,
        Route::SetIssuer => issuers::set(front, &body).await,
        Route::RemoveIssuer => issuers::remove(front, &query).await,
    }
}
