//! The one loop of a catalog: decide, commit, apply, order. Synchronous, like a cell's.

use stepwell_protocol::{
    Code, LimitName, Problem, Timestamp,
    access::{AuditRecord, Refusals},
    manifest::ScheduleDescription,
};

use super::{
    Batch, Catalog, Changed, Corrupt, Entry, Input, KEYS_MAX, QueueWord, Relation, Rows, SIGN_INS_PER_SECOND,
    Station, TopicWord,
    deletion::{Asking, Emptying},
    namespace_deleting,
};
use crate::{
    access::{Bucket, Credential, Grant, Need, Rules, not_good},
    object::{Fault, Hosted, Machine, Object},
    ordered::OrdMap,
    token::Vouched,
};

/// How long until cells that have not heard of a change are told again.
pub const TELL_AGAIN_MS: u64 = 1_000;

/// The longest pause, for those who have to forget a key: their answers are waited for as long.
pub const TELL_URGENT_MS_MAX: u64 = 5_000;

/// The longest pause for what the code declares.
const TELL_AGAIN_MS_MAX: u64 = 60_000;

/// How many namespaces are told of an issuer's end at once. The alarm tells the next ones.
const DISTRUSTED_AT_ONCE: usize = 256;

/// How often refusals are stored, at the most.
const REFUSALS_STORED_MS: u64 = 60_000;

/// How often what is over is forgotten.
const TIDY_MS: u64 = 86_400_000;

/// A catalog and its storage's rows, put together.
#[derive(Clone, Debug, Default)]
pub struct Desk {
    object: Object<Order>,
    /// Nothing until the rows were read.
    pub(super) catalog: Option<Catalog>,
    /// How far the deletion of this namespace has come.
    pub(super) emptying: Emptying,
    /// Which namespaces that are on their way out were asked how far they are.
    pub(super) asking: Asking,
    /// The fingerprints of the deployment's keys, the current one first.
    roots: Vec<String>,
    /// How much of the namespace's requests were made here.
    requests: Bucket,
    /// How much of what its events may say was said.
    bytes: Bucket,
    /// How often each key has signed in. Never more than the keys that there are, and the deployment's.
    sign_ins: OrdMap<Option<String>, Bucket>,
    /// Refusals that are not stored yet. They are lost with the instance: a count of about a minute.
    refused: Refusals,
    refusals_stored_at: Option<Timestamp>,
    /// Who was behind when they were told last, and how often in a row that were the same.
    told: (Behind, u32),
    /// When those who are behind are told again.
    tell_at: Timestamp,
}

/// How many have to be told of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Behind {
    words: usize,
    over: usize,
    schedules: Option<u64>,
    topics: usize,
    queues: usize,
}

/// What the host has to do for a catalog, in the same turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Tell cells what to forget, and say when one has done so.
    Tell(Vec<Word>),
    /// Let somebody know that this cannot be read.
    Report(Corrupt),
    /// Ask the catalogs of these namespaces to delete what there is of these lives, and say when nothing is left.
    Delete(Vec<(String, u64)>),
    /// Empty these cells and stations, and say which of them are.
    Empty(Batch),
    /// Delete all rows of this object: nothing else is left of the namespace.
    Clear {
        /// Of this life.
        life: u64,
    },
    /// Let these stations look after their alarms.
    Touch(Vec<Station>),
    /// Tell topics which triggers the code declares for them, and say when one knows.
    DeclareTriggers(Vec<TopicWord>),
    /// Tell queues which handlers the code declares for them, and say when one knows.
    DeclareHandlers(Vec<QueueWord>),
    /// Tell the station of schedules what the code declares, and say when it knows.
    DeclareSchedules {
        /// Which revision of it.
        revision: u64,
        /// All of it.
        schedules: Vec<ScheduleDescription>,
    },
    /// Tell the catalogs of namespaces that an issuer's word counts no more, and say when one has heard of it.
    Distrust(Vec<Relation>),
}

/// What a cell has to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The cell's place.
    pub cell: String,
    /// The version up to which this is all there is to forget.
    pub version: u64,
    /// The keys and sessions to forget; all of them, if none is named.
    pub ids: Option<Vec<String>>,
}

