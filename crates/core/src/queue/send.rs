//! What producers send: which partition it goes to, what is known already, and how it is stored.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Payload, Problem, Timestamp, json,
    queue::{
        BYTES, DEAD_LETTER, DEDUPE_MS_MAX, JOB_BYTES_MAX, JSON, NewJob, QueueSettings, QueueState, Sent,
        SentJob, SentStatus, TEXT, WORD_LENGTH_MAX, check_terms, is_word, too_large,
    },
};

use super::{
    BYTES_MAX, Change, Content, Form, Key, Mark, Queue, Row, Rows,
    drive::{Known, PUT_OFF, round},
    settings::closed,
};
use crate::{
    object::Fault,
    ordered::{OrdMap, OrdSet},
    pools::spread,
};

/// A job to be stored, as a partition gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// Its body.
    pub content: Content,
    /// For how long nobody gets it.
    #[serde(default)]
    pub delay_ms: u64,
    /// Its priority.
    #[serde(default)]
    pub priority: u8,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its dedupe id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_id: Option<String>,
    /// The address that it goes to, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The message that it came with, if another object has written it: its sender may repeat that for days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
}

impl Post {
    /// A job that a run or a trigger has sent, with what that is known by.
    pub fn sent(letter: String, job: SentJob) -> Result<Self, Problem> {
        let content_type = job.content_type.clone();
        let mut post = check_post(SentJob { content_type: None, ..job }.into())?;
        if let Some(content_type) = content_type {
            post.content.content_type = content_type;
        }
        Ok(Self { letter: Some(letter), ..post })
    }

    /// A job that goes to an address of its own, known by this id.
    pub fn to_address(content: Content, url: String, id: String) -> Self {
        let (dedupe_id, to) = (Some(id), Some(url));
        Self { content, delay_ms: 0, priority: 0, group: None, dedupe_id, to, letter: None }
    }

    /// What it is known by, and for how long at least. No part of a dedupe id's key can hold a line break.
    fn keys(&self, dedupe_ms: u64) -> Vec<(String, u64)> {
        let letter = self.letter.as_ref().map(|id| (letter_key(id), DEDUPE_MS_MAX));
        let group = self.group.as_deref().unwrap_or_default();
        let dedupe_id = self.dedupe_id.as_ref().map(|id| (format!("{group}\n{id}"), dedupe_ms));
        letter.into_iter().chain(dedupe_id).collect()
    }

    fn is_plain(&self) -> bool {
        self.delay_ms == 0 && self.priority == 0 && self.group.is_none() && self.to.is_none()
    }
}

/// What was answered to a request.
#[derive(Serialize, Deserialize)]
struct Told {
    fingerprint: String,
    jobs: Vec<u64>,
}

/// The partition of a job that has to be in one: that of its group, of its dedupe id, or of the request that it came
/// with. The number of partitions that these are spread over never changes, so they stay where they are for as long as
/// there is the queue.
pub fn home(
    settings: &QueueSettings,
    group: Option<&str>,
    dedupe_id: Option<&str>,
    request: Option<&str>,
) -> Option<u32> {
    let hash = spread(group.or(dedupe_id).or(request)?);
    u32::try_from(hash % u64::from(settings.keyed_partitions.max(1))).ok()
}

/// Where a claim begins that is known by this nonce: always with the same partitions.
pub fn place_of(nonce: &str) -> u64 {
    spread(nonce)
}

/// What a job's body is, if it is one.
pub fn check_content(
    body: Option<Payload>,
    text: Option<String>,
    base64: Option<String>,
    content_type: Option<String>,
) -> Result<Content, Problem> {
    let bad = |detail: String| Problem::new(Code::InvalidRequest, detail);
    let (form, data) = match (body, text, base64) {
        (None, None, None) => (Form::Json, Payload::null().text().to_owned()),
        (Some(body), None, None) => (Form::Json, body.into_text()),
        (None, Some(text), None) => (Form::Text, text),
        (None, None, Some(base64)) => {
            if !is_base64(&base64) {
                return Err(bad("`base64` is not base64 with padding.".into()));
            }
            (Form::Bytes, base64)
        }
        (_, _, _) => return Err(bad("A job has one of `body`, `text` and `base64`.".into())),
    };
    let usual = match form {
        Form::Json => JSON,
        Form::Text => TEXT,
        Form::Bytes => BYTES,
    };
    let content_type = content_type.unwrap_or_else(|| usual.to_owned());
    if !is_word(&content_type) || !content_type.is_ascii() || !content_type.contains('/') {
        let detail = format!("`content_type` is a type such as '{JSON}', of up to {WORD_LENGTH_MAX} bytes.");
        return Err(bad(detail));
    }
    if content_type.eq_ignore_ascii_case(DEAD_LETTER) {
        return Err(bad(format!("`content_type` is '{DEAD_LETTER}': only Stepwell itself sends such jobs.")));
    }
    let content = Content { content_type, form, data };
    if content.size() > JOB_BYTES_MAX {
        return Err(too_large(content.size()));
    }
    Ok(content)
}

