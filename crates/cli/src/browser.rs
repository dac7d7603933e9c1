//! Opens pages in the browser of the person.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use crate::private;

/// Opens a page in the person's browser, or says that there is none.
pub fn open(page: &str) {
    if !start(page.as_ref()) {
        anstream::eprintln!("no browser could be started: open the link yourself");
    }
}

/// The same for a link that lets in whoever has it. All users of a machine can read the arguments of its programs, so the
/// browser is told of a file that only its owner can read, and that leads there. It is written to a folder.
pub fn open_secret(link: &str, folder: Option<PathBuf>) {
    let is_open = match folder.filter(|_| cfg!(unix)).map(|folder| leading_to(link, &folder)) {
        Some(Ok(file)) => start(file.as_os_str()),
        // Nobody can read the arguments of other people's programs there.
        None if cfg!(windows) => start(link.as_ref()),
        Some(Err(_)) | None => false,
    };
    if !is_open {
        anstream::eprintln!("no browser could be started: open the link yourself");
    }
}

/// Where files of commands are that belong to no project.
pub fn folder() -> Option<PathBuf> {
    let from = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("stepwell"))
}

fn leading_to(link: &str, folder: &Path) -> io::Result<PathBuf> {
    private::create_folder(folder)?;
    let file = folder.canonicalize()?.join("open.html");
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={link}\"><title>Stepwell</title>\
         <p><a href=\"{link}\">Go to the dashboard</a></p></html>\n"
    );
    private::write(&file, &page)?;
    Ok(file)
}

/// Whether something was started that may open it.
fn start(page: &OsStr) -> bool {
    let (program, first): (_, &[&str]) = match env::consts::OS {
        "macos" => ("open", &[]),
        "windows" => ("rundll32", &["url.dll,FileProtocolHandler"]),
        _ => ("xdg-open", &[]),
    };
    let mut command = Command::new(program);
    command.args(first).arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It may be the browser itself, which goes on.
    let Ok(mut child) = command.spawn() else { return false };
    thread::spawn(move || child.wait());
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_link_that_lets_people_in_is_in_a_file_of_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = "http://127.0.0.1:8788/sign-in/0123";
        let file = leading_to(link, &folder.path().join("data")).expect("it is written");
        assert!(fs::read_to_string(&file).expect("it is there").contains(&format!("href=\"{link}\"")));
        let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&folder.path().join("data"))), (0o600, 0o700));
    }
}
