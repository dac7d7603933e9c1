//! The queue and its consumers: whoever gets a message claims the run, calls its program, and carries what the
//! program says to the cell, each time in a request of its own.

use std::collections::BTreeMap;

use stepwell_core::{
    cell::Claim,
    object::Fault,
    run::{BEAT_MS, Entry, LEASE_MS},
};
use stepwell_protocol::{
    Code, Epoch, Timestamp,
    program::{Activation, Answer, Page, RawPage},
};

use super::{
    World,
    events::{Event, Listener, Outgoing, What, Word},
    programs::{From, refused},
};
use crate::{
    host::Cause,
    outside::{self, Message, Received},
    sabotage::Sabotage,
    tables::{Batch, Write},
};

/// How often the queue delivers a message that its consumer could not follow.
const DELIVERIES_MAX: u32 = 3;

/// How often a consumer says the same.
const TRIES_MAX: u32 = 6;

/// How long it waits for an answer.
const ANSWER_MS: u64 = 700;

/// How long a program listens at a stretch.
const LISTEN_MS: u64 = 20_000;

/// What a consumer knows of the program that it has called.
#[derive(Default)]
pub(super) struct Relay {
    /// How many commits there were.
    turns: u32,
    /// What the program has said and got no answer to: which commit it is, the message, the tries.
    open: BTreeMap<u32, (u32, Message, u32)>,
}

impl World {
    /// Whether a consumer holds the call of a program.
    pub(super) fn is_queued(&self, program: u32) -> bool {
        self.programs.get(&program).is_some_and(|program| program.relay.is_some())
    }

    /// A message enters the queue: it is delivered after these delays, or longer ones.
    pub(super) fn enqueue(&mut self, cell: usize, number: u64, copies: &[u64]) {
        if self.now_ms < self.queue_loses_until_ms && !self.healed {
            self.count("message lost in the queue");
            return;
        }
        for delay_ms in copies {
            let more_ms = if self.rng.percent(20) { self.rng.between(1, 1_500) } else { 0 };
            self.put(delay_ms + more_ms, Event::Nudged(cell, number, 0));
        }
    }

    /// A message is delivered: its consumer asks for the run.
    pub(super) fn nudged(&mut self, cell: usize, number: u64, tries: u32) {
        let alone = self.rng.percent(70);
        for delay_ms in self.network() {
            self.put(delay_ms, Event::Claim(cell, number, alone, tries));
        }
    }

    /// A consumer's claim arrives at the cell.
    pub(super) fn on_claim(&mut self, cell: usize, number: u64, alone: bool, tries: u32) {
        let Some(id) = self.reach(cell) else { return };
        self.cover(cell, id, number, "activate");
        let claimed = self
            .turn(cell, id, Cause::Request, |machine, store, now| machine.claim(store, now, number, alone));
        // Also if it is written and the answer is lost: the cell cannot tell that from a consumer that dies.
        if alone && !matches!(claimed, Ok(Claim::Nothing | Claim::Alone)) {
            self.check.claimed_alone(cell, number);
        }
        let activation = match claimed {
            Ok(Claim::Yours(activation)) => Some(activation),
            Ok(Claim::Alone) => {
                self.put(20, Event::Claim(cell, number, true, tries));
                None
            }
            Ok(Claim::Nothing) if self.is(Sabotage::ClaimedTwice) => self.claim_anyway(cell, id, number),
            Ok(Claim::Nothing) => None,
            Err(_) => {
                if tries < DELIVERIES_MAX {
                    self.put(500, Event::Nudged(cell, number, tries + 1));
                }
                None
            }
        };
        let Some(activation) = activation else { return };
        let Some(name) = self.new_program(cell, id, &activation) else { return };
        if let Some(program) = self.programs.get_mut(&name) {
            program.relay = Some(Relay::default());
        }
        self.send(cell, id, Outgoing::Begin(name));
    }

    /// What a planted bug gives a consumer that comes second.
    fn claim_anyway(&mut self, cell: usize, id: u64, number: u64) -> Option<Box<Activation<RawPage>>> {
        let run = self.sites[cell].instance(id)?.store.peek(number).filter(|run| run.is_leased())?;
        let activation = self.turn(cell, id, Cause::Request, |machine, store, now| {
            machine.activation(store, now, number, run.epoch)
        });
        activation.ok().map(Box::new)
    }

    /// The instance that a request gets to, if it can answer.
    pub(super) fn reach(&mut self, cell: usize) -> Option<u64> {
        let stale = self.sites[cell].stale.as_ref().map(|stale| stale.id);
        let id = match stale {
            // Whoever still has the old address asks the instance that has lost the name.
            Some(stale) if self.rng.percent(30) => stale,
            Some(_) | None => self.load(cell),
        };
        self.repair(cell, id).ok()?;
        self.sites[cell].instance(id).map(|_| id)
    }

