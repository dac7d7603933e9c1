//! Reads messages and rows with little code.
//!
//! `serde_json` compiles all of its syntax anew for each type that is read: where an object begins, what a comma means, how a
//! key ends. A Worker reads hundreds of types. This reader has its syntax once, and asks `serde_json` about the rest: escapes
//! in strings, uncommon numbers, values that are carried as text, and what is wrong with a text. It takes a struct as an
//! object only, not as an array as well. It is for our own types; where a type is read by both readers, it is in the bundle
//! twice.

use std::borrow::Cow;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IgnoredAny, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
    value::{BorrowedStrDeserializer, StrDeserializer},
};
use serde_json::{Error, Number, Result, value::RawValue};

#[cfg(test)]
mod tests;

/// How deep a text may go, as in `serde_json`.
const DEPTH_MAX: u8 = 127;

/// By this name, `serde_json` asks for a value as the text that it is.
const RAW: &str = "$serde_json::private::RawValue";

/// Reads a value from JSON, like `serde_json::from_str`.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T> {
    let mut reader = Reader { text, at: 0, depth: 0, key: Cow::Borrowed("") };
    match T::deserialize(&mut reader) {
        Ok(value) => reader.end().map(|()| value),
        Err(error) => Err(reader.placed(error)),
    }
}

/// A text that is being read.
struct Reader<'de> {
    text: &'de str,
    at: usize,
    depth: u8,
    /// The key that was read last: of an object, or of an enum's variant.
    key: Cow<'de, str>,
}

