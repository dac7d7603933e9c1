//! What to do about an input.

use std::rc::Rc;

use stepwell_protocol::{
    Code, Timestamp,
    access::{Issuer, KeyStatus, Limits, NamespaceOf, RunSettings},
    key,
    text::is_visible,
};

use super::{
    ApiKey, Catalog, Changed, Decision, Entry, ISSUER_NAMESPACES_MAX, ISSUERS_MAX, Input, KEYS_MAX,
    NAME_LENGTH_MAX, NAMESPACES_MAX, Namespace, OVERLAP_MS_MAX, Rejection, Relation, SCOPES_MAX,
    SESSION_EXTENDED_MS_MIN, SESSION_LIFE_MS_MAX, SESSION_MS, SESSIONS_MAX, SESSIONS_PER_KEY_MAX,
    STALE_VERSIONS_MAX, SignIn, TIME_MS_MAX, WORKFLOWS_MAX, audit, namespace_deleting,
};
use crate::access::Credential;

/// Whether a text has the form of a web address without a user name. Whether the address may be used, the Worker knows:
/// it depends on whether this is a development server.
fn is_web_address(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let is_host = |host: &str| !host.is_empty() && !host.contains(['@', '\\']);
    host.is_some_and(is_host) && !text.contains(char::is_whitespace) && is_visible(text)
}

/// The longest text of an issuer's settings.
const TEXT_LENGTH_MAX: usize = 512;

impl Catalog {
    /// What to record about an input, on whose behalf.
    pub fn decide(&self, now: Timestamp, actor: &str, input: Input) -> Result<Decision, Rejection> {
        if self.deletion.is_some() && !input.goes_with_deletion() {
            return Err(namespace_deleting());
        }
        let mut decision = match input {
            Input::CreateKey { key, maker_ends_at } => self.create_key(now, key, maker_ends_at)?,
            Input::RotateKey { id, new, overlap_ms, maker_ends_at } => {
                let mut decision = self.rotate_key(now, actor, &id, &new, overlap_ms)?;
                shorten(&mut decision, &new.id, maker_ends_at);
                decision
            }
            Input::RevokeKey { id } => self.revoke_key(now, &id)?,
            Input::OpenSession { new, key } => self.open_session(now, new, key)?,
            Input::EndSession { id } => match self.sessions.get(&id) {
                Some(_) => self.end_session(id),
                None => Vec::new(),
            },
            Input::UseSession { id } => self.extend_session(now, id),
            Input::CountRefusals(more) if more.is_empty() => Vec::new(),
            Input::CountRefusals(more) => vec![Entry::RefusalsCounted(more)],
            Input::RevokeSession { id } => {
                if self.sessions.get(&id).is_none_or(|session| session.expires_at <= now) {
                    return Err(no_such_session());
                }
                let mut decision = self.stale(vec![id.clone()]);
                decision.push(Entry::SessionRevoked(id));
                decision
            }
            Input::SetLimits(limits) => {
                check_limits(&limits)?;
                if limits == self.limits {
                    Vec::new()
                } else {
                    vec![Entry::LimitsSet(limits), Entry::VersionRaised]
                }
            }
            Input::SetRuns(settings) => {
                check_settings(&settings)?;
                if settings == self.runs {
                    Vec::new()
                } else {
                    vec![Entry::RunsSet(settings), Entry::VersionRaised]
                }
            }
            Input::SetWorkflow { workflow, settings } => self.set_workflow(workflow, settings)?,
            Input::Declared(change) => {
                let changed = self.declared.decide(now, actor, change)?;
                let is_of_pauses =
                    |changed: &Changed| matches!(changed, Changed::Paused(..) | Changed::Resumed(_));
                // No key is less good for it, but cells remember which workflows are paused.
                let stale =
                    if changed.iter().any(is_of_pauses) { self.stale(Vec::new()) } else { Vec::new() };
                changed.into_iter().map(Entry::Declared).chain(stale).collect()
            }
            Input::AddNamespace { name } => self.add_namespace(now, name)?,
            Input::DeleteNamespace { name } => self.delete_namespace(now, actor, &name)?,
            Input::NamespaceGone { name, life } => self.namespace_gone(&name, life),
            Input::Begin { life } => self.begin(life),
            Input::Delete(deletion) => self.delete(deletion),
            Input::Emptied(emptied) => self.emptied(emptied),
            Input::SetIssuer(issuer) => self.set_issuer(issuer)?,
            Input::RemoveIssuer { issuer } => match self.issuers.get(&issuer) {
                Some(_) => {
                    let mut decision = self.distrusted_by_all(&issuer);
                    decision.push(Entry::IssuerRemoved(issuer));
                    decision
                }
                None => Vec::new(),
            },
            Input::Vouch { namespace, issuer, revision } => self.vouch(namespace, issuer, revision)?,
            Input::Trust { issuer, revision } => vec![Entry::Trusted { issuer, revision }],
            Input::Distrust { issuer } => match self.trusted.get(&issuer) {
                Some(_) => vec![Entry::Distrusted(issuer), Entry::VersionRaised],
                None => Vec::new(),
            },
            Input::NamespaceDistrusts(relation) => match self.relations.get(&relation) {
                Some(true) => vec![Entry::RelationEnded(relation)],
                Some(false) | None => Vec::new(),
            },
            Input::UsePool { cells } => self.use_pool(cells)?,
            Input::Register(station) => Self::register(station)?,
            Input::Forget(station) => vec![Entry::StationForgotten(station)],
            Input::Touch { last } => vec![Entry::StationsTouched(last)],
            Input::Watch { cell } => match self.watchers.get(&cell) {
                Some(_) => Vec::new(),
                // What it hears from now on is what holds from now on.
                None => vec![Entry::CellHeard { cell, version: self.version }],
            },
            Input::Heard { cell, version } => match self.watchers.get(&cell) {
                // One that comes late says nothing new.
                Some(heard) if *heard < version.min(self.version) => {
                    vec![Entry::CellHeard { cell, version: version.min(self.version) }]
                }
                Some(_) | None => Vec::new(),
            },
            Input::NoteLetter(note) => vec![Entry::LetterNoted(note)],
            Input::Tidy => self.tidy(now),
        };
        self.audit(now, actor, &mut decision);
        Ok(decision)
    }

