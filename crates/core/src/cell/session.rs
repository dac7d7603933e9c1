//! What a program may ask for its run, and for no other.

use std::rc::Rc;

use stepwell_protocol::{
    Code, Epoch, Event, Outcome, PROTOCOL, Payload, Record, Seq, Timestamp,
    program::{Activation, Answer, Beat, Commit, News, RawPage, RawRecord},
    wait_token::Issuer,
};

use super::{
    Cell, Rows,
    tokens::news_of_waits,
    unreadable::{unreadable, unreadable_or_failed},
};
use crate::{
    object::{Fault, Hosted as _},
    run::{Entry, Input, Reply, Run, invocations},
};

impl Cell {
    /// What a program is called with. Refused if its run has ended, was paused, or was activated again since the call
    /// was ordered.
    pub fn activation<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: Epoch,
    ) -> Result<Activation<RawPage>, Fault<R::Error>> {
        let now = self.now(clock);
        let run = self.run(rows, number)?;
        if !run.is_held_by(epoch) {
            return Err(run.stale(epoch).into());
        }
        let (input, mut journal) = match self.read_for_activation(rows, &run) {
            Ok(read) => read,
            Err(fault) => {
                if matches!(&fault, Fault::Rejected(problem) if problem.code == Code::RunUnreadable) {
                    // Called again, it would find the same: it stops, and says why.
                    self.drive(rows, now, number, |_| Input::Unreadable)?;
                }
                return Err(fault);
            }
        };
        // A program that cannot be reached, and one that kills what it runs in, look the same. Asked to fetch
        // the rest of its journal first, the second one is heard of before it dies.
        journal.more |= run.has_losses();
        let let_in = run.told_of_places();
        let trace = self.traced(&run).map(Box::new);
        let run = Rc::unwrap_or_clone(run);
        Ok(Activation {
            protocol: PROTOCOL,
            workflow: run.workflow,
            epoch: run.epoch,
            seed: format!("{:016x}", run.seed),
            now,
            started_at: run.created_at,
            life: run.life,
            input,
            journal,
            patches: run.patches,
            attributes: run.attributes,
            budget: self.budget,
            // The host signs and brings keys: secrets are none of a machine's. It goes by the key that the run has used.
            let_in,
            trace,
            followed: self.watching.has(number),
            tokens: run.token_key.map(|key| Box::new(Issuer { key, ..Issuer::default() })),
            signature: None,
            run: run.id,
        })
    }

    /// What a run was started with, and the first page of its journal.
    fn read_for_activation<R: Rows>(
        &mut self,
        rows: &R,
        run: &Run,
    ) -> Result<(Payload, RawPage), Fault<R::Error>> {
        let number = run.id.number;
        // Of a run that has just been started everything is known: no row has to be read.
        let input = match self.inputs.remove(&number) {
            Some(input) => input,
            None => rows.input(number).map_err(unreadable_or_failed::<R>)?,
        };
        let is_empty = run.last_counted() == Seq(0);
        let journal = if is_empty { RawPage::default() } else { read_page(rows, run, Seq(0))? };
        Ok((input, journal))
    }

    /// The journal after a position, for an activation that may still report. Any other could be shown a journal that
    /// is being deleted: it would take what is left for all of it, and run recorded steps again.
    pub fn page<R: Rows>(
        &self,
        rows: &R,
        number: u64,
        epoch: Epoch,
        after: Seq,
    ) -> Result<RawPage, Fault<R::Error>> {
        let run = self.run(rows, number)?;
        run.check_reporter(epoch)?;
        read_page(rows, &run, after)
    }

    /// A program has said something, whatever it is: its cell goes on waiting for it. If its connection breaks now, and
    /// not for the first time, that may be its own fault.
    pub fn heard_from(&mut self, clock: Timestamp, number: u64, epoch: Epoch) {
        let now = self.now(clock);
        self.window.hear(now, number, epoch);
        let has_losses = self.runs.get(&number).is_some_and(|run| run.has_losses());
        if has_losses && self.window.holds(number, epoch) {
            self.reached.insert((number, epoch));
        }
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
        let committed = self.take_commit(rows, clock, number, epoch, commit, hash);
        if let Err(Fault::Storage(_)) = &committed {
            self.unstored.insert(number, epoch);
        } else {
            self.unstored.remove(&number);
        }
        committed
    }

    fn take_commit<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: Epoch,
        commit: Commit,
        hash: u64,
    ) -> Result<Answer, Fault<R::Error>> {
        let now = self.now(clock);
        self.window.hear(now, number, epoch);
        let head = match self.runs.get(&number) {
            Some(run) => run.head,
            None => self.run(rows, number)?.head,
        };
        let base = commit.base;
        // What was cut off a journal leaves a gap in its positions, which nobody can foresee.
        let told = if base == head { commit.told() } else { commit.commands.len() };
        let mut commit = Commit { epoch, ..commit };
        if !commit.published.is_empty() {
            let published = std::mem::take(&mut commit.published);
            match self.publish(rows, now, number, epoch, published) {
                // What becomes of the commit is the run's decision.
                Ok(()) | Err(Fault::Rejected(_)) => {}
                Err(fault @ (Fault::Storage(_) | Fault::Moved(_))) => return Err(fault),
            }
        }
        let run = self.run(rows, number)?;
        commit.over = news_of_waits(rows, &run, commit.over)?;
        let homes = match invocations(&commit.commands) {
            0 => Vec::new(),
            count => self.homes(&run, count),
        };
        let decision = self.drive_run(rows, now, run, None, |_| Input::Commit { commit, hash, homes })?;
        // What it was at work on may have ended.
        self.steps.remove(&number);
        // Progress may have given the window back to others.
        self.dispatch(rows, now);
        match decision.reply {
            Reply::Done | Reply::Stop | Reply::Unchanged => Ok(Answer::Stop),
            Reply::Go => {
                let mut news = Vec::new();
                if base < head {
                    let run = self.run(rows, number)?;
                    let (before, more) = news_after(rows, &run, base)?;
                    if more {
                        news.extend(before.into_iter().map(News::Record).chain([News::More]));
                        return Ok(self.go(number, now, news));
                    }
                    let before = before.into_iter().filter(|record| record.seq <= head);
                    news.extend(before.map(News::Record));
                }
                // A program that foresees has its own news already.
                let recorded = decision.entries.iter().filter_map(Entry::record);
                news.extend(recorded.enumerate().take(told).map(tell));
                Ok(self.go(number, now, news))
            }
        }
    }

    /// A program is at work on these steps, and has nothing else to say. Refused if it need not go on.
    pub fn beat<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        number: u64,
        epoch: Epoch,
        beat: Beat,
    ) -> Result<Answer, Fault<R::Error>> {
        let now = self.now(clock);
        self.window.hear(now, number, epoch);
        self.drive(rows, now, number, |_| Input::Heard { epoch })?;
        self.note_steps(now, number, epoch, beat);
        Ok(self.go(number, now, Vec::new()))
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
        run.check_reporter(epoch)?;
        let (news, more) = news_after(rows, &run, after)?;
        let news = news.into_iter().map(News::Record).chain(more.then_some(News::More));
        Ok(self.go(number, now, news.collect()))
    }

    /// What a program of this run is answered that goes on.
    pub(super) fn go(&self, number: u64, now: Timestamp, news: Vec<News>) -> Answer {
        Answer::Go { now, news, followed: self.watching.has(number) }
    }
}

