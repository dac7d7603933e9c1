//! What a cell writes to other objects: how runs invoke, cancel and hear of each other.
//!
//! Owns: which messages follow from what happened to a run, and what their answers change. Does not own: their way
//! ([`crate::object::Outbox`]), and what they do where they arrive (`arrivals.rs`).
//!
//! A child is known in its cell by a key that no caller can write: its parent and the place of the invocation in the
//! parent's journal. So a start that comes twice starts one run, and a cancel finds it without its id. A cell that is full
//! sends such a key on to another cell, for good, and never starts its run: see [`super::keys`]. When the child ends, its
//! cell tells the one that has sent it on, which forgets the key a week later.

use stepwell_protocol::{
    Code, Event, Failure, OnClose, Op, Outcome, Parent, Place, Problem, Record, RunId, Seq, Timestamp,
    lane::Ticket, outbox::MessageHead, rest::Status, topic::parts,
};

use super::{
    Cell, Rows, Sought,
    callbacks::callback,
    events::{lapsed, waits},
};
use crate::{
    object::{
        Address, Arrival, Delivery, Discarded, Envelope, Fault, Hosted as _, Letter, Message, Receipt,
        Sending,
    },
    ordered::OrdSet,
    run::{Entry, Input, Outgoing, Run, Slot},
};

/// What a commit does to the outbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mail {
    /// Letters to be stored.
    pub post: Vec<Letter>,
    /// A letter of which all has arrived.
    pub done: Option<u64>,
}

impl Mail {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.post.is_empty() && self.done.is_none()
    }
}

