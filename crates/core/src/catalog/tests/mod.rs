mod life;
mod walk;

use std::{
    cell::{Cell as Slot, RefCell},
    collections::BTreeMap,
};

use stepwell_protocol::{Timestamp, access::AuditRecord};

use super::{Catalog, Desk, Fault, Input, Key, Row, Rows, Trim};
use crate::access::Credential;

/// Rows in memory.
#[derive(Default)]
struct Memory {
    rows: RefCell<BTreeMap<(String, String), String>>,
    audit: RefCell<BTreeMap<u64, AuditRecord>>,
    /// Whether the next commit fails.
    fails: Slot<bool>,
}

impl Rows for Memory {
    type Error = &'static str;

    fn load(&self) -> Result<Vec<Row>, Self::Error> {
        let rows = self.rows.borrow();
        let row = |((kind, name), value): (&(String, String), &String)| Row {
            kind: kind.clone(),
            name: name.clone(),
            value: Some(value.clone()),
        };
        Ok(rows.iter().map(row).collect())
    }

    fn audit_last(&self) -> Result<u64, Self::Error> {
        Ok(self.audit.borrow().keys().next_back().copied().unwrap_or_default())
    }

    fn commit(&self, rows: &[Row], audit: &[AuditRecord], trim: Option<Trim>) -> Result<(), Self::Error> {
        if self.fails.take() {
            return Err("the storage failed");
        }
        for Row { kind, name, value } in rows {
            let at = (kind.clone(), name.clone());
            match value {
                Some(value) => drop(self.rows.borrow_mut().insert(at, value.clone())),
                None => drop(self.rows.borrow_mut().remove(&at)),
            }
        }
        self.audit.borrow_mut().extend(audit.iter().map(|record| (record.seq, record.clone())));
        if let Some(Trim { first, from }) = trim {
            let last = self.audit_last()?;
            let is_kept = |seq: u64, record: &AuditRecord| seq >= first && (record.at >= from || seq == last);
            self.audit.borrow_mut().retain(|seq, record| is_kept(*seq, record));
        }
        Ok(())
    }

    fn audit(&self, below: u64, limit: u32) -> Result<Vec<AuditRecord>, Self::Error> {
        let audit = self.audit.borrow();
        Ok(audit.range(..below).rev().take(limit as usize).map(|(_, record)| record.clone()).collect())
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + ms)
}

fn credential(id: &str) -> Credential {
    Credential { id: id.into(), hash: format!("hash of {id}") }
}

fn key(id: &str, scopes: &[&str]) -> Key {
    Key {
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

/// A desk over rows in memory, which can be lost and made anew.
#[derive(Default)]
struct World {
    rows: Memory,
    desk: Desk,
}

impl World {
    fn drive(&mut self, ms: u64, input: Input) -> Result<(), Fault<&'static str>> {
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
        self.desk = Desk::default();
    }
}
