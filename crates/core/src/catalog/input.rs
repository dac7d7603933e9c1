//! What can be asked of a catalog, and what can happen to it: the words that its decisions are made of.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Timestamp,
    access::{Issuer, Limits, Refusals, RunSettings},
    outbox::MessageHead,
};

use super::{ApiKey, Change, Changed, Deletion, Emptied, Line, Namespace, Relation, SignIn, Station, Trim};
use crate::access::Credential;

/// What is asked of a catalog.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Make a key.
    CreateKey {
        /// The key.
        key: ApiKey,
        /// When what its maker has brought stops being good: the key does not outlive it.
        maker_ends_at: Option<Timestamp>,
    },
    /// Put a key in the place of another; the old one stays good for a while.
    RotateKey {
        /// The old one.
        id: String,
        /// The id and hash of the new one.
        new: Credential,
        /// For how long both are good.
        overlap_ms: u64,
        /// When what the caller has brought stops being good: the new key does not outlive it.
        maker_ends_at: Option<Timestamp>,
    },
    /// Let a key be good no more.
    RevokeKey {
        /// Which.
        id: String,
    },
    /// Open a session for whoever has a key.
    OpenSession {
        /// Its id and hash.
        new: Credential,
        /// The key; none for the deployment's.
        key: Option<String>,
    },
    /// Sign out: end the caller's own session.
    EndSession {
        /// Which.
        id: String,
    },
    /// A session is used: it lasts longer.
    UseSession {
        /// Which.
        id: String,
    },
    /// Requests were refused.
    CountRefusals(Refusals),
    /// End a session of somebody else.
    RevokeSession {
        /// Which.
        id: String,
    },
    /// Set what the namespace may use.
    SetLimits(Limits),
    /// Set what holds for all runs.
    SetRuns(RunSettings),
    /// Set what holds for runs of a workflow, or no more.
    SetWorkflow {
        /// Its name.
        workflow: String,
        /// What holds.
        settings: Option<RunSettings>,
    },
    /// Change what is declared, or what is done to it.
    Declared(Change),
    /// Add a namespace to the deployment's list.
    AddNamespace {
        /// Its name.
        name: String,
    },
    /// Delete a namespace of the deployment.
    DeleteNamespace {
        /// Its name.
        name: String,
    },
    /// Nothing is left of a namespace.
    NamespaceGone {
        /// Its name.
        name: String,
        /// Of this life.
        life: u64,
    },
    /// Begin a life of this namespace.
    Begin {
        /// Its number.
        life: u64,
    },
    /// Delete this namespace.
    Delete(Deletion),
    /// Cells and stations of this namespace were emptied.
    Emptied(Emptied),
    /// Take tokens of an issuer.
    SetIssuer(Issuer),
    /// Take no more of them.
    RemoveIssuer {
        /// The `iss`.
        issuer: String,
    },
    /// The catalog of a namespace asks the deployment's whether an issuer's word still counts.
    Vouch {
        /// The namespace.
        namespace: String,
        /// The `iss`.
        issuer: String,
        /// As of which revision the issuer gave its word.
        revision: u64,
    },
    /// Go by an issuer's word: the deployment's catalog has confirmed it.
    Trust {
        /// The `iss`.
        issuer: String,
        /// As of which revision.
        revision: u64,
    },
    /// Go by an issuer's word no more.
    Distrust {
        /// The `iss`.
        issuer: String,
    },
    /// A namespace has heard that an issuer's word counts no more.
    NamespaceDistrusts(Relation),
    /// Somebody is about to start runs in a pool of these generations.
    UsePool {
        /// How many cells each has, oldest first.
        cells: Vec<u32>,
    },
    /// A station is about to store something for the first time.
    Register(Station),
    /// A station has deleted all that it stored.
    Forget(Station),
    /// The sweep touches stations.
    Touch {
        /// The last of them, if there may be more behind it.
        last: Option<Station>,
    },
    /// A cell wants to remember a key.
    Watch {
        /// The cell's place.
        cell: String,
    },
    /// A cell has forgotten all that it knew before this version.
    Heard {
        /// The cell's place.
        cell: String,
        /// The version that it was told of.
        version: u64,
    },
    /// Somebody is about to do this to a letter that has not arrived.
    NoteLetter(LetterNote),
    /// Forget what is over.
    Tidy,
}

