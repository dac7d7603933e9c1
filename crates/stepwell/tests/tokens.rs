//! Tokens: a wait that is completed by a link, as workflows see it.

use std::cell::RefCell;

use futures::future::{Either, join, select};
use stepwell::{
    Decision,
    prelude::*,
    testing::{
        Test, effect,
        engine::{Death, Ended, Engine, Outside},
    },
};
use stepwell_protocol::{
    Code, Payload,
    signature::{Key, Purpose},
    wait_token::WaitToken,
};

const HOUR: Duration = Duration::from_secs(3_600);

thread_local! {
    static SENT: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

#[workflow]
async fn refund(ctx: Ctx, order: u32) -> Result<String> {
    ctx.step("look up", async || Ok(())).await?;
    let approval = ctx.token("approval").title(format!("Refund order {order}?")).expires("3 days");
    let url = approval.url();
    ctx.step_with("mail", async |info| {
        effect(&info, &url);
        SENT.with_borrow_mut(|sent| sent.push(url.clone()));
        Ok(())
    })
    .await?;
    match approval.or_none().await? {
        Some(Decision { comment, .. }) => Ok(comment.unwrap_or_else(|| "no comment".into())),
        None => Ok("expired".into()),
    }
}

fn app() -> App {
    App::new().workflow(refund).workflow(two).workflow(raced).workflow(twice_lived)
}

fn said(comment: &str) -> Decision {
    Decision { comment: Some(comment.into()), ..Decision::accept() }
}

#[test]
fn a_token_is_completed_when_the_run_waits_or_before_or_never() {
    let test = || Test::new(app());
    let waiting = test().complete_token("approval", &said("fine"));
    assert_eq!(waiting.crash_everywhere("refund", &42).output::<String>(), "fine");
    let early = test().complete_token_after(Duration::ZERO, "approval", &said("early"));
    assert_eq!(early.crash_everywhere("refund", &42).output::<String>(), "early");
    let late = test().complete_token_after(HOUR * 72, "approval", &said("late"));
    assert_eq!(late.run("refund", &42).output::<String>(), "expired");
    let never = test().crash_everywhere("refund", &42);
    assert_eq!((never.output::<String>().as_str(), never.slept()), ("expired", HOUR * 72));
    let by_signal = test().signal_when_waiting("approval", &said("by key"));
    assert_eq!(by_signal.run("refund", &42).output::<String>(), "by key");
}

#[test]
fn a_link_is_the_same_on_every_replay_and_names_its_wait_and_its_time() {
    SENT.with_borrow_mut(Vec::clear);
    let crashed = Test::new(app()).complete_token("approval", &said("fine"));
    crashed.crash_everywhere("refund", &42);
    let sent = SENT.with_borrow_mut(std::mem::take);
    assert!(sent.len() > 3, "{sent:?}");
    assert!(sent.iter().all(|url| *url == sent[0]), "{sent:?}");
    let text = sent[0].strip_prefix("https://stepwell.test/api/tokens/").expect("it is an address");
    let key = Key::derive("a secret that only tests have", Purpose::Token);
    let token = WaitToken::read(text, &[key]).expect("it is signed");
    assert_eq!((token.name.as_str(), token.occurrence, token.life), ("approval", 0, 1));
    assert_eq!(token.expires_at.as_millis(), 1_700_000_000_000 + 72 * 3_600_000);
}

#[workflow]
async fn two(ctx: Ctx) -> Result<(u32, u32)> {
    let (first, second) = (ctx.token("vote"), ctx.token("vote"));
    ensure!(first.url() != second.url(), "they are the same");
    let (first, second) = join(first.wait(), second.wait()).await;
    Ok((first?, second?))
}

#[test]
fn each_token_of_a_name_is_for_its_own_wait() {
    let test = |first_after, second_after| {
        Test::new(app()).complete_token_after(first_after, "vote", &1).complete_token_after(
            second_after,
            "vote",
            &2,
        )
    };
    for (first, second) in
        [(HOUR, HOUR * 2), (HOUR * 2, HOUR), (Duration::ZERO, HOUR), (HOUR, Duration::ZERO)]
    {
        assert_eq!(test(first, second).crash_everywhere("two", &()).output::<(u32, u32)>(), (1, 2));
    }
}

#[workflow]
async fn raced(ctx: Ctx) -> Result<String> {
    let approval = ctx.token::<u32>("approval");
    Ok(match select(approval.wait(), ctx.sleep("patience", HOUR)).await {
        Either::Left((answer, _)) => answer?.to_string(),
        Either::Right(_) => "impatient".into(),
    })
}

#[test]
fn a_token_races_with_anything_else() {
    let after = |at| Test::new(app()).complete_token_after(at, "approval", &7);
    assert_eq!(after(HOUR / 2).crash_everywhere("raced", &()).output::<String>(), "7");
    assert_eq!(after(HOUR * 2).crash_everywhere("raced", &()).output::<String>(), "impatient");
}

#[workflow]
async fn twice_lived(ctx: Ctx, life: u32) -> Result<u32> {
    if life == 1 {
        ctx.sleep("while the answer comes", HOUR).await;
        ctx.continue_as_new(&2).await;
    }
    Ok(ctx.token("approval").expires(HOUR).or_none().await?.unwrap_or(0))
}

#[test]
fn an_answer_does_not_go_over_into_the_next_life() {
    let test = Test::new(app()).complete_token_after(HOUR / 2, "approval", &7);
    assert_eq!(test.crash_everywhere("twice_lived", &1).output::<u32>(), 0);
}

#[test]
fn a_key_that_was_used_is_told_with_the_first_commit_after_it() {
    let mut engine = Engine::start(app(), "refund", &42).dies(Death::Never);
    engine.sleep_first();
    let keys: Vec<_> = engine.commits.iter().filter_map(|commit| commit.token_key.clone()).collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(engine.run.token_key.as_ref(), keys.first());
    engine =
        engine.happens(1, Outside::Token("approval".into(), 0, Payload::encode(&said("x")).expect("JSON")));
    assert!(matches!(engine.finish(), Ended::Completed(_)));
}

#[test]
fn without_an_address_the_run_is_paused_before_anything_is_sent() {
    let mut engine = Engine::start(app(), "refund", &42).without_address();
    let Ended::Paused(problem) = engine.run_to_end() else { panic!("it cannot go on") };
    assert_eq!(problem.code, Code::UrlMissing);
    assert!(problem.detail.contains("STEPWELL_URL"), "{}", problem.detail);
    assert!(!engine.ran.iter().any(|step| step.contains("mail")), "{:?}", engine.ran);
}
