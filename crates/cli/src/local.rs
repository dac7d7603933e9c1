//! What a project is served with on this machine: a key of its own, and the address of the latest `stepwell dev`.
//!
//! Owns `.stepwell/key`, and `.stepwell/app-key` for two Workers. The keys are random: a web page that reaches the port
//! cannot guess them.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use stepwell_protocol::text::hex;

use crate::{
    config::{Key, LOCAL_ADDRESS, Local, is_loopback},
    failure::{Failure, Result},
    lock, private,
    project::Project,
    variables,
};

/// The name of the variable that has the key.
pub const KEY_VARIABLE: &str = "STEPWELL_KEY";

/// The name of the variable that has the secret between engine and app, if they are two Workers.
pub const APP_KEY_VARIABLE: &str = "STEPWELL_APP_KEY";

/// How many random bytes a key has.
const KEY_BYTES: usize = 32;

/// What the project around this folder is served with, if there is one and it was ever served.
pub fn find() -> Option<Local> {
    let here = env::current_dir().ok()?;
    let root = Project::root_of(&here)?;
    served(root, &Project::data_of(root))
}

fn served(root: &Path, data: &Path) -> Option<Local> {
    let (key, key_source) = stored(root, data)?;
    // A project may come from anywhere, with its data: keys go to this machine only.
    let holder = lock::holder(data).filter(|holder| is_loopback(&holder.address));
    let address = holder.map_or_else(|| LOCAL_ADDRESS.to_owned(), |holder| holder.address);
    Some(Local { address, key, key_source })
}

/// The project's key: the one in `.dev.vars`, or its own, which is made the first time.
pub fn key(root: &Path, data: &Path) -> Result<Key> {
    if let Some((key, _)) = stored(root, data) {
        return Ok(key);
    }
    kept(&key_path(data))
}

/// The secret that the engine and the app of a project share. It is made the first time.
pub fn app_key(data: &Path) -> Result<Key> {
    kept(&data.join("app-key"))
}

/// The key in a file, which is made the first time.
fn kept(path: &Path) -> Result<Key> {
    if let Ok(Some(key)) = read(path) {
        return Ok(Key::from(key));
    }
    let key = random()?;
    private::write(path, &format!("{key}\n"))
        .map_err(|error| Failure::local(format!("{}: {error}", path.display())))?;
    Ok(Key::from(key))
}

/// A random secret: 64 hexadecimal digits.
pub fn random() -> Result<String> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::local(format!("the system has no random numbers: {error}")))?;
    Ok(hex(&bytes))
}

fn stored(root: &Path, data: &Path) -> Option<(Key, String)> {
    let variables = variables::read(root).unwrap_or_default();
    let named = variables.into_iter().find(|(name, value)| name == KEY_VARIABLE && !value.is_empty());
    if let Some((_, key)) = named {
        return Some((Key::from(key), variables::FILE.to_owned()));
    }
    let key = read(&key_path(data)).ok().flatten()?;
    Some((Key::from(key), "`stepwell dev`".to_owned()))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let key = fs::read_to_string(path)?.trim().to_owned();
    Ok(Some(key).filter(|key| !key.is_empty()))
}

fn key_path(data: &Path) -> PathBuf {
    data.join("key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_project_has_its_own_key_which_stays() {
        let keys = [1, 2].map(|_| {
            let folder = tempfile::tempdir().expect("a folder");
            let made = key(folder.path(), folder.path()).expect("it can be made");
            assert_eq!(key(folder.path(), folder.path()).expect("it is there"), made);
            assert!(!private::is_open_to_others(&key_path(folder.path())));
            made.secret().to_owned()
        });
        assert_ne!(keys[0], keys[1]);
        assert_eq!(keys[0].len(), 2 * KEY_BYTES);
    }

    #[test]
    fn a_project_sends_nobodys_key_to_another_machine() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        key(path, path).expect("it can be made");
        for (address, expected) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
            ("https://evil.example", LOCAL_ADDRESS),
            ("http://127.0.0.1@evil.example", LOCAL_ADDRESS),
            ("", LOCAL_ADDRESS),
        ] {
            let text = format!("process = 1\naddress = \"{address}\"\n");
            fs::write(path.join("lock"), text).expect("written");
            assert_eq!(served(path, path).expect("it has a key").address, expected);
        }
    }

    #[test]
    fn the_key_in_the_variables_comes_first() {
        let folder = tempfile::tempdir().expect("a folder");
        key(folder.path(), folder.path()).expect("it can be made");
        fs::write(folder.path().join(variables::FILE), "STEPWELL_KEY=mine\n").expect("written");
        assert_eq!(key(folder.path(), folder.path()).expect("it is there").secret(), "mine");
    }
}
