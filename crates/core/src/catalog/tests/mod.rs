mod declared;
mod deletion;
mod handlers;
mod life;
mod schedules;
mod sessions;
mod stations;
mod triggers;
mod trust;
mod walk;

use std::{
    cell::{Cell as Slot, RefCell},
    collections::BTreeMap,
};

use stepwell_protocol::{Timestamp, access::AuditRecord};

use super::{ApiKey, Catalog, Corrupt, Desk, Input, Line, Log, Numbers, Row, Rows, STATION, Trim};
use crate::{
    access::Credential,
    object::{Fault, Machine as _},
};

/// Why rows could not be read or written.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Failed {
    #[error("the storage failed")]
    Refused,
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// Rows in memory.
#[derive(Default)]
struct Memory {
    rows: RefCell<BTreeMap<(String, String), String>>,
    audit: RefCell<BTreeMap<(Log, u64), AuditRecord>>,
    /// Whether the next commit fails.
    fails: Slot<bool>,
}

impl Rows for Memory {
    type Error = Failed;

    fn load(&self) -> Result<Vec<Row>, Self::Error> {
        let rows = self.rows.borrow();
        let row = |((kind, name), value): (&(String, String), &String)| Row {
            kind: kind.clone(),
            name: name.clone(),
            value: Some(value.clone()),
        };
        Ok(rows.iter().filter(|((kind, _), _)| kind != STATION).map(row).collect())
    }

    fn audit_last(&self) -> Result<Numbers, Self::Error> {
        let (mut last, audit) = (Numbers::default(), self.audit.borrow());
        for log in Log::ALL {
            if let Some(((_, number), record)) = audit.range((log, 0)..=(log, u64::MAX)).next_back() {
                last.seq = last.seq.max(record.seq);
                last.lines.insert(log, *number);
            }
        }
        Ok(last)
    }

    fn stations(&self, after: &str, limit: usize) -> Result<Vec<String>, Self::Error> {
        let rows = self.rows.borrow();
        let names = rows.keys().filter(|(kind, name)| kind == STATION && name.as_str() > after);
        Ok(names.map(|(_, name)| name.clone()).take(limit).collect())
    }

    fn has_station(&self, name: &str) -> Result<bool, Self::Error> {
        Ok(self.rows.borrow().keys().any(|(kind, known)| kind == STATION && known == name))
    }

    fn commit(&self, rows: &[Row], audit: &[Line], trims: &[Trim]) -> Result<(), Self::Error> {
        if self.fails.take() {
            return Err(Failed::Refused);
        }
        for Row { kind, name, value } in rows {
            let at = (kind.clone(), name.clone());
            match value {
                Some(value) => drop(self.rows.borrow_mut().insert(at, value.clone())),
                None => drop(self.rows.borrow_mut().remove(&at)),
            }
        }
        let lines = audit.iter().map(|line| ((line.log, line.number), line.record.clone()));
        self.audit.borrow_mut().extend(lines);
        for Trim { log, first, from } in trims {
            let last = self.audit_last()?.lines.get(log).copied().unwrap_or_default();
            let is_kept = |number: u64, at: Timestamp| number >= *first && (at >= *from || number == last);
            self.audit.borrow_mut().retain(|(of, number), record| of != log || is_kept(*number, record.at));
        }
        Ok(())
    }

    fn audit(&self, below: u64, limit: u32, with_registry: bool) -> Result<Vec<AuditRecord>, Self::Error> {
        let is_seen = |log: Log| with_registry || log != Log::Registry;
        let audit = self.audit.borrow();
        let seen = audit.iter().filter(|((log, _), line)| is_seen(*log) && line.seq < below);
        let mut lines: Vec<_> = seen.map(|(_, line)| line.clone()).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.seq));
        lines.truncate(limit as usize);
        Ok(lines)
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

fn credential(id: &str) -> Credential {
    Credential { id: id.into(), hash: format!("hash of {id}") }
}

fn key(id: &str, scopes: &[&str]) -> ApiKey {
    ApiKey {
        id: id.into(),
        hash: credential(id).hash,
        name: format!("the key {id}"),
        environment: "live".into(),
        scopes: scopes.iter().map(|scope| scope.parse().expect("a scope")).collect(),
        created_at: at(0),
        created_by: "root".into(),
        expires_at: None,
        revoked_at: None,
        replaced_by: None,
    }
}

fn create(key: ApiKey) -> Input {
    Input::CreateKey { key, maker_ends_at: None }
}

/// A desk over rows in memory, which can be lost and made anew.
struct World {
    rows: Memory,
    desk: Desk,
}

impl Default for World {
    fn default() -> Self {
        Self { rows: Memory::default(), desk: Desk::new(vec![ROOT.into()]) }
    }
}

/// The fingerprint of the deployment's key.
const ROOT: &str = "root 1";

impl World {
    fn drive(&mut self, ms: u64, input: Input) -> Result<(), Fault<Failed>> {
        self.desk.repair(&self.rows, at(ms)).expect("the rows can be read");
        self.desk.drive(&self.rows, at(ms), "root", input)
    }

    fn must(&mut self, ms: u64, input: Input) {
        self.drive(ms, input).expect("it is allowed");
    }

    fn code(&mut self, ms: u64, input: Input) -> Option<stepwell_protocol::Code> {
        match self.drive(ms, input) {
            Ok(()) => None,
            Err(Fault::Rejected(problem)) => Some(problem.code),
            Err(other) => panic!("{other}"),
        }
    }

    fn catalog(&mut self) -> &Catalog {
        self.desk.catalog(&self.rows).expect("the rows can be read")
    }

    fn is_good(&mut self, ms: u64, id: &str) -> bool {
        self.catalog().grant(at(ms), &credential(id)).is_some()
    }

    /// The instance dies; the rows stay.
    fn lose_memory(&mut self) {
        self.desk = Desk::new(vec![ROOT.into()]);
    }
}
