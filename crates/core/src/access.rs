//! Whether somebody may do something. Cells and the catalog ask the same questions, so they ask them here.
//!
//! Owns: what a caller brings, what a route needs, what a key grants, and how much of it a second.
//! Does not own: which keys there are ([`crate::catalog`]).

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Problem, Timestamp,
    access::{Limits, Permission, RunSettings, Scope},
};

use crate::ordered::{OrdMap, OrdSet};

/// How much of a rate may be used at once.
const BURST_MS: u64 = 2_000;

/// Who acts with the deployment's own key, through a binding, or as Stepwell itself.
pub const ROOT: &str = "root";

/// Who has declared something, if nobody has asked for it: the app, whose manifest Stepwell has read by itself.
pub const APP: &str = "app";

/// What a caller has brought: a key's id, and a hash of all of its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// By what the key is known.
    pub id: String,
    /// SHA-256 of its text, in hexadecimal digits.
    pub hash: String,
}

impl Credential {
    /// Whether a stored hash is that of this credential, in a time that does not depend on where they differ.
    pub fn is_of(&self, hash: &str) -> bool {
        let different = self.hash.bytes().zip(hash.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        self.hash.len() == hash.len() && different == 0
    }
}

/// What a request takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// To be allowed this.
    pub scope: Scope,
    /// About this.
    pub about: About,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// All of a namespace.
    Whole,
    /// Those runs of a namespace that the caller may see.
    Visible,
    /// One run, whose workflow its cell knows.
    Run,
    /// One workflow.
    Workflow(String),
}

/// What somebody may do, and within which limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Who it is, for the audit log.
    pub actor: String,
    /// What is allowed.
    pub scopes: Vec<Permission>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The limits.
    #[serde(default)]
    pub limits: Limits,
    /// What holds for runs whose workflow says nothing about it.
    #[serde(default)]
    pub runs: RunSettings,
    /// What holds for runs of single workflows.
    #[serde(default)]
    pub workflows: OrdMap<String, RunSettings>,
}

impl Grant {
    /// Refuses what is not granted. About a run, this is only the first half: its workflow is looked at with
    /// [`Self::check_run`] when it is known.
    pub fn check(&self, now: Timestamp, need: &Need) -> Result<(), Problem> {
        if self.is_over(now) {
            return Err(not_good());
        }
        let is_allowed = match &need.about {
            About::Whole => self.allows(need.scope, None),
            About::Visible | About::Run => self.scopes.iter().any(|granted| granted.scope >= need.scope),
            About::Workflow(workflow) => self.allows(need.scope, Some(workflow)),
        };
        if is_allowed { Ok(()) } else { Err(forbidden(need.scope)) }
    }

    /// Refuses a run of a workflow that is not granted. A run that may not even be seen is one that is not there.
    pub fn check_run(&self, scope: Scope, workflow: &str) -> Result<(), Option<Problem>> {
        if self.allows(scope, Some(workflow)) {
            return Ok(());
        }
        Err(self.allows(Scope::Read, Some(workflow)).then(|| forbidden(scope)))
    }

    /// Whether this is granted, for one workflow or for all.
    pub fn allows(&self, scope: Scope, workflow: Option<&str>) -> bool {
        self.scopes.iter().any(|granted| {
            granted.scope >= scope
                && match &granted.workflow {
                    None => true,
                    Some(only) => workflow == Some(only),
                }
        })
    }

    /// Whether all runs may be seen.
    pub fn sees_all(&self) -> bool {
        self.allows(Scope::Read, None)
    }

    /// The workflows whose runs may be seen; nothing, if all may be.
    pub fn seen_workflows(&self) -> Option<OrdSet<String>> {
        (!self.sees_all())
            .then(|| self.scopes.iter().filter_map(|granted| granted.workflow.clone()).collect())
    }

    /// Whether its time is over.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }

