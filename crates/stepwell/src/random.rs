//! Random numbers that are the same on every replay.
//!
//! Made by hashing the run's seed with a counter: unlike a generator crate's algorithm, this never changes
//! under a run that sleeps for a year.

use sha2::{Digest, Sha256};

/// The n-th random block of a run.
pub fn block(seed: &str, n: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"stepwell random 1");
    hash.update(seed.as_bytes());
    hash.update(n.to_be_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_for_ever() {
        // Runs that are asleep depend on this very value.
        assert_eq!(block("00000000000000ff", 3)[..8], [210, 232, 66, 121, 35, 148, 229, 31]);
    }
}
