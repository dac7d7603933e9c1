//! Who may ask this cell for something: keys that its namespace's catalog has confirmed, and how much they may ask. The
//! same limits and settings hold for children, whose starts no caller asks for.
//!
//! Owns: the memory of confirmed keys and of the namespace's rules, and the cell's share of its limits. All of it is gone
//! with the instance, and then asked for again.
//!
//! Invariant: nothing that was confirmed before the latest version that this cell has heard of is remembered.

use std::rc::Rc;

use stepwell_protocol::{
    Code, LimitName, Problem, Timestamp,
    access::{Limits, RunSettings},
};

use super::{Cell, Rows};
use crate::{
    access::{Bucket, Credential, Grant, Need, Rules},
    catalog::Confirmation,
    object::{Fault, Hosted as _},
    ordered::OrdMap,
    pools::Pool,
};

/// A start that no caller asks for: a child's, or a tick's.
pub(super) struct Unasked<'a> {
    pub workflow: &'a str,
    pub bytes: usize,
    pub timeout_ms: Option<u64>,
    pub retention_ms: Option<u64>,
    /// Whether the retention is what the deployment says of all runs.
    pub retention_is_default: bool,
}

/// How many keys a cell remembers; the catalog is asked about others again.
pub const REMEMBERED_MAX: usize = 1_000;

/// How long a key is remembered at the most, should the catalog ever forget to tell of a change.
pub const REMEMBERED_MS: u64 = 900_000;

/// How many milliseconds a run may take, and for how many it is kept after its end; nothing if there is no limit.
pub type Spans = (Option<u64>, Option<u64>);

/// What a cell knows of its callers.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    remembered: OrdMap<String, Remembered>,
    /// What holds for children, and until when that is remembered.
    rules: Option<(Rules, Timestamp)>,
    /// The latest version of the catalog that this cell has heard of.
    heard: u64,
    /// What keys have asked for, and runs that no caller starts.
    keyed: Spending,
    /// What links have asked for. Anyone may hold one, so they use up nothing of what is for keys.
    linked: Spending,
}

/// How much of the limits is used.
#[derive(Clone, Debug, Default)]
struct Spending {
    requests: Bucket,
    bytes: Bucket,
}

#[derive(Clone, Debug)]
struct Remembered {
    hash: String,
    grant: Rc<Grant>,
    until: Timestamp,
}

/// What a cell says about a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The caller may.
    Granted(Rc<Grant>),
    /// The catalog has to be asked first.
    Unknown,
}

impl Cell {
    /// Whether a caller may do something, if its key is remembered. Counts the request and its bytes.
    pub fn admit(
        &mut self,
        clock: Timestamp,
        brought: &Credential,
        need: &Need,
        bytes: u64,
        shares: u32,
    ) -> Result<Admission, Problem> {
        let now = self.now(clock);
        let known = self.gate.remembered.get(&brought.id);
        // Another hash may be another key's that got the same id: not for this cell to tell.
        let Some(known) = known.filter(|known| brought.is_of(&known.hash) && now < known.until) else {
            return Ok(Admission::Unknown);
        };
        let grant = known.grant.clone();
        // What is refused counts too: it has come this far.
        if let Err(problem) = self.gate.keyed.take(now, &grant.limits, bytes, shares) {
            self.count_refusal();
            return Err(problem);
        }
        grant.check(now, need)?;
        Ok(Admission::Granted(grant))
    }

    /// Remembers what the catalog has confirmed. Says whether that still holds; if not, it has to be asked again.
    pub fn remember_key(&mut self, clock: Timestamp, brought: &Credential, confirmed: Confirmation) -> bool {
        let now = self.now(clock);
        if confirmed.version < self.gate.heard {
            return false;
        }
        if self.gate.remembered.len() >= REMEMBERED_MAX {
            self.gate.remembered.pop_first();
        }
        let Credential { id, hash } = brought.clone();
        // A session that is used lasts longer by then: the catalog is asked again, and knows.
        let until = now.plus_millis(REMEMBERED_MS);
        let until = confirmed.grant.expires_at.map_or(until, |end| end.min(until));
        self.gate.remembered.insert(id, Remembered { hash, grant: Rc::new(confirmed.grant), until });
        true
    }

    /// Forgets what does not hold any more as of this version of the catalog: these keys and sessions, or all of them.
    ///
    /// The catalog names ids only if this cell has answered for all versions before those that it names. What it
    /// remembers then is true as of that answer, even if an instance before this one gave it: a confirmation that was
    /// under way has died with that instance.
    pub fn forget_keys(&mut self, version: u64, ids: Option<&[String]>) {
        // They may have changed with any version, and one question tells.
        self.gate.rules.take_if(|(rules, _)| rules.version < version);
        match ids {
            Some(ids) => {
                self.gate.remembered.retain(|id, _| !ids.contains(id));
                self.gate.heard = self.gate.heard.max(version);
            }
            None if version > self.gate.heard => {
                self.gate.heard = version;
                self.gate.remembered.clear();
            }
            None => {}
        }
    }

    /// Whether the catalog has to be asked what holds for children before the next one is started.
    pub fn wants_rules(&mut self, clock: Timestamp) -> bool {
        let now = self.now(clock);
        self.gate.rules.as_ref().is_none_or(|(_, until)| *until <= now)
    }

    /// Remembers what the catalog says of children, unless this cell has heard of something later.
    pub fn remember_rules(&mut self, clock: Timestamp, rules: Rules) {
        let now = self.now(clock);
        if rules.version >= self.gate.heard {
            self.gate.rules = Some((rules, now.plus_millis(REMEMBERED_MS)));
        }
    }

