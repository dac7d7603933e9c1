//! Who may do what, and within which limits: the bodies of the routes for keys, sessions, namespaces and settings.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize, de::Error as _};

use crate::{Timestamp, text};

/// What a key lets its bearer do. Each includes those before it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// See runs and workflows.
    Read,
    /// Start runs, and do something to them.
    Write,
    /// Look after the namespace: keys, sessions, settings.
    Admin,
}

impl Scope {
    /// Every scope there is.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

/// A scope, for all workflows or for one: `write`, `write:greet`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// What it allows.
    pub scope: Scope,
    /// Only about this workflow and its runs.
    pub workflow: Option<String>,
}

/// A text that is no permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a scope is read, write or admin, or read or write for one workflow, such as write:greet")]
pub struct NotAPermission;

impl Permission {
    /// The longest name of a workflow.
    const WORKFLOW_LENGTH_MAX: usize = 128;

    /// A scope for all workflows.
    pub fn all(scope: Scope) -> Self {
        Self { scope, workflow: None }
    }

    /// What both allow; nothing, if they are about different workflows.
    pub fn meet(&self, other: &Self) -> Option<Self> {
        let scope = self.scope.min(other.scope);
        let workflow = match (&self.workflow, &other.workflow) {
            (Some(one), Some(another)) if one != another => return None,
            (Some(workflow), _) | (None, Some(workflow)) => Some(workflow.clone()),
            (None, None) => None,
        };
        Some(Self { scope, workflow })
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.workflow {
            Some(workflow) => write!(f, "{}:{workflow}", self.scope.as_str()),
            None => f.write_str(self.scope.as_str()),
        }
    }
}

impl FromStr for Permission {
    type Err = NotAPermission;

    fn from_str(text: &str) -> Result<Self, NotAPermission> {
        let (scope, workflow) = match text.split_once(':') {
            Some((scope, workflow)) => (scope, Some(workflow.to_owned())),
            None => (text, None),
        };
        let scope = Scope::ALL.into_iter().find(|known| known.as_str() == scope).ok_or(NotAPermission)?;
        if let Some(name) = &workflow {
            let is_name =
                !name.is_empty() && name.len() <= Self::WORKFLOW_LENGTH_MAX && text::is_visible(name);
            // Keys and settings belong to no workflow.
            if !is_name || scope == Scope::Admin {
                return Err(NotAPermission);
            }
        }
        Ok(Self { scope, workflow })
    }
}

impl Serialize for Permission {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The limits of a namespace. A missing field means no limit.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Requests per second. Each cell enforces its share, with bursts of two seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Bytes of inputs and signals per second. Each cell enforces its share, with bursts of two seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes_per_second: Option<u32>,
    /// Runs that have not ended. Each cell enforces its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_runs: Option<u32>,
    /// The largest payload of one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes_max: Option<u32>,
}

/// Settings for the runs of a workflow or of a namespace.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// How long a run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long a run is kept after its end; 0 keeps it forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// The largest payload of one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes_max: Option<u32>,
}

/// All settings of a namespace: `GET /api/settings`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Its limits. Only the deployment's own key can change them.
    pub limits: Limits,
    /// For runs whose workflow has no setting of its own.
    pub runs: RunSettings,
    /// For runs of single workflows. They take precedence over the code.
    pub workflows: BTreeMap<String, RunSettings>,
}

/// A new key: `POST /api/keys`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// A name for people.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<Permission>,
    /// `live` or `test`. It is part of the text and has no other effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// When it expires; never, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// `POST /api/keys/{key}/rotate`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// How long the old key stays active; the default is one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_ms: Option<u64>,
}

/// A key, without its text.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// Its id, which is part of the key's text.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// `live` or `test`.
    pub environment: String,
    /// What it allows.
    pub scopes: Vec<Permission>,
    /// Its current status.
    pub status: KeyStatus,
    /// When it was created.
    pub created_at: Timestamp,
    /// Who created it.
    pub created_by: String,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// The key that replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<String>,
}

