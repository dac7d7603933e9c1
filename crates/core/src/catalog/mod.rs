//! The catalog of a namespace: its keys, sessions, settings and limits, and who has to be told when they change.
//!
//! Owns: which keys are good and what they grant, which workflows are paused, and the audit log's order. The catalog of
//! the default namespace also keeps what belongs to the deployment: the list of namespaces, the issuers of tokens, the
//! cells of its pool, and what the app declares. Every catalog has the register of its namespace's stations.
//! Does not own: keys as texts ([`stepwell_protocol::key`]) and their hashing; raw keys never come here.
//!
//! A cell that was told that a key is good answers for it without asking again. So each such cell is remembered, and
//! whatever makes a key less good raises the *version*: a cell is behind until it has said that it has heard of it.
//! A version that concerns only some keys and sessions says which ones, so that cells forget those alone and leave the
//! streams of everybody else open. Any other version makes cells forget all keys.
//!
//! Invariant: a cell that may remember a key is a watcher, and a watcher that may remember something that does not
//! hold any more is behind.

mod apply;
mod audit;
mod decide;
pub mod declared;
mod deletion;
mod drive;
mod grants;
pub mod handlers;
mod input;
mod rows;
pub mod schedules;
mod stations;
#[cfg(test)]
mod tests;
pub mod triggers;

use std::{collections::BTreeMap, rc::Rc};

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Problem, Timestamp,
    access::{
        AuditRecord, Issuer, KeyStatus, KeyView, Limits, NamespaceView, Permission, Refusals, RunSettings,
    },
};

use crate::{ordered::OrdMap, sorting::sort_by, token::Vouched};
pub use declared::{Change, Changed, Declared, Layers, check_manifest};
pub use deletion::{
    BEHIND_MAX, Batch, DELETE_AGAIN_MS, Deletion, EMPTIED_AT_ONCE, EMPTIED_MS_MAX, Emptied, Leaving,
    namespace_deleting, no_such_namespace,
};
pub use drive::{Confirmation, Desk, Order, TELL_AGAIN_MS, TELL_URGENT_MS_MAX, Word};
pub use handlers::QueueWord;
pub use input::{Entry, Input, LetterDeed, LetterNote};
pub use rows::{Corrupt, Row, Rows, STATION, Trim};
pub use stations::{Named, NotAStation, Registered, Station, TOUCHED_AT_ONCE};
pub use triggers::{TopicRevision, TopicWord};

/// The namespace that is there without being made: that of the deployment's own key.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The most keys of a namespace, those that are not good any more included.
pub const KEYS_MAX: usize = 1_000;

/// The most sessions of a namespace.
pub const SESSIONS_MAX: usize = 2_000;

/// The most sessions of a key. One more sign-in ends the oldest of them, so no key can lock out another.
pub const SESSIONS_PER_KEY_MAX: usize = 20;

/// How often a key can sign in, with bursts of two seconds: each sign-in writes rows, even for a key that may only read.
pub const SIGN_INS_PER_SECOND: u64 = 1;

/// The most versions whose keys and sessions are kept by name. Cells that are further behind forget all keys.
pub const STALE_VERSIONS_MAX: usize = 256;

/// The most keys and sessions that one word to a cell names. If there are more, the cell forgets all keys.
pub const STALE_IDS_MAX: usize = 1_024;

/// The most workflows with settings of their own.
pub const WORKFLOWS_MAX: usize = 200;

/// The longest time of any setting: a hundred years.
pub(crate) const TIME_MS_MAX: u64 = 36_500 * 86_400_000;

/// The most namespaces of a deployment.
pub const NAMESPACES_MAX: usize = 10_000;

/// The most issuers of a deployment.
pub const ISSUERS_MAX: usize = 16;

/// The most namespaces, or beginnings of names, that an issuer's tokens may lead to.
pub const ISSUER_NAMESPACES_MAX: usize = 64;

/// The most scopes of a key.
pub const SCOPES_MAX: usize = 32;

/// The longest name of a key.
pub const NAME_LENGTH_MAX: usize = 128;

/// For how long an old key stays good beside its successor, unless its owner says otherwise.
pub const OVERLAP_MS_DEFAULT: u64 = 86_400_000;

/// The longest such time: 30 days.
pub const OVERLAP_MS_MAX: u64 = 30 * 86_400_000;

/// How long a session lasts without being used.
pub const SESSION_MS: u64 = 12 * 3_600_000;

/// How long a session lasts at the most, however often it is used.
pub const SESSION_LIFE_MS_MAX: u64 = 7 * 86_400_000;

/// By how much a session is extended at the least: one that is used all the time is written once an hour.
pub const SESSION_EXTENDED_MS_MIN: u64 = 3_600_000;

/// The longest text that says what was changed, in the audit log.
pub const DETAIL_LENGTH_MAX: usize = 1_000;

/// How long a line of the audit log is kept: 90 days.
pub const AUDIT_MS: u64 = 90 * 86_400_000;

