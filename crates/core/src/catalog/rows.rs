//! What a catalog needs of its storage, and how its state is written into rows.

use std::rc::Rc;

use serde::{Serialize, de::DeserializeOwned};
use stepwell_protocol::{Timestamp, access::AuditRecord, json};

use super::{Catalog, Changed, Entry, Line, Log, Namespace, Numbers, Relation};

/// One stored thing: its kind, its name among them, and what is known of it as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is.
    pub kind: String,
    /// Which.
    pub name: String,
    /// What is known; nothing if the row is to be deleted.
    pub value: Option<String>,
}

/// What of the audit log is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// From which part of it.
    pub log: Log,
    /// All before this number of the part.
    pub first: u64,
    /// All before this time, but for the latest: the numbers go on from it.
    pub from: Timestamp,
}

/// The rows of one catalog.
pub trait Rows {
    /// Why the storage failed, or cannot be read.
    type Error: From<Corrupt>;

    /// All rows but the audit log's, and those of the kind [`STATION`].
    fn load(&self) -> Result<Vec<Row>, Self::Error>;

    /// The largest numbers in the audit log.
    fn audit_last(&self) -> Result<Numbers, Self::Error>;

    /// The names of rows of the kind [`STATION`] behind this one, in the order of their bytes.
    fn stations(&self, after: &str, limit: usize) -> Result<Vec<String>, Self::Error>;

    /// Whether there is a row of the kind [`STATION`] of this name.
    fn has_station(&self, name: &str) -> Result<bool, Self::Error>;

    /// Stores all of this or nothing.
    fn commit(&self, rows: &[Row], audit: &[Line], trims: &[Trim]) -> Result<(), Self::Error>;

    /// Lines of the audit log below a number, newest first; those of the registry too, or not.
    fn audit(&self, below: u64, limit: u32, with_registry: bool) -> Result<Vec<AuditRecord>, Self::Error>;
}

/// Stored data that no release has written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored {kind} '{name}' cannot be read: {why}")]
pub struct Corrupt {
    kind: String,
    name: String,
    why: String,
}

/// The kind of the rows that are read in pages: a namespace may have any number of stations.
pub const STATION: &str = "station";

const KEY: &str = "key";
const SESSION: &str = "session";
const LIMITS: &str = "limits";
const REFUSED: &str = "refused";
const RUNS: &str = "runs";
const WORKFLOW: &str = "workflow";
const MANIFEST: &str = "manifest";
const RETIRED: &str = "retired";
const PAUSED: &str = "paused";
const SCHEDULES: &str = "schedules_heard";
const TRIGGERS: &str = "triggers_heard";
const HANDLERS: &str = "handlers_heard";
const NAMESPACE: &str = "namespace";
const ISSUER: &str = "issuer";
const REVISION: &str = "issuer_revision";
const RELATION: &str = "relation";
const TRUSTED: &str = "trusted";
const POOL: &str = "pool";
const VERSION: &str = "version";
const STALE: &str = "stale";
const LIFE: &str = "life";
const LIVES: &str = "lives";
const DELETION: &str = "deletion";
const WATCHER: &str = "watcher";
const TOUCHED: &str = "touched";

/// What can be left out if it cannot be read.
const LEFT_OUT: [&str; 9] =
    [KEY, SESSION, ISSUER, NAMESPACE, MANIFEST, RETIRED, SCHEDULES, TRIGGERS, HANDLERS];

impl Catalog {
    /// The state that rows stand for. Kinds that this release does not know are left alone.
    ///
    /// A key, session, issuer or namespace that cannot be read grants nothing, and the others stay good; what is declared
    /// comes again with the next sync. Without one of
    /// the other rows, something could be granted that must not be: then nothing is.
    pub fn from_rows(rows: &[Row], audit: Numbers) -> Result<Self, Corrupt> {
        let mut catalog = Self { audit, ..Self::default() };
        for row in rows {
            match catalog.take(row) {
                Err(corrupt) if LEFT_OUT.contains(&row.kind.as_str()) => {
                    catalog.unreadable.push(corrupt);
                }
                taken => taken?,
            }
        }
        Ok(catalog)
    }