    fn create_key(
        &self,
        now: Timestamp,
        key: ApiKey,
        maker_ends_at: Option<Timestamp>,
    ) -> Result<Decision, Rejection> {
        let is_name = !key.name.is_empty() && key.name.len() <= NAME_LENGTH_MAX && is_visible(&key.name);
        if !is_name {
            return Err(invalid(format!(
                "Use 1 to {NAME_LENGTH_MAX} bytes for the name of a key, without control or invisible characters."
            )));
        }
        if key.scopes.is_empty() || key.scopes.len() > SCOPES_MAX {
            return Err(invalid(format!("A key has 1 to {SCOPES_MAX} scopes, such as [\"read\"].")));
        }
        if !["live", "test"].contains(&key.environment.as_str()) {
            return Err(invalid("The environment of a key is `live` or `test`."));
        }
        if key.expires_at.is_some_and(|end| end <= now) {
            return Err(invalid("`expires_at` is over already."));
        }
        if let (Some(wanted), Some(end)) = (key.expires_at, maker_ends_at)
            && wanted > end
        {
            return Err(invalid(format!(
                "`expires_at` is later than {}, when your own key or token expires. Leave it out to let both expire \
                 together, or use a key that lasts longer.",
                end.as_millis()
            )));
        }
        let mut decision = self.room_for_a_key(now)?;
        self.check_new(&key.id)?;
        let expires_at = key.expires_at.or(maker_ends_at);
        decision.push(Entry::KeyStored(ApiKey { expires_at, ..key }));
        Ok(decision)
    }