/// How many lines of changes the audit log keeps.
pub const AUDIT_MAX: u64 = 10_000;

/// How many lines of sign-ins and sign-outs the audit log keeps. Anybody with a key can write these, so they have their
/// own quota and never push out a line about a change.
pub const SIGN_IN_LINES_MAX: u64 = 2_000;

/// How many lines the audit log keeps of what the app declares without being asked by a person. Two versions of an app
/// that answer in turn can write these without end, so they have their own quota, too.
pub const SYNC_LINES_MAX: u64 = 2_000;

/// How many lines the audit log keeps of letters that were sent again or discarded. A script can do that to all letters
/// of a deployment, so these have their own quota, too.
pub const LETTER_LINES_MAX: u64 = 2_000;

/// A namespace's catalog as it is kept in memory: all of it but the audit log and the register of stations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// Which life of its namespace this is.
    life: u64,
    /// Its deletion, if that is going on.
    deletion: Option<Deletion>,
    /// Raised whenever something that a cell may remember does not hold any more.
    version: u64,
    /// The ids that became stale with a version; a version that is not here made everything stale.
    stale: OrdMap<u64, Vec<String>>,
    // Shared, because every change is made on a copy; and behind a pointer, because each form of a map is code.
    keys: OrdMap<String, Rc<ApiKey>>,
    sessions: OrdMap<String, Rc<SignIn>>,
    /// What was left out because it cannot be read.
    unreadable: Vec<Corrupt>,
    limits: Limits,
    runs: RunSettings,
    workflows: OrdMap<String, RunSettings>,
    /// How many requests were refused.
    refused: Refusals,
    /// What each cell that remembers keys has heard of.
    watchers: OrdMap<String, u64>,
    /// What the app declares, and what was done to it.
    declared: Declared,
    namespaces: OrdMap<String, Rc<Namespace>>,
    /// The latest life of any namespace of the deployment.
    lives: u64,
    issuers: OrdMap<String, Rc<KnownIssuer>>,
    /// How often the deployment's issuers were changed.
    issuer_revision: u64,
    /// The namespaces that go by an issuer's word, and whether they have yet to hear that it is over.
    relations: OrdMap<Relation, bool>,
    /// The issuers whose word this namespace goes by, as of which revision.
    trusted: OrdMap<String, u64>,
    /// How many cells each generation of the pool has, oldest first; nothing before it has grown.
    pool: Vec<u32>,
    /// The last station that the sweep has touched, if there are more behind it.
    touched: Option<Station>,
    /// The latest lines of the audit log.
    audit: Numbers,
    /// The fingerprints of the deployment's keys, the current one first. The host says them; they are in no row.
    roots: Vec<String>,
}

/// The parts of the audit log. Each has its own quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// Changes to keys, settings and limits.
    Changes,
    /// Sign-ins and sign-outs.
    SignIns,
    /// What belongs to the deployment: namespaces, issuers, the pool. Only the deployment's own key sees it.
    Registry,
    /// What the app declares, as read by Stepwell itself.
    Syncs,
    /// Letters that were sent again or discarded.
    Letters,
}

impl Log {
    /// All parts.
    pub const ALL: [Self; 5] = [Self::Changes, Self::SignIns, Self::Registry, Self::Syncs, Self::Letters];

    fn lines_max(self) -> u64 {
        match self {
            Self::Changes | Self::Registry => AUDIT_MAX,
            Self::SignIns => SIGN_IN_LINES_MAX,
            Self::Syncs => SYNC_LINES_MAX,
            Self::Letters => LETTER_LINES_MAX,
        }
    }
}

/// The latest numbers of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Of all its parts together: the order of the lines.
    pub seq: u64,
    /// Of each part: these have no gaps, so they count its lines.
    pub lines: OrdMap<Log, u64>,
}

/// A line of the audit log on its way to the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its part of the log.
    pub log: Log,
    /// Its number within that part.
    pub number: u64,
    /// What it says.
    pub record: AuditRecord,
}

/// A key as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// By what it is known.
    pub id: String,
    /// SHA-256 of its text.
    pub hash: String,
    /// What people call it.
    pub name: String,
    /// `live` or `test`.
    pub environment: String,
    /// What it allows.
    pub scopes: Vec<Permission>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who has made it.
    pub created_by: String,
    /// When it stops being good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The key that takes its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
}

impl ApiKey {
    /// Whether it is good.
    pub fn status(&self, now: Timestamp) -> KeyStatus {
        if self.revoked_at.is_some() {
            KeyStatus::Revoked
        } else if self.expires_at.is_some_and(|end| end <= now) {
            KeyStatus::Expired
        } else {
            KeyStatus::Active
        }
    }

