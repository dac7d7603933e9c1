//! The audit log: which entries people should know of, and in which words.

use serde::Serialize;
use serde_json::{Map, Value, json};
use stepwell_protocol::{Timestamp, access::AuditRecord};

use super::{
    AUDIT_MS, ApiKey, Catalog, Changed, DETAIL_LENGTH_MAX, Decision, Entry, LetterDeed, LetterNote, Line,
    Log, Trim, decide::numbers,
};
use crate::{
    access::APP,
    ordered::{OrdMap, OrdSet},
};

/// A line of the audit log: its part, the action, the subject, and what was changed.
type Said = (Log, &'static str, String, Option<String>);

impl Catalog {
    /// Adds a line to the audit log for what people should know of, and drops what is too old.
    pub(super) fn audit(&self, now: Timestamp, actor: &str, decision: &mut Decision) {
        let lines: Vec<_> = decision.iter().filter_map(|entry| self.line(now, actor, entry)).collect();
        let mut numbers = self.audit.clone();
        let mut written = OrdMap::new();
        for (log, action, subject, detail) in lines {
            let number = numbers.lines.get_or_default(log);
            *number += 1;
            numbers.seq += 1;
            written.insert(log, *number);
            let (actor, action) = (actor.to_owned(), action.to_owned());
            let record = AuditRecord { seq: numbers.seq, at: now, actor, action, subject, detail };
            decision.push(Entry::Audited(Line { log, number: *number, record }));
        }
        decision.extend(written.into_iter().map(|(log, last)| trimmed(now, log, last)));
    }

    /// Where an entry stands in the audit log, what it is called there, what it is about, and what was changed.
    fn line(&self, now: Timestamp, actor: &str, entry: &Entry) -> Option<Said> {
        let change = |action, subject, detail| Some((Log::Changes, action, subject, detail));
        let registry = |action, subject, detail| Some((Log::Registry, action, subject, detail));
        match entry {
            Entry::KeyStored(key) => {
                let action = match (self.keys.get(&key.id), key.revoked_at) {
                    (None, _) => "key_created",
                    (Some(_), Some(_)) => "key_revoked",
                    (Some(_), None) => "key_rotated",
                };
                let before = self.keys.get(&key.id).map(|key| shown(key)).unwrap_or_default();
                change(action, format!("key:{}", key.id), in_a_line(&before, &shown(key)))
            }
            Entry::SessionOpened(session) => {
                Some((Log::SignIns, "session_opened", format!("session:{}", session.id), None))
            }
            Entry::SessionEnded(id) => {
                // That one has come to its end by itself is no news.
                let is_over = self.sessions.get(id).is_some_and(|session| session.expires_at <= now);
                (!is_over).then(|| (Log::SignIns, "session_ended", format!("session:{id}"), None))
            }
            Entry::SessionRevoked(id) => change("session_revoked", format!("session:{id}"), None),
            Entry::LimitsSet(limits) => {
                change("limits_set", "namespace".into(), in_a_line(&value(&self.limits), &value(limits)))
            }
            Entry::RunsSet(settings) => {
                change("settings_set", "namespace".into(), in_a_line(&value(&self.runs), &value(settings)))
            }
            Entry::WorkflowSet { workflow, settings } => {
                let before = self.workflows.get(workflow).map(value).unwrap_or_default();
                let detail = in_a_line(&before, &settings.as_ref().map(value).unwrap_or_default());
                change("settings_set", format!("workflow:{workflow}"), detail)
            }
            Entry::Declared(Changed::Holds(_, said)) => {
                let detail = said.as_ref()?.chars().take(DETAIL_LENGTH_MAX).collect();
                let log = if actor == APP { Log::Syncs } else { Log::Changes };
                Some((log, "manifest_synced", "manifest".into(), Some(detail)))
            }
            Entry::Declared(Changed::Paused(workflow, _)) => {
                change("workflow_paused", format!("workflow:{workflow}"), None)
            }
            Entry::Declared(Changed::Resumed(workflow)) => {
                change("workflow_resumed", format!("workflow:{workflow}"), None)
            }
            Entry::NamespaceAdded(namespace) => {
                registry("namespace_created", format!("namespace:{}", namespace.name), None)
            }
            Entry::NamespaceLeft(namespace) => {
                registry("namespace_deleting", format!("namespace:{}", namespace.name), None)
            }
            Entry::NamespaceRemoved(name) => registry("namespace_deleted", format!("namespace:{name}"), None),
            Entry::IssuerSet(issuer) => {
                let before = self.issuers.get(&issuer.issuer).map(|known| value(&known.issuer));
                let detail = in_a_line(&before.unwrap_or_default(), &value(issuer));
                registry("issuer_set", format!("issuer:{}", issuer.issuer), detail)
            }
            Entry::IssuerRemoved(issuer) => registry("issuer_removed", format!("issuer:{issuer}"), None),
            Entry::LetterNoted(LetterNote { letter, deed, heads }) => {
                let action = match deed {
                    LetterDeed::Redeliver => "letter_redelivered",
                    LetterDeed::Discard => "letter_discarded",
                };
                let said =
                    heads.iter().map(|head| format!("{} from {} to {}", head.what, head.from, head.to));
                let said: String =
                    said.collect::<Vec<_>>().join(", ").chars().take(DETAIL_LENGTH_MAX).collect();
                Some((Log::Letters, action, format!("letter:{letter}"), (!said.is_empty()).then_some(said)))
            }
            Entry::PoolGrown(cells) => registry("pool_grown", format!("pool:{}", numbers(cells)), None),
            Entry::KeyForgotten(_)
            | Entry::Declared(
                Changed::Retired(_)
                | Changed::Unretired(_)
                | Changed::Heard(_)
                | Changed::Topic(..)
                | Changed::Queue(..),
            )
            | Entry::SessionExtended { .. }
            | Entry::RefusalsCounted(_)
            | Entry::RevisionRaised
            | Entry::Trusted { .. }
            | Entry::Distrusted(_)
            | Entry::RelationBegun(_)
            | Entry::RelationOver(_)
            | Entry::RelationEnded(_)
            | Entry::LifeDrawn
            | Entry::Begun(_)
            | Entry::DeletionWent(_)
            | Entry::StationRegistered(_)
            | Entry::StationForgotten(_)
            | Entry::StationsTouched(_)
            | Entry::VersionRaised
            | Entry::StaleNamed { .. }
            | Entry::StaleForgotten(_)
            | Entry::CellHeard { .. }
            | Entry::Audited(_)
            | Entry::AuditTrimmed(_) => None,
        }
    }
}

/// Drops what a part of the audit log has beyond its quota, and what is too old.
pub(super) fn trimmed(now: Timestamp, log: Log, last: u64) -> Entry {
    let from = Timestamp::from_millis(now.as_millis().saturating_sub(AUDIT_MS));
    Entry::AuditTrimmed(Trim { log, first: (last + 1).saturating_sub(log.lines_max()), from })
}

/// What the audit log shows of a key: nobody sees a hash, of whatever it is.
fn shown(key: &ApiKey) -> Value {
    let ApiKey { name, environment, scopes, expires_at, .. } = key;
    json!({ "name": name, "environment": environment, "scopes": scopes, "expires_at": expires_at })
}

pub(super) fn value<T: Serialize>(of: &T) -> Value {
    serde_json::to_value(of).expect("settings hold only what JSON can say")
}

/// Which fields were changed, from what to what, in one line.
fn in_a_line(before: &Value, after: &Value) -> Option<String> {
    let text: String = changed(before, after).join(", ").chars().take(DETAIL_LENGTH_MAX).collect();
    (!text.is_empty()).then_some(text)
}

/// Which fields were changed, from what to what.
pub(super) fn changed(before: &Value, after: &Value) -> Vec<String> {
    let objects = [before, after].into_iter().filter_map(Value::as_object);
    let names: OrdSet<_> = objects.flat_map(Map::keys).collect();
    let shown = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    let field = |name: &String| {
        let [before, after] = [before, after].map(|all| all.get(name).unwrap_or(&Value::Null));
        (before != after).then(|| format!("{name}: {} -> {}", shown(before), shown(after)))
    };
    names.into_iter().filter_map(field).collect()
}