    fn rotate_key(
        &self,
        now: Timestamp,
        actor: &str,
        id: &str,
        new: &Credential,
        overlap_ms: u64,
    ) -> Result<Decision, Rejection> {
        if overlap_ms > OVERLAP_MS_MAX {
            return Err(invalid(format!("`overlap_ms` is at most {OVERLAP_MS_MAX}, which is 30 days.")));
        }
        let old = self.keys.get(id).ok_or_else(no_such_key)?;
        if old.status(now) != KeyStatus::Active || old.replaced_by.is_some() {
            let detail = "The key was already rotated, or is no longer active. Rotate its replacement, or create a \
                          new key.";
            return Err(Rejection::new(Code::WrongStatus, detail));
        }
        let mut decision = self.room_for_a_key(now)?;
        self.check_new(&new.id)?;
        let end = now.plus_millis(overlap_ms);
        let ends = ApiKey {
            expires_at: Some(old.expires_at.map_or(end, |before| before.min(end))),
            replaced_by: Some(new.id.clone()),
            ..ApiKey::clone(old)
        };
        let Credential { id: new_id, hash } = new.clone();
        // The end of the old one is its own; the new one lasts as long again as it was meant to.
        let expires_at = old
            .expires_at
            .map(|before| now.plus_millis(before.as_millis().saturating_sub(old.created_at.as_millis())));
        let next = ApiKey {
            id: new_id,
            hash,
            created_at: now,
            created_by: actor.to_owned(),
            expires_at,
            replaced_by: None,
            ..ApiKey::clone(old)
        };
        // Never more than two: one that this one has replaced, and that is still good, is good no more.
        let before = self.keys.values().filter(|key| key.replaced_by.as_deref() == Some(id));
        let mut stale = self.with_sessions(id);
        for key in before.filter(|key| key.status(now) == KeyStatus::Active) {
            decision.push(Entry::KeyStored(ApiKey { expires_at: Some(now), ..ApiKey::clone(key) }));
            stale.extend(self.with_sessions(&key.id));
        }
        decision.extend([Entry::KeyStored(ends), Entry::KeyStored(next)]);
        decision.extend(self.stale(stale));
        Ok(decision)
    }

    fn revoke_key(&self, now: Timestamp, id: &str) -> Result<Decision, Rejection> {
        let key = self.keys.get(id).ok_or_else(no_such_key)?;
        if key.revoked_at.is_some() {
            return Ok(Vec::new());
        }
        let sessions = self.sessions_of(Some(id));
        let mut decision: Vec<_> = sessions.map(|session| Entry::SessionEnded(session.id.clone())).collect();
        decision.push(Entry::KeyStored(ApiKey { revoked_at: Some(now), ..ApiKey::clone(key) }));
        decision.extend(self.stale(self.with_sessions(id)));
        Ok(decision)
    }

    fn open_session(
        &self,
        now: Timestamp,
        new: Credential,
        key: Option<String>,
    ) -> Result<Decision, Rejection> {
        if let Some(id) = &key
            && self.keys.get(id).is_none_or(|key| key.status(now) != KeyStatus::Active)
        {
            return Err(crate::access::not_good());
        }
        self.check_new(&new.id)?;
        let of_key = || self.sessions_of(key.as_deref()).filter(|session| session.expires_at > now);
        let mut decision = Vec::new();
        if of_key().count() >= SESSIONS_PER_KEY_MAX {
            let oldest = of_key().min_by_key(|session| (session.created_at, &session.id));
            decision = oldest.map(|session| self.end_session(session.id.clone())).unwrap_or_default();
        } else if self.sessions.len() >= SESSIONS_MAX {
            decision = self.ended_sessions(now);
            if decision.is_empty() {
                return Err(too_many(format!(
                    "The namespace has {SESSIONS_MAX} sessions. End some of them, or wait until one expires."
                )));
            }
        }
        let Credential { id, hash } = new;
        let expires_at = now.plus_millis(SESSION_MS);
        let root = if key.is_none() { self.roots.first().cloned() } else { None };
        decision.push(Entry::SessionOpened(SignIn { id, hash, key, root, created_at: now, expires_at }));
        Ok(decision)
    }

