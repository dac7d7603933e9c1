//! The OpenAPI 3.1 description of the REST interface, made from the route table and the messages of the protocol.
//!
//! Owns: what the table does not say: parameters, bodies and answers of each route. A route without them does not
//! compile. Runs natively only; the engine serves the committed text.

mod examples;
mod groups;
mod parameters;
mod queues;
mod webhooks;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use stepwell_protocol::{
    Code, Payload, Problem,
    access::{
        AuditPage, CreatedKey, CreatedNamespace, DeletedNamespace, Issuer, IssuerList, KeyList, KeyView,
        Limits, NamespaceDetails, NamespaceList, NewKey, NewNamespace, OpenedSession, Rotation, RunSettings,
        SessionList, SessionView, Settings,
    },
    alert::{AlertList, AlertSpec, AlertView},
    cells::CellList,
    failures::FailureList,
    lane::{LaneList, LaneView, LimitChange, SetLimits},
    manifest::{Manifest, PausedWorkflow, Plan, WorkflowView},
    outbox::{DiscardedLetter, OutboxList, Redelivery},
    rest::{
        Bulk, Health, History, Metrics, Restart, RunList, RunView, SignalReceipt, Status, Why, WorkflowList,
    },
    routes::{EVERY, Entry, Method, OF_BODIES, Route, Scope},
    schedule::{Backfill, NextTicks, ScheduleList, ScheduleSpec, ScheduleView},
    topic::{
        Accepted, AcceptedList, EventBatch, EventList, EventView, NewEvent, TopicList, TriggerList,
        TriggerSpec, TriggerView,
    },
    totals::{MinuteList, WorkflowTotalsList},
    wait_token::{CreatedToken, NewToken, TokenReceipt, TokenView},
};

use parameters::{
    callback, cursor, delay, filters, follow, key, kinds, last_event_id, page_cursor, page_limit, prefer,
    query, tags, topic, traceparent,
};

/// The description, as it is committed.
pub fn text() -> String {
    let mut text = serde_json::to_string_pretty(&document()).expect("it is JSON");
    text.push('\n');
    text
}

/// The description.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for route in Route::ALL {
        let Entry { method, path, .. } = route.entry();
        let operations = paths.entry(path).or_insert_with(|| json!({}));
        operations[method.as_str().to_lowercase()] = operation(*route, &mut schemas);
    }
    schemas.subschema_for::<Problem>();
    schemas.subschema_for::<Code>();
    let mut definitions = schemas.take_definitions(true);
    // The front adds it to every problem, whoever has made it.
    definitions["Problem"]["properties"]["request_id"] =
        json!({ "type": "string", "description": "The id of the request, which the log has, too." });
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Stepwell",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable workflows on Cloudflare Durable Objects.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" }
        },
        "servers": [{ "url": "/" }],
        "security": [{ "key": [] }],
        "tags": groups::GROUPS.map(|(name, description)| json!({ "name": name, "description": description })),
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } }
        }
    })
}

fn operation(route: Route, schemas: &mut SchemaGenerator) -> Value {
    let Entry { method, path, scope, .. } = route.entry();
    let (summary, codes) = (route.summary(), route.codes());
    let Parts { parameters, body, answers } = parts(route, schemas);
    let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<_> = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    all.extend(parameters);
    let mut responses = Map::new();
    for (status, description, media, schema) in answers {
        let content = json!({ (media): { "schema": schema } });
        responses.insert(status.to_string(), json!({ "description": description, "content": content }));
    }
    for (status, codes) in by_status(method, scope, codes) {
        let named: Vec<_> =
            codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.title())).collect();
        let known: Vec<_> = codes.iter().map(|code| code.as_str()).collect();
        let problem = schemas.subschema_for::<Problem>();
        let schema = json!({ "allOf": [problem, { "properties": { "code": { "enum": known } } }] });
        let content = json!({ "application/problem+json": { "schema": schema } });
        responses.insert(status.to_string(), json!({ "description": named.join("; "), "content": content }));
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "tags": [groups::group(path)],
        "summary": summary,
        "parameters": all,
        "responses": responses,
        "x-stepwell-scope": scope_word(scope)
    });
    if let Some(mut body) = body {
        if let Some(example) = examples::body(route) {
            body["content"]["application/json"]["example"] = example;
        }
        operation["requestBody"] = body;
    }
    if scope == Scope::Open {
        operation["security"] = json!([]);
    }
    operation
}

