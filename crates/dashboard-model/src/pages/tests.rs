use stepwell_protocol::access::SessionView;

use super::*;
use crate::{
    form::Action,
    sheet::{Body, Section},
};

const WORKFLOW: &str = r#"{"name":"greet","timeout_ms":60000,"input_schema":{"type":"string"},
    "flow":{"limits":[{"max":2,"key":"input.customer"}]},"status":"active","effective":{"timeout_ms":60000}}"#;

const RUN: &str = r#"{"id":"default-1-3-1-bvyaw3bemryy","workflow":"greet","status":"failed","created_at":5,
    "error":{"message":"boom"},"head":3,"activations":1,"tags":["event:order/7"],"started_by":"schedule:nightly"}"#;

const SCHEDULE: &str = r#"{"id":"nightly","spec":{"workflow":"greet","when":"every 5 minutes","input":"Ada"},
    "created_at":1,"changed_at":2,"changed_by":"root","next_tick":9,"counts":{"started":3,"skipped":0,"missed":0,
    "refused":0,"failures":0}}"#;

const LANE: &str = r#"{"runs":[{"run":"default-1-3-1-bvyaw3bemryy","since":3,"limits":[{"max":2}]},
    {"run":"default-1-3-2-bvyaw3bemryy","since":4,"limits":[{"max":2}],"waits_for":{"by":"input.customer","key":"acme","max":2}}],
    "set":[{"by":"input.customer","key":"acme","max":2,"set_by":"root","set_at":3}]}"#;

const TRIGGER: &str = r#"{"topic":"order","id":"t","spec":{"on":"order/*","workflow":"greet"},"created_at":1,"changed_at":1,
    "changed_by":"root","counts":{"started":1,"refused":0,"failed":0,"waiting":0},
    "failures":[{"event":"evt_1","at":3,"why":"no field"}]}"#;

const EVENT: &str = r#"{"id":"evt_1","name":"order/paid","at":3,"data":{"id":7},"tag":"event:order/7",
    "source":"run:default-1-3-1-bvyaw3bemryy","waits":[{"run":"default-1-3-1-bvyaw3bemryy","wait":"wait:0:event:order/paid"}]}"#;

const WEBHOOK: &str = r#"{"topic":"order","id":"shop","url":"https://x/api/hooks/default/order/shop-1","spec":{"kind":"hmac",
    "event":"order/{body.type}","header":"x-sign"},"created_at":1,"changed_at":1,"changed_by":"root"}"#;

const DELIVERY: &str = r#"{"id":4,"at":3,"status":"accepted","is_verified":true,"event":"evt_1","headers":[["a","b"]],"body":"{}"}"#;

const QUEUE: &str = r#"{"name":"mails","settings":{"made_at":1,"revision":1,"state":"active","partitions":1,"keyed_partitions":1,
    "visibility_ms":30000,"max_attempts":5,"retention_ms":86400000,"dead_retention_ms":86400000,"dedupe_ms":86400000,
    "push":{"url":"https://x"}},"counts":{"depth":2,"delayed":0,"in_flight":0,"dead":1,"oldest":5}}"#;

const JOB: &str = r#"{"id":"18bcfe56800-0-1","status":"dead","attempts":5,"sent_at":1,"priority":0,"size":9,"body":{"to":"ada"},
    "death":{"code":"attempts","at":4,"reason":"no such address"}}"#;

const ALERT: &str = r#"{"id":"fails","on":"failures","workflow":"greet","above_percent":10,"at_least":5,"minutes":10,
    "url":"https://ops.example.com/","for_minutes":5,"state":"firing","since":3,"value":37,"by":"root"}"#;

const KEY: &str = r#"{"id":"00jmmvwm","name":"ci","environment":"live","scopes":["read"],"status":"active","created_at":1,
    "created_by":"root"}"#;

const SESSION: &str =
    r#"{"id":"s1","namespace":"default","subject":"root","scopes":["admin"],"created_at":1,"expires_at":9}"#;

const LETTER: &str = r#"{"letter":"default-1-3-17","posted_at":3,"dead":true,"what":"start","from":"default-1-3-9-0123456789ab",
    "to":"cell/default/default-1-7"}"#;

