//! What can happen next, and when.

use stepwell_core::{catalog::Confirmation, object::Delivery, run::CallEnd};
use stepwell_protocol::{Code, Epoch, RunId, rest::Status};

use super::{
    catalog::{Question, Telling},
    host::Any,
    post::Post,
    readers::Shown,
};
pub use crate::host::{Connection, Listener};
use crate::{
    check::Served,
    outside::{Message, Received},
};

/// Something that will happen.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client acts: the action of this index, for the n-th time.
    Act(usize, u32),
    /// The fault of this index.
    Fault(usize),
    /// Somebody asks an object something.
    Touch(Any),
    /// A request arrives at its cell.
    Request(u32),
    /// A response arrives at its client.
    Response(u32, Response),
    /// A client gives up on a request.
    GiveUp(u32),
    /// What an instance has written becomes durable.
    Flush(Any, u64),
    /// The object's alarm, as it was set.
    Alarm(Any, u64),
    /// The call of a program arrives there.
    Begin(u32),
    /// A program's message arrives at its cell.
    ToCell(u32, u32, Message),
    /// An answer arrives at a program.
    ToProgram(u32, u32, Received),
    /// A listener was told to look.
    Hear(usize, u64, Listener),
    /// A caller has waited long enough for a run's end.
    WaitOver(usize, u64, u64, u32),
    /// A piece of a program's work is over.
    Work(u32),
    /// The end of a program's call arrives at its cell.
    CallEnded(usize, u64, u64, Epoch, CallEnd),
    /// A program comes to an end from outside.
    Kill(u32, CallEnd),
    /// A message of the queue is delivered: a run of a cell is due. How often it was tried before.
    Nudged(usize, u64, u32),
    /// A consumer's claim arrives at the cell: the run, whether the consumer has nothing else, the tries.
    Claim(usize, u64, bool, u32),
    /// A consumer's word arrives at the cell.
    Word(Word),
    /// A consumer has waited long enough for the answer to a call of its program, for the n-th time.
    Impatient(u32, u32, u32),
    /// It is time for a consumer to say that its program is at work.
    Beat(u32),
    /// A consumer hears that it need not go on.
    Dropped(u32),
    /// A program has listened through its consumer for long enough.
    ListenOver(usize, u64, Listener),
    /// A cell's question about a key arrives at the catalog.
    Question(Question),
    /// The answer arrives at the cell.
    Told(Question, Box<Result<Confirmation, Code>>),
    /// The catalog's word arrives at a cell.
    Telling(Telling),
    /// That a cell has heard it arrives at the catalog.
    Forgot(Telling),
    /// A message of a cell arrives at another.
    Letter(Post),
    /// What became of it arrives at its sender.
    Receipt(Post, Delivery),
    /// A follower tries to connect.
    Connect(usize),
    /// A follower has waited long enough for its connection.
    Unconnected(Connection),
    /// A follower's request arrives at its cell.
    Follow(Connection),
    /// A cell serves those who follow a run.
    Serve(usize, u64, u64),
    /// Something arrives at a follower.
    Shown(Connection, Shown),
    /// A connection breaks.
    Broken(Connection),
    /// Faults stop.
    Heal,
}

/// What a consumer says to a cell, in a request of its own. It arrives whether the consumer still lives or not.
#[derive(Clone, Debug)]
pub struct Word {
    /// The program that it has called.
    pub program: u32,
    /// The run's cell.
    pub cell: usize,
    /// The run.
    pub number: u64,
    /// The activation.
    pub epoch: Epoch,
    /// What it says.
    pub what: What,
}

/// What a consumer says.
#[derive(Clone, Debug)]
pub enum What {
    /// What its program says: the call, which commit it is, the message.
    Said(u32, u32, Message),
    /// Its program is at work.
    Beat,
    /// The call of its program is over.
    Ended(CallEnd),
}

/// What a client is told.
#[derive(Clone, Debug)]
pub enum Response {
    /// A run was started, now or before.
    Started(RunId),
    /// A signal was received, now or before.
    Signalled,
    /// A run was paused, resumed or taken back.
    Managed,
    /// A run was cancelled.
    Cancelled,
    /// This key was made.
    KeyCreated(String),
    /// A key was revoked.
    KeyRevoked,
    /// This version of a manifest was taken note of.
    Synced(u32, Served),
    /// This workflow is paused.
    WorkflowPaused(&'static str, Served),
    /// Where a run stands, and whether the caller was told of its end in time.
    Shown(Status),
    /// Refused.
    Problem(Code),
}

/// What leaves an instance once its commits are durable.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// To a client.
    Response(u32, Response),
    /// To a program.
    ToProgram(u32, u32, Received),
    /// The call of a program.
    Begin(u32),
    /// To the queue: this run of this cell is due.
    Nudge(usize, u64),
    /// To a consumer: it need not go on.
    Dropped(u32),
    /// From a cell to the catalog: what is this key worth?
    Ask(Question),
    /// The answer.
    Told(Question, Box<Result<Confirmation, Code>>),
    /// From the catalog to a cell: what to forget.
    Tell(Telling),
    /// The cell has done so.
    Forgot(Telling),
    /// From a cell to another.
    Letter(Post),
    /// The answer to that.
    Receipt(Post, Delivery),
    /// To somebody who follows a run.
    Shown(Connection, Shown),
}
