//! The routes of the REST interface, as plain data.
//!
//! Owns: which routes there are, what they are about, and who may ask them. The engine finds the
//! handler of a request by this table, and whatever is said about routes elsewhere (who is let in, the description for
//! clients, the tests of both) goes through it, so that a route without an entry cannot be.

use crate::{Code, manifest::MANIFEST_BYTES_MAX, program::PAYLOAD_BYTES_MAX, queue::SEND_BYTES_MAX};

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Asks, and changes nothing.
    Get,
    /// Changes something.
    Post,
    /// Puts something in the place of what was there.
    Put,
    /// Changes a part of what is there.
    Patch,
    /// Takes something away.
    Delete,
}

impl Method {
    /// Whether its requests have bodies that are read.
    pub fn has_body(self) -> bool {
        match self {
            Self::Post | Self::Put | Self::Patch => true,
            Self::Get | Self::Delete => false,
        }
    }

    /// As it stands in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What a caller may do. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Nothing: whoever asks is answered, without a key.
    Open,
    /// See runs and workflows.
    Read,
    /// Start runs, and do something to them.
    Write,
    /// Look after the namespace: keys, sessions, settings.
    Admin,
    /// Look after the deployment: its namespaces, their limits, issuers of tokens. Only the deployment's own key may.
    Root,
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A run, by `{id}`.
    Run,
    /// A workflow, by `{workflow}`.
    Workflow,
    /// Neither: it is about all of the namespace, or of the deployment.
    Whole,
    /// Neither: it is about what the caller may see, and any key may ask for it.
    Visible,
    /// Neither: it is about the workflow that the query selects by `workflow`, or about the whole.
    Selected,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its method.
    pub method: Method,
    /// Its path, with parameters such as `{id}`.
    pub path: &'static str,
    /// What its caller must be allowed.
    pub scope: Scope,
    /// What its path names.
    pub subject: Subject,
}

/// What any route may refuse with.
pub const EVERY: [Code; 8] = [
    Code::Unauthorized,
    Code::Forbidden,
    Code::MethodNotAllowed,
    Code::HostNotAllowed,
    Code::NamespaceDeleting,
    Code::LimitReached,
    Code::Misconfigured,
    Code::Internal,
];

/// What any route that reads a body, by `POST`, `PUT` or `PATCH`, may refuse with besides.
pub const OF_BODIES: [Code; 1] = [Code::PayloadTooLarge];

/// The largest body of a route that takes a payload: the payload, and a little around it.
const PAYLOAD_BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 8_192;

/// The largest body of any other route.
const BODY_BYTES_MAX: usize = 65_536;

/// Names each route once, and makes the enum, the list and the table of it.
macro_rules! routes {
    ($($(#[doc = $doc:literal])+ $name:ident: $method:ident $path:literal $scope:ident $subject:ident [$($code:ident)*],)+) => {
        /// A route, by what it does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Route {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Route {
            /// Every route there is.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// What it is called where a client has a function for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it does, in a line.
            pub fn summary(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }

            /// What it may refuse with, besides what [`EVERY`] route may, and those with a body ([`OF_BODIES`]).
            pub fn codes(self) -> &'static [Code] {
                match self {
                    $(Self::$name => &[$(Code::$code),*],)+
                }
            }

            /// Its line of the table, which is data: as code it takes far more room.
            pub fn entry(self) -> Entry {
                const TABLE: &[Entry] = &[$(Entry {
                    method: Method::$method,
                    path: $path,
                    scope: Scope::$scope,
                    subject: Subject::$subject,
                },)+];
                TABLE[self as usize]
            }
        }
    };
}

