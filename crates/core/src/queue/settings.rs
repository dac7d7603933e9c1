//! How a partition is made, what it hears of its queue's settings, and how a queue comes to its end.
//!
//! The first partition has the settings; the others hear of them, from it and from whoever asks them anything. A partition
//! goes by the latest ones that it has heard of.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Problem, Timestamp,
    queue::{
        ATTEMPTS_MAX, DEDUPE_MS_MAX, DELAY_MS_MAX, PARTITIONS_MAX, Push, QueueCounts, QueuePatch,
        QueueSettings, QueueState, RETENTION_MS_MIN, VISIBILITY_MS_MAX, VISIBILITY_MS_MIN, check_target,
    },
};

use super::{
    Counts, Deleting, Head, Queue, Rows,
    drive::{Known, round},
    push::check_push,
};
use crate::object::{Fault, Hosted as _};

/// The status of an answer to whoever goes by settings of a queue that was deleted since.
const STALE: u16 = 421;

/// What a partition answers that is told to take no more jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// How many jobs and dead letters it has.
    pub jobs: u64,
}

impl Queue {
    /// The queue's settings; nothing if there is no such partition.
    pub fn settings<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
    ) -> Result<Option<QueueSettings>, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        Ok(self.known.as_ref().map(|known| known.head.settings.clone()))
    }

    /// Makes the partition, unless it is there.
    pub fn make<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: QueueSettings,
    ) -> Result<QueueSettings, Fault<R::Error>> {
        let now = self.now(clock);
        let is_there = self.read(rows, now)?;
        // One that was left over when its queue was deleted begins anew.
        let is_left_over = self.known.as_ref().is_some_and(|Known { head, .. }| {
            head.settings.made_at != settings.made_at && head.counts.alive + head.counts.dead == 0
        });
        if is_there && !is_left_over {
            self.take_up(rows, now, &settings)?;
        } else {
            // Rows that are left over have older ones.
            let version = self.known.as_ref().map_or(0, |known| known.head.counts.version);
            let head = Head {
                settings,
                counts: Counts { version, ..Counts::default() },
                purging: None,
                redriving: None,
                deleting: None,
                heard: 0,
                told: (now, 0),
                failures: 0,
                left_alone_until: Timestamp::default(),
            };
            let mut known = Known::new(head);
            let change = known.store_head();
            self.known = Some(known);
            self.commit(rows, now, &[change])?;
        }
        Ok(self.known.as_ref().ok_or_else(stale)?.head.settings.clone())
    }

    /// Takes up settings that are later than those that are known. Refuses those of another making of the queue.
    pub(super) fn take_up<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        settings: &QueueSettings,
    ) -> Result<(), Fault<R::Error>> {
        let known = self.known.as_mut().ok_or_else(stale)?;
        if known.head.settings.made_at != settings.made_at {
            return Err(stale().into());
        }
        if known.head.settings.revision >= settings.revision {
            return Ok(());
        }
        let is_open = settings.state == QueueState::Active || settings.state == QueueState::Draining;
        if known.head.settings.push != settings.push {
            known.changes_consumer();
        }
        if known.head.settings.dead_to.is_none() {
            // It is told of those that die from now on.
            known.head.told = (now, 0);
        }
        known.tells.looks(now);
        known.head.settings = settings.clone();
        // A retention may be shorter.
        known.ages_at = Some(round(now));
        let change = known.store_head();
        self.commit(rows, now, &[change])?;
        if is_open {
            // Claims that wait look again: the queue may have been paused.
            self.wake(rows, now, super::WAITING_MAX);
        }
        Ok(())
    }

    /// The settings as they would be with a change. The first partition is asked.
    pub fn patched<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        patch: &QueuePatch,
        state: Option<QueueState>,
    ) -> Result<QueueSettings, Fault<R::Error>> {
        let before = self.settings(rows, clock)?.ok_or_else(no_queue)?;
        if before.state == QueueState::Deleting {
            return Err(closed(QueueState::Deleting).into());
        }
        if let Some(partitions) = patch.partitions.filter(|wanted| *wanted < before.partitions) {
            let detail = format!(
                "The queue has {} partitions and cannot have {partitions}: partitions are only ever added. Delete the queue \
                 and create it again to have fewer.",
                before.partitions
            );
            return Err(Problem::new(Code::InvalidRequest, detail).into());
        }
        if before.declared && patch.push.as_ref().is_some_and(|push| *push != before.push) {
            let detail = "The queue's handler is declared in code, with how it is called. Change it there, or pause the queue.";
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        let mut after = QueueSettings {
            state: state.unwrap_or(before.state),
            partitions: patch.partitions.unwrap_or(before.partitions),
            visibility_ms: patch.visibility_ms.unwrap_or(before.visibility_ms),
            max_attempts: patch.max_attempts.unwrap_or(before.max_attempts),
            retention_ms: patch.retention_ms.unwrap_or(before.retention_ms),
            dead_retention_ms: patch.dead_retention_ms.unwrap_or(before.dead_retention_ms),
            dedupe_ms: patch.dedupe_ms.unwrap_or(before.dedupe_ms),
            dead_to: patch.dead_to.clone().unwrap_or_else(|| before.dead_to.clone()),
            push: patch.push.clone().unwrap_or_else(|| before.push.clone()),
            ..before.clone()
        };
        if after != before {
            after.revision += 1;
        }
        Ok(after)
    }

    /// Makes a change to the settings. Gives those that hold.
    pub fn configure<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        patch: &QueuePatch,
        state: Option<QueueState>,
    ) -> Result<QueueSettings, Fault<R::Error>> {
        let after = self.patched(rows, clock, patch, state)?;
        let now = self.now(clock);
        if let Some(known) = self.known.as_mut().filter(|known| known.head.settings == after) {
            // An instance that another one has replaced may only believe that this holds already. Its write fails.
            let change = known.store_head();
            self.commit(rows, now, &[change])?;
            return Ok(after);
        }
        self.take_up(rows, now, &after)?;
        Ok(after)
    }

    /// Takes up how the app's handler for the queue is called, as of a revision of what the app declares; nothing if it has
    /// no handler any more. The first partition is asked. Gives the settings that hold.
    pub fn declare<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        revision: u64,
        handler: Option<Push>,
    ) -> Result<QueueSettings, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let known = self.known.as_mut().ok_or_else(no_queue)?;
        let before = &known.head.settings;
        // What an operator has set stays, unless the app has a handler, or had one.
        let (declared, push) = match handler {
            Some(handler) => (true, Some(Push { url: None, sink: None, ..handler })),
            None if before.declared => (false, None),
            None => (false, before.push.clone()),
        };
        if before.state == QueueState::Deleting {
            return Err(closed(QueueState::Deleting).into());
        }
        if known.head.heard >= revision {
            return Ok(before.clone());
        }
        if (declared, &push) == (before.declared, &before.push) {
            let before = before.clone();
            known.head.heard = revision;
            let change = known.store_head();
            self.commit(rows, now, &[change])?;
            return Ok(before);
        }
        let after = QueueSettings { declared, push, revision: before.revision + 1, ..before.clone() };
        known.head.heard = revision;
        self.take_up(rows, now, &after)?;
        Ok(after)
    }

    /// Begins to delete the queue, with its jobs or only if there are none. The first partition is asked; the alarm goes
    /// on with it.
    pub fn delete<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        with_jobs: bool,
    ) -> Result<QueueSettings, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let head = self.known.as_ref().map(|known| &known.head).ok_or_else(no_queue)?;
        if head.settings.declared {
            let detail =
                "The queue's handler is declared in code. Remove it there and deploy, then delete the queue.";
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        let deleting = match head.deleting {
            // Whoever has said that the jobs may go is not overruled by somebody who has not.
            Some(before) => Deleting { with_jobs: with_jobs || before.with_jobs, ..before },
            None => Deleting { with_jobs, was: head.settings.state },
        };
        // Whoever has asked for it goes on with it at once, and the alarm if that comes to nothing.
        if let Some(known) = &mut self.known {
            known.delete_tried_at = Some(now);
        }
        self.set_deletion(rows, now, Some(deleting), QueueState::Deleting)
    }

    /// The queue has jobs, and is not deleted.
    pub fn keep<R: Rows>(&mut self, rows: &R, clock: Timestamp) -> Result<QueueSettings, Fault<R::Error>> {
        let now = self.now(clock);
        self.read(rows, now)?;
        let was = self.deleting().map(|deleting| deleting.was).ok_or_else(no_queue)?;
        self.set_deletion(rows, now, None, was)
    }

    fn set_deletion<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        deleting: Option<Deleting>,
        state: QueueState,
    ) -> Result<QueueSettings, Fault<R::Error>> {
        let known = self.known.as_mut().ok_or_else(no_queue)?;
        let head = &mut known.head;
        if head.deleting == deleting {
            return Ok(head.settings.clone());
        }
        (head.deleting, head.settings.state) = (deleting, state);
        head.settings.revision += 1;
        let settings = head.settings.clone();
        let change = known.store_head();
        self.commit(rows, now, &[change])?;
        Ok(settings)
    }

    /// How the queue is being deleted, if it is.
    pub fn deleting(&self) -> Option<Deleting> {
        self.known.as_ref().and_then(|known| known.head.deleting)
    }

    /// The queue is being deleted: says how many jobs there are, of which there will be no more.
    pub fn close<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
    ) -> Result<Closed, Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        let jobs = known.head.counts.alive + known.head.counts.dead;
        // This instance may have been superseded: only a write says that it has not.
        self.object.arm_anew(now);
        Ok(Closed { jobs })
    }

    /// Refuses to be erased if the queue is not being deleted any more, or if there are jobs that may not go with it.
    pub fn check_erasure<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        with_jobs: bool,
    ) -> Result<(), Fault<R::Error>> {
        let Closed { jobs } = self.close(rows, clock, settings)?;
        let state = self.known.as_ref().map(|known| known.head.settings.state);
        if state == Some(QueueState::Deleting) && (with_jobs || jobs == 0) {
            return Ok(());
        }
        let detail = format!("The partition is kept: it has {jobs} jobs and dead letters.");
        Err(Problem::new(Code::WrongStatus, detail).into())
    }

    /// How many jobs there are.
    pub fn counts<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
    ) -> Result<QueueCounts, Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        let in_flight = known.by_job.len() as u64;
        let oldest = known.ready_at(rows, now)?.filter(|at| *at <= now);
        Ok(QueueCounts {
            depth: known.head.counts.alive.saturating_sub(in_flight),
            delayed: rows.delayed(now, DELAYED_MAX).map_err(Fault::Storage)?,
            in_flight,
            dead: known.head.counts.dead,
            oldest,
            purging: known.head.purging.is_some(),
            redriving: known.head.redriving.is_some(),
        })
    }
}

