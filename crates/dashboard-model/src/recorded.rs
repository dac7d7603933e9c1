//! The events of a run on the page: from the history, and from a stream that leaves out what is large.

use stepwell_protocol::{Seq, Timestamp, rest::HistoryEvent};

use crate::map::Map;

/// An event, or how large it is.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// The event.
    Whole(HistoryEvent),
    /// It is too large for a stream, and was not asked for.
    Large {
        /// When it was recorded.
        at: Timestamp,
        /// How large it is.
        bytes: usize,
    },
}

impl Recorded {
    /// The event, if it is here.
    pub fn whole(&self) -> Option<&HistoryEvent> {
        match self {
            Self::Whole(event) => Some(event),
            Self::Large { .. } => None,
        }
    }

    /// When it was recorded.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Whole(event) => event.at,
            Self::Large { at, .. } => *at,
        }
    }
}

/// Takes an event of a stream. What the history has told stays: only it knows which events still count.
pub fn take(events: &mut Map<Seq, Recorded>, seq: Seq, told: Recorded) {
    let is_news = events.get(&seq).is_none_or(|known| {
        // Another life of the run counts its events anew.
        known.at() < told.at() || matches!((known, &told), (Recorded::Large { .. }, Recorded::Whole(_)))
    });
    if is_news {
        events.insert(seq, told);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(at: u64, cut: bool) -> Recorded {
        let event = json!({"seq": 1, "at": at, "cut": cut, "event": {"step_begun": {"op": "step:0:a"}}});
        Recorded::Whole(serde_json::from_value(event).expect("an event"))
    }

    fn large(at: u64) -> Recorded {
        Recorded::Large { at: Timestamp::from_millis(at), bytes: 9 }
    }

    #[test]
    fn a_stream_does_not_undo_what_the_history_has_told() {
        let taken = |known: Option<Recorded>, told: Recorded| {
            let mut events = Map::default();
            if let Some(known) = known {
                events.insert(Seq(1), known);
            }
            take(&mut events, Seq(1), told);
            events.get(&Seq(1)).cloned()
        };
        assert_eq!(taken(None, event(5, false)), Some(event(5, false)));
        assert_eq!(taken(Some(event(5, true)), event(5, false)), Some(event(5, true)));
        assert_eq!(taken(Some(event(5, true)), large(5)), Some(event(5, true)));
        assert_eq!(taken(Some(large(5)), event(5, false)), Some(event(5, false)));
        // The next life.
        assert_eq!(taken(Some(event(5, true)), event(6, false)), Some(event(6, false)));
    }
}