    fn set_workflow(&self, workflow: String, settings: Option<RunSettings>) -> Result<Decision, Rejection> {
        if let Some(settings) = &settings {
            check_settings(settings)?;
            if !self.workflows.contains_key(&workflow) && self.workflows.len() >= WORKFLOWS_MAX {
                return Err(too_many(format!("{WORKFLOWS_MAX} workflows have settings of their own.")));
            }
        }
        if self.workflows.get(&workflow) == settings.as_ref() {
            return Ok(Vec::new());
        }
        Ok(vec![Entry::WorkflowSet { workflow, settings }, Entry::VersionRaised])
    }

    fn add_namespace(&self, now: Timestamp, name: String) -> Result<Decision, Rejection> {
        if !key::is_namespace(&name) {
            return Err(invalid(format!(
                "The name of a namespace has 1 to {} lower-case letters, digits and hyphens, begins with a letter, \
                 and does not end with a hyphen.",
                key::NAMESPACE_LENGTH_MAX
            )));
        }
        if self.namespace(&name).is_some_and(|known| known.leaving.is_some()) {
            return Err(namespace_deleting());
        }
        if self.namespaces.contains_key(&name) || name == super::DEFAULT_NAMESPACE {
            return Err(Rejection::new(
                Code::NamespaceExists,
                format!("The namespace '{name}' already exists. Nothing was changed."),
            ));
        }
        if self.namespaces.len() >= NAMESPACES_MAX {
            return Err(too_many(format!("The deployment has {NAMESPACES_MAX} namespaces.")));
        }
        let life = self.lives + 1;
        let namespace = Namespace { name, created_at: now, life, leaving: None };
        Ok(vec![Entry::LifeDrawn, Entry::NamespaceAdded(namespace)])
    }

