//! The lock on a project's data: one `stepwell dev` at a time.
//!
//! Two runtimes on the same SQLite files corrupt them. The lock belongs to the open file, so the system releases it
//! when its holder ends, however that happens. The runtime that `dev` starts holds it too: a runtime that outlives a
//! killed `dev` still keeps others out.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// The longest description of a holder that is read: its process and its address.
const HOLDER_BYTES_MAX: u64 = 1024;

/// How long the runtime of a `dev` that was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// The lock, while it is held.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// Who holds the lock, or held it last.
#[derive(Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub process: u32,
    /// Where it serves.
    pub address: String,
}

impl Lock {
    /// Takes the lock on a data folder, or says who has it.
    pub fn take(data: &Path, address: &str) -> Result<Self> {
        let path = path(data);
        let wrong = |error: std::io::Error| Failure::local(format!("{}: {error}", path.display()));
        // The contents stay until the lock is ours: they say who has it.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(wrong)?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // The runtime of a `dev` that was killed is on its way out.
                Err(TryLockError::WouldBlock) if !is_running(data) && began.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(TryLockError::WouldBlock) => return Err(refusal(data)),
                Err(TryLockError::Error(error)) => return Err(wrong(error)),
            }
        }
        let holder = Holder { process: std::process::id(), address: address.to_owned() };
        let text = toml::to_string(&holder).expect("a number and a text can be written as TOML");
        let mut lock = Self { file };
        lock.write(&text).map_err(wrong)?;
        Ok(lock)
    }

    /// The lock as the input of a process, which holds it from then on as well.
    pub fn share(&self) -> Result<Stdio> {
        let file = self.file.try_clone();
        file.map(Stdio::from).map_err(|error| Failure::local(format!("the lock cannot be shared: {error}")))
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}

/// Whether somebody holds the lock on a data folder at this moment.
pub fn is_held(data: &Path) -> bool {
    // Not created: who only looks leaves nothing behind.
    let file = File::open(path(data));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Who holds the lock on a data folder, or held it last.
pub fn holder(data: &Path) -> Option<Holder> {
    let mut text = String::new();
    File::open(path(data)).ok()?.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
    toml::from_str(&text).ok()
}

/// Whether the process that took the lock last is there.
fn is_running(data: &Path) -> bool {
    #[cfg(unix)]
    {
        let process = holder(data).and_then(|holder| i32::try_from(holder.process).ok());
        let process = process.and_then(rustix::process::Pid::from_raw);
        process.is_none_or(|process| rustix::process::test_kill_process(process).is_ok())
    }
    #[cfg(not(unix))]
    {
        let _ = data;
        true
    }
}

fn path(data: &Path) -> PathBuf {
    data.join("lock")
}

fn refusal(data: &Path) -> Failure {
    let folder = data.display();
    let Some(Holder { process, address }) = holder(data) else {
        return Failure::local(format!("another process is using the data in {folder}"))
            .next("Stop it first. To run a second copy, copy the project to another folder.");
    };
    Failure::local(format!(
        "another `stepwell dev` (process {process}) is serving this project at {address}, with the data in {folder}"
    ))
    .next(format!(
        "Use that one, or stop it with Ctrl-C or `kill {process}`. To run a second copy, copy the project to \
         another folder."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_holder_and_is_free_when_that_one_has_gone() {
        let data = tempfile::tempdir().expect("a folder");
        let first = Lock::take(data.path(), "http://127.0.0.1:1").expect("it is free");
        let refused = Lock::take(data.path(), "http://127.0.0.1:2").expect_err("it is taken");
        let process = std::process::id();
        assert!(is_held(data.path()));
        assert!(refused.what.contains(&format!("(process {process})")), "{}", refused.what);
        assert!(refused.what.contains("http://127.0.0.1:1,"), "{}", refused.what);
        assert!(!refused.next.expect("advice").contains("--port"), "another port is no way out");
        drop(first);
        assert!(!is_held(data.path()));
        Lock::take(data.path(), "http://127.0.0.1:3").expect("it is free again");
        assert_eq!(holder(data.path()), Some(Holder { process, address: "http://127.0.0.1:3".into() }));
    }

    #[test]
    fn a_process_that_shares_the_lock_keeps_others_out() {
        let data = tempfile::tempdir().expect("a folder");
        let lock = Lock::take(data.path(), "http://127.0.0.1:1").expect("it is free");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(lock.share().expect("it can be shared"))
            .spawn()
            .expect("sleep can be started");
        drop(lock);
        let taken = Lock::take(data.path(), "http://127.0.0.1:2");
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        assert!(taken.is_err(), "the runtime still uses the data");
        Lock::take(data.path(), "http://127.0.0.1:2").expect("it is free again");
    }
}
