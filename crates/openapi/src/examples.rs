//! A body for each route that takes one, as somebody would send it first. Readers of the description try them out.

use serde_json::{Value, json};
use stepwell_protocol::routes::Route;

/// An instant, for examples: the first of January 2027 in UTC.
const INSTANT_MS: u64 = 1_798_761_600_000;

/// A body that a route takes; none, if it takes none.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most routes take no body, and a test notices one that does"
)]
pub fn body(route: Route) -> Option<Value> {
    let hour_ms = 3_600_000;
    let body = match route {
        Route::StartRun => json!("Ada"),
        Route::SendSignal | Route::SendSignalByKey => json!(true),
        Route::StartBulk => {
            json!({ "action": "retry", "filter": { "workflow": "greet", "status": "failed" } })
        }
        Route::RestartRun => json!({ "from": { "step": "charge", "occurrence": 0 } }),
        Route::Sync => json!({ "protocol": stepwell_protocol::PROTOCOL, "workflows": [{ "name": "greet" }] }),
        Route::PutSchedule => json!({
            "workflow": "greet",
            "input": "Ada",
            "when": "every weekday at 9:00 in Europe/Berlin"
        }),
        Route::BackfillSchedule => json!({ "from": INSTANT_MS, "to": INSTANT_MS + 24 * hour_ms }),
        Route::CreateToken => json!({ "name": "approval", "expires_ms": 24 * hour_ms }),
        Route::CompleteToken => json!({ "approved": true }),
        Route::SendEvents => {
            json!({ "name": "order/paid", "id": "order-17-paid", "data": { "id": 17, "amount": 250 } })
        }
        Route::PutAlert => json!({
            "on": "failures", "workflow": "greet", "above_percent": 10, "url": "https://ops.example.com/stepwell"
        }),
        Route::PutTrigger => {
            json!({ "on": "order/paid", "when": "event.data.amount > 100", "workflow": "greet" })
        }
        Route::PutWebhook => json!({
            "kind": "stripe",
            "event": "stripe/{body.type}",
            "secret": "whsec_5xKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        }),
        Route::SetQueue => json!({ "max_attempts": 8, "visibility_ms": 60_000 }),
        Route::SendJobs => json!({ "body": { "to": "ada@example.com" }, "dedupe_id": "welcome-17" }),
        Route::ClaimJobs => json!({ "limit": 10, "wait_ms": 20_000 }),
        Route::AckJobs => json!({ "leases": ["18bcfe56800-0-1.1.c2f9k1"] }),
        Route::NackJobs => {
            json!({ "leases": ["18bcfe56800-0-1.1.c2f9k1"], "delay_ms": 30_000, "reason": "upstream is down" })
        }
        Route::ExtendJobs => json!({ "leases": ["18bcfe56800-0-1.1.c2f9k1"], "visibility_ms": 60_000 }),
        Route::EditJob => json!({ "body": { "to": "ada@example.org" } }),
        Route::PurgeQueue => json!({ "dead": false }),
        Route::RedriveJobs => json!({ "contains": "upstream", "per_second": 10 }),
        Route::ReceiveWebhook => json!({ "id": "evt_1", "type": "invoice.paid" }),
        Route::CreateKey | Route::CreateNamespaceKey => {
            json!({ "name": "ci", "scopes": ["read", "write:greet"] })
        }
        Route::RotateKey => json!({ "overlap_ms": hour_ms }),
        Route::CreateNamespace => json!({ "name": "acme", "limits": { "live_runs": 10_000 } }),
        Route::SetLimits => json!({ "live_runs": 10_000, "requests_per_second": 100 }),
        Route::SetLimit => json!({ "by": "input.customer", "key": "acme", "max": 20 }),
        Route::SetStepLimit => json!({ "by": "key", "key": "acme", "max": 20 }),
        Route::SetSettings | Route::SetWorkflowSettings => {
            json!({ "timeout_ms": hour_ms, "retention_ms": 7 * 24 * hour_ms })
        }
        Route::SetIssuer => json!({
            "issuer": "https://issuer.example",
            "jwks_url": "https://issuer.example/jwks",
            "audience": "stepwell",
            "namespace": { "fixed": "acme" },
            "scopes": ["read"]
        }),
        _ => return None,
    };
    Some(body)
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use stepwell_protocol::{
        access::{Issuer, Limits, NewKey, NewNamespace, Rotation, RunSettings},
        alert::AlertSpec,
        lane::LimitChange,
        manifest::Manifest,
        rest::{Bulk, Restart},
        schedule::{Backfill, ScheduleSpec},
        topic::{NewEvent, TriggerSpec},
        wait_token::NewToken,
        webhook::WebhookSpec,
    };

    use super::*;

    fn reads<T: DeserializeOwned>(value: Value) -> Result<(), serde_json::Error> {
        serde_json::from_value::<T>(value).map(drop)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others take any JSON")]
    #[test]
    fn the_protocol_reads_every_example() {
        for route in Route::ALL {
            let Some(body) = body(*route) else { continue };
            let outcome = match route {
                Route::StartBulk => reads::<Bulk>(body),
                Route::RestartRun => reads::<Restart>(body),
                Route::Sync => reads::<Manifest>(body),
                Route::PutSchedule => reads::<ScheduleSpec>(body),
                Route::BackfillSchedule => reads::<Backfill>(body),
                Route::CreateToken => reads::<NewToken>(body),
                Route::SendEvents => reads::<NewEvent>(body),
                Route::PutTrigger => reads::<TriggerSpec>(body),
                Route::PutAlert => reads::<AlertSpec>(body),
                Route::PutWebhook => reads::<WebhookSpec>(body),
                Route::CreateKey | Route::CreateNamespaceKey => reads::<NewKey>(body),
                Route::RotateKey => reads::<Rotation>(body),
                Route::CreateNamespace => reads::<NewNamespace>(body),
                Route::SetLimit | Route::SetStepLimit => reads::<LimitChange>(body),
                Route::SetLimits => reads::<Limits>(body),
                Route::SetSettings | Route::SetWorkflowSettings => reads::<RunSettings>(body),
                Route::SetIssuer => reads::<Issuer>(body),
                _ => reads::<Value>(body),
            };
            outcome.unwrap_or_else(|error| panic!("{}: {error}", route.name()));
        }
    }
}
