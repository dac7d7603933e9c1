//! Starts that do not each become a run: of those with the same key, one is skipped, replaces the run of before, or
//! becomes part of it ([`StartRule`]).
//!
//! All of them come to one cell, as those with an idempotency key do, and it finds their run by a row of its own. So what
//! becomes of a start is decided and stored at once. A start of the engine's own that has become part of a run is known by
//! its key for [`INVOCATION_KEPT_MS`], whatever becomes of the run; one of a client at most for as long as its run is kept.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Place, Problem, RunId, Timestamp,
    lane::{Flow, StartRule},
    rest::{Act, Deed},
};

use super::{
    Cell, JoinedRun, KeyRow, NewRun, Rows, Started, StartedAs, StoredKey, drive::no_such_run,
    keys::reused_key,
};
use crate::{
    lane::key_of,
    object::{Fault, Receipt},
    run::{
        Admitted, GatheredBy, Gathering, INVOCATION_KEPT_MS, InLane, Input, Joined, KnownJoin, Phase, Run,
    },
};

/// Where a start meets the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joins {
    /// By what their run is found.
    pub key: String,
    /// Where they meet from now on, if they do not meet here any more and have no run here that they could join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Place>,
    /// Whether it is only asked what has become of this start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
}

/// By what the run of those starts is found that this one may become one run with; nothing, if each start of the workflow
/// is a run.
pub fn joins_by(workflow: &str, flow: Option<&Flow>, input: &stepwell_protocol::Payload) -> Option<String> {
    let rule = flow?.starts.as_ref()?;
    let key = rule.key().map(|key| key_of(key, input)).unwrap_or_default();
    Some(format!("\njoin\n{workflow}\n{key}"))
}

