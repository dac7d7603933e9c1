//! `stepwell webhooks`: addresses where other services deliver events.

use std::{fs, io::Read as _, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::de::IgnoredAny;
use serde_json::json;
use stepwell_protocol::{
    topic::{Accepted, AcceptedStatus},
    webhook::{
        Algorithm, Delivery, DeliveryList, Encoding, PATH, Secret, WebhookKind, WebhookList, WebhookSpec,
        WebhookView, schemes::sign,
    },
};

use crate::{
    Global,
    client::{Answer, Ask},
    failure::{Exit, Failure, Result},
    table, words,
};

/// What to do if nobody knows whether a change was made.
const DOUBT: &str = "Look with `stepwell webhooks show`; setting it again is safe.";

/// The variable with the secret of a webhook.
const SECRET: &str = "STEPWELL_WEBHOOK_SECRET";

/// What can be done with webhooks.
#[derive(Debug, Subcommand)]
pub enum Webhooks {
    /// List the webhooks of a topic.
    List(Topic),
    /// Show a webhook and its address.
    Show(One),
    /// Create a webhook, or change it.
    Set(Box<Set>),
    /// Delete a webhook and its deliveries. Its events stay.
    Delete(One),
    /// List the latest deliveries of a webhook, or show one with its body.
    Deliveries(Deliveries),
    /// Make an event of a delivery again.
    Redeliver(Redeliver),
    /// Send a signed delivery to a webhook.
    Test(Test),
}

/// A topic.
#[derive(Debug, Args)]
pub struct Topic {
    /// The topic: stripe, for events such as stripe/invoice.paid.
    topic: String,
}

/// A webhook.
#[derive(Debug, Args)]
pub struct One {
    /// Its topic.
    topic: String,
    /// Its id.
    #[arg(value_name = "WEBHOOK")]
    id: String,
}

/// Where the secret comes from: not from the command line, which other users of the machine can see.
#[derive(Debug, Args)]
pub struct SecretFrom {
    /// The file with the secret that the sender signs with; `-` for standard input. Without it, the variable
    /// `STEPWELL_WEBHOOK_SECRET` has the secret.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// What a webhook is.
#[derive(Debug, Args)]
pub struct Set {
    /// Its id.
    #[arg(value_name = "WEBHOOK")]
    id: String,
    /// The event that a delivery becomes: order/paid, or 'stripe/{body.type}'.
    event: String,
    /// Who signs the deliveries, and how.
    #[arg(long, value_enum)]
    kind: Kind,
    #[command(flatten)]
    secret: SecretFrom,
    /// How long the secret that is replaced stays active: 1h, 2d. 0s ends it at once. The default is one day.
    #[arg(long, value_name = "LENGTH", value_parser = words::parse_length)]
    overlap: Option<u64>,
    /// An expression that gives the event's id: 'body.order.id'.
    #[arg(long = "event-id", value_name = "EXPRESSION")]
    event_id: Option<String>,
    /// An expression that gives the event's data: 'body.data.object'.
    #[arg(long, value_name = "EXPRESSION")]
    data: Option<String>,
    /// How many seconds a signed time may differ from now. The default is 300.
    #[arg(long, value_name = "SECONDS")]
    tolerance: Option<u32>,
    /// For hmac: the header with the signature.
    #[arg(long)]
    header: Option<String>,
    /// For hmac: what stands before the signature in that header: sha256=.
    #[arg(long)]
    prefix: Option<String>,
    /// For hmac: the signature is Base64, not hexadecimal.
    #[arg(long)]
    base64: bool,
    /// For hmac: the hash is SHA-512, not SHA-256.
    #[arg(long)]
    sha512: bool,
    /// For hmac: the header with the id of a delivery.
    #[arg(long)]
    id_header: Option<String>,
}

/// Who signs, and how.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Kind {
    /// Standard Webhooks.
    Standard,
    /// GitHub.
    Github,
    /// Stripe.
    Stripe,
    /// Slack.
    Slack,
    /// An HMAC of the body in a header.
    Hmac,
}

/// Deliveries of a webhook.
#[derive(Debug, Args)]
pub struct Deliveries {
    #[command(flatten)]
    one: One,
    /// The number of a delivery, to show that one.
    delivery: Option<u64>,
}

/// A delivery of a webhook.
#[derive(Debug, Args)]
pub struct Redeliver {
    #[command(flatten)]
    one: One,
    /// The number of the delivery.
    delivery: u64,
}

/// What to deliver.
#[derive(Debug, Args)]
pub struct Test {
    #[command(flatten)]
    one: One,
    /// The body to sign and send. The default is a small JSON object with an id.
    body: Option<String>,
    #[command(flatten)]
    secret: SecretFrom,
}

impl SecretFrom {
    fn read(&self) -> Result<Option<String>> {
        let unreadable = |error: std::io::Error| {
            Failure::new(Exit::Usage, format!("the secret cannot be read: {error}"))
                .next("Look at --secret-file.")
        };
        let text = match &self.secret_file {
            None => std::env::var(SECRET).ok(),
            Some(path) if path.as_os_str() == "-" => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
                Some(text)
            }
            Some(path) => Some(fs::read_to_string(path).map_err(unreadable)?),
        };
        Ok(text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned()).filter(|text| !text.is_empty()))
    }
}