/// What counts of a journal after a position, as much as goes into a page, and whether there is more. An answer without a
/// bound would not fit into memory: a run may be sent a hundred signals of 2 MB while it is at work.
fn news_after<R: Rows>(rows: &R, run: &Run, after: Seq) -> Result<(Vec<Record>, bool), Fault<R::Error>> {
    if after >= run.head {
        return Ok((Vec::new(), false));
    }
    let page = read_page(rows, run, after)?;
    let records = page.events.into_iter().map(|RawRecord { seq, at, event }| {
        let event = event.read().map_err(|_| Fault::Rejected(unreadable()))?;
        Ok(Record { seq, at, event })
    });
    Ok((records.collect::<Result<_, Fault<R::Error>>>()?, page.more))
}

/// The journal after a position, without what was cut.
fn read_page<R: Rows>(rows: &R, run: &Run, after: Seq) -> Result<RawPage, Fault<R::Error>> {
    // What earlier lives have left behind may be many pages, of which nothing counts.
    let mut after = run.skip_cuts(after);
    loop {
        let mut page = rows.page(run.id.number, after).map_err(unreadable_or_failed::<R>)?;
        let last = page.events.last().map(|record| record.seq);
        page.events.retain(|record| run.counts(record.seq));
        match last {
            // An empty page would look like the end.
            Some(last) if page.events.is_empty() && page.more => after = run.skip_cuts(last),
            Some(_) | None => return Ok(page),
        }
    }
}

/// The program's own results are not sent back to it.
fn tell((command, record): (usize, &Record)) -> News {
    match *record {
        Record { seq, at, event: Event::StepFinished { outcome: Outcome::Ok(_), .. } } => {
            News::Yours { seq, at, command }
        }
        ref record => News::Record(record.clone()),
    }
}
