//! What Workers and partitions ask of a partition.

use std::rc::Rc;

use futures::future::join_all;
use stepwell_core::{
    object::{Message, Receipt},
    queue::{Content, Form, Looked, Post, Queue as Machine, home, no_queue},
};
use stepwell_protocol::{
    Code, Payload, Problem, Timestamp,
    callback::CALLBACK_QUEUE,
    json,
    queue::{ClaimedList, JSON, JobList, LeaseList, Push, QueuePatch, QueueSettings, QueueState, SentList},
};

use super::{Host, store::Store, waiting::until_woken};
use crate::{
    calls::queues::{Call, Request, Waited, ask},
    object::{Answered, Fault, in_time},
    register::register,
    runtime,
};

/// What is done in a turn.
pub(super) type Acting<'a> = &'a mut dyn FnMut(&mut Machine, &Store, Timestamp) -> Result<Answered, Fault>;

impl Host {
    pub(super) async fn operate(
        self: &Rc<Self>,
        Call { settings, request }: Call,
    ) -> Result<Answered, Fault> {
        self.repair().await?;
        match (request, settings) {
            (Request::Open { create }, _) => self.open(create).await,
            (Request::Configure { patch, state, create }, _) => self.configure(patch, state, create).await,
            (Request::Declare { revision, handler }, _) => self.declare(revision, handler).await,
            (Request::Delete { with_jobs }, _) => self.delete(with_jobs).await,
            (Request::Receive { message }, _) => self.receive(message).await,
            (Request::Tell { id, url, body }, _) => self.tell_address(id, url, body).await,
            (Request::Take { letter, job }, _) => self.take(letter.clone(), Post::sent(letter, *job)?).await,
            (Request::Adopt, Some(settings)) => {
                register(self, &self.address).await?;
                self.store.prepare()?;
                self.turn(|machine, store, now| Ok(Answered::new(200, &machine.make(store, now, settings)?)))
            }
            (Request::Erase { with_jobs }, Some(settings)) => {
                self.erase_partition(&settings, with_jobs).await
            }
            (Request::Wait { nonce, ms }, Some(settings)) => self.wait(&settings, &nonce, ms).await,
            (request, Some(settings)) => self.answer_at_once(&settings, request),
            (_, None) => Err(no_queue().into()),
        }
    }

    /// One turn of the machine. Behind a pointer: the code of a turn is there once, and not for each that is taken.
    pub(super) fn act(self: &Rc<Self>, act: Acting<'_>) -> Result<Answered, Fault> {
        self.turn(|machine, store, now| act(machine, store, now))
    }

    fn answer_at_once(
        self: &Rc<Self>,
        settings: &QueueSettings,
        request: Request,
    ) -> Result<Answered, Fault> {
        let mut request = Some(request);
        self.act(&mut |machine, store, now| {
            let Some(request) = request.take() else { return Err(no_queue().into()) };
            Ok(match request {
                Request::Send { mark, key, posts } => {
                    let results = machine.send(store, now, settings, &mark, key.as_deref(), posts)?;
                    Answered::new(200, &SentList { results })
                }
                Request::Claim(wanted) => {
                    let jobs = machine.claim(store, now, settings, &wanted)?;
                    Answered::new(200, &ClaimedList { jobs })
                }
                Request::Look { nonce } => Answered::new(200, &machine.look(store, now, settings, &nonce)?),
                Request::End { leases, end } => {
                    let results = machine.end(store, now, settings, &leases, &end)?;
                    Answered::new(200, &LeaseList { results })
                }
                Request::Counts => Answered::new(200, &machine.counts(store, now, settings)?),
                Request::Job { id } => Answered::new(200, &machine.job(store, now, settings, &id)?),
                Request::Dead { after, limit } => {
                    let jobs = machine.dead(store, now, settings, after, limit)?;
                    let last = jobs.last().filter(|_| jobs.len() == limit);
                    let next = last.and_then(|job| {
                        Some(format!("{}-{}", job.death.as_ref()?.at.as_millis(), job.id.number))
                    });
                    Answered::new(200, &JobList { jobs, next })
                }
                Request::Edit { id, content } => {
                    Answered::new(200, &machine.edit(store, now, settings, &id, content)?)
                }
                Request::Discard { id } => Answered::new(200, &machine.discard(store, now, settings, &id)?),
                Request::RedriveOne { id } => {
                    machine.redrive_one(store, now, settings, &id)?;
                    Answered::new(200, &machine.job(store, now, settings, &id)?)
                }
                Request::Redrive(redrive) => {
                    Answered::new(202, &machine.redrive(store, now, settings, redrive)?)
                }
                Request::Purge { dead } => Answered::new(202, &machine.purge(store, now, settings, dead)?),
                Request::Close => Answered::new(200, &machine.close(store, now, settings)?),
                Request::Open { .. }
                | Request::Configure { .. }
                | Request::Declare { .. }
                | Request::Delete { .. }
                | Request::Receive { .. }
                | Request::Tell { .. }
                | Request::Take { .. }
                | Request::Adopt
                | Request::Erase { .. }
                | Request::Wait { .. } => Answered::from(Fault::from(no_queue())),
            })
        })
    }