    fn set_issuer(&self, issuer: Issuer) -> Result<Decision, Rejection> {
        let claim = match &issuer.namespace {
            NamespaceOf::Fixed(name) if !key::is_namespace(name) => {
                return Err(invalid("`namespace.fixed` is no name of a namespace."));
            }
            NamespaceOf::Fixed(name) | NamespaceOf::Claim(name) => name,
        };
        let texts = [&issuer.issuer, &issuer.audience, &issuer.jwks_url, claim];
        let texts = texts.into_iter().chain(&issuer.scopes_claim);
        for text in texts {
            if text.is_empty() || text.len() > TEXT_LENGTH_MAX {
                return Err(invalid(format!("Each text of an issuer has 1 to {TEXT_LENGTH_MAX} bytes.")));
            }
        }
        if !is_web_address(&issuer.jwks_url) {
            return Err(invalid("`jwks_url` takes an https:// address without a user name."));
        }
        if issuer.issuer.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(invalid("`issuer` has no blanks and no control characters."));
        }
        check_ceiling(&issuer)?;
        if !self.issuers.contains_key(&issuer.issuer) && self.issuers.len() >= ISSUERS_MAX {
            return Err(too_many(format!("The deployment has {ISSUERS_MAX} issuers.")));
        }
        if self.issuers.get(&issuer.issuer).is_some_and(|known| known.issuer == issuer) {
            return Ok(Vec::new());
        }
        let mut decision = self.distrusted_by_all(&issuer.issuer);
        decision.extend([Entry::RevisionRaised, Entry::IssuerSet(issuer)]);
        Ok(decision)
    }

    /// What was said of an issuer does not hold any more: every namespace that goes by it has to hear of that.
    fn distrusted_by_all(&self, issuer: &str) -> Decision {
        let concerned = self.relations.keys().filter(|relation| relation.issuer == issuer);
        concerned.map(|relation| Entry::RelationOver(relation.clone())).collect()
    }

    /// Lets a namespace go by an issuer's word, unless the issuer has changed since that word was given. Until a
    /// namespace has heard of a change, it cannot come back: it may remember what does not hold any more.
    fn vouch(&self, namespace: String, issuer: String, revision: u64) -> Result<Decision, Rejection> {
        if self.namespace(&namespace).is_some_and(|known| known.leaving.is_some()) {
            return Err(crate::access::not_good());
        }
        let is_current = self.issuers.get(&issuer).is_some_and(|known| known.revision == revision);
        let relation = Relation { namespace, issuer };
        match self.relations.get(&relation) {
            Some(false) if is_current => Ok(Vec::new()),
            None if is_current => Ok(vec![Entry::RelationBegun(relation)]),
            Some(_) | None => Err(crate::access::not_good()),
        }
    }

    /// Runs and keys are where the numbers lead. So a number stays as it was, and only the end grows.
    fn use_pool(&self, cells: Vec<u32>) -> Result<Decision, Rejection> {
        if self.pool.starts_with(&cells) {
            return Ok(Vec::new());
        }
        if !cells.starts_with(&self.pool) {
            let (before, after) = (numbers(&self.pool), numbers(&cells));
            let detail = format!(
                "The variable STEPWELL_CELLS is '{after}', but it was '{before}', and there are runs in those cells. \
                 Set it back. A pool grows by another number at its end, such as '{before},64'."
            );
            return Err(Rejection::new(Code::Internal, detail));
        }
        Ok(vec![Entry::PoolGrown(cells)])
    }

    fn tidy(&self, now: Timestamp) -> Decision {
        let mut decision = self.ended_sessions(now);
        decision.extend(self.declared.tidy(now).map(Entry::Declared));
        // By the time that comes here, nobody grants anything for them: a cell looks at the end itself.
        decision.extend(self.audit.lines.iter().map(|(log, last)| audit::trimmed(now, *log, *last)));
        decision
    }

    /// Makes room for one more key, if it takes any: the oldest one that is not good any more is forgotten.
    fn room_for_a_key(&self, now: Timestamp) -> Result<Decision, Rejection> {
        if self.keys.len() < KEYS_MAX {
            return Ok(Vec::new());
        }
        let over = self.keys.values().filter(|key| key.status(now) != KeyStatus::Active);
        match over.min_by_key(|key| (key.created_at, &key.id)) {
            Some(key) => Ok(vec![Entry::KeyForgotten(key.id.clone())]),
            None => Err(too_many(format!("The namespace has {KEYS_MAX} keys, and all of them are active."))),
        }
    }

    fn ended_sessions(&self, now: Timestamp) -> Decision {
        let over = self.sessions.values().filter(|session| session.expires_at <= now);
        over.map(|session| Entry::SessionEnded(session.id.clone())).collect()
    }

    /// The sessions of a key, or of the deployment's own.
    fn sessions_of<'a>(&'a self, key: Option<&'a str>) -> impl Iterator<Item = &'a SignIn> {
        self.sessions.values().map(Rc::as_ref).filter(move |session| session.key.as_deref() == key)
    }

    /// The ids that stop being good with a key.
    fn with_sessions(&self, id: &str) -> Vec<String> {
        let sessions = self.sessions_of(Some(id)).map(|session| session.id.clone());
        std::iter::once(id.to_owned()).chain(sessions).collect()
    }

    fn extend_session(&self, now: Timestamp, id: String) -> Decision {
        let Some(session) = self.sessions.get(&id) else { return Vec::new() };
        let latest = session.created_at.plus_millis(SESSION_LIFE_MS_MAX);
        let expires_at = now.plus_millis(SESSION_MS).min(latest);
        if expires_at < session.expires_at.plus_millis(SESSION_EXTENDED_MS_MIN) {
            return Vec::new();
        }
        vec![Entry::SessionExtended { id, expires_at }]
    }

    fn end_session(&self, id: String) -> Decision {
        let mut decision = self.stale(vec![id.clone()]);
        decision.push(Entry::SessionEnded(id));
        decision
    }

    /// Makes cells forget these keys and sessions, and no others.
    fn stale(&self, ids: Vec<String>) -> Decision {
        // No word will name again what every cell has heard of.
        let heard = self.watchers.values().min().copied().unwrap_or(self.version);
        let excess = (self.stale.len() + 1).saturating_sub(STALE_VERSIONS_MAX);
        let is_over = |index: usize, version: u64| version <= heard || index < excess;
        let over = self.stale.keys().enumerate().filter(|(index, version)| is_over(*index, **version));
        let mut decision: Vec<_> = over.map(|(_, version)| Entry::StaleForgotten(*version)).collect();
        decision.extend([Entry::StaleNamed { version: self.version + 1, ids }, Entry::VersionRaised]);
        decision
    }

    /// Forty random bits are not enough to be sure; whoever draws one again only has to try again.
    fn check_new(&self, id: &str) -> Result<(), Rejection> {
        if self.keys.contains_key(id) || self.sessions.contains_key(id) {
            let detail = "The new key's id already exists by chance. Try again.";
            return Err(Rejection::new(Code::Internal, detail));
        }
        Ok(())
    }
}