    /// As people see it.
    pub fn view(&self, now: Timestamp) -> KeyView {
        KeyView {
            id: self.id.clone(),
            name: self.name.clone(),
            environment: self.environment.clone(),
            scopes: self.scopes.clone(),
            status: self.status(now),
            created_at: self.created_at,
            created_by: self.created_by.clone(),
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            replaced_by: self.replaced_by.clone(),
        }
    }
}

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    /// By what it is known.
    pub id: String,
    /// SHA-256 of its token.
    pub hash: String,
    /// The key that was signed in with: the session is good only as long as it is. None for the deployment's key.
    pub key: Option<String>,
    /// The fingerprint of the deployment's key, if that was signed in with: the session ends when the key is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// An issuer in the deployment's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownIssuer {
    /// What is set for it.
    pub issuer: Issuer,
    /// Which of all changes to issuers has set it. What an issuer vouched for under another revision counts no more.
    pub revision: u64,
}

/// A namespace goes by the word of an issuer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Relation {
    /// The namespace.
    pub namespace: String,
    /// The `iss`.
    pub issuer: String,
}

/// A namespace in the deployment's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// The number of this life: a name that was deleted and made again has another one.
    #[serde(default)]
    pub life: u64,
    /// Since when it is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
}

impl Namespace {
    /// As people see it.
    pub fn view(&self) -> NamespaceView {
        let (name, created_at) = (self.name.clone(), self.created_at);
        NamespaceView { name, created_at, deleting: self.leaving.is_some() }
    }
}

/// What to record.
pub type Decision = Vec<Entry>;

impl Catalog {
    /// All keys, newest first.
    pub fn keys(&self, now: Timestamp) -> Vec<KeyView> {
        let mut keys: Vec<_> = self.keys.values().map(|key| key.view(now)).collect();
        sort_by(&mut keys, |a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        keys
    }

    /// One key.
    pub fn key(&self, id: &str) -> Option<&ApiKey> {
        self.keys.get(id).map(Rc::as_ref)
    }

    /// All that is set.
    pub fn settings(&self) -> stepwell_protocol::access::Settings {
        let mut workflows = BTreeMap::new();
        workflows.extend(self.workflows.clone());
        stepwell_protocol::access::Settings { limits: self.limits, runs: self.runs, workflows }
    }

    /// What the app declares, and what was done to it.
    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// What is around what the code declares.
    pub fn layers(&self) -> Layers {
        self.declared.layers(self.settings())
    }

    /// The deployment's namespaces, by name.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.values().map(Rc::as_ref)
    }

    /// A namespace of the deployment.
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.namespaces.get(name).map(Rc::as_ref)
    }

    /// Whether this namespace goes by an issuer's word. If not, the deployment's catalog has to be asked.
    pub fn trusts(&self, vouched: &Vouched) -> bool {
        self.trusted.get(&vouched.issuer) == Some(&vouched.revision)
    }

    /// The namespaces that have yet to hear that an issuer's word counts no more.
    pub fn over(&self) -> impl Iterator<Item = &Relation> {
        self.relations.iter().filter(|(_, is_over)| **is_over).map(|(relation, _)| relation)
    }

    /// The deployment's issuers, by `iss`.
    pub fn issuers(&self) -> impl Iterator<Item = &KnownIssuer> {
        self.issuers.values().map(Rc::as_ref)
    }

    /// How many cells each generation of the pool has, oldest first; nothing before it has grown.
    pub fn pool(&self) -> &[u32] {
        &self.pool
    }

    /// Which life of its namespace this is: a name that was deleted and made again has another one.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The last station that the sweep has touched, if there are more behind it.
    pub fn touched(&self) -> Option<&Station> {
        self.touched.as_ref()
    }

    /// Raised whenever something that a cell may remember does not hold any more.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The cells that have not heard of the latest version.
    pub fn behind(&self) -> impl Iterator<Item = &str> {
        let version = self.version;
        self.watchers.iter().filter(move |(_, heard)| **heard < version).map(|(cell, _)| cell.as_str())
    }

    /// What the cells that are behind have to forget.
    pub fn words(&self) -> Vec<Word> {
        let (mut words, mut known) = (Vec::new(), OrdMap::<u64, Option<Vec<String>>>::new());
        for (cell, heard) in self.watchers.iter().filter(|(_, heard)| **heard < self.version) {
            let ids = known.get_or_insert_with(*heard, || self.stale_since(*heard)).clone();
            words.push(Word { cell: cell.clone(), version: self.version, ids });
        }
        words
    }

    /// The ids that became stale after a version; nothing, if all that was confirmed by then did.
    fn stale_since(&self, heard: u64) -> Option<Vec<String>> {
        let mut all = Vec::new();
        let mut next = heard.saturating_add(1);
        for (version, ids) in self.stale.range(next..) {
            if *version != next || all.len() + ids.len() > STALE_IDS_MAX {
                return None;
            }
            all.extend(ids.iter().cloned());
            next = next.saturating_add(1);
        }
        (next == self.version.saturating_add(1)).then_some(all)
    }

    /// Whether a cell is remembered.
    pub fn is_watched_by(&self, cell: &str) -> bool {
        self.watchers.contains_key(cell)
    }
}

/// What the caller did wrong, with a code.
pub type Rejection = Problem;