    /// Refuses a run that no caller asks for where a start by a caller would be refused, and counts it like one. Gives how
    /// long it may take and how long it is kept. A cell that was told of no rules has none to obey.
    pub(super) fn admit_unasked<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        unasked: &Unasked<'_>,
    ) -> Result<Spans, Fault<R::Error>> {
        let Unasked { workflow, bytes, timeout_ms, retention_ms, retention_is_default } = *unasked;
        let Some((rules, until)) = self.gate.rules.take() else { return Ok((timeout_ms, retention_ms)) };
        let checked = self.check_rules(rows, now, &rules, workflow, bytes);
        let spans = settled(&rules.grant, workflow, timeout_ms, retention_ms, retention_is_default);
        self.gate.rules = Some((rules, until));
        checked.map(|()| spans)
    }

    /// Counts a request that comes with a link, and refuses what is too large for a payload of its run: no key says what
    /// holds for it, so what holds for runs that no caller starts does. Links have as much as keys have, apart from them.
    pub fn admit_link(
        &mut self,
        clock: Timestamp,
        workflow: Option<&str>,
        bytes: usize,
    ) -> Result<(), Problem> {
        let now = self.now(clock);
        let shares = self.pool.as_ref().map_or(1, Pool::cells_of_latest);
        let Some((rules, until)) = self.gate.rules.take() else { return Ok(()) };
        let checked = match rules.grant.check_payload(workflow, bytes) {
            Some(problem) => Err(problem),
            None => self.gate.linked.take(now, &rules.grant.limits, bytes as u64, shares),
        };
        self.gate.rules = Some((rules, until));
        if checked.as_ref().is_err_and(|problem| problem.code == Code::LimitReached) {
            self.count_refusal();
        }
        checked
    }

    fn check_rules<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        Rules { grant, paused, .. }: &Rules,
        workflow: &str,
        bytes: usize,
    ) -> Result<(), Fault<R::Error>> {
        let shares = self.pool.as_ref().map_or(1, Pool::cells_of_latest);
        if paused.contains(workflow) {
            let detail = format!("The workflow '{workflow}' is paused: the run waits until it is resumed.");
            return Err(Problem::new(Code::WorkflowPaused, detail).into());
        }
        if let Some(problem) = grant.check_payload(Some(workflow), bytes) {
            return Err(problem.into());
        }
        if let Some(problem) = self.check_live(rows, &grant.limits, shares)? {
            return Err(problem.into());
        }
        // The last, since a child that is declined comes again and again.
        self.gate.keyed.take(now, &grant.limits, bytes as u64, shares)?;
        Ok(())
    }

    /// Refuses a new run if its namespace has as many as it may. The cell keeps count; a fresh instance counts a slice
    /// of its rows with each request until it knows, and takes what it has counted for all until then.
    pub fn check_live<R: Rows>(
        &mut self,
        rows: &R,
        limits: &Limits,
        shares: u32,
    ) -> Result<Option<Problem>, Fault<R::Error>> {
        let Some(limit) = limits.live_runs.map(|limit| share(limit, shares)) else { return Ok(None) };
        if self.count(rows)?.live() < limit {
            return Ok(None);
        }
        self.count_refusal();
        let detail = format!(
            "The namespace may have {} runs that have not ended, and this cell's share of them is used.",
            limits.live_runs.unwrap_or_default()
        );
        Ok(Some(Problem::new(Code::LimitReached, detail).of_limit(LimitName::LiveRuns).after(1)))
    }
}

impl Spending {
    fn take(&mut self, now: Timestamp, limits: &Limits, bytes: u64, shares: u32) -> Result<(), Problem> {
        let reached = |what: &str, name: LimitName, limit: u32, seconds: u32| {
            let detail =
                format!("The namespace may have {limit} {what} a second, and this cell's share is used.");
            Problem::new(Code::LimitReached, detail).of_limit(name).after(seconds)
        };
        if let Some(limit) = limits.requests_per_second {
            let taken = self.requests.take(now, share(limit, shares), 1);
            taken.map_err(|seconds| reached("requests", LimitName::RequestsPerSecond, limit, seconds))?;
        }
        if let Some(limit) = limits.payload_bytes_per_second.filter(|_| bytes > 0) {
            let taken = self.bytes.take(now, share(limit, shares), bytes);
            taken.map_err(|seconds| {
                reached("bytes of payloads", LimitName::PayloadBytesPerSecond, limit, seconds)
            })?;
        }
        Ok(())
    }
}

/// A cell's part of a limit, rounded up: a small limit must not become none.
fn share(limit: u32, shares: u32) -> u64 {
    u64::from(limit.div_ceil(shares.max(1)))
}

/// What holds for a run of a workflow, where the code, the deployment and the namespace may each say something.
pub fn settled(
    grant: &Grant,
    workflow: &str,
    timeout_ms: Option<u64>,
    retention_ms: Option<u64>,
    retention_is_default: bool,
) -> Spans {
    let own = grant.workflows.get(workflow).copied().unwrap_or_default();
    let RunSettings { timeout_ms: general_timeout, retention_ms: general_retention, .. } = grant.runs;
    let timeout_ms = own.timeout_ms.or(timeout_ms).or(general_timeout);
    let kept = |ms: u64| (ms > 0).then_some(ms);
    let retention_ms = match (own.retention_ms, general_retention) {
        (Some(own), _) => kept(own),
        (None, Some(general)) if retention_is_default => kept(general),
        (None, Some(_) | None) => retention_ms,
    };
    (timeout_ms, retention_ms)
}
