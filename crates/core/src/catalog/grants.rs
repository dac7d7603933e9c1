//! What a credential is worth: keys, sessions, and the word of an issuer.

use stepwell_protocol::{
    Timestamp,
    access::{KeyStatus, Permission, Refusals, Scope, SessionView},
};

use super::{Catalog, SignIn};
use crate::{
    access::{Credential, Grant, ROOT, Rules},
    sorting::sort_by,
    token::Vouched,
};

impl Catalog {
    /// What a credential grants now.
    pub fn grant(&self, now: Timestamp, brought: &Credential) -> Option<Grant> {
        if let Some(session) = self.sessions.get(&brought.id)
            && brought.is_of(&session.hash)
        {
            return self.session_grant(now, session);
        }
        let key = self.keys.get(&brought.id).filter(|key| brought.is_of(&key.hash))?;
        let actor = format!("key:{}", key.id);
        (key.status(now) == KeyStatus::Active)
            .then(|| self.granted(actor, key.scopes.clone(), key.expires_at))
    }

    /// What a credential grants, which an issuer may have vouched for.
    pub fn worth(&self, now: Timestamp, brought: &Credential, vouched: Option<&Vouched>) -> Option<Grant> {
        match vouched {
            None => self.grant(now, brought),
            Some(vouched) => {
                let Vouched { actor, scopes, expires_at, .. } = vouched;
                (self.trusts(vouched) && *expires_at > now)
                    .then(|| self.granted(actor.clone(), scopes.clone(), Some(*expires_at)))
            }
        }
    }

    fn session_grant(&self, now: Timestamp, session: &SignIn) -> Option<Grant> {
        let (scopes, key_end) = match &session.key {
            Some(id) => {
                let key = self.keys.get(id).filter(|key| key.status(now) == KeyStatus::Active)?;
                (key.scopes.clone(), key.expires_at)
            }
            None => {
                session.root.as_ref().filter(|root| self.roots.contains(root))?;
                (vec![Permission::all(Scope::Admin)], None)
            }
        };
        let end = key_end.map_or(session.expires_at, |end| end.min(session.expires_at));
        let actor = format!("session:{}", session.id);
        (end > now).then(|| self.granted(actor, scopes, Some(end)))
    }

    /// What scopes are worth in this namespace.
    fn granted(&self, actor: String, scopes: Vec<Permission>, expires_at: Option<Timestamp>) -> Grant {
        let workflows = self.workflows.clone();
        Grant { actor, scopes, expires_at, limits: self.limits, runs: self.runs, workflows }
    }

    /// What holds for runs that no caller starts.
    pub fn rules(&self) -> Rules {
        let paused = self.declared().paused().map(|(workflow, _)| workflow.to_owned()).collect();
        let grant = self.granted(ROOT.to_owned(), vec![Permission::all(Scope::Write)], None);
        Rules { grant, paused, version: self.version() }
    }

    /// The sessions that are good, newest first.
    pub fn sessions(&self, now: Timestamp, namespace: &str) -> Vec<SessionView> {
        let mut sessions: Vec<_> =
            self.sessions.keys().filter_map(|id| self.session(now, namespace, id)).collect();
        sort_by(&mut sessions, |a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        sessions
    }

    /// When a key or a session's key stops being good: what it makes does not outlive it.
    pub fn maker_ends_at(&self, id: &str) -> Option<Timestamp> {
        let id = self.sessions.get(id).map_or(Some(id), |session| session.key.as_deref())?;
        self.keys.get(id)?.expires_at
    }

    /// A session, as its owner sees it.
    pub fn session(&self, now: Timestamp, namespace: &str, id: &str) -> Option<SessionView> {
        let session = self.sessions.get(id)?;
        let grant = self.session_grant(now, session)?;
        Some(SessionView {
            id: session.id.clone(),
            namespace: namespace.to_owned(),
            subject: session.key.as_ref().map_or("root".into(), |key| format!("key:{key}")),
            scopes: grant.scopes,
            created_at: session.created_at,
            expires_at: grant.expires_at.unwrap_or(session.expires_at),
        })
    }

    /// Whether anything was ever done here.
    pub fn has_history(&self) -> bool {
        self.audit.seq > 0
    }

    /// How many requests were refused, as far as that is stored.
    pub fn refused(&self) -> Refusals {
        self.refused
    }

    /// Whether this is a session's id.
    pub fn is_session(&self, id: &str) -> bool {
        self.sessions.contains_key(id)
    }

    /// The key that a session was opened with; none for the deployment's.
    pub fn key_of_session(&self, id: &str) -> Option<&str> {
        self.sessions.get(id)?.key.as_deref()
    }
}