    /// Refuses a payload that is larger than what is set for a workflow.
    pub fn check_payload(&self, workflow: Option<&str>, bytes: usize) -> Option<Problem> {
        let most = self.payload_bytes_max(workflow).filter(|most| bytes > *most as usize)?;
        let detail = format!("The payload has {bytes} bytes; the limit set here is {most}.");
        Some(Problem::new(Code::PayloadTooLarge, detail))
    }

    /// The largest payload for a workflow.
    pub fn payload_bytes_max(&self, workflow: Option<&str>) -> Option<u32> {
        let own = workflow.and_then(|name| self.workflows.get(name)).and_then(|own| own.payload_bytes_max);
        let general = own.or(self.runs.payload_bytes_max);
        // Whatever the namespace sets for itself, it stays within its limits.
        [general, self.limits.payload_bytes_max].into_iter().flatten().min()
    }
}

/// What holds in a namespace for runs that no caller starts: those that other runs invoke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// What the engine itself is granted there: limits and settings are those of every caller.
    pub grant: Grant,
    /// The workflows that are paused.
    pub paused: OrdSet<String>,
    /// As of which version of the catalog: a cell that has heard of a later one asks again.
    pub version: u64,
}

/// The answer to a key that is not good, whatever the reason: whoever tries keys learns nothing from it.
pub fn not_good() -> Problem {
    let detail = "The key is invalid: it does not exist, was revoked or has expired. Send a valid key as \
                  `Authorization: Bearer <key>`.";
    Problem::new(Code::Unauthorized, detail)
}

/// The answer to a key that does not allow something.
pub fn forbidden(scope: Scope) -> Problem {
    let detail = format!("This needs a key with the scope `{}`.", scope.as_str());
    Problem::new(Code::Forbidden, detail)
}

/// How much of a rate is used: the time at which all that was taken is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    paid_at_us: u64,
}

impl Bucket {
    /// Takes so much of a rate a second; or says after how many seconds it is worth trying again.
    pub fn take(&mut self, now: Timestamp, per_second: u64, amount: u64) -> Result<(), u32> {
        self.take_of(now, per_second, BURST_MS, amount)
    }