/// How many delayed jobs are counted.
const DELAYED_MAX: usize = 1_000;

/// Refuses what no queue can be set to.
pub fn check_patch(patch: &QueuePatch) -> Result<(), Problem> {
    let outside = |value: Option<u64>, least: u64, most: u64| value.is_some_and(|it| it < least || it > most);
    if outside(patch.partitions.map(u64::from), 1, PARTITIONS_MAX.into()) {
        return bad(format!("`partitions` is 1 to {PARTITIONS_MAX}."));
    }
    if outside(patch.visibility_ms, VISIBILITY_MS_MIN, VISIBILITY_MS_MAX) {
        return bad(format!("`visibility_ms` is {VISIBILITY_MS_MIN} to {VISIBILITY_MS_MAX}."));
    }
    if outside(patch.max_attempts.map(u64::from), 1, ATTEMPTS_MAX.into()) {
        return bad(format!("`max_attempts` is 1 to {ATTEMPTS_MAX}."));
    }
    if outside(patch.retention_ms, RETENTION_MS_MIN, DELAY_MS_MAX) {
        return bad(format!("`retention_ms` is {RETENTION_MS_MIN} to {DELAY_MS_MAX}."));
    }
    if outside(patch.dead_retention_ms, RETENTION_MS_MIN, DELAY_MS_MAX) {
        return bad(format!("`dead_retention_ms` is {RETENTION_MS_MIN} to {DELAY_MS_MAX}."));
    }
    if outside(patch.dedupe_ms, 0, DEDUPE_MS_MAX) {
        return bad(format!("`dedupe_ms` is at most {DEDUPE_MS_MAX}."));
    }
    patch.dead_to.as_ref().and_then(Option::as_ref).map_or(Ok(()), |queue| check_target(queue))?;
    patch.push.as_ref().and_then(Option::as_ref).map_or(Ok(()), check_push)
}

