//! Events that become jobs of queues.

use serde_json::json;
use stepwell_protocol::{Code, Problem, topic::TriggerSpec};

use super::{StartEnd, World, event, on};
use crate::{object::Machine as _, topic::check_trigger};

fn to(queue: &str) -> TriggerSpec {
    let (queue, tags) = (Some(queue.to_owned()), Vec::new());
    TriggerSpec { workflow: String::new(), queue, tags, ..on("order/*", None) }
}

#[test]
fn an_event_becomes_one_job_of_each_queue_and_starts_runs_beside_them() {
    let mut world = World::new();
    world.put("mails", to("mails")).expect("it is stored");
    world.put("stock", to("stock")).expect("it is stored");
    world.put("charge", on("order/*", None)).expect("it is stored");
    world.send("a", vec![event("order/paid", None, &json!({ "id": 7 }))]);
    let asked = world.orders();
    let queues: Vec<_> = asked.iter().map(|start| start.queue.as_deref()).collect();
    assert_eq!(queues, [None, Some("mails"), Some("stock")]);
    let places: std::collections::BTreeSet<_> = asked.iter().map(|start| start.to.to_string()).collect();
    assert_eq!(places.len(), 3, "each queue stands beside the cells");
    assert!(asked.iter().all(|start| start.input.text() == r#"{"id":7}"#));
    for start in asked {
        let end = if start.queue.is_some() { StartEnd::Sent } else { StartEnd::Started(world.start(&start)) };
        world.answer(&start, end);
    }
    let mails = world.trigger("mails");
    assert_eq!((mails.counts.started, mails.counts.waiting), (1, 0));
    assert!(mails.last.is_some_and(|last| last.run.is_none()));
    assert!(world.trigger("charge").last.is_some_and(|last| last.run.is_some()));
}

#[test]
fn a_queue_that_declines_keeps_its_events_and_gets_each_once_it_takes_jobs() {
    let mut world = World::new();
    world.put("mails", to("mails")).expect("it is stored");
    for number in 0..5 {
        world.send(&number.to_string(), vec![event("order/paid", None, &json!(number))]);
    }
    let mut sent = Vec::new();
    for round in 0..40 {
        loop {
            let asked = world.orders();
            if asked.is_empty() {
                break;
            }
            for start in asked {
                let problem = Problem::new(Code::LimitReached, "The queue is full.");
                if round >= 20 {
                    sent.push(start.input.text().to_owned());
                }
                world.answer(&start, if round < 20 { StartEnd::Declined(problem) } else { StartEnd::Sent });
            }
        }
        world.later(30_000);
        world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
    }
    sent.sort();
    assert_eq!(sent, ["0", "1", "2", "3", "4"]);
    assert_eq!(world.trigger("mails").counts.waiting, 0);
}

#[test]
fn a_trigger_that_changes_its_target_asks_the_new_one_for_what_waits() {
    let mut world = World::new();
    world.put("a", to("mails")).expect("it is stored");
    world.send("1", vec![event("order/paid", None, &json!(1))]);
    let asked = world.orders();
    world.put("a", on("order/*", None)).expect("it is stored");
    world.answer(&asked[0], StartEnd::Failed);
    world.later(1_500);
    world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
    let [start] = &world.orders()[..] else { panic!("it is asked for again") };
    assert_eq!((start.queue.as_deref(), start.to.pool.as_str()), (None, "default"));
    world.put("a", to("mails")).expect("it is stored");
    world.answer(start, StartEnd::Failed);
    world.later(5_000);
    world.topic.alarm(&world.rows, world.now).expect("the rows can be read");
    let [start] = &world.orders()[..] else { panic!("it is asked for again") };
    assert_eq!((start.queue.as_deref(), start.to.pool.as_str()), (Some("mails"), "queue mails"));
}

#[test]
fn a_trigger_has_a_workflow_or_a_queue() {
    let wrong = [
        TriggerSpec { workflow: "charge".into(), ..to("mails") },
        TriggerSpec { tags: vec!["a".into()], ..to("mails") },
        TriggerSpec { queue: None, ..to("mails") },
        to("stepwell.webhooks"),
        to("a b"),
    ];
    for spec in wrong {
        assert!(check_trigger("order", &spec).is_err(), "{spec:?}");
    }
    assert!(check_trigger("order", &to("mails")).is_ok());
}