const SETTINGS: &str =
    r#"{"limits":{"live_runs":9},"runs":{"retention_ms":0},"workflows":{"greet":{"timeout_ms":60000}}}"#;

/// What the API answers; paths that are not here are refused.
fn answers() -> Vec<(&'static str, String)> {
    let list = |name: &str, one: &str| format!(r#"{{"{name}":[{one}]}}"#);
    vec![
        ("/api/workflows", list("workflows", WORKFLOW)),
        ("/api/workflows/greet", WORKFLOW.into()),
        ("/api/workflows/greet/lane", LANE.into()),
        (
            "/api/metrics",
            r#"{"total":3,"statuses":{"failed":3},"workflows":{"greet":{"failed":3}},"complete":true}"#
                .into(),
        ),
        ("/api/executions", list("executions", RUN)),
        ("/api/schedules", list("schedules", SCHEDULE)),
        ("/api/schedules/nightly", SCHEDULE.into()),
        ("/api/schedules/nightly/next", r#"{"ticks":[9,10]}"#.into()),
        ("/api/triggers", list("triggers", TRIGGER)),
        ("/api/triggers/order/t", TRIGGER.into()),
        ("/api/events", list("events", EVENT)),
        ("/api/events/order/evt_1", EVENT.into()),
        ("/api/webhooks", list("webhooks", WEBHOOK)),
        ("/api/webhooks/order/shop", WEBHOOK.into()),
        ("/api/webhooks/order/shop/deliveries", list("deliveries", DELIVERY)),
        ("/api/webhooks/order/shop/deliveries/4", DELIVERY.into()),
        ("/api/lanes", r#"{"lanes":["asks"]}"#.into()),
        ("/api/topics", r#"{"topics":["order"]}"#.into()),
        ("/api/lanes/asks", LANE.into()),
        ("/api/queues", r#"{"queues":["mails"]}"#.into()),
        ("/api/queues/mails", QUEUE.into()),
        ("/api/queues/mails/dead", list("jobs", JOB)),
        ("/api/queues/mails/jobs/18bcfe56800-0-1", JOB.into()),
        ("/api/outbox", format!(r#"{{"messages":[{LETTER},{LETTER}],"complete":true}}"#)),
        ("/api/metrics/minutes", r#"{"minutes":[{"at":0,"started":1}],"complete":true}"#.into()),
        (
            "/api/metrics/workflows",
            r#"{"workflows":[{"workflow":"greet","totals":{"started":3,"rows":33},"p50_ms":66,"dollars":0.00003615}],"complete":true}"#
                .into(),
        ),
        ("/api/failures", format!(r#"{{"failures":[{FAILURE}],"complete":true}}"#)),
        ("/api/cells", format!(r#"{{"cells":[{CELL}],"unanswered":["default-1-1"]}}"#)),
        ("/api/alerts", list("alerts", ALERT)),
        ("/api/keys", list("keys", KEY)),
        ("/api/sessions", list("sessions", SESSION)),
        ("/api/session", SESSION.into()),
        ("/api/settings", SETTINGS.into()),
        (
            "/api/audit",
            list("records", r#"{"seq":1,"at":3,"actor":"root","action":"key_created","subject":"ci"}"#),
        ),
        ("/api/namespaces", list("namespaces", r#"{"name":"acme","created_at":1}"#)),
        ("/api/namespaces/acme", SETTINGS.into()),
    ]
}

const FAILURE: &str = r#"{"id":"b7ad","workflow":"greet","code":"step_timed_out","step":"charge","message":"card <n> was declined",
    "count":1214,"first_at":1,"last_at":9,"runs":["default-1-3-1-bvyaw3bemryy"]}"#;

const CELL: &str = r#"{"cell":"default-1-0","statuses":{"waiting":1,"completed":2000},"complete":false,"programs":3,
    "due_since":1000,"bytes":850,"bytes_max":1000,"letters":{"waiting":4,"dead":5}}"#;

fn viewer(scopes: &[&str]) -> Viewer {
    let session = SessionView {
        id: "s".into(),
        namespace: "default".into(),
        subject: "root".into(),
        scopes: scopes.iter().map(|scope| scope.parse().expect(scope)).collect(),
        created_at: stepwell_protocol::Timestamp::default(),
        expires_at: stepwell_protocol::Timestamp::MAX,
    };
    Viewer { may: May::of(&session), ..Viewer::default() }
}

/// The page, asked for until it is whole.
fn made(place: &Place, viewer: &Viewer) -> Result<Sheet, Refused> {
    let answers = answers();
    let mut book = Book::default();
    for _ in 0..6 {
        let made = sheet(place, viewer, &mut book);
        let wanted = book.take_wanted();
        if wanted.is_empty() {
            return made.map_err(|stop| match stop {
                Stop::Refused(refused) => refused,
                Stop::Asking => panic!("{place:?} asks for nothing, and is not made"),
            });
        }
        for path in wanted {
            let plain = path.split('?').next().unwrap_or_default();
            let found = answers.iter().find(|(known, _)| *known == plain).map(|(_, text)| text.clone());
            let refused = Refused { status: 404, words: format!("no {path}") };
            book.put(path, found.ok_or(refused));
        }
    }
    panic!("{place:?} asks without end");
}

fn places() -> Vec<Place> {
    vec![
        Place::Workflows,
        Place::workflow("greet"),
        Place::Schedules { after: None },
        Place::Schedule("nightly".into()),
        Place::Topics,
        Place::topic("order"),
        Place::Event("order".into(), "evt_1".into()),
        Place::Trigger("order".into(), "t".into()),
        Place::Webhook("order".into(), "shop".into()),
        Place::Delivery("order".into(), "shop".into(), "4".into()),
        Place::Lanes,
        Place::lane("asks"),
        Place::Queues { after: None },
        Place::queue("mails"),
        Place::Job("mails".into(), "18bcfe56800-0-1".into()),
        Place::Outbox { cursor: None },
        Place::Metrics { workflow: None, minutes: 60 },
        Place::Failures { cursor: None },
        Place::Cells,
        Place::Alerts,
        Place::Keys,
        Place::Sessions,
        Place::Settings,
        Place::Audit { before: None },
        Place::Namespaces,
        Place::Namespace("acme".into()),
    ]
}

fn actions(sheet: &Sheet) -> Vec<Action> {
    let mut actions = sheet.actions.clone();
    let rows = |section: &Section| {
        if let Body::Table(table) = &section.body { table.rows.concat() } else { Vec::new() }
    };
    for section in &sheet.sections {
        actions.extend(section.actions.clone());
        for cell in rows(section) {
            if let Cell::Actions(own) = cell {
                actions.extend(own);
            }
        }
    }
    actions
}

#[test]
fn each_page_can_be_made_and_has_actions_for_those_who_may_do_them() {
    let count = |place: &Place, scope: &str| {
        let sheet =
            made(place, &viewer(&[scope])).unwrap_or_else(|refused| panic!("{place:?}: {}", refused.words));
        actions(&sheet).len()
    };
    for place in places() {
        assert_eq!(count(&place, "read"), 0, "{place:?}");
        assert!(count(&place, "write") <= count(&place, "admin"), "{place:?}");
    }
    let root = Viewer { may: May::root(), ..Viewer::default() };
    let sheet =
        made(&Place::Namespace("acme".into()), &root).unwrap_or_else(|refused| panic!("{}", refused.words));
    assert_eq!(actions(&sheet).len(), 3);
    assert_eq!(count(&Place::Outbox { cursor: None }, "admin"), 2);
    assert_eq!(count(&Place::workflow("greet"), "write"), 1);
    assert_eq!(count(&Place::Schedule("nightly".into()), "write"), 5);
}

#[test]
fn each_action_can_be_sent_as_it_begins_or_says_what_is_missing() {
    for place in places() {
        let sheet = made(&place, &viewer(&["admin"])).expect("it is made");
        for action in actions(&sheet) {
            let values: Vec<_> = action.fields.iter().map(|field| field.value.clone()).collect();
            match action.request(&values, "once") {
                Ok(request) => {
                    assert!(!request.path.contains('{'), "{}", request.path);
                    let body = request.body.as_deref().unwrap_or("null");
                    assert!(
                        serde_json::from_str::<serde_json::Value>(body).is_ok(),
                        "{}: {body}",
                        action.title
                    );
                    assert!(
                        stepwell_protocol::routes::Route::find(
                            request.method,
                            request.path.split('?').next().unwrap_or_default()
                        )
                        .is_some()
                    );
                }
                Err(words) => assert!(words.ends_with("is missing."), "{}: {words}", action.title),
            }
        }
    }
}

#[test]
fn a_key_for_one_workflow_sees_that_one_and_asks_for_nothing_else() {
    let narrow = viewer(&["write:greet"]);
    let mut book = Book::default();
    let mut asked = Vec::new();
    for _ in 0..4 {
        let _ = sheet(&Place::workflow("greet"), &narrow, &mut book);
        let _ = sheet(&Place::Workflows, &narrow, &mut book);
        for path in book.take_wanted() {
            let text = answers().into_iter().find(|(known, _)| path.split('?').next() == Some(known));
            book.put(
                path.clone(),
                text.map(|(_, text)| text).ok_or(Refused { status: 403, words: String::new() }),
            );
            asked.push(path);
        }
    }
    assert!(asked.iter().all(|path| path.contains("greet")), "{asked:?}");
    assert!(made(&Place::workflow("greet"), &narrow).is_ok());
}

/// The only table of a page, or the one with this title.
fn rows(place: &Place, title: &str) -> Vec<Vec<Cell>> {
    let now = stepwell_protocol::Timestamp::from_millis(91_000);
    let sheet = made(place, &Viewer { now, ..viewer(&["read"]) }).expect("it is made");
    let section = sheet.sections.into_iter().find(|section| section.title == title).expect("it is there");
    let Body::Table(table) = section.body else { panic!("it is a table") };
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    table.rows
}

#[test]
fn groups_of_failures_say_how_often_what_and_where() {
    let groups = rows(&Place::Failures { cursor: None }, "");
    assert_eq!(groups[0][0], Cell::Text("1,214".into()));
    assert_eq!(groups[0][3], Cell::Text("charge".into()));
    let error = vec![Cell::Text("card <n> was declined".into()), Cell::Label("step_timed_out".into())];
    assert_eq!(groups[0][4], Cell::Many(error));
    assert_eq!(rows(&Place::workflow("greet"), "Failures"), groups);
}

#[test]
fn cells_say_how_full_they_are_and_what_waits() {
    let cells = rows(&Place::Cells, "");
    assert_eq!(cells[0][1], Cell::State(crate::sheet::Tone::Bad, "85 % full".into()));
    assert_eq!(cells[0][2..4], [Cell::Text("1+".into()), Cell::Text("2,000+".into())]);
    assert_eq!(cells[0][6], Cell::Text("1 m 30 s".into()));
}

#[test]
fn workflows_say_what_they_cost() {
    let workflows = rows(&Place::Metrics { workflow: None, minutes: 60 }, "By workflow");
    assert_eq!(workflows[0][4..6], [Cell::Text("66 ms".into()), Cell::Dim("–".into())]);
    assert_eq!(workflows[0][7], Cell::Text("$0.000036".into()));
}

#[test]
fn an_edited_schedule_is_sent_whole() {
    let sheet = made(&Place::Schedule("nightly".into()), &viewer(&["write"])).expect("it is made");
    let edit = sheet.actions.iter().find(|action| action.label == "Edit").expect("it can be edited");
    let values: Vec<_> = edit.fields.iter().map(|field| field.value.clone()).collect();
    let request = edit.request(&values, "once").expect("it can be sent");
    let sent: stepwell_protocol::schedule::ScheduleSpec =
        serde_json::from_str(request.body.as_deref().unwrap_or_default()).expect("it is a schedule");
    let view: stepwell_protocol::schedule::ScheduleView = serde_json::from_str(SCHEDULE).expect("it is one");
    assert_eq!(sent, view.spec);
    assert_eq!((request.method, request.path.as_str()), ("PUT", "/api/schedules/nightly"));
}