routes! {
    /// Lists the alerts of the namespace.
    ListAlerts: Get "/api/alerts" Read Whole [],
    /// Shows an alert.
    ShowAlert: Get "/api/alerts/{alert}" Read Whole [AlertNotFound],
    /// Creates an alert, or changes what it watches.
    PutAlert: Put "/api/alerts/{alert}" Admin Whole [InvalidRequest TooMany],
    /// Deletes an alert.
    DeleteAlert: Delete "/api/alerts/{alert}" Admin Whole [AlertNotFound],
    /// Lists the app's workflows.
    ListWorkflows: Get "/api/workflows" Read Whole [AppUnreachable],
    /// Shows a workflow of the app.
    ShowWorkflow: Get "/api/workflows/{workflow}" Read Workflow [WorkflowNotFound AppUnreachable],
    /// Counts runs, by workflow and status.
    ShowMetrics: Get "/api/metrics" Read Selected [InvalidRequest],
    /// Lists what has happened in each of the last minutes, of up to a day: starts, ends, steps, durations.
    ListMinutes: Get "/api/metrics/minutes" Read Selected [InvalidRequest],
    /// Lists what has happened to the runs of each workflow, within the last minutes or ever, and what that costs.
    ListTotals: Get "/api/metrics/workflows" Read Selected [InvalidRequest],
    /// Lists the cells: how many runs each has, how full it is, and what waits in it.
    ListCells: Get "/api/cells" Read Whole [],
    /// Lists failed runs in groups of those that failed alike, also of runs that are deleted. They are kept for 90 days.
    ListFailures: Get "/api/failures" Read Selected [InvalidRequest],
    /// Returns counters, histograms and gauges for Prometheus.
    Scrape: Get "/api/metrics/prometheus" Read Whole [],
    /// Starts a run of a workflow.
    StartRun: Post "/api/workflows/{workflow}/start" Write Workflow
        [InvalidRequest IdempotencyKeyMissing WorkflowNotFound WorkflowPaused IdempotencyKeyInFlight
            IdempotencyKeyReused StartDropped CellFull],
    /// Pauses a workflow: its starts are refused until it is resumed.
    PauseWorkflow: Post "/api/workflows/{workflow}/pause" Admin Workflow
        [InvalidRequest WorkflowNotFound TooMany],
    /// Resumes a paused workflow.
    ResumeWorkflow: Post "/api/workflows/{workflow}/resume" Admin Workflow [InvalidRequest],
    /// Lists the runs of a workflow with limits: those that work, and those that wait.
    ShowLane: Get "/api/workflows/{workflow}/lane" Read Workflow [InvalidRequest],
    /// Sets a limit of a workflow to another number, for all its keys or for one; 0 lets in no run.
    SetLimit: Put "/api/workflows/{workflow}/lane/limit" Admin Workflow
        [InvalidRequest WorkflowNotFound TooMany],
    /// Lists the lanes of steps, by name.
    ListStepLanes: Get "/api/lanes" Read Whole [InvalidRequest],
    /// Lists the steps in a lane: those that work, and those that wait.
    ShowStepLane: Get "/api/lanes/{lane}" Read Whole [InvalidRequest],
    /// Sets a limit of a lane of steps to another number, for all its keys or for one; 0 lets in none.
    SetStepLimit: Put "/api/lanes/{lane}/limit" Admin Whole [InvalidRequest TooMany],
    /// Reads and applies what the app declares, and returns the changes; with `dry_run`, only returns them.
    Sync: Post "/api/sync" Write Whole [InvalidRequest InvalidManifest AppUnreachable],
    /// Lists and finds runs, newest first.
    ListRuns: Get "/api/executions" Read Visible [InvalidRequest],
    /// Cancels, retries or restarts all runs that match a filter. The operation is itself a run.
    StartBulk: Post "/api/bulk" Write Whole
        [InvalidRequest IdempotencyKeyMissing IdempotencyKeyInFlight IdempotencyKeyReused
            CellFull],
    /// Shows a run, or waits for its end.
    ShowRun: Get "/api/executions/{id}" Read Run [InvalidRequest RunNotFound],
    /// Explains what a run is waiting for, and why.
    Why: Get "/api/executions/{id}/why" Read Run [RunNotFound],
    /// Shows the events of a run.
    History: Get "/api/executions/{id}/history" Read Run [InvalidRequest RunNotFound RunUnreadable],
    /// Cancels a run.
    CancelRun: Post "/api/executions/{id}/cancel" Write Run [RunNotFound RunEnded RunUnreadable],
    /// Pauses a run.
    PauseRun: Post "/api/executions/{id}/pause" Write Run [RunNotFound RunEnded RunUnreadable],
    /// Resumes a paused run.
    ResumeRun: Post "/api/executions/{id}/resume" Write Run [RunNotFound RunEnded RunUnreadable],
    /// Continues a failed run from the step that failed.
    RetryRun: Post "/api/executions/{id}/retry" Write Run [RunNotFound WrongStatus TooMany RunUnreadable],
    /// Continues a run from an earlier step.
    RestartRun: Post "/api/executions/{id}/restart" Write Run
        [InvalidRequest RunNotFound StepNotFound SignalNotFound WrongStatus TooMany RunUnreadable],
    /// Sends a signal to a run.
    SendSignal: Post "/api/executions/{id}/signals/{name}" Write Run
        [InvalidRequest RunNotFound RunEnded RunUnreadable SignalMismatch TooManySignals CellFull],
    /// Makes a link that completes a wait of a run once, without a key.
    CreateToken: Post "/api/executions/{id}/tokens" Write Run
        [InvalidRequest RunNotFound RunEnded RunUnreadable WaitNotFound UrlMissing],
    /// Shows what a wait token is about. Completes nothing.
    ShowToken: Get "/api/tokens/{token}" Open Whole [TokenNotFound TokenExpired TokenRevoked RunUnreadable],
    /// Completes a wait token. A repeat changes nothing.
    CompleteToken: Post "/api/tokens/{token}" Open Whole
        [InvalidRequest TokenNotFound TokenExpired TokenRevoked RunUnreadable SignalMismatch TooManySignals
            CellFull],
    /// Shows the run that an idempotency key started, or waits for its end.
    ShowRunByKey: Get "/api/workflows/{workflow}/by-key/{key}" Read Workflow [InvalidRequest RunNotFound],
    /// Cancels the run that an idempotency key started.
    CancelRunByKey: Post "/api/workflows/{workflow}/by-key/{key}/cancel" Write Workflow
        [InvalidRequest RunNotFound RunEnded RunUnreadable],
    /// Sends a signal to the run that an idempotency key started.
    SendSignalByKey: Post "/api/workflows/{workflow}/by-key/{key}/signals/{name}" Write Workflow
        [InvalidRequest RunNotFound RunEnded RunUnreadable SignalMismatch TooManySignals CellFull],
    /// Follows a run: its events so far, then live events until it ends.
    FollowRun: Get "/api/executions/{id}/stream" Read Run [InvalidRequest RunNotFound RunUnreadable],
    /// Follows the statuses of all runs.
    FollowAll: Get "/api/stream" Read Selected [InvalidRequest],
    /// Describes these routes for programs, as OpenAPI 3.1.
    ShowApi: Get "/api/openapi.json" Open Whole [],
    /// Describes these routes for people.
    ShowDocs: Get "/api/docs" Open Whole [],
    /// Checks that the engine answers.
    ShowHealth: Get "/api/health" Open Whole [],
    /// Lists the namespace's keys.
    ListKeys: Get "/api/keys" Admin Whole [],
    /// Creates a key. Its text is shown only once.
    CreateKey: Post "/api/keys" Admin Whole [InvalidRequest TooMany],
    /// Rotates a key. The old key stays active for the overlap.
    RotateKey: Post "/api/keys/{key}/rotate" Admin Whole [InvalidRequest KeyNotFound WrongStatus TooMany],
    /// Revokes a key.
    RevokeKey: Post "/api/keys/{key}/revoke" Admin Whole [KeyNotFound],
    /// Shows who is signed in.
    ShowSession: Get "/api/session" Read Visible [WrongStatus],
    /// Signs in with a key, and returns a session as a token and a cookie.
    OpenSession: Post "/api/session" Read Visible [WrongStatus TooMany],
    /// Signs out.
    EndSession: Delete "/api/session" Read Visible [],
    /// Lists the namespace's sessions.
    ListSessions: Get "/api/sessions" Admin Whole [],
    /// Ends any session of the namespace.
    RevokeSession: Delete "/api/sessions/{session}" Admin Whole [KeyNotFound],
    /// Shows the settings and limits of the namespace.
    ShowSettings: Get "/api/settings" Read Whole [],
    /// Sets the settings for all runs of the namespace.
    SetSettings: Put "/api/settings" Admin Whole [InvalidRequest],
    /// Sets the settings for runs of a workflow.
    SetWorkflowSettings: Put "/api/settings/workflows/{workflow}" Admin Workflow [InvalidRequest TooMany],
    /// Removes the settings of a workflow.
    RemoveWorkflowSettings: Delete "/api/settings/workflows/{workflow}" Admin Workflow [],
    /// Lists messages between runs that have not arrived.
    ListOutbox: Get "/api/outbox" Admin Whole [InvalidRequest],
    /// Sends a letter of the outbox again, including a dead one.
    Redeliver: Post "/api/outbox/{letter}/redeliver" Admin Whole [LetterNotFound],
    /// Deletes a dead letter of the outbox.
    Discard: Delete "/api/outbox/{letter}" Admin Whole [LetterNotFound WrongStatus],
    /// Lists the namespace's schedules, by their ids.
    ListSchedules: Get "/api/schedules" Read Whole [InvalidRequest],
    /// Shows a schedule.
    ShowSchedule: Get "/api/schedules/{schedule}" Read Whole [ScheduleNotFound],
    /// Makes a schedule, or changes it.
    PutSchedule: Put "/api/schedules/{schedule}" Write Whole [InvalidRequest WorkflowNotFound TooMany],
    /// Deletes a schedule. Its runs continue.
    DeleteSchedule: Delete "/api/schedules/{schedule}" Write Whole [ScheduleNotFound WrongStatus],
    /// Lets a schedule tick no more until it is resumed.
    PauseSchedule: Post "/api/schedules/{schedule}/pause" Write Whole [ScheduleNotFound WrongStatus],
    /// Lets a paused schedule tick again.
    ResumeSchedule: Post "/api/schedules/{schedule}/resume" Write Whole
        [InvalidRequest ScheduleNotFound WrongStatus],
    /// Starts a run of a schedule now.
    TriggerSchedule: Post "/api/schedules/{schedule}/trigger" Write Whole
        [InvalidRequest ScheduleNotFound TooMany WrongStatus],
    /// Starts the ticks of a range again.
    BackfillSchedule: Post "/api/schedules/{schedule}/backfill" Write Whole
        [InvalidRequest ScheduleNotFound WrongStatus],
    /// Shows when a schedule ticks next.
    NextTicks: Get "/api/schedules/{schedule}/next" Read Whole [InvalidRequest ScheduleNotFound],
    /// Sends one event, or several.
    SendEvents: Post "/api/events" Write Whole [InvalidRequest TooMany],
    /// Lists the topics of events, by name.
    ListTopics: Get "/api/topics" Read Whole [InvalidRequest],
    /// Lists the events of a topic, newest first.
    ListEvents: Get "/api/events" Read Whole [InvalidRequest],
    /// Shows an event.
    ShowEvent: Get "/api/events/{topic}/{event}" Read Whole [EventNotFound],
    /// Lists the triggers of a topic, by their ids.
    ListTriggers: Get "/api/triggers" Read Whole [InvalidRequest],
    /// Shows a trigger.
    ShowTrigger: Get "/api/triggers/{topic}/{trigger}" Read Whole [TriggerNotFound],
    /// Makes a trigger, or changes it.
    PutTrigger: Put "/api/triggers/{topic}/{trigger}" Write Whole [InvalidRequest WorkflowNotFound TooMany],
    /// Deletes a trigger. Its runs continue.
    DeleteTrigger: Delete "/api/triggers/{topic}/{trigger}" Write Whole [TriggerNotFound],
    /// Pauses a trigger: events start no runs until it is resumed.
    PauseTrigger: Post "/api/triggers/{topic}/{trigger}/pause" Write Whole [TriggerNotFound],
    /// Resumes a paused trigger.
    ResumeTrigger: Post "/api/triggers/{topic}/{trigger}/resume" Write Whole [TriggerNotFound],
    /// Lists the webhooks of a topic, by their ids.
    ListWebhooks: Get "/api/webhooks" Read Whole [InvalidRequest],
    /// Shows a webhook, without its secret.
    ShowWebhook: Get "/api/webhooks/{topic}/{webhook}" Read Whole [WebhookNotFound],
    /// Makes a webhook, or changes it.
    PutWebhook: Put "/api/webhooks/{topic}/{webhook}" Admin Whole [InvalidRequest TooMany],
    /// Deletes a webhook and its deliveries. Its events stay.
    DeleteWebhook: Delete "/api/webhooks/{topic}/{webhook}" Admin Whole [WebhookNotFound],
    /// Lists the latest deliveries of a webhook, newest first.
    ListDeliveries: Get "/api/webhooks/{topic}/{webhook}/deliveries" Read Whole [WebhookNotFound],
    /// Shows a delivery, with its body.
    ShowDelivery: Get "/api/webhooks/{topic}/{webhook}/deliveries/{delivery}" Read Whole [WebhookNotFound],
    /// Makes an event of a delivery again.
    RedeliverWebhook: Post "/api/webhooks/{topic}/{webhook}/deliveries/{delivery}/redeliver" Write Whole
        [InvalidRequest WebhookNotFound WebhookRefused TooMany WrongStatus],
    /// Receives a delivery of a webhook. A repeat changes nothing.
    ReceiveWebhook: Post "/api/hooks/{namespace}/{topic}/{hook}" Open Whole
        [InvalidRequest WebhookNotFound WebhookRefused TooMany WrongStatus],
    /// Lists the namespace's queues, by their names.
    ListQueues: Get "/api/queues" Read Whole [InvalidRequest],
    /// Shows the settings of a queue and counts its jobs.
    ShowQueue: Get "/api/queues/{queue}" Read Whole [QueueNotFound],
    /// Creates a queue, or changes some of its settings.
    SetQueue: Patch "/api/queues/{queue}" Admin Whole [InvalidRequest QueueClosed WrongStatus],
    /// Deletes a queue. With `purge`, also if it has jobs.
    DeleteQueue: Delete "/api/queues/{queue}" Admin Whole [InvalidRequest QueueNotFound WrongStatus],
    /// Shows the secret that signs the jobs of a queue when they are pushed to an address.
    ShowQueueSecret: Get "/api/queues/{queue}/secret" Admin Whole [QueueNotFound WrongStatus],
    /// Pauses a queue: consumers get no jobs until it is resumed.
    PauseQueue: Post "/api/queues/{queue}/pause" Admin Whole [QueueNotFound QueueClosed],
    /// Drains a queue: it accepts no jobs until it is resumed.
    DrainQueue: Post "/api/queues/{queue}/drain" Admin Whole [QueueNotFound QueueClosed],
    /// Resumes a paused or draining queue.
    ResumeQueue: Post "/api/queues/{queue}/resume" Admin Whole [QueueNotFound QueueClosed],
    /// Deletes the jobs that are queued, or the dead letters. Jobs that consumers hold stay.
    PurgeQueue: Post "/api/queues/{queue}/purge" Admin Whole [InvalidRequest QueueNotFound],
    /// Sends one job, or up to 1,000.
    SendJobs: Post "/api/queues/{queue}/jobs" Write Whole
        [InvalidRequest QueueNotFound QueueClosed IdempotencyKeyReused],
    /// Shows a job with its body.
    ShowJob: Get "/api/queues/{queue}/jobs/{job}" Read Whole [QueueNotFound JobNotFound],
    /// Gives a dead letter another body.
    EditJob: Put "/api/queues/{queue}/jobs/{job}" Write Whole
        [InvalidRequest QueueNotFound JobNotFound WrongStatus],
    /// Deletes a dead letter.
    DiscardJob: Delete "/api/queues/{queue}/jobs/{job}" Admin Whole [QueueNotFound JobNotFound WrongStatus],
    /// Queues a dead letter again.
    RedriveJob: Post "/api/queues/{queue}/jobs/{job}/redrive" Write Whole
        [QueueNotFound JobNotFound WrongStatus],
    /// Claims jobs: the caller holds them until their leases end.
    ClaimJobs: Post "/api/queues/{queue}/claim" Write Whole [InvalidRequest QueueNotFound],
    /// Marks claimed jobs as done.
    AckJobs: Post "/api/queues/{queue}/ack" Write Whole [InvalidRequest QueueNotFound],
    /// Gives back claimed jobs that failed.
    NackJobs: Post "/api/queues/{queue}/nack" Write Whole [InvalidRequest QueueNotFound],
    /// Extends the leases of claimed jobs.
    ExtendJobs: Post "/api/queues/{queue}/extend" Write Whole [InvalidRequest QueueNotFound],
    /// Lists dead letters, without their bodies.
    ListDead: Get "/api/queues/{queue}/dead" Read Whole [InvalidRequest QueueNotFound],
    /// Queues dead letters again: all of them, or those that match a filter.
    RedriveJobs: Post "/api/queues/{queue}/redrive" Write Whole [InvalidRequest QueueNotFound],
    /// Shows who did what in the namespace, newest first.
    Audit: Get "/api/audit" Admin Whole [InvalidRequest],
    /// Lists the deployment's namespaces.
    ListNamespaces: Get "/api/namespaces" Root Whole [],
    /// Creates a namespace and its first key.
    CreateNamespace: Post "/api/namespaces" Root Whole [InvalidRequest NamespaceExists TooMany],
    /// Shows the settings and limits of a namespace, and the progress of its deletion.
    ShowNamespace: Get "/api/namespaces/{namespace}" Root Whole [NamespaceNotFound],
    /// Deletes a namespace and everything in it.
    DeleteNamespace: Delete "/api/namespaces/{namespace}" Root Whole [InvalidRequest NamespaceNotFound],
    /// Creates a key for a namespace.
    CreateNamespaceKey: Post "/api/namespaces/{namespace}/keys" Root Whole
        [InvalidRequest NamespaceNotFound TooMany],
    /// Sets the limits of a namespace.
    SetLimits: Put "/api/namespaces/{namespace}/limits" Root Whole [InvalidRequest NamespaceNotFound],
    /// Lists the issuers whose tokens are accepted.
    ListIssuers: Get "/api/issuers" Root Whole [],
    /// Adds or replaces an issuer whose tokens are accepted.
    SetIssuer: Put "/api/issuers" Root Whole [InvalidRequest TooMany],
    /// Removes an issuer.
    RemoveIssuer: Delete "/api/issuers" Root Whole [InvalidRequest],
}