fn is_base64(text: &str) -> bool {
    let padding = text.bytes().rev().take(2).take_while(|byte| *byte == b'=').count();
    let (data, _) = text.as_bytes().split_at(text.len() - padding);
    // The last letter before the padding has bits that stand for nothing. A decoder refuses any that are set.
    let is_ended = match (padding, data.last()) {
        (1, Some(last)) => b"AEIMQUYcgkosw048".contains(last),
        (2, Some(last)) => b"AQgw".contains(last),
        (_, _) => padding == 0,
    };
    text.len().is_multiple_of(4)
        && is_ended
        && data.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// What a partition gets of a job, if it is one.
pub fn check_post(job: NewJob) -> Result<Post, Problem> {
    let NewJob { body, text, base64, content_type, delay_ms, priority, group, dedupe_id } = job;
    check_terms(delay_ms, priority, group.as_deref(), dedupe_id.as_deref())?;
    let content = check_content(body, text, base64, content_type)?;
    Ok(Post { content, delay_ms, priority, group, dedupe_id, to: None, letter: None })
}

impl Queue {
    /// Accepts jobs: all of them are stored, or none. A request that has a key and comes again is answered as before; so is
    /// one that the platform delivers twice, which is known by its mark.
    pub fn send<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        mark: &str,
        request: Option<&str>,
        posts: Vec<Post>,
    ) -> Result<Vec<Sent>, Fault<R::Error>> {
        let sent = self.try_send(rows, clock, settings, mark, request, posts);
        self.settle(sent)
    }

    fn try_send<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        mark: &str,
        request: Option<&str>,
        posts: Vec<Post>,
    ) -> Result<Vec<Sent>, Fault<R::Error>> {
        let partition = self.partition;
        let (now, known) = self.hear(rows, clock, settings)?;
        let request = request.map(|key| (format!("\nrequest\n{key}"), fingerprint(&posts)));
        if let Some((key, fingerprint)) = &request
            && let Some(told) = told(rows, now, key)?
        {
            let sent = repeated(known, partition, told, fingerprint);
            // This instance may have been superseded: only a write says that it has not.
            self.object.arm_anew(now);
            return sent;
        }
        // What another object has sent and was not told is taken is known also when nothing is taken any more.
        if let [Post { letter: Some(letter), .. }] = &posts[..]
            && let Some(number) = job_of_key(rows, now, &letter_key(letter))?
        {
            let sent =
                Sent { status: SentStatus::Duplicate, id: Some(known.id(partition, number)), problem: None };
            self.object.arm_anew(now);
            return Ok(vec![sent]);
        }
        match known.head.settings.state {
            QueueState::Active | QueueState::Paused => {}
            state @ (QueueState::Draining | QueueState::Deleting) => return Err(closed(state).into()),
        }
        if rows.bytes().map_err(Fault::Storage)? >= BYTES_MAX {
            let detail = "The partition of the queue is full until jobs are done. Try again later.";
            return Err(Problem::new(Code::LimitReached, detail).into());
        }
        let first = known.number_of_mark(rows, mark)?;
        let mut sending = Sending::new(mark, first, known.head.counts.last + 1);
        let mut sent = Vec::new();
        for post in posts {
            let (status, number) = sending.add(rows, now, known, post)?;
            sent.push((status, number));
        }
        let Sending { mut changes, ready, mark: sending_mark, .. } = sending;
        let is_new = sent.iter().any(|(status, _)| *status == SentStatus::Accepted);
        let until = now.plus_millis(known.head.settings.dedupe_ms);
        if let Some((key, fingerprint)) = request {
            let told = Told { fingerprint, jobs: sent.iter().map(|(_, number)| *number).collect() };
            let told = serde_json::to_string(&told).ok();
            changes.push(Change::PutKey { key, value: Key { job: 0, until, told } });
        }
        let ends = changes.iter().filter_map(|change| {
            if let Change::PutKey { value, .. } = change { Some(round(value.until)) } else { None }
        });
        known.keys_at = ends.chain(known.keys_at).min();
        if is_new {
            known.mark(sending_mark);
            known.will_age(round(now.plus_millis(known.head.settings.retention_ms)));
            count(known, &mut changes);
        }
        let sent = sent.into_iter().map(|(status, number)| Sent {
            status,
            id: (number > 0).then(|| known.id(partition, number)),
            problem: None,
        });
        let sent = sent.collect();
        if changes.is_empty() {
            // As above.
            self.object.arm_anew(now);
        }
        self.commit(rows, now, &changes)?;
        self.wake(rows, now, ready);
        Ok(sent)
    }
}