/// As they are written in a setting.
pub(super) fn numbers(cells: &[u32]) -> String {
    let texts: Vec<_> = cells.iter().map(u32::to_string).collect();
    texts.join(",")
}

/// Refuses an issuer that does not say how far its tokens may go: with a claim, whoever runs it decides that.
fn check_ceiling(issuer: &Issuer) -> Result<(), Rejection> {
    if issuer.scopes.len() > SCOPES_MAX || issuer.scopes_max.len() > SCOPES_MAX {
        return Err(invalid(format!("An issuer has up to {SCOPES_MAX} scopes.")));
    }
    if issuer.scopes_claim.is_some() && issuer.scopes_max.is_empty() {
        return Err(invalid(
            "`scopes_claim` takes `scopes_max`: the most that a token may allow, such as [\"write\"].",
        ));
    }
    let names = &issuer.namespaces;
    let is_bounded = match issuer.namespace {
        NamespaceOf::Fixed(_) => names.is_empty(),
        NamespaceOf::Claim(_) => (1..=ISSUER_NAMESPACES_MAX).contains(&names.len()),
    };
    if !is_bounded {
        return Err(invalid(format!(
            "`namespaces` lists 1 to {ISSUER_NAMESPACES_MAX} namespaces that `namespace.claim` may name, such as \
             [\"acme\", \"team-*\"]. `namespace.fixed` takes no list."
        )));
    }
    let is_name = |name: &str| match name.strip_suffix('*') {
        Some("") => true,
        Some(beginning) => key::is_namespace(&format!("{beginning}x")),
        None => key::is_namespace(name),
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(_) => {
            Err(invalid("`namespaces` lists names of namespaces, or their beginnings with a `*` at the end."))
        }
        None => Ok(()),
    }
}

fn check_settings(settings: &RunSettings) -> Result<(), Rejection> {
    if settings.timeout_ms == Some(0) {
        return Err(invalid("`timeout_ms` is at least 1."));
    }
    if [settings.timeout_ms, settings.retention_ms].into_iter().flatten().any(|ms| ms > TIME_MS_MAX) {
        return Err(invalid(format!("Times are at most {TIME_MS_MAX} milliseconds, a hundred years.")));
    }
    Ok(())
}

fn check_limits(limits: &Limits) -> Result<(), Rejection> {
    let Limits { requests_per_second, payload_bytes_per_second, live_runs, payload_bytes_max } = limits;
    let all = [requests_per_second, payload_bytes_per_second, live_runs, payload_bytes_max];
    if all.into_iter().flatten().any(|limit| *limit == 0) {
        return Err(invalid("A limit is at least 1. To lock a namespace out, revoke its keys."));
    }
    Ok(())
}

/// Lets a key that is about to be stored end no later than this.
fn shorten(decision: &mut Decision, id: &str, end: Option<Timestamp>) {
    let Some(end) = end else { return };
    for entry in decision {
        if let Entry::KeyStored(key) = entry
            && key.id == id
        {
            key.expires_at = Some(key.expires_at.map_or(end, |before| before.min(end)));
        }
    }
}

fn no_such_session() -> Rejection {
    let detail = "The namespace has no session with this id. `GET /api/sessions` lists them.";
    Rejection::new(Code::KeyNotFound, detail)
}

fn no_such_key() -> Rejection {
    Rejection::new(Code::KeyNotFound, "The namespace has no key with this id. `GET /api/keys` lists them.")
}

fn invalid(detail: impl Into<String>) -> Rejection {
    Rejection::new(Code::InvalidRequest, detail)
}

fn too_many(detail: impl Into<String>) -> Rejection {
    Rejection::new(Code::TooMany, detail)
}