    /// Takes what a cell writes: a callback, or a job that a run has sent.
    async fn receive(self: &Rc<Self>, message: Message) -> Result<Answered, Fault> {
        if let Message::Callback { id, url, body, .. } = message {
            self.tell_address(id, url, body).await
        } else if let Message::Job { run, seq, job } = message {
            let letter = format!("{run}.{}", seq.0);
            self.take(letter.clone(), Post::sent(letter, *job)?).await
        } else {
            Ok(Answered::new(200, &Receipt::Gone))
        }
    }

    /// Takes what an address is told, once for each id.
    async fn tell_address(
        self: &Rc<Self>,
        id: String,
        url: String,
        body: Payload,
    ) -> Result<Answered, Fault> {
        let content = Content { content_type: JSON.into(), form: Form::Json, data: body.into_text() };
        self.take(id.clone(), Post::to_address(content, url, id)).await
    }

    /// Takes what is known by this id: one job, however often it comes.
    async fn take(self: &Rc<Self>, id: String, post: Post) -> Result<Answered, Fault> {
        let settings = match self.settings()? {
            Some(settings) => settings,
            None => self.make(1).await?,
        };
        let (group, dedupe_id) = (post.group.as_deref(), post.dedupe_id.as_deref());
        let partition = home(&settings, group, dedupe_id, Some(&id)).unwrap_or(0);
        let request = Request::Send { mark: id, key: None, posts: vec![post] };
        let answered = if partition == 0 {
            self.answer_at_once(&settings, request)?
        } else {
            self.ask_partition(&settings, partition, request).await?
        };
        Ok(if answered.status == 200 { Answered::new(200, &Receipt::Taken) } else { answered })
    }

    /// Waits until there may be something for a claim.
    async fn wait(
        self: &Rc<Self>,
        settings: &QueueSettings,
        nonce: &str,
        ms: u64,
    ) -> Result<Answered, Fault> {
        let looked = self.look(settings, nonce)?;
        if looked.is_ready || looked.is_held {
            return Ok(Answered::new(200, &Waited { is_ready: true, is_full: false }));
        }
        let Some(receiver) = self.waiting.join() else {
            return Ok(Answered::new(200, &Waited { is_ready: false, is_full: true }));
        };
        let now = runtime::clock().as_millis();
        // Nobody sends a job whose time comes.
        let until_ready = looked.ready_at.map(|at| at.as_millis().saturating_sub(now).max(1));
        until_woken(receiver, until_ready.map_or(ms, |until| until.min(ms))).await;
        let looked = self.look(settings, nonce)?;
        Ok(Answered::new(200, &Waited { is_ready: looked.is_ready, is_full: false }))
    }

    fn look(self: &Rc<Self>, settings: &QueueSettings, nonce: &str) -> Result<Looked, Fault> {
        let mut looked = None;
        self.act(&mut |machine, store, now| {
            looked = Some(machine.look(store, now, settings, nonce)?);
            Ok(Answered::new(200, &()))
        })?;
        looked.ok_or_else(|| no_queue().into())
    }

    /// The settings of the queue, if there is one.
    pub(super) fn settings(self: &Rc<Self>) -> Result<Option<QueueSettings>, Fault> {
        let mut found = None;
        self.act(&mut |machine, store, now| {
            found = machine.settings(store, now)?;
            Ok(Answered::new(200, &()))
        })?;
        Ok(found)
    }

    /// A turn that gives settings.
    pub(super) fn settle(
        self: &Rc<Self>,
        act: &mut dyn FnMut(&mut Machine, &Store, Timestamp) -> Result<QueueSettings, Fault>,
    ) -> Result<QueueSettings, Fault> {
        let mut settled = None;
        self.act(&mut |machine, store, now| {
            settled = Some(act(machine, store, now)?);
            Ok(Answered::new(200, &()))
        })?;
        settled.ok_or_else(|| no_queue().into())
    }

    async fn open(self: &Rc<Self>, create: bool) -> Result<Answered, Fault> {
        match self.settings()? {
            Some(settings) => Ok(Answered::new(200, &settings)),
            None if create => Ok(Answered::new(200, &self.make(1).await?)),
            None => Err(no_queue().into()),
        }
    }