/// Whether a path has a part that means this folder or the one above it, written in any way that readers of addresses
/// understand. None of our names is one, and what a reader makes of such a path is another address.
pub fn has_dot_segment(path: &str) -> bool {
    path.split(['/', '\\']).any(|part| {
        let plain = part.replace("%2e", ".").replace("%2E", ".");
        plain == "." || plain == ".."
    })
}

impl Route {
    /// The route of a method and a path, as requests have them. Static segments go before parameters. Whoever asks for
    /// the head alone is answered by the route that has the whole, and needs the same for it.
    pub fn find(method: &str, path: &str) -> Option<Self> {
        let method = if method == "HEAD" { Method::Get.as_str() } else { method };
        let fitting = Self::ALL.iter().copied().filter(|route| {
            let entry = route.entry();
            entry.method.as_str() == method && fits(entry.path, path)
        });
        fitting.min_by_key(|route| route.entry().path.matches('{').count())
    }

    /// The largest body that it reads, in bytes.
    pub fn body_bytes_max(self) -> usize {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a route that takes much says so")]
        match self {
            Self::StartRun
            | Self::SendSignal
            | Self::SendSignalByKey
            | Self::SendEvents
            | Self::ReceiveWebhook => PAYLOAD_BODY_BYTES_MAX,
            Self::Sync => MANIFEST_BYTES_MAX,
            Self::SendJobs | Self::EditJob => SEND_BYTES_MAX,
            _ => BODY_BYTES_MAX,
        }
    }