impl<'de> Reader<'de> {
    fn rest(&self) -> &'de str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The first byte of what comes next.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Whether this comes next. Then it is behind us.
    fn eats(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn eats_word(&mut self, word: &str) -> bool {
        let is_next = self.rest().starts_with(word);
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    /// What is wrong with the text; if nothing is, this.
    fn broken_or(&self, otherwise: &'static str) -> Error {
        let read = serde_json::from_str::<IgnoredAny>(self.text);
        read.map_or_else(|error| error, |_| Error::custom(otherwise))
    }

    /// What is wrong with the text.
    fn broken(&self) -> Error {
        self.broken_or("expected value")
    }

    /// The text is of another type than what is read.
    fn mismatch(&mut self, expected: &dyn Expected) -> Error {
        let unexpected = match self.peek() {
            Some(b'{') => Unexpected::Map,
            Some(b'[') => Unexpected::Seq,
            Some(b'"') => match self.string() {
                Ok(text) => return Error::invalid_type(Unexpected::Str(&text), expected),
                Err(error) => return error,
            },
            Some(b'-' | b'0'..=b'9') => match self.number() {
                Ok(number) => number.unexpected(),
                Err(error) => return error,
            },
            Some(_) if self.eats_word("null") => Unexpected::Unit,
            Some(_) if self.eats_word("true") => Unexpected::Bool(true),
            Some(_) if self.eats_word("false") => Unexpected::Bool(false),
            Some(_) | None => return self.broken(),
        };
        Error::invalid_type(unexpected, expected)
    }

    /// Nothing else may come.
    fn end(&mut self) -> Result<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.broken()) }
    }

    /// A mistake with its place in the text.
    fn placed(&self, error: Error) -> Error {
        if error.line() > 0 {
            return error;
        }
        let before = self.text.get(..self.at).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1);
        Error::custom(format_args!("{error} at line {line} column {column}"))
    }

    fn string(&mut self) -> Result<Cow<'de, str>> {
        let rest = self.rest();
        let mut bytes = rest.bytes().enumerate().skip(1);
        let mut is_plain = true;
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'"' => {
                    let literal = rest.get(..=at).unwrap_or_default();
                    let plain = rest.get(1..at).filter(|_| is_plain).map(Cow::Borrowed);
                    let text = plain.map_or_else(|| serde_json::from_str(literal).map(Cow::Owned), Ok);
                    self.at += literal.len();
                    return text.map_err(|_| self.broken_or("lone surrogate in a string"));
                }
                b'\\' => {
                    is_plain = false;
                    bytes.next();
                }
                0..=0x1f => break,
                _ => {}
            }
        }
        Err(self.broken())
    }

    fn number(&mut self) -> Result<Numeral> {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = self.rest().bytes().take_while(is_part).count();
        let text = self.rest().get(..length).unwrap_or_default();
        let plain = text.parse().ok().filter(|_| matches!(text.as_bytes(), [b'1'..=b'9', ..] | b"0"));
        let number = match plain {
            Some(number) => Numeral::Unsigned(number),
            None => match serde_json::from_str(text) {
                Ok(number) => Numeral::of(&number),
                Err(_) => return Err(self.broken_or("number out of range")),
            },
        };
        self.at += length;
        Ok(number)
    }

    /// A value as the text that it is.
    fn raw(&mut self) -> Result<&'de str> {
        self.peek();
        let mut rest = serde_json::Deserializer::from_str(self.rest());
        let raw = <&RawValue>::deserialize(&mut rest).map_err(|_| self.broken())?.get();
        self.at += raw.len();
        Ok(raw)
    }

    /// Goes into an object or an array.
    fn enter(&mut self, bracket: u8, expected: &dyn Expected) -> Result<()> {
        if !self.eats(bracket) {
            return Err(self.mismatch(expected));
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(Error::custom("recursion limit exceeded")) } else { Ok(()) }
    }

    /// Goes to the next member of an object or an array, or out of it if there is none.
    fn advance(&mut self, bracket: u8, is_first: &mut bool) -> Result<bool> {
        if self.eats(bracket) {
            self.depth -= 1;
            return Ok(false);
        }
        if !*is_first && !self.eats(b',') {
            return Err(self.broken());
        }
        *is_first = false;
        Ok(true)
    }

    /// Goes out of an object or an array, unless [`Self::advance`] has.
    fn leave(&mut self, bracket: u8, depth: u8) -> Result<()> {
        if self.depth == depth {
            return Ok(());
        }
        if !self.eats(bracket) {
            // If nothing is wrong with the text, it has more members than the type.
            return Err(self.broken_or("trailing characters"));
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a key, up to its value.
    fn read_key(&mut self) -> Result<()> {
        if self.peek() != Some(b'"') {
            return Err(self.broken());
        }
        self.key = self.string()?;
        if self.eats(b':') { Ok(()) } else { Err(self.broken()) }
    }
}

/// A number, as visitors know them.
enum Numeral {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
}

impl Numeral {
    fn of(number: &Number) -> Self {
        match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Self::Unsigned(number),
            (None, Some(number)) => Self::Signed(number),
            (None, None) => Self::Float(number.as_f64().unwrap_or_default()),
        }
    }

    fn unexpected(&self) -> Unexpected<'static> {
        match *self {
            Self::Unsigned(number) => Unexpected::Unsigned(number),
            Self::Signed(number) => Unexpected::Signed(number),
            Self::Float(number) => Unexpected::Float(number),
        }
    }

    fn give<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self {
            Self::Unsigned(number) => visitor.visit_u64(number),
            Self::Signed(number) => visitor.visit_i64(number),
            Self::Float(number) => visitor.visit_f64(number),
        }
    }
}

