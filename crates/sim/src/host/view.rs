//! What one instance of an object sees of its disk: what is there, and what it has written since.
//!
//! Whatever it writes is in its own view at once, and in a [`Batch`] that the world makes durable later, or never.

use std::{
    cell::{Ref, RefCell},
    fmt::Debug,
    rc::Rc,
};

use stepwell_core::catalog::Corrupt;
use stepwell_protocol::Timestamp;

/// The storage did not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl From<Corrupt> for Refused {
    fn from(_: Corrupt) -> Self {
        // Only machines write here: what a damaged row does is tested in core.
        Self
    }
}

/// The tables of an object, as they are on disk.
pub trait Disk: Clone + Debug + Default {
    /// One transaction.
    type Write: Clone + Debug;

    /// Takes a transaction. Says what is wrong with it, if a constraint would have refused it.
    fn apply(&mut self, write: &Self::Write) -> Result<(), String>;
}

/// Who has caused a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A client, or another object.
    Request,
    /// A program, by its number.
    Program(u32),
    /// The end of a program's call.
    CallEnded,
    /// The alarm.
    Alarm,
}

/// What one turn has written. A disk takes all of it or nothing.
#[derive(Clone, Debug)]
pub struct Batch<W> {
    /// Who has caused it.
    pub cause: Cause,
    /// In order.
    pub writes: Vec<W>,
    /// What the alarm was set to.
    pub alarm: Option<Timestamp>,
}

impl<W> Batch<W> {
    fn new(cause: Cause) -> Self {
        Self { cause, writes: Vec::new(), alarm: None }
    }
}

/// What one instance sees.
#[derive(Clone, Debug)]
pub struct View<D: Disk>(RefCell<Inner<D>>);

#[derive(Clone, Debug)]
struct Inner<D: Disk> {
    sees: Rc<D>,
    batch: Batch<D::Write>,
    /// Nothing can be written for the time being.
    refuses: bool,
    /// The next write is done and answered with an error.
    fails_after: bool,
    /// Nothing can be done any more: the instance is to be reset.
    broken: bool,
    /// Rows that were read in this turn, by number.
    reads: Vec<u64>,
}

impl<D: Disk> View<D> {
    /// A view of what is on disk.
    pub fn new(disk: Rc<D>) -> Self {
        Self(RefCell::new(Inner {
            sees: disk,
            batch: Batch::new(Cause::Request),
            refuses: false,
            fails_after: false,
            broken: false,
            reads: Vec::new(),
        }))
    }

    /// A turn begins.
    pub fn begin(&self, cause: Cause, refuses: bool) {
        let mut inner = self.0.borrow_mut();
        inner.batch.cause = cause;
        inner.refuses = refuses;
        inner.reads.clear();
    }

    /// What was written since the last time, if anything was.
    pub fn take(&self) -> Option<Batch<D::Write>> {
        let mut inner = self.0.borrow_mut();
        if inner.batch.writes.is_empty() && inner.batch.alarm.is_none() {
            return None;
        }
        let empty = Batch::new(inner.batch.cause);
        Some(std::mem::replace(&mut inner.batch, empty))
    }

    /// The rows that were read in this turn.
    pub fn take_reads(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.borrow_mut().reads)
    }

    /// A row was read.
    pub fn note_read(&self, number: u64) {
        self.0.borrow_mut().reads.push(number);
    }

    /// The next write is done and answered with an error, and the instance is lost with it.
    pub fn fail_after_next(&self) {
        self.0.borrow_mut().fails_after = true;
    }

    /// Takes that back, if it has not happened. Says whether there was anything to take back.
    pub fn forget_failure(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().fails_after)
    }

    /// Whether the instance is to be reset.
    pub fn is_broken(&self) -> bool {
        self.0.borrow().broken
    }

    /// Sets the alarm.
    pub fn set_alarm(&self, at: Timestamp) -> Result<(), Refused> {
        let mut inner = self.0.borrow_mut();
        inner.may_write()?;
        inner.batch.alarm = Some(at);
        Ok(())
    }

    /// All that this instance sees, past everything that could fail.
    pub fn all(&self) -> Ref<'_, D> {
        Ref::map(self.0.borrow(), |inner| inner.sees.as_ref())
    }

    /// The same, to be shared.
    pub fn shared(&self) -> Rc<D> {
        self.0.borrow().sees.clone()
    }

    /// The same for a machine: it may fail.
    pub fn read(&self) -> Result<Ref<'_, D>, Refused> {
        if self.is_broken() { Err(Refused) } else { Ok(self.all()) }
    }

    /// One transaction.
    pub fn write(&self, write: D::Write) -> Result<(), Refused> {
        let mut inner = self.0.borrow_mut();
        inner.may_write()?;
        // The machine alone writes here: what a constraint refuses shows when it reaches the disk.
        let _ = Rc::make_mut(&mut inner.sees).apply(&write);
        inner.batch.writes.push(write);
        if std::mem::take(&mut inner.fails_after) {
            inner.broken = true;
            return Err(Refused);
        }
        Ok(())
    }
}

impl<D: Disk> Inner<D> {
    fn may_write(&self) -> Result<(), Refused> {
        if self.broken || self.refuses { Err(Refused) } else { Ok(()) }
    }
}
