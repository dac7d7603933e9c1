//! The counts that a person reads.

use std::fmt;

use crate::kill::report::Kills;

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How engine and app were put together.
    pub form: &'static str,
    /// Who was killed how often.
    pub kills: Kills,
    /// Events that were accepted.
    pub events: usize,
    /// Requests that had to be sent again.
    pub repeats: u32,
    /// Events that were accepted by a request whose answer was lost.
    pub unheard: u32,
    /// Runs by each trigger.
    pub started: Vec<usize>,
    /// Waits that got their events.
    pub met: u32,
    /// Waits that got events that were sent before their runs were started.
    pub met_early: u32,
    /// Waits that timed out because nobody has sent their events.
    pub timed_out: u32,
    /// Waits that timed out because their events came at another time.
    pub missed: u32,
    /// Waits that got an event which does not name them: the topic was killed before it heard of the end.
    pub unnamed: u32,
    /// Runs that their events have cancelled.
    pub cancelled: u32,
    /// Runs that no event was sent to cancel.
    pub left: u32,
    /// How long after the last kill each event had had its effects.
    pub healed_ms: u128,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, kills, events, repeats, unheard, started, met, met_early, .. } = self;
        let Self { timed_out, missed, unnamed, cancelled, left, healed_ms, .. } = self;
        writeln!(f, "{form}: {} engine, {} app, {} both killed", kills.engine, kills.app, kills.both)?;
        writeln!(
            f,
            "  {events} events accepted, 0 lost, 0 doubled; {repeats} requests sent again, {unheard} events accepted \
             unheard"
        )?;
        writeln!(f, "  {started:?} runs by the triggers, one for each event that matches")?;
        writeln!(
            f,
            "  {met} waits and {met_early} with early events met once; {timed_out} without an event timed out, \
             {missed} whose event came at another time; {unnamed} met that their event does not name"
        )?;
        write!(
            f,
            "  {cancelled} runs cancelled by their events, {left} others not; each event had its effects {healed_ms} \
             ms after the last kill"
        )
    }
}
