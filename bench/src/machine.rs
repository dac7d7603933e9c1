//! What the figures were measured on: printed with them, so that nobody compares two machines by mistake.

use std::{fs, process::Command, thread::available_parallelism};

use anyhow::{Context as _, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stepwell_workerd_tests::workerd_binary;

/// Above this much other work, figures are noise.
const BUSY: f64 = 0.5;

/// Prints the machine, the workerd and how busy the machine is.
pub fn print() -> Result<()> {
    let version = Command::new(workerd_binary()?).arg("--version").output().context("asking workerd")?;
    println!(
        "{}; {} cores; databases in {}",
        String::from_utf8_lossy(&version.stdout).trim(),
        available_parallelism()?,
        std::env::temp_dir().display()
    );
    // Not every system has it; then nobody is warned.
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let busy = load.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    if busy > BUSY {
        println!("The machine has other work (load average {busy:.2}): take these figures as noisy.");
    }
    println!();
    Ok(())
}

/// Lets this process and those that it starts open as many files as the system allows.
pub fn raise_limits() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("raising the limit of open files")
}

/// How many files a process may open.
pub fn open_files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
