//! Opens pages in the browser of the person.

use std::{
    process::{Command, Stdio},
    thread,
};

/// Opens a page in the person's browser, or says that there is none.
pub fn open(link: &str) {
    if !start(link) {
        anstream::eprintln!("no browser could be started: open the link yourself");
    }
}

/// Whether something was started that may open it.
fn start(link: &str) -> bool {
    let (program, first): (_, &[&str]) = match std::env::consts::OS {
        "macos" => ("open", &[]),
        "windows" => ("rundll32", &["url.dll,FileProtocolHandler"]),
        _ => ("xdg-open", &[]),
    };
    let mut command = Command::new(program);
    command.args(first).arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It may be the browser itself, which goes on.
    let Ok(mut child) = command.spawn() else { return false };
    thread::spawn(move || child.wait());
    true
}
