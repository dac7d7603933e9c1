//! What is recorded of a run, and what of it has to be written.

use stepwell_protocol::{Epoch, Failure, Op, Payload, Record, Seq, Timestamp, program::Progress, rest::Act};

use super::{Cut, Inbox, Joined, KnownJoin, Mark, OpenOp, PauseWhy, Slot, Trouble};

/// What is recorded. In the past tense: it has happened once it is stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Something was added to the journal.
    Recorded {
        /// What and where.
        record: Record,
        /// On the last record of a commit: that commit.
        mark: Option<Mark>,
    },
    /// What a signal or a token is known by if it comes again: the signal just recorded came with this nonce, or nobody
    /// waits for this token any more.
    SignalNoted(String),
    /// That is not known any more: the signal was dropped, and its sender may send another one.
    SignalForgotten(String),
    /// It makes its wait tokens with the key of this id.
    TokenKeyUsed(String),
    /// A commit without a record of its own was accepted.
    Marked(Mark),
    /// What it waits for has changed.
    OpenChanged(Vec<OpenOp>),
    /// Its troubles have changed.
    Troubled(Trouble),
    /// An activation is due.
    Queued {
        /// No earlier than this.
        not_before: Timestamp,
    },
    /// Its program is called.
    Activated {
        /// As this activation.
        epoch: Epoch,
        /// At this time.
        at: Timestamp,
        /// In this place.
        slot: Slot,
    },
    /// It has taken another start.
    Joined(Box<Joined>),
    /// The cell has heard of its activation, or begins to wait for that.
    Leased {
        /// How long it waits to hear of it again.
        until: Timestamp,
    },
    /// Its program has taken signals, and so many are left. Stored with whatever else its commit says.
    SignalsRead {
        /// How many.
        unread: u32,
    },
    /// Its program has nothing left to do for the time being.
    Suspended,
    /// Its code applies these patches from here on.
    Patched(Vec<String>),
    /// It has come this far.
    Progressed(Progress),
    /// How far it had come no longer holds.
    ProgressForgotten,
    /// It can be found by this.
    Attributed {
        /// The attribute's name.
        name: String,
        /// Its value from here on.
        value: String,
        /// Its value before, if it had one.
        before: Option<String>,
    },
    /// Parts of its journal do not count any more.
    Rewound(Vec<Cut>),
    /// It has begun a new life.
    BegunAnew {
        /// What that is started with.
        input: Payload,
        /// When it began.
        at: Timestamp,
        /// What of its journal does not count in it: all but the signals that nobody has taken.
        cuts: Vec<Cut>,
        /// Those signals.
        inbox: Inbox,
        /// When it is failed if it has not ended by then.
        deadline: Option<Timestamp>,
    },
    /// Its workflow has failed: steps failed from this position on, and nothing was begun.
    FailingSince(Seq),
    /// It goes on although it had ended or was paused, with this deadline.
    Reopened {
        /// When.
        at: Timestamp,
        /// When it is failed if it has not ended by then.
        deadline: Option<Timestamp>,
    },
    /// It was stopped.
    Paused(PauseWhy),
    /// It returned.
    Completed {
        /// What.
        output: Payload,
        /// When.
        at: Timestamp,
    },
    /// It failed.
    Failed {
        /// Why.
        failure: Failure,
        /// When.
        at: Timestamp,
    },
    /// It was cancelled.
    Cancelled {
        /// When.
        at: Timestamp,
    },
    /// It does not wait for these children any more, which are told so.
    LetGo(Vec<Seq>),
    /// Nobody awaits these steps any more, which had been let in by their lanes.
    Left(Vec<Op>),
    /// Somebody has done something to it.
    ActedOn(Act),
    /// It is being deleted.
    Expired,
    /// Nothing is left of it but its row: no input and no result either.
    Emptied,
}

impl Entry {
    /// What it adds to the journal.
    pub fn record(&self) -> Option<&Record> {
        if let Self::Recorded { record, .. } = self { Some(record) } else { None }
    }

    /// What the run is started with from here on, if that changes.
    pub fn input(&self) -> Option<&Payload> {
        if let Self::BegunAnew { input, .. } = self {
            Some(input)
        } else if let Self::Joined(joined) = self {
            joined.input.as_ref()
        } else {
            None
        }
    }

    /// What a start that the run has taken is known by.
    pub fn known_join(&self) -> Option<&KnownJoin> {
        if let Self::Joined(joined) = self { joined.known.as_ref() } else { None }
    }

    /// Whether anything has to be written for it.
    pub fn is_stored(&self) -> bool {
        self.record().is_some() || self.changes_row()
    }

    /// Whether the run row has to be written for it.
    pub fn changes_row(&self) -> bool {
        match self {
            // A record and a nonce are rows of their own. A lease begins anew with whoever loads the row next.
            Self::Recorded { .. }
            | Self::SignalNoted(_)
            | Self::SignalForgotten(_)
            | Self::SignalsRead { .. }
            | Self::Leased { .. } => false,
            Self::Marked(_)
            | Self::OpenChanged(_)
            | Self::Troubled(_)
            | Self::Queued { .. }
            | Self::Joined(_)
            | Self::Activated { .. }
            | Self::Suspended
            | Self::Patched(_)
            | Self::TokenKeyUsed(_)
            | Self::Progressed(_)
            | Self::ProgressForgotten
            | Self::FailingSince(_)
            | Self::Attributed { .. }
            | Self::Rewound(_)
            | Self::BegunAnew { .. }
            | Self::Reopened { .. }
            | Self::Paused(_)
            | Self::Completed { .. }
            | Self::Failed { .. }
            | Self::Cancelled { .. }
            | Self::LetGo(_)
            | Self::Left(_)
            | Self::ActedOn(_)
            | Self::Expired
            | Self::Emptied => true,
        }
    }
}
