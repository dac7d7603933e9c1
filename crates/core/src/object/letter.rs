//! What objects write to each other, and what they answer.
//!
//! A message is idempotent by what it is about: it may come twice, late, and in any order.

use serde::{Deserialize, Serialize};
use stepwell_protocol::{
    Code, Epoch, Invocation, Op, Outcome, Parent, Payload, Place, RunId, Seq, Timestamp,
    lane::Ticket,
    outbox::MessageHead,
    queue::SentJob,
    rest::Status,
    schedule::Ticked,
    topic::{NewEvent, Waiter},
};

use super::Address;

/// How many messages one letter holds at the most: each time one of them goes out, the whole letter is read.
pub const LETTER_MESSAGES_MAX: usize = 64;

/// How many bytes the messages of a letter have at the most, unless one alone has more.
pub const LETTER_BYTES_MAX: usize = 1 << 20;

/// Messages that one commit sends: one row, from the commit until all of them have arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// Its number, in the order of commits.
    pub id: u64,
    /// When it was written.
    pub posted_at: Timestamp,
    /// What it holds.
    pub envelopes: Vec<Envelope>,
}

/// A message and where it goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// The object that gets it.
    pub to: Address,
    /// What it says.
    pub message: Message,
}

/// What one object tells another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// To a cell: start this child. Known by its parent and the place of the invocation there.
    #[serde(rename = "start")]
    Start {
        /// Who invokes it.
        parent: Parent,
        /// What is invoked.
        invocation: Box<Invocation>,
        /// Where the cell has to send it on to if it is full. Chosen each time that it goes out, and in no row.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        spare: Option<Place>,
        /// Whether it was in a dead letter. Nobody knows any more whether it has started a run before: it goes out only
        /// while its parent waits for that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        revived: bool,
    },
    /// To a parent's cell: its child has ended. Taken only while the parent waits for it.
    #[serde(rename = "ended")]
    Ended {
        /// The parent, and the place of the invocation there.
        parent: Parent,
        /// The child.
        run: RunId,
        /// What it gave.
        outcome: Outcome,
    },
    /// To a station of schedules: the run of a tick has ended. Taken only while the schedule waits for it.
    #[serde(rename = "tick_ended")]
    TickEnded {
        /// The schedule and its tick.
        ticked: Ticked,
        /// The run.
        run: RunId,
        /// How it ended.
        how: Status,
    },
    /// To a topic: a run has emitted this event. Known there by its id.
    #[serde(rename = "emitted")]
    Emitted {
        /// The run.
        run: RunId,
        /// The event.
        event: Box<NewEvent>,
    },
    /// To a topic: a run waits for an event. Known there by the run and its wait.
    #[serde(rename = "waits")]
    Waits {
        /// Who waits, and for what.
        waiter: Box<Waiter>,
    },
    /// To a topic: a run does not wait for an event any more, though none came. A wait whose time is over soon lets it be.
    #[serde(rename = "wait_over")]
    WaitOver {
        /// The run.
        run: RunId,
        /// Which life of it.
        life: u32,
        /// The wait.
        op: Op,
        /// In which activation it ended.
        epoch: Epoch,
    },
    /// To a lane: a run that had its slots from its beginning has ended.
    #[serde(rename = "ticket_over")]
    TicketOver {
        /// What it is known by there.
        ticket: Ticket,
    },
    /// To the first partition of a queue: a run has sent this job. Known there by the run and its position in the journal.
    #[serde(rename = "job")]
    Job {
        /// The run.
        run: RunId,
        /// The position.
        seq: Seq,
        /// The job.
        job: Box<SentJob>,
    },
    /// To the queue of callbacks: a run has ended, and this address is told of it. Known there by its id.
    #[serde(rename = "callback")]
    Callback {
        /// The run.
        run: RunId,
        /// Which end of it.
        id: String,
        /// The address.
        url: String,
        /// What it is told.
        body: Payload,
    },
    /// To a child's cell: nobody needs it any more.
    #[serde(rename = "cancel")]
    Cancel {
        /// The parent.
        parent: RunId,
        /// The place of the invocation there.
        invoked: Seq,
    },
    /// To the cell that has sent a child on: the child has ended, so it need not say for much longer where it has gone.
    #[serde(rename = "unbind")]
    Unbind {
        /// The parent.
        parent: RunId,
        /// The place of the invocation there.
        invoked: Seq,
        /// The child.
        run: RunId,
    },
}