/// What a cell may remember of a key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Confirmation {
    /// What it grants.
    pub grant: Grant,
    /// As of which version: a cell that has heard of a later one asks again.
    pub version: u64,
}

impl Hosted for Desk {
    type Order = Order;

    fn object(&mut self) -> &mut Object<Order> {
        &mut self.object
    }

    fn begin(&mut self) {
        self.emptying.batches = 0;
    }
}

impl<R: Rows> Machine<R> for Desk {
    type Error = R::Error;

    /// Whoever is behind is told again, and what is over is forgotten.
    fn due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        if self.catalog(rows)?.deletion().is_some() {
            self.tell_again(now);
            return self.empty_next(rows, now).map(|()| None);
        }
        let tidied = self.drive(rows, now, "", Input::Tidy);
        self.tell_again(now);
        tidied.map(|()| None)
    }

    /// The instance before may have died before everybody was told.
    fn first_due(&mut self, rows: &R, now: Timestamp) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let is_deleted = self.catalog(rows)?.deletion().is_some();
        self.empty_next(rows, now)?;
        Ok((self.tell(now) || is_deleted).then(|| now.plus_millis(TELL_AGAIN_MS)))
    }
}

impl Desk {
    /// A desk in a deployment whose keys have these fingerprints, the current one first.
    pub fn new(roots: Vec<String>) -> Self {
        Self { roots, ..Self::default() }
    }

    /// The catalog, from memory or from its rows.
    pub fn catalog<R: Rows>(&mut self, rows: &R) -> Result<&Catalog, Fault<R::Error>> {
        if self.catalog.is_none() {
            let (stored, audit) =
                (rows.load().map_err(Fault::Storage)?, rows.audit_last().map_err(Fault::Storage)?);
            let catalog = Catalog::from_rows(&stored, audit);
            let catalog = catalog.map_err(|corrupt| Fault::Storage(corrupt.into()))?.with_roots(&self.roots);
            for corrupt in &catalog.unreadable {
                self.object.order(Order::Report(corrupt.clone()));
            }
            self.catalog = Some(catalog);
        }
        Ok(self.catalog.as_ref().expect("it was just read"))
    }

