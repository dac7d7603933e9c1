//! The variables of `.dev.vars`, where wrangler too looks for secrets on this machine.

use std::{fs, io, path::Path};

use crate::failure::{Failure, Result};

/// The file's name, in the project's folder.
pub const FILE: &str = ".dev.vars";

/// Reads a project's variables, in the file's order.
pub fn read(root: &Path) -> Result<Vec<(String, String)>> {
    let text = match fs::read_to_string(root.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::local(format!("{FILE} cannot be read: {error}"))),
    };
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let (name, value) = line
                .split_once('=')
                .ok_or_else(|| Failure::local(format!("{FILE}, line {number}: expected NAME=value")))?;
            let value = value.trim();
            let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            Ok((name.trim().to_owned(), bare.unwrap_or(value).to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_as_wrangler_does() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(FILE), "# mine\nTOKEN=\"a b\"\n\nOTHER = x=y\n").expect("written");
        let variables = read(folder.path()).expect("they can be read");
        assert_eq!(variables, [("TOKEN".into(), "a b".into()), ("OTHER".into(), "x=y".into())]);
        fs::write(folder.path().join(FILE), "nonsense\n").expect("written");
        assert!(read(folder.path()).is_err());
    }
}
