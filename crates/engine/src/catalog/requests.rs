//! What a catalog does for its callers: the Workers that serve HTTP, and the cells of its namespace.

use std::rc::Rc;

use stepwell_core::{
    access::{APP, Credential, ROOT, not_good},
    catalog::{
        ApiKey, Catalog as Machine, Change, Deletion, Desk, Input, Namespace, NotAStation,
        namespace_deleting, no_such_namespace, schedules::SCHEDULES_MAX,
    },
    object::{Fault as MachineFault, Hosted as _},
    ordered::OrdSet,
    token::Vouched,
};
use stepwell_protocol::{
    Code, Problem, Timestamp,
    access::{AuditPage, IssuerList, KeyList, NamespaceList, NewKey, SessionList},
    json,
    manifest::{Manifest, PausedWorkflow},
};
use wasm_bindgen::JsValue;

use super::{Host, store::Store};
use crate::{
    access::Access,
    calls::catalog::{Call, Left, Request, ask},
    object::{Answered, Fault, StoreError},
    settings::DEFAULT_NAMESPACE,
    zones,
};

/// How many stations are counted at the most for whoever asks how far a deletion is.
const COUNTED_MAX: usize = 1_000;

/// What the machine says to the host.
type Said<T> = Result<T, MachineFault<StoreError>>;

impl Host {
    /// Answers a Worker or a cell.
    pub(super) async fn answer(self: &Rc<Self>, call: serde_json::Result<Call>) -> JsValue {
        let operated = match call {
            Ok(call) => self.operate(call).await,
            Err(error) => Err(Answered::foreign(&error)),
        };
        operated.unwrap_or_else(Answered::from).into_array(None)
    }

    async fn operate(self: &Rc<Self>, call: Call) -> Result<Answered, Fault> {
        let Call { namespace, life, access, request } = call;
        self.repair().await?;
        if let Some(life) = life.filter(|_| namespace != DEFAULT_NAMESPACE) {
            self.begin_life(&namespace, life).await?;
        }
        if let Request::Confirm { vouched: Some(vouched), .. } = &request {
            self.trust(&namespace, vouched).await?;
        }
        if let Some(Access { vouched: Some(vouched), .. }) = &access {
            self.trust(&namespace, vouched).await?;
        }
        if let Request::Distrust { .. } = &request {
            self.distrusts.set(self.distrusts.get() + 1);
        }
        if let Request::Delete { .. } = &request {
            self.ends.set(self.ends.get() + 1);
        }
        let answered = self.turn(|desk, store, now| {
            let (actor, caller, maker_ends_at, seen_workflows) = match access {
                None => {
                    let is_of_app = matches!(&request, Request::Sync { is_explicit: false, .. });
                    let actor = if is_of_app { APP } else { ROOT };
                    (actor.to_owned(), None, None, None)
                }
                Some(Access { credential, vouched, need }) => {
                    let grant = desk.admit(store, now, &credential, vouched.as_ref(), &need)?;
                    if let Request::SendEvents { events, bytes, largest } = request {
                        desk.take_events(now, &grant, events, bytes, largest)?;
                    }
                    let ends_at = match vouched {
                        Some(vouched) => Some(vouched.expires_at),
                        None => desk.catalog(store)?.maker_ends_at(&credential.id),
                    };
                    let seen_workflows = grant.seen_workflows();
                    (grant.actor, Some(credential.id), ends_at, seen_workflows)
                }
            };
            let namespace = &namespace;
            let asked =
                Asked { desk, store, clock: now, namespace, actor, caller, maker_ends_at, seen_workflows };
            Ok(asked.answer(request)?)
        })?;
        self.wait_until_heard().await;
        Ok(answered)
    }
}

