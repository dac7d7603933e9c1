//! API keys and session tokens as texts: how they are made, and what can be told of one without asking anybody.
//!
//! `sw_live_acme_` and 47 characters: eight for the key's id, which is no secret; 32 for the secret itself, 160 random
//! bits; seven for a checksum over all that stands before. So a mistyped key costs no look-up, and a scanner of
//! secrets knows one when it sees it. The namespace is part of the text: whoever brings a key says where it is known.
//! That alone proves nothing; what counts is that the hash of the whole text is known there.

use std::fmt;

use crate::RunId;

/// The longest name of a namespace.
pub const NAMESPACE_LENGTH_MAX: usize = 32;

/// How many characters a key's id has.
pub const ID_LENGTH: usize = 8;

/// How many characters the secret has: five bits each.
pub const SECRET_LENGTH: usize = 32;

/// How many random bytes a key is made of: those of its id and its secret.
pub const RANDOM_BYTES: usize = (ID_LENGTH + SECRET_LENGTH) * 5 / 8;

const CHECKSUM_LENGTH: usize = 7;

/// What every key begins with.
const PREFIX: &str = "sw";

/// What a text lets its bearer be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A key for real work.
    Live,
    /// A key for trying out.
    Test,
    /// A person who has signed in.
    Session,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Self; 3] = [Self::Live, Self::Test, Self::Session];

    /// As it stands in a key.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Test => "test",
            Self::Session => "session",
        }
    }

    /// The kind of this name.
    pub fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What a key says of itself. The secret is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// What it is.
    pub kind: Kind,
    /// Where it is known.
    pub namespace: String,
    /// By what it is known there.
    pub id: String,
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAKey {
    /// It does not look like one.
    #[error("it does not have the form sw_live_<namespace>_<47 characters>")]
    Malformed,
    /// It looks like one, but was changed.
    #[error("its checksum is wrong: a part of it is missing or mistyped")]
    Checksum,
}

/// A new key. Never stored, never shown by `Debug`: it is told to its owner once.
#[derive(Clone, PartialEq, Eq)]
pub struct Fresh {
    /// What it says of itself.
    pub named: Named,
    /// All of it.
    pub text: String,
}

impl fmt::Debug for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh").field("named", &self.named).finish_non_exhaustive()
    }
}

/// Whether a text can name a namespace: a lower-case letter, then lower-case letters, digits and hyphens, not at the
/// end.
pub fn is_namespace(text: &str) -> bool {
    text.len() <= NAMESPACE_LENGTH_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether a text can be a key's id.
pub fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && is_spelled(text)
}

/// Makes a key of random bytes.
pub fn make(kind: Kind, namespace: &str, random: [u8; RANDOM_BYTES]) -> Fresh {
    let body = spell(&random);
    let id = body[..ID_LENGTH].to_owned();
    let mut text = format!("{PREFIX}_{}_{namespace}_{body}", kind.as_str());
    text.push_str(&checksum(&text));
    Fresh { named: Named { kind, namespace: namespace.to_owned(), id }, text }
}

/// Reads a key.
pub fn read(text: &str) -> Result<Named, NotAKey> {
    let mut parts = text.split('_');
    let (Some(PREFIX), Some(kind), Some(namespace), Some(body), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(NotAKey::Malformed);
    };
    let kind = Kind::of(kind).ok_or(NotAKey::Malformed)?;
    if !is_namespace(namespace)
        || body.len() != ID_LENGTH + SECRET_LENGTH + CHECKSUM_LENGTH
        || !is_spelled(body)
    {
        return Err(NotAKey::Malformed);
    }
    let (before, sum) = text.split_at(text.len() - CHECKSUM_LENGTH);
    if checksum(before) != sum {
        return Err(NotAKey::Checksum);
    }
    Ok(Named { kind, namespace: namespace.to_owned(), id: body[..ID_LENGTH].to_owned() })
}