    /// Whether the catalog says that the caller may, before the body is read and anything else is asked: its body is large,
    /// is read by Stepwell itself, and few may send one.
    pub fn is_checked_first(self) -> bool {
        matches!(self, Self::Sync | Self::SendJobs | Self::EditJob)
    }

    /// The methods that a path takes; none, if no route has it.
    pub fn methods(path: &str) -> Vec<Method> {
        let fitting = Self::ALL.iter().map(|route| route.entry()).filter(|entry| fits(entry.path, path));
        fitting.map(|entry| entry.method).collect()
    }
}

/// Whether a path has a pattern's form. Most patterns begin otherwise, which is seen at once.
fn fits(pattern: &str, path: &str) -> bool {
    if !pattern
        .bytes()
        .zip(path.bytes())
        .take_while(|(wanted, _)| *wanted != b'{')
        .all(|(wanted, given)| wanted == given)
    {
        return false;
    }
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() => {}
            (Some(wanted), Some(given)) if wanted == given => {}
            (Some(_) | None, Some(_) | None) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_told_from_names_with_dots() {
        for path in
            ["/api/namespaces/%2e%2E/keys", "/api/x/../keys", "/api/./x", "..", "/api/a\\..\\b", "/.%2e"]
        {
            assert!(has_dot_segment(path), "{path}");
        }
        for path in ["", "/api/schedules/a.b", "/api/x/...", "/api/..x/y.", "/api/%2e%2ex"] {
            assert!(!has_dot_segment(path), "{path}");
        }
    }

    #[test]
    fn each_route_is_found_by_its_own_method_and_path_only() {
        let mut seen = BTreeSet::new();
        for route in Route::ALL {
            let Entry { method, path, .. } = route.entry();
            assert!(seen.insert((method, path)), "{path} is twice in the table");
            let concrete = path.replace("{id}", "default-1-3-1-bvyaw3bemryy").replace(['{', '}'], "");
            assert_eq!(Route::find(method.as_str(), &concrete), Some(*route));
            assert_eq!(
                Route::find("PATCH", &concrete).is_some(),
                Route::methods(&concrete).contains(&Method::Patch)
            );
            assert_eq!(Route::find("get", &concrete), None);
            assert!(Route::methods(&concrete).contains(&method), "{path}");
            assert_eq!(Route::find(method.as_str(), &format!("{concrete}/")), None);
        }
        assert_eq!(Route::find("GET", "/api/executions/"), None);
        assert_eq!(Route::find("POST", "/api/keys//revoke"), None);
        assert_eq!(Route::find("GET", "/"), None);
        for path in ["/", "/api/executions/", "/api//keys", "/api/x/../keys", "/api/workflows//start"] {
            assert_eq!(Route::methods(path), [], "{path}");
        }
    }

    #[test]
    fn whatever_reads_a_large_body_that_stepwell_looks_into_is_checked_first() {
        for route in Route::ALL {
            let is_payload = route.body_bytes_max() == PAYLOAD_BODY_BYTES_MAX;
            let is_large = route.body_bytes_max() > BODY_BYTES_MAX;
            assert_eq!(route.is_checked_first(), is_large && !is_payload, "{}", route.name());
        }
    }

    #[test]
    fn whoever_asks_only_for_the_head_needs_what_the_whole_takes() {
        for route in Route::ALL {
            let Entry { method, path, .. } = route.entry();
            let concrete = path.replace(['{', '}'], "");
            let found = Route::find("HEAD", &concrete);
            if method == Method::Get {
                assert_eq!(found, Some(*route));
            } else {
                assert!(found.is_none_or(|found| found.entry().method == Method::Get), "{path}");
            }
        }
    }

    #[test]
    fn a_path_names_what_its_entry_says() {
        for route in Route::ALL {
            let Entry { method, path, subject, scope } = route.entry();
            let (summary, codes) = (route.summary(), route.codes());
            assert_eq!(path.contains("{id}"), subject == Subject::Run, "{path}");
            assert_eq!(path.contains("{workflow}"), subject == Subject::Workflow, "{path}");
            // A session is about oneself, a token is a credential of its own, and a delivery is signed.
            let without_key =
                ["/api/session", "/api/tokens/{token}", "/api/hooks/{namespace}/{topic}/{hook}"];
            let is_about_oneself = without_key.contains(&path);
            assert!(
                method == Method::Get || scope >= Scope::Write || is_about_oneself,
                "{path} changes something"
            );
            assert!(summary.ends_with('.') && !summary.contains('\n'), "{path}: {summary}");
            assert!(codes.iter().all(|code| !EVERY.contains(code)), "{path} says what all routes say");
            assert!(
                codes.iter().all(|code| !OF_BODIES.contains(code)),
                "{path} says what all bodies are refused with"
            );
        }
    }
}