    /// The same, where as much may be taken at once as the rate gives in some time.
    pub fn take_of(
        &mut self,
        now: Timestamp,
        per_second: u64,
        burst_ms: u64,
        amount: u64,
    ) -> Result<(), u32> {
        let now_us = now.as_millis() * 1_000;
        let owed_us = self.paid_at_us.saturating_sub(now_us);
        if owed_us > burst_ms * 1_000 || per_second == 0 {
            let seconds = owed_us.saturating_sub(burst_ms * 1_000).div_ceil(1_000_000);
            return Err(u32::try_from(seconds).unwrap_or(u32::MAX).max(1));
        }
        let cost_us = amount.saturating_mul(1_000_000).div_ceil(per_second);
        self.paid_at_us = (now_us + owed_us).saturating_add(cost_us);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    fn grant(scopes: &[&str]) -> Grant {
        Grant {
            actor: "key:00000000".into(),
            scopes: scopes.iter().map(|scope| scope.parse().expect("a scope")).collect(),
            expires_at: None,
            limits: Limits::default(),
            runs: RunSettings::default(),
            workflows: OrdMap::new(),
        }
    }

    fn need(scope: Scope, about: About) -> Need {
        Need { scope, about }
    }

    fn code(result: Result<(), Problem>) -> Option<Code> {
        result.err().map(|problem| problem.code)
    }

    #[test]
    fn a_scope_includes_the_smaller_ones_and_not_the_larger_ones() {
        let write = grant(&["write"]);
        assert_eq!(code(write.check(at(0), &need(Scope::Read, About::Whole))), None);
        assert_eq!(code(write.check(at(0), &need(Scope::Write, About::Run))), None);
        assert_eq!(code(write.check(at(0), &need(Scope::Admin, About::Whole))), Some(Code::Forbidden));
    }

    #[test]
    fn a_scope_of_one_workflow_is_good_for_no_other_and_not_for_the_whole() {
        let one = grant(&["write:greet"]);
        let about = |name: &str| need(Scope::Write, About::Workflow(name.into()));
        assert_eq!(code(one.check(at(0), &about("greet"))), None);
        assert_eq!(code(one.check(at(0), &about("other"))), Some(Code::Forbidden));
        assert_eq!(code(one.check(at(0), &need(Scope::Read, About::Whole))), Some(Code::Forbidden));
        assert_eq!(code(one.check(at(0), &need(Scope::Read, About::Visible))), None);
        assert!(!one.sees_all());
        assert_eq!(one.seen_workflows(), Some(OrdSet::from(["greet".to_owned()])));
        assert_eq!(grant(&["write:greet", "read"]).seen_workflows(), None);
    }

    #[test]
    fn a_run_that_may_not_be_seen_is_not_there_and_one_that_may_not_be_changed_is_forbidden() {
        let some = grant(&["read:greet", "write:other"]);
        assert!(some.check_run(Scope::Write, "other").is_ok());
        assert!(some.check_run(Scope::Read, "greet").is_ok());
        let changed = some.check_run(Scope::Write, "greet");
        assert_eq!(
            changed.map_err(|problem| problem.map(|problem| problem.code)),
            Err(Some(Code::Forbidden))
        );
        assert_eq!(some.check_run(Scope::Read, "third"), Err(None));
    }

    #[test]
    fn a_grant_ends_at_its_time() {
        let ends = Grant { expires_at: Some(at(10)), ..grant(&["admin"]) };
        assert_eq!(code(ends.check(at(9), &need(Scope::Read, About::Whole))), None);
        assert_eq!(code(ends.check(at(10), &need(Scope::Read, About::Whole))), Some(Code::Unauthorized));
    }

    #[test]
    fn a_credential_is_only_that_of_its_own_hash() {
        let credential = Credential { id: "a".into(), hash: "0011".into() };
        assert!(credential.is_of("0011"));
        for other in ["0010", "1011", "001", "00110", ""] {
            assert!(!credential.is_of(other), "{other}");
        }
    }

    #[test]
    fn a_namespace_cannot_raise_its_own_limit_of_a_payload() {
        let mut grant = grant(&["admin"]);
        grant.limits.payload_bytes_max = Some(100);
        grant.runs.payload_bytes_max = Some(50);
        grant
            .workflows
            .insert("large".into(), RunSettings { payload_bytes_max: Some(1_000), ..RunSettings::default() });
        assert_eq!(grant.payload_bytes_max(None), Some(50));
        assert_eq!(grant.payload_bytes_max(Some("large")), Some(100));
    }

    #[test]
    fn a_burst_is_let_through_and_then_the_rate_holds() {
        let mut bucket = Bucket::default();
        let taken = (0..100).filter(|_| bucket.take(at(0), 10, 1).is_ok()).count();
        assert_eq!(taken, 21, "two seconds of it at once");
        assert_eq!(bucket.take(at(0), 10, 1), Err(1));
        assert_eq!(bucket.take(at(150), 10, 1), Ok(()));
        assert_eq!(Bucket::default().take(at(0), 0, 1), Err(1), "nothing is nothing");
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_is_let_through_than_the_rate_and_its_burst(
            rate in 1_u64..500, pauses in prop::collection::vec(0_u64..200, 1..400),
        ) {
            let (mut bucket, mut now, mut taken) = (Bucket::default(), 0, 0);
            for pause in pauses {
                now += pause;
                if bucket.take(at(now), rate, 1).is_ok() {
                    taken += 1;
                }
            }
            prop_assert!(taken <= (now + BURST_MS) * rate / 1_000 + 1, "{taken} in {now} ms at {rate}/s");
        }
    }
}
