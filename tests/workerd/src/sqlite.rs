//! The SQLite files of objects, read and changed behind workerd's back.
//!
//! By Python, which every machine has: another SQLite in the tests would be one more thing to build.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::Workerd;

/// Where workerd keeps the cells' databases.
pub fn cells(workerd: &Workerd) -> PathBuf {
    workerd.disk().join("Cell")
}

/// The databases of the cells, one for each.
pub fn databases(workerd: &Workerd) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(cells(workerd))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".sqlite") && name != "metadata.sqlite" {
            found.push(path);
        }
    }
    Ok(found)
}

/// Deletes the alarms of all cells, while workerd is down.
pub fn lose_alarms(workerd: &Workerd) -> Result<()> {
    let mut deleted = 0;
    for entry in fs::read_dir(cells(workerd))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("metadata.sqlite") {
            fs::remove_file(&path)?;
            deleted += 1;
        }
    }
    ensure!(deleted > 0, "there were no alarms in {}", cells(workerd).display());
    Ok(())
}

/// Reads a copy of a database, so that workerd can have it open meanwhile: a line for each row.
pub fn sql(path: &Path, query: &str) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let copied = folder.path().join("copy.sqlite");
    fs::copy(path, &copied)?;
    let log = path.with_extension("sqlite-wal");
    if log.exists() {
        fs::copy(log, folder.path().join("copy.sqlite-wal"))?;
    }
    let script = "import sqlite3, sys\n\
                  rows = sqlite3.connect(sys.argv[1]).execute(sys.stdin.read()).fetchall()\n\
                  print('\\n'.join('|'.join(str(value) for value in row) for row in rows))";
    python(script, &copied, query)
}

/// Runs a script of statements on a database that nobody has open: workerd must be down.
pub fn change(path: &Path, script: &str) -> Result<()> {
    let run = "import sqlite3, sys\n\
               database = sqlite3.connect(sys.argv[1])\n\
               database.executescript('BEGIN;' + sys.stdin.read() + ';COMMIT;')\n\
               database.execute('PRAGMA wal_checkpoint(TRUNCATE)')";
    python(run, path, script).map(drop)
}

fn python(script: &str, database: &Path, input: &str) -> Result<String> {
    let mut child = Command::new("python3")
        .arg("-c")
        .arg(script)
        .arg(database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting python3")?;
    child.stdin.take().context("the input is piped")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
