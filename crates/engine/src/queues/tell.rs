//! Tells another queue of dead letters.

use std::rc::Rc;

use stepwell_core::{
    object::Delivery,
    queue::{Died, Telling},
};
use stepwell_protocol::{Problem, json, queue::DeadLetter};

use super::Host;
use crate::{
    calls::queues::{Call, Request, ask},
    log,
    object::in_time,
    runtime,
};

/// How long it tells: the machine waits a little longer.
const TIME_MS: u64 = 20_000;

impl Host {
    /// Tells another queue of dead letters, one after the other. The machine hears how far that went.
    pub(super) fn tell_dead(self: &Rc<Self>, telling: Telling) {
        let host = self.clone();
        self.go_on_with(async move {
            let Telling { flight, queue, jobs, through } = telling;
            let (mut told, mut is_all) = (None, true);
            let began = runtime::clock().as_millis();
            for (died, job) in jobs {
                let Some(letter) = DeadLetter::of(host.queue(), job) else { continue };
                let is_late = runtime::clock().as_millis().saturating_sub(began) > TIME_MS;
                if is_late || !host.tell_of(&queue, died, letter).await {
                    is_all = false;
                    break;
                }
                told = Some(died);
            }
            let told = if is_all { Some(through) } else { told };
            let heard = host.turn(|machine, store, now| Ok(machine.told(store, now, flight, told, is_all)?));
            if let Err(fault) = heard {
                log::error!("dead letters are told to '{queue}' again: {fault}");
            }
        });
    }

    /// Says whether that is settled.
    async fn tell_of(&self, queue: &str, (at, number): Died, letter: DeadLetter) -> bool {
        // A job that is redriven and dies again is told again.
        let id = format!("\ndead\n{}\n{}\n{number}\n{}", letter.queue, letter.job, at.as_millis());
        let job = Box::new(letter.told_to(queue));
        let call = Call { settings: None, request: Request::Take { letter: id, job } };
        match in_time(ask(&self.env, &self.address.namespace, queue, 0, &call)).await {
            Ok((200, _)) => true,
            Ok((_, body)) => {
                let problem = json::from_str::<Problem>(&body).ok();
                problem.is_some_and(|problem| {
                    log::warn!("'{queue}' refuses a dead letter: {}", problem.detail);
                    matches!(Delivery::refused(problem), Delivery::Refused(_))
                })
            }
            Err(thrown) => {
                let why = runtime::message(&thrown);
                log::warn!("'{queue}' was not told of a dead letter yet: {why}");
                false
            }
        }
    }
}
