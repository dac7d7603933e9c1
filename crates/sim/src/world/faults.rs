//! What breaks.

use stepwell_core::run::CallEnd;

use super::{
    World,
    events::Event,
    host::{Any, At, with_address},
    site::{Platform, Trap},
};
use crate::script::Fault;

impl World {
    pub(super) fn fault(&mut self, index: usize) {
        if self.healed {
            return;
        }
        let fault = self.script.faults[index].1;
        self.note(|| format!("FAULT {fault:?}"));
        if self.strike(fault) {
            self.count(fault.name());
        } else {
            // There was nothing to break: a little later there may be.
            self.put(170, Event::Fault(index));
        }
    }

    /// Says whether there was anything to break.
    fn strike(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Crash(of) => with_address!(self.object(of), at => self.crash_live(at)),
            Fault::CrashBeforeCommit(of) => self.trap(of, Trap::Before),
            Fault::CrashAfterCommit(of) => self.trap(of, Trap::After),
            Fault::DeliveredAgain(of) => self.trap(of, Trap::Unanswered),
            Fault::CrashInRecovery(of) => {
                self.platform(of).crash_in_recovery = true;
                with_address!(self.object(of), at => self.crash_live(at))
            }
            Fault::CommitThenError(of) => {
                self.platform(of).error_next = true;
                true
            }
            Fault::RefuseWrites(of, ms) => {
                self.platform(of).refuses_until_ms = self.now_ms + ms;
                true
            }
            Fault::AlarmLate(of, ms) => {
                self.platform(of).late_ms = ms;
                true
            }
            Fault::AlarmEarly(of, ms) => {
                self.platform(of).early_ms = ms;
                true
            }
            Fault::AlarmTwice(of) => with_address!(self.object(of), at => self.alarm_twice(at)),
            Fault::AlarmDropped(of) => with_address!(self.object(of), at => self.drop_alarm(at)),
            Fault::SecondInstance(of) => with_address!(self.object(of), at => self.supersede(at)),
            Fault::ClockForward(of, ms) => {
                self.platform(of).offset_ms += ms;
                with_address!(self.object(of), at => self.come_to_alarm(at));
                true
            }
            Fault::ClockBack(of, ms) => {
                self.platform(of).offset_ms -= ms;
                true
            }
            Fault::ProgramHangs(ms) => self.with_a_program(|world, name| {
                if let Some(program) = world.programs.get_mut(&name) {
                    program.hung = true;
                    program.hangs_for_ever = program.relay.is_none() && ms.is_multiple_of(2);
                    if program.hangs_for_ever {
                        world.count("call hangs for ever");
                        return;
                    }
                }
                world.put(ms, Event::Kill(name, CallEnd::Lost("it took too long".into())));
            }),
            Fault::ProgramThrows => {
                self.with_a_program(|world, name| world.kill(name, CallEnd::Threw("it threw".into())))
            }
            Fault::ProgramDies => self.with_a_program(|world, name| {
                // Its cell can tell the one from the other or not.
                let end = if name.is_multiple_of(2) { CallEnd::Lost } else { CallEnd::Died };
                world.kill(name, end("the connection broke".into()));
            }),
            Fault::ProgramReturns => self.with_a_program(|world, name| world.kill(name, CallEnd::Returned)),
            Fault::ProgramGarbage => self.with_a_program(Self::garbage),
            Fault::ProgramYields => self.with_a_program(Self::yields),
            Fault::OldWord(cell) => self.old_word(cell),
            Fault::ProgramsSurvive => {
                self.survive = !self.survive;
                true
            }
            Fault::Deploy(build) => std::mem::replace(&mut self.build, build) != build,
            Fault::ConsumerDies => self.a_consumer_dies(),
            Fault::QueueLoses(ms) => {
                self.queue_loses_until_ms = self.now_ms + ms;
                true
            }
            Fault::OneTick(index) => {
                self.all_at_once(index);
                true
            }
        }
    }

    /// An object by its number: the catalog comes after the cells.
    fn object(&self, number: usize) -> Any {
        if number < self.sites.len() { Any::Cell(number) } else { Any::Catalog }
    }

    fn platform(&mut self, number: usize) -> &mut Platform {
        with_address!(self.object(number), at => &mut at.site_mut(self).platform)
    }

    fn crash_live<A: At>(&mut self, at: A) -> bool {
        let Some(id) = at.site(self).live.as_ref().map(|live| live.id) else { return false };
        self.crash(at, id);
        true
    }

    fn trap(&mut self, number: usize, trap: Trap) -> bool {
        self.platform(number).trap = Some(trap);
        true
    }

    fn alarm_twice<A: At>(&mut self, at: A) -> bool {
        if at.site(self).firing {
            return false;
        }
        let alarm = at.site(self).alarm;
        self.fire(at);
        // What was set before stands until it fires, or is replaced.
        alarm.is_some()
    }

    fn drop_alarm<A: At>(&mut self, at: A) -> bool {
        self.crash_live(at);
        let site = at.site_mut(self);
        site.alarm_lost = true;
        let had_one = site.alarm.take().is_some();
        let delay_ms = self.rng.between(50, 8_000);
        self.put(delay_ms, Event::Touch(at.any()));
        had_one
    }

    /// The clock was set forward.
    fn come_to_alarm<A: At>(&mut self, at: A) {
        if let Some(alarm) = at.site(self).alarm {
            let due_ms = at.site(self).world_time(alarm);
            self.put_at(due_ms, Event::Alarm(at.any(), alarm.as_millis()));
        }
    }

    /// Another instance gets the name; the first one keeps what it has and does not know.
    fn supersede<A: At>(&mut self, at: A) -> bool {
        let site = at.site_mut(self);
        if site.live.is_none() || site.stale.is_some() || site.firing {
            return false;
        }
        site.supersede();
        at.superseded(self);
        // Whoever supersedes it was called for something.
        self.touch(at.any());
        true
    }

    fn with_a_program(&mut self, does: impl FnOnce(&mut Self, u32)) -> bool {
        let names: Vec<_> =
            self.programs.values().filter(|program| !program.hung).map(|program| program.number_of).collect();
        if names.is_empty() {
            return false;
        }
        let name = *self.rng.pick(&names);
        self.note(|| format!("it is program {name}"));
        does(self, name);
        true
    }
}
