//! One webhook, and one of its deliveries.

use stepwell_protocol::{
    routes::Route,
    topic::AcceptedStatus,
    webhook::{Delivery, DeliveryList, WebhookList, WebhookSpec, WebhookView},
};

use super::{Viewer, schedules::unreadable, word_of};
use crate::{
    book::{Book, Stop},
    form::{Field, Kind, Then, json_text, words},
    may::path,
    place::Place,
    sheet::{Body, Cell, Facts, Section, Sheet, Table, Tone, any, nothing},
};

/// The webhooks of a topic.
pub fn of_topic(topic: &str, list: &WebhookList, viewer: &Viewer) -> Section {
    let row = |webhook: &WebhookView| {
        vec![
            Cell::Link(Place::Webhook(topic.to_owned(), webhook.id.clone()), webhook.id.clone()),
            Cell::Text(word_of(&webhook.spec.kind)),
            Cell::Mono(webhook.spec.event.clone()),
            Cell::Ago(webhook.changed_at),
        ]
    };
    let table = Table::new(&["Webhook", "Kind", "Event", "Changed"], list.webhooks.iter().map(row).collect())
        .or(
            "No webhook: no other service delivers events of this topic. Create one:",
            &format!("stepwell webhooks set billing '{topic}/{{body.type}}' --kind standard"),
        );
    let create = viewer.may.act(Route::PutWebhook, &[topic], "Create a webhook", "");
    let create = create.map(|action| {
        action.field(Field::of_path("Id").hint("A name of your choice.")).fields(spec_fields(topic, None))
    });
    Section::table("Webhooks", table).note(unreadable(&list.unreadable)).act(create)
}

/// One webhook.
pub fn one(topic: &str, id: &str, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let names = [topic, id];
    let view = book.ask::<WebhookView>(&path(Route::ShowWebhook, &names));
    let list = book.maybe::<DeliveryList>(&path(Route::ListDeliveries, &names)).unwrap_or_default();
    let view = view?;
    let explained =
        "Leave the secret empty to keep it. A new secret replaces it; the old one stays active for a day.";
    let edit = viewer.may.act(Route::PutWebhook, &names, "Edit", explained);
    let edit = edit.map(|it| it.titled(format!("Edit {id}")).fields(spec_fields(topic, Some(&view.spec))));
    let explained = "Its address stops working, and its deliveries are deleted. Its events stay.";
    let delete = viewer.may.act(Route::DeleteWebhook, &names, "Delete", explained);
    let delete =
        delete.map(|it| it.titled(format!("Delete {id}")).then(Then::Go(Place::topic(topic))).grave());
    let spec = &view.spec;
    let facts = Facts::default()
        .add("Address", Cell::Mono(view.url.clone()))
        .add("Kind", word_of(&spec.kind))
        .add("Event", Cell::Mono(spec.event.clone()))
        .add_any("Event's id", spec.id.clone().map(Cell::Mono))
        .add_any("Event's data", spec.data.clone().map(Cell::Mono))
        .add_any("Signature in", spec.header.clone())
        .add_any("Prefix", spec.prefix.clone())
        .add_any("Encoding", spec.encoding.map(|it| word_of(&it)))
        .add_any("Hash", spec.algorithm.map(|it| word_of(&it)))
        .add_any("Delivery's id in", spec.id_header.clone())
        .add_any("Seconds off at most", spec.tolerance_s)
        .add_any("Old secret works until", view.previous_until)
        .add("Changed by", view.changed_by.as_str())
        .add("Changed", view.changed_at);
    let rows = list.deliveries.iter().map(|delivery| row(topic, id, delivery, viewer));
    let table = Table::new(&["Delivery", "When", "Result", "Event", "Why", ""], rows.collect()).or(
        "Nothing was delivered yet. Send a test delivery:",
        &format!("stepwell webhooks test {topic} {id} '{{\"id\": \"evt_1\"}}'"),
    );
    Ok(Sheet::new(id)
        .below(Place::topic(topic), "Topic")
        .act(edit)
        .act(delete)
        .with(Section::facts("Webhook", facts))
        .with(Section::table("Latest deliveries", table)))
}