/// What a route is called in code that is made of the description.
pub fn operation_id(route: Route) -> String {
    let mut name = route.name().to_owned();
    name[..1].make_ascii_lowercase();
    name
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Open => "open",
        Scope::Read => "read",
        Scope::Write => "write",
        Scope::Admin => "admin",
        Scope::Root => "root",
    }
}

/// What a route refuses with, by status.
fn by_status(method: Method, scope: Scope, codes: &[Code]) -> Vec<(u16, Vec<Code>)> {
    // Whoever needs no key is asked for none.
    let of_keys = [Code::Unauthorized, Code::Forbidden, Code::LimitReached, Code::NamespaceDeleting];
    let common = EVERY.iter().filter(|code| scope != Scope::Open || !of_keys.contains(code));
    let of_bodies = OF_BODIES.iter().filter(|_| method.has_body());
    let mut all: Vec<_> = codes.iter().chain(common).chain(of_bodies).copied().collect();
    all.sort_by_key(|code| (code.status(), *code));
    let mut statuses: Vec<(u16, Vec<Code>)> = Vec::new();
    for code in all {
        match statuses.last_mut() {
            Some((status, codes)) if *status == code.status() => codes.push(code),
            Some(_) | None => statuses.push((code.status(), vec![code])),
        }
    }
    statuses
}

/// What the table does not say about a route.
struct Parts {
    parameters: Vec<Value>,
    body: Option<Value>,
    /// Status, description, media type and schema.
    answers: Vec<(u16, &'static str, &'static str, Value)>,
}

