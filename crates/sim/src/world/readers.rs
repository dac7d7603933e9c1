//! Streams: clients that follow runs, lose their connections, and come back with their cursors.
//!
//! A connection is a socket between a client and one instance of a cell. It keeps the order of what is sent on it until it
//! breaks: with the instance, by chance, or because the client leaves. What was under way then is lost.

use stepwell_core::{
    object::Fault,
    stream::{Batch, Cursor, Kinds, Reader},
};
use stepwell_protocol::{
    Record, RunId, Seq,
    stream::{Kind, StatusView, StreamEvent},
};

use super::{
    World,
    events::{Event, Outgoing},
};
use crate::{
    host::{Connection, Refused},
    sabotage::Sabotage,
};

/// How long a cell gathers what is new before it serves readers.
const GATHER_MS: u64 = 20;

/// How long something is under way on a connection.
const WIRE_MS: u64 = 3;

/// How long a client waits for its connection before it tries another.
const PATIENCE_MS: u64 = 3_000;

/// A client that follows a run.
pub(super) struct Follower {
    cell: usize,
    run: RunId,
    /// The cursor of the last event that it has seen.
    cursor: Cursor,
    /// The last position of the journal that it has seen.
    seen: Seq,
    /// Its latest connection.
    connection: u32,
    /// Whether it has heard anything on that connection.
    is_open: bool,
    /// Whether it was told that there is nothing more to see.
    is_over: bool,
}

/// What is sent to a follower at once.
#[derive(Clone, Debug)]
pub struct Shown {
    /// In this order.
    pub events: Vec<StreamEvent>,
    /// Whether nothing comes after it.
    pub ends: bool,
}

impl World {
    /// A client begins to follow a run.
    pub(super) fn follow(&mut self, cell: usize, run: RunId) {
        let follower = self.followers.len();
        self.followers.push(Follower {
            cell,
            run,
            cursor: Cursor::default(),
            seen: Seq(0),
            connection: 0,
            is_open: false,
            is_over: false,
        });
        self.connect(follower);
    }

    /// A follower makes another connection: whatever comes on the one before is lost.
    pub(super) fn connect(&mut self, index: usize) {
        let Some(follower) = self.followers.get_mut(index).filter(|follower| !follower.is_over) else {
            return;
        };
        follower.connection += 1;
        follower.is_open = false;
        let connection = Connection { follower: index, nth: follower.connection };
        self.put(PATIENCE_MS, Event::Unconnected(connection));
        if let Some(delay_ms) = self.network().first() {
            self.put(*delay_ms, Event::Follow(connection));
        }
    }

    /// The follower of a connection, if it is the latest one.
    fn follower(&mut self, connection: Connection) -> Option<&mut Follower> {
        let follower = self.followers.get_mut(connection.follower)?;
        (follower.connection == connection.nth && !follower.is_over).then_some(follower)
    }

    /// A follower has waited long enough for its connection.
    pub(super) fn unconnected(&mut self, connection: Connection) {
        if self.follower(connection).is_some_and(|follower| !follower.is_open) {
            self.connect(connection.follower);
        }
    }

    /// A connection breaks: its follower comes back after a while.
    pub(super) fn broken(&mut self, connection: Connection) {
        if let Some(follower) = self.follower(connection) {
            // Whatever was under way on it does not arrive any more.
            follower.connection += 1;
            follower.is_open = true;
            let delay_ms = self.rng.between(10, 1_500);
            self.put(delay_ms, Event::Connect(connection.follower));
        }
    }

    /// A follower's request arrives at its cell.
    pub(super) fn on_follow(&mut self, connection: Connection) {
        let skips = self.is(Sabotage::CursorSkips) && connection.nth > 1;
        let Some(follower) = self.follower(connection) else { return };
        let (cell, run, mut cursor) = (follower.cell, follower.run.clone(), follower.cursor);
        if skips {
            cursor.journal = cursor.journal.next();
        }
        let Some(id) = self.reach(cell) else { return self.broken(connection) };
        self.note(|| format!("follower {} comes to cell {cell}.{id} with {cursor}", connection.follower));
        let is_stale = self.sites[cell].is_stale(id);
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        // The answer would wait until all that was written before it is durable, the deletion of the run perhaps: the
        // follower comes again.
        let waits = !instance.pending.is_empty();
        match instance.machine.find(&instance.store, &run) {
            Ok(_) => {
                instance.machine.watch(run.number);
                let number = run.number;
                instance.own.readers.insert(connection, Some(Reader::new(run, cursor, Kinds::default())));
                self.show_follower(cell, id, connection, Shown { events: Vec::new(), ends: false });
                self.mark(cell, id, number);
            }
            Err(Fault::Rejected(_)) if !is_stale && !waits => self.gone(connection),
            Err(Fault::Rejected(_) | Fault::Storage(Refused) | Fault::Moved(_)) => self.broken(connection),
        }
    }

    /// A follower hears that there is no such run.
    fn gone(&mut self, connection: Connection) {
        let Some(follower) = self.follower(connection) else { return };
        follower.is_over = true;
        let (cell, run) = (follower.cell, follower.run.clone());
        if !self.check.is_deleted(cell, &run) {
            self.fail("1 no run is lost", format!("{run} is followed, and unknown"));
        }
    }