/// The status of a key.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStatus {
    /// It is active.
    Active,
    /// It has expired.
    Expired,
    /// It was revoked.
    Revoked,
}

/// A new key. Its text is shown only in this answer.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedKey {
    /// The key itself.
    pub key: String,
    /// What is known of it.
    #[serde(flatten)]
    pub view: KeyView,
}

/// `GET /api/keys`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyList {
    /// Newest first.
    pub keys: Vec<KeyView>,
}

/// A session, without its token.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// Its id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// Who signed in: `root`, or `key:` and the key's id.
    pub subject: String,
    /// What it allows.
    pub scopes: Vec<Permission>,
    /// When it was opened.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// `GET /api/sessions`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionList {
    /// Newest first.
    pub sessions: Vec<SessionView>,
}

/// A new session. Its token is shown only in this answer.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedSession {
    /// The token, which is sent like a key. Browsers also get it as a cookie.
    pub token: String,
    /// What is known of the session.
    #[serde(flatten)]
    pub view: SessionView,
}

/// A new namespace: `POST /api/namespaces`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewNamespace {
    /// Its name.
    pub name: String,
    /// Its limits.
    #[serde(default)]
    pub limits: Limits,
}

/// A namespace.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceView {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether it is being deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
}

/// How far the deletion of a namespace is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletionView {
    /// Since when it is being deleted.
    pub since: Timestamp,
    /// Who has asked for it.
    pub by: String,
    /// How many cells are not known to be empty. Absent before the first and after the last of them was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells_left: Option<u32>,
    /// How many other objects are not known to be empty, counted up to 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stations_left: Option<u32>,
}

/// `DELETE /api/namespaces/{namespace}`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedNamespace {
    /// Its name.
    pub name: String,
    /// How far its deletion is.
    pub deleting: DeletionView,
}

/// `GET /api/namespaces/{namespace}`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceDetails {
    /// What is set in it.
    #[serde(flatten)]
    pub settings: Settings,
    /// How far its deletion is, if it is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleting: Option<DeletionView>,
}

/// A new namespace.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedNamespace {
    /// The namespace.
    #[serde(flatten)]
    pub view: NamespaceView,
    /// Its first key, with all permissions in the namespace.
    pub admin: CreatedKey,
}

/// `GET /api/namespaces`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceList {
    /// By name.
    pub namespaces: Vec<NamespaceView>,
}

/// An issuer whose JSON Web Tokens are accepted: `PUT /api/issuers`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The `iss` of its tokens.
    pub issuer: String,
    /// What their `aud` must name.
    pub audience: String,
    /// Where its public keys are.
    pub jwks_url: String,
    /// The namespace of its tokens.
    pub namespace: NamespaceOf,
    /// The namespaces that a claim may name: `acme`, `team-*` for all that begin so, `*` for all. Required with a claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// The claim that lists scopes, as text with spaces or as a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes_claim: Option<String>,
    /// The most that a token can grant. Scopes beyond it are dropped. Required with `scopes_claim`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes_max: Vec<Permission>,
    /// The scopes of a token without that claim.
    #[serde(default)]
    pub scopes: Vec<Permission>,
}

impl Issuer {
    /// Whether its tokens may lead to a namespace.
    pub fn leads_to(&self, namespace: &str) -> bool {
        match &self.namespace {
            NamespaceOf::Fixed(fixed) => fixed == namespace,
            NamespaceOf::Claim(_) => self.namespaces.iter().any(|allowed| match allowed.strip_suffix('*') {
                Some(beginning) => namespace.starts_with(beginning),
                None => allowed == namespace,
            }),
        }
    }
}

/// How a token's namespace is found.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamespaceOf {
    /// Always this one.
    Fixed(String),
    /// This claim names it.
    Claim(String),
}