/// A number for the choice of another cell: the same for the same child.
fn draw(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The key of a child. No workflow's name is empty, so no caller's key looks like it.
pub fn child_key(parent: &RunId, invoked: Seq) -> String {
    format!("\nchild\n{parent}\n{}", invoked.0)
}

impl Cell {
    /// Where the children go that a commit of this run invokes: each to any cell of the pool, and the same again if the
    /// commit is repeated.
    pub(super) fn homes(&self, run: &Run, count: usize) -> Vec<Place> {
        let home = |index: usize| match &self.pool {
            Some(pool) => pool.any(run.draw_for_child(index)),
            None => run.id.place.clone(),
        };
        (0..count).map(home).collect()
    }

    /// What has to be written to others about what happens to a run, whose state before it is `run`. Adds to the entries
    /// which children it lets go of.
    pub(super) fn mail_of<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        run: &Run,
        entries: &mut Vec<Entry>,
        outgoing: Outgoing,
    ) -> Result<Vec<Letter>, Fault<R::Error>> {
        let end = entries.iter().find_map(outcome_of);
        let tells = run.parent.as_ref().filter(|parent| end.is_some() && !parent.abandoned);
        let how = entries.iter().find_map(status_after);
        let station = how.and_then(|how| {
            let ticked = run.ticked.as_ref()?;
            Some((ticked, ticked.tells.as_deref()?, how))
        });
        let parent = run.parent.as_ref().filter(|_| end.is_some());
        // Its lane asks about such a ticket seldom, so it is told by a letter.
        let keeps = run.lane.as_ref().is_some_and(|lane| lane.keeps());
        let kept = run.ticket().filter(|_| end.is_some() && keeps && self.is_done(run, entries));
        let unbinds = parent.and_then(|parent| Some((parent, parent.home.as_ref()?)));
        let calls_back = run.callback.is_some() && end.is_some();
        let leaves: OrdSet<_> = leaves(run, entries).into_iter().collect();
        let (waits, lapsed) = (waits(run, entries), lapsed(run, now, entries));
        if outgoing.is_empty()
            && waits.is_empty()
            && lapsed.is_empty()
            && tells.is_none()
            && unbinds.is_none()
            && station.is_none()
            && kept.is_none()
            && !calls_back
            && leaves.is_empty()
        {
            return Ok(Vec::new());
        }
        let namespace = rows.namespace().map_err(Fault::Storage)?;
        let mut envelopes = addressed(self, run, &namespace, entries, outgoing);
        envelopes.extend(Self::registrations(rows, now, run, &namespace, waits)?);
        for (topic, message) in lapsed {
            envelopes.push(Envelope { to: Address::topic(&namespace, &topic), message });
        }
        let mut let_go = Vec::new();
        for Left { seq, to, on_close } in find_invocations(rows, run, entries, &leaves)? {
            if on_close == OnClose::Cancel {
                let_go.push(seq);
                let message = Message::Cancel { parent: run.id.clone(), invoked: seq };
                envelopes.push(Envelope { to: Address::cell(&namespace, &to), message });
            }
        }
        // After its end it hears only of those that go on by themselves.
        if end.is_some() && !let_go.is_empty() {
            entries.push(Entry::LetGo(let_go));
        }
        if let (Some(parent), Some(outcome)) = (tells, end) {
            let to = Address::cell(&namespace, &parent.run.place);
            let message = Message::Ended { parent: parent.clone(), run: run.id.clone(), outcome };
            envelopes.push(Envelope { to, message });
        }
        if let Some((parent, home)) = unbinds {
            let message =
                Message::Unbind { parent: parent.run.clone(), invoked: parent.invoked, run: run.id.clone() };
            envelopes.push(Envelope { to: Address::cell(&namespace, home), message });
        }
        if let Some((ticked, shard, how)) = station {
            let to = Address::schedules(&namespace, shard);
            let message = Message::TickEnded { ticked: ticked.clone(), run: run.id.clone(), how };
            envelopes.push(Envelope { to, message });
        }
        if let Some(number) = kept {
            let ticket = Ticket::of_run(run.id.clone(), number);
            let to = Address::lane(&namespace, run.lane_name());
            envelopes.push(Envelope { to, message: Message::TicketOver { ticket } });
        }
        envelopes.extend(callback(run, &namespace, entries));
        let first = self.object.outbox().next_id(rows).map_err(Fault::Storage)?;
        Ok(Letter::pack(first, now, envelopes))
    }

    /// After a commit: what it has written goes out.
    pub(super) fn posted(&mut self, letters: &[Letter]) {
        for letter in letters {
            self.object.outbox().posted(letter);
        }
    }

    /// Sends what may go out now. If the rows cannot be read, the alarm tries again.
    pub(super) fn send_mail<R: Rows>(&mut self, rows: &R, now: Timestamp) {
        let sent = self.object.send(rows, now);
        let is_all = self.hold_back(rows, now);
        self.name_spares();
        // Others may go out instead.
        if sent.is_err() || !is_all {
            self.look_again(now);
        }
    }

    /// Takes out starts of dead letters whose parents do not wait for them any more. Such a letter may be sent for longer
    /// than a child is known by its invocation, so the child might run again. Says whether there were none.
    fn hold_back<R: Rows>(&mut self, rows: &R, now: Timestamp) -> bool {
        let is_revived = |sending: &Sending| matches!(sending.message, Message::Start { revived: true, .. });
        if !self.object.sends().iter().any(is_revived) {
            return true;
        }
        let sends = std::mem::take(self.object.sends());
        let before = sends.len();
        for sending in sends {
            let wanted = match &sending.message {
                Message::Start { parent, invocation, revived: true, .. } => {
                    self.awaited(rows, parent, invocation.detached)
                }
                Message::Start { .. }
                | Message::Ended { .. }
                | Message::TickEnded { .. }
                | Message::Emitted { .. }
                | Message::Waits { .. }
                | Message::WaitOver { .. }
                | Message::TicketOver { .. }
                | Message::Job { .. }
                | Message::Callback { .. }
                | Message::Cancel { .. }
                | Message::Unbind { .. } => Ok(true),
            };
            if matches!(wanted, Ok(true)) {
                self.object.sends().push(sending);
            } else if wanted.and_then(|_| self.done_with(rows, &sending)).is_err() {
                self.object.outbox().early(now, &sending.to, sending.letter, sending.index);
            }
        }
        self.object.sends().len() == before
    }

    /// Whether a parent still waits for a child's end, or to hear that one is started which it does not wait for.
    fn awaited<R: Rows>(
        &self,
        rows: &R,
        parent: &Parent,
        is_detached: bool,
    ) -> Result<bool, Fault<R::Error>> {
        let run = self.kept(rows, parent.run.number)?.filter(|run| run.id == parent.run);
        match run.filter(|run| run.children.contains(parent.invoked)) {
            Some(run) if is_detached => Ok(!has_started(rows, &run, parent)?),
            found => Ok(found.is_some()),
        }
    }

    /// A message has had its effect: with the last one, its letter goes.
    fn done_with<R: Rows>(&mut self, rows: &R, sent: &Sending) -> Result<(), Fault<R::Error>> {
        let Sending { letter, index, to, .. } = sent;
        if self.object.outbox().would_arrive(to, *letter, *index) == Arrival::Whole {
            rows.forget_letter(*letter).map_err(Fault::Storage)?;
        }
        self.object.outbox().arrived(to, *letter, *index);
        Ok(())
    }

    /// Says where children go whose cells turn out to be full, and which cell has sent them on. By the pool as it is now:
    /// it may have grown since they were invoked, and for that reason.
    fn name_spares(&mut self) {
        let Some(pool) = &self.pool else { return };
        for Sending { to, home, message, .. } in self.object.sends() {
            if let Message::Start { parent, spare, .. } = message
                && let (Ok(full), Ok(home)) = (to.name.parse(), home.name.parse())
            {
                *spare = pool.instead_of(&full, &home, draw(&child_key(&parent.run, parent.invoked)));
                parent.home = (full != home).then_some(home);
            }
        }
    }

    /// What became of a message.
    pub fn delivered<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        sent: &Sending,
        delivery: Delivery,
    ) -> Result<(), Fault<R::Error>> {
        let now = self.now(clock);
        let Sending { letter, index, to, .. } = sent;
        let result = match delivery {
            Delivery::Failed => {
                let is_dead = self.object.outbox().failed(now, to, *letter, *index);
                self.bury_if(rows, *letter, is_dead)
            }
            Delivery::Postponed
                if matches!(sent.message, Message::Start { .. })
                    && self.object.outbox().is_old(now, *letter) =>
            {
                self.renew_start(rows, now, sent)
            }
            Delivery::Declined | Delivery::Postponed | Delivery::Arrived(Receipt::Later) => {
                let is_dead = self.object.outbox().early(now, to, *letter, *index);
                self.bury_if(rows, *letter, is_dead)
            }
            Delivery::Arrived(Receipt::Moved { to: place }) => {
                let next = Address::cell(&to.namespace, &place);
                self.object.outbox().sent_on(now, to, *letter, *index, next);
                Ok(())
            }
            Delivery::Refused(_) if !matches!(sent.message, Message::Start { .. }) => {
                self.bury_message(rows, sent).map(drop)
            }
            Delivery::Refused(problem) => {
                let failure = Failure::coded(problem.code, problem.detail);
                self.conclude(rows, now, sent, |(op, invoked), slot| {
                    let outcome = Outcome::Err(failure);
                    Input::ChildFinished { op, invoked, run: None, outcome, slot }
                })
            }
            Delivery::Arrived(Receipt::Started { run }) if starts_detached(&sent.message) => {
                let abandoned = matches!(&sent.message, Message::Start { parent, .. } if parent.abandoned);
                self.conclude(rows, now, sent, |(op, invoked), slot| Input::ChildStarted {
                    op,
                    invoked,
                    run,
                    abandoned,
                    slot,
                })
            }
            Delivery::Arrived(
                Receipt::Started { .. }
                | Receipt::Joined { .. }
                | Receipt::Taken
                | Receipt::Gone
                | Receipt::Passed,
            ) => self.done_with(rows, sent),
        };
        if result.is_err() {
            // It goes out again after a while, which does no harm.
            self.object.outbox().early(now, to, *letter, *index);
        }
        self.dispatch(rows, now);
        result
    }

    /// A person wants a letter to be sent again. Says whether it was dead.
    pub fn redeliver<R: Rows>(
        &mut self,
        rows: &R,
        clock: Timestamp,
        letter: u64,
    ) -> Result<bool, Fault<R::Error>> {
        let now = self.now(clock);
        let was_dead = rows.revive_letter(letter, now).map_err(Fault::Storage)?.ok_or_else(no_such_letter)?;
        self.object.outbox().hurry();
        self.dispatch(rows, now);
        Ok(was_dead)
    }

    /// A person gives up on a dead letter. Gives what it said. Nobody who waits for it is told.
    pub fn discard<R: Rows>(&mut self, rows: &R, letter: u64) -> Result<Vec<MessageHead>, Fault<R::Error>> {
        match rows.discard_letter(letter).map_err(Fault::Storage)?.ok_or_else(no_such_letter)? {
            Discarded::Dead(heads) => Ok(heads),
            Discarded::Alive => {
                let detail = "The letter is still being delivered. Only a dead letter can be discarded.";
                Err(Problem::new(Code::WrongStatus, detail).into())
            }
        }
    }

    fn bury_if<R: Rows>(&mut self, rows: &R, letter: u64, is_dead: bool) -> Result<(), Fault<R::Error>> {
        if is_dead {
            rows.bury_letter(letter).map_err(Fault::Storage)?;
            self.object.outbox().drop_letter(letter);
        }
        Ok(())
    }

    /// Lays a message aside that would be refused again: a person has to look. The others of its letter go on, in a letter
    /// of their own; those that are under way go out once more, since their answers are about the old one. Gives the dead
    /// letter's number; nothing, if the message was answered before.
    fn bury_message<R: Rows>(&mut self, rows: &R, sent: &Sending) -> Result<Option<u64>, Fault<R::Error>> {
        let Sending { letter, index, to, .. } = sent;
        let arrival = self.object.outbox().would_arrive(to, *letter, *index);
        let found = match arrival {
            // It was answered before.
            Arrival::Unknown => return Ok(None),
            Arrival::Whole | Arrival::Part => rows.letter(*letter).map_err(Fault::Storage)?,
        };
        let Some(Letter { posted_at, mut envelopes, .. }) =
            found.filter(|found| found.envelopes.len() > 1 && *index < found.envelopes.len())
        else {
            self.bury_if(rows, *letter, true)?;
            return Ok(Some(*letter));
        };
        let first = self.object.outbox().next_id(rows).map_err(Fault::Storage)?;
        let dead = Letter { id: first, posted_at, envelopes: vec![envelopes.remove(*index)] };
        let rest = Letter { id: first + 1, posted_at, envelopes };
        let rest = (arrival == Arrival::Part).then_some(rest);
        rows.split_letter(*letter, &dead, rest.as_ref()).map_err(Fault::Storage)?;
        let outbox = self.object.outbox();
        outbox.drop_letter(*letter);
        outbox.laid_aside(&dead);
        if let Some(rest) = &rest {
            outbox.posted(rest);
        }
        Ok(Some(dead.id))
    }

    /// A start that waits for a person for days does not get too old for that. From now on it goes out only while its
    /// parent waits for it, in a letter of its own: what was written with it must not be heard twice.
    fn renew_start<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        sent: &Sending,
    ) -> Result<(), Fault<R::Error>> {
        let Some(dead) = self.bury_message(rows, sent)? else { return Ok(()) };
        rows.revive_letter(dead, now).map_err(Fault::Storage)?;
        if let Some(renewed) = rows.letter(dead).map_err(Fault::Storage)? {
            self.object.outbox().posted(&renewed);
        }
        Ok(())
    }

    /// The answer to a start matters to the run that sent it: it is recorded with the end of its letter.
    fn conclude<R: Rows>(
        &mut self,
        rows: &R,
        now: Timestamp,
        sent: &Sending,
        input: impl FnOnce((Op, Seq), Option<Slot>) -> Input,
    ) -> Result<(), Fault<R::Error>> {
        let Message::Start { parent, .. } = &sent.message else { return Ok(()) };
        let done = match self.object.outbox().would_arrive(&sent.to, sent.letter, sent.index) {
            Arrival::Whole => Some(sent.letter),
            Arrival::Part => None,
            // It was answered before.
            Arrival::Unknown => return Ok(()),
        };
        let (op, invoked) = (parent.op.clone(), parent.invoked);
        if let Some(run) = self.kept(rows, parent.run.number)?.filter(|run| run.id == parent.run)
            && run.children.contains(invoked)
            && !has_started(rows, &run, parent)?
        {
            self.drive_mail(rows, now, run.into(), None, done, |slot| input((op, invoked), slot))?;
        } else if let Some(letter) = done {
            rows.forget_letter(letter).map_err(Fault::Storage)?;
        }
        self.object.outbox().arrived(&sent.to, sent.letter, sent.index);
        Ok(())
    }
}