    /// Lets an input happen, on somebody's behalf.
    pub fn drive<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        actor: &str,
        input: Input,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let catalog = self.catalog(rows)?;
        let entries = catalog.decide(now, actor, input)?;
        if entries.is_empty() {
            return Ok(());
        }
        let mut next = catalog.clone();
        next.apply_all(&entries);
        let (mut changed, mut audit, mut trims) = (Vec::new(), Vec::new(), Vec::new());
        for entry in &entries {
            changed.extend(next.row(entry));
            if let Entry::Audited(line) = entry {
                audit.push(line.clone());
            } else if let Entry::AuditTrimmed(trim) = entry {
                trims.push(*trim);
            }
        }
        rows.commit(&changed, &audit, &trims).map_err(Fault::Storage)?;
        self.catalog = Some(next);
        if entries.iter().any(|entry| matches!(entry, Entry::NamespaceLeft(_))) {
            self.ask_anew();
        }
        let is_news = |entry: &Entry| {
            matches!(
                entry,
                Entry::VersionRaised
                    | Entry::RelationOver(_)
                    | Entry::NamespaceLeft(_)
                    | Entry::Declared(Changed::Holds(..))
            )
        };
        if entries.iter().any(is_news) {
            self.tell(now);
        }
        // A day is soon enough for what nobody is granted anything for any more.
        self.object.arm_by(now, now.plus_millis(TIDY_MS));
        Ok(())
    }

    /// Opens a session for a key, or for the deployment's own, unless it has signed in too often.
    pub fn sign_in<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        actor: &str,
        new: Credential,
        key: Option<String>,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        if self.sign_ins.len() > KEYS_MAX {
            self.sign_ins.clear();
        }
        let bucket = self.sign_ins.get_or_default(key.clone());
        bucket.take(now, SIGN_INS_PER_SECOND, 1).map_err(|seconds| {
            let detail =
                format!("A key can sign in {SIGN_INS_PER_SECOND} time a second. Reuse a session's token.");
            Problem::new(Code::LimitReached, detail).after(seconds)
        })?;
        self.drive(rows, clock, actor, Input::OpenSession { new, key })
    }

    /// What a caller is granted, if that is enough for what it asks of the catalog itself. Counts the request.
    pub fn admit<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        brought: &Credential,
        vouched: Option<&Vouched>,
        need: &Need,
    ) -> Result<Grant, Fault<R::Error>> {
        let admitted = self.admit_uncounted(rows, clock, brought, vouched, need);
        self.counted(rows, clock, admitted)
    }

    fn admit_uncounted<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        brought: &Credential,
        vouched: Option<&Vouched>,
        need: &Need,
    ) -> Result<Grant, Fault<R::Error>> {
        let now = self.now(clock);
        self.use_session(rows, clock, brought)?;
        let grant = self.worth(rows, now, brought, vouched)?;
        // What is refused counts too: it has come this far.
        if let Some(limit) = grant.limits.requests_per_second {
            self.requests.take(now, limit.into(), 1).map_err(|seconds| {
                let detail = format!("The namespace may have {limit} requests a second.");
                Problem::new(Code::LimitReached, detail).of_limit(LimitName::RequestsPerSecond).after(seconds)
            })?;
        }
        grant.check(now, need)?;
        Ok(grant)
    }

    /// Counts events like as many requests, of which one is counted already, and what they say like payloads.
    pub fn take_events(
        &mut self,
        clock: Timestamp,
        grant: &Grant,
        events: usize,
        bytes: usize,
        largest: usize,
    ) -> Result<(), Problem> {
        let now = self.now(clock);
        if let Some(problem) = grant.check_payload(None, largest) {
            return Err(problem);
        }
        let reached = |what: &str, name: LimitName, limit: u32, seconds: u32| {
            let detail = format!("The namespace may have {limit} {what} a second.");
            Problem::new(Code::LimitReached, detail).of_limit(name).after(seconds)
        };
        if let Some(limit) = grant.limits.payload_bytes_per_second.filter(|_| bytes > 0) {
            let taken = self.bytes.take(now, limit.into(), bytes as u64);
            taken.map_err(|seconds| {
                reached("bytes of payloads", LimitName::PayloadBytesPerSecond, limit, seconds)
            })?;
        }
        if let Some(limit) = grant.limits.requests_per_second.filter(|_| events > 1) {
            let taken = self.requests.take(now, limit.into(), events as u64 - 1);
            taken.map_err(|seconds| reached("requests", LimitName::RequestsPerSecond, limit, seconds))?;
        }
        Ok(())
    }

    /// What a credential grants, for a cell that will remember it. The cell is a watcher from now on.
    pub fn confirm<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        brought: &Credential,
        vouched: Option<&Vouched>,
        cell: &str,
    ) -> Result<Confirmation, Fault<R::Error>> {
        let now = self.now(clock);
        self.use_session(rows, clock, brought)?;
        let worth = self.worth(rows, now, brought, vouched);
        let grant = self.counted(rows, clock, worth)?;
        self.drive(rows, clock, "", Input::Watch { cell: cell.to_owned() })?;
        Ok(Confirmation { grant, version: self.catalog(rows)?.version() })
    }

    /// What holds for runs that no caller starts, for a cell that will remember it. The cell is a watcher from now on.
    pub fn rules<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        cell: &str,
    ) -> Result<Rules, Fault<R::Error>> {
        self.drive(rows, clock, "", Input::Watch { cell: cell.to_owned() })?;
        Ok(self.catalog(rows)?.rules())
    }

    /// What a credential grants. Whoever has a good one is told if the namespace is being deleted, and nobody else is.
    fn worth<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        brought: &Credential,
        vouched: Option<&Vouched>,
    ) -> Result<Grant, Fault<R::Error>> {
        let catalog = self.catalog(rows)?;
        let grant = catalog.worth(now, brought, vouched).ok_or_else(not_good)?;
        if catalog.deletion().is_some() { Err(namespace_deleting().into()) } else { Ok(grant) }
    }

    /// A session that is used lasts longer.
    fn use_session<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        brought: &Credential,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let catalog = self.catalog(rows)?;
        if catalog.is_session(&brought.id) && catalog.grant(now, brought).is_some() {
            self.drive(rows, clock, "", Input::UseSession { id: brought.id.clone() })?;
        }
        Ok(())
    }

    /// Lines of the audit log below a number, newest first; those of the registry too, or not.
    pub fn audit<R: Rows>(
        &self,
        rows: &R,
        below: u64,
        limit: u32,
        with_registry: bool,
    ) -> Result<Vec<AuditRecord>, Fault<R::Error>> {
        rows.audit(below, limit, with_registry).map_err(Fault::Storage)
    }

    /// How many requests were refused.
    pub fn refused<R: Rows>(&mut self, rows: &R) -> Result<Refusals, Fault<R::Error>> {
        Ok(self.catalog(rows)?.refused().plus(self.refused))
    }

    /// Counts a refusal. It is stored once a minute at the most, and only where there is something to keep from others:
    /// whoever makes up keys must not make rows.
    fn count_refusal<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        code: Code,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let mut one = Refusals { since: Some(now), ..Refusals::default() };
        if code == Code::Unauthorized {
            one.unauthorized = 1;
        } else if code == Code::Forbidden {
            one.forbidden = 1;
        } else if code == Code::LimitReached {
            one.limit_reached = 1;
        } else {
            return Ok(());
        }
        self.refused = self.refused.plus(one);
        let is_due = self.refusals_stored_at.is_none_or(|at| at.plus_millis(REFUSALS_STORED_MS) <= now);
        if is_due && self.catalog(rows)?.has_history() {
            self.refusals_stored_at = Some(now);
            let counted = std::mem::take(&mut self.refused);
            self.drive(rows, clock, "", Input::CountRefusals(counted))?;
        }
        Ok(())
    }

    /// Counts what is refused on its way out.
    fn counted<R: Rows, T>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        result: Result<T, Fault<R::Error>>,
    ) -> Result<T, Fault<R::Error>> {
        if let Err(Fault::Rejected(problem)) = &result {
            self.count_refusal(rows, clock, problem.code)?;
        }
        result
    }

    /// Tells whoever is behind. Says whether anybody is.
    fn tell(&mut self, now: Timestamp) -> bool {
        self.tell_at = Timestamp::default();
        self.tell_again(now)
    }

    /// The same for the alarm, which may be here for something else: whoever was told a moment ago is told later.
    fn tell_again(&mut self, now: Timestamp) -> bool {
        let is_leaving = self.ask_leaving(now);
        let Some(catalog) = &self.catalog else { return false };
        let (words, over) =
            (catalog.words(), catalog.over().take(DISTRUSTED_AT_ONCE).cloned().collect::<Vec<_>>());
        let untold = catalog.declared().untold();
        let (topics, queues) = (catalog.declared().untold_topics(), catalog.declared().untold_queues());
        let behind = Behind {
            words: words.len(),
            over: over.len(),
            schedules: untold.map(|(revision, _)| revision),
            topics: topics.len(),
            queues: queues.len(),
        };
        if behind == Behind::default() {
            (self.told, self.tell_at) = ((behind, 0), Timestamp::default());
            return is_leaving;
        }
        if self.tell_at > now {
            self.object.arm_by(now, self.tell_at);
            return true;
        }
        let untold = untold
            .map(|(revision, schedules)| Order::DeclareSchedules { revision, schedules: schedules.to_vec() });
        self.told = if self.told.0 == behind { (behind, self.told.1.saturating_add(1)) } else { (behind, 0) };
        // Whoever has to forget a key is asked often; what a station does not take, it will hardly take a second later.
        let is_urgent = behind.words > 0 || behind.over > 0;
        let most = if is_urgent { TELL_URGENT_MS_MAX } else { TELL_AGAIN_MS_MAX };
        let pause_ms = (TELL_AGAIN_MS << self.told.1.min(16)).min(most);
        if !queues.is_empty() {
            self.object.order(Order::DeclareHandlers(queues));
        }
        if !topics.is_empty() {
            self.object.order(Order::DeclareTriggers(topics));
        }
        if let Some(declare) = untold {
            self.object.order(declare);
        }
        if !words.is_empty() {
            self.object.order(Order::Tell(words));
        }
        if !over.is_empty() {
            self.object.order(Order::Distrust(over));
        }
        self.tell_at = now.plus_millis(pause_ms);
        self.object.arm_by(now, self.tell_at);
        true
    }
}
