//! What clients were told about keys must be true, and stay true.

use stepwell_core::catalog::Catalog;

use super::{Checked, Checker};

impl Checker {
    /// A client was told that its key was made.
    pub fn key_created(&mut self, disk: &Catalog, key: &str) -> Checked {
        if disk.key(key).is_none() {
            return Err(("1 no key is lost", format!("{key} was acknowledged and is not on disk")));
        }
        self.created_keys.insert(key.to_owned());
        Ok(())
    }

    /// A client was told that its key was revoked.
    pub fn key_revoked(&mut self, disk: &Catalog, key: &str) -> Checked {
        if disk.key(key).is_none_or(|key| key.revoked_at.is_none()) {
            return Err(("28 a revoked key stays revoked", format!("{key} is not revoked on disk")));
        }
        self.revoked_keys.insert(key.to_owned());
        Ok(())
    }

    /// A key was shown to the catalog, which has accepted it or not.
    pub fn key_shown(&self, key: &str, accepted: bool) -> Checked {
        if accepted && self.revoked_keys.contains(key) {
            return Err(("28 a revoked key is refused", format!("{key} was revoked and is accepted")));
        }
        Ok(())
    }

    /// The keys that clients know to be revoked.
    pub fn revoked_keys(&self) -> Vec<String> {
        self.revoked_keys.iter().cloned().collect()
    }

    /// Everything that was promised was kept.
    pub fn keys_at_end(&self, disk: &Catalog) -> Checked {
        for key in &self.created_keys {
            let Some(known) = disk.key(key) else {
                return Err(("1 no key is lost", format!("{key} was acknowledged and is gone")));
            };
            if self.revoked_keys.contains(key) && known.revoked_at.is_none() {
                return Err(("28 a revoked key stays revoked", format!("{key} is good again")));
            }
        }
        Ok(())
    }
}
