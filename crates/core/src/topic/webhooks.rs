//! The webhooks of a topic: who may deliver events without a key, and the latest of what was delivered.
//!
//! Owns: whether a delivery is accepted, which deliveries are kept, and how the secrets are stored. What is accepted is an
//! event of the topic like any other, in the same turn: nothing is under way between a delivery and its event.
//!
//! Invariant: a delivery is an event only if a secret has signed it that is good now.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Problem, Timestamp, seal,
    signature::Key,
    topic::{Accepted, AcceptedStatus, NewEvent, is_topic},
    webhook::{
        Address, Delivery, DeliveryList, OVERLAP_MS_DEFAULT, OVERLAP_MS_MAX, Secret, TOLERANCE_S_MAX,
        WebhookKind, WebhookList, WebhookSpec, WebhookView,
        schemes::{self, Refused, signature_header},
    },
};

use super::{
    Rows, Topic,
    transform::{Made, Transform},
};
use crate::{
    object::{Fault, Hosted as _},
    ordered::{OrdMap, OrdSet},
};

/// The most webhooks of a topic.
pub const WEBHOOKS_MAX: usize = 20;

/// How many deliveries of a webhook are kept.
pub const DELIVERIES_MAX: u64 = 60;

/// How many of each kind are kept, by what [`kind_of`] gives: events; what nobody has signed; and what was signed and
/// could not become an event. Each kind has its own slots, so that no flood of one displaces another.
const KEPT: [u64; 3] = [40, 10, 10];

/// The kind of what nobody has signed.
const UNSIGNED: usize = 1;

/// How often a delivery that nobody has signed is stored at the most.
const UNSIGNED_EVERY_MS: u64 = 1_000;

/// The longest name of a header, and the longest prefix in one.
const HEADER_LENGTH_MAX: usize = 64;

/// A webhook as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// By what it is known in its topic.
    pub id: String,
    /// What it is, without its secret.
    pub spec: WebhookSpec,
    /// Its secrets, the current one first.
    pub secrets: Vec<Sealed>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// Who has changed it last.
    pub changed_by: String,
}

/// A secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Its text, sealed.
    pub text: String,
    /// Until when it is good, if another one has replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A delivery as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The delivery, as people see it.
    pub delivery: Delivery,
    /// The headers with its signatures. Nobody is shown them: with one, a reader could deliver the body again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<(String, String)>,
}

