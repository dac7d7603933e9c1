//! Files that hold secrets: only their owner can read them.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// Makes a folder that only its owner can enter. A folder that exists keeps its permissions.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Writes a file that only its owner can read. A reader sees the old contents or the new ones, never a part.
pub fn write(path: &Path, contents: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    // A file that a killed process left behind could have other permissions.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(&new)?.write_all(contents.as_bytes())?;
    fs::rename(&new, path)
}

/// Whether other users of this machine can read a file.
pub fn is_open_to_others(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_private_file_is_closed_even_where_an_open_one_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        for left_over in [&path, &folder.path().join("secret.new")] {
            fs::write(left_over, "open").expect("written");
            fs::set_permissions(left_over, fs::Permissions::from_mode(0o644)).expect("set");
        }
        assert!(is_open_to_others(&path));
        write(&path, "closed").expect("written");
        assert!(!is_open_to_others(&path));
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "closed");
    }
}
