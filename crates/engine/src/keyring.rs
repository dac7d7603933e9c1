//! The deployment's secrets, and the keys that are made of them.
//!
//! Owns: which secret opens the front door, and which key signs and verifies activations, wait tokens and the addresses of
//! webhooks, and seals secrets. Each purpose has a key of its own ([`stepwell_protocol::signature`]).
//! Invariant: no secret leaves this module but to be compared or to derive a key.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use stepwell_core::topic::HookKeys;
use stepwell_protocol::{
    RunId, Timestamp,
    program::{Activation, Page, is_reserved},
    queue::JobCall,
    signature::{self, APP_KEY, KEY, KEY_PREVIOUS, Key, Purpose, Signature, Unverified},
    wait_token::{Issuer, WaitToken},
    webhook,
};
use subtle::ConstantTimeEq as _;
use worker::Env;

use crate::{access::hash, log, runtime, settings::APP_BINDING};

thread_local! {
    // Secrets stay as they are for as long as this isolate lives.
    static KEYRING: RefCell<Option<Rc<Keyring>>> = const { RefCell::new(None) };
}

/// What the deployment's secrets give.
#[derive(Debug)]
pub struct Keyring {
    /// Hashes of the secrets that may do everything, the current one first: of the same length, whatever they hash.
    roots: Vec<String>,
    /// The key that signs calls of the app, if there is one.
    app: Option<Key>,
    /// The keys of the engine's own programs; the first one signs.
    own: Vec<Key>,
    /// The keys that the keys of runs are made of, for wait tokens; the first one is for new runs.
    tokens: Vec<Key>,
    /// The keys that the addresses of webhooks are made with; the first one is for new ones.
    webhooks: Vec<Key>,
    /// The keys that secrets are sealed with; the first one seals.
    seals: Vec<Key>,
    /// The keys that the secrets of pushed jobs are made with, the current one first.
    pushes: Vec<Key>,
    /// What sessions of the deployment's key are bound to, that of the current one first.
    sessions: Vec<String>,
    /// Whether the log says that somebody still uses the previous secret.
    has_warned: Cell<bool>,
}

impl Keyring {
    /// That of this Worker.
    pub fn of(env: &Env) -> Rc<Self> {
        KEYRING.with_borrow_mut(|known| known.get_or_insert_with(|| Rc::new(Self::read(env))).clone())
    }

    fn read(env: &Env) -> Self {
        let secret = |name: &str| {
            env.secret(name).ok().map(|secret| secret.to_string()).filter(|text| !text.is_empty())
        };
        let is_split = !runtime::property(env, APP_BINDING).is_undefined();
        // Another Worker never gets anything that was made of the deployment's own key.
        let has_app_key = !is_split || secret(APP_KEY).is_some();
        let set = [KEY, KEY_PREVIOUS].into_iter().filter_map(secret);
        Self {
            roots: if secret(KEY).is_some() { set.map(|text| hash(&text)).collect() } else { Vec::new() },
            app: has_app_key.then(|| signature::app_keys(secret)).and_then(|keys| keys.into_iter().next()),
            own: signature::own_keys(secret),
            tokens: signature::token_keys(secret),
            webhooks: signature::kept_keys(secret, Purpose::Webhook),
            seals: signature::kept_keys(secret, Purpose::Seal),
            pushes: signature::kept_keys(secret, Purpose::Push),
            sessions: signature::session_fingerprints(secret),
            has_warned: Cell::new(false),
        }
    }

    /// What sessions of the deployment's key are bound to, that of the current one first.
    pub fn sessions(&self) -> &[String] {
        &self.sessions
    }

    /// Whether this may do everything. The time that it takes tells nothing about the secrets.
    pub fn is_root(&self, brought: &str) -> bool {
        let brought = hash(brought);
        let is = |root: &String| root.as_bytes().ct_eq(brought.as_bytes()).into();
        let found = self.roots.iter().position(is);
        if found.is_some_and(|at| at > 0) && !self.has_warned.replace(true) {
            log::warn!("somebody still uses {KEY_PREVIOUS}");
        }
        found.is_some()
    }

    /// The signature of an activation. Without a key there is none, and the program says why it refuses that.
    pub fn sign<P>(&self, activation: &Activation<P>, namespace: &str, at: Timestamp) -> Option<Signature> {
        let key = if is_reserved(&activation.workflow) { self.own.first() } else { self.app.as_ref() };
        key.map(|key| key.sign(activation, namespace, at))
    }

    /// The signature of a call of the app's handler of jobs.
    pub fn sign_job(&self, call: &JobCall, namespace: &str, at: Timestamp) -> Option<Signature> {
        self.app.as_ref().map(|key| key.sign_job(call, namespace, at))
    }

    /// What makes the wait tokens of a run: with the key that it has used before, as long as that is known.
    pub fn issuer(&self, url: &str, namespace: &str, run: &RunId, used: Option<&str>) -> Option<Issuer> {
        let before = self.tokens.iter().find(|key| Some(key.id()) == used);
        let key = before.or_else(|| self.tokens.first())?;
        Some(Issuer::of(key, url.to_owned(), namespace, run))
    }

    /// A wait token, if a key of this deployment has signed it.
    pub fn read_token(&self, text: &str) -> Option<WaitToken> {
        WaitToken::read(text, &self.tokens)
    }

    /// Whose address a path is, if a key of this deployment has made it.
    pub fn read_hook(&self, path: &str) -> Option<webhook::Address> {
        webhook::Address::read(path, &self.webhooks)
    }

    /// What the webhooks of a namespace are known and sealed by.
    pub fn of_hooks(&self, namespace: &str, url: Option<String>) -> HookKeys {
        let (addresses, seals) = (self.webhooks.clone(), self.seals.clone());
        HookKeys { namespace: namespace.to_owned(), url, addresses, seals }
    }

    /// The secrets that sign the jobs which a queue pushes to an address, the current one first. While the deployment's key
    /// is rotated there are two, and jobs are signed with both.
    pub fn push_secrets(&self, namespace: &str, life: u64, queue: &str) -> Vec<String> {
        self.pushes.iter().map(|key| key.push_secret(namespace, life, queue)).collect()
    }

    /// Verifies a call of an own program, and gives the namespace of its run.
    pub fn verify_own<'a>(
        &self,
        activation: &'a Activation<Page>,
        now: Timestamp,
    ) -> Result<&'a str, Unverified> {
        signature::verify(&self.own, activation, now)
    }
}