/// What a run's program sends to others, and where it goes.
fn addressed(
    cell: &Cell,
    run: &Run,
    namespace: &str,
    entries: &[Entry],
    outgoing: Outgoing,
) -> Vec<Envelope> {
    let Outgoing { invoked, emitted, jobs } = outgoing;
    let mut envelopes = Vec::new();
    for (seq, invocation) in invoked {
        let Some((op, to)) = entries.iter().find_map(|entry| invoked_at(entry, seq)) else { continue };
        let abandoned = invocation.detached && invocation.on_close == OnClose::Abandon;
        let parent = Parent {
            trace: cell.invocation_span(run, seq).map(Box::new),
            run: run.id.clone(),
            op,
            invoked: seq,
            depth: run.depth().saturating_add(1),
            abandoned,
            home: None,
        };
        let to = Address::cell(namespace, &to);
        let message = Message::Start { parent, invocation, spare: None, revived: false };
        envelopes.push(Envelope { to, message });
    }
    for event in emitted {
        let Some((topic, _)) = parts(&event.name) else { continue };
        let to = Address::topic(namespace, topic);
        let message = Message::Emitted { run: run.id.clone(), event: Box::new(event) };
        envelopes.push(Envelope { to, message });
    }
    for (seq, job) in jobs {
        // The first partition knows which one it belongs to.
        let to = Address::queue(namespace, &job.queue, 0);
        envelopes.push(Envelope { to, message: Message::Job { run: run.id.clone(), seq, job } });
    }
    envelopes
}

