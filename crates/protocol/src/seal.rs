//! Secrets that are stored and read again: encrypted with a key that is made of the deployment's.
//!
//! Owns: the form of a sealed text. Does not own: where keys come from.
//!
//! A text is encrypted and authenticated with HMAC-SHA256 as a pseudorandom function, in the manner of SIV (RFC 5297): a
//! tag over context and text, then the text under a key stream that is made of that tag. It takes no randomness, so a
//! machine can do it; and no cipher, so it takes no more code than there is. Only equal texts in the same context give
//! equal sealed texts.

use subtle::ConstantTimeEq as _;

use crate::{
    signature::{Key, digest},
    text::hex,
    webhook::schemes::unhex,
};

/// What its form was, if that ever changes.
const VERSION: &str = "1";

/// Bytes of a tag, and of a piece of the key stream.
const BLOCK: usize = 32;

/// Seals a text. Only the same context opens it.
pub fn seal(key: &Key, context: &str, text: &str) -> String {
    let tag = tag(key, context, text.as_bytes());
    let sealed = crypt(key, &tag, text.as_bytes());
    format!("{VERSION}~{}~{}{}", key.id(), hex(&tag), hex(&sealed))
}

/// Whether it was this key that sealed a text.
pub fn is_sealed_by(key: &Key, sealed: &str) -> bool {
    sealed.split('~').nth(1) == Some(key.id())
}

/// Opens a sealed text; nothing, unless one of these keys has sealed it in this context.
pub fn open(keys: &[Key], context: &str, sealed: &str) -> Option<String> {
    let rest = sealed.strip_prefix(VERSION)?.strip_prefix('~')?;
    let (_, digits) = rest.split_once('~')?;
    let bytes = unhex(digits)?;
    let (expected, sealed_text) = bytes.split_first_chunk::<BLOCK>()?;
    keys.iter().filter(|key| is_sealed_by(key, sealed)).find_map(|key| {
        let text = crypt(key, expected, sealed_text);
        let is_good: bool = tag(key, context, &text).ct_eq(expected).into();
        String::from_utf8(text).ok().filter(|_| is_good)
    })
}

fn tag(key: &Key, context: &str, text: &[u8]) -> [u8; BLOCK] {
    digest(key.mac.clone(), &[b"tag", &(context.len() as u64).to_le_bytes(), context.as_bytes(), text])
}

/// Encrypts or decrypts: the two are the same.
fn crypt(key: &Key, tag: &[u8; BLOCK], text: &[u8]) -> Vec<u8> {
    let pieces = text.chunks(BLOCK).zip(0_u64..);
    let crypted = pieces.flat_map(|(piece, count)| {
        let stream = digest(key.mac.clone(), &[b"key", tag, &count.to_le_bytes()]);
        piece.iter().zip(stream).map(|(byte, key)| byte ^ key).collect::<Vec<_>>()
    });
    crypted.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signature::Purpose;

    fn key(secret: &str) -> Key {
        Key::derive(secret, Purpose::Seal)
    }

    #[test]
    fn what_was_sealed_is_opened_in_its_context_only() {
        let (one, two) = (key("one"), key("two"));
        let sealed = seal(&one, "acme/order/shop", "whsec_c2VjcmV0");
        assert!(!sealed.contains("whsec") && is_sealed_by(&one, &sealed) && !is_sealed_by(&two, &sealed));
        let keys = [two.clone(), one.clone()];
        assert_eq!(open(&keys, "acme/order/shop", &sealed).as_deref(), Some("whsec_c2VjcmV0"));
        assert_eq!(open(&keys, "acme/order/other", &sealed), None);
        assert_eq!(open(std::slice::from_ref(&two), "acme/order/shop", &sealed), None);
        let renamed = sealed.replace(one.id(), two.id());
        assert_eq!(open(&keys, "acme/order/shop", &renamed), None);
        assert_ne!(seal(&one, "acme/order/shop", "a"), seal(&one, "acme/order/ship", "a"));
    }

    #[test]
    fn the_form_stays_what_it_was() {
        let stored = "1~f6869ea0~368fddc1bd4b0d35936e3d7c73a1a9163a9710c27f3c6ac16891f71e8b6fbea04\
            3800700d95c7b885a4a3d0b4e2a";
        assert_eq!(open(&[key("one")], "acme/order/shop", stored).as_deref(), Some("whsec_c2VjcmV0"));
    }

    proptest! {
        #[test]
        fn any_text_is_opened_again_and_no_altered_one_is(
            text in "\\PC{0,100}",
            context in "[a-z/]{0,20}",
            place in any::<prop::sample::Index>(),
            to in 0_u8..16,
        ) {
            let key = key("one");
            let sealed = seal(&key, &context, &text);
            prop_assert_eq!(open(std::slice::from_ref(&key), &context, &sealed), Some(text));
            let digits = sealed.rfind('~').map_or(0, |at| at + 1);
            let at = digits + place.index(sealed.len() - digits);
            let mut altered = sealed.clone();
            altered.replace_range(at..=at, &format!("{to:x}"));
            prop_assume!(altered != sealed);
            prop_assert_eq!(open(&[key], &context, &altered), None);
        }

        #[test]
        fn no_text_is_a_reason_to_panic(text in "\\PC{0,200}") {
            prop_assert_eq!(open(&[key("one")], "", &text), None);
        }
    }
}