impl Message {
    /// Its word for people.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Ended { .. } => "ended",
            Self::TickEnded { .. } => "tick_ended",
            Self::Emitted { .. } => "emitted",
            Self::Waits { .. } => "waits",
            Self::WaitOver { .. } => "wait_over",
            Self::TicketOver { .. } => "ticket_over",
            Self::Job { .. } => "job",
            Self::Callback { .. } => "callback",
            Self::Cancel { .. } => "cancel",
            Self::Unbind { .. } => "unbind",
        }
    }

    /// The run that it comes from, for people.
    pub fn from(&self) -> &RunId {
        match self {
            Self::Start { parent, .. } => &parent.run,
            Self::Ended { run, .. }
            | Self::TickEnded { run, .. }
            | Self::Emitted { run, .. }
            | Self::WaitOver { run, .. }
            | Self::Job { run, .. }
            | Self::Callback { run, .. }
            | Self::Unbind { run, .. } => run,
            Self::Waits { waiter } => &waiter.run,
            Self::TicketOver { ticket } => &ticket.run,
            Self::Cancel { parent, .. } => parent,
        }
    }

    /// What people see of it.
    pub fn head(&self, to: &Address) -> MessageHead {
        MessageHead { what: self.as_str().to_owned(), from: self.from().clone(), to: to.to_string() }
    }

    /// More or less the bytes that it takes.
    pub fn size(&self) -> usize {
        const AROUND: usize = 512;
        AROUND
            + match self {
                Self::Start { invocation, .. } => invocation.input.size(),
                Self::Ended { outcome: Outcome::Ok(output), .. } => output.size(),
                Self::Ended { outcome: Outcome::Err(failure), .. } => failure.message.len(),
                Self::Emitted { event, .. } => event.data.size(),
                Self::Waits { waiter } => waiter.input.size(),
                Self::Job { job, .. } => job.body.size(),
                Self::Callback { url, body, .. } => url.len() + body.size(),
                Self::TickEnded { .. }
                | Self::WaitOver { .. }
                | Self::TicketOver { .. }
                | Self::Cancel { .. }
                | Self::Unbind { .. } => 0,
            }
    }
}

/// What whoever gets a message answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receipt {
    /// The run is started, now or before.
    #[serde(rename = "started")]
    Started {
        /// It.
        run: RunId,
    },
    /// The start has become part of a run that others have started, now or before.
    #[serde(rename = "joined")]
    Joined {
        /// That run.
        run: RunId,
    },
    /// It has had its effect, now or before.
    #[serde(rename = "taken")]
    Taken,
    /// Nobody is there any more who it could have an effect on.
    #[serde(rename = "gone")]
    Gone,
    /// An event that a run has had before: it waits for another one.
    #[serde(rename = "passed")]
    Passed,
    /// What it is about is at home in another cell, for good: send it there.
    #[serde(rename = "moved")]
    Moved {
        /// That cell.
        to: Place,
    },
    /// What it is about may still come: send it again after a while. A cell of an earlier version says so of a cancel that
    /// has overtaken its start.
    #[serde(rename = "later")]
    Later,
}

/// What became of a message, as its sender sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// It has arrived.
    Arrived(Receipt),
    /// It was refused, and would be refused again.
    Refused(stepwell_protocol::Problem),
    /// It was answered with no, for now: it is sent again after a while, and holds up no other.
    Declined,
    /// The same, by a rule that a person has set or can lift: it waits for that as long as it takes.
    Postponed,
    /// Nobody knows: it is sent again, and whoever has not answered is spared for a while.
    Failed,
}

impl Delivery {
    /// What an answer means that is no receipt.
    pub fn refused(problem: stepwell_protocol::Problem) -> Self {
        // These would be refused again.
        if matches!(
            problem.code,
            Code::PayloadTooLarge
                | Code::InvalidRequest
                | Code::NamespaceNotFound
                | Code::StartSkipped
                | Code::StartDropped
        ) {
            Self::Refused(problem)
        } else if matches!(problem.code, Code::WorkflowPaused | Code::LimitReached | Code::CellFull) {
            Self::Postponed
        } else {
            Self::Declined
        }
    }
}

impl Letter {
    /// A person wants it to be sent again, as if it were written now.
    pub fn revive(&mut self, now: Timestamp) {
        self.posted_at = now;
        for envelope in &mut self.envelopes {
            if let Message::Start { revived, .. } = &mut envelope.message {
                *revived = true;
            }
        }
    }

    /// Puts messages into as few letters as they fit in, numbered from this on.
    pub fn pack(first: u64, now: Timestamp, envelopes: Vec<Envelope>) -> Vec<Self> {
        let mut letters: Vec<Self> = Vec::new();
        let mut bytes = 0;
        for envelope in envelopes {
            let size = envelope.message.size();
            match letters.last_mut() {
                Some(letter)
                    if letter.envelopes.len() < LETTER_MESSAGES_MAX && bytes + size <= LETTER_BYTES_MAX =>
                {
                    letter.envelopes.push(envelope);
                    bytes += size;
                }
                Some(_) | None => {
                    let id = first + letters.len() as u64;
                    letters.push(Self { id, posted_at: now, envelopes: vec![envelope] });
                    bytes = size;
                }
            }
        }
        letters
    }
}
