//! The tables of a catalog, and what an instance of it sees of them: what the engine's SQL does, in maps.

use std::{cell::OnceCell, collections::BTreeMap, ops::Deref, rc::Rc};

use stepwell_core::catalog::{Catalog, Desk, Line, Log, Numbers, Row, Rows, STATION, Trim};
use stepwell_protocol::{Timestamp, access::AuditRecord};

use crate::{
    host::{Disk, Refused, Simulated, View},
    sabotage::Sabotage,
};

/// Catalogs.
#[derive(Clone, Copy, Debug)]
pub struct Catalogs;

impl Simulated for Catalogs {
    type Machine = Desk;
    type Rows = Shelf;
    type Disk = Drawers;
    type Own = ();
}

/// The tables of one catalog.
#[derive(Clone, Debug, Default)]
pub struct Drawers {
    /// Everything but the audit log, by kind and name.
    rows: BTreeMap<(String, String), String>,
    audit: BTreeMap<(Log, u64), AuditRecord>,
    /// What all of it was read as, until it is written to.
    read: OnceCell<Rc<Catalog>>,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Filing {
    /// Rows that are written or deleted.
    pub rows: Vec<Row>,
    audit: Vec<Line>,
    trims: Vec<Trim>,
}

impl Disk for Drawers {
    type Write = Filing;

    fn apply(&mut self, write: &Filing) -> Result<(), String> {
        let mut refused = None;
        self.read.take();
        for Row { kind, name, value } in &write.rows {
            let at = (kind.clone(), name.clone());
            match value {
                Some(value) => drop(self.rows.insert(at, value.clone())),
                None => drop(self.rows.remove(&at)),
            }
        }
        for line in &write.audit {
            if line.record.seq <= self.numbers().seq {
                refused = Some(format!("line {} of the audit log is written twice", line.record.seq));
            }
            self.audit.insert((line.log, line.number), line.record.clone());
        }
        for Trim { log, first, from } in &write.trims {
            let last = self.numbers().lines.get(log).copied().unwrap_or_default();
            let is_kept = |number: u64, at: Timestamp| number >= *first && (at >= *from || number == last);
            self.audit.retain(|(of, number), record| of != log || is_kept(*number, record.at));
        }
        refused.map_or(Ok(()), Err)
    }
}

impl Drawers {
    /// What a fresh instance would read.
    pub fn catalog(&self) -> Rc<Catalog> {
        let read = || Catalog::from_rows(&self.stored(), self.numbers()).expect("only machines write here");
        self.read.get_or_init(|| Rc::new(read())).clone()
    }

    fn stored(&self) -> Vec<Row> {
        let row = |((kind, name), value): (&(String, String), &String)| Row {
            kind: kind.clone(),
            name: name.clone(),
            value: Some(value.clone()),
        };
        self.rows.iter().filter(|((kind, _), _)| kind != STATION).map(row).collect()
    }

    fn numbers(&self) -> Numbers {
        let mut last = Numbers::default();
        for log in Log::ALL {
            if let Some(((_, number), record)) = self.audit.range((log, 0)..=(log, u64::MAX)).next_back() {
                last.seq = last.seq.max(record.seq);
                last.lines.insert(log, *number);
            }
        }
        last
    }
}

/// What one instance sees.
#[derive(Clone, Debug)]
pub struct Shelf {
    view: View<Drawers>,
    sabotage: Option<Sabotage>,
}

impl Shelf {
    /// A shelf on what is on disk.
    pub fn new(disk: Rc<Drawers>, sabotage: Option<Sabotage>) -> Self {
        Self { view: View::new(disk), sabotage }
    }

    /// Whether a planted bug keeps a row from the disk.
    fn is_lost(&self, row: &Row) -> bool {
        let is_revoked = row.value.as_ref().is_some_and(|value| value.contains("revoked_at"));
        match self.sabotage {
            Some(Sabotage::RevocationLost) => row.kind == "key" && is_revoked,
            Some(Sabotage::WatcherLost) => row.kind == "watcher",
            Some(_) | None => false,
        }
    }
}

impl Deref for Shelf {
    type Target = View<Drawers>;

    fn deref(&self) -> &View<Drawers> {
        &self.view
    }
}

impl Rows for Shelf {
    type Error = Refused;

    fn load(&self) -> Result<Vec<Row>, Refused> {
        self.view.read().map(|drawers| drawers.stored())
    }

    fn audit_last(&self) -> Result<Numbers, Refused> {
        self.view.read().map(|drawers| drawers.numbers())
    }

    fn stations(&self, after: &str, limit: usize) -> Result<Vec<String>, Refused> {
        let drawers = self.view.read()?;
        let names = drawers.rows.keys().filter(|(kind, name)| kind == STATION && name.as_str() > after);
        Ok(names.map(|(_, name)| name.clone()).take(limit).collect())
    }

    fn has_station(&self, name: &str) -> Result<bool, Refused> {
        let drawers = self.view.read()?;
        Ok(drawers.rows.keys().any(|(kind, known)| kind == STATION && known == name))
    }

    fn commit(&self, rows: &[Row], audit: &[Line], trims: &[Trim]) -> Result<(), Refused> {
        let rows = rows.iter().filter(|row| !self.is_lost(row)).cloned().collect();
        self.view.write(Filing { rows, audit: audit.to_vec(), trims: trims.to_vec() })
    }

    fn audit(&self, below: u64, limit: u32, with_registry: bool) -> Result<Vec<AuditRecord>, Refused> {
        let drawers = self.view.read()?;
        let is_seen = |log: Log| with_registry || log != Log::Registry;
        let seen = drawers.audit.iter().filter(|((log, _), line)| is_seen(*log) && line.seq < below);
        let mut lines: Vec<_> = seen.map(|(_, line)| line.clone()).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.seq));
        lines.truncate(limit as usize);
        Ok(lines)
    }
}