/// Stores the counts: with the last job, if all are plain.
fn count(known: &mut Known, changes: &mut Vec<Change>) {
    let is_plain = !changes.iter().any(|change| matches!(change, Change::Add { .. }));
    for change in changes.iter_mut().rev().filter(|_| is_plain) {
        if let Change::AddPlain { counts, .. } = change {
            *counts = Some(known.store_counts());
            return;
        }
    }
    changes.push(known.store_head());
}

/// How many requests an instance knows by their marks.
const MARKS_MAX: usize = 10_000;

/// How many numbers back a fresh instance looks for marks: at least so many whole requests.
const MARKED_JOBS: u64 = 5_000;

/// The first numbers of the latest requests, by their marks.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    first: OrdMap<String, u64>,
    order: VecDeque<String>,
}

impl Marks {
    fn insert(&mut self, Mark { request, first }: Mark) {
        if self.first.insert(request.clone(), first).is_none() {
            self.order.push_back(request);
        }
        if self.order.len() > MARKS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.first.remove(&oldest);
        }
    }
}

/// Jobs on their way to be stored.
struct Sending {
    changes: Vec<Change>,
    mark: Mark,
    /// Of a request that was delivered before: the number of its next job.
    stored: Option<u64>,
    /// What the keys of this request stand for.
    keys: OrdMap<String, u64>,
    /// The groups that have jobs since this request.
    groups: OrdSet<String>,
    /// How many can be claimed at once.
    ready: usize,
}

impl Sending {
    /// Of a request that was delivered before, if `stored` is the first number that it got then.
    fn new(mark: &str, stored: Option<u64>, next: u64) -> Self {
        let mark = Mark { request: mark.to_owned(), first: stored.unwrap_or(next) };
        let (keys, groups) = (OrdMap::new(), OrdSet::new());
        Self { changes: Vec::new(), mark, stored, keys, groups, ready: 0 }
    }

    fn add<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        known: &mut Known,
        post: Post,
    ) -> Result<(SentStatus, u64), Fault<R::Error>> {
        let keys = post.keys(known.head.settings.dedupe_ms);
        for (unknown, (key, _)) in keys.iter().enumerate() {
            let before = match self.keys.get(key) {
                Some(number) => Some(*number),
                None => job_of_key(rows, now, key)?,
            };
            if let Some(number) = before {
                // It was one of those that this request has stored.
                self.stored = self.stored.map(|next| next.max(number + 1));
                // Its letter may come again when the dedupe id is forgotten.
                self.know(now, keys.into_iter().take(unknown), number);
                return Ok((SentStatus::Duplicate, number));
            }
        }
        if let Some(next) = &mut self.stored {
            *next += 1;
            // Keys that were known then, or are known no more, put the count out: what is there says whose it is.
            let stored = rows.content(*next - 1).map_err(Fault::Storage)?;
            let is_it = stored.is_none_or(|stored| stored == post.content);
            return Ok((SentStatus::Duplicate, if is_it { *next - 1 } else { 0 }));
        }
        let number = known.number();
        known.head.counts.alive += 1;
        self.know(now, keys, number);
        if post.is_plain() {
            self.ready += 1;
            let mark = self.mark.clone();
            let content = post.content;
            self.changes.push(Change::AddPlain { number, sent_at: now, mark, content, counts: None });
            return Ok((SentStatus::Accepted, number));
        }
        let is_first = match &post.group {
            Some(group) => {
                self.groups.insert(group.clone())
                    && rows.group(group, 0, 1).map_err(Fault::Storage)?.is_empty()
            }
            None => true,
        };
        let mut row = Row {
            sent_at: now,
            size: post.content.size(),
            attempts: 0,
            priority: post.priority,
            group: post.group,
            place: number,
            since: number,
            due: now.plus_millis(post.delay_ms),
            is_in_line: is_first,
            to: post.to,
            is_back: false,
            death: None,
        };
        known.place_by_address(now, &mut row, &mut self.changes);
        self.ready += usize::from(row.is_in_line && post.delay_ms == 0);
        known.lines_up(&row);
        known.will_age(round(row.due.plus_millis(known.head.settings.retention_ms)));
        let mark = self.mark.clone();
        self.changes.push(Change::Add { number, mark, row: Box::new(row), content: post.content });
        Ok((SentStatus::Accepted, number))
    }
}