/// What webhooks are known and sealed by.
#[derive(Clone, Debug, Default)]
pub struct HookKeys {
    /// The namespace of the topic.
    pub namespace: String,
    /// The engine's public address, if it is known.
    pub url: Option<String>,
    /// What addresses are made with, the current key first.
    pub addresses: Vec<Key>,
    /// What secrets are sealed with, the current key first.
    pub seals: Vec<Key>,
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivered {
    /// It is an event, now or since it was first delivered.
    Event(Accepted),
    /// The sender is told this text, to know that the address is good.
    Challenge(String),
}

/// The webhooks, as they were read.
#[derive(Clone, Debug, Default)]
pub(super) struct Hooks {
    by_id: OrdMap<String, Hook>,
    /// Those that this release cannot read.
    unreadable: OrdSet<String>,
}

/// Names and values.
type Headers = Vec<(String, String)>;

#[derive(Clone, Debug)]
struct Hook {
    webhook: Webhook,
    /// Nothing, if this release cannot read its expressions.
    transform: Option<Transform>,
    /// Its secrets as they are, and until when each is good.
    secrets: Vec<(Secret, Option<Timestamp>)>,
    /// The numbers of the latest deliveries of each kind; nothing until the rows were asked.
    last: Option<[u64; KEPT.len()]>,
    /// When one that nobody has signed was last stored.
    unsigned_at: Option<Timestamp>,
}

/// Refuses what no webhook of a topic can be, so that no topic is made for it.
pub fn check_webhook(topic: &str, spec: &WebhookSpec) -> Result<(), Problem> {
    let bad = |detail: &str| Err(Problem::new(Code::InvalidRequest, detail.to_owned()));
    let is_header = |name: &String| {
        (1..=HEADER_LENGTH_MAX).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    let of_hmac = [&spec.header, &spec.id_header].into_iter().flatten();
    if !of_hmac.into_iter().all(is_header)
        || spec.prefix.as_ref().is_some_and(|prefix| prefix.len() > HEADER_LENGTH_MAX)
    {
        return bad("`header` and `id_header` name headers, and `prefix` has up to 64 bytes.");
    }
    if (spec.kind == WebhookKind::Hmac) != spec.header.is_some() {
        return bad("The kind `hmac` takes the name of a `header`, and no other kind does.");
    }
    if spec.tolerance_s.is_some_and(|tolerance| !(1..=TOLERANCE_S_MAX).contains(&tolerance)) {
        return bad("`tolerance_s` is 1 to 86400 seconds.");
    }
    if spec.overlap_ms.is_some_and(|overlap| overlap > OVERLAP_MS_MAX) {
        return bad("`overlap_ms` is at most 2592000000, which is 30 days.");
    }
    if let Some(Secret(secret)) = &spec.secret {
        schemes::check_secret(spec.kind, secret).or_else(bad)?;
    }
    Transform::read(topic, spec).map(|_| ())
}

/// The event that a webhook makes of a delivery whose signature was verified; nothing, if the sender only tries the
/// address.
pub fn event_of(
    spec: &WebhookSpec,
    headers: Vec<(String, String)>,
    body: &str,
) -> Result<Option<NewEvent>, Problem> {
    let topic = spec.event.split_once('/').map(|(topic, _)| topic).filter(|topic| is_topic(topic));
    let topic = topic.ok_or_else(|| {
        let detail = "`event` names no topic. Write 'TOPIC/NAME', or 'TOPIC/{EXPRESSION}'.";
        Problem::new(Code::InvalidRequest, detail)
    })?;
    check_webhook(topic, spec)?;
    let (_, headers) = parted(spec, headers);
    Ok(match Transform::read(topic, spec)?.make(topic, spec, &headers, body)? {
        Made::Event(event) => Some(event),
        Made::Challenge(_) => None,
    })
}

impl Hooks {
    /// Reads them. Secrets that the previous key has sealed are sealed again, before that key is gone.
    pub fn read<R: Rows>(rows: &R, topic: &str, keys: &HookKeys) -> Result<Self, R::Error> {
        let mut hooks = Self::default();
        for (id, webhook) in rows.webhooks()? {
            let Some(mut webhook) = webhook else {
                hooks.unreadable.insert(id);
                continue;
            };
            let context = keys.context(topic, &id);
            let opened = |sealed: &Sealed| {
                let text = seal::open(&keys.seals, &context, &sealed.text)?;
                Some((Secret(text), sealed.until))
            };
            let secrets: Vec<_> = webhook.secrets.iter().filter_map(opened).collect();
            if let Some(key) = keys.seals.first()
                && secrets.len() == webhook.secrets.len()
                && !webhook.secrets.iter().all(|sealed| seal::is_sealed_by(key, &sealed.text))
            {
                for (sealed, (Secret(text), _)) in webhook.secrets.iter_mut().zip(&secrets) {
                    sealed.text = seal::seal(key, &context, text);
                }
                // Where that fails, the next instance does it.
                let _ = rows.put_webhook(&webhook);
            }
            hooks.insert(topic, webhook, secrets);
        }
        Ok(hooks)
    }

    fn insert(&mut self, topic: &str, webhook: Webhook, secrets: Vec<(Secret, Option<Timestamp>)>) {
        let transform = Transform::read(topic, &webhook.spec).ok();
        let before = self.by_id.get(&webhook.id);
        let (last, unsigned_at) = before.map(|hook| (hook.last, hook.unsigned_at)).unwrap_or_default();
        self.unreadable.remove(&webhook.id);
        self.by_id.insert(webhook.id.clone(), Hook { webhook, transform, secrets, last, unsigned_at });
    }

    fn get(&self, id: &str) -> Result<&Hook, Problem> {
        self.by_id.get(id).ok_or_else(no_webhook)
    }
}

impl HookKeys {
    /// What a webhook's secrets are bound to.
    fn context(&self, topic: &str, id: &str) -> String {
        format!("{}/{topic}/{id}", self.namespace)
    }
}

impl Hook {
    fn verify(
        &self,
        now: Timestamp,
        headers: &[(String, String)],
        body: &str,
        is_any_time: bool,
    ) -> Result<(), Refused> {
        let is_good = |until: &Option<Timestamp>| until.is_none_or(|until| now < until);
        let good = self.secrets.iter().filter(|(_, until)| is_good(until));
        let good: Vec<_> = good.map(|(Secret(text), _)| text.as_str()).collect();
        let clock = Some(now).filter(|_| !is_any_time);
        schemes::verify(&self.webhook.spec, &good, headers, body.as_bytes(), clock)
    }

    fn make(&self, topic: &str, headers: &[(String, String)], body: &str) -> Result<Made, Problem> {
        let unreadable = || {
            let detail = "This release cannot read the webhook's expressions. Set it again.";
            Problem::new(Code::WrongStatus, detail)
        };
        self.transform.as_ref().ok_or_else(unreadable)?.make(topic, &self.webhook.spec, headers, body)
    }

    fn view(&self, topic: &str, keys: &HookKeys) -> WebhookView {
        let Webhook { id, spec, secrets, created_at, changed_at, changed_by } = self.webhook.clone();
        let address =
            Address { namespace: keys.namespace.clone(), topic: topic.to_owned(), webhook: id.clone() };
        let path = keys.addresses.first().map(|key| address.path(key)).unwrap_or_default();
        WebhookView {
            topic: topic.to_owned(),
            id,
            url: format!("{}{path}", keys.url.as_deref().unwrap_or_default().trim_end_matches('/')),
            spec,
            previous_until: secrets.iter().find_map(|sealed| sealed.until),
            created_at,
            changed_at,
            changed_by,
        }
    }

    /// A delivery as people see it. The webhook may say by now that one of its headers is a signature.
    fn shown(&self, Kept { mut delivery, .. }: Kept) -> Delivery {
        delivery.headers.retain(|(name, _)| !is_signature(&self.webhook.spec, name));
        delivery
    }
}

impl Topic {
    /// Makes a webhook, or changes it. Says whether it is new.
    pub fn put_webhook<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        by: &str,
        id: &str,
        mut spec: WebhookSpec,
    ) -> Result<(WebhookView, bool), Fault<R::Error>> {
        let now = self.now(clock);
        check_webhook(&self.name, &spec)?;
        let (secret, overlap) = (spec.secret.take(), spec.overlap_ms.take().unwrap_or(OVERLAP_MS_DEFAULT));
        let context = self.keys.context(&self.name, id);
        let Some(key) = self.keys.seals.first().cloned() else {
            let detail = "Webhooks need the deployment's key. Set STEPWELL_KEY.";
            return Err(Problem::new(Code::Misconfigured, detail).into());
        };
        let hooks = &mut self.known(rows, now)?.hooks;
        let count = hooks.by_id.len() + hooks.unreadable.len();
        let before = hooks.by_id.get(id).cloned();
        if before.is_none() && !hooks.unreadable.contains(id) && count >= WEBHOOKS_MAX {
            let detail = format!("A topic has at most {WEBHOOKS_MAX} webhooks. Delete one first.");
            return Err(Problem::new(Code::TooMany, detail).into());
        }
        let mut secrets = before.as_ref().map(|hook| hook.secrets.clone()).unwrap_or_default();
        secrets.retain(|(_, until)| until.is_none_or(|until| now < until));
        if let Some(secret) = secret
            && secrets.first().is_none_or(|(current, _)| *current != secret)
        {
            let current = secrets.into_iter().next().filter(|_| overlap > 0);
            let replaced = current.map(|(text, _)| (text, Some(now.plus_millis(overlap))));
            secrets = [(secret, None)].into_iter().chain(replaced).collect();
        }
        match secrets.first() {
            Some((Secret(current), _)) => schemes::check_secret(spec.kind, current),
            None => Err("A webhook needs a `secret`: the one that its sender signs with."),
        }
        .map_err(|detail| Problem::new(Code::InvalidRequest, detail))?;
        let sealed = secrets
            .iter()
            .map(|(Secret(text), until)| Sealed { text: seal::seal(&key, &context, text), until: *until });
        let webhook = Webhook {
            id: id.to_owned(),
            spec,
            secrets: sealed.collect(),
            created_at: before.as_ref().map_or(now, |hook| hook.webhook.created_at),
            changed_at: now,
            changed_by: by.to_owned(),
        };
        if let Err(error) = rows.put_webhook(&webhook) {
            self.known = None;
            return Err(Fault::Storage(error));
        }
        let topic = self.name.clone();
        self.known(rows, now)?.hooks.insert(&topic, webhook, secrets);
        self.get_webhook(rows, clock, id).map(|view| (view, before.is_none()))
    }

    /// Shows a webhook.
    pub fn get_webhook<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
    ) -> Result<WebhookView, Fault<R::Error>> {
        let now = self.now(clock);
        let hook = self.known(rows, now)?.hooks.get(id)?.clone();
        Ok(hook.view(&self.name, &self.keys))
    }