    /// A program says something to its consumer.
    pub(super) fn say(&mut self, name: u32, call: u32, message: Message) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        let Some(relay) = &mut program.relay else { return };
        if let Message::Commit(_) = message {
            relay.turns += 1;
        }
        relay.open.insert(call, (relay.turns, message, 0));
        self.pass_on(name, call);
    }

    /// A consumer says to the cell what its program has said.
    fn pass_on(&mut self, name: u32, call: u32) {
        let Some(program) = self.programs.get(&name) else { return };
        let Some((turn, message, tries)) = program.relay.as_ref().and_then(|relay| relay.open.get(&call))
        else {
            return;
        };
        let patience_ms = if let Message::Listen(_) = message { LISTEN_MS + ANSWER_MS } else { ANSWER_MS };
        let (tries, what) = (*tries, What::Said(call, *turn, message.clone()));
        let word = Word {
            program: name,
            cell: program.cell,
            number: program.run.number,
            epoch: program.epoch,
            what,
        };
        self.send_word(&word);
        self.put(patience_ms, Event::Impatient(name, call, tries));
    }

    /// Sends a word on its way.
    pub(super) fn send_word(&mut self, word: &Word) {
        for delay_ms in self.network() {
            self.put(delay_ms, Event::Word(word.clone()));
        }
    }

    /// A consumer got no answer: it says the same again, or gives up.
    pub(super) fn impatient(&mut self, name: u32, call: u32, tries: u32) {
        let Some(program) = self.programs.get_mut(&name) else { return };
        if program.hung {
            return;
        }
        let Some(relay) = &mut program.relay else { return };
        let Some(open) = relay.open.get_mut(&call) else { return };
        if open.2 != tries {
            return;
        }
        open.2 += 1;
        if open.2 < TRIES_MAX {
            self.pass_on(name, call);
        } else {
            relay.open.remove(&call);
            outside::deliver(name, call, Received::Lost);
            self.poll(name);
        }
    }

    /// An answer arrives at a program, or at its consumer.
    pub(super) fn hand_over(&mut self, name: u32, call: u32, received: Received) {
        if self.is_queued(name) {
            let failed = match &received {
                Received::Lost => true,
                Received::Answer(Answer::Refused { problem }) => problem.code == Code::Internal,
                Received::Answer(_) | Received::Page(_) => false,
            };
            let relay = self.programs.get_mut(&name).and_then(|program| program.relay.as_mut());
            let Some(relay) = relay else { return };
            if failed {
                if let Some((_, _, tries)) = relay.open.get(&call) {
                    let tries = *tries;
                    self.put(50, Event::Impatient(name, call, tries));
                }
                return;
            }
            if relay.open.remove(&call).is_none() {
                // It has given up on that call, or the answer came before.
                return;
            }
        }
        outside::deliver(name, call, received);
        self.poll(name);
    }

    /// A consumer's word arrives at the cell, in whatever instance that has.
    pub(super) fn on_word(&mut self, word: Word) {
        let Word { program: name, cell, number, epoch, what } = word;
        let Some(id) = self.reach(cell) else {
            if let What::Said(call, ..) = what {
                self.put(1, Event::ToProgram(name, call, Received::Lost));
            }
            return;
        };
        match what {
            What::Said(call, turn, message) => {
                self.said(From { cell, id, name, number, epoch }, call, turn, message);
            }
            What::Beat => {
                self.cover(cell, id, number, "heard");
                self.note_beat(cell, id, number, epoch);
                if self.is(Sabotage::BeatUnheard) {
                    return;
                }
                let heard = self.turn(cell, id, Cause::Request, |machine, store, now| {
                    machine.renew(store, now, number, epoch)
                });
                if let Err(Fault::Rejected(_)) = heard
                    && !self.sites[cell].is_stale(id)
                {
                    self.send(cell, id, Outgoing::Dropped(name));
                }
            }
            What::Ended(end) => {
                self.check.call_ended(cell, number, &end);
                self.cover(cell, id, number, crate::coverage::end(&end));
                // If it cannot be recorded, the lease ends by itself.
                let _ = self.turn(cell, id, Cause::CallEnded, |machine, store, now| {
                    machine.call_ended(store, now, number, epoch, end)
                });
            }
        }
    }

    fn said(&mut self, from: From, call: u32, turn: u32, message: Message) {
        let From { cell, id, name, number, epoch } = from;
        match message {
            Message::Commit(text) => self.on_commit(from, call, turn, &text),
            Message::Page(after) => {
                self.addressed.insert(number);
                let page = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
                    machine.page_for(store, now, number, epoch, after)
                });
                let received = match page {
                    Ok(page) => {
                        let text = serde_json::to_string(&page).expect("a page is JSON");
                        let page: Page = serde_json::from_str(&text).expect("it was written as one");
                        Received::Page(page)
                    }
                    Err(_) => Received::Lost,
                };
                self.send(cell, id, Outgoing::ToProgram(name, call, received));
            }
            Message::Beat(beat) => {
                self.cover(cell, id, number, "heard");
                let beaten = self.turn(cell, id, Cause::Program(name), |machine, store, now| {
                    machine.beat(store, now, number, epoch, beat)
                });
                self.send(cell, id, Outgoing::ToProgram(name, call, Received::Answer(refused(beaten))));
            }
            Message::Listen(after) => {
                let listener = Listener { program: name, call, number, epoch, after };
                let answer = self.look(cell, id, listener);
                if matches!(&answer, Answer::Go { news, .. } if news.is_empty()) {
                    if let Some(instance) = self.sites[cell].instance_mut(id) {
                        instance.own.listeners.entry(number).or_default().push(listener);
                        self.put(LISTEN_MS, Event::ListenOver(cell, id, listener));
                    }
                    return;
                }
                self.send(cell, id, Outgoing::ToProgram(name, call, Received::Answer(answer)));
            }
        }
    }

    /// What there is to hear for a program that listens through its consumer.
    fn look(&mut self, cell: usize, id: u64, listener: Listener) -> Answer {
        let Listener { program, number, epoch, after, .. } = listener;
        self.addressed.insert(number);
        refused(self.turn(cell, id, Cause::Program(program), |machine, store, now| {
            machine.renew(store, now, number, epoch)?;
            machine.news(store, now, number, epoch, after)
        }))
    }

    /// A program has listened long enough: it is told that there is nothing, and asks again.
    pub(super) fn listen_over(&mut self, cell: usize, id: u64, listener: Listener) {
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        let Some(listeners) = instance.own.listeners.get_mut(&listener.number) else { return };
        let is_it = |other: &Listener| (other.program, other.call) == (listener.program, listener.call);
        let Some(index) = listeners.iter().position(is_it) else { return };
        listeners.remove(index);
        let answer = self.look(cell, id, listener);
        let received = Received::Answer(answer);
        self.send(cell, id, Outgoing::ToProgram(listener.program, listener.call, received));
    }

    /// It is time for a consumer to say that its program is at work.
    pub(super) fn beat(&mut self, name: u32) {
        let Some(program) = self.programs.get(&name) else { return };
        if !program.hung {
            let word = Word {
                program: name,
                cell: program.cell,
                number: program.run.number,
                epoch: program.epoch,
                what: What::Beat,
            };
            self.send_word(&word);
        }
        self.put(BEAT_MS, Event::Beat(name));
    }

    /// An instance hears that the call of a leased activation is at work.
    fn note_beat(&mut self, cell: usize, id: u64, number: u64, epoch: Epoch) {
        let clock = self.sites[cell].clock(self.now_ms);
        let Some(instance) = self.sites[cell].instance_mut(id) else { return };
        let run = instance.store.peek(number);
        if run.is_some_and(|run| run.is_leased() && run.is_held_by(epoch)) {
            let at = instance.latest.max(clock);
            instance.own.beats.insert(number, (epoch, at));
        }
    }

    /// An alarm gives up only on calls that were silent for as long as their lease.
    pub(super) fn check_leases(&mut self, cell: usize, id: u64, batch: &Batch) {
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let is_given_up = |write: &Write| {
            write.entries.iter().any(|entry| matches!(entry, Entry::Troubled(trouble) if trouble.losses > 0))
        };
        let early = batch.writes.iter().filter(|write| is_given_up(write)).find_map(|write| {
            let (epoch, at) = *instance.own.beats.get(&write.number)?;
            let is_it = write.row.as_ref().is_some_and(|row| row.epoch() == Some(epoch));
            (is_it && at.plus_millis(LEASE_MS) > instance.latest).then_some((write.number, epoch, at))
        });
        if let Some((number, epoch, at)) = early {
            let ago_ms = instance.latest.as_millis().saturating_sub(at.as_millis());
            let detail = format!("cell {cell}, run {number}: activation {} beat {ago_ms} ms ago", epoch.0);
            self.fail("11 a call that beats keeps its lease", detail);
        }
    }

    /// A consumer is gone, and its program with it; or it has heard that it need not go on.
    pub(super) fn vanish(&mut self, name: u32) {
        if self.programs.remove(&name).is_some() {
            self.note(|| format!("program {name} is gone with its consumer"));
            outside::forget(name);
        }
    }

    /// One of the consumers dies. Says whether there was any.
    pub(super) fn a_consumer_dies(&mut self) -> bool {
        let names: Vec<_> = self.programs.keys().copied().filter(|name| self.is_queued(*name)).collect();
        if names.is_empty() {
            return false;
        }
        let name = *self.rng.pick(&names);
        self.vanish(name);
        true
    }

    /// What a planted bug does before the alarm looks at leases.
    pub(super) fn renew_leases(&mut self, cell: usize, id: u64) {
        let Some(instance) = self.sites[cell].instance(id) else { return };
        let running = instance.store.due_by(Timestamp::MAX).into_iter();
        let leased: Vec<_> =
            running.filter(|run| run.is_leased()).map(|run| (run.id.number, run.epoch)).collect();
        for (number, epoch) in leased {
            // Nobody looks at what comes of it.
            let _ = self.turn(cell, id, Cause::Request, |machine, store, now| {
                machine.renew(store, now, number, epoch)
            });
        }
    }
}