fn no_such_letter() -> Problem {
    let detail = "There is no letter with this name. It has arrived, was discarded, or never existed.";
    Problem::new(Code::LetterNotFound, detail)
}

/// The children that a run does not wait for any more after these entries.
fn leaves(run: &Run, entries: &[Entry]) -> Vec<Seq> {
    let invokes = |entry: &Entry| {
        entry.record().is_some_and(|record| matches!(record.event, Event::ChildInvoked { .. }))
    };
    if run.children.is_empty() && !entries.iter().any(invokes) {
        return Vec::new();
    }
    let mut children: OrdSet<_> = run.children.iter().collect();
    let mut leaves = Vec::new();
    for entry in entries {
        if let Some(record) = entry.record() {
            if let Event::ChildInvoked { .. } = &record.event {
                children.insert(record.seq);
            } else if let Event::ChildFinished { invoked, run, outcome, .. } = &record.event
                && children.remove(invoked)
                // A child that has ended is known.
                && run.is_none()
                && matches!(outcome, Outcome::Err(failure) if failure.code == Some(Code::ChildTimedOut))
            {
                leaves.push(*invoked);
            }
        } else if let Entry::Rewound(cuts) = entry {
            let is_cut = |seq: &Seq| cuts.iter().any(|cut| cut.after < *seq && *seq <= cut.through);
            leaves.extend(children.iter().copied().filter(is_cut));
            children.retain(|seq| !is_cut(seq));
        } else if is_end(entry) || matches!(entry, Entry::BegunAnew { .. }) {
            leaves.extend(std::mem::take(&mut children));
        }
    }
    leaves
}

