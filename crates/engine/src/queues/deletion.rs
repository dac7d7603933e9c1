//! How a queue is deleted. The first partition has stored that it shall be, and goes on with it until it is: all others
//! take no more jobs, then they delete what they have, and then it does so itself.

use std::rc::Rc;

use stepwell_core::{
    catalog::Station,
    object::Address,
    queue::{Closed, Queue as Machine, is_stale},
};
use stepwell_protocol::{Code, Problem, json, queue::QueueSettings};

use super::Host;
use crate::{
    calls::{catalog, queues::Request},
    object::{Answered, Fault, in_time},
};

impl Host {
    /// Deletes the queue, with its jobs or only if there are none.
    pub(super) async fn delete(self: &Rc<Self>, with_jobs: bool) -> Result<Answered, Fault> {
        self.settle(&mut |machine, store, now| Ok(machine.delete(store, now, with_jobs)?))?;
        self.go_on_deleting().await?;
        Ok(Answered::new(200, &()))
    }

    /// Goes on with the deletion. Whatever does not answer is asked again by the alarm.
    pub(super) async fn go_on_deleting(self: &Rc<Self>) -> Result<(), Fault> {
        if self.is_deleting.replace(true) {
            return Err(unfinished().into());
        }
        let deleted = self.delete_all().await;
        self.is_deleting.set(false);
        deleted
    }

    async fn delete_all(self: &Rc<Self>) -> Result<(), Fault> {
        let found = self.settings()?.zip(self.machine.borrow().deleting());
        let Some((settings, deleting)) = found else { return Ok(()) };
        let mut jobs = self.close(&settings)?.jobs;
        for answer in self.ask_others(&settings, 1, || Request::Close).await {
            match answer {
                Some((200, body)) => {
                    jobs += json::from_str::<Closed>(&body).map_err(|_| unfinished())?.jobs;
                }
                // It has deleted all that it had.
                Some((status, _)) if is_stale(status) => {}
                Some(_) | None => return Err(unfinished().into()),
            }
        }
        if jobs > 0 && !deleting.with_jobs {
            let kept = self.settle(&mut |machine, store, now| Ok(machine.keep(store, now)?))?;
            self.tell(&kept, 1).await?;
            let detail = format!(
                "The queue has {jobs} jobs and dead letters. Purge it first, or delete it with `?purge=true`."
            );
            return Err(Problem::new(Code::WrongStatus, detail).into());
        }
        let with_jobs = deleting.with_jobs;
        for answer in self.ask_others(&settings, 1, || Request::Erase { with_jobs }).await {
            match answer {
                Some((200, _)) => {}
                Some((status, _)) if is_stale(status) => {}
                Some(_) | None => return Err(unfinished().into()),
            }
        }
        for partition in 0..settings.partitions {
            let address = Address::queue(&self.address.namespace, self.queue(), partition);
            let request = catalog::Request::Forget { station: Station::at(&address).to_string() };
            let call = catalog::Call::new(&self.address.namespace, request);
            let (status, _) = in_time(catalog::ask(&self.env, &call)).await?;
            if status != 200 {
                return Err(unfinished().into());
            }
        }
        self.erase_all().await
    }

    /// Deletes all that is stored, if it is about the queue that is meant.
    pub(super) async fn erase_partition(
        self: &Rc<Self>,
        settings: &QueueSettings,
        with_jobs: bool,
    ) -> Result<Answered, Fault> {
        self.act(&mut |machine, store, now| {
            machine.check_erasure(store, now, settings, with_jobs)?;
            Ok(Answered::new(200, &()))
        })?;
        self.erase_all().await?;
        Ok(Answered::new(200, &()))
    }

    fn close(self: &Rc<Self>, settings: &QueueSettings) -> Result<Closed, Fault> {
        let mut closed = Closed { jobs: 0 };
        self.act(&mut |machine, store, now| {
            closed = machine.close(store, now, settings)?;
            Ok(Answered::new(200, &()))
        })?;
        Ok(closed)
    }

    async fn erase_all(self: &Rc<Self>) -> Result<(), Fault> {
        let partition = self.address.partition().map_or(0, |(partition, _)| partition);
        // Claims that wait look again, and find nothing.
        self.waiting.wake(usize::MAX);
        self.store.forget();
        self.erase(Machine::new(partition)).await
    }
}

fn unfinished() -> Problem {
    let detail =
        "The queue is being deleted. Not all of its partitions have answered yet; it goes on by itself.";
    Problem::new(Code::Internal, detail)
}
