//! Bugs that are planted in worlds of topics: in their storage, in their hosts, and in what travels between them.

/// A mechanism that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The watermark is stored before what is below it is delivered.
    WatermarkAhead,
    /// Whoever sends events is answered before they are durable.
    AnsweredEarly,
    /// The ids that senders give are not stored.
    IdLost,
    /// The ids of requests that came before are not read by a fresh instance.
    MarksForgotten,
    /// Nobody looks at the events before a wait.
    LookBackSkipped,
    /// What was looked at before a wait counts as done before it is delivered.
    LookedAhead,
    /// A run that an event has started may get the same event.
    OwnEventGot,
    /// A wait gets events whatever its condition says.
    ConditionDropped,
    /// A wait that has its event gets another one.
    TakenTwice,
    /// A wait that is over gets an event.
    TakenTooLate,
    /// An event that a run has had is not known as such.
    HadForgotten,
    /// What an earlier activation has said of a wait takes the place of what a later one has.
    OldWaitWins,
    /// A cell that cannot take an event yet is taken for one whose wait is over.
    LaterIsGone,
    /// Cells do not know the runs of events by their keys.
    StartKeyless,
    /// A paused trigger starts runs.
    PauseForgotten,
    /// A trigger that was deleted is back in the next instance.
    DeletionForgotten,
    /// What the code declared before takes the place of what it declares by now.
    OlderRevisionWins,
    /// Letters of cells are answered, and nothing comes of them.
    AnsweredWithoutEffect,
    /// A fresh instance of a cell does not look for letters that were not answered.
    LettersForgotten,
    /// What a run emits gets a new id each time that it arrives.
    EmittedAnew,
    /// A fresh instance trusts that its alarm is set.
    NoRepair,
    /// What a cell answers without having written anything does not wait for its fence.
    CellUnfenced,
    /// The same for topics.
    TopicUnfenced,
    /// What is parked is never tried again by the next instance.
    ParkedForgotten,
    /// The ids of deliveries are not stored.
    DeliveryIdLost,
    /// A secret that was replaced is good for ever.
    SecretForever,
    /// Events are deleted as soon as they are looked at, whether what is parked for them was done or not.
    EventGone,
    /// The answers to a batch are in another order than its events.
    BatchMixedUp,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self::WatermarkAhead,
        Self::AnsweredEarly,
        Self::IdLost,
        Self::MarksForgotten,
        Self::LookBackSkipped,
        Self::LookedAhead,
        Self::OwnEventGot,
        Self::ConditionDropped,
        Self::TakenTwice,
        Self::TakenTooLate,
        Self::HadForgotten,
        Self::OldWaitWins,
        Self::LaterIsGone,
        Self::StartKeyless,
        Self::PauseForgotten,
        Self::DeletionForgotten,
        Self::OlderRevisionWins,
        Self::AnsweredWithoutEffect,
        Self::LettersForgotten,
        Self::EmittedAnew,
        Self::NoRepair,
        Self::CellUnfenced,
        Self::TopicUnfenced,
        Self::ParkedForgotten,
        Self::DeliveryIdLost,
        Self::SecretForever,
        Self::EventGone,
        Self::BatchMixedUp,
    ];
}
