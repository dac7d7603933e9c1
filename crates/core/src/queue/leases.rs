//! How leases end: a job is done, has failed, is extended, or its consumer was not heard of.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Timestamp,
    queue::{DeadCode, Death, Lease, LeaseResult, LeaseStatus, QueueSettings},
};

use super::{
    Change, Found, Hold, MOVED_BYTES_MAX, Queue, Row, Rows, SLICE,
    drive::{Known, round},
};
use crate::{
    object::Fault,
    ordered::{OrdMap, OrdSet},
};

/// How long a job waits after its first failed attempt, unless its consumer says it.
const BACKOFF_MS: u64 = 1_000;

/// How long it waits at the most.
const BACKOFF_MS_MAX: u64 = 900_000;

/// What a consumer says of jobs that it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// They are done.
    Ack,
    /// They are not.
    Nack {
        /// For how long nobody gets them.
        delay_ms: Option<u64>,
        /// Why.
        reason: Option<String>,
        /// Whether they become dead letters at once.
        dead: bool,
    },
    /// It is still at work.
    Extend {
        /// How long it needs from now on; the queue's own time if it is not said.
        visibility_ms: Option<u64>,
    },
}

/// How long a job waits after an attempt has failed, unless its consumer says it.
pub fn backoff_ms(attempt: u32) -> u64 {
    (BACKOFF_MS << attempt.saturating_sub(1).min(20)).min(BACKOFF_MS_MAX)
}

/// What is told of a lease whose time or job is over.
const LOST: (LeaseStatus, Option<Timestamp>) = (LeaseStatus::Lost, None);

impl Queue {
    /// Ends leases, or extends them. Each is answered by itself.
    pub fn end<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        leases: &[Lease],
        end: &End,
    ) -> Result<Vec<LeaseResult>, Fault<R::Error>> {
        let ended = self.try_end(rows, clock, settings, leases, end);
        self.settle(ended)
    }

    fn try_end<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        leases: &[Lease],
        end: &End,
    ) -> Result<Vec<LeaseResult>, Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        let mut ending = Ending::default();
        let mut told: OrdMap<&Lease, (LeaseStatus, Option<Timestamp>)> = OrdMap::new();
        for lease in leases {
            // The same one twice in a request is one.
            if told.contains_key(&lease) {
                continue;
            }
            told.insert(lease, known.end_one(rows, now, lease, end, &mut ending)?);
        }
        let (changes, ready) = ending.finish(known);
        if changes.is_empty() {
            // This instance may have been superseded: only a write says that it has not.
            self.object.arm_anew(now);
        }
        self.commit(rows, now, &changes)?;
        self.wake(rows, now, ready);
        let results = leases.iter().map(|lease| {
            let (status, until) = told.get(&lease).copied().unwrap_or(LOST);
            LeaseResult { id: lease.job.clone(), status, until }
        });
        Ok(results.collect())
    }

    /// Gives back the jobs whose leases are over.
    pub(super) fn reap<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let reaped = self.try_reap(rows, now);
        self.settle(reaped)
    }

    fn try_reap<R: Rows>(&mut self, rows: &R, now: Timestamp) -> Result<(), Fault<R::Error>> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let mut ending = Ending::default();
        for _ in 0..SLICE {
            if ending.bytes >= MOVED_BYTES_MAX {
                break;
            }
            let Some(&(_, job)) = known.ends.first().filter(|(until, _)| *until <= now) else { break };
            let end = End::Nack { delay_ms: Some(0), reason: None, dead: false };
            if let Some((nonce, hold)) = known.let_go(job) {
                known.fail(rows, now, &nonce, hold, &end, &mut ending)?;
            }
        }
        let (changes, ready) = ending.finish(known);
        if changes.is_empty() {
            return Ok(());
        }
        self.commit(rows, now, &changes)?;
        self.wake(rows, now, ready);
        Ok(())
    }
}

/// What the ends of leases change.
#[derive(Default)]
struct Ending {
    changes: Vec<Change>,
    /// The claims whose rows have to be written.
    nonces: OrdSet<String>,
    /// How many bytes of bodies are moved.
    bytes: usize,
    /// How many jobs can be claimed at once.
    ready: usize,
}

impl Ending {
    fn finish(mut self, known: &mut Known) -> (Vec<Change>, usize) {
        self.changes.extend(self.nonces.iter().map(|nonce| known.store_lease(nonce)));
        self.changes.extend(known.store_due_head());
        (self.changes, self.ready)
    }
}

