//! The catalog in a world: its keys, the cells that remember them, and what must hold of both.

use std::rc::Rc;

use stepwell_core::{
    access::{About, Credential, Need, ROOT},
    catalog::{ApiKey, Catalog, Confirmation, Desk, Input, Order, TELL_URGENT_MS_MAX, Word},
    cell::Admission,
    object::Fault,
};
use stepwell_protocol::{Code, Place, Timestamp, access::Scope};

use super::{
    World,
    events::{Outgoing, Response},
    host::{After, Any, At},
    site::Site,
};
use crate::{
    catalog::{Catalogs, Drawers, Filing, Shelf},
    check::Checked,
    host::{Batch, Cause, Dead, Refused},
    sabotage::Sabotage,
};

/// The address of the only catalog of a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct TheCatalog;

/// How often a cell asks about a key if what it hears does not hold any more.
const ASKS_MAX: u32 = 4;

/// A cell's question about a key, on behalf of a request.
#[derive(Clone, Debug)]
pub struct Question {
    /// The cell, and the instance that asks: if it dies, nobody waits for the answer.
    pub cell: (usize, u64),
    /// The request.
    pub request: u32,
    /// The key.
    pub key: String,
    /// How often it was asked before.
    pub asked: u32,
}

/// A word of the catalog to a cell, and which instance waits for the answer.
#[derive(Clone, Debug)]
pub struct Telling {
    /// The instance of the catalog.
    pub from: u64,
    /// The cell.
    pub cell: usize,
    /// What it has to forget.
    pub word: Word,
}

/// What is asked of the catalog.
#[derive(Clone, Debug)]
pub(super) enum CatalogAsk {
    /// A version of the app declares what it has: on its own, or because a person wants it to.
    Sync(u32, bool),
    /// Pauses a workflow.
    Pause(&'static str),
    /// Resumes it.
    Resume(&'static str),
    /// Makes this one.
    Create(String),
    /// Revokes it.
    Revoke(String),
    /// Shows it to the catalog.
    Show(String),
    /// Anything at all: it wakes the catalog.
    Touch,
}

impl At for TheCatalog {
    type Kind = Catalogs;
    type Place = ();

    fn any(self) -> Any {
        Any::Catalog
    }

    fn name(self) -> String {
        "catalog".into()
    }

    fn site(self, world: &World) -> &Site<Catalogs, ()> {
        &world.catalog
    }

    fn site_mut(self, world: &mut World) -> &mut Site<Catalogs, ()> {
        &mut world.catalog
    }

    fn make(self, world: &World, disk: Rc<Drawers>, _: bool) -> (Desk, Shelf) {
        (Desk::new(Vec::new()), Shelf::new(disk, world.sabotage))
    }

    fn after_turn(self, world: &mut World, id: u64, turn: &After<'_, Catalogs>) {
        let After { cause, batch, ok, .. } = *turn;
        let (writes, alarm) = batch.map_or((0, None), |batch| (batch.writes.len(), batch.alarm));
        let alarm_ms = alarm.map_or(0, Timestamp::as_millis);
        world.digest([u64::MAX, id, writes as u64 * 2 + u64::from(ok), alarm_ms]);
        let armed_ms = alarm.map(|at| world.catalog.world_time(at));
        world.note(|| {
            let rows = batch.into_iter().flat_map(|batch| &batch.writes).flat_map(|write| &write.rows);
            let rows: Vec<_> = rows.map(|row| format!("{} {}", row.kind, row.name)).collect();
            let failed = if ok { "" } else { " (refused)" };
            let armed = armed_ms.map(|ms| format!("; alarm at {ms}")).unwrap_or_default();
            format!("catalog.{id}: {cause:?}{failed}: {}{armed}", rows.join(", "))
        });
        let Some(instance) = world.catalog.instance_mut(id) else { return };
        if batch.is_none() || instance.store.is_broken() {
            return;
        }
        let stored = instance.store.all().catalog();
        // Memory is a cache of rows.
        if !matches!(instance.machine.catalog(&instance.store), Ok(kept) if *kept == *stored) {
            world.fail("24 memory is a cache of rows", "the catalog and its rows differ".into());
        }
    }

    fn unperformed(self, _: &mut World, _: u64, _: Vec<Order>, _: Option<&Batch<Filing>>) {}

    fn perform(self, world: &mut World, id: u64, _: Cause, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::Tell(words) => {
                    for word in words {
                        let place: Place = word.cell.parse().expect("cells say their places");
                        let Ok(cell) = usize::try_from(place.cell) else { continue };
                        world.send(self, id, Outgoing::Tell(Telling { from: id, cell, word }));
                    }
                }
                Order::Report(corrupt) => world.fail("5 what was recorded stays", corrupt.to_string()),
                Order::Distrust(_) => world.fail("28 nothing else is told", "there are no issuers".into()),
                Order::DeclareSchedules { .. } | Order::DeclareTriggers(_) | Order::DeclareHandlers(_) => {
                    world.fail("28 nothing else is told", "no schedules or triggers are declared".into());
                }
                Order::Touch(_) => world.fail("28 nothing else is told", "there are no stations".into()),
                Order::Delete(_) | Order::Empty(_) | Order::Clear { .. } => {
                    world.fail("28 nothing else is told", "no namespace is deleted".into());
                }
            }
        }
    }

