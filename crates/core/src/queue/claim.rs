//! What consumers get: which jobs are next, and how many of them fit.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Timestamp,
    queue::{Claimed, Lease, QueueSettings, QueueState},
};

use super::{
    Change, Content, Found, Hold, IN_FLIGHT_MAX, Plain, Queue, Row, Rows, SLICE,
    addresses::Turn,
    drive::{Known, PRIORITIES},
};
use crate::{
    object::Fault,
    ordered::{OrdMap, OrdSet},
};

/// What a claim asks of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// What it is known by.
    pub nonce: String,
    /// How many jobs at the most.
    pub limit: usize,
    /// How many bytes their bodies have in the answer at the most.
    pub bytes: usize,
    /// Whether it gets one job even if that has more.
    pub at_least_one: bool,
    /// How long it holds them; the queue's own time if it is not said.
    pub visibility_ms: Option<u64>,
}

/// What a partition has for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// Whether the claim holds jobs of it.
    pub is_held: bool,
    /// When there is a job to be claimed, as far as that is known.
    pub ready_at: Option<Timestamp>,
    /// Whether that is now.
    pub is_ready: bool,
}

/// How much a claim still takes.
struct Room {
    jobs: usize,
    bytes: usize,
    at_least_one: bool,
    /// Something did not fit: what comes after it must not overtake it for ever.
    is_full: bool,
}

impl Room {
    /// Takes a job, if there is room for it. Its body has at least as many bytes in an answer as its size says.
    fn take<R: Rows>(
        &mut self,
        rows: &R,
        number: u64,
        size: usize,
        contents: &mut OrdMap<u64, Content>,
    ) -> Result<bool, Fault<R::Error>> {
        if !self.fits(size) {
            return Ok(false);
        }
        let content = rows.content(number).map_err(Fault::Storage)?;
        let size = content.as_ref().map_or(0, Content::encoded_size);
        if !self.fits(size) {
            return Ok(false);
        }
        contents.extend(content.map(|content| (number, content)));
        self.jobs -= 1;
        self.bytes = self.bytes.saturating_sub(size);
        self.at_least_one = false;
        Ok(true)
    }

    fn fits(&mut self, size: usize) -> bool {
        self.is_full |= self.jobs == 0 || (size > self.bytes && !self.at_least_one);
        !self.is_full
    }
}

/// The jobs that a claim takes.
#[derive(Default)]
struct Picks {
    plain: Vec<Plain>,
    rows: Vec<(u64, Row)>,
    /// Their bodies.
    contents: OrdMap<u64, Content>,
}

