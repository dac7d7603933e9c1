//! Who may come in: the keys and sessions of the namespace, and the namespaces of the deployment.

use stepwell_protocol::{
    access::{KeyList, KeyStatus, KeyView, Limits, NamespaceList, NamespaceView, SessionList, SessionView},
    routes::Route,
};

use super::{Viewer, flat::Namespace, settings};
use crate::{
    book::{Book, Stop},
    form::{Action, Field, Kind, Then, json_text, words},
    may::path,
    place::Place,
    sheet::{Body, Cell, Facts, Section, Sheet, Table, Tone, any, labels, nothing},
};

/// What is said beside a key that is shown.
const ONCE: &str = "Copy the key now. It is shown only this once and not stored.";

/// The keys.
pub fn keys(viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let list = book.ask::<KeyList>(&path(Route::ListKeys, &[]))?;
    let row = |key: &KeyView| {
        let (tone, word) = match key.status {
            KeyStatus::Active => (Tone::Good, "active"),
            KeyStatus::Expired => (Tone::Quiet, "expired"),
            KeyStatus::Revoked => (Tone::Quiet, "revoked"),
        };
        let actions = if key.status == KeyStatus::Active { key_actions(key, viewer) } else { Vec::new() };
        let scopes: Vec<_> = key.scopes.iter().map(ToString::to_string).collect();
        vec![
            Cell::Text(key.name.clone()),
            Cell::Mono(key.id.clone()),
            Cell::State(tone, word.into()),
            labels(&scopes),
            Cell::Text(key.environment.clone()),
            Cell::Ago(key.created_at),
            Cell::Text(key.created_by.clone()),
            any(key.expires_at),
            if actions.is_empty() { nothing() } else { Cell::Actions(actions) },
        ]
    };
    let table = Table::new(
        &["Name", "Id", "State", "Scopes", "Environment", "Created", "By", "Expires", ""],
        list.keys.iter().map(row).collect(),
    )
    .or("There are no keys but the deployment's own. Create one:", "stepwell keys create ci --scope read");
    let create = viewer.may.act(Route::CreateKey, &[], "Create a key", "").map(new_key);
    Ok(Sheet::new("Keys").act(create).with(Section::table("", table)))
}

fn new_key(action: Action) -> Action {
    let of = Field::of_body;
    action
        .field(of("name", "Name", Kind::Text).required().hint("For people, such as ci."))
        .field(
            of("scopes", "Scopes", Kind::Lines)
                .required()
                .with("read")
                .hint("One per line: read, write, admin, or for one workflow read:greet, write:greet."),
        )
        .field(
            of("environment", "Environment", words(&[("live", "live"), ("test", "test")]))
                .required()
                .with(json_text("live"))
                .hint("It is part of the key's text and has no other effect."),
        )
        .field(
            of("expires_at", "Expires", Kind::Instant)
                .hint("In UTC, such as 2027-01-01. Never, if it is empty."),
        )
        .then(Then::Show(&["key"], ONCE))
}

fn key_actions(key: &KeyView, viewer: &Viewer) -> Vec<Action> {
    let explained =
        "A new key with the same name and scopes is created. The old one stays active for the overlap.";
    let rotate = viewer.may.act(Route::RotateKey, &[&key.id], "Rotate", explained).map(|action| {
        action
            .titled(format!("Rotate {}", key.name))
            .field(
                Field::of_body("overlap_ms", "Overlap", Kind::Span)
                    .with("1d")
                    .hint("How long the old key stays active: up to 30d."),
            )
            .then(Then::Show(&["key"], ONCE))
    });
    let explained = "The key and its sessions stop working within a second. You cannot undo this.";
    let revoke = viewer.may.act(Route::RevokeKey, &[&key.id], "Revoke", explained);
    let revoke = revoke.map(|action| action.titled(format!("Revoke {}", key.name)).grave());
    rotate.into_iter().chain(revoke).collect()
}

/// The sessions.
pub fn sessions(viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    let list = book.ask::<SessionList>(&path(Route::ListSessions, &[]));
    let own = book.maybe::<SessionView>(&path(Route::ShowSession, &[]));
    let own = own.map(|session| session.id);
    let list = list?;
    let row = |session: &SessionView| {
        let is_own = own.as_ref() == Some(&session.id);
        let explained = if is_own {
            "This is your own session: you are signed out."
        } else {
            "Whoever uses it is signed out, and its streams are closed."
        };
        let end = viewer.may.act(Route::RevokeSession, &[&session.id], "End", explained);
        let end = end.map(|action| action.titled("End this session").grave());
        let scopes: Vec<_> = session.scopes.iter().map(ToString::to_string).collect();
        let id = Cell::Mono(session.id.clone());
        vec![
            if is_own { Cell::Many(vec![id, Cell::Label("yours".into())]) } else { id },
            Cell::Text(session.subject.clone()),
            labels(&scopes),
            Cell::Ago(session.created_at),
            Cell::At(session.expires_at),
            end.map_or_else(nothing, |end| Cell::Actions(vec![end])),
        ]
    };
    let table = Table::new(
        &["Session", "Signed in with", "Scopes", "Opened", "Ends", ""],
        list.sessions.iter().map(row).collect(),
    )
    .or("Nobody is signed in.", "");
    Ok(Sheet::new("Sessions").with(Section::table("", table)))
}

