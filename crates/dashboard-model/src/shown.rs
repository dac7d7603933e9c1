//! Texts of callers and programs, made safe to look at: what would change how its neighbours are drawn is written out.

/// A text in which control characters are written out. Line breaks and tabs stay.
pub fn block(text: &str) -> String {
    written_out(text, |c| c == '\n' || c == '\t')
}

/// The same on one line.
pub fn line(text: &str) -> String {
    written_out(text, |_| false)
}

fn written_out(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if stays(c) || !is_hidden(c) {
            shown.push(c);
        } else {
            match c {
                '\n' => shown.push('⏎'),
                '\t' => shown.push(' '),
                c => shown.extend(c.escape_unicode()),
            }
        }
    }
    shown
}

/// Whether a character is not seen itself, but changes what is.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_text_around_is_written_out() {
        assert_eq!(line("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(line("a\u{2028}b\nc\td\u{1b}[0m"), "a\\u{2028}b⏎c d\\u{1b}[0m");
        assert_eq!(block("a\n\tb\u{2066}"), "a\n\tb\\u{2066}");
        assert_eq!(line("<b>Grüße, 世界</b> 🎉"), "<b>Grüße, 世界</b> 🎉");
    }
}
