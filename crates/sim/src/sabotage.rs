//! Planted bugs: each switches off one mechanism, so that a test can see the checker notice.
//!
//! They live in the simulator's own host and storage, around the machines: the code that is shipped has no
//! switch for them.

/// A mechanism that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// A commit counts for the run's latest activation, whoever sends it.
    NoFence,
    /// A program reads the journal whether its activation is over or not.
    PagesUnfenced,
    /// An identical repeat of a commit is not known as one.
    RepeatUnknown,
    /// An identical repeat of a commit is recorded a second time.
    RepeatRecorded,
    /// A commit is taken as if its program had seen all of the journal.
    NewsSkipped,
    /// What a program foresees is taken for what is.
    ForesightTrusted,
    /// A fresh instance trusts that its alarm is set.
    NoRepair,
    /// The alarm waits until the programs that it calls are done.
    AlarmAwaitsDispatch,
    /// No alarm is ever set.
    NeverArmed,
    /// The machine does not hear that its alarm could not be set.
    UnarmedUnheard,
    /// The alarm that fires sets no other.
    AlarmNotRearmed,
    /// After a crash, failed attempts are forgotten.
    AttemptsForgotten,
    /// A signal that nobody waits for yet is acknowledged and dropped.
    EarlySignalDropped,
    /// A reset by the platform is reported as the program's own failure.
    ResetIsAStrike,
    /// Whoever was at work when a cell died is convicted, alone or not.
    NeighbourConvicted,
    /// The alarm looks at a clock that is ahead.
    TimerEarly,
    /// A late commit to a run that has ended is written.
    EndedRunWritten,
    /// A cancellation is acknowledged and not written.
    CancelLost,
    /// Reading a journal skips an event where a page begins.
    PageSkipped,
    /// An idempotency key is not stored.
    KeyLost,
    /// A fresh instance does not look which calls its predecessor has followed.
    NonceForgotten,
    /// A signal's id or nonce is not looked up.
    SignalIdLost,
    /// A crash loses the last row of a journal.
    JournalRowLost,
    /// Answers and calls leave before the commit is durable.
    GateOpen,
    /// A program that listens is not told.
    ListenerNotTold,
    /// Whoever waits for the end is not told.
    EndNotTold,
    /// A superseded instance can still write.
    StaleInstanceWrites,
    /// The row does not say that a program was called.
    IntentLost,
    /// The row keeps its old wake time.
    WakeTimeLost,
    /// A step's result reads back differently than it was written.
    ResultAltered,
    /// A program that keeps stopping is called again for ever.
    StrikesForgotten,
    /// The call of a program that is over is not reported to the machine.
    EndOfCallLost,
    /// Of a run that is deleted, only the row is.
    RemainsLeft,
    /// A run that wants to go on later is not written down as due.
    YieldLost,
    /// Going on later is held against a run.
    YieldIsAStrike,
    /// The lease of an activation never ends.
    LeaseNeverEnds,
    /// A consumer that says that its program is at work is not heard.
    BeatUnheard,
    /// A call that hangs is never given up.
    SilenceNeverEnds,
    /// A run can be claimed by two consumers.
    ClaimedTwice,
    /// A cell that came back does not nudge what is due.
    NudgeForgotten,
    /// After a crash, it is forgotten that a step which must not run twice has begun.
    BegunForgotten,
    /// The time-out of a step never comes.
    StepTimerLost,
    /// The patches that a run's code has applied are not stored.
    PatchLost,
    /// The last event of a journal does not say which commit was the last.
    TrailerLost,
    /// A run that begins anew forgets the signals that nobody has taken.
    UnreadSignalLost,
    /// Signals that nobody has taken are deleted with what an earlier life has left behind.
    KeptSignalErased,
    /// A letter is deleted when its messages go out, not when they have arrived.
    LetterGoneEarly,
    /// A message is answered and has no effect.
    AnsweredWithoutEffect,
    /// The key of a message is not stored: one that comes again has its effect again.
    MessageKeyless,
    /// A letter that is dead is deleted.
    DeadLetterHidden,
    /// A fresh instance does not look for letters, and sets no alarm for them.
    LettersForgotten,
    /// A child's end that comes again is recorded again.
    ParentToldTwice,
    /// A child's end is recorded although nobody waits for it any more.
    ToldAfterTheWait,
    /// Whoever ends does not cancel its children.
    CancelNotSent,
    /// The key of a child is deleted with its run.
    ChildKeyDropped,
    /// A child that was cancelled before it was started is not written down.
    GivenUpForgotten,
    /// An object does not store its address.
    IdentityLost,
    /// Who follows a run is shown what is not durable yet.
    ShownEarly,
    /// Who comes back to a stream misses an event.
    CursorSkips,
    /// Who follows a run is not told that there is more.
    ReaderNotTold,
    /// The manifest that comes last holds, however old it is.
    OlderManifestWins,
    /// A deploy resumes the workflows that people have paused.
    DeployResumes,
    /// A key that is revoked stays as it is on disk.
    RevocationLost,
    /// A cell that remembers a key is not written down.
    WatcherLost,
    /// A cell says that it has forgotten a key, and has not.
    WordUnheard,
    /// A run that was put off begins at once.
    DelayForgotten,
}

impl Sabotage {
    /// All of them.
    pub const ALL: [Self; 66] = [
        Self::NoFence,
        Self::PagesUnfenced,
        Self::RepeatUnknown,
        Self::RepeatRecorded,
        Self::NewsSkipped,
        Self::ForesightTrusted,
        Self::NoRepair,
        Self::AlarmAwaitsDispatch,
        Self::NeverArmed,
        Self::UnarmedUnheard,
        Self::AlarmNotRearmed,
        Self::AttemptsForgotten,
        Self::EarlySignalDropped,
        Self::ResetIsAStrike,
        Self::NeighbourConvicted,
        Self::TimerEarly,
        Self::EndedRunWritten,
        Self::CancelLost,
        Self::PageSkipped,
        Self::KeyLost,
        Self::NonceForgotten,
        Self::SignalIdLost,
        Self::JournalRowLost,
        Self::GateOpen,
        Self::ListenerNotTold,
        Self::EndNotTold,
        Self::StaleInstanceWrites,
        Self::IntentLost,
        Self::WakeTimeLost,
        Self::ResultAltered,
        Self::StrikesForgotten,
        Self::EndOfCallLost,
        Self::RemainsLeft,
        Self::YieldLost,
        Self::YieldIsAStrike,
        Self::LeaseNeverEnds,
        Self::BeatUnheard,
        Self::SilenceNeverEnds,
        Self::ClaimedTwice,
        Self::NudgeForgotten,
        Self::BegunForgotten,
        Self::StepTimerLost,
        Self::PatchLost,
        Self::TrailerLost,
        Self::UnreadSignalLost,
        Self::KeptSignalErased,
        Self::LetterGoneEarly,
        Self::AnsweredWithoutEffect,
        Self::MessageKeyless,
        Self::DeadLetterHidden,
        Self::LettersForgotten,
        Self::ParentToldTwice,
        Self::ToldAfterTheWait,
        Self::CancelNotSent,
        Self::ChildKeyDropped,
        Self::GivenUpForgotten,
        Self::IdentityLost,
        Self::ShownEarly,
        Self::CursorSkips,
        Self::ReaderNotTold,
        Self::OlderManifestWins,
        Self::DeployResumes,
        Self::RevocationLost,
        Self::WatcherLost,
        Self::WordUnheard,
        Self::DelayForgotten,
    ];
}