/// `GET /api/issuers`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerList {
    /// By `iss`.
    pub issuers: Vec<Issuer>,
}

/// One line of the audit log.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// Its number, increasing.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// Who: `root`, `key:` or `session:` and an id, `token:` with an issuer and a subject.
    pub actor: String,
    /// What was done, such as `key_revoked`.
    pub action: String,
    /// To what.
    pub subject: String,
    /// What was changed, and from what to what. Never a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The number of requests that the namespace's catalog refused. Requests that a cell refuses are not counted.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Invalid keys, sessions and tokens.
    #[serde(default)]
    pub unauthorized: u64,
    /// Valid keys without the required scope.
    #[serde(default)]
    pub forbidden: u64,
    /// Requests beyond a limit of the namespace.
    #[serde(default)]
    pub limit_reached: u64,
}

impl Refusals {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.unauthorized == 0 && self.forbidden == 0 && self.limit_reached == 0
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            since: self.since.or(more.since),
            unauthorized: self.unauthorized.saturating_add(more.unauthorized),
            forbidden: self.forbidden.saturating_add(more.forbidden),
            limit_reached: self.limit_reached.saturating_add(more.limit_reached),
        }
    }
}

/// `GET /api/audit`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// Newest first.
    pub records: Vec<AuditRecord>,
    /// Pass it as `before` for the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The number of refused requests.
    #[serde(default)]
    pub refused: Refusals,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_reads_back_as_it_was_written_and_nothing_else_does() {
        for text in ["read", "write", "admin", "read:greet", "write:a:b", "write:naïve flow"] {
            let permission: Permission = text.parse().expect(text);
            assert_eq!(permission.to_string(), text);
        }
        for bad in [
            "",
            "root",
            "Read",
            "read:",
            "admin:greet",
            "write:\u{7}",
            "write:a\u{202e}b",
            " read",
            "read,write",
        ] {
            assert_eq!(bad.parse::<Permission>(), Err(NotAPermission), "{bad}");
        }
    }

    #[test]
    fn what_two_permissions_allow_is_what_both_allow() {
        let meet = |one: &str, another: &str| {
            let [one, another] = [one, another].map(|text| text.parse::<Permission>().expect(text));
            assert_eq!(one.meet(&another), another.meet(&one));
            one.meet(&another).map(|both| both.to_string())
        };
        assert_eq!(meet("admin", "write").as_deref(), Some("write"));
        assert_eq!(meet("admin", "read:greet").as_deref(), Some("read:greet"));
        assert_eq!(meet("write:greet", "read").as_deref(), Some("read:greet"));
        assert_eq!(meet("write:greet", "read:greet").as_deref(), Some("read:greet"));
        assert_eq!(meet("write:greet", "write:other"), None);
    }

    #[test]
    fn an_issuer_leads_to_the_namespaces_that_it_names_and_no_others() {
        let leads = |allowed: &[&str], to: &str| {
            let issuer = Issuer {
                issuer: "https://issuer.example".into(),
                audience: "stepwell".into(),
                jwks_url: "https://issuer.example/jwks".into(),
                namespace: NamespaceOf::Claim("tenant".into()),
                namespaces: allowed.iter().map(|name| (*name).to_owned()).collect(),
                scopes_claim: None,
                scopes_max: Vec::new(),
                scopes: Vec::new(),
            };
            issuer.leads_to(to)
        };
        assert!(
            leads(&["acme", "team-*"], "acme")
                && leads(&["acme", "team-*"], "team-a")
                && leads(&["*"], "any")
        );
        assert!(!leads(&["acme", "team-*"], "acme-2") && !leads(&["acme", "team-*"], "default"));
        assert!(!leads(&[], "acme"));
    }

    #[test]
    fn each_scope_includes_those_before_it() {
        assert!(Scope::Read < Scope::Write && Scope::Write < Scope::Admin);
    }
}