    fn take(&mut self, row: &Row) -> Result<(), Corrupt> {
        let name = row.name.clone();
        match row.kind.as_str() {
            LIFE => self.life = read(row)?,
            LIVES => self.lives = read(row)?,
            DELETION => self.deletion = Some(read(row)?),
            KEY => drop(self.keys.insert(name, Rc::new(read(row)?))),
            SESSION => drop(self.sessions.insert(name, Rc::new(read(row)?))),
            LIMITS => self.limits = read(row)?,
            REFUSED => self.refused = read(row)?,
            RUNS => self.runs = read(row)?,
            WORKFLOW => drop(self.workflows.insert(name, read(row)?)),
            MANIFEST => self.declared.holds = Some(Rc::new(read(row)?)),
            RETIRED => drop(self.declared.retired.insert(name, Rc::new(read(row)?))),
            SCHEDULES => self.declared.heard = read(row)?,
            TRIGGERS => drop(self.declared.topics.insert(name, read(row)?)),
            HANDLERS => drop(self.declared.queues.insert(name, read(row)?)),
            PAUSED => drop(self.declared.paused.insert(name, read(row)?)),
            NAMESPACE => drop(self.namespaces.insert(name, Rc::new(read(row)?))),
            ISSUER => drop(self.issuers.insert(name, Rc::new(read(row)?))),
            REVISION => self.issuer_revision = read(row)?,
            RELATION => drop(self.relations.insert(relation(row)?, read(row)?)),
            TRUSTED => drop(self.trusted.insert(name, read(row)?)),
            POOL => self.pool = read(row)?,
            VERSION => self.version = read(row)?,
            STALE => drop(self.stale.insert(version(row)?, read(row)?)),
            WATCHER => drop(self.watchers.insert(name, read(row)?)),
            // One that cannot be read is no loss: the sweep begins anew.
            TOUCHED => self.touched = read::<String>(row)?.parse().ok(),
            _ => (),
        }
        Ok(())
    }

    /// With the fingerprints of the deployment's keys, the current one first.
    #[must_use]
    pub fn with_roots(self, roots: &[String]) -> Self {
        Self { roots: roots.to_vec(), ..self }
    }