impl Sending {
    /// These keys stand for a job from now on, each for its time.
    fn know(&mut self, now: Timestamp, keys: impl IntoIterator<Item = (String, u64)>, number: u64) {
        for (key, ms) in keys {
            let until = now.plus_millis(ms);
            self.keys.insert(key.clone(), number);
            self.changes.push(Change::PutKey { key, value: Key { job: number, until, told: None } });
        }
    }
}

impl Known {
    /// The first number of a request that was delivered before.
    fn number_of_mark<R: Rows>(&mut self, rows: &R, mark: &str) -> Result<Option<u64>, Fault<R::Error>> {
        if self.marks.is_none() {
            let mut marks = Marks::default();
            let after = self.head.counts.last.saturating_sub(MARKED_JOBS);
            for (request, first) in rows.marks(after).map_err(Fault::Storage)? {
                marks.insert(Mark { request, first });
            }
            self.marks = Some(marks);
        }
        Ok(self.marks.as_ref().and_then(|marks| marks.first.get(mark)).copied())
    }

    fn mark(&mut self, mark: Mark) {
        if let Some(marks) = &mut self.marks {
            marks.insert(mark);
        }
    }
}

/// What a job is known by that came with a message of another object.
fn letter_key(letter: &str) -> String {
    format!("\nletter\n{letter}")
}

/// The job that a dedupe id stands for.
fn job_of_key<R: Rows>(rows: &R, now: Timestamp, key: &str) -> Result<Option<u64>, Fault<R::Error>> {
    let Some(key) = rows.key(key).map_err(Fault::Storage)? else { return Ok(None) };
    let is_in_time = key.until > now && key.told.as_deref() != Some(PUT_OFF);
    let holds = is_in_time || rows.job(key.job).map_err(Fault::Storage)?.is_some();
    Ok(holds.then_some(key.job))
}

/// What was answered to a request.
fn told<R: Rows>(rows: &R, now: Timestamp, key: &str) -> Result<Option<Told>, Fault<R::Error>> {
    let key = rows.key(key).map_err(Fault::Storage)?.filter(|key| key.until > now);
    Ok(key.and_then(|key| json::from_str(&key.told?).ok()))
}

fn repeated<E>(known: &Known, partition: u32, told: Told, fingerprint: &str) -> Result<Vec<Sent>, Fault<E>> {
    if told.fingerprint != fingerprint {
        let detail = "The Idempotency-Key was used for other jobs. Use a new key for each request.";
        return Err(Problem::new(Code::IdempotencyKeyReused, detail).into());
    }
    let sent = told.jobs.into_iter().map(|number| Sent {
        status: SentStatus::Duplicate,
        id: (number > 0).then(|| known.id(partition, number)),
        problem: None,
    });
    Ok(sent.collect())
}

/// What tells the jobs of one request from those of another.
fn fingerprint(posts: &[Post]) -> String {
    let mut hash = 0_u64;
    for Post { content, delay_ms, priority, group, dedupe_id, to: _, letter: _ } in posts {
        let rest = (&content.content_type, delay_ms, priority, group, dedupe_id);
        for part in [spread(&content.data), spread(&format!("{rest:?}"))] {
            hash = (hash.rotate_left(7) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    format!("{hash:x}")
}
