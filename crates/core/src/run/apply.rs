//! Makes the state follow what was recorded. Total: whatever was stored can be applied.

use stepwell_protocol::{Event, Timestamp, trace::Chapter};

use super::{Cut, End, Entry, LEASE_MS, PauseWhy, Phase, Run, Transport, Trouble, cuts};

impl Run {
    /// Follows one entry.
    pub fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Recorded { record, mark } => {
                self.head = record.seq;
                self.mark = mark.or(self.mark);
                self.remember_error(record);
                self.follow_children(record.seq, &record.event);
                self.follow_visits(&record.event);
                if let Event::SignalReceived { payload, .. } = &record.event {
                    self.inbox.unread = self.inbox.unread.saturating_add(1);
                    self.inbox.bytes = self.inbox.bytes.saturating_add(payload.size() as u64);
                }
            }
            // Its row alone knows it.
            Entry::SignalNoted(_) | Entry::SignalForgotten(_) => {}
            Entry::Marked(mark) => self.mark = Some(*mark),
            Entry::OpenChanged(open) => self.follow_open(open),
            Entry::Troubled(trouble) => self.trouble = *trouble,
            Entry::Queued { not_before } => {
                self.want_ticket();
                self.draining = false;
                self.phase = Phase::Pending { not_before: *not_before };
            }
            Entry::Activated { epoch, at, slot } => {
                self.epoch = *epoch;
                self.began_at = self.head;
                if let Some(lane) = &mut self.lane {
                    lane.is_used = true;
                    lane.first.get_or_insert(lane.ticket);
                }
                self.draining = false;
                let lease = match slot.session {
                    Transport::Token => Some(at.plus_millis(LEASE_MS)),
                    Transport::Capability => None,
                };
                self.phase = Phase::Running { since: *at, session: slot.session, alone: slot.alone, lease };
            }
            Entry::Joined(joined) => self.take_start(joined),
            Entry::Leased { until } => {
                if let Phase::Running { lease, .. } = &mut self.phase {
                    *lease = Some(*until);
                }
            }
            Entry::SignalsRead { unread } => self.inbox.unread = *unread,
            Entry::Suspended => {
                self.phase = Phase::Suspended;
                // What was let in and has not begun by now, nobody awaits.
                self.held.clear();
                self.trouble = Trouble::default();
            }
            Entry::Patched(patches) => {
                for patch in patches {
                    // A program that got no answer says it again.
                    if !self.patches.contains(patch) {
                        self.patches.push(patch.clone());
                    }
                }
            }
            Entry::TokenKeyUsed(key) => self.token_key = Some(key.clone()),
            Entry::Progressed(progress) => self.progress = Some(progress.clone()),
            Entry::ProgressForgotten => self.progress = None,
            Entry::FailingSince(seq) => self.failed_since = Some(*seq),
            Entry::Attributed { name, value, .. } => {
                self.attributes.insert(name.clone(), value.clone());
            }
            Entry::Rewound(more) => {
                self.cuts.extend(more);
                self.cuts = Cut::joined(std::mem::take(&mut self.cuts));
                // If the last commit is among what was cut, no program that goes on from here has made it.
                self.mark = self.mark.filter(|mark| cuts::counts(&self.cuts, mark.through));
                // What is invoked again is another child.
                self.children.retain(|seq| cuts::counts(&self.cuts, seq));
            }
            Entry::BegunAnew { input, at, cuts, inbox, deadline } => {
                self.begin_chapter(*at);
                self.live_anew(input, *at, cuts, *inbox, *deadline);
            }
            Entry::Reopened { at, deadline } => {
                self.begin_chapter(*at);
                self.deadline = *deadline;
                self.failed_since = None;
            }
            Entry::Paused(why) => {
                let at_work = matches!(self.phase, Phase::Running { .. });
                self.draining = at_work && *why == PauseWhy::Request;
                self.stop_visits();
                self.phase = Phase::Paused { why: why.clone() };
            }
            Entry::Completed { at, .. } => self.end(End::Completed, *at),
            Entry::Failed { at, .. } => self.end(End::Failed, *at),
            Entry::Cancelled { at } => self.end(End::Cancelled, *at),
            Entry::LetGo(children) => self.let_go(children),
            Entry::Left(steps) => self.held.retain(|held| !steps.contains(&held.op)),
            Entry::ActedOn(act) => self.remember_act(act),
            Entry::Expired => self.deleting = true,
            Entry::Emptied => self.emptied = true,
        }
    }

    /// Follows all entries of a decision, in order.
    pub fn apply_all(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.apply(entry);
        }
    }

    fn begin_chapter(&mut self, began_at: Timestamp) {
        let number = self.chapter.map_or(0, |chapter| chapter.number).saturating_add(1);
        self.chapter = Some(Chapter { number, began_at });
    }

    fn end(&mut self, how: End, at: stepwell_protocol::Timestamp) {
        self.draining = false;
        if let Some(lane) = &mut self.lane {
            // Whoever takes it up again lets it begin again.
            (lane.is_used, lane.first) = (false, None);
        }
        self.phase = Phase::Ended { how, at };
        self.open.clear();
        self.held.clear();
        self.trouble = Trouble::default();
    }
}
