//! Webhooks: what is signed becomes an event once, and nothing else does.

use std::{cell::RefCell, collections::BTreeMap};

use serde_json::{Value as Json, json};
use stepwell_protocol::{
    Code, Problem, Timestamp,
    signature::{Key, Purpose},
    topic::{Accepted, AcceptedStatus, NewEvent},
    webhook::{
        Delivery, Secret, WebhookKind, WebhookSpec,
        schemes::{header, sign, signature_header},
    },
};

use super::{Full, World, topic};
use crate::{
    object::{Fault, Machine as _},
    topic::{DELIVERIES_MAX, Delivered, HookKeys, Kept, Topic, WEBHOOKS_MAX, Webhook},
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// The rows of webhooks, as a database has them.
#[derive(Default)]
pub(super) struct HookRows {
    webhooks: RefCell<BTreeMap<String, String>>,
    deliveries: RefCell<BTreeMap<(String, u64), String>>,
}

impl HookRows {
    pub fn webhooks(&self) -> Vec<(String, Option<Webhook>)> {
        let webhooks = self.webhooks.borrow();
        webhooks.iter().map(|(id, text)| (id.clone(), serde_json::from_str(text).ok())).collect()
    }

    pub fn put(&self, webhook: &Webhook) {
        let text = serde_json::to_string(webhook).expect("it is JSON");
        self.webhooks.borrow_mut().insert(webhook.id.clone(), text);
    }

    pub fn delete(&self, id: &str) {
        self.webhooks.borrow_mut().remove(id);
        self.deliveries.borrow_mut().retain(|(webhook, _), _| webhook != id);
    }

    pub fn put_delivery(&self, webhook: &str, slot: u64, kept: &Kept) {
        let text = serde_json::to_string(kept).expect("it is JSON");
        self.deliveries.borrow_mut().insert((webhook.to_owned(), slot), text);
    }

    pub fn deliveries(&self, webhook: &str) -> Vec<Kept> {
        let deliveries = self.deliveries.borrow();
        let of_webhook = deliveries.iter().filter(|((id, _), _)| id == webhook);
        let read = of_webhook.filter_map(|(_, text)| serde_json::from_str(text).ok());
        read.map(|Kept { delivery, signatures }| Kept {
            delivery: Delivery { body: None, ..delivery },
            signatures,
        })
        .collect()
    }

    pub fn delivery(&self, webhook: &str, slot: u64) -> Option<Kept> {
        serde_json::from_str(self.deliveries.borrow().get(&(webhook.to_owned(), slot))?).ok()
    }
}

fn keys(secrets: &[&str]) -> HookKeys {
    let of = |purpose| secrets.iter().map(|secret| Key::derive(secret, purpose)).collect();
    HookKeys {
        namespace: "acme".into(),
        url: Some("https://flows.example/".into()),
        addresses: of(Purpose::Webhook),
        seals: of(Purpose::Seal),
    }
}

fn with_keys(secrets: &[&str]) -> Topic {
    topic().with_keys(keys(secrets))
}

fn world() -> World {
    World { topic: with_keys(&["one"]), ..World::new() }
}

fn spec(kind: &str, more: &Json) -> WebhookSpec {
    let mut spec = json!({ "kind": kind, "event": "order/paid", "secret": SECRET });
    for (name, value) in more.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).expect("it is one")
}