impl Host {
    /// Begins a life of the namespace if nothing is stored yet: the deployment's catalog says whether the name is in that
    /// life. So what comes late, from a life that is over, begins nothing.
    async fn begin_life(self: &Rc<Self>, namespace: &str, life: u64) -> Result<(), Fault> {
        if self.store.namespace()?.is_some() {
            let own = self.turn(|desk, store, _| Ok(desk.catalog(store)?.life()))?;
            return if own == life { Ok(()) } else { Err(no_such_namespace().into()) };
        }
        let before = self.ends.get();
        let request = Request::VouchNamespace { name: namespace.to_owned(), life };
        let (status, body) = ask(&self.env, &Call::new(DEFAULT_NAMESPACE, request)).await?;
        if status != 200 {
            let unreadable =
                || Problem::new(Code::Internal, "The deployment's catalog did not answer. Try again.");
            return Err(json::from_str(&body).unwrap_or_else(|_| unreadable()).into());
        }
        // Word of its deletion may have overtaken the answer.
        if self.ends.get() != before {
            return Err(namespace_deleting().into());
        }
        self.check_open()?;
        self.store.prepare(namespace)?;
        self.turn(|desk, store, now| Ok(desk.drive(store, now, "", Input::Begin { life })?))
    }

    /// Goes by an issuer's word, if it still counts: the deployment's catalog knows that, and tells this one when it
    /// changes. It is asked once for each issuer, so tokens cost no more than keys.
    async fn trust(self: &Rc<Self>, namespace: &str, vouched: &Vouched) -> Result<(), Fault> {
        // A token may be the first thing to come to the default namespace. Others were made, or are not there.
        if namespace == DEFAULT_NAMESPACE {
            self.store.prepare(namespace)?;
        } else if self.store.namespace()?.is_none() {
            return Err(not_good().into());
        }
        if self.turn(|desk, store, _| Ok(desk.catalog(store)?.trusts(vouched)))? {
            return Ok(());
        }
        let before = (self.distrusts.get(), self.ends.get());
        let (issuer, revision) = (vouched.issuer.clone(), vouched.revision);
        let request = Request::Vouch { namespace: namespace.to_owned(), issuer, revision };
        let asked = ask(&self.env, &Call::new(DEFAULT_NAMESPACE, request)).await;
        let counts = asked.is_ok_and(|(status, _)| status == 200);
        // Word of the issuer's end, or of the namespace's, may have overtaken the answer. What comes later finds the
        // issuer in this catalog.
        if !counts || (self.distrusts.get(), self.ends.get()) != before {
            return Err(not_good().into());
        }
        let issuer = vouched.issuer.clone();
        self.turn(|desk, store, now| Ok(desk.drive(store, now, "", Input::Trust { issuer, revision })?))?;
        self.wait_until_heard().await;
        Ok(())
    }
}

/// One request, on its way through the machine.
struct Asked<'a> {
    desk: &'a mut Desk,
    store: &'a Store,
    clock: Timestamp,
    namespace: &'a str,
    actor: String,
    /// The id of the caller's key or session; none for the deployment's key.
    caller: Option<String>,
    /// When what the caller has brought stops being good: keys that it makes do not outlive it.
    maker_ends_at: Option<Timestamp>,
    /// The workflows that the caller may see; nothing, if it may see all.
    seen_workflows: Option<OrdSet<String>>,
}

