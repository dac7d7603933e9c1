//! Jobs that workflows send.

use stepwell::{prelude::*, testing::Test};
use stepwell_protocol::rest::Status;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Mail {
    to: String,
}

#[workflow]
async fn invite(ctx: Ctx, people: Vec<String>) -> Result<usize> {
    for to in &people {
        ctx.step("look up", async || Ok(())).await?;
        ctx.send("mails", &Mail { to: to.clone() }).priority(3).group("acme").await?;
    }
    let reminder = ctx.send("reminders", &people).delay("3 days").dedupe_id("once");
    let (sent, looked) = futures::join!(reminder, ctx.step("look again", async || Ok(people.len())));
    sent?;
    looked
}

#[workflow]
async fn careless(ctx: Ctx, queue: String) -> Result<String> {
    match ctx.send(queue, &1).await {
        Ok(()) => Ok("sent".into()),
        Err(error) => Ok(error.to_string()),
    }
}

fn test() -> Test {
    Test::new(App::new().workflow(invite).workflow(careless))
}

#[test]
fn each_job_is_sent_once_wherever_the_run_dies() {
    let people = ["ada".to_owned(), "grace".to_owned()];
    let outcome = test().crash_everywhere("invite", &people);
    assert_eq!(outcome.output::<usize>(), 2);
    let mails = people.iter().map(|to| Mail { to: to.clone() }).collect::<Vec<_>>();
    assert_eq!(outcome.sent::<Mail>("mails"), mails);
    assert_eq!(outcome.sent::<Vec<String>>("reminders"), [people]);
    assert!(outcome.sent::<Mail>("other").is_empty());
}

#[job(queue = "receipts", on = "order/paid", when = "event.data > 100")]
async fn receipt(job: Job<u64>) -> Result<()> {
    std::future::ready(()).await;
    if job.body > 100 { Ok(()) } else { Err(Error::msg("too small")) }
}

#[test]
fn a_handler_declares_the_events_that_become_its_jobs() {
    let app = || App::new().workflow(careless).job(receipt);
    let manifest = app().manifest();
    let [trigger] = &manifest.triggers[..] else { panic!("{:?}", manifest.triggers) };
    assert_eq!((trigger.name.as_str(), trigger.spec.on.as_str()), ("receipts", "order/paid"));
    assert_eq!(trigger.spec.queue.as_deref(), Some("receipts"));
    assert_eq!(trigger.spec.when.as_deref(), Some("event.data > 100"));
    assert!(Test::new(app()).triggered_by("order/paid", &120).is_empty(), "it starts no run");
}

#[test]
fn a_name_that_is_far_too_long_is_an_error_that_the_workflow_sees() {
    let outcome = test().run("careless", &"q".repeat(300));
    assert!(outcome.output::<String>().contains("no queue"), "{}", outcome.output::<String>());
}

#[test]
fn a_job_that_no_queue_takes_is_an_error_that_the_workflow_sees() {
    let outcome = test().run("careless", "stepwell.webhooks");
    assert_eq!(outcome.status(), Status::Completed);
    let said = outcome.output::<String>();
    assert!(said.contains("no queue that jobs can be sent to"), "{said}");
    assert!(outcome.sent::<u32>("stepwell.webhooks").is_empty());
}