impl Queue {
    /// Hands out jobs. A claim that comes again gets what it holds already.
    pub fn claim<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        wanted: &Wanted,
    ) -> Result<Vec<Claimed>, Fault<R::Error>> {
        let claimed = self.try_claim(rows, clock, settings, wanted);
        self.settle(claimed)
    }

    fn try_claim<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        wanted: &Wanted,
    ) -> Result<Vec<Claimed>, Fault<R::Error>> {
        let (partition, (now, known)) = (self.partition, self.hear(rows, clock, settings)?);
        if known.leases.contains_key(&wanted.nonce) {
            let claimed = known.claimed(rows, partition, &wanted.nonce, OrdMap::new())?;
            // This instance may have been superseded: only a write says that it has not.
            self.object.arm_anew(now);
            return Ok(claimed);
        }
        match known.head.settings.state {
            QueueState::Active | QueueState::Draining => {}
            QueueState::Paused | QueueState::Deleting => return Ok(Vec::new()),
        }
        self.hand_out(rows, now, wanted)
    }

    /// Hands out jobs for a claim that is not known yet.
    pub(super) fn hand_out<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        wanted: &Wanted,
    ) -> Result<Vec<Claimed>, Fault<R::Error>> {
        let partition = self.partition;
        let Some(known) = &mut self.known else { return Ok(Vec::new()) };
        let free = IN_FLIGHT_MAX.saturating_sub(known.by_job.len());
        let room = Room {
            jobs: wanted.limit.min(free),
            bytes: wanted.bytes,
            at_least_one: wanted.at_least_one,
            is_full: false,
        };
        let mut changes = Vec::new();
        let Picks { plain, rows: others, contents } = known.pick(rows, now, room, &mut changes)?;
        let until = now.plus_millis(wanted.visibility_ms.unwrap_or(known.head.settings.visibility_ms));
        for Plain { number, .. } in plain {
            known.hold(&wanted.nonce, Hold { job: number, attempt: 1, until, is_plain: true });
        }
        for (number, row) in others {
            let attempt = row.attempts + 1;
            changes.push(Change::Update { number, row: Box::new(Row { is_in_line: false, ..row }) });
            known.hold(&wanted.nonce, Hold { job: number, attempt, until, is_plain: false });
        }
        if known.leases.contains_key(&wanted.nonce) {
            changes.push(known.store_lease(&wanted.nonce));
        }
        let claimed = known.claimed(rows, partition, &wanted.nonce, contents)?;
        self.commit(rows, now, &changes)?;
        Ok(claimed)
    }

    /// Says what there is for a claim, and hands out nothing.
    pub fn look<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        nonce: &str,
    ) -> Result<Looked, Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        let is_held = known.leases.contains_key(nonce);
        let is_open = match known.head.settings.state {
            QueueState::Active | QueueState::Draining => known.by_job.len() < IN_FLIGHT_MAX,
            QueueState::Paused | QueueState::Deleting => false,
        };
        let ready_at = if is_open { known.ready_at(rows, now)? } else { None };
        // A job that somebody holds may come back when its lease is over.
        let comes_back = known.ends.first().map(|(at, _)| *at).filter(|_| is_open);
        let is_ready = ready_at.is_some_and(|at| at <= now);
        let ready_at = [ready_at, comes_back].into_iter().flatten().min();
        Ok(Looked { is_held, ready_at, is_ready })
    }
}

impl Known {
    /// When the first job can be claimed, or could be.
    pub fn ready_at<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Fault<R::Error>> {
        // A plain one can be claimed at any time, also if the clock was set back since it came.
        let mut first = self.next_plain(rows, 1)?.first().map(|plain| plain.sent_at.min(now));
        for priority in 0..PRIORITIES {
            if let Some(due) = self.first_in_line(rows, priority)? {
                first = Some(first.map_or(due, |at| at.min(due)));
            }
        }
        Ok(first)
    }