/// Refuses a request.
pub(super) fn bad(detail: String) -> Result<(), Problem> {
    Err(Problem::new(Code::InvalidRequest, detail))
}

/// There is no such queue.
pub fn no_queue() -> Problem {
    let detail =
        "The namespace has no queue with this name. Send a job to it, or `PATCH` its settings, to create it.";
    Problem::new(Code::QueueNotFound, detail)
}

/// There is no such job.
pub fn no_job() -> Problem {
    let detail =
        "The queue has no job with this id: it is done, or was purged, or the id belongs to another queue.";
    Problem::new(Code::JobNotFound, detail)
}

/// The queue takes no jobs.
pub(super) fn closed(state: QueueState) -> Problem {
    let detail = match state {
        QueueState::Draining => "The queue is draining and accepts no jobs. Resume it to send to it again.",
        QueueState::Deleting => "The queue is being deleted. Send again in a few seconds to create it anew.",
        QueueState::Active | QueueState::Paused => "The queue accepts no jobs.",
    };
    Problem::new(Code::QueueClosed, detail)
}

/// Whoever asks goes by what does not hold any more.
pub(super) fn stale() -> Problem {
    Problem { status: STALE, ..no_queue() }
}

/// Whether an answer says that the settings of the queue have to be asked for again.
pub fn is_stale(status: u16) -> bool {
    status == STALE
}