fn is_spelled(text: &str) -> bool {
    text.bytes().all(|b| RunId::ALPHABET.contains(&b))
}

/// Five bits for each character.
fn spell(bytes: &[u8]) -> String {
    let bit = |index: usize| bytes[index / 8] >> (7 - index % 8) & 1;
    let characters = bytes.len() * 8 / 5;
    (0..characters)
        .map(|at| (0..5).fold(0, |value, offset| value << 1 | bit(at * 5 + offset)))
        .map(|value: u8| RunId::ALPHABET[usize::from(value)] as char)
        .collect()
}

fn checksum(text: &str) -> String {
    let sum = u64::from(crc32(text.as_bytes()));
    RunId::suffix_from(sum)[..CHECKSUM_LENGTH].to_owned()
}

/// CRC-32 as in Ethernet, bit by bit: keys are short.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: u8) -> [u8; RANDOM_BYTES] {
        let mut next = seed.wrapping_sub(37);
        std::array::from_fn(|_| {
            next = next.wrapping_add(37);
            next
        })
    }

    #[test]
    fn the_checksum_is_the_well_known_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_key_has_160_secret_bits_and_each_of_them_shows() {
        const { assert!(SECRET_LENGTH * 5 >= 160) };
        let key = make(Kind::Live, "acme", random(1)).text;
        for bit in 0..RANDOM_BYTES * 8 {
            let mut other = random(1);
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(make(Kind::Live, "acme", other).text, key, "bit {bit} does not show");
        }
    }

    #[test]
    fn a_key_reads_back_as_it_was_made() {
        for kind in Kind::ALL {
            for namespace in ["a", "default", "acme-2", &"n".repeat(NAMESPACE_LENGTH_MAX)] {
                let fresh = make(kind, namespace, random(7));
                assert_eq!(read(&fresh.text), Ok(fresh.named.clone()), "{}", fresh.text);
                assert!(is_id(&fresh.named.id));
            }
        }
    }

    #[test]
    fn the_form_of_keys_stays_what_it_was() {
        let fresh = make(Kind::Live, "acme", random(0));
        assert_eq!(fresh.text, "sw_live_acme_00jmmvwmq7f06a2deabvsr865d87b6nzwg4jwmvrmn78t12");
    }

    #[test]
    fn a_change_of_any_character_is_noticed_without_asking_anybody() {
        let text = make(Kind::Live, "acme", random(3)).text;
        for at in 0..text.len() {
            for with in ["0", "a", "z", "_", "-", "A", "\u{e9}"] {
                let mut changed = text.clone();
                changed.replace_range(at..=at, with);
                assert!(changed == text || read(&changed).is_err(), "{changed} was taken");
            }
            let mut cut = text.clone();
            cut.remove(at);
            assert!(read(&cut).is_err(), "{cut} was taken");
        }
    }

    #[test]
    fn a_key_of_one_namespace_cannot_be_relabelled() {
        let text = make(Kind::Test, "acme", random(9)).text;
        assert_eq!(read(&text.replace("acme", "evil")), Err(NotAKey::Checksum));
        assert_eq!(read(&text.replace("test", "live")), Err(NotAKey::Checksum));
    }

    #[test]
    fn what_is_no_key_is_malformed() {
        for bad in ["", "sw", "local-key", "sw_live_acme", "sw_live__", "sk_live_acme_0", "sw_live_a_b_c"] {
            assert_eq!(read(bad), Err(NotAKey::Malformed), "{bad}");
        }
        for bad in ["", "-a", "a-", "A", "1a", "a_b", "a/b", "\u{e9}", &"n".repeat(33)] {
            assert!(!is_namespace(bad), "{bad}");
        }
    }

    #[test]
    fn a_new_key_does_not_show_itself_by_accident() {
        let fresh = make(Kind::Live, "acme", random(5));
        assert!(!format!("{fresh:?}").contains(&fresh.text[13 + ID_LENGTH..]));
    }
}
