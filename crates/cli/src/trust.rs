//! Which files and folders can be trusted: what is found there is run, or acts with somebody's key.

use std::path::Path;

/// A folder and those above it, up to the first that other people may put things into, such as `/tmp`: what is found there
/// is run.
pub fn ancestors(folder: &Path) -> impl Iterator<Item = &Path> {
    folder.ancestors().take_while(move |above| is_own(above, folder))
}

/// Whether only root, whoever runs this, and the owner of the folder that this begins in put things into a folder. Where
/// file systems know no permissions, everybody may write, and the owner says it.
#[cfg(unix)]
fn is_own(folder: &Path, from: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let of =
        |path: &Path| if path.as_os_str().is_empty() { Path::new(".").metadata() } else { path.metadata() };
    // In one that is not there is nothing.
    let Ok(found) = of(folder) else { return true };
    let me = rustix::process::geteuid().as_raw();
    let is_persons = found.uid() == me || of(from).is_ok_and(|from| from.uid() == found.uid());
    let is_shared = found.mode() & 0o002 != 0 && (found.mode() & 0o1000 != 0 || !is_persons);
    (is_persons || found.uid() == 0) && !is_shared
}

#[cfg(not(unix))]
fn is_own(_folder: &Path, _from: &Path) -> bool {
    true
}

/// Whether a file or folder is no link, belongs to whoever runs this, or to root, and is not open to everybody. Root
/// also trusts the owner of the folder that it works in.
#[cfg(unix)]
pub fn is_trusted(path: &Path, here: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(found) = path.symlink_metadata() else { return false };
    let (me, owner) = (rustix::process::geteuid().as_raw(), found.uid());
    let is_own = [0, me].contains(&owner) || (me == 0 && here.metadata().is_ok_and(|it| it.uid() == owner));
    is_own && !found.is_symlink() && found.mode() & 0o002 == 0
}

#[cfg(not(unix))]
pub fn is_trusted(_path: &Path, _here: &Path) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn what_is_above_a_folder_that_everybody_may_write_to_is_not_looked_at() {
        let root = tempfile::tempdir().expect("a folder");
        let (shared, own) = (root.path().join("shared"), root.path().join("shared/own/below"));
        fs::create_dir_all(&own).expect("made");
        let seen = |from: &Path| ancestors(from).filter(|above| above.starts_with(root.path())).count();
        assert_eq!(seen(&own), 4);
        // As `/tmp` is.
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("it is ours");
        assert_eq!((seen(&own), seen(&shared)), (2, 0));
        // As all are where the file system has no permissions.
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("it is ours");
        assert_eq!(seen(&own), 4);
        if std::os::unix::fs::chown(&shared, Some(4_711), None).is_ok() {
            assert_eq!((seen(&own), seen(&shared)), (2, 2), "above one's own, and where one goes oneself");
        }
        assert_eq!(seen(&root.path().join("none/there")), 3);
    }
}
