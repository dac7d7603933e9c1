//! A run that begins anew: the same id, a new input, and a journal of which only the signals are left that nobody took.
//!
//! Owns: what of a run goes over into its next life, and when a life has done nothing. Does not own: the deletion of
//! what earlier lives have left behind, which its cell does by and by ([`Run::remains`]).
//!
//! Invariant: a signal counts in every life until somebody takes it, and in none after that.

use stepwell_protocol::{
    Code, Life, Payload, Problem, Seq, Timestamp,
    program::{Commit, Then},
};

use super::{
    Cut, Decision, Effect, Entry, Inbox, Mark, Rejection, Reply, Run, Trouble, decide::deadline, retry::mix,
};

impl Run {
    /// When its present life began.
    pub fn life_began_at(&self) -> Timestamp {
        self.life.map_or_else(|| self.starts_at.unwrap_or(self.created_at), |life| life.began_at)
    }

    /// Refuses a new life that would keep what is not there: the program knows another journal.
    pub(super) fn check_keeps(&self, commit: &Commit) -> Result<(), Rejection> {
        let Then::Anew { keeps, .. } = &commit.then else { return Ok(()) };
        let is_there = |seq: &Seq| Seq(0) < *seq && *seq <= commit.base && self.counts(*seq);
        if keeps.is_sorted_by(|one, next| one < next) && keeps.iter().all(is_there) {
            return Ok(());
        }
        let detail = "The next life of the run would keep signals that its journal does not have.";
        Err(Problem::new(Code::InvalidRequest, detail))
    }

    /// Its program wants a new life for it, and has seen all there is. `through` is where the journal ends with what the
    /// program has just reported.
    pub(super) fn begin_anew(
        &self,
        now: Timestamp,
        through: Seq,
        input: Payload,
        keeps: &[Seq],
        keeps_bytes: u64,
    ) -> Decision {
        let unread = u32::try_from(keeps.len()).unwrap_or(u32::MAX);
        let anew = Entry::BegunAnew {
            input,
            at: now,
            cuts: Cut::all_but(keeps, through),
            inbox: Inbox { unread, bytes: keeps_bytes.min(self.inbox.bytes) },
            // A life gets as much time as a run that is started.
            deadline: deadline(now, self.timeout_ms),
        };
        // Whatever it has not kept, it has done or taken.
        let reported = through.0 - self.head.0;
        if self.counted_after(Seq(0)).saturating_add(reported) > unread {
            return Decision {
                entries: vec![anew, Entry::Troubled(Trouble::default()), Entry::Queued { not_before: now }],
                effects: vec![Effect::Enqueue],
                reply: Reply::Stop,
                ..Decision::default()
            };
        }
        // The next life would do the same, for ever: it has to wait, and some time that is enough.
        let mut trouble = self.current_trouble();
        (trouble.strikes, trouble.since) = (trouble.strikes + 1, Seq(0));
        let mut again = self.try_again(now, trouble, "it began anew each time and had done nothing");
        if again.effects.contains(&Effect::Enqueue) {
            again.entries.insert(0, anew);
        }
        Decision { reply: Reply::Stop, ..again }
    }

    /// Nothing of the life before counts any more, nor does what was held against it. What people know the run by stays,
    /// and so does its bill.
    pub(super) fn live_anew(
        &mut self,
        input: &Payload,
        at: Timestamp,
        cuts: &[Cut],
        inbox: Inbox,
        deadline: Option<Timestamp>,
    ) {
        let number = self.life.map_or(1, |life| life.number).saturating_add(1);
        self.life = Some(Life { number, began_at: at, after: self.epoch });
        self.input_bytes = u32::try_from(input.size()).unwrap_or(u32::MAX);
        // The same steps draw other numbers than in the life before.
        self.seed = mix(self.seed);
        self.cuts = cuts.to_vec();
        self.remains = cuts.last().map(|cut| cut.through);
        self.inbox = inbox;
        self.deadline = deadline;
        // In the new life, its program has written nothing; a repeat of the last word before it is still known.
        self.mark = self.mark.map(|mark| Mark { through: Seq(0), ..mark });
        self.open.clear();
        self.held.clear();
        self.children.clear();
        self.patches.clear();
        self.progress = None;
        self.last_error = None;
        self.failed_since = None;
    }

    /// Some of what earlier lives have left behind was deleted, or all of it. Only memory knows, until the row is
    /// written again: whoever finds less to delete than there was does no harm.
    pub(crate) fn trimmed(&mut self, rows: usize, is_all: bool) {
        self.spent.rows = self.spent.rows.saturating_add(u32::try_from(rows).unwrap_or(u32::MAX));
        if is_all {
            self.remains = None;
        }
    }
}