impl Known {
    fn end_one<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        lease: &Lease,
        end: &End,
        ending: &mut Ending,
    ) -> Result<(LeaseStatus, Option<Timestamp>), Fault<R::Error>> {
        let number = lease.job.number;
        if lease.job.made != self.head.settings.made_at || number > self.head.counts.last {
            return Ok(LOST);
        }
        let holds = self.leases.get(&lease.nonce);
        let hold = holds.and_then(|holds| holds.get(&number)).copied();
        let Some(hold) = hold.filter(|hold| hold.attempt == lease.attempt) else {
            return match end {
                // A job that is gone is done: so an ack whose answer was lost can be repeated at any time.
                End::Ack if rows.job(number).map_err(Fault::Storage)?.is_none() => {
                    Ok((LeaseStatus::Done, None))
                }
                End::Ack | End::Nack { .. } | End::Extend { .. } => Ok(LOST),
            };
        };
        let moves = matches!(end, End::Nack { .. }) && hold.is_plain;
        if moves && ending.bytes >= MOVED_BYTES_MAX {
            // The bodies of one request could be 190 MB. The rest is for another one.
            return Ok((LeaseStatus::Failed, None));
        }
        match end {
            End::Extend { visibility_ms } => {
                let wanted = now.plus_millis(visibility_ms.unwrap_or(self.head.settings.visibility_ms));
                if wanted > hold.until {
                    self.let_go(number);
                    self.hold(&lease.nonce, Hold { until: wanted, ..hold });
                    ending.nonces.insert(lease.nonce.clone());
                }
                Ok((LeaseStatus::Extended, Some(wanted.max(hold.until))))
            }
            End::Ack => {
                self.let_go(number);
                ending.nonces.insert(lease.nonce.clone());
                self.head.counts.alive = self.head.counts.alive.saturating_sub(1);
                ending.changes.push(Change::Remove { number, is_plain: hold.is_plain });
                if !hold.is_plain
                    && let Some(Found::Row(row)) = rows.job(number).map_err(Fault::Storage)?
                {
                    ending.ready += self.follow(rows, now, &row, &OrdSet::new(), &mut ending.changes)?;
                }
                Ok((LeaseStatus::Done, None))
            }
            End::Nack { .. } => {
                self.let_go(number);
                self.fail(rows, now, &lease.nonce, hold, end, ending)
            }
        }
    }

    /// An attempt has failed: its job is queued again, or dies.
    fn fail<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        nonce: &str,
        hold: Hold,
        end: &End,
        ending: &mut Ending,
    ) -> Result<(LeaseStatus, Option<Timestamp>), Fault<R::Error>> {
        ending.nonces.insert(nonce.to_owned());
        let number = hold.job;
        let mut row = match rows.job(number).map_err(Fault::Storage)? {
            Some(Found::Plain(plain)) => Row::of_plain(plain),
            Some(Found::Row(row)) => row,
            None => return Ok(LOST),
        };
        let (delay_ms, reason, dead) = match end {
            End::Nack { delay_ms, reason, dead } => (*delay_ms, reason.clone(), *dead),
            End::Ack | End::Extend { .. } => (None, None, false),
        };
        row.attempts = hold.attempt;
        row.since = self.number();
        let told = if dead || row.attempts >= self.head.settings.max_attempts {
            let code = if dead { DeadCode::Rejected } else { DeadCode::Attempts };
            self.die(now, &mut row, code, reason);
            ending.ready += self.follow(rows, now, &row, &OrdSet::new(), &mut ending.changes)?;
            (LeaseStatus::Dead, None)
        } else {
            row.due = now.plus_millis(delay_ms.unwrap_or_else(|| backoff_ms(hold.attempt)));
            row.is_in_line = true;
            ending.ready += usize::from(row.due <= now);
            self.lines_up(&row);
            self.will_age(round(row.due.plus_millis(self.head.settings.retention_ms)));
            (LeaseStatus::Queued, Some(row.due))
        };
        let row = Box::new(row);
        ending.bytes += if hold.is_plain { row.size } else { 0 };
        ending.changes.push(if hold.is_plain {
            Change::Demote { number, row }
        } else {
            Change::Update { number, row }
        });
        Ok(told)
    }

    /// A job becomes a dead letter.
    pub fn die(&mut self, now: Timestamp, row: &mut Row, code: DeadCode, reason: Option<String>) {
        (row.is_in_line, row.is_back) = (false, false);
        let at = self.dies_at(now);
        row.death = Some(Death { code, at, reason });
        self.head.counts.alive = self.head.counts.alive.saturating_sub(1);
        self.head.counts.dead += 1;
        self.will_age(round(now.plus_millis(self.head.settings.dead_retention_ms)));
    }

    /// A job that was the first of its group is so no more: the one behind it gets in line, unless that goes too. Says how
    /// many can be claimed at once.
    pub fn follow<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        row: &Row,
        gone: &OrdSet<u64>,
        changes: &mut Vec<Change>,
    ) -> Result<usize, Fault<R::Error>> {
        let Some(group) = &row.group else { return Ok(0) };
        let behind = rows.group(group, row.place, gone.len() + 1).map_err(Fault::Storage)?;
        let Some((number, next)) = behind.into_iter().find(|(number, _)| !gone.contains(number)) else {
            return Ok(0);
        };
        // It could not be claimed before: its time begins here.
        let next = Row { is_in_line: true, due: next.due.max(now), ..next };
        self.lines_up(&next);
        self.will_age(round(next.due.plus_millis(self.head.settings.retention_ms)));
        let is_ready = next.due <= now;
        changes.push(Change::Update { number, row: Box::new(next) });
        Ok(usize::from(is_ready))
    }
}

impl Row {
    /// The state of a job that had none.
    pub fn of_plain(plain: super::Plain) -> Self {
        Self {
            sent_at: plain.sent_at,
            size: plain.size,
            attempts: 0,
            priority: 0,
            group: None,
            place: plain.number,
            since: plain.number,
            due: plain.sent_at,
            is_in_line: false,
            to: None,
            is_back: false,
            death: None,
        }
    }
}