pub(super) fn is_end(entry: &Entry) -> bool {
    matches!(entry, Entry::Completed { .. } | Entry::Failed { .. } | Entry::Cancelled { .. })
}

/// How a run ended, as its parent is told.
fn outcome_of(entry: &Entry) -> Option<Outcome> {
    if let Entry::Completed { output, .. } = entry {
        Some(Outcome::Ok(output.clone()))
    } else if let Entry::Failed { failure, .. } = entry {
        Some(Outcome::Err(Failure { terminal: true, ..failure.clone() }))
    } else if let Entry::Cancelled { .. } = entry {
        Some(Outcome::Err(Failure::coded(Code::ChildCancelled, Code::ChildCancelled.title())))
    } else {
        None
    }
}

/// Where a run stands after its end.
fn status_after(entry: &Entry) -> Option<Status> {
    if let Entry::Completed { .. } = entry {
        Some(Status::Completed)
    } else if let Entry::Failed { .. } = entry {
        Some(Status::Failed)
    } else if let Entry::Cancelled { .. } = entry {
        Some(Status::Cancelled)
    } else {
        None
    }
}

fn starts_detached(message: &Message) -> bool {
    matches!(message, Message::Start { invocation, .. } if invocation.detached)
}

/// What was invoked at a position, and where it goes, if this entry says so.
fn invoked_at(entry: &Entry, seq: Seq) -> Option<(Op, Place)> {
    let record = entry.record().filter(|record| record.seq == seq)?;
    if let Event::ChildInvoked { op, to, .. } = &record.event { Some((op.clone(), to.clone())) } else { None }
}

