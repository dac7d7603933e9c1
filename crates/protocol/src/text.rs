//! Text that people read: which characters may stand in names, tags and ids, and how much of it is kept.

/// Cuts a text to at most this many bytes, between two characters.
pub fn cut(text: &mut String, most: usize) {
    text.truncate(beginning(text, most).len());
}

/// The beginning of a text, of at most so many bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let length = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..length]
}

/// Bytes as hexadecimal digits, two for each.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

/// Whether a character is invisible and can change how the text around it looks.
///
/// These are control characters, line and paragraph separators, bidirectional overrides, zero-width and blank
/// characters, variation selectors (but for the one that makes an emoji of a sign) and tag characters. With them, two names that differ look the same, and a name can reorder the line it is shown in.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0e}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e007f}'
                | '\u{e0100}'..='\u{e01ef}'
        )
}

/// Whether a text shows everything it contains: it has no [hidden](is_hidden) character.
pub fn is_visible(text: &str) -> bool {
    !text.chars().any(is_hidden)
}

/// The longest tag, in bytes.
pub const TAG_LENGTH_MAX: usize = 64;

/// The most tags of a run: each is a row.
pub const TAGS_MAX: usize = 8;

/// Whether a text may be a tag.
pub fn is_tag(text: &str) -> bool {
    (1..=TAG_LENGTH_MAX).contains(&text.len()) && is_visible(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_disguise_a_name_are_hidden() {
        for c in [
            '\0',
            '\n',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{34f}',
            '\u{115f}',
            '\u{3164}',
            '\u{fe00}',
            '\u{ffa0}',
            '\u{e0100}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{2028}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            assert!(is_hidden(c), "{c:?}");
            assert!(!is_visible(&format!("pay{c}ments")), "{c:?}");
        }
    }

    #[test]
    fn letters_of_all_scripts_are_visible() {
        for text in [
            "",
            "payments",
            "naïve flow",
            "заказ",
            "订单",
            "مرحبا",
            "\u{1f600}",
            "a\u{301}",
            "x\u{a0}y",
            "क्ष",
        ] {
            assert!(is_visible(text), "{text}");
        }
    }
}
