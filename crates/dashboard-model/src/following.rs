//! How a page stays connected to a stream: when it tries again, and after which event it goes on.
//!
//! Its invariant: a cursor only moves forward with an event that was taken, so that none is missing or taken twice.

/// The longest pause between two attempts, before chance makes it up to half as long again.
pub const PAUSE_MS_MAX: u32 = 5_000;

/// A connection that lasts so long is a good one: the next loss is the first again.
const LIVE_MS_MIN: u64 = 5_000;

const PAUSE_MS_FIRST: u32 = 250;

/// So many attempts follow each other quickly: most losses are short, and a session that has ended is noticed soon.
const QUICK_ATTEMPTS: u32 = 4;

/// Where a stream stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// The first connection is being made.
    #[default]
    Connecting,
    /// Events come as they happen.
    Live,
    /// The connection was lost, and is made again.
    Reconnecting,
    /// Nobody looks.
    Resting,
    /// There is nothing more to come.
    Over,
}

impl Link {
    /// What people are told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Reconnecting => "reconnecting",
            Self::Resting => "paused",
            Self::Over => "ended",
        }
    }
}

/// What is kept of a stream between its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Following {
    cursor: Option<String>,
    failures: u32,
    live_since_ms: Option<u64>,
}

impl Following {
    /// An event was taken.
    pub fn took(&mut self, id: &str) {
        if !id.is_empty() {
            self.cursor = Some(id.to_owned());
        }
    }

    /// The cursor of the last event that was taken.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The connection was made.
    pub fn opened(&mut self, now_ms: u64) {
        self.live_since_ms = Some(now_ms);
    }

    /// The connection was lost, or was not made. Gives the pause before the next attempt: 50 to 150 % of the usual one,
    /// by a number from 0 to 1, so that many pages do not come back at once.
    pub fn lost(&mut self, now_ms: u64, random: f64) -> u32 {
        let lasted = self.live_since_ms.take().map_or(0, |since| now_ms.saturating_sub(since));
        if lasted >= LIVE_MS_MIN {
            self.failures = 0;
        }
        let slower = (self.failures.saturating_add(1)).saturating_sub(QUICK_ATTEMPTS).min(8);
        let pause = PAUSE_MS_FIRST.saturating_mul(1 << slower);
        self.failures = self.failures.saturating_add(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 7,500")]
        let pause = (f64::from(pause.min(PAUSE_MS_MAX)) * (0.5 + random.clamp(0.0, 1.0))) as u32;
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_begin_anew_after_a_good_connection() {
        let mut following = Following::default();
        let pauses: Vec<_> = (0..10).map(|_| following.lost(0, 0.5)).collect();
        assert_eq!(pauses, [250, 250, 250, 250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!((following.lost(0, 0.0), following.lost(0, 1.0)), (2_500, 7_500));
        // A server that accepts and closes at once is not asked quickly.
        following.opened(1_000);
        following.took("c1");
        assert_eq!(following.lost(5_999, 0.5), 5_000);
        following.opened(10_000);
        assert_eq!(following.lost(15_000, 0.5), 250);
        assert_eq!(following.cursor(), Some("c1"));
        following.took("");
        assert_eq!(following.cursor(), Some("c1"));
    }
}
