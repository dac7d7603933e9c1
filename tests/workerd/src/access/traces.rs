//! Whether a key or a token was ever written anywhere.

use std::fs;

use anyhow::Result;

use crate::Workerd;

/// Keys and tokens that were given out.
#[derive(Debug, Default)]
pub struct Secrets(Vec<String>);

/// How many characters of a secret's end are looked for: all of it would miss one that was cut.
const TAIL: usize = 24;

impl Secrets {
    /// One more.
    pub fn add(&mut self, secret: &str) {
        self.0.push(secret.to_owned());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How often any of them is found in the storage files and the log; counts the files.
    pub fn look_for_traces(&self, workerd: &Workerd, files: &mut usize) -> Result<usize> {
        let mut found = self.count(workerd.log().as_bytes());
        for path in workerd.files()? {
            *files += 1;
            found += self.count(&fs::read(path)?);
        }
        Ok(found)
    }

    /// How often any of them is found in some bytes.
    pub fn count(&self, bytes: &[u8]) -> usize {
        // One pass over the bytes for all of them.
        let tails: std::collections::BTreeSet<&[u8]> =
            self.0.iter().map(|secret| &secret.as_bytes()[secret.len() - TAIL..]).collect();
        bytes.windows(TAIL).filter(|window| tails.contains(window)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_wherever_it_stands() {
        let mut secrets = Secrets::default();
        secrets.add("sw_live_acme_00jmmvwmq7f06a2deabvsr865d87b6nzwg4jwmvrmn78t12");
        assert_eq!(secrets.count(b"nothing"), 0);
        assert_eq!(secrets.count(b"6nzwg4jwmvrmn78t12 and again 65d87"), 0);
        assert_eq!(secrets.count(b"log: abvsr865d87b6nzwg4jwmvrmn78t12, again 865d87b6nzwg4jwmvrmn78t12"), 2);
        assert_eq!(secrets.count(b"log: sw_live_acme_00jmmvwmq7f06a2deabvsr865d87b6nzwg4jwmvrmn78t12\n"), 1);
    }
}