/// What somebody does to a letter that has not arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterNote {
    /// The letter, as the API names it.
    pub letter: String,
    /// What is done to it.
    pub deed: LetterDeed,
    /// What its messages are about.
    pub heads: Vec<MessageHead>,
}

/// What can be done to a letter that has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LetterDeed {
    /// It is sent again.
    #[serde(rename = "redeliver")]
    Redeliver,
    /// It is deleted.
    #[serde(rename = "discard")]
    Discard,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A key was made or changed.
    KeyStored(ApiKey),
    /// A key was forgotten.
    KeyForgotten(String),
    /// A session was opened.
    SessionOpened(SignIn),
    /// A session lasts until this time.
    SessionExtended {
        /// Which.
        id: String,
        /// When it ends.
        expires_at: Timestamp,
    },
    /// Requests were refused.
    RefusalsCounted(Refusals),
    /// A session has ended, or was forgotten.
    SessionEnded(String),
    /// A session was ended by somebody else.
    SessionRevoked(String),
    /// The limits were set.
    LimitsSet(Limits),
    /// The settings of all runs were set.
    RunsSet(RunSettings),
    /// The settings of a workflow were set, or taken away.
    WorkflowSet {
        /// Its name.
        workflow: String,
        /// What holds.
        settings: Option<RunSettings>,
    },
    /// What is declared, or what is done to it, has changed.
    Declared(Changed),
    /// A namespace was added.
    NamespaceAdded(Namespace),
    /// One more life of a namespace was drawn.
    LifeDrawn,
    /// A namespace is on its way out.
    NamespaceLeft(Namespace),
    /// A name is free.
    NamespaceRemoved(String),
    /// A life of this namespace has begun.
    Begun(u64),
    /// The deletion of this namespace has begun, or gone on.
    DeletionWent(Deletion),
    /// A station is empty, and not in the register any more.
    StationForgotten(Station),
    /// The deployment's issuers are about to change.
    RevisionRaised,
    /// An issuer was set.
    IssuerSet(Issuer),
    /// An issuer was taken away.
    IssuerRemoved(String),
    /// This namespace goes by an issuer's word.
    Trusted {
        /// The `iss`.
        issuer: String,
        /// As of which revision.
        revision: u64,
    },
    /// This namespace goes by an issuer's word no more.
    Distrusted(String),
    /// A namespace goes by an issuer's word.
    RelationBegun(Relation),
    /// An issuer's word counts no more, and a namespace has yet to hear of it.
    RelationOver(Relation),
    /// A namespace has heard of it.
    RelationEnded(Relation),
    /// The pool has these generations from now on.
    PoolGrown(Vec<u32>),
    /// A station is in the register.
    StationRegistered(Station),
    /// The sweep has come to this station, or to the end of them.
    StationsTouched(Option<Station>),
    /// Something that a cell may remember does not hold any more.
    VersionRaised,
    /// That version concerns only these keys and sessions.
    StaleNamed {
        /// The version.
        version: u64,
        /// Their ids.
        ids: Vec<String>,
    },
    /// Which ids a version concerns is not needed any more.
    StaleForgotten(u64),
    /// A cell has heard of a version.
    CellHeard {
        /// The cell's place.
        cell: String,
        /// The version.
        version: u64,
    },
    /// Somebody does something to a letter.
    LetterNoted(LetterNote),
    /// A line of the audit log.
    Audited(Line),
    /// The oldest lines of a part of the audit log were dropped.
    AuditTrimmed(Trim),
}