    fn durable(self, world: &mut World, _: Cause, write: &Filing) {
        let before = world.catalog.disk.catalog();
        if let Err(refused) = world.catalog.apply(write) {
            world.fail("5 each outcome is recorded once", refused);
        }
        let after = world.catalog.disk.catalog();
        let checked = world.check.declared(&before, &after, world.catalog.platform.latest);
        world.must(checked);
        for row in write.rows.iter().filter(|row| row.kind == "key") {
            let revoked = |catalog: &Catalog| catalog.key(&row.name).and_then(|key| key.revoked_at);
            if revoked(&before).is_some() && revoked(&after) != revoked(&before) {
                world.fail("28 a revoked key stays revoked", row.name.clone());
            }
        }
    }

    fn before_alarm(self, _: &mut World, _: u64) {}

    fn superseded(self, _: &mut World) {}

    fn died(self, _: &mut World, _: Dead<Catalogs, Outgoing>) {}

    fn check_alarm(self, world: &World, latest: Timestamp) -> Checked {
        let (catalog, alarm) = (world.catalog.disk.catalog(), world.catalog.alarm);
        let by = latest.plus_millis(TELL_URGENT_MS_MAX + 1);
        match catalog.behind().next() {
            Some(cell) if alarm.is_none_or(|alarm| alarm > by) => {
                let alarm = alarm.map(Timestamp::as_millis);
                let detail = format!("catalog: cell {cell} has to be told, the alarm is set to {alarm:?}");
                Err(("12 the alarm is never later than what is due", detail))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn credential(key: &str) -> Credential {
    Credential { id: key.to_owned(), hash: format!("hash of {key}") }
}

fn need() -> Need {
    Need { scope: Scope::Read, about: About::Whole }
}

fn new_key(id: &str, now: Timestamp) -> ApiKey {
    ApiKey {
        id: id.to_owned(),
        hash: credential(id).hash,
        name: format!("key {id}"),
        environment: "live".into(),
        scopes: vec!["read".parse().expect("a scope")],
        created_at: now,
        created_by: ROOT.into(),
        expires_at: None,
        revoked_at: None,
        replaced_by: None,
    }
}

impl World {
    /// A request arrives at the catalog.
    pub(super) fn on_catalog_request(&mut self, request: u32, ask: &CatalogAsk) {
        let stale = self.catalog.stale.as_ref().map(|stale| stale.id);
        let id = match stale {
            Some(stale) if self.rng.percent(30) => stale,
            Some(_) | None => self.load(TheCatalog),
        };
        let is_stale = self.catalog.is_stale(id);
        let answered = self.repair(TheCatalog, id).and_then(|()| self.answer_from_catalog(id, ask));
        let response = match answered {
            Ok(response) => response,
            Err(Fault::Rejected(_)) if is_stale => Response::Problem(Code::Internal),
            Err(Fault::Rejected(problem)) => Response::Problem(problem.code),
            Err(Fault::Storage(Refused) | Fault::Moved(_)) => Response::Problem(Code::Internal),
        };
        if self.catalog.instance(id).is_some() {
            self.send(TheCatalog, id, Outgoing::Response(request, response));
        }
    }

    fn answer_from_catalog(&mut self, id: u64, ask: &CatalogAsk) -> Result<Response, Fault<Refused>> {
        if self.catalog.instance(id).is_none() {
            return Err(Fault::Storage(Refused));
        }
        match ask {
            CatalogAsk::Create(key) => {
                self.cover_key(key, "create");
                self.turn(TheCatalog, id, Cause::Request, |desk, rows, now| {
                    let input = Input::CreateKey { key: new_key(key, now), maker_ends_at: None };
                    desk.drive(rows, now, ROOT, input)
                })?;
                Ok(Response::KeyCreated(key.clone()))
            }
            CatalogAsk::Revoke(key) => {
                self.cover_key(key, "revoke");
                self.turn(TheCatalog, id, Cause::Request, |desk, rows, now| {
                    desk.drive(rows, now, ROOT, Input::RevokeKey { id: key.clone() })
                })?;
                Ok(Response::KeyRevoked)
            }
            CatalogAsk::Show(key) => {
                self.cover_key(key, "show");
                let admitted = self.turn(TheCatalog, id, Cause::Request, |desk, rows, now| {
                    desk.admit(rows, now, &credential(key), None, &need())
                });
                if !self.catalog.is_stale(id) {
                    let checked = self.check.key_shown(key, admitted.is_ok());
                    self.must(checked);
                }
                admitted.map(|_| Response::Managed)
            }
            CatalogAsk::Sync(version, is_explicit) => self.sync(id, *version, *is_explicit),
            CatalogAsk::Pause(workflow) => self.pause_workflow(id, workflow),
            CatalogAsk::Resume(workflow) => self.resume_workflow(id, workflow),
            CatalogAsk::Touch => Ok(Response::Managed),
        }
    }

    /// A request with a key arrives at a cell.
    pub(super) fn use_key(
        &mut self,
        (cell, id): (usize, u64),
        request: u32,
        key: &str,
        asked: u32,
    ) -> Result<Option<Response>, Fault<Refused>> {
        let brought = credential(key);
        let admitted = self.turn(cell, id, Cause::Request, |machine, _, now| {
            machine.admit(now, &brought, &need(), 0, 1).map_err(Fault::Rejected)
        })?;
        match admitted {
            Admission::Granted(_) => {
                if !self.sites[cell].is_stale(id) {
                    let checked = self.remembered(cell, key);
                    self.must(checked);
                }
                Ok(Some(Response::Managed))
            }
            Admission::Unknown if asked < ASKS_MAX => {
                let question = Question { cell: (cell, id), request, key: key.to_owned(), asked };
                self.send(cell, id, Outgoing::Ask(question));
                Ok(None)
            }
            Admission::Unknown => Ok(Some(Response::Problem(Code::Internal))),
        }
    }

    /// A cell remembers a key: its catalog knows that it does. If the key was revoked, the cell has yet to hear of it.
    fn remembered(&self, cell: usize, key: &str) -> Checked {
        const RULE: &str = "28 a cell remembers only what it is told of";
        let catalog = self.catalog.disk.catalog();
        let place = self.sites[cell].place.to_string();
        let Some(known) = catalog.key(key) else { return Err((RULE, format!("{key} was never made"))) };
        if !catalog.is_watched_by(&place) {
            return Err((RULE, format!("cell {cell} remembers {key}, and the catalog does not know")));
        }
        if known.revoked_at.is_some() && !catalog.behind().any(|behind| behind == place) {
            return Err((RULE, format!("cell {cell} has heard that {key} was revoked, and accepts it")));
        }
        Ok(())
    }

    /// A cell's question arrives at the catalog.
    pub(super) fn on_question(&mut self, question: Question) {
        let id = self.load(TheCatalog);
        self.cover_key(&question.key, "confirm");
        let place = self.sites[question.cell.0].place.to_string();
        let brought = credential(&question.key);
        let confirmed = self.repair(TheCatalog, id).and_then(|()| {
            if self.catalog.instance(id).is_none() {
                return Err(Fault::Storage(Refused));
            }
            self.turn(TheCatalog, id, Cause::Request, |desk, rows, now| {
                desk.confirm(rows, now, &brought, None, &place)
            })
        });
        if let Ok(confirmed) = &confirmed {
            let checked = self.check.key_shown(&question.key, confirmed.grant.actor.starts_with("key:"));
            self.must(checked);
        }
        let answer = match confirmed {
            Ok(confirmed) => Ok(confirmed),
            Err(Fault::Rejected(problem)) => Err(problem.code),
            Err(Fault::Storage(Refused) | Fault::Moved(_)) => Err(Code::Internal),
        };
        if self.catalog.instance(id).is_some() {
            self.send(TheCatalog, id, Outgoing::Told(question, Box::new(answer)));
        }
    }

    /// The answer arrives at the cell that has asked.
    pub(super) fn on_told(&mut self, question: Question, answer: Result<Confirmation, Code>) {
        let Question { cell: (cell, id), request, key, asked } = question;
        if self.sites[cell].instance(id).is_none() {
            return;
        }
        let response = match answer {
            Ok(confirmed) => {
                let brought = credential(&key);
                let kept = self.turn(cell, id, Cause::Request, |machine, _, now| {
                    Ok(machine.remember_key(now, &brought, confirmed))
                });
                let again = kept.and_then(|_| self.use_key((cell, id), request, &key, asked + 1));
                match again {
                    Ok(Some(response)) => response,
                    Ok(None) => return,
                    Err(Fault::Rejected(problem)) => Response::Problem(problem.code),
                    Err(Fault::Storage(Refused) | Fault::Moved(_)) => Response::Problem(Code::Internal),
                }
            }
            Err(code) => Response::Problem(code),
        };
        self.send(cell, id, Outgoing::Response(request, response));
    }

    /// The catalog's word arrives at a cell: at the instance that has the name.
    pub(super) fn on_telling(&mut self, telling: &Telling) {
        let Telling { cell, word, .. } = telling;
        let id = self.load(*cell);
        if self.repair(*cell, id).is_err() || self.sites[*cell].instance(id).is_none() {
            return;
        }
        let is_deaf = self.is(Sabotage::WordUnheard);
        let Some(instance) = self.sites[*cell].instance_mut(id) else { return };
        if !is_deaf {
            instance.machine.forget_keys(word.version, word.ids.as_deref());
        }
        self.note(|| format!("cell {cell} forgets keys as of version {}", word.version));
        self.send(*cell, id, Outgoing::Forgot(telling.clone()));
    }

    /// A cell has said that it has heard: whoever waits for that still lives, or nobody does.
    pub(super) fn on_forgot(&mut self, telling: Telling) {
        let Telling { from, word: Word { cell, version, .. }, .. } = telling;
        if self.catalog.instance(from).is_none() {
            return;
        }
        let _ = self.turn(TheCatalog, from, Cause::Request, |desk, rows, now| {
            desk.drive(rows, now, "", Input::Heard { cell, version })
        });
    }

    fn cover_key(&mut self, key: &str, input: &'static str) {
        let catalog = self.catalog.disk.catalog();
        let stands = match catalog.key(key) {
            None => "no key",
            Some(key) if key.revoked_at.is_some() => "revoked key",
            Some(_) => "good key",
        };
        self.coverage.note_key(stands, input);
    }

    /// What must hold of keys when everything has come to rest.
    pub(super) fn check_keys_at_end(&mut self) {
        let catalog = self.catalog.disk.catalog();
        let mut checked = self.check.keys_at_end(&catalog).and_then(|()| self.check.pauses_stand(&catalog));
        if let Some(cell) = catalog.behind().next() {
            checked = checked.and(Err(("28 every cell is told", format!("cell {cell} was not told"))));
        }
        self.must(checked);
        for cell in 0..self.sites.len() {
            let clock = self.sites[cell].clock(self.now_ms);
            for key in self.check.revoked_keys() {
                let Some(id) = self.sites[cell].live.as_ref().map(|live| live.id) else { continue };
                let Some(instance) = self.sites[cell].instance_mut(id) else { continue };
                let admitted = instance.machine.admit(clock, &credential(&key), &need(), 0, 1);
                if matches!(admitted, Ok(Admission::Granted(_))) {
                    self.fail("28 a revoked key is refused", format!("cell {cell} accepts {key} for ever"));
                }
            }
        }
    }
}