fn problem<T: std::fmt::Debug>(result: Result<T, Fault<Full>>) -> Problem {
    match result {
        Err(Fault::Rejected(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

impl World {
    fn set(&mut self, spec: WebhookSpec) {
        self.topic.put_webhook(&self.rows, self.now, "ada", "shop", spec).expect("it is one");
    }

    fn hook_spec(&mut self) -> WebhookSpec {
        self.topic.get_webhook(&self.rows, self.now, "shop").expect("it is there").spec
    }

    /// Delivers what this secret has signed.
    fn signed(&mut self, secret: &str, id: &str, body: &str) -> Result<Delivered, Fault<Full>> {
        let spec = self.hook_spec();
        let headers = sign(&spec, secret, id, self.now, body.as_bytes());
        self.topic.deliver(&self.rows, self.now, "shop", headers, body.into())
    }

    fn delivered(&mut self, id: &str, body: &str) -> Accepted {
        match self.signed(SECRET, id, body) {
            Ok(Delivered::Event(accepted)) => accepted,
            other => panic!("{other:?}"),
        }
    }

    fn kept(&mut self) -> Vec<Delivery> {
        self.topic.deliveries(&self.rows, self.now, "shop").expect("they are read").deliveries
    }

    fn data(&self, id: &str) -> Json {
        let event = self.topic.get(&self.rows, id).expect("it is there");
        event.data.decode().expect("it is JSON")
    }
}

#[test]
fn a_delivery_of_each_kind_is_an_event_once() {
    for (kind, more, body, id) in [
        ("standard", json!({}), r#"{"a":1}"#, "id-1"),
        ("github", json!({}), r#"{"a":1}"#, "id-1"),
        ("stripe", json!({}), r#"{"id":"evt_1","a":1}"#, "evt_1"),
        ("slack", json!({}), r#"{"event_id":"Ev1","a":1}"#, "Ev1"),
        ("hmac", json!({ "header": "x-sig", "id_header": "x-id" }), r#"{"a":1}"#, "id-1"),
        ("hmac", json!({ "header": "x-sig" }), r#"{"a":1}"#, "015abd7f5cc57a2dd94b7590f04ad808"),
    ] {
        let mut world = world();
        world.set(spec(kind, &more));
        let before = world.rows.written.get();
        let accepted = world.delivered("id-1", body);
        assert_eq!((accepted.status, accepted.id.as_deref()), (AcceptedStatus::Accepted, Some(id)), "{kind}");
        assert_eq!(world.rows.written.get() - before, 3, "the event, its id, and the delivery");
        assert_eq!(world.data(id)["a"], 1);
        let before = world.rows.written.get();
        assert_eq!(world.delivered("id-1", body).status, AcceptedStatus::Duplicate, "{kind}");
        assert_eq!(world.rows.written.get(), before, "a repeat writes nothing");
        let kept = world.kept();
        assert_eq!((kept.len(), kept[0].status, kept[0].is_verified), (1, AcceptedStatus::Accepted, true));
        // A crash in between changes nothing.
        world.topic = with_keys(&["one"]);
        assert_eq!(world.delivered("id-1", body).status, AcceptedStatus::Duplicate, "{kind}");
    }
}

#[test]
fn what_is_not_signed_is_no_event() {
    let mut world = world();
    world.set(spec("standard", &json!({})));
    let refused = problem(world.signed(OTHER, "id-1", "1"));
    assert_eq!(refused.code, Code::WebhookRefused);
    assert_eq!(world.rows.events.borrow().len(), 0);
    let kept = world.kept();
    assert_eq!((kept[0].status, kept[0].is_verified), (AcceptedStatus::Refused, false));
    assert_eq!(kept[0].why.as_deref(), Some("The signature does not match the body and the secret."));
    let unsigned = world.topic.deliver(&world.rows, world.now, "shop", Vec::new(), "1".into());
    assert!(problem(unsigned).detail.contains("`webhook-signature` is missing"));
    let unknown = world.topic.deliver(&world.rows, world.now, "other", Vec::new(), "1".into());
    assert_eq!(problem(unknown).code, Code::WebhookNotFound);
}

#[test]
fn two_secrets_are_good_while_one_replaces_the_other() {
    let mut world = world();
    world.set(spec("github", &json!({})));
    world.set(spec("github", &json!({ "secret": OTHER, "overlap_ms": 5_000 })));
    let view = world.topic.get_webhook(&world.rows, world.now, "shop").expect("it is there");
    assert_eq!(view.previous_until, Some(world.now.plus_millis(5_000)));
    assert!(world.signed(OTHER, "1", "1").is_ok() && world.signed(SECRET, "2", "2").is_ok());
    world.later(4_999);
    assert!(world.signed(SECRET, "3", "3").is_ok());
    world.later(1);
    assert_eq!(problem(world.signed(SECRET, "4", "4")).code, Code::WebhookRefused, "it is retired");
    assert!(world.signed(OTHER, "5", "5").is_ok());
    // Without a secret, the one that is there stays; and one that is set again is no change.
    let same = WebhookSpec { secret: None, ..spec("github", &json!({ "event": "order/new" })) };
    world.set(same);
    assert!(world.signed(OTHER, "6", "6").is_ok());
    world.set(spec("github", &json!({ "secret": SECRET, "overlap_ms": 0 })));
    assert_eq!(problem(world.signed(OTHER, "7", "7")).code, Code::WebhookRefused, "it is replaced at once");
}

#[test]
fn secrets_are_sealed_and_outlive_the_key_that_sealed_them() {
    let mut world = world();
    world.set(spec("github", &json!({})));
    let stored = || world.rows.hooks.webhooks.borrow()["shop"].clone();
    let before = stored();
    assert!(!before.contains("MfKQ9r8G") && before.contains("\"secrets\":[{\"text\":\"1~"), "{before}");
    // The deployment's key is rotated; whoever looks at the station seals again.
    let mut rotated = with_keys(&["two", "one"]);
    rotated.first_due(&world.rows, world.now).expect("it is read");
    assert_ne!(stored(), before);
    world.topic = with_keys(&["two"]);
    assert!(world.signed(SECRET, "1", "1").is_ok());
    // A key that is gone opens nothing.
    world.topic = with_keys(&["three"]);
    assert_eq!(problem(world.signed(SECRET, "2", "2")).code, Code::WebhookRefused);
}

#[test]
fn names_ids_and_data_are_computed() {
    let mut world = world();
    let more = json!({
        "event": "order/{headers[\"x-topic\"]}", "id": "body.meta.key", "data": "body.item",
        "header": "x-sig", "prefix": "sha256="
    });
    world.set(spec("hmac", &more));
    let body = r#"{"meta":{"key":"a/b"},"item":{"n":[1,2]}}"#;
    let mut headers = sign(&world.hook_spec(), SECRET, "", world.now, body.as_bytes());
    headers.push(("X-Topic".into(), "orders/create now".into()));
    let delivered = world.topic.deliver(&world.rows, world.now, "shop", headers.clone(), body.into());
    let Ok(Delivered::Event(accepted)) = delivered else { panic!("{delivered:?}") };
    assert_eq!(accepted.name, "order/orders.create.now");
    let id = accepted.id.expect("it has one");
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "no event has a slash: {id}");
    assert_eq!(world.data(&id), json!({ "n": [1, 2] }));
    // What has no value is refused, and kept.
    headers.pop();
    let failed = problem(world.topic.deliver(&world.rows, world.now, "shop", headers, body.into()));
    assert_eq!(failed.code, Code::InvalidRequest);
    assert!(failed.detail.contains("`event` has no value"), "{}", failed.detail);
    let refused = &world.kept()[0];
    assert_eq!((refused.status, refused.is_verified), (AcceptedStatus::Refused, true));
}

#[test]
fn forms_and_texts_are_data_too() {
    let mut world = world();
    world.set(spec("hmac", &json!({ "header": "x-sig" })));
    let mut deliver = |body: &str, kind: &str| {
        let mut headers = sign(&world.hook_spec(), SECRET, "", world.now, body.as_bytes());
        headers.push(("content-type".into(), kind.into()));
        let delivered = world.topic.deliver(&world.rows, world.now, "shop", headers, body.into());
        let Ok(Delivered::Event(accepted)) = delivered else { panic!("{delivered:?}") };
        world.data(&accepted.id.unwrap_or_default())
    };
    let form = deliver("a=1&b=x+y%21", "application/x-www-form-urlencoded; charset=utf-8");
    assert_eq!(form, json!({ "a": "1", "b": "x y!" }));
    assert_eq!(deliver("not { json", "text/plain"), json!("not { json"));
    assert_eq!(deliver("", "text/plain"), json!(""));
}

#[test]
fn slack_is_told_its_challenge_if_it_has_signed_it() {
    let mut world = world();
    world.set(spec("slack", &json!({})));
    let body = r#"{"type":"url_verification","challenge":"3eZbrw1aB"}"#;
    let challenge = world.signed(SECRET, "", body).expect("it is signed");
    assert_eq!(challenge, Delivered::Challenge("3eZbrw1aB".into()));
    assert!(world.signed(OTHER, "", body).is_err());
    assert_eq!(world.rows.events.borrow().len(), 0);
}

#[test]
fn a_delivery_can_be_delivered_again() {
    let mut world = world();
    world.set(spec("standard", &json!({})));
    world.delivered("id-1", r#"{"n":1}"#);
    let number = world.kept()[0].id;
    let again = world.topic.redeliver(&world.rows, world.now, "mark", "shop", number).expect("it is kept");
    assert_eq!(again.status, AcceptedStatus::Accepted);
    let id = again.id.expect("it has one");
    assert_ne!(id, "id-1");
    assert_eq!(world.data(&id), json!({ "n": 1 }));
    let repeated = world.topic.redeliver(&world.rows, world.now, "mark", "shop", number);
    assert_eq!(repeated.expect("it is kept").status, AcceptedStatus::Duplicate, "one call, twice");
    let never = world.topic.redeliver(&world.rows, world.now, "m", "shop", 99);
    assert_eq!(problem(never).code, Code::WebhookNotFound);
}

#[test]
fn a_refused_delivery_is_accepted_once_its_secret_is_right() {
    let mut world = world();
    world.set(spec("standard", &json!({ "secret": OTHER })));
    assert!(world.signed(SECRET, "id-1", "7").is_err());
    let number = world.kept()[0].id;
    let redelivered = world.topic.redeliver(&world.rows, world.now, "m", "shop", number);
    assert_eq!(problem(redelivered).code, Code::WebhookRefused, "the secret is still wrong");
    world.set(spec("standard", &json!({})));
    // However late.
    world.later(3_600_000);
    let accepted = world.topic.redeliver(&world.rows, world.now, "m", "shop", number).expect("it is signed");
    assert_eq!((accepted.status, accepted.id.as_deref()), (AcceptedStatus::Accepted, Some("id-1")));
    let kept = world.kept();
    assert_eq!((kept.len(), kept[0].status, kept[0].why.clone()), (1, AcceptedStatus::Accepted, None));
}

#[test]
fn what_is_kept_is_bounded_and_a_flood_displaces_nothing_good() {
    let mut world = world();
    world.set(spec("github", &json!({})));
    for nth in 0..60 {
        world.delivered(&format!("id-{nth}"), "1");
        world.later(10);
    }
    let before = world.rows.written.get();
    for _ in 0..500 {
        assert!(world.signed(OTHER, "x", "2").is_err());
        world.later(100);
    }
    let written = world.rows.written.get() - before;
    assert!((49..=52).contains(&written), "one a second: {written}");
    let kept = world.kept();
    assert_eq!(kept.len(), 50, "40 that were accepted, and 10 that nobody has signed");
    let good: Vec<_> = kept.iter().filter_map(|delivery| delivery.event.clone()).collect();
    assert_eq!((good.len(), good[0].as_str(), good[39].as_str()), (40, "id-59", "id-20"));
    // Another instance goes on where this one was.
    world.topic = with_keys(&["one"]);
    world.delivered("id-60", "1");
    let good: Vec<_> = world.kept().iter().filter_map(|delivery| delivery.event.clone()).collect();
    assert_eq!((good.len(), good[0].as_str(), good[39].as_str()), (40, "id-60", "id-21"));
}

#[test]
fn signed_deliveries_that_failed_are_kept_through_a_flood_of_unsigned_ones() {
    let mut world = world();
    world.set(spec("github", &json!({ "event": "order/{body.type}" })));
    for nth in 0..40 {
        world.delivered(&format!("id-{nth}"), r#"{"type":"paid"}"#);
    }
    // One after the other, in the same moment.
    for nth in 0..10 {
        assert_eq!(problem(world.signed(OTHER, "x", "2")).code, Code::WebhookRefused);
        let failed = problem(world.signed(SECRET, &format!("late-{nth}"), "{}"));
        assert_eq!(failed.code, Code::InvalidRequest);
    }
    for _ in 0..100 {
        world.later(1_000);
        assert!(world.signed(OTHER, "x", "2").is_err());
    }
    let kept = world.kept();
    assert_eq!(u64::try_from(kept.len()), Ok(DELIVERIES_MAX));
    let mut failed: Vec<_> = kept
        .iter()
        .filter(|delivery| delivery.is_verified && delivery.status == AcceptedStatus::Refused)
        .map(|delivery| delivery.id)
        .collect();
    assert_eq!(failed.len(), 10, "each of them is there");
    // Another instance displaces the oldest of them.
    world.topic = with_keys(&["one"]);
    assert!(world.signed(SECRET, "late-10", "{}").is_err());
    let oldest = failed.pop().expect("there are ten");
    assert!(world.kept().iter().all(|delivery| delivery.id != oldest));
    // The expression is right, and nothing was lost.
    world.set(spec("github", &json!({ "event": "order/paid" })));
    for number in failed {
        let accepted = world.topic.redeliver(&world.rows, world.now, "m", "shop", number).expect("signed");
        assert_eq!(accepted.status, AcceptedStatus::Accepted);
        assert!(accepted.id.is_some_and(|id| id.starts_with("late-")));
    }
}

#[test]
fn a_signature_is_good_for_a_redelivery_while_its_secret_is() {
    let mut world = world();
    world.set(spec("github", &json!({ "event": "order/{body.type}" })));
    assert_eq!(problem(world.signed(SECRET, "id-1", "{}")).code, Code::InvalidRequest);
    let refused = world.kept()[0].clone();
    assert!(refused.is_verified);
    world.delivered("id-2", r#"{"type":"paid"}"#);
    let accepted =
        world.kept().iter().find_map(|one| one.event.as_ref().map(|_| one.id)).expect("it is kept");
    // The secret has leaked, and is replaced at once.
    world.set(spec("github", &json!({ "secret": OTHER, "overlap_ms": 0 })));
    let again = world.topic.redeliver(&world.rows, world.now, "m", "shop", refused.id);
    assert_eq!(problem(again).code, Code::WebhookRefused);
    assert_eq!(world.rows.events.borrow().len(), 1);
    // What was an event already is one again.
    let again =
        world.topic.redeliver(&world.rows, world.now, "m", "shop", accepted).expect("it was accepted");
    assert_eq!(again.status, AcceptedStatus::Accepted);
}

#[test]
fn secrets_in_headers_are_neither_kept_nor_shown() {
    let mut world = world();
    world.set(spec("github", &json!({ "data": "headers" })));
    let mut headers = sign(&world.hook_spec(), SECRET, "id-1", world.now, b"1");
    for name in ["Authorization", "cookie", "X-Api-Key", "cf-access-jwt-assertion", "X-Gitlab-Token"] {
        headers.push((name.into(), "hush".into()));
    }
    headers.push(("X-GitHub-Event".into(), "push".into()));
    world.topic.deliver(&world.rows, world.now, "shop", headers, "1".into()).expect("it is signed");
    let (kept, name) = (world.kept(), signature_header(&world.hook_spec()).to_owned());
    assert_eq!(header(&kept[0].headers, "x-github-event"), Some("push"));
    assert_eq!(header(&kept[0].headers, &name), None, "nobody who reads it can repeat it");
    let stored = format!("{:?}", world.rows.hooks.deliveries.borrow());
    assert!(!stored.contains("hush") && !world.data("id-1").to_string().contains("hush"), "{stored}");
    let shown = world.topic.delivery(&world.rows, world.now, "shop", kept[0].id).expect("it is kept");
    assert_eq!(shown.body.as_deref(), Some("1"));
}

#[test]
fn signatures_are_not_shown_whatever_the_webhook_is_called_by_later() {
    let mut world = world();
    world.set(spec("hmac", &json!({ "header": "x-sig", "event": "order/{body.type}", "data": "headers" })));
    let send = |world: &mut World, body: &str| {
        let mut headers = sign(&world.hook_spec(), SECRET, "", world.now, body.as_bytes());
        let value = header(&headers, "x-sig").expect("it is signed").to_owned();
        for name in ["Svix-Signature", "X-Shop-HMAC-SHA256"] {
            headers.push((name.into(), value.clone()));
        }
        headers.push(("x-plain".into(), "plain".into()));
        (world.topic.deliver(&world.rows, world.now, "shop", headers, body.into()), value)
    };
    let (accepted, first) = send(&mut world, r#"{"type":"paid"}"#);
    let Ok(Delivered::Event(accepted)) = accepted else { panic!("{accepted:?}") };
    assert_eq!(world.data(&accepted.id.expect("it has one")), json!({ "x-plain": "plain" }));
    let (refused, second) = send(&mut world, "{}");
    assert_eq!(problem(refused).code, Code::InvalidRequest);
    let is_hidden = |world: &mut World| {
        let listed = world.kept();
        let mut one = |delivery: &Delivery| world.topic.delivery(&world.rows, world.now, "shop", delivery.id);
        let shown: Vec<_> = listed.iter().map(|delivery| one(delivery).expect("it is kept")).collect();
        let text = serde_json::to_string(&(&listed, shown)).expect("it is JSON");
        assert!(text.contains("x-plain") && !text.contains(&first) && !text.contains(&second), "{text}");
        listed
    };
    is_hidden(&mut world);
    world.set(spec("hmac", &json!({ "header": "x-other", "data": "headers" })));
    let kept = is_hidden(&mut world);
    // What nobody sees is there for a redelivery, once the webhook says again where it is.
    let refused = kept.iter().find(|delivery| delivery.event.is_none()).expect("it is kept").id;
    let again = world.topic.redeliver(&world.rows, world.now, "m", "shop", refused);
    assert_eq!(problem(again).code, Code::WebhookRefused);
    world.set(spec("hmac", &json!({ "header": "x-sig", "data": "headers" })));
    let again = world.topic.redeliver(&world.rows, world.now, "m", "shop", refused).expect("it is signed");
    assert_eq!(world.data(&again.id.expect("it has one")), json!({ "x-plain": "plain" }));
}

#[test]
fn a_webhook_is_checked_before_it_is_stored() {
    let mut world = world();
    for (more, word) in [
        (json!({ "event": "other/paid" }), "topic 'order'"),
        (json!({ "event": "order/" }), "topic 'order'"),
        (json!({ "event": "order/{body.}" }), "`event` is no expression"),
        (json!({ "id": "event.id" }), "`id` is no expression"),
        (json!({ "tolerance_s": 0 }), "tolerance_s"),
        (json!({ "overlap_ms": 2_592_000_001_u64 }), "overlap_ms"),
        (json!({ "header": "x-sig" }), "`hmac`"),
        (json!({ "kind": "hmac" }), "`hmac`"),
        (json!({ "kind": "hmac", "header": "x sig" }), "name headers"),
        (json!({ "secret": "short" }), "8 to 512"),
        (json!({ "kind": "standard", "secret": "whsec_no base64" }), "Base64"),
        (json!({ "secret": null }), "needs a `secret`"),
    ] {
        let put = world.topic.put_webhook(&world.rows, world.now, "ada", "shop", spec("github", &more));
        let refused = problem(put);
        assert!(refused.code == Code::InvalidRequest && refused.detail.contains(word), "{}", refused.detail);
    }
    for nth in 0..WEBHOOKS_MAX {
        let put = |world: &mut World, id: &str| {
            world.topic.put_webhook(&world.rows, world.now, "ada", id, spec("github", &json!({})))
        };
        put(&mut world, &format!("shop-{nth}")).expect("there is room");
        if nth + 1 == WEBHOOKS_MAX {
            assert_eq!(problem(put(&mut world, "one-more")).code, Code::TooMany);
        }
    }
    world.topic.delete_webhook(&world.rows, world.now, "shop-0").expect("it is there");
    assert_eq!(world.topic.list_webhooks(&world.rows, world.now).expect("read").webhooks.len(), 19);
}

#[test]
fn a_webhook_says_where_it_receives() {
    let mut world = world();
    world.set(spec("github", &json!({})));
    let view = world.topic.get_webhook(&world.rows, world.now, "shop").expect("it is there");
    assert!(view.url.starts_with("https://flows.example/api/hooks/acme/order/shop-"), "{}", view.url);
    assert_eq!((view.spec.secret, view.spec.kind), (None::<Secret>, WebhookKind::Github));
    world.topic.delete_webhook(&world.rows, world.now, "shop").expect("it is there");
    assert!(world.signed_by_hand().is_err());
}

impl World {
    fn signed_by_hand(&mut self) -> Result<Delivered, Fault<Full>> {
        let headers = sign(&spec("github", &json!({})), SECRET, "1", self.now, b"1");
        self.topic.deliver(&self.rows, self.now, "shop", headers, "1".into())
    }
}

#[test]
fn a_full_storage_loses_no_delivery() {
    let mut world = world();
    world.set(spec("github", &json!({})));
    world.rows.is_full.set(true);
    assert!(matches!(world.signed(SECRET, "1", "1"), Err(Fault::Storage(Full))));
    world.rows.is_full.set(false);
    assert_eq!(world.delivered("1", "1").status, AcceptedStatus::Accepted);
    let sent = NewEvent {
        name: "order/paid".into(),
        id: Some("1".into()),
        data: stepwell_protocol::Payload::null(),
    };
    let again = world.topic.accept(&world.rows, Timestamp::from_millis(0), "m", None, vec![sent]);
    assert_eq!(again.expect("it is known")[0].status, AcceptedStatus::Duplicate, "ids are the topic's");
}

#[test]
fn a_transform_makes_no_more_of_a_delivery_than_an_event_may_be() {
    let body = format!("\"{}\"", "x".repeat(600_000));
    let copies = format!("[{}]", vec!["body"; 200].join(","));
    for (more, code, word) in [
        (json!({ "data": copies }), Code::PayloadTooLarge, "more than 1000000 bytes"),
        (json!({ "data": "[body, body]" }), Code::PayloadTooLarge, "more than 1000000 bytes"),
        (json!({ "id": copies }), Code::InvalidRequest, "`id` gives no text"),
        (json!({ "event": format!("order/{{{copies}}}") }), Code::InvalidRequest, "`event` gives no text"),
    ] {
        let mut world = world();
        world.set(spec("github", &more));
        let refused = problem(world.signed(SECRET, "id-1", &body));
        assert!(refused.code == code && refused.detail.contains(word), "{}", refused.detail);
    }
    let mut world = world();
    world.set(spec(
        "github",
        &json!({ "data": "[body, 1, [body.size(), -1.5, null, 'x\\n']]", "id": "body" }),
    ));
    let accepted = world.delivered("id-1", "\"one\"");
    assert_eq!(accepted.id.as_deref(), Some("one"));
    assert_eq!(world.data("one"), json!(["one", 1, [3, -1.5, null, "x\n"]]));
}

#[test]
fn a_body_of_very_many_values_is_passed_on_but_not_looked_into() {
    let many = format!(r#"{{"id":"evt_1","event_id":"Ev1","a":[{}0]}}"#, r#"{"":1},"#.repeat(40_000));
    let texts = format!(r#"{{"type":"paid","a":"\"{}"}}"#, ",".repeat(200_000));
    for (kind, more, body, is_read) in [
        ("github", json!({ "event": "order/{body.type}" }), &many, false),
        ("github", json!({ "id": "body.id" }), &many, false),
        ("github", json!({ "data": "body.a" }), &many, false),
        ("github", json!({}), &many, true),
        ("stripe", json!({}), &many, true),
        ("slack", json!({}), &many, true),
        ("github", json!({ "event": "order/{headers['x-github-delivery']}" }), &many, true),
        ("github", json!({ "event": "order/{body.type}" }), &texts, true),
    ] {
        let mut world = world();
        world.set(spec(kind, &more));
        if is_read {
            let id = world.delivered("id-1", body).id.expect("it has one");
            assert_eq!(world.topic.get(&world.rows, &id).expect("it is there").data.text(), body);
            let own = [("stripe", "evt_1"), ("slack", "Ev1"), ("github", "id-1")];
            assert!(own.contains(&(kind, id.as_str())), "{kind}: {id}");
        } else {
            let refused = problem(world.signed(SECRET, "id-1", body));
            assert_eq!(refused.code, Code::PayloadTooLarge, "{}", refused.detail);
            assert!(refused.detail.contains("100000 keys and values"), "{}", refused.detail);
        }
    }
    let mut world = world();
    world.set(spec("hmac", &json!({ "header": "x-sig" })));
    let form = "a&".repeat(100_001);
    let mut headers = sign(&world.hook_spec(), SECRET, "", world.now, form.as_bytes());
    headers.push(("content-type".into(), "application/x-www-form-urlencoded".into()));
    let refused = problem(world.topic.deliver(&world.rows, world.now, "shop", headers, form));
    assert_eq!(refused.code, Code::PayloadTooLarge, "{}", refused.detail);
}