    /// Makes the queue: the other partitions first, so that nobody is sent to one that is not there.
    async fn make(self: &Rc<Self>, partitions: u32) -> Result<QueueSettings, Fault> {
        register(self, &self.address).await?;
        self.store.prepare()?;
        let now = runtime::clock();
        let is_of_callbacks = self.queue() == CALLBACK_QUEUE;
        let new = if is_of_callbacks { QueueSettings::of_callbacks(now) } else { QueueSettings::new(now) };
        let settings = QueueSettings { partitions, keyed_partitions: partitions, ..new };
        self.tell(&settings, 1).await?;
        self.settle(&mut |machine, store, now| {
            Ok(match machine.settings(store, now)? {
                // Somebody else was faster.
                Some(settings) => settings,
                None => machine.make(store, now, settings.clone())?,
            })
        })
    }

    async fn configure(
        self: &Rc<Self>,
        patch: QueuePatch,
        state: Option<QueueState>,
        create: bool,
    ) -> Result<Answered, Fault> {
        if patch.dead_to.as_ref().is_some_and(|to| to.as_deref() == Some(self.queue())) {
            let detail = "A queue cannot be told of its own dead letters. Name another one in `dead_to`.";
            return Err(Problem::new(Code::InvalidRequest, detail).into());
        }
        let mut before = self.settings()?;
        if before.is_none() && create {
            before = Some(self.make(patch.partitions.unwrap_or(1)).await?);
        }
        let Some(before) = before else { return Err(no_queue().into()) };
        let wanted =
            self.settle(&mut |machine, store, now| Ok(machine.patched(store, now, &patch, state)?))?;
        if wanted.partitions > before.partitions {
            self.tell(&wanted, before.partitions).await?;
        }
        let settings =
            self.settle(&mut |machine, store, now| Ok(machine.configure(store, now, &patch, state)?))?;
        self.tell(&settings, 1).await?;
        Ok(Answered::new(200, &settings))
    }

    /// Takes up which handler the app has for the queue.
    async fn declare(self: &Rc<Self>, revision: u64, handler: Option<Push>) -> Result<Answered, Fault> {
        match (self.settings()?, &handler) {
            (None, None) => return Ok(Answered::new(200, &())),
            (None, Some(_)) => drop(self.make(1).await?),
            (Some(_), _) => {}
        }
        let settings = self.settle(&mut |machine, store, now| {
            Ok(machine.declare(store, now, revision, handler.clone())?)
        })?;
        self.tell(&settings, 1).await?;
        Ok(Answered::new(200, &settings))
    }

    /// Tells partitions from this one on what holds. Whoever asks them something tells them, too.
    pub(super) async fn tell(self: &Rc<Self>, settings: &QueueSettings, from: u32) -> Result<(), Fault> {
        let told = self.ask_others(settings, from, || Request::Adopt).await;
        if told.iter().all(|answer| matches!(answer, Some((200, _)))) {
            return Ok(());
        }
        let problem = told.into_iter().flatten().find(|(status, _)| *status != 200);
        let problem = problem.and_then(|(_, body)| json::from_str::<Problem>(&body).ok());
        let detail = "Not all partitions of the queue have answered. Try again: what was set stays set.";
        Err(problem.unwrap_or_else(|| Problem::new(Code::Internal, detail)).into())
    }

    /// Asks the partitions from this one on: a status and a body each, or nothing.
    pub(super) async fn ask_others(
        self: &Rc<Self>,
        settings: &QueueSettings,
        from: u32,
        request: impl Fn() -> Request,
    ) -> Vec<Option<(u16, String)>> {
        let (namespace, queue) = (&self.address.namespace, self.queue());
        let asked = (from.max(1)..settings.partitions).map(|partition| {
            let call = Call { settings: Some(settings.clone()), request: request() };
            async move { ask(&self.env, namespace, queue, partition, &call).await.ok() }
        });
        join_all(asked).await
    }

    /// Asks another partition.
    async fn ask_partition(
        self: &Rc<Self>,
        settings: &QueueSettings,
        partition: u32,
        request: Request,
    ) -> Result<Answered, Fault> {
        let call = Call { settings: Some(settings.clone()), request };
        let (namespace, queue) = (&self.address.namespace, self.queue());
        let (status, body) = in_time(ask(&self.env, namespace, queue, partition, &call)).await?;
        Ok(Answered { status, body, location: None })
    }

    /// The name of the queue.
    pub(super) fn queue(&self) -> &str {
        self.address.partition().map_or("", |(_, queue)| queue)
    }
}
