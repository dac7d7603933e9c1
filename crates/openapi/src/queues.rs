//! The routes of queues.

use schemars::SchemaGenerator;
use serde_json::{Value, json};
use stepwell_protocol::{
    queue::{
        Ack, Claim, ClaimedList, EditJob, Extend, JobList, JobView, LeaseList, Nack, Purge, QueueList,
        QueuePatch, QueueSecret, QueueSettings, QueueView, Redrive, SendJobs, Sent, SentList,
    },
    routes::Route,
};

use super::{
    Parts, nothing, ok,
    parameters::{key, query},
    schema,
};

/// What the table does not say about them.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others are not of queues")]
pub fn parts(route: Route, schemas: &mut SchemaGenerator) -> Parts {
    match route {
        Route::ListQueues => Parts::of(vec![ok::<QueueList>(schemas, "A page of queues, by name.")])
            .with(vec![query("after", "The `next` of the previous page.", json!({ "type": "string" }))]),
        Route::ShowQueue => {
            Parts::of(vec![ok::<QueueView>(schemas, "The queue, with counts over all partitions.")])
        }
        Route::SetQueue => Parts::of(vec![ok::<QueueSettings>(schemas, "The settings that hold.")]).taking(
            schema::<QueuePatch>(schemas),
            "What to change. Fields that are left out stay as they are.",
            true,
        ),
        Route::ShowQueueSecret => Parts::of(vec![ok::<QueueSecret>(schemas, "The secret.")]),
        Route::PauseQueue | Route::DrainQueue | Route::ResumeQueue => {
            Parts::of(vec![ok::<QueueSettings>(schemas, "The settings that hold.")])
        }
        Route::DeleteQueue => Parts::of(vec![nothing("The queue is deleted.")]).with(vec![query(
            "purge",
            "`true` deletes the queue with its jobs and dead letters.",
            json!({ "type": "boolean", "default": false }),
        )]),
        Route::PurgeQueue => Parts::of(vec![begun("The purge has begun.")]).taking(
            schema::<Purge>(schemas),
            "What to delete. Without a body, the queued jobs.",
            false,
        ),
        Route::SendJobs => {
            let (one, list) = (schema::<Sent>(schemas), schema::<SentList>(schemas));
            Parts::of(vec![
                (201, "The job is stored.", "application/json", one.clone()),
                (
                    200,
                    "The job was stored before; or what became of each of several jobs.",
                    "application/json",
                    json!({ "anyOf": [one, list] }),
                ),
            ])
            .with(raw_options())
            .taking(
                schema::<SendJobs>(schemas),
                "The jobs. A body of any type but JSON is itself the body of one job.",
                true,
            )
        }
        Route::ShowJob => Parts::of(vec![ok::<JobView>(schemas, "The job.")]),
        Route::EditJob => Parts::of(vec![ok::<JobView>(schemas, "The job, without its body.")]).taking(
            schema::<EditJob>(schemas),
            "The body that it gets.",
            true,
        ),
        Route::DiscardJob => Parts::of(vec![nothing("The dead letter is deleted.")]),
        Route::RedriveJob => Parts::of(vec![ok::<JobView>(schemas, "The job, queued again.")]),
        Route::ClaimJobs => Parts::of(vec![ok::<ClaimedList>(
            schemas,
            "The claimed jobs; none, if there are none.",
        )])
        .taking(schema::<Claim>(schemas), "What to claim. Without a body, one job.", false),
        Route::AckJobs => ends(schemas).taking(schema::<Ack>(schemas), "The jobs that are done.", true),
        Route::NackJobs => ends(schemas).taking(schema::<Nack>(schemas), "The jobs that failed.", true),
        Route::ExtendJobs => ends(schemas).taking(schema::<Extend>(schemas), "The leases to extend.", true),
        Route::ListDead => {
            let limit = json!({ "type": "integer", "minimum": 1, "maximum": 100, "default": 50 });
            Parts::of(vec![ok::<JobList>(schemas, "A page of dead letters, without their bodies.")]).with(
                vec![
                    query("limit", "How many dead letters.", limit),
                    query("cursor", "The `next` of the previous page.", json!({ "type": "string" })),
                ],
            )
        }
        Route::RedriveJobs => Parts::of(vec![begun("The redrive has begun.")]).taking(
            schema::<Redrive>(schemas),
            "Which dead letters. Without a body, all of them.",
            false,
        ),
        _ => Parts::of(Vec::new()),
    }
}

fn ends(schemas: &mut SchemaGenerator) -> Parts {
    Parts::of(vec![ok::<LeaseList>(schemas, "What became of each lease.")])
}

fn begun(what: &'static str) -> (u16, &'static str, &'static str, Value) {
    (202, what, "application/json", json!({ "type": "object" }))
}

/// What a request says in its query if its body is that of the job.
fn raw_options() -> Vec<Value> {
    let of = |name: &str, schema: Value| {
        query(name, "As in a job. Only if the request's body is that of the job.", schema)
    };
    vec![
        key(),
        of("delay_ms", json!({ "type": "integer", "minimum": 0 })),
        of("priority", json!({ "type": "integer", "minimum": 0, "maximum": 9 })),
        of("group", json!({ "type": "string" })),
        of("dedupe_id", json!({ "type": "string" })),
    ]
}