/// One delivery.
pub fn delivery(
    topic: &str,
    id: &str,
    number: &str,
    viewer: &Viewer,
    book: &mut Book,
) -> Result<Sheet, Stop> {
    let view = book.ask::<Delivery>(&path(Route::ShowDelivery, &[topic, id, number]))?;
    let (tone, word) = standing(view.status);
    let headers = view
        .headers
        .iter()
        .map(|(name, value)| vec![Cell::Mono(name.clone()), Cell::Text(value.clone())])
        .collect();
    let facts = Facts::default()
        .add("Delivered", view.at)
        .add("Signature", if view.is_verified { "valid" } else { "not valid" })
        .add_any("Refused because", view.why.clone())
        .add_any("Event", view.event.as_deref().map(|event| event_link(topic, event)));
    let body = view.body.clone().unwrap_or_default();
    Ok(Sheet::new(format!("Delivery {number}"))
        .below(Place::Webhook(topic.to_owned(), id.to_owned()), "Webhook")
        .stands(tone, word)
        .act(redeliver(topic, id, &view, viewer))
        .with(Section::facts("Delivery", facts))
        .with(
            Section::table("Headers", Table::new(&["Header", "Value"], headers).or("It had none.", ""))
                .note("Without signatures, keys, tokens and cookies."),
        )
        .with(Section::new("Body", Body::Payload(body, format!("{id}-{number}.txt")))))
}

fn row(topic: &str, id: &str, delivery: &Delivery, viewer: &Viewer) -> Vec<Cell> {
    let (tone, word) = standing(delivery.status);
    let number = delivery.id.to_string();
    let again = redeliver(topic, id, delivery, viewer);
    vec![
        Cell::Link(Place::Delivery(topic.to_owned(), id.to_owned(), number.clone()), number),
        Cell::Ago(delivery.at),
        Cell::State(tone, word.to_owned()),
        delivery.event.as_deref().map_or_else(nothing, |event| event_link(topic, event)),
        any(delivery.why.clone()),
        again.map_or_else(nothing, |action| Cell::Actions(vec![action])),
    ]
}

fn redeliver(topic: &str, id: &str, delivery: &Delivery, viewer: &Viewer) -> Option<crate::form::Action> {
    let explained = "The event of this delivery is sent again, with a new id: it starts runs again.";
    let number = delivery.id.to_string();
    let action = viewer.may.act(Route::RedeliverWebhook, &[topic, id, &number], "Redeliver", explained)?;
    Some(action.titled(format!("Redeliver {}", delivery.id)))
}

fn standing(status: AcceptedStatus) -> (Tone, &'static str) {
    match status {
        AcceptedStatus::Accepted => (Tone::Good, "accepted"),
        AcceptedStatus::Duplicate => (Tone::Quiet, "duplicate"),
        AcceptedStatus::Refused => (Tone::Bad, "refused"),
    }
}

fn event_link(topic: &str, event: &str) -> Cell {
    Cell::Link(Place::Event(topic.to_owned(), event.to_owned()), event.to_owned())
}

fn spec_fields(topic: &str, spec: Option<&WebhookSpec>) -> Vec<Field> {
    let of = Field::of_body;
    let text = |read: fn(&WebhookSpec) -> Option<String>| spec.and_then(read);
    let chosen = |json: Option<String>| json.unwrap_or_default();
    let kinds = words(&[
        ("standard", "Standard Webhooks"),
        ("github", "GitHub"),
        ("stripe", "Stripe"),
        ("slack", "Slack"),
        ("hmac", "another HMAC"),
    ]);
    let kind = spec.map_or_else(|| "standard".to_owned(), |spec| word_of(&spec.kind));
    let secret = of("secret", "Secret", Kind::Secret).hint("That the sender signs with. It is never shown.");
    let for_hmac = "Only for another HMAC.";
    vec![
        of("kind", "Kind", kinds).required().with(json_text(&kind)),
        of("event", "Event", Kind::Text)
            .required()
            .with(spec.map_or_else(|| format!("{topic}/{{body.type}}"), |spec| spec.event.clone()))
            .hint("A name, or a topic and an expression in braces."),
        if spec.is_some() { secret } else { secret.required() },
        of("id", "Event's id", Kind::Text).with_any(text(|it| it.id.clone())).hint("An expression."),
        of("data", "Event's data", Kind::Text)
            .with_any(text(|it| it.data.clone()))
            .hint("An expression, such as body.data.object."),
        of("tolerance_s", "Seconds that a signed time may be off", Kind::Number)
            .with_any(spec.and_then(|it| it.tolerance_s)),
        of("header", "Header with the signature", Kind::Text)
            .with_any(text(|it| it.header.clone()))
            .hint(for_hmac),
        of("prefix", "Prefix of the signature", Kind::Text)
            .with_any(text(|it| it.prefix.clone()))
            .hint(for_hmac),
        of("encoding", "Encoding", words(&[("hex", "hex"), ("base64", "base64")]))
            .with(chosen(spec.and_then(|it| it.encoding).map(|it| json_text(&word_of(&it)))))
            .hint(for_hmac),
        of("algorithm", "Hash", words(&[("sha256", "SHA-256"), ("sha512", "SHA-512")]))
            .with(chosen(spec.and_then(|it| it.algorithm).map(|it| json_text(&word_of(&it)))))
            .hint(for_hmac),
        of("id_header", "Header with the delivery's id", Kind::Text)
            .with_any(text(|it| it.id_header.clone()))
            .hint(for_hmac),
    ]
}