    /// Lists all webhooks.
    pub fn list_webhooks<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
    ) -> Result<WebhookList, Fault<R::Error>> {
        let now = self.now(clock);
        let Hooks { by_id, unreadable } = self.known(rows, now)?.hooks.clone();
        let webhooks = by_id.values().map(|hook| hook.view(&self.name, &self.keys)).collect();
        Ok(WebhookList { webhooks, unreadable: unreadable.into_iter().collect() })
    }

    /// Deletes a webhook, with its deliveries. Its events stay.
    pub fn delete_webhook<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let hooks = &mut self.known(rows, now)?.hooks;
        if !hooks.by_id.contains_key(id) && !hooks.unreadable.contains(id) {
            return Err(no_webhook().into());
        }
        hooks.by_id.remove(id);
        hooks.unreadable.remove(id);
        rows.delete_webhook(id).map_err(|error| {
            self.known = None;
            Fault::Storage(error)
        })
    }

    /// Takes a delivery: what its sender has signed becomes an event, once.
    pub fn deliver<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        headers: Vec<(String, String)>,
        body: String,
    ) -> Result<Delivered, Fault<R::Error>> {
        let now = self.now(clock);
        let topic = self.name.clone();
        let hook = self.known(rows, now)?.hooks.get(id)?;
        let verified = hook.verify(now, &headers, &body, false);
        let (signatures, headers) = parted(&hook.webhook.spec, headers);
        let mut delivery = Delivery {
            id: 0,
            at: now,
            status: AcceptedStatus::Refused,
            is_verified: verified.is_ok(),
            why: None,
            event: None,
            headers,
            body: Some(body),
        };
        let made = match verified {
            Ok(()) => hook.make(&topic, &delivery.headers, text(&delivery)),
            Err(refused) => Err(Problem::new(Code::WebhookRefused, refused.to_string())),
        };
        let event = match made {
            Ok(Made::Challenge(text)) => return Ok(Delivered::Challenge(text)),
            Ok(Made::Event(event)) => event,
            Err(problem) => {
                delivery.why = Some(problem.detail.clone());
                self.keep(rows, now, id, Kept { delivery, signatures })?;
                return Err(problem.into());
            }
        };
        let accepted = self.accept_one(rows, clock, ("", id), event)?;
        if accepted.status == AcceptedStatus::Accepted {
            delivery.status = AcceptedStatus::Accepted;
            delivery.event.clone_from(&accepted.id);
            self.keep(rows, now, id, Kept { delivery, signatures })?;
        }
        Ok(Delivered::Event(accepted))
    }

    /// Lists the latest deliveries, newest first, without their bodies.
    pub fn deliveries<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
    ) -> Result<DeliveryList, Fault<R::Error>> {
        let now = self.now(clock);
        let hook = self.known(rows, now)?.hooks.get(id)?;
        let kept = rows.deliveries(id).map_err(Fault::Storage)?;
        let mut deliveries: Vec<_> = kept.into_iter().map(|kept| hook.shown(kept)).collect();
        deliveries.sort_by_key(|delivery| std::cmp::Reverse((delivery.at, delivery.id)));
        Ok(DeliveryList { deliveries })
    }

    /// Shows a delivery, with its body.
    pub fn delivery<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        id: &str,
        number: u64,
    ) -> Result<Delivery, Fault<R::Error>> {
        let now = self.now(clock);
        let hook = self.known(rows, now)?.hooks.get(id)?;
        stored(rows, id, number).map(|kept| hook.shown(kept))
    }

    /// Makes an event of a delivery again, by what the webhook says now. One that was refused has to be signed by a secret
    /// that is good now, even if its secret was good when it came; its time does not matter.
    pub fn redeliver<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        mark: &str,
        id: &str,
        number: u64,
    ) -> Result<Accepted, Fault<R::Error>> {
        let now = self.now(clock);
        let topic = self.name.clone();
        let hook = self.known(rows, now)?.hooks.get(id)?;
        let mut kept = stored(rows, id, number)?;
        let was_accepted = kept.delivery.status == AcceptedStatus::Accepted;
        if !was_accepted {
            let headers = [kept.signatures.as_slice(), &kept.delivery.headers].concat();
            let verified = hook.verify(now, &headers, text(&kept.delivery), true);
            verified.map_err(|refused| Problem::new(Code::WebhookRefused, refused.to_string()))?;
            // The webhook may say by now where the signature is.
            (kept.signatures, kept.delivery.headers) = parted(&hook.webhook.spec, headers);
        }
        let Made::Event(mut event) = hook.make(&topic, &kept.delivery.headers, text(&kept.delivery))? else {
            let detail = "This delivery is no event: the sender has only tried the address.";
            return Err(Problem::new(Code::InvalidRequest, detail).into());
        };
        if was_accepted {
            // Its id is known, so the event gets another one.
            event.id = None;
        }
        let accepted = self.accept_one(rows, clock, (mark, id), event)?;
        if !was_accepted {
            let delivery = &mut kept.delivery;
            (delivery.status, delivery.is_verified, delivery.why) = (AcceptedStatus::Accepted, true, None);
            delivery.event.clone_from(&accepted.id);
            rows.put_delivery(id, slot(number), &kept).map_err(Fault::Storage)?;
        }
        Ok(accepted)
    }

    fn accept_one<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        (mark, webhook): (&str, &str),
        event: NewEvent,
    ) -> Result<Accepted, Fault<R::Error>> {
        let source = format!("webhook:{webhook}");
        let accepted = self.accept(rows, clock, mark, Some(&source), vec![event])?.pop();
        accepted.ok_or_else(|| Problem::new(Code::Internal, "The event was not stored.").into())
    }

    /// Stores a delivery, in the place of the oldest of its kind.
    fn keep<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        id: &str,
        mut kept: Kept,
    ) -> Result<(), Fault<R::Error>> {
        let hooks = &mut self.known(rows, now)?.hooks;
        let hook = hooks.by_id.get_mut(id).ok_or_else(no_webhook)?;
        let kind = match (kept.delivery.status, kept.delivery.is_verified) {
            (AcceptedStatus::Accepted, _) => 0,
            (AcceptedStatus::Duplicate | AcceptedStatus::Refused, false) => UNSIGNED,
            (AcceptedStatus::Duplicate | AcceptedStatus::Refused, true) => 2,
        };
        // What somebody has signed is worth a row, however fast it comes.
        if kind == UNSIGNED {
            if hook.unsigned_at.is_some_and(|last| now < last.plus_millis(UNSIGNED_EVERY_MS)) {
                return Ok(());
            }
            hook.unsigned_at = Some(now);
        }
        let mut last = match hook.last.take() {
            Some(last) => last,
            None => latest(rows.deliveries(id).map_err(Fault::Storage)?.iter().map(|kept| kept.delivery.id)),
        };
        last[kind] += KINDS;
        kept.delivery.id = last[kind];
        rows.put_delivery(id, slot(last[kind]), &kept).map_err(Fault::Storage)?;
        hook.last = Some(last);
        Ok(())
    }
}

