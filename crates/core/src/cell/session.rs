//! What a program may ask for its run, and for no other.

use stepwell_protocol::{
    Code, Epoch, Event, Outcome, PROTOCOL, Problem, Record, Seq, Timestamp,
    program::{Activation, Answer, Commit, News, RawPage},
};

use super::{Cell, Fault, Rows};
use crate::run::{Entry, Input, Reply};

impl Cell {
    /// What a program is called with.
    pub fn activation<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
    ) -> Result<Activation<RawPage>, Fault<R::Error>> {
        let now = self.now(clock);
        let run = self.run(rows, number)?;
        Ok(Activation {
            protocol: PROTOCOL,
            workflow: run.workflow,
            epoch: run.epoch,
            seed: format!("{:016x}", run.seed),
            now,
            started_at: run.created_at,
            input: rows.input(number).map_err(Fault::Storage)?,
            journal: rows.page(number, Seq(0)).map_err(Fault::Storage)?,
            run: run.id,
        })
    }

    /// A program reports. Whatever its message says, it speaks for the activation that its session is for.
    pub fn commit<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: Epoch,
        commit: Commit,
        hash: u64,
    ) -> Result<Answer, Fault<R::Error>> {
        let now = self.now(clock);
        let (base, head) = (commit.base, self.run(rows, number)?.head);
        let commit = Commit { epoch, ..commit };
        let decision = self.drive(rows, now, number, |_| Input::Commit { commit, hash })?;
        // Progress may have given the window back to others.
        self.dispatch(rows, now);
        match decision.reply {
            Reply::Done | Reply::Stop | Reply::Unchanged => Ok(Answer::Stop),
            Reply::Go => {
                let before = rows.records(number, base, head).map_err(Fault::Storage)?;
                let mut news: Vec<_> = before.into_iter().map(News::Record).collect();
                news.extend(decision.entries.into_iter().filter_map(recorded).enumerate().map(tell));
                Ok(Answer::Go { now, news })
            }
        }
    }

    /// What happened after a position, for a program that listens; nothing if it should wait.
    pub fn news<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: Epoch,
        after: Seq,
    ) -> Result<Answer, Fault<R::Error>> {
        let now = self.now(clock);
        let run = self.run(rows, number)?;
        if !run.is_held_by(epoch) {
            let detail = format!("The run is {} at activation {}.", run.status().as_str(), run.epoch.0);
            return Err(Problem::new(Code::StaleEpoch, detail).into());
        }
        let news = rows.records(number, after, run.head).map_err(Fault::Storage)?;
        Ok(Answer::Go { now, news: news.into_iter().map(News::Record).collect() })
    }
}

fn recorded(entry: Entry) -> Option<Record> {
    match entry {
        Entry::Recorded { record, .. } => Some(record),
        Entry::Marked(_)
        | Entry::OpenChanged(_)
        | Entry::Troubled(_)
        | Entry::Queued { .. }
        | Entry::Activated { .. }
        | Entry::Orphaned { .. }
        | Entry::Suspended
        | Entry::Paused(_)
        | Entry::Completed { .. }
        | Entry::Failed { .. }
        | Entry::Cancelled { .. } => None,
    }
}

/// The program's own results are not sent back to it.
fn tell((command, record): (usize, Record)) -> News {
    match record {
        Record { seq, at, event: Event::StepFinished { outcome: Outcome::Ok(_), .. } } => {
            News::Yours { seq, at, command }
        }
        record => News::Record(record),
    }
}