    /// Somebody who follows a run has something to read.
    pub(super) fn mark(&mut self, cell: usize, id: u64, number: u64) {
        self.put(GATHER_MS, Event::Serve(cell, id, number));
    }

    /// A cell serves those who follow a run.
    pub(super) fn serve(&mut self, cell: usize, id: u64, number: u64) {
        let followers = &self.followers;
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        // A socket is closed once its client has left.
        let is_latest = |of: &Connection| followers.get(of.follower).is_some_and(|f| f.connection == of.nth);
        instance.own.readers.retain(|connection, _| is_latest(connection));
        let is_of = |reader: &Option<Reader>| reader.as_ref().is_some_and(|of| of.run.number == number);
        let readers = instance.own.readers.iter().filter(|(_, reader)| is_of(reader));
        let connections: Vec<_> = readers.map(|(connection, _)| *connection).collect();
        if connections.is_empty() {
            instance.machine.unwatch(number);
        }
        for connection in connections {
            let Some(instance) = self.sites[cell].instance_mut(id) else { return };
            let Some(Some(reader)) = instance.own.readers.get_mut(&connection) else { continue };
            match instance.machine.read(&instance.store, reader) {
                Ok(Batch { events, more, ends }) => {
                    if ends {
                        instance.own.readers.insert(connection, None);
                    }
                    if more {
                        self.mark(cell, id, number);
                    }
                    if ends || !events.is_empty() {
                        self.show_follower(cell, id, connection, Shown { events, ends });
                    }
                }
                Err(_) => {
                    instance.own.readers.remove(&connection);
                    self.put(1, Event::Broken(connection));
                }
            }
        }
    }

    fn show_follower(&mut self, cell: usize, id: u64, connection: Connection, shown: Shown) {
        let outgoing = Outgoing::Shown(connection, shown);
        if self.is(Sabotage::ShownEarly) { self.release(outgoing) } else { self.send(cell, id, outgoing) }
    }

    /// Something leaves on a connection. It arrives, or the connection breaks.
    pub(super) fn release_shown(&mut self, connection: Connection, shown: Shown, arrives: bool) {
        let event = if arrives { Event::Shown(connection, shown) } else { Event::Broken(connection) };
        self.put(WIRE_MS, event);
    }

    /// Something arrives at a follower, who may leave in the middle of it.
    pub(super) fn on_shown(&mut self, connection: Connection, shown: Shown) {
        let (leaves, count) = (self.rng.percent(12), self.rng.below(shown.events.len() as u64 + 1));
        let leaves = leaves && !self.healed;
        let Shown { mut events, ends } = shown;
        if leaves {
            events.truncate(usize::try_from(count).unwrap_or_default());
        }
        for event in &events {
            if self.follower(connection).is_none() {
                return;
            }
            self.see(connection, event);
        }
        let Some(follower) = self.follower(connection) else { return };
        follower.is_open = true;
        if leaves {
            self.count("follower leaves");
            return self.broken(connection);
        }
        if ends {
            follower.is_over = true;
            let (cell, run, seen) = (follower.cell, follower.run.clone(), follower.seen);
            self.note(|| format!("follower {} has seen all of {run}", connection.follower));
            let checked = self.check.followed(&self.sites[cell].disk, cell, &run, seen);
            self.must(checked);
        }
    }

    /// A follower sees one event.
    fn see(&mut self, connection: Connection, event: &StreamEvent) {
        let Ok(cursor) = event.id.parse() else { return self.fail("30 a cursor is one", event.id.clone()) };
        let record = match event.kind {
            Kind::Step | Kind::Timer | Kind::Signal => {
                Some(event.data.decode::<Record>().expect("events of a journal are records"))
            }
            // The simulator's programs publish nothing, and so little is shown that nobody is asked to answer.
            Kind::Status
            | Kind::Log
            | Kind::Chunk
            | Kind::Progress
            | Kind::Working
            | Kind::Ack
            | Kind::Ready
            | Kind::End => None,
        };
        let Some(follower) = self.follower(connection) else { return };
        let (cell, run, seen) = (follower.cell, follower.run.clone(), follower.seen);
        follower.cursor = cursor;
        follower.seen = record.as_ref().map_or(seen, |record| record.seq);
        let disk = &self.sites[cell].disk;
        let checked = match record {
            Some(record) => self.check.event_shown(disk, cell, &run, seen, &record),
            None if event.kind == Kind::Status => {
                let view: StatusView = event.data.decode().expect("a status is one");
                self.check.shown(disk, cell, &run, view.status)
            }
            None => Ok(()),
        };
        self.must(checked);
    }

    /// Those who follow runs have seen all that was there a while ago, and whose run has ended knows it.
    pub(super) fn check_followers(&mut self) {
        for index in 0..self.followers.len() {
            let Follower { cell, run, seen, is_over, .. } = &self.followers[index];
            let (cell, run, seen, is_over) = (*cell, run.clone(), *seen, *is_over);
            if is_over {
                continue;
            }
            let clock = self.sites[cell].clock(self.now_ms);
            let site = &self.sites[cell];
            let checked = self.check.follows(&site.disk, &site.place, (cell, &run), seen, clock);
            self.must(checked);
        }
    }
}