/// A child that a run does not wait for any more.
struct Left {
    /// Where its invocation is.
    seq: Seq,
    /// The cell that got it.
    to: Place,
    /// What becomes of it.
    on_close: OnClose,
}

impl Left {
    fn of(record: &Record) -> Option<Self> {
        if let Event::ChildInvoked { to, on_close, .. } = &record.event {
            Some(Self { seq: record.seq, to: to.clone(), on_close: *on_close })
        } else {
            None
        }
    }
}

/// The children of these invocations. What cannot be read is left out: nobody could end the run otherwise, and its child
/// goes on by itself.
fn find_invocations<R: Rows>(
    rows: &R,
    run: &Run,
    entries: &[Entry],
    invoked: &OrdSet<Seq>,
) -> Result<Vec<Left>, Fault<R::Error>> {
    let mut found: Vec<_> = entries.iter().filter_map(Entry::record).filter_map(Left::of).collect();
    found.retain(|left| invoked.contains(&left.seq));
    let mut stored = invoked.iter().copied().filter(|seq| *seq <= run.head).peekable();
    while let Some(first) = stored.next() {
        // As many as are next to each other.
        let mut last = first;
        while let Some(next) = stored.next_if_eq(&Seq(last.0 + 1)) {
            last = next;
        }
        let mut after = before(first);
        while after < last {
            let page = match rows.find(run.id.number, &Sought::Through(last), after) {
                Ok(page) => page,
                Err(error) if R::is_unreadable(&error) => break,
                Err(error) => return Err(Fault::Storage(error)),
            };
            let Some(end) = page.last().map(|record| record.seq) else { break };
            found.extend(page.iter().filter_map(Left::of));
            after = end;
        }
    }
    Ok(found)
}

fn before(seq: Seq) -> Seq {
    Seq(seq.0.saturating_sub(1))
}

/// Whether a run does not wait for the child of an invocation.
pub(super) fn is_detached<R: Rows>(rows: &R, run: &Run, invoked: Seq) -> Result<bool, Fault<R::Error>> {
    let found =
        rows.find(run.id.number, &Sought::Through(invoked), before(invoked)).map_err(Fault::Storage)?;
    let event = found.first().map(|record| &record.event);
    Ok(matches!(event, Some(Event::ChildInvoked { detached: true, .. })))
}

/// Whether it is on record that a child is started which a run does not wait for: its letter may hold other messages, and
/// go out once more for them. An invocation has two events after it at the most, so the first that are found are all.
fn has_started<R: Rows>(rows: &R, run: &Run, parent: &Parent) -> Result<bool, Fault<R::Error>> {
    let found = rows.find(run.id.number, &Sought::Of(&parent.op), parent.invoked).map_err(Fault::Storage)?;
    let is_it =
        |event: &Event| matches!(event, Event::ChildStarted { invoked, .. } if *invoked == parent.invoked);
    Ok(found.iter().any(|record| is_it(&record.event)))
}
