//! What breaks.

use stepwell_core::run::CallEnd;

use super::{World, events::Event, site::Trap};
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
            Fault::Crash(cell) => self.crash_live(cell),
            Fault::CrashBeforeCommit(cell) => self.trap(cell, Trap::Before),
            Fault::CrashAfterCommit(cell) => self.trap(cell, Trap::After),
            Fault::DeliveredAgain(cell) => self.trap(cell, Trap::Unanswered),
            Fault::CrashInRecovery(cell) => {
                self.sites[cell].crash_in_recovery = true;
                self.crash_live(cell)
            }
            Fault::CommitThenError(cell) => {
                self.sites[cell].error_next = true;
                true
            }
            Fault::RefuseWrites(cell, ms) => {
                self.sites[cell].refuses_until_ms = self.now_ms + ms;
                true
            }
            Fault::AlarmLate(cell, ms) => {
                self.sites[cell].late_ms = ms;
                true
            }
            Fault::AlarmEarly(cell, ms) => {
                self.sites[cell].early_ms = ms;
                true
            }
            Fault::AlarmTwice(cell) => {
                if self.sites[cell].firing {
                    return false;
                }
                let alarm = self.sites[cell].alarm;
                self.fire(cell);
                // What was set before stands until it fires, or is replaced.
                alarm.is_some()
            }
            Fault::AlarmDropped(cell) => {
                self.crash_live(cell);
                let site = &mut self.sites[cell];
                site.alarm_lost = true;
                let had_one = site.alarm.take().is_some();
                let delay_ms = self.rng.between(50, 8_000);
                self.put(delay_ms, Event::Touch(cell));
                had_one
            }
            Fault::SecondInstance(cell) => self.supersede(cell),
            Fault::ClockForward(cell, ms) => {
                self.sites[cell].offset_ms += ms;
                if let Some(at) = self.sites[cell].alarm {
                    let due_ms = self.due_ms(cell, at);
                    self.put_at(due_ms, Event::Alarm(cell, at.as_millis()));
                }
                true
            }
            Fault::ClockBack(cell, ms) => {
                self.sites[cell].offset_ms -= ms;
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

    fn crash_live(&mut self, cell: usize) -> bool {
        let Some(id) = self.sites[cell].live.as_ref().map(|live| live.id) else { return false };
        self.crash(cell, id);
        true
    }

    fn trap(&mut self, cell: usize, trap: Trap) -> bool {
        self.sites[cell].trap = Some(trap);
        true
    }

    /// Another instance gets the name; the first one keeps what it has and does not know.
    fn supersede(&mut self, cell: usize) -> bool {
        if self.sites[cell].live.is_none() || self.sites[cell].stale.is_some() || self.sites[cell].firing {
            return false;
        }
        let site = &mut self.sites[cell];
        site.stale = site.live.take();
        if let Some(stale) = &site.stale {
            self.check.instance_died(cell, &site.called_by(stale));
        }
        // Whoever supersedes it was called for something.
        self.touch(cell);
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
