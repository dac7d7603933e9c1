//! One job, as operators see it, and what they do with dead letters.

use stepwell_protocol::{
    Code, Problem, Timestamp,
    queue::{JobId, JobStatus, JobView, QueueSettings},
};

use super::{Change, Content, Found, Queue, Row, Rows, drive::Known, settings::no_job};
use crate::{object::Fault, ordered::OrdSet};

/// How many dead letters a page has at the most.
pub const DEAD_PAGE_MAX: usize = 100;

impl Queue {
    /// A job with its body.
    pub fn job<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        id: &JobId,
    ) -> Result<JobView, Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        let row = known.find(rows, id)?;
        let content = rows.content(id.number).map_err(Fault::Storage)?.ok_or_else(no_job)?;
        Ok(known.whole(now, id.partition, id.number, row, content))
    }

    /// Dead letters after one of them, oldest first, without their bodies.
    pub fn dead<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        after: (Timestamp, u64),
        limit: usize,
    ) -> Result<Vec<JobView>, Fault<R::Error>> {
        let partition = self.partition;
        let (now, known) = self.hear(rows, clock, settings)?;
        let dead = rows.dead(after, limit.min(DEAD_PAGE_MAX)).map_err(Fault::Storage)?;
        let views = dead.into_iter().map(|(number, row)| known.view(now, known.id(partition, number), row));
        Ok(views.collect())
    }

    /// Gives a dead letter another body.
    pub fn edit<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        id: &JobId,
        content: Content,
    ) -> Result<JobView, Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        let row = Row { size: content.size(), ..known.find_dead(rows, id)? };
        let view = known.view(now, id.clone(), row.clone());
        let number = id.number;
        let changes = [Change::Edit { number, content }, Change::Update { number, row: Box::new(row) }];
        self.commit(rows, now, &changes)?;
        Ok(view)
    }

    /// Queues a dead letter again.
    pub fn redrive_one<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        id: &JobId,
    ) -> Result<(), Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        let row = known.find_dead(rows, id)?;
        let mut changes = Vec::new();
        let revived = known.revive(rows, now, id.number, row, &mut OrdSet::new(), &mut changes);
        changes.push(known.store_head());
        let ready = self.settle(revived)?;
        self.commit(rows, now, &changes)?;
        self.wake(rows, now, ready);
        Ok(())
    }

    /// Deletes a dead letter.
    pub fn discard<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        settings: &QueueSettings,
        id: &JobId,
    ) -> Result<(), Fault<R::Error>> {
        let (now, known) = self.hear(rows, clock, settings)?;
        known.find_dead(rows, id)?;
        known.head.counts.dead = known.head.counts.dead.saturating_sub(1);
        let changes = [Change::Remove { number: id.number, is_plain: false }, known.store_head()];
        self.commit(rows, now, &changes)
    }
}

impl Known {
    fn find<R: Rows>(&self, rows: &R, id: &JobId) -> Result<Row, Fault<R::Error>> {
        if id.made != self.head.settings.made_at {
            return Err(no_job().into());
        }
        match rows.job(id.number).map_err(Fault::Storage)? {
            Some(Found::Plain(plain)) if plain.number > self.purges_up_to() || self.is_held(plain.number) => {
                Ok(Row { is_in_line: true, ..Row::of_plain(plain) })
            }
            Some(Found::Row(row)) => Ok(row),
            Some(Found::Plain(_)) | None => Err(no_job().into()),
        }
    }

    fn is_held(&self, number: u64) -> bool {
        self.by_job.contains_key(&number)
    }

    fn find_dead<R: Rows>(&self, rows: &R, id: &JobId) -> Result<Row, Fault<R::Error>> {
        let row = self.find(rows, id)?;
        if row.death.is_none() {
            let detail =
                "The job is not a dead letter. Only dead letters can be edited, redriven or deleted.";
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        Ok(row)
    }

    /// A job with its body.
    pub fn whole(&self, now: Timestamp, partition: u32, number: u64, row: Row, content: Content) -> JobView {
        let (content_type, body, text, base64) = content.into_fields();
        let view = self.view(now, self.id(partition, number), row);
        JobView { content_type: Some(content_type), body, text, base64, ..view }
    }

    fn view(&self, now: Timestamp, id: JobId, row: Row) -> JobView {
        let holder = self.by_job.get(&id.number).and_then(|nonce| self.leases.get(nonce));
        let hold = holder.and_then(|holds| holds.get(&id.number));
        let (status, until, attempts) = match hold {
            Some(hold) => (JobStatus::InFlight, Some(hold.until), hold.attempt),
            None if row.death.is_some() => (JobStatus::Dead, None, row.attempts),
            None if row.due > now => (JobStatus::Delayed, Some(row.due), row.attempts),
            None => (JobStatus::Queued, Some(row.due).filter(|_| row.is_in_line), row.attempts),
        };
        JobView {
            id,
            status,
            attempts,
            sent_at: row.sent_at,
            until,
            priority: row.priority,
            group: row.group,
            url: row.to,
            death: row.death,
            size: row.size,
            content_type: None,
            body: None,
            text: None,
            base64: None,
        }
    }
}