/// Methods of a deserializer that do the same as another one.
macro_rules! the_same {
    ($as:ident: $($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            self.$as(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(b'{') => self.deserialize_map(visitor),
            Some(b'[') => self.deserialize_seq(visitor),
            Some(b'"') => self.deserialize_str(visitor),
            Some(b'n') => self.deserialize_unit(visitor),
            Some(b't' | b'f') => self.deserialize_bool(visitor),
            Some(_) | None => self.deserialize_u64(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(b't') if self.eats_word("true") => visitor.visit_bool(true),
            Some(b'f') if self.eats_word("false") => visitor.visit_bool(false),
            Some(_) | None => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(b'-' | b'0'..=b'9') => self.number()?.give(visitor),
            Some(_) | None => Err(self.mismatch(&visitor)),
        }
    }

    the_same! { deserialize_u64:
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_f32 deserialize_f64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(b'"') => match self.string()? {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            Some(_) | None => Err(self.mismatch(&visitor)),
        }
    }

    the_same! { deserialize_str:
        deserialize_char deserialize_string deserialize_bytes deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(b'n') if self.eats_word("null") => visitor.visit_none(),
            Some(_) | None => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(b'n') if self.eats_word("null") => visitor.visit_unit(),
            Some(_) | None => Err(self.mismatch(&visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value> {
        if name == RAW {
            return visitor.visit_map(Raw { text: Some(self.raw()?) });
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let depth = self.depth;
        self.enter(b'[', &visitor)?;
        let value = visitor.visit_seq(Members { reader: self, is_first: true })?;
        self.leave(b']', depth)?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let depth = self.depth;
        self.enter(b'{', &visitor)?;
        let value = visitor.visit_map(Members { reader: self, is_first: true })?;
        self.leave(b'}', depth)?;
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_map(visitor)
    }

    /// A variant without a value is its name, any other an object with one member.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let depth = self.depth;
        let has_value = self.peek() != Some(b'"');
        if has_value {
            self.enter(b'{', &visitor)?;
            self.read_key()?;
        } else {
            self.key = self.string()?;
        }
        let value = visitor.visit_enum(Variant { reader: self, has_value })?;
        self.leave(b'}', depth)?;
        Ok(value)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.raw()?;
        visitor.visit_unit()
    }
}

/// The members of an object or an array.
struct Members<'a, 'de> {
    reader: &'a mut Reader<'de>,
    is_first: bool,
}

impl<'de> SeqAccess<'de> for Members<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        if !self.reader.advance(b']', &mut self.is_first)? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> MapAccess<'de> for Members<'_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        if !self.reader.advance(b'}', &mut self.is_first)? {
            return Ok(None);
        }
        self.reader.read_key()?;
        seed.deserialize(Key(self.reader)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        seed.deserialize(&mut *self.reader)
    }
}

/// The variant of an enum.
struct Variant<'a, 'de> {
    reader: &'a mut Reader<'de>,
    has_value: bool,
}

impl Variant<'_, '_> {
    fn check(&self, expected: &str) -> Result<()> {
        let unit = || Error::invalid_type(Unexpected::UnitVariant, &expected);
        if self.has_value { Ok(()) } else { Err(unit()) }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self)> {
        let name = seed.deserialize(Key(self.reader))?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<()> {
        if self.has_value { <()>::deserialize(self.reader) } else { Ok(()) }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value> {
        self.check("newtype variant")?;
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.check("tuple variant")?;
        self.reader.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        self.check("struct variant")?;
        self.reader.deserialize_map(visitor)
    }
}

/// The key that was read last.
struct Key<'a, 'de>(&'a mut Reader<'de>);

impl<'de> Deserializer<'de> for Key<'_, 'de> {
    type Error = Error;

    /// The name of a field or a variant: whoever asks compares it.
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_str(&self.0.key)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match &self.0.key {
            Cow::Borrowed(key) => visitor.visit_borrowed_str(key),
            Cow::Owned(key) => visitor.visit_str(key),
        }
    }

    the_same! { deserialize_any:
        deserialize_bool deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_seq deserialize_map
        deserialize_ignored_any
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let number = serde_json::from_str::<Number>(&self.0.key);
        let number =
            number.map_err(|_| Error::custom("invalid value: expected key to be a number in quotes"))?;
        Numeral::of(&number).give(visitor)
    }

    the_same! { deserialize_u64:
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(Variant { reader: self.0, has_value: false })
    }
}

/// A value as the text that it is, in the form that `serde_json`'s own reader gives it to a `RawValue`.
struct Raw<'de> {
    text: Option<&'de str>,
}

impl<'de> MapAccess<'de> for Raw<'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        self.text.map(|_| seed.deserialize(StrDeserializer::new(RAW))).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        seed.deserialize(BorrowedStrDeserializer::new(self.text.take().unwrap_or_default()))
    }
}