#[expect(clippy::too_many_lines, reason = "one arm for each route")]
fn parts(route: Route, schemas: &mut SchemaGenerator) -> Parts {
    let run = |schemas: &mut SchemaGenerator, description| {
        vec![(200, description, "application/json", schema::<RunView>(schemas))]
    };
    match route {
        Route::ListAlerts => Parts::of(vec![ok::<AlertList>(schemas, "The alerts.")]),
        Route::ShowAlert => Parts::of(vec![ok::<AlertView>(schemas, "The alert.")]),
        Route::PutAlert => {
            let view = schema::<AlertView>(schemas);
            Parts::of(vec![
                (200, "The alert, changed.", "application/json", view.clone()),
                (201, "The new alert.", "application/json", view),
            ])
            .taking(
                schema::<AlertSpec>(schemas),
                "What it watches, and which address it tells.",
                true,
            )
        }
        Route::DeleteAlert => Parts::of(vec![nothing("The alert is deleted.")]),
        Route::ListWorkflows => Parts::of(vec![ok::<WorkflowList>(schemas, "The app's workflows.")]),
        Route::ShowWorkflow => Parts::of(vec![ok::<WorkflowView>(schemas, "The workflow.")]),
        Route::ShowMetrics => Parts::of(vec![ok::<Metrics>(schemas, "The number of runs.")])
            .with(vec![query("workflow", "Counts the runs of this workflow.", json!({ "type": "string" }))]),
        Route::ListMinutes => Parts::of(vec![ok::<MinuteList>(schemas, "What has happened.")]).with(vec![
            query(
                "workflow",
                "Lists what has happened to runs of this workflow.",
                json!({ "type": "string" }),
            ),
            query(
                "minutes",
                "How many minutes back.",
                json!({ "type": "integer", "minimum": 1, "maximum": 1440, "default": 60 }),
            ),
        ]),
        Route::ListTotals => {
            let what = "What has happened, and what it costs.";
            Parts::of(vec![ok::<WorkflowTotalsList>(schemas, what)]).with(vec![
                query("workflow", "Only this workflow.", json!({ "type": "string" })),
                query(
                    "minutes",
                    "How many minutes back. Without it, ever.",
                    json!({ "type": "integer", "minimum": 1, "maximum": 1440 }),
                ),
            ])
        }
        Route::ListCells => Parts::of(vec![ok::<CellList>(schemas, "The cells.")]),
        Route::ListFailures => {
            let parts = Parts::of(vec![ok::<FailureList>(schemas, "A page of failures.")]);
            parts.with(parameters::failures())
        }
        Route::Scrape => Parts::of(vec![(
            200,
            "Metrics in the text format of Prometheus.",
            "text/plain",
            json!({ "type": "string" }),
        )]),
        Route::StartRun => Parts::of(started(schemas, true))
            .with(vec![tags(), key(), prefer(), delay(), callback(), traceparent()])
            .taking(schema::<Payload>(schemas), "The workflow's input. An empty body means `null`.", false),
        Route::PauseWorkflow | Route::ResumeWorkflow => {
            Parts::of(vec![ok::<PausedWorkflow>(schemas, "Whether the workflow is paused.")])
        }
        Route::Sync => Parts::of(vec![ok::<Plan>(schemas, "What it changes.")])
            .with(vec![query(
                "dry_run",
                "`true` stores nothing and returns what would change. Scope `read` is enough for it.",
                json!({ "type": "boolean" }),
            )])
            .taking(
                schema::<Manifest>(schemas),
                "With `dry_run=true`, the manifest to compare. Without a body, the app's own.",
                false,
            ),
        Route::StartBulk => Parts::of(started(schemas, false)).with(vec![key(), prefer()]).taking(
            schema::<Bulk>(schemas),
            "The operation and the runs.",
            true,
        ),
        Route::ListRuns => {
            Parts::of(vec![ok::<RunList>(schemas, "A page of runs, newest first.")]).with(filters(schemas))
        }
        Route::ShowRun | Route::ShowRunByKey => Parts::of(run(schemas, "The run.")).with(vec![prefer()]),
        Route::Why => Parts::of(vec![ok::<Why>(schemas, "What the run is waiting for, and why.")]),
        Route::History => {
            let after = query(
                "after",
                "The `next` of the previous page.",
                json!({ "type": "integer", "minimum": 0 }),
            );
            let replay =
                query("replay", "`true` adds further data for a replay.", json!({ "type": "boolean" }));
            let limit = query(
                "limit",
                "How many events at most; without it, about 1 MiB.",
                json!({ "type": "integer", "minimum": 1, "maximum": 1000 }),
            );
            let outline = query(
                "outline",
                "`true` leaves payloads out: they are `null`, and `bytes` says how large they are.",
                json!({ "type": "boolean" }),
            );
            Parts::of(vec![ok::<History>(schemas, "A page of its events, in order.")])
                .with(vec![after, limit, outline, replay])
        }
        Route::CancelRun | Route::CancelRunByKey => Parts::of(run(schemas, "The cancelled run.")),
        Route::PauseRun => Parts::of(run(schemas, "The paused run.")),
        Route::ResumeRun | Route::RetryRun => Parts::of(run(schemas, "The run, in progress again.")),
        Route::RestartRun => Parts::of(run(schemas, "The run, in progress again.")).taking(
            schema::<Restart>(schemas),
            "Where it continues. Without a body, the run starts over.",
            false,
        ),
        Route::CreateToken => {
            let made =
                (201, "The link. It is not stored.", "application/json", schema::<CreatedToken>(schemas));
            Parts::of(vec![made]).taking(schema::<NewToken>(schemas), "Which wait.", true)
        }
        Route::ShowToken => Parts::of(vec![ok::<TokenView>(
            schemas,
            "What is asked. A request with `Accept: text/html` gets a page with a form.",
        )]),
        Route::CompleteToken => {
            let receipt = schema::<TokenReceipt>(schemas);
            let answers = vec![
                (200, "It was answered before. Nothing changed.", "application/json", receipt.clone()),
                (202, "Recorded.", "application/json", receipt),
            ];
            Parts::of(answers).taking(
                schema::<Payload>(schemas),
                "The answer, up to 64 KiB of JSON; or a form with `decision` (`accept` or `reject`) and `comment`.",
                true,
            )
        }
        Route::SendSignal | Route::SendSignalByKey => {
            let receipt = schema::<SignalReceipt>(schemas);
            let answers = vec![
                (200, "A signal with this id was already recorded.", "application/json", receipt.clone()),
                (202, "Recorded.", "application/json", receipt),
            ];
            Parts::of(answers).with(vec![key()]).taking(
                schema::<Payload>(schemas),
                "The signal's payload. An empty body means `null`.",
                false,
            )
        }
        Route::FollowRun => {
            Parts::of(vec![events("The events so far, then live events until the run ends.")]).with(vec![
                cursor(),
                last_event_id(),
                kinds(),
                follow(),
            ])
        }
        Route::FollowAll => Parts::of(vec![events("Changes of status, without end.")]).with(vec![
            cursor(),
            last_event_id(),
            query("workflow", "Only runs of this workflow.", json!({ "type": "string" })),
            query("status", "Only changes to this status.", schema::<Status>(schemas)),
        ]),
        Route::ListKeys => Parts::of(vec![ok::<KeyList>(schemas, "The keys, without their texts.")]),
        Route::CreateKey | Route::CreateNamespaceKey => {
            Parts::of(vec![created::<CreatedKey>(schemas, "The key. Its text is shown only in this answer.")])
                .taking(schema::<NewKey>(schemas), "What the key allows.", true)
        }
        Route::RotateKey => Parts::of(vec![created::<CreatedKey>(
            schemas,
            "The new key. Its text is shown only in this answer.",
        )])
        .taking(schema::<Rotation>(schemas), "How long the old key stays active.", false),
        Route::RevokeKey => Parts::of(vec![ok::<KeyView>(schemas, "The revoked key.")]),
        Route::ShowSession => Parts::of(vec![ok::<SessionView>(schemas, "Who is signed in.")]),
        Route::OpenSession => Parts::of(vec![created::<OpenedSession>(
            schemas,
            "The session. Its token is shown only in this answer.",
        )]),
        Route::EndSession => Parts::of(vec![nothing("Signed out.")]),
        Route::ListSessions => {
            Parts::of(vec![ok::<SessionList>(schemas, "The sessions, without their tokens.")])
        }
        Route::RevokeSession => Parts::of(vec![nothing("The session has ended.")]),
        Route::ShowNamespace => Parts::of(vec![ok::<NamespaceDetails>(
            schemas,
            "The settings of the namespace, and the progress of its deletion.",
        )]),
        Route::DeleteNamespace => Parts::of(vec![(
            202,
            "The progress of the deletion, which continues in the background.",
            "application/json",
            schema::<DeletedNamespace>(schemas),
        )]),
        Route::ShowSettings | Route::RemoveWorkflowSettings => {
            Parts::of(vec![ok::<Settings>(schemas, "The settings of the namespace.")])
        }
        Route::SetSettings | Route::SetWorkflowSettings => Parts::of(vec![ok::<Settings>(
            schemas,
            "The settings of the namespace.",
        )])
        .taking(schema::<RunSettings>(schemas), "The settings.", true),
        Route::SetLimits => Parts::of(vec![ok::<Settings>(schemas, "The settings of the namespace.")])
            .taking(schema::<Limits>(schemas), "The limits.", true),
        Route::Audit => {
            let before = query(
                "before",
                "The `next` of the previous page.",
                json!({ "type": "integer", "minimum": 0 }),
            );
            Parts::of(vec![ok::<AuditPage>(schemas, "Who did what, newest first.")]).with(vec![before])
        }
        Route::ListOutbox => {
            let dead = query(
                "dead",
                "`true` lists only messages that are no longer sent.",
                json!({ "type": "boolean" }),
            );
            Parts::of(vec![ok::<OutboxList>(schemas, "Messages that have not arrived.")]).with(vec![
                dead,
                page_limit("How many letters."),
                page_cursor(),
            ])
        }
        Route::Discard => Parts::of(vec![ok::<DiscardedLetter>(schemas, "The letter that was deleted.")]),
        Route::ListSchedules => {
            let after = query("after", "The `next` of the page before.", json!({ "type": "string" }));
            let limit =
                query("limit", "How many.", json!({ "type": "integer", "minimum": 1, "maximum": 100 }));
            Parts::of(vec![ok::<ScheduleList>(schemas, "A page of schedules, by their ids.")])
                .with(vec![after, limit])
        }
        Route::ShowSchedule => Parts::of(vec![ok::<ScheduleView>(schemas, "The schedule.")]),
        Route::PutSchedule => {
            let view = schema::<ScheduleView>(schemas);
            Parts::of(vec![
                (200, "The schedule, changed.", "application/json", view.clone()),
                (201, "The new schedule.", "application/json", view),
            ])
            .taking(
                schema::<ScheduleSpec>(schemas),
                "When it ticks, and what each tick starts.",
                true,
            )
        }
        Route::DeleteSchedule => Parts::of(vec![nothing("The schedule is deleted.")]),
        Route::PauseSchedule => Parts::of(vec![ok::<ScheduleView>(schemas, "The schedule, paused.")]),
        Route::ResumeSchedule => Parts::of(vec![ok::<ScheduleView>(schemas, "The schedule, ticking.")]),
        Route::TriggerSchedule => {
            let view = schema::<ScheduleView>(schemas);
            Parts::of(vec![(202, "The schedule. Its run is on its way.", "application/json", view)])
                .with(vec![key()])
        }
        Route::BackfillSchedule => {
            let view = schema::<ScheduleView>(schemas);
            Parts::of(vec![(202, "The schedule. The runs are on their way.", "application/json", view)])
                .taking(schema::<Backfill>(schemas), "The range.", true)
        }
        Route::NextTicks => Parts::of(vec![ok::<NextTicks>(schemas, "Its next ten ticks.")]),
        Route::SendEvents => {
            let one = schema::<Accepted>(schemas);
            let several = schema::<AcceptedList>(schemas);
            let (event, batch) = (schema::<NewEvent>(schemas), schema::<EventBatch>(schemas));
            Parts::of(vec![
                (
                    200,
                    "An event that was accepted before; or what became of each of several events.",
                    "application/json",
                    json!({ "anyOf": [one.clone(), several] }),
                ),
                (201, "The event is stored.", "application/json", one),
            ])
            .taking(json!({ "anyOf": [event, batch] }), "One event, or several.", true)
        }
        Route::ListEvents => {
            let before = query(
                "before",
                "The `next` of the previous page.",
                json!({ "type": "integer", "minimum": 0 }),
            );
            let limit =
                query("limit", "How many.", json!({ "type": "integer", "minimum": 1, "maximum": 100 }));
            Parts::of(vec![ok::<EventList>(schemas, "Events of the topic, newest first.")]).with(vec![
                topic(),
                before,
                limit,
            ])
        }
        Route::SetLimit | Route::SetStepLimit => {
            Parts::of(vec![ok::<SetLimits>(schemas, "All limits that are set now.")]).taking(
                schema::<LimitChange>(schemas),
                "Which limit, and its number. `max: null` returns to what the code declares.",
                true,
            )
        }
        Route::ListStepLanes => Parts::of(vec![ok::<LaneList>(schemas, "A page of lanes, by name.")])
            .with(vec![query("after", "The `next` of the previous page.", json!({ "type": "string" }))]),
        Route::ListTopics => Parts::of(vec![ok::<TopicList>(schemas, "A page of topics, by name.")])
            .with(vec![query("after", "The `next` of the previous page.", json!({ "type": "string" }))]),
        Route::ShowLane | Route::ShowStepLane => {
            let cursor = query("cursor", "The `next` of the previous page.", json!({ "type": "string" }));
            let limit =
                query("limit", "How many.", json!({ "type": "integer", "minimum": 1, "maximum": 100 }));
            Parts::of(vec![ok::<LaneView>(schemas, "Its runs and steps that work or wait.")])
                .with(vec![cursor, limit])
        }
        Route::ShowEvent => Parts::of(vec![ok::<EventView>(schemas, "The event.")]),
        Route::ListTriggers => {
            Parts::of(vec![ok::<TriggerList>(schemas, "The triggers of the topic.")]).with(vec![topic()])
        }
        Route::ShowTrigger => Parts::of(vec![ok::<TriggerView>(schemas, "The trigger.")]),
        Route::PutTrigger => {
            let view = schema::<TriggerView>(schemas);
            Parts::of(vec![
                (200, "The trigger, changed.", "application/json", view.clone()),
                (201, "The new trigger.", "application/json", view),
            ])
            .taking(
                schema::<TriggerSpec>(schemas),
                "Which events it is about, and what each of them starts.",
                true,
            )
        }
        Route::DeleteTrigger => Parts::of(vec![nothing("The trigger is deleted.")]),
        Route::PauseTrigger => Parts::of(vec![ok::<TriggerView>(schemas, "The trigger, paused.")]),
        Route::ResumeTrigger => Parts::of(vec![ok::<TriggerView>(schemas, "The trigger, resumed.")]),
        Route::ListWebhooks
        | Route::ShowWebhook
        | Route::PutWebhook
        | Route::DeleteWebhook
        | Route::ListDeliveries
        | Route::ShowDelivery
        | Route::RedeliverWebhook
        | Route::ReceiveWebhook => webhooks::parts(route, schemas),
        Route::ListQueues
        | Route::ShowQueue
        | Route::SetQueue
        | Route::ShowQueueSecret
        | Route::DeleteQueue
        | Route::PauseQueue
        | Route::DrainQueue
        | Route::ResumeQueue
        | Route::PurgeQueue
        | Route::SendJobs
        | Route::ShowJob
        | Route::EditJob
        | Route::DiscardJob
        | Route::RedriveJob
        | Route::ClaimJobs
        | Route::AckJobs
        | Route::NackJobs
        | Route::ExtendJobs
        | Route::ListDead
        | Route::RedriveJobs => queues::parts(route, schemas),
        Route::Redeliver => Parts::of(vec![ok::<Redelivery>(schemas, "The letter, on its way again.")]),
        Route::ListNamespaces => Parts::of(vec![ok::<NamespaceList>(schemas, "The namespaces.")]),
        Route::CreateNamespace => Parts::of(vec![created::<CreatedNamespace>(
            schemas,
            "The namespace, and its first key.",
        )])
        .taking(schema::<NewNamespace>(schemas), "Its name.", true),
        Route::ListIssuers => {
            Parts::of(vec![ok::<IssuerList>(schemas, "The issuers whose tokens are accepted.")])
        }
        Route::SetIssuer => Parts::of(vec![ok::<Issuer>(schemas, "The issuer.")]).taking(
            schema::<Issuer>(schemas),
            "The address of its public keys, and what its tokens grant.",
            true,
        ),
        Route::RemoveIssuer => Parts::of(vec![nothing("Its tokens are no longer accepted.")])
            .with(vec![query("issuer", "The issuer's `iss`.", json!({ "type": "string" }))]),
        Route::ShowApi => {
            Parts::of(vec![(200, "This description.", "application/json", json!({ "type": "object" }))])
        }
        Route::ShowHealth => Parts::of(vec![ok::<Health>(schemas, "The engine answers.")]),
        Route::ShowDocs => {
            Parts::of(vec![(200, "A page for people.", "text/html", json!({ "type": "string" }))])
        }
    }
}