impl Cell {
    /// Decides what becomes of a start that its key has not brought here before.
    pub(super) fn join_or_begin<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        mut new: NewRun,
        joins: Joins,
    ) -> Result<Started, Fault<R::Error>> {
        if let Some(run) = self.joined_before(rows, new.key.as_ref())? {
            return Ok(Started { run, how: StartedAs::Joined });
        }
        if joins.asks {
            return Err(joins.to.map_or_else(no_such_run, Fault::Moved));
        }
        let Some(rule) = new.flow.as_ref().and_then(|flow| flow.starts.clone()) else {
            return self.begin(rows, now, new, None);
        };
        let before = self.met(rows, &joins.key)?;
        if let Some(run) = &before
            && run.gathering.as_ref().is_some_and(|gathering| gathering.knows(&new.suffix))
        {
            let is_leading = matches!(rule, StartRule::Debounce { leading: true, .. });
            let how = if is_leading { StartedAs::Skipped } else { StartedAs::Joined };
            return Ok(Started { run: run.clone(), how });
        }
        let last = before.as_ref().and_then(|run| run.gathering.clone());
        if let Some(run) = before {
            let gathered = || rows.input(run.id.number).map_err(Fault::Storage);
            match run.admits(&rule, now, (&new.input, &new.suffix), gathered)? {
                Admitted::Begins => {}
                Admitted::Replaces => {
                    if joins.to.is_none() {
                        self.check_room(rows, new.input.size(), "new runs")?;
                    }
                    let act = Act { at: now, by: "singleton".into(), what: Deed::Cancel };
                    self.drive_run(rows, now, run.into(), Some(act), |_| Input::Cancel)?;
                    self.dispatch(rows, now);
                }
                Admitted::Skipped(joined) => {
                    if joined.is_none() {
                        // This instance may have been superseded, and that run have ended: only a write says that it has not.
                        self.object.arm_anew(now);
                    }
                    let run = self.take(rows, now, run, joined)?;
                    return Ok(Started { run, how: StartedAs::Skipped });
                }
                Admitted::Joins(mut joined) => {
                    self.check_room(rows, new.input.size(), "new runs")?;
                    let until = now.plus_millis(INVOCATION_KEPT_MS);
                    joined.known =
                        new.key.map(|KeyRow { key, fingerprint }| KnownJoin { key, fingerprint, until });
                    if joined.known.is_some() {
                        self.object.arm_by(now, until);
                    }
                    if matches!(rule, StartRule::Debounce { .. }) {
                        joined.lane = new.flow.as_deref().and_then(|flow| InLane::new(flow, &new.input));
                    }
                    let run = self.take(rows, now, run, Some(joined))?;
                    return Ok(Started { run, how: StartedAs::Joined });
                }
            }
        }
        if let Some(to) = joins.to {
            rows.reserve(&joins.key, &to).map_err(Fault::Storage)?;
            return Err(Fault::Moved(to));
        }
        let known_by = (joins.key, new.suffix.clone());
        let (gathering, begins_at) = Gathering::new(&rule, now, known_by, last.as_deref());
        new.starts_at = new.starts_at.max(begins_at);
        self.begin(rows, now, new, Some(Box::new(gathering)))
    }

    /// The run that starts find by a key here.
    fn met<R: Rows>(&self, rows: &R, key: &str) -> Result<Option<Run>, Fault<R::Error>> {
        let number = match rows.key(key).map_err(Fault::Storage)? {
            Some(StoredKey::Moved(place)) => return Err(Fault::Moved(place)),
            Some(StoredKey::Run(run)) => run.number,
            None | Some(StoredKey::GivenUp) => return Ok(None),
        };
        match self.kept(rows, number) {
            // One that cannot be read keeps no other from being started.
            Err(Fault::Rejected(problem)) if problem.code == Code::RunUnreadable => Ok(None),
            found => found,
        }
    }

    /// The run that a start with this key has become part of here.
    fn joined_before<R: Rows>(&self, rows: &R, key: Option<&KeyRow>) -> Result<Option<Run>, Fault<R::Error>> {
        let Some(key) = key else { return Ok(None) };
        let Some(JoinedRun { number, fingerprint, .. }) = rows.joined(&key.key).map_err(Fault::Storage)?
        else {
            return Ok(None);
        };
        let Some(run) = self.kept(rows, number)? else { return Ok(None) };
        if fingerprint != key.fingerprint {
            return Err(reused_key().into());
        }
        Ok(Some(run))
    }

    /// The answer to a start of the engine's own that has become part of a run here.
    pub(super) fn known_join<R: Rows>(
        rows: &R,
        place: &Place,
        key: &str,
    ) -> Result<Option<Receipt>, Fault<R::Error>> {
        let known = rows.joined(key).map_err(Fault::Storage)?;
        Ok(known.map(|JoinedRun { number, suffix, .. }| Receipt::Joined {
            run: RunId { place: place.clone(), number, suffix },
        }))
    }

    /// A run takes a start, or hears of one that was skipped.
    fn take<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        run: Run,
        joined: Option<Box<Joined>>,
    ) -> Result<Run, Fault<R::Error>> {
        let Some(joined) = joined else { return Ok(run) };
        let number = run.id.number;
        self.drive_run(rows, now, run.into(), None, |slot| Input::Join { joined, slot })?;
        let run = Rc::unwrap_or_clone(self.run(rows, number)?);
        self.dispatch(rows, now);
        Ok(run)
    }
}

impl Cell {
    /// Refuses to let a run live again beside another one with the same key, of which there should be one.
    pub(super) fn check_alone<R: Rows>(&self, rows: &R, run: &Run) -> Result<(), Fault<R::Error>> {
        let Some(gathering) = run.gathering.as_ref().filter(|known| known.by == GatheredBy::Singleton) else {
            return Ok(());
        };
        match self.met(rows, &gathering.key) {
            Ok(Some(other)) if other.id != run.id && !matches!(other.phase, Phase::Ended { .. }) => {
                let detail = format!(
                    "The workflow '{}' has one run at a time, and there is run {}. Cancel it, or wait for its end.",
                    run.workflow, other.id
                );
                Err(Problem::new(Code::WrongStatus, detail).into())
            }
            Ok(_) | Err(Fault::Moved(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

/// What somebody is told whose start was skipped, and who is not answered with the run that there is.
pub(super) fn skipped(run: &Run) -> Problem {
    let detail = format!(
        "The workflow '{}' does not start another run now: there is run {}, and starts with the same key are skipped.",
        run.workflow, run.id
    );
    Problem::new(Code::StartSkipped, detail)
}