impl Set {
    fn spec(self) -> Result<(String, WebhookSpec)> {
        let secret = self.secret.read()?.map(Secret);
        let kind = match self.kind {
            Kind::Standard => WebhookKind::Standard,
            Kind::Github => WebhookKind::Github,
            Kind::Stripe => WebhookKind::Stripe,
            Kind::Slack => WebhookKind::Slack,
            Kind::Hmac => WebhookKind::Hmac,
        };
        let spec = WebhookSpec {
            kind,
            event: self.event,
            id: self.event_id,
            data: self.data,
            tolerance_s: self.tolerance,
            header: self.header,
            prefix: self.prefix,
            encoding: self.base64.then_some(Encoding::Base64),
            algorithm: self.sha512.then_some(Algorithm::Sha512),
            id_header: self.id_header,
            secret,
            overlap_ms: self.overlap,
        };
        Ok((self.id, spec))
    }
}

impl Webhooks {
    /// Does it.
    pub fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let ask = Ask { doubt: Some(DOUBT), ..Ask::default() };
        let answer: Answer<WebhookView> = match self {
            Self::List(Topic { topic }) => return list(global, topic),
            Self::Delete(One { topic, id }) => return delete(global, &topic, &id),
            Self::Deliveries(Deliveries { one, delivery: None }) => return deliveries(global, &one),
            Self::Deliveries(Deliveries { one, delivery: Some(number) }) => {
                return delivery(global, &one, number);
            }
            Self::Redeliver(redeliver) => return redeliver.run(global),
            Self::Test(test) => return test.run(global),
            Self::Show(One { topic, id }) => client.get(&["webhooks", &topic, &id], &ask)?,
            Self::Set(set) => {
                let (id, spec) = set.spec()?;
                let topic = spec.event.split('/').next().unwrap_or_default().to_owned();
                let body = Some(serde_json::to_string(&spec).expect("it holds only what JSON can say"));
                client.put(&["webhooks", &topic, &id], &Ask { body, ..ask })?
            }
        };
        if global.json {
            anstream::println!("{}", answer.text);
        } else {
            show(&answer.value);
        }
        Ok(())
    }
}

impl Test {
    /// Signs a body as the sender would, and delivers it at the webhook's own address.
    fn run(self, global: &Global) -> Result {
        let client = global.client()?;
        let Self { one: One { topic, id }, body, secret } = self;
        let Some(secret) = secret.read()? else {
            let failure =
                Failure::new(Exit::Usage, "the webhook's secret is needed to sign a delivery".to_owned());
            return Err(failure
                .next(format!("Set {SECRET}, or pass --secret-file. Stepwell does not show it again.")));
        };
        let webhook: Answer<WebhookView> = client.get(&["webhooks", &topic, &id], &Ask::default())?;
        let WebhookView { url, spec, .. } = webhook.value;
        let now = words::now();
        let delivery = format!("test_{}", now.as_millis());
        let body = body
            .unwrap_or_else(|| json!({ "id": delivery, "event_id": delivery, "type": "test" }).to_string());
        let headers = sign(&spec, &secret, &delivery, now, body.as_bytes());
        let parts = url.split_once(PATH).map(|(_, rest)| rest).unwrap_or_default();
        let path: Vec<_> = ["hooks"].into_iter().chain(parts.split('/')).collect();
        let answer: Answer<Accepted> = client.deliver(&path, &headers, &body)?;
        told(global, &answer);
        Ok(())
    }
}

impl Redeliver {
    fn run(self, global: &Global) -> Result {
        let Self { one: One { topic, id }, delivery } = self;
        let path = ["webhooks", &topic, &id, "deliveries", &delivery.to_string(), "redeliver"];
        let doubt = Some("Look with `stepwell events list` whether there is another event.");
        let answer: Answer<Accepted> = global.client()?.post(&path, &Ask { doubt, ..Ask::default() })?;
        told(global, &answer);
        Ok(())
    }
}