/// How far the numbers of two deliveries of a kind are apart.
const KINDS: u64 = KEPT.len() as u64;

/// The latest number of each kind.
fn latest(numbers: impl Iterator<Item = u64>) -> [u64; KEPT.len()] {
    let mut latest = [0, 1, 2];
    for number in numbers {
        let of_kind = &mut latest[kind_of(number)];
        *of_kind = number.max(*of_kind);
    }
    latest
}

/// The kind of a delivery, by its number.
fn kind_of(number: u64) -> usize {
    usize::try_from(number % KINDS).unwrap_or_default()
}

/// Where a delivery is stored.
fn slot(number: u64) -> u64 {
    let kind = kind_of(number);
    KEPT[..kind].iter().sum::<u64>() + number / KINDS % KEPT[kind]
}

fn stored<R: Rows>(rows: &R, id: &str, number: u64) -> Result<Kept, Fault<R::Error>> {
    let kept = rows.delivery(id, slot(number)).map_err(Fault::Storage)?;
    kept.filter(|kept| kept.delivery.id == number).ok_or_else(|| {
        let detail = "The webhook has no delivery with this number. The latest 60 are kept.";
        Problem::new(Code::WebhookNotFound, detail).into()
    })
}

fn text(delivery: &Delivery) -> &str {
    delivery.body.as_deref().unwrap_or_default()
}

/// Whether a header holds a signature, by its name or by what the webhook says.
fn is_signature(spec: &WebhookSpec, name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["signature", "hmac"].iter().any(|part| lower.contains(part))
        || name.eq_ignore_ascii_case(signature_header(spec))
}

/// The headers of a delivery that are kept: those with its signatures, and those that people and expressions see.
fn parted(spec: &WebhookSpec, headers: Headers) -> (Headers, Headers) {
    let signature = signature_header(spec);
    let is_kept = |name: &str| !is_secret(name) || name.eq_ignore_ascii_case(signature);
    headers.into_iter().filter(|(name, _)| is_kept(name)).partition(|(name, _)| is_signature(spec, name))
}

/// Whether a header's name says that it holds a secret, or its sender's way to us. Neither is kept.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let parts = ["auth", "cookie", "secret", "token", "password", "api-key", "apikey", "credential"];
    name.starts_with("cf-") || parts.iter().any(|part| name.contains(part))
}

/// That a topic has no such webhook.
pub fn no_webhook() -> Problem {
    let detail = "The topic has no webhook with this id. `GET /api/webhooks?topic=…` lists them.";
    Problem::new(Code::WebhookNotFound, detail)
}