    /// The row that an entry has changed, in the state after it.
    pub(super) fn row(&self, entry: &Entry) -> Option<Row> {
        match entry {
            Entry::KeyStored(key) => Some(write(KEY, &key.id, self.keys.get(&key.id).map(Rc::as_ref))),
            Entry::KeyForgotten(id) => Some(write(KEY, id, self.keys.get(id).map(Rc::as_ref))),
            Entry::SessionOpened(session) => {
                Some(write(SESSION, &session.id, self.sessions.get(&session.id).map(Rc::as_ref)))
            }
            Entry::RefusalsCounted(_) => Some(write(REFUSED, "", Some(&self.refused))),
            Entry::SessionEnded(id) | Entry::SessionRevoked(id) | Entry::SessionExtended { id, .. } => {
                Some(write(SESSION, id, self.sessions.get(id).map(Rc::as_ref)))
            }
            Entry::LimitsSet(_) => Some(write(LIMITS, "", Some(&self.limits))),
            Entry::RunsSet(_) => Some(write(RUNS, "", Some(&self.runs))),
            Entry::WorkflowSet { workflow, .. } => {
                Some(write(WORKFLOW, workflow, self.workflows.get(workflow)))
            }
            Entry::Declared(changed) => Some(self.row_of_declared(changed)),
            Entry::NamespaceAdded(Namespace { name, .. })
            | Entry::NamespaceLeft(Namespace { name, .. })
            | Entry::NamespaceRemoved(name) => {
                Some(write(NAMESPACE, name, self.namespaces.get(name).map(Rc::as_ref)))
            }
            Entry::LifeDrawn => Some(write(LIVES, "", Some(&self.lives))),
            Entry::Begun(_) => Some(write(LIFE, "", Some(&self.life))),
            Entry::DeletionWent(_) => Some(write(DELETION, "", self.deletion.as_ref())),
            Entry::StationForgotten(station) => Some(write::<u8>(STATION, &station.to_string(), None)),
            Entry::RevisionRaised => Some(write(REVISION, "", Some(&self.issuer_revision))),
            Entry::IssuerSet(issuer) => {
                Some(write(ISSUER, &issuer.issuer, self.issuers.get(&issuer.issuer).map(Rc::as_ref)))
            }
            Entry::IssuerRemoved(issuer) => {
                Some(write(ISSUER, issuer, self.issuers.get(issuer).map(Rc::as_ref)))
            }
            Entry::Trusted { issuer, .. } | Entry::Distrusted(issuer) => {
                Some(write(TRUSTED, issuer, self.trusted.get(issuer)))
            }
            Entry::RelationBegun(relation)
            | Entry::RelationOver(relation)
            | Entry::RelationEnded(relation) => {
                // No namespace has a blank in its name.
                let name = format!("{} {}", relation.namespace, relation.issuer);
                Some(write(RELATION, &name, self.relations.get(relation)))
            }
            Entry::PoolGrown(_) => Some(write(POOL, "", Some(&self.pool))),
            Entry::VersionRaised => Some(write(VERSION, "", Some(&self.version))),
            Entry::CellHeard { cell, .. } => Some(write(WATCHER, cell, self.watchers.get(cell))),
            Entry::StaleNamed { version, .. } | Entry::StaleForgotten(version) => {
                Some(write(STALE, &version.to_string(), self.stale.get(version)))
            }
            Entry::StationRegistered(station) => Some(write(STATION, &station.to_string(), Some(&0))),
            Entry::StationsTouched(_) => {
                Some(write(TOUCHED, "", self.touched.as_ref().map(ToString::to_string).as_ref()))
            }
            Entry::LetterNoted(_) | Entry::Audited(_) | Entry::AuditTrimmed(_) => None,
        }
    }

    fn row_of_declared(&self, changed: &Changed) -> Row {
        let declared = &self.declared;
        let retired = |name: &str| write(RETIRED, name, declared.retired.get(name).map(Rc::as_ref));
        match changed {
            Changed::Holds(..) => write(MANIFEST, "", declared.holds.as_deref()),
            Changed::Retired(gone) => retired(&gone.workflow.name),
            Changed::Unretired(name) => retired(name),
            Changed::Heard(_) => write(SCHEDULES, "", Some(&declared.heard)),
            Changed::Topic(topic, _) => write(TRIGGERS, topic, declared.topics.get(topic)),
            Changed::Queue(queue, _) => write(HANDLERS, queue, declared.queues.get(queue)),
            Changed::Paused(workflow, _) | Changed::Resumed(workflow) => {
                write(PAUSED, workflow, declared.paused.get(workflow))
            }
        }
    }
}

fn write<T: Serialize>(kind: &str, name: &str, value: Option<&T>) -> Row {
    let json = |value| serde_json::to_string(value).expect("rows hold only what JSON can say");
    Row { kind: kind.into(), name: name.into(), value: value.map(json) }
}

fn read<T: DeserializeOwned>(row: &Row) -> Result<T, Corrupt> {
    let value = row.value.as_deref().unwrap_or("null");
    json::from_str(value).map_err(|error| Corrupt {
        kind: row.kind.clone(),
        name: row.name.clone(),
        why: error.to_string(),
    })
}

fn relation(row: &Row) -> Result<Relation, Corrupt> {
    let (namespace, issuer) = row.name.split_once(' ').ok_or_else(|| Corrupt {
        kind: row.kind.clone(),
        name: row.name.clone(),
        why: "its name is not a namespace and an issuer".into(),
    })?;
    Ok(Relation { namespace: namespace.into(), issuer: issuer.into() })
}

fn version(row: &Row) -> Result<u64, Corrupt> {
    row.name.parse().map_err(|_| Corrupt {
        kind: row.kind.clone(),
        name: row.name.clone(),
        why: "its name is not a number".into(),
    })
}
