//! Hashes as text: SQL and JavaScript have no exact 64-bit numbers.

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// By hand: what formats numbers in general takes ten times as long, and each step has such a hash.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    let mut left = *value;
    let mut text = [b'0'; 16];
    for place in text.iter_mut().rev() {
        *place = DIGITS[(left & 15) as usize];
        left >>= 4;
    }
    serializer.serialize_str(std::str::from_utf8(&text).expect("these are digits"))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    u64::from_str_radix(&String::deserialize(deserializer)?, 16).map_err(D::Error::custom)
}