impl Asked<'_> {
    #[expect(clippy::too_many_lines, reason = "one arm for each request")]
    fn answer(mut self, request: Request) -> Said<Answered> {
        match request {
            Request::Check => Ok(Answered::new(200, &())),
            Request::Actor | Request::SendEvents { .. } => Ok(Answered::new(200, &self.actor)),
            Request::SeenWorkflows => Ok(Answered::new(200, &self.seen_workflows)),
            Request::Confirm { credential, vouched, cell } => {
                // Most keys that nobody made stop here: a catalog that has nothing stores nothing.
                let confirmed =
                    self.desk.confirm(self.store, self.clock, &credential, vouched.as_ref(), &cell)?;
                Ok(Answered::new(200, &confirmed))
            }
            Request::Rules { cell } => {
                self.store.prepare(self.namespace).map_err(MachineFault::Storage)?;
                Ok(Answered::new(200, &self.desk.rules(self.store, self.clock, &cell)?))
            }
            Request::ListKeys => {
                let now = self.desk.now(self.clock);
                Ok(Answered::new(200, &KeyList { keys: self.catalog()?.keys(now) }))
            }
            Request::CreateKey { credential, new } => self.create_key(credential, new),
            Request::RotateKey { id, credential, overlap_ms } => {
                let (new, maker_ends_at) = (credential.id.clone(), self.maker_ends_at);
                self.drive(Input::RotateKey { id, new: credential, overlap_ms, maker_ends_at })?;
                self.show_key(201, &new)
            }
            Request::RevokeKey { id } => {
                self.drive(Input::RevokeKey { id: id.clone() })?;
                self.show_key(200, &id)
            }
            Request::ShowSession => {
                let id = self.caller.clone();
                self.show_session(200, id.as_deref())
            }
            Request::OpenSession { credential } => self.open_session(credential),
            Request::EndSession => {
                if let Some(id) = self.caller.clone() {
                    self.drive(Input::EndSession { id })?;
                }
                Ok(Answered::new(200, &()))
            }
            Request::ListSessions => {
                let (now, namespace) = (self.desk.now(self.clock), self.namespace);
                Ok(Answered::new(200, &SessionList { sessions: self.catalog()?.sessions(now, namespace) }))
            }
            Request::RevokeSession { id } => {
                self.drive(Input::RevokeSession { id })?;
                Ok(Answered::new(200, &()))
            }
            Request::ShowSettings => self.show_settings(),
            Request::SetRuns { settings } => {
                self.drive(Input::SetRuns(settings))?;
                self.show_settings()
            }
            Request::SetWorkflow { workflow, settings } => {
                self.drive(Input::SetWorkflow { workflow, settings })?;
                self.show_settings()
            }
            Request::Sync { manifest, is_explicit, dry_run } => self.sync(manifest, is_explicit, dry_run),
            Request::PauseWorkflow { workflow } => {
                self.drive(Input::Declared(Change::Pause { workflow: workflow.clone() }))?;
                self.show_paused(workflow)
            }
            Request::ResumeWorkflow { workflow } => {
                self.drive(Input::Declared(Change::Resume { workflow: workflow.clone() }))?;
                self.show_paused(workflow)
            }
            Request::PausedWorkflows => {
                let paused: Vec<_> = self.catalog()?.declared().paused().map(|(name, _)| name).collect();
                Ok(Answered::new(200, &paused))
            }
            Request::ShowLayers => Ok(Answered::new(200, &self.catalog()?.layers())),
            Request::ShowDeclared => {
                let catalog = self.catalog()?;
                let workflows = catalog.declared().holds().map(|manifest| manifest.workflows.as_slice());
                Ok(Answered::new(200, &workflows.unwrap_or_default()))
            }
            Request::SetLimits { limits } => {
                self.drive(Input::SetLimits(limits))?;
                self.show_settings()
            }
            Request::NoteLetter(note) => {
                self.drive(Input::NoteLetter(note))?;
                Ok(Answered::new(200, &()))
            }
            Request::Audit { below, limit } => self.audit(below, limit),
            Request::Touch => {
                self.desk.touch(self.store, self.clock)?;
                Ok(Answered::new(200, &()))
            }
            Request::HasStation { station } => {
                let station = station.parse().ok();
                let has = station.map(|station| self.desk.has_station(self.store, &station)).transpose()?;
                Ok(Answered::new(200, &has.unwrap_or_default()))
            }
            Request::Forget { station } => {
                if let Ok(station) = station.parse() {
                    self.desk.forget(self.store, self.clock, station)?;
                }
                Ok(Answered::new(200, &()))
            }
            Request::Names { which, after, limit } => {
                Ok(Answered::new(200, &Desk::named(self.store, which, &after, limit)?))
            }
            Request::Register { station } => {
                let station = station
                    .parse()
                    .map_err(|error: NotAStation| Problem::new(Code::InvalidRequest, error.to_string()))?;
                self.prepare()?;
                let registered = self.desk.register(self.store, self.clock, station)?;
                Ok(Answered::new(200, &registered))
            }
            Request::ListNamespaces => {
                let namespaces = self.catalog()?.namespaces().map(Namespace::view).collect();
                Ok(Answered::new(200, &NamespaceList { namespaces }))
            }
            Request::ShowNamespace { name } => self.show_namespace(200, &name),
            Request::AddNamespace { name } => {
                self.drive(Input::AddNamespace { name: name.clone() })?;
                self.show_namespace(201, &name)
            }
            Request::DeleteNamespace { name } => {
                self.drive(Input::DeleteNamespace { name: name.clone() })?;
                self.show_namespace(202, &name)
            }
            Request::VouchNamespace { name, life } => {
                if self.catalog()?.is_alive(&name, life) {
                    Ok(Answered::new(200, &()))
                } else {
                    Err(no_such_namespace().into())
                }
            }
            Request::Delete { life, pool, cells } => {
                let deletion = self.desk.delete(self.store, self.clock, life, &pool, &cells)?;
                Ok(Answered::new(200, &deletion))
            }
            Request::ShowDeletion => self.show_deletion(),
            Request::ShowLife => self.show_life(),
            Request::ShowPool => Ok(Answered::new(200, &self.catalog()?.pool())),
            Request::UsePool { cells } => {
                self.drive(Input::UsePool { cells })?;
                Ok(Answered::new(200, &()))
            }
            Request::ListIssuers => {
                let issuers = self.catalog()?.issuers().map(|known| known.issuer.clone()).collect();
                Ok(Answered::new(200, &IssuerList { issuers }))
            }
            Request::KnownIssuers => {
                let issuers: Vec<_> = self.catalog()?.issuers().cloned().collect();
                Ok(Answered::new(200, &issuers))
            }
            Request::Vouch { namespace, issuer, revision } => {
                self.drive(Input::Vouch { namespace, issuer, revision })?;
                Ok(Answered::new(200, &()))
            }
            Request::Distrust { issuer } => {
                if self.is_nowhere()? {
                    return Ok(Answered::new(200, &()));
                }
                self.drive(Input::Distrust { issuer })?;
                Ok(Answered::new(200, &()))
            }
            Request::SetIssuer { issuer } => {
                self.drive(Input::SetIssuer(issuer.clone()))?;
                Ok(Answered::new(200, &issuer))
            }
            Request::RemoveIssuer { issuer } => {
                self.drive(Input::RemoveIssuer { issuer })?;
                Ok(Answered::new(200, &()))
            }
        }
    }

    fn sync(mut self, manifest: Box<Manifest>, is_explicit: bool, dry_run: bool) -> Said<Answered> {
        let now = self.desk.now(self.clock);
        // Zones of more schedules than there may be are nobody's business: the count is refused.
        let is_small = manifest.schedules.len() <= SCHEDULES_MAX;
        let unknown_zones = if is_small { zones::unknown(&manifest) } else { Vec::new() };
        let declared = self.catalog()?.declared();
        let plan = declared.preview(now, &manifest, is_explicit, dry_run, &unknown_zones)?;
        if !dry_run {
            self.drive(Input::Declared(Change::Sync { manifest, is_explicit, unknown_zones }))?;
        }
        Ok(Answered::new(200, &plan))
    }

    fn show_paused(mut self, workflow: String) -> Said<Answered> {
        let mut paused = self.catalog()?.declared().paused();
        let paused = paused.find(|(name, _)| *name == workflow).map(|(_, paused)| paused.clone());
        Ok(Answered::new(200, &PausedWorkflow { name: workflow, paused }))
    }

    fn audit(self, below: u64, limit: u32) -> Said<Answered> {
        // Which namespaces there are, and whose tokens are taken, is the deployment's own business.
        let records = self.desk.audit(self.store, below, limit, self.caller.is_none())?;
        let refused = self.desk.refused(self.store)?;
        let is_full = records.len() == limit as usize;
        let next = records.last().filter(|_| is_full).map(|record| record.seq);
        Ok(Answered::new(200, &AuditPage { records, next, refused }))
    }

    fn create_key(mut self, Credential { id, hash }: Credential, new: NewKey) -> Said<Answered> {
        let NewKey { name, scopes, environment, expires_at } = new;
        let key = ApiKey {
            id: id.clone(),
            hash,
            name,
            environment: environment.unwrap_or_else(|| "live".into()),
            scopes,
            created_at: self.desk.now(self.clock),
            created_by: self.actor.clone(),
            expires_at,
            revoked_at: None,
            replaced_by: None,
        };
        self.drive(Input::CreateKey { key, maker_ends_at: self.maker_ends_at })?;
        self.show_key(201, &id)
    }

    /// A session never opens another: it would outlive its own end.
    fn open_session(mut self, credential: Credential) -> Said<Answered> {
        let (id, caller) = (credential.id.clone(), self.caller.clone());
        if let Some(caller) = &caller
            && self.catalog()?.key(caller).is_none()
        {
            let detail = "You are here with a session or a token. Sign in with a key.";
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        self.prepare()?;
        self.desk.sign_in(self.store, self.clock, &self.actor, credential, caller)?;
        self.show_session(201, Some(&id))
    }

    fn show_session(mut self, status: u16, id: Option<&str>) -> Said<Answered> {
        let now = self.desk.now(self.clock);
        let namespace = self.namespace;
        let session = match id {
            Some(id) => self.catalog()?.session(now, namespace, id),
            None => None,
        };
        match session {
            Some(session) => Ok(Answered::new(status, &session)),
            None => {
                let detail = "You are using a key, not a session. `POST /api/session` opens one.";
                Err(Problem::new(Code::WrongStatus, detail).into())
            }
        }
    }

    fn show_key(mut self, status: u16, id: &str) -> Said<Answered> {
        let now = self.desk.now(self.clock);
        let key = self.catalog()?.key(id).map(|key| key.view(now));
        key.map(|key| Answered::new(status, &key))
            .ok_or_else(|| Problem::new(Code::KeyNotFound, "The namespace has no key with this id.").into())
    }

    fn show_settings(mut self) -> Said<Answered> {
        Ok(Answered::new(200, &self.catalog()?.settings()))
    }

    fn show_namespace(mut self, status: u16, name: &str) -> Said<Answered> {
        let namespace = self.catalog()?.namespace(name);
        namespace.map(|one| Answered::new(status, one)).ok_or_else(|| no_such_namespace().into())
    }

    fn show_deletion(mut self) -> Said<Answered> {
        let cells = self.catalog()?.deletion().map(Deletion::cells_left);
        let stations = self.desk.stations(self.store, None, COUNTED_MAX)?.len();
        let stations = u32::try_from(stations).unwrap_or(u32::MAX);
        Ok(Answered::new(200, &cells.map(|cells| Left { cells, stations })))
    }

    fn show_life(mut self) -> Said<Answered> {
        if self.is_nowhere()? {
            return Err(no_such_namespace().into());
        }
        let catalog = self.catalog()?;
        match catalog.deletion() {
            Some(_) => Err(namespace_deleting().into()),
            None => Ok(Answered::new(200, &catalog.life())),
        }
    }

    /// Whether nothing was ever stored here, or nothing is left. Only the default namespace begins by itself.
    fn is_nowhere(&self) -> Said<bool> {
        let stored = self.store.namespace().map_err(MachineFault::Storage)?;
        Ok(stored.is_none() && self.namespace != DEFAULT_NAMESPACE)
    }

    fn prepare(&self) -> Said<()> {
        if self.is_nowhere()? {
            return Err(no_such_namespace().into());
        }
        self.store.prepare(self.namespace).map_err(MachineFault::Storage)
    }

    fn catalog(&mut self) -> Said<&Machine> {
        self.desk.catalog(self.store)
    }

    fn drive(&mut self, input: Input) -> Said<()> {
        self.prepare()?;
        self.desk.drive(self.store, self.clock, &self.actor, input)
    }
}