impl Parts {
    fn of(answers: Vec<(u16, &'static str, &'static str, Value)>) -> Self {
        Self { parameters: Vec::new(), body: None, answers }
    }

    fn with(self, parameters: Vec<Value>) -> Self {
        Self { parameters, ..self }
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is made where it is given")]
    fn taking(self, schema: Value, description: &str, required: bool) -> Self {
        let content = json!({ "application/json": { "schema": schema } });
        let body = json!({ "description": description, "required": required, "content": content });
        Self { body: Some(body), ..self }
    }
}

fn schema<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

fn ok<T: JsonSchema>(
    schemas: &mut SchemaGenerator,
    description: &'static str,
) -> (u16, &'static str, &'static str, Value) {
    (200, description, "application/json", schema::<T>(schemas))
}

fn created<T: JsonSchema>(
    schemas: &mut SchemaGenerator,
    description: &'static str,
) -> (u16, &'static str, &'static str, Value) {
    (201, description, "application/json", schema::<T>(schemas))
}

fn nothing(description: &'static str) -> (u16, &'static str, &'static str, Value) {
    (200, description, "application/json", json!({ "type": "null" }))
}

fn events(description: &'static str) -> (u16, &'static str, &'static str, Value) {
    (200, description, "text/event-stream", json!({ "type": "string" }))
}

fn started(schemas: &mut SchemaGenerator, joins: bool) -> Vec<(u16, &'static str, &'static str, Value)> {
    let run = schema::<RunView>(schemas);
    let before = if joins {
        "The run that this key has already started, or that this start was skipped for."
    } else {
        "The run that this key has already started."
    };
    let mut answers = vec![
        (200, before, "application/json", run.clone()),
        (201, "The run, accepted and stored.", "application/json", run.clone()),
    ];
    if joins {
        answers.push((202, "The run that this start and others will become.", "application/json", run));
    }
    answers
}
