//! The words of an expression.

use super::BadExpression;

/// A word, and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub what: Word,
    pub at: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    Name(String),
    Text(String),
    Int(u64),
    Float(f64),
    Sign(&'static str),
}

/// The longer ones first.
const SIGNS: [&str; 18] =
    ["&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "?", ":", "(", ")", "[", "]", ",", ".", "-"];

/// Whether a text is a name.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The words of a text.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, BadExpression> {
    let mut reader = Reader { rest: text, at: 1 };
    let mut tokens = Vec::new();
    loop {
        reader.take_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r'));
        let at = reader.at;
        let Some(first) = reader.peek() else { return Ok(tokens) };
        let what = if first.is_ascii_alphabetic() || first == '_' {
            Word::Name(reader.take_while(|c| c.is_ascii_alphanumeric() || c == '_').to_owned())
        } else if first.is_ascii_digit() {
            reader.number()?
        } else if first == '"' || first == '\'' {
            Word::Text(reader.text()?)
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| reader.rest.starts_with(sign)) {
            reader.skip(sign.len());
            Word::Sign(sign)
        } else {
            return Err(BadExpression { what: format!("'{}' means nothing here", first.escape_debug()), at });
        };
        tokens.push(Token { what, at });
    }
}

struct Reader<'a> {
    rest: &'a str,
    /// Counted in characters, from 1.
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.skip(next.len_utf8());
        Some(next)
    }

    /// Goes on by so many bytes, and gives them.
    fn skip(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.at += taken.chars().count();
        taken
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        self.skip(end)
    }

    fn bad(&self, what: impl Into<String>) -> BadExpression {
        BadExpression { what: what.into(), at: self.at }
    }

    fn number(&mut self) -> Result<Word, BadExpression> {
        let (from, at) = (self.rest, self.at);
        self.take_while(|c| c.is_ascii_digit());
        let mut is_whole = true;
        let mut after = self.rest.chars();
        if after.next() == Some('.') && after.next().is_some_and(|c| c.is_ascii_digit()) {
            is_whole = false;
            self.skip(1);
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest.starts_with(['e', 'E']) {
            is_whole = false;
            self.skip(1);
            if self.rest.starts_with(['+', '-']) {
                self.skip(1);
            }
            if self.take_while(|c| c.is_ascii_digit()).is_empty() {
                return Err(self.bad("the exponent of the number has no digits"));
            }
        }
        if self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(self.bad("a number is followed by a letter; write numbers as 42, 4.2 or 4e2"));
        }
        let digits = from.get(..from.len() - self.rest.len()).unwrap_or_default();
        let too_large = || BadExpression { what: "the number is too large".into(), at };
        if is_whole {
            return digits.parse().map(Word::Int).map_err(|_| too_large());
        }
        let number = digits.parse::<f64>().ok().filter(|number| number.is_finite());
        number.map(Word::Float).ok_or_else(too_large)
    }

    fn text(&mut self) -> Result<String, BadExpression> {
        let at = self.at;
        let end = self.next();
        let mut text = String::new();
        loop {
            let Some(next) = self.next() else {
                return Err(BadExpression { what: "the text has no end".into(), at });
            };
            match next {
                _ if Some(next) == end => return Ok(text),
                '\\' => text.push(self.escaped()?),
                '\n' | '\r' => {
                    return Err(BadExpression { what: "the text goes over more than one line".into(), at });
                }
                _ => text.push(next),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, BadExpression> {
        let unknown = self.bad("this escape is unknown; there are \\\\ \\\" \\' \\n \\r \\t and \\uXXXX");
        Ok(match self.next() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(same @ ('\\' | '"' | '\'')) => same,
            Some('u') => {
                let digits = self.rest.get(..4).filter(|four| four.bytes().all(|b| b.is_ascii_hexdigit()));
                let code = digits.and_then(|four| u32::from_str_radix(four, 16).ok());
                let found = code.and_then(char::from_u32).ok_or(unknown)?;
                self.skip(4);
                found
            }
            Some(_) | None => return Err(unknown),
        })
    }
}