/// The namespaces, for the deployment's own key.
pub fn namespaces(viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    if !viewer.may.ask(Route::ListNamespaces, None) {
        return Ok(locked("Namespaces"));
    }
    let list = book.ask::<NamespaceList>(&path(Route::ListNamespaces, &[]))?;
    let row = |namespace: &NamespaceView| {
        let (tone, word) =
            if namespace.deleting { (Tone::Held, "being deleted") } else { (Tone::Good, "active") };
        vec![
            Cell::Link(Place::Namespace(namespace.name.clone()), namespace.name.clone()),
            Cell::State(tone, word.into()),
            Cell::At(namespace.created_at),
        ]
    };
    let table = Table::new(&["Namespace", "State", "Created"], list.namespaces.iter().map(row).collect())
        .or("There is no namespace but default. Create one:", "stepwell namespaces create acme");
    let explained = "The namespace gets a first key with the scope admin.";
    let create = viewer.may.act(Route::CreateNamespace, &[], "Create a namespace", explained).map(|action| {
        let hint = "Up to 32 lower-case letters, digits and hyphens.";
        action
            .field(Field::of_body("name", "Name", Kind::Text).required().hint(hint))
            .then(Then::Show(&["admin", "key"], ONCE))
    });
    Ok(Sheet::new("Namespaces").act(create).with(Section::table("", table)))
}

/// One namespace.
pub fn namespace(name: &str, viewer: &Viewer, book: &mut Book) -> Result<Sheet, Stop> {
    if !viewer.may.ask(Route::ShowNamespace, None) {
        return Ok(locked(name));
    }
    let details = book.ask::<Namespace>(&path(Route::ShowNamespace, &[name]))?;
    let limits = details.limits;
    let set = viewer.may.act(Route::SetLimits, &[name], "Change", "A field that is empty means no limit.");
    let set =
        set.map(|action| action.titled(format!("Change the limits of {name}")).fields(limit_fields(limits)));
    let key = viewer.may.act(Route::CreateNamespaceKey, &[name], "Create a key", "").map(new_key);
    let explained = "All runs, journals, keys, sessions, settings and the audit log of the namespace are deleted. You \
                     cannot undo this.";
    let delete = viewer.may.act(Route::DeleteNamespace, &[name], "Delete", explained);
    let delete = delete.filter(|_| name != "default" && details.deleting.is_none());
    let delete = delete.map(|action| action.titled(format!("Delete the namespace {name}")).grave());
    let mut sheet = Sheet::new(name).below(Place::Namespaces, "Namespaces").act(key).act(delete);
    if let Some(deletion) = &details.deleting {
        let facts = Facts::default()
            .add("Since", deletion.since)
            .add("By", deletion.by.as_str())
            .add_any("Cells left", deletion.cells_left)
            .add_any("Other objects left", deletion.stations_left);
        sheet = sheet.stands(Tone::Held, "being deleted").with(Section::facts("Deletion", facts));
    }
    Ok(sheet
        .with(Section::facts("Limits", settings::limits(limits)).act(set))
        .with(Section::facts("Settings for runs", settings::of_runs(&details.runs))))
}

fn limit_fields(limits: Limits) -> Vec<Field> {
    let of = |name, label| Field::of_body(name, label, Kind::Number);
    vec![
        of("requests_per_second", "Requests per second").with_any(limits.requests_per_second),
        of("payload_bytes_per_second", "Bytes of payloads per second")
            .with_any(limits.payload_bytes_per_second),
        of("live_runs", "Runs that have not ended").with_any(limits.live_runs),
        of("payload_bytes_max", "Largest payload, in bytes").with_any(limits.payload_bytes_max),
    ]
}

/// What is shown instead of a page that takes the deployment's own key.
fn locked(title: &str) -> Sheet {
    Sheet::new(title).with(Section::new("The deployment's own key", Body::Unlock).note(
        "A session cannot see or change namespaces. The key stays in the memory of this page until you leave \
         the namespaces.",
    ))
}