    /// The next jobs, as far as there is room: by priority, then by when they could first be claimed.
    fn pick<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        mut room: Room,
        changes: &mut Vec<Change>,
    ) -> Result<Picks, Fault<R::Error>> {
        let mut picks = Picks::default();
        let mut gone = OrdSet::new();
        let mut is_turned = false;
        for priority in (0..PRIORITIES).rev() {
            if room.jobs == 0 || room.is_full {
                break;
            }
            // Of jobs with addresses of their own, those in front may have to let others pass.
            let some = if self.head.settings.addressed { SLICE } else { room.jobs };
            let line = self.in_line(rows, now, priority, some)?;
            let (is_long, mut waiting) = (line.len() == SLICE, Vec::new());
            let mut line = line.into_iter().peekable();
            let plain = if priority == 0 { self.next_plain(rows, room.jobs)? } else { Vec::new() };
            let mut plain = plain.into_iter().peekable();
            loop {
                let is_plain_first = match (line.peek(), plain.peek()) {
                    (None, None) => break,
                    (None, Some(_)) => true,
                    (Some(_), None) => false,
                    (Some((number, row)), Some(plain)) => (plain.sent_at, plain.number) < (row.due, *number),
                };
                if is_plain_first {
                    let Some(next) = plain.next() else { break };
                    if !room.take(rows, next.number, next.size, &mut picks.contents)? {
                        break;
                    }
                    // All before it are held.
                    self.cursor = next.number;
                    picks.plain.push(next);
                } else {
                    let Some((number, row)) = line.next() else { break };
                    if row.since <= self.purges_up_to() {
                        gone.insert(number);
                        self.remove(rows, now, number, &row, &gone, changes)?;
                        continue;
                    }
                    match self.turn_of(now, &row) {
                        Turn::Now => {}
                        Turn::Waits => {
                            waiting.push((number, row));
                            continue;
                        }
                        turn @ (Turn::Back | Turn::Never) => {
                            self.turn_away(now, number, &row, matches!(turn, Turn::Never), changes);
                            is_turned |= true;
                            continue;
                        }
                    }
                    if !room.take(rows, number, row.size, &mut picks.contents)? {
                        break;
                    }
                    self.pushing.goes_to(number, row.to.clone());
                    picks.rows.push((number, row));
                }
            }
            if waiting.is_empty() {
                continue;
            }
            // Those behind a long line of others might go: who only waits stands back.
            let makes_room = is_long && room.jobs > 0 && !room.is_full;
            if makes_room && self.let_pass(now, waiting, changes) {
                is_turned = true;
                self.pushing.at_once = true;
            } else {
                self.pushing.is_held_up = true;
            }
        }
        if !gone.is_empty() || is_turned {
            changes.push(self.store_head());
        }
        Ok(picks)
    }

    /// The first jobs in line of a priority that can be claimed. Those whose time has not come are not read: there may be
    /// very many.
    fn in_line<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        priority: usize,
        limit: usize,
    ) -> Result<Vec<(u64, Row)>, Fault<R::Error>> {
        let (Some(Some(first)), Ok(level)) = (self.lines.get(priority), u8::try_from(priority)) else {
            return Ok(Vec::new());
        };
        if *first > now {
            return Ok(Vec::new());
        }
        let line = rows.line(level, Some(now), limit).map_err(Fault::Storage)?;
        if line.is_empty() {
            self.first_in_line(rows, priority)?;
        }
        Ok(line)
    }

    /// When the first job in line of a priority can be claimed.
    fn first_in_line<R: Rows>(
        &mut self,
        rows: &R,
        priority: usize,
    ) -> Result<Option<Timestamp>, Fault<R::Error>> {
        let (Some(first @ Some(_)), Ok(level)) = (self.lines.get_mut(priority), u8::try_from(priority))
        else {
            return Ok(None);
        };
        *first = rows.line(level, None, 1).map_err(Fault::Storage)?.first().map(|(_, row)| row.due);
        Ok(*first)
    }

    /// The next plain jobs that nobody holds. Whatever is held at the beginning is passed over once in the life of an
    /// instance.
    pub fn next_plain<R: Rows>(&mut self, rows: &R, limit: usize) -> Result<Vec<Plain>, Fault<R::Error>> {
        let mut found = Vec::new();
        let mut after = self.cursor.max(self.purges_up_to());
        let mut page = limit.max(if self.cursor == 0 { SLICE } else { 0 });
        while found.len() < limit {
            let plain = rows.plain(after, page).map_err(Fault::Storage)?;
            let is_last = plain.len() < page;
            for next in plain {
                after = next.number;
                if !self.by_job.contains_key(&next.number) {
                    found.push(next);
                } else if found.is_empty() {
                    self.cursor = self.cursor.max(next.number);
                }
            }
            if is_last {
                break;
            }
            // Many of them are held: so as not to pass over them one by one.
            page = limit.max(SLICE);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// What a claim holds. Bodies that were not read yet are.
    fn claimed<R: Rows>(
        &self,
        rows: &R,
        partition: u32,
        nonce: &str,
        mut contents: OrdMap<u64, Content>,
    ) -> Result<Vec<Claimed>, Fault<R::Error>> {
        let mut claimed = Vec::new();
        for hold in self.leases.get(nonce).into_iter().flat_map(OrdMap::values) {
            let content = match contents.remove(&hold.job) {
                Some(content) => Some(content),
                None => rows.content(hold.job).map_err(Fault::Storage)?,
            };
            let found = rows.job(hold.job).map_err(Fault::Storage)?;
            let (Some(content), Some(found)) = (content, found) else { continue };
            let (sent_at, group) = match found {
                Found::Plain(plain) => (plain.sent_at, None),
                Found::Row(row) => (row.sent_at, row.group),
            };
            let id = self.id(partition, hold.job);
            let lease = Lease { job: id.clone(), attempt: hold.attempt, nonce: nonce.to_owned() };
            let (content_type, body, text, base64) = content.into_fields();
            let (until, attempt) = (hold.until, hold.attempt);
            claimed.push(Claimed {
                id,
                lease,
                until,
                attempt,
                sent_at,
                group,
                content_type,
                body,
                text,
                base64,
            });
        }
        Ok(claimed)
    }
}
