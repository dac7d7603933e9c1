//! What Workers and cells ask of a catalog.

use serde::{Deserialize, Serialize};
use stepwell_core::{
    access::Credential,
    catalog::{LetterNote, Named},
    object::Address,
    token::Vouched,
};
use stepwell_protocol::{
    access::{Issuer, Limits, NewKey, RunSettings},
    manifest::Manifest,
};
use wasm_bindgen::JsValue;
use worker::Env;

use crate::{access::Access, object};

/// A request to a catalog.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// The catalog's own namespace. An object does not always know its name; this one stores it.
    pub namespace: String,
    /// The life of the namespace that is meant, for whoever knows it: a catalog that has nothing yet begins it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<u64>,
    /// On whose behalf; none for the deployment's own key, and for Stepwell itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// What to do.
    pub request: Request,
}

/// What is asked of a catalog. New keys and tokens come as their hashes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Say whether the caller may, and nothing else.
    Check,
    /// Say who the caller is, as the audit log names them, if they may.
    Actor,
    /// The same for whoever sends events, if the limits of the namespace leave room for them.
    SendEvents {
        /// How many.
        events: usize,
        /// The bytes of what they say.
        bytes: usize,
        /// The most that one of them says.
        largest: usize,
    },
    /// Say which workflows the caller may see; nothing, if it may see all.
    SeenWorkflows,
    /// Say what a credential grants, to a cell that will remember it.
    Confirm {
        /// What the cell's caller has brought.
        credential: Credential,
        /// What an issuer has vouched for, if it is a token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vouched: Option<Vouched>,
        /// The cell's place.
        cell: String,
    },
    /// Say what holds for runs that no caller starts, to a cell that will remember it.
    Rules {
        /// The cell's place.
        cell: String,
    },
    /// List the keys.
    ListKeys,
    /// Make a key.
    CreateKey {
        /// Its id and hash.
        credential: Credential,
        /// What is wanted of it.
        new: NewKey,
    },
    /// Put a key in the place of another.
    RotateKey {
        /// The old one.
        id: String,
        /// The id and hash of the new one.
        credential: Credential,
        /// For how long both are good.
        overlap_ms: u64,
    },
    /// Let a key be good no more.
    RevokeKey {
        /// Which.
        id: String,
    },
    /// Show the caller's session.
    ShowSession,
    /// Open a session for the caller.
    OpenSession {
        /// Its id and hash.
        credential: Credential,
    },
    /// End the caller's session.
    EndSession,
    /// List the sessions.
    ListSessions,
    /// End a session, whoever opened it.
    RevokeSession {
        /// Which.
        id: String,
    },
    /// Show all that is set.
    ShowSettings,
    /// Set what holds for all runs.
    SetRuns {
        /// What holds.
        settings: RunSettings,
    },
    /// Set what holds for runs of a workflow, or no more.
    SetWorkflow {
        /// Its name.
        workflow: String,
        /// What holds.
        settings: Option<RunSettings>,
    },
    /// Reconcile what the app declares, or only say what that would change.
    Sync {
        /// What it declares.
        manifest: Box<Manifest>,
        /// Whether a person has asked for it: then an older one counts too.
        is_explicit: bool,
        /// Whether nothing shall be stored.
        dry_run: bool,
    },
    /// Refuse starts of a workflow.
    PauseWorkflow {
        /// Its name.
        workflow: String,
    },
    /// Refuse them no more.
    ResumeWorkflow {
        /// Its name.
        workflow: String,
    },
    /// Say which workflows are paused.
    PausedWorkflows,
    /// Say what is around what the code declares: settings, pauses, what was retired.
    ShowLayers,
    /// Show the workflows that the app has declared last.
    ShowDeclared,
    /// Set what the namespace may use.
    SetLimits {
        /// What.
        limits: Limits,
    },
    /// Write down what somebody is about to do to a letter.
    NoteLetter(LetterNote),
    /// Show the audit log.
    Audit {
        /// Below this number.
        below: u64,
        /// So many lines.
        limit: u32,
    },
    /// Look after the alarm, and let the next stations of the namespace look after theirs.
    Touch,
    /// Put a station into the register, before it stores anything.
    Register {
        /// It, as its namespace knows it: `schedules/3`.
        station: String,
    },
    /// Take a station out of the register that has deleted all that it stored.
    Forget {
        /// It, as its namespace knows it: `queue/3/mails`.
        station: String,
    },
    /// List stations of the namespace by the names that people gave them.
    Names {
        /// Which.
        which: Named,
        /// From behind this one on.
        after: String,
        /// So many.
        limit: usize,
    },
    /// Say whether a station is in the register.
    HasStation {
        /// It, as its namespace knows it: `topic/order`.
        station: String,
    },
    /// List the deployment's namespaces.
    ListNamespaces,
    /// Show one of them.
    ShowNamespace {
        /// Its name.
        name: String,
    },
    /// Add one.
    AddNamespace {
        /// Its name.
        name: String,
    },
    /// Delete one.
    DeleteNamespace {
        /// Its name.
        name: String,
    },
    /// Say whether one is in this life, to its own catalog, which is about to begin it.
    VouchNamespace {
        /// Its name.
        name: String,
        /// The number of the life.
        life: u64,
    },
    /// Delete the catalog's own namespace, and say how far that is; nothing, if nothing is left.
    Delete {
        /// Which life of it.
        life: u64,
        /// The pool.
        pool: String,
        /// How many cells each of its generations has, oldest first.
        cells: Vec<u32>,
    },
    /// Say what is left to be deleted of the catalog's own namespace.
    ShowDeletion,
    /// Say which life of the namespace this is, to a cell that is about to store something for the first time.
    ShowLife,
    /// Say how many cells each generation of the deployment's pool has.
    ShowPool,
    /// Runs are about to be started in a pool of these generations.
    UsePool {
        /// How many cells each has, oldest first.
        cells: Vec<u32>,
    },
    /// List the deployment's issuers.
    ListIssuers,
    /// List them with their revisions, for a Worker that verifies tokens.
    KnownIssuers,
    /// Say whether an issuer's word still counts, to the catalog of a namespace that will go by it.
    Vouch {
        /// The namespace.
        namespace: String,
        /// The `iss`.
        issuer: String,
        /// As of which revision the issuer gave its word.
        revision: u64,
    },
    /// Go by an issuer's word no more.
    Distrust {
        /// The `iss`.
        issuer: String,
    },
    /// Take tokens of an issuer.
    SetIssuer {
        /// What is known of it.
        issuer: Issuer,
    },
    /// Take no more of them.
    RemoveIssuer {
        /// The `iss`.
        issuer: String,
    },
}

/// What is left to be deleted of a namespace.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Left {
    /// Cells that are not known to be empty.
    pub cells: u32,
    /// Stations in the register, counted up to a thousand.
    pub stations: u32,
}

impl Call {
    /// What Stepwell itself asks.
    pub fn new(namespace: &str, request: Request) -> Self {
        Self { namespace: namespace.to_owned(), life: None, access: None, request }
    }
}

/// Asks a catalog: a status and a body.
pub async fn ask(env: &Env, call: &Call) -> Result<(u16, String), JsValue> {
    object::ask(env, &Address::catalog(&call.namespace), call).await
}