fn told(global: &Global, answer: &Answer<Accepted>) {
    if global.json {
        anstream::println!("{}", answer.text);
        return;
    }
    let Accepted { status, name, id, .. } = &answer.value;
    let (name, id) = (words::plain(name), words::plain(id.as_deref().unwrap_or_default()));
    match status {
        AcceptedStatus::Accepted => anstream::println!("Accepted as {name}, with the id {id}."),
        AcceptedStatus::Duplicate => {
            anstream::println!("The event {id} was accepted before. Nothing changed.");
        }
        AcceptedStatus::Refused => anstream::println!("Refused."),
    }
}

fn list(global: &Global, topic: String) -> Result {
    let ask = Ask { query: vec![("topic", topic)], ..Ask::default() };
    let answer: Answer<WebhookList> = global.client()?.get(&["webhooks"], &ask)?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    for id in &answer.value.unreadable {
        anstream::eprintln!("This release cannot read the webhook '{}'. Set it again.", words::plain(id));
    }
    if answer.value.webhooks.is_empty() {
        anstream::eprintln!("The topic has no webhooks. `stepwell webhooks set` creates one.");
    }
    let row = |hook: &WebhookView| {
        vec![words::plain(&hook.id), kind(hook.spec.kind).to_owned(), words::plain(&hook.spec.event)]
    };
    table::print(&answer.value.webhooks.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

fn delete(global: &Global, topic: &str, id: &str) -> Result {
    let ask = Ask { doubt: Some(DOUBT), ..Ask::default() };
    let _: Answer<IgnoredAny> = global.client()?.delete(&["webhooks", topic, id], &ask)?;
    if global.json {
        anstream::println!("{}", json!({ "deleted": id }));
    } else {
        anstream::println!("The webhook {} is deleted.", words::plain(id));
    }
    Ok(())
}

fn deliveries(global: &Global, One { topic, id }: &One) -> Result {
    let path = ["webhooks", topic, id, "deliveries"];
    let answer: Answer<DeliveryList> = global.client()?.get(&path, &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    if answer.value.deliveries.is_empty() {
        anstream::eprintln!("Nothing was delivered yet. `stepwell webhooks test` sends a signed delivery.");
    }
    let row = |one: &Delivery| vec![one.id.to_string(), words::date(one.at), outcome(one)];
    table::print(&answer.value.deliveries.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

fn delivery(global: &Global, One { topic, id }: &One, number: u64) -> Result {
    let path = ["webhooks", topic, id, "deliveries", &number.to_string()];
    let answer: Answer<Delivery> = global.client()?.get(&path, &Ask::default())?;
    if global.json {
        anstream::println!("{}", answer.text);
        return Ok(());
    }
    let one = &answer.value;
    anstream::println!("{}  {}", words::date(one.at), outcome(one));
    for (name, value) in &one.headers {
        anstream::println!("{}: {}", words::plain(name), words::plain(value));
    }
    anstream::println!("\n{}", words::plain(one.body.as_deref().unwrap_or_default()));
    Ok(())
}

fn outcome(one: &Delivery) -> String {
    match (&one.event, &one.why) {
        (Some(event), _) => words::plain(&format!("accepted as {event}")),
        (None, Some(why)) => words::plain(&format!("refused: {why}")),
        (None, None) => "refused".to_owned(),
    }
}

fn kind(kind: WebhookKind) -> &'static str {
    match kind {
        WebhookKind::Standard => "standard",
        WebhookKind::Github => "github",
        WebhookKind::Stripe => "stripe",
        WebhookKind::Slack => "slack",
        WebhookKind::Hmac => "hmac",
    }
}

fn show(webhook: &WebhookView) {
    let field = |name: &str, value: String| anstream::println!("  {name:9} {value}");
    let spec = &webhook.spec;
    anstream::println!("{}", words::plain(&webhook.id));
    field("address", words::plain(&webhook.url));
    field("kind", kind(spec.kind).to_owned());
    field("event", words::plain(&spec.event));
    for (name, expression) in [("id", &spec.id), ("data", &spec.data)] {
        if let Some(expression) = expression {
            field(name, words::plain(expression));
        }
    }
    if let Some(until) = webhook.previous_until {
        field("secrets", format!("2; the previous one until {}", words::date(until)));
    }
}
