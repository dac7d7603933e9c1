//! The state after an entry. Total: whatever was recorded has happened.

use std::rc::Rc;

use super::{Catalog, Entry, KnownIssuer};

impl Catalog {
    /// Lets entries have happened.
    pub fn apply_all(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.apply(entry);
        }
    }

    fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::KeyStored(key) => {
                self.keys.insert(key.id.clone(), Rc::new(key.clone()));
            }
            Entry::KeyForgotten(id) => {
                self.keys.remove(id);
            }
            Entry::SessionOpened(session) => {
                self.sessions.insert(session.id.clone(), Rc::new(session.clone()));
            }
            Entry::SessionExtended { id, expires_at } => {
                if let Some(session) = self.sessions.get_mut(id) {
                    Rc::make_mut(session).expires_at = *expires_at;
                }
            }
            Entry::RefusalsCounted(more) => self.refused = self.refused.plus(*more),
            Entry::SessionEnded(id) | Entry::SessionRevoked(id) => {
                self.sessions.remove(id);
            }
            Entry::LimitsSet(limits) => self.limits = *limits,
            Entry::RunsSet(settings) => self.runs = *settings,
            Entry::WorkflowSet { workflow, settings: Some(settings) } => {
                self.workflows.insert(workflow.clone(), *settings);
            }
            Entry::WorkflowSet { workflow, settings: None } => {
                self.workflows.remove(workflow);
            }
            Entry::Declared(changed) => self.declared.apply(changed),
            Entry::LifeDrawn => self.lives += 1,
            Entry::NamespaceRemoved(name) => {
                self.namespaces.remove(name);
            }
            Entry::Begun(life) => self.life = *life,
            Entry::DeletionWent(deletion) => self.deletion = Some(deletion.clone()),
            Entry::NamespaceAdded(namespace) | Entry::NamespaceLeft(namespace) => {
                self.namespaces.insert(namespace.name.clone(), Rc::new(namespace.clone()));
            }
            Entry::RevisionRaised => self.issuer_revision += 1,
            Entry::IssuerSet(issuer) => {
                let known = KnownIssuer { issuer: issuer.clone(), revision: self.issuer_revision };
                self.issuers.insert(issuer.issuer.clone(), Rc::new(known));
            }
            Entry::IssuerRemoved(issuer) => {
                self.issuers.remove(issuer);
            }
            Entry::Trusted { issuer, revision } => {
                self.trusted.insert(issuer.clone(), *revision);
            }
            Entry::Distrusted(issuer) => {
                self.trusted.remove(issuer);
            }
            Entry::RelationBegun(relation) => {
                self.relations.insert(relation.clone(), false);
            }
            Entry::RelationOver(relation) => {
                self.relations.insert(relation.clone(), true);
            }
            Entry::RelationEnded(relation) => {
                self.relations.remove(relation);
            }
            Entry::PoolGrown(cells) => self.pool.clone_from(cells),
            Entry::VersionRaised => self.version += 1,
            Entry::CellHeard { cell, version } => {
                self.watchers.insert(cell.clone(), *version);
            }
            Entry::StaleNamed { version, ids } => {
                self.stale.insert(*version, ids.clone());
            }
            Entry::StaleForgotten(version) => {
                self.stale.remove(version);
            }
            Entry::Audited(line) => {
                self.audit.seq = self.audit.seq.max(line.record.seq);
                self.audit.lines.insert(line.log, line.number);
            }
            Entry::StationsTouched(last) => self.touched.clone_from(last),
            // Neither the register nor the audit log is kept in memory.
            Entry::StationRegistered(_)
            | Entry::StationForgotten(_)
            | Entry::LetterNoted(_)
            | Entry::AuditTrimmed(_) => {}
        }
    }
}
