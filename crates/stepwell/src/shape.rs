//! The form of JSON that a type reads, found by asking it.
//!
//! A type says what it wants when it is deserialized: it calls `deserialize_bool`, or `deserialize_struct` with the
//! names of its fields. [`shape_of`] lets it, notes what it asks for, and answers with something empty. What it does
//! not understand counts as [`Shape::Any`]: a signal is refused only if the type would not read it.

use std::{cell::RefCell, collections::BTreeMap, fmt};

use serde::{
    Deserializer,
    de::{
        self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, VariantAccess,
        Visitor, value::StrDeserializer,
    },
    forward_to_deserialize_any,
};
use stepwell_protocol::Shape;

/// How many fields of a struct are looked at.
const FIELDS_MAX: usize = 32;

/// How deep types are looked into: a type may hold itself.
const DEPTH_MAX: usize = 8;

/// A name that no variant has.
const NO_VARIANT: &str = "\u{0}";

/// What JSON this type reads.
pub(crate) fn shape_of<T: DeserializeOwned>() -> Shape {
    let (mut shape, _) = ask::<T>(None);
    // Which fields are required shows when they are left out, one at a time.
    if let Shape::Object { required } = &mut shape {
        required.retain(|field, _| {
            let (_, refusal) = ask::<T>(Some(field));
            matches!(refusal, Some(Refusal::Missing(missing)) if missing == field)
        });
    }
    shape.bounded()
}

/// What a type asks for when it gets all fields but this one; and why that could not be made into a value, if so.
fn ask<T: DeserializeOwned>(omit: Option<&str>) -> (Shape, Option<Refusal>) {
    let found = RefCell::new(Shape::Any);
    let refusal = T::deserialize(Probe { found: &found, omit, is_top: true, depth: DEPTH_MAX }).err();
    (found.into_inner(), refusal)
}

/// Why a type could not be made of what a [`Probe`] gives.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Missing(&'static str),
    UnknownVariant,
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("only a probe")
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Other
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self::UnknownVariant
    }
}

/// Notes what a type asks for, and answers with something empty.
#[derive(Clone, Copy)]
struct Probe<'a> {
    found: &'a RefCell<Shape>,
    /// The field that is left out of the outermost struct.
    omit: Option<&'a str>,
    is_top: bool,
    depth: usize,
}

impl Probe<'_> {
    fn note(self, shape: Shape) {
        self.found.replace(shape);
    }

    /// A probe one level deeper.
    fn within(self, found: &RefCell<Shape>) -> Result<Probe<'_>, Refusal> {
        let depth = self.depth.checked_sub(1).ok_or(Refusal::Other)?;
        Ok(Probe { found, omit: None, is_top: false, depth })
    }
}

macro_rules! notes {
    ($($method:ident => $shape:ident, $visit:ident($($value:expr)?);)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
            self.note(Shape::$shape);
            visitor.$visit($($value)?)
        })*
    };
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Refusal;

    notes! {
        deserialize_bool => Bool, visit_bool(false);
        deserialize_i8 => Number, visit_i8(0);
        deserialize_i16 => Number, visit_i16(0);
        deserialize_i32 => Number, visit_i32(0);
        deserialize_i64 => Number, visit_i64(0);
        deserialize_u8 => Number, visit_u8(0);
        deserialize_u16 => Number, visit_u16(0);
        deserialize_u32 => Number, visit_u32(0);
        deserialize_u64 => Number, visit_u64(0);
        deserialize_f32 => Number, visit_f32(0.0);
        deserialize_f64 => Number, visit_f64(0.0);
        deserialize_char => Text, visit_char('x');
        deserialize_str => Text, visit_str("");
        deserialize_string => Text, visit_str("");
        deserialize_unit => Null, visit_unit();
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.note(Shape::Any);
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        // An optional field is not required, whatever it holds; and a type may hold itself.
        if !self.is_top {
            self.note(Shape::Any);
            return visitor.visit_none();
        }
        let found = RefCell::new(Shape::Any);
        let value = visitor.visit_some(self.within(&found)?);
        self.note(match found.into_inner() {
            Shape::Any => Shape::Any,
            inner @ (Shape::Null
            | Shape::Bool
            | Shape::Number
            | Shape::Text
            | Shape::List
            | Shape::Object { .. }
            | Shape::OneOf { .. }
            | Shape::Maybe(_)) => Shape::Maybe(Box::new(inner)),
        });
        value
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        // What `serde_json` keeps as text can be anything.
        if name.starts_with("$serde_json") {
            return self.deserialize_any(visitor);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.note(Shape::List);
        visitor.visit_seq(de::value::SeqDeserializer::new(std::iter::empty::<()>()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Refusal> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        let shapes = RefCell::new(BTreeMap::new());
        let names = fields.get(..FIELDS_MAX).unwrap_or(fields);
        let value = visitor.visit_map(Fields { probe: self, names, shapes: &shapes });
        // Of a struct within another, nobody asks which of its fields are required.
        let required = if self.is_top { shapes.into_inner() } else { BTreeMap::new() };
        self.note(Shape::Object { required });
        value
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        let value = visitor.visit_enum(NoVariant);
        // A type that takes any other name takes a slip, too.
        self.note(match value {
            Err(Refusal::UnknownVariant) => {
                Shape::OneOf { names: variants.iter().map(|&name| name.to_owned()).collect() }
            }
            Ok(_) | Err(Refusal::Missing(_) | Refusal::Other) => Shape::Any,
        });
        value
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! { i128 u128 bytes byte_buf identifier }
}

/// All fields of a struct but the one that is left out.
struct Fields<'a> {
    probe: Probe<'a>,
    names: &'static [&'static str],
    shapes: &'a RefCell<BTreeMap<String, Shape>>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refusal> {
        if self.names.first().is_some_and(|name| Some(*name) == self.probe.omit) {
            self.names = &self.names[1..];
        }
        let Some(name) = self.names.first() else { return Ok(None) };
        let name: StrDeserializer<'_, Refusal> = (*name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Refusal> {
        let Some((name, rest)) = self.names.split_first() else { return Err(Refusal::Other) };
        self.names = rest;
        let found = RefCell::new(Shape::Any);
        let value = seed.deserialize(self.probe.within(&found)?);
        self.shapes.borrow_mut().insert((*name).to_owned(), found.into_inner());
        value
    }
}

/// A variant of a name that no type has.
struct NoVariant;

impl<'de> EnumAccess<'de> for NoVariant {
    type Error = Refusal;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Refusal> {
        let name: StrDeserializer<'_, Refusal> = NO_VARIANT.into_deserializer();
        seed.deserialize(name).map(|variant| (variant, self))
    }
}

impl<'de> VariantAccess<'de> for NoVariant {
    type Error = Refusal;

    fn unit_variant(self) -> Result<(), Refusal> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _: S) -> Result<S::Value, Refusal> {
        Err(Refusal::Other)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Refusal> {
        Err(Refusal::Other)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Refusal> {
        Err(Refusal::Other)
    }
}

#[cfg(test)]
#[expect(dead_code, reason = "the types of these tests are only read")]
mod tests {
    use std::collections::{BTreeMap as Map, HashMap};

    use serde::{Deserialize, Serialize};
    use stepwell_protocol::Payload;

    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct Decision {
        approved: bool,
        by: String,
        note: Option<String>,
        #[serde(default)]
        level: u8,
        #[serde(rename = "costs")]
        cents: f64,
        place: Place,
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Place {
        floor: i32,
        room: Option<u8>,
    }

    #[derive(Debug, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Choice {
        Approve,
        Reject { why: String },
    }

    #[derive(Debug, Deserialize)]
    enum Open {
        Known,
        #[serde(other)]
        Unknown,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u8),
        Text(String),
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        A { x: u8 },
    }

    #[derive(Debug, Deserialize)]
    struct Newtype(Vec<u8>);

    #[derive(Debug, Deserialize)]
    struct Tree {
        name: String,
        left: Option<Box<Tree>>,
    }

    /// A type that takes only some texts.
    #[derive(Debug, Deserialize)]
    #[serde(try_from = "String")]
    struct Strict;

    impl TryFrom<String> for Strict {
        type Error = String;

        fn try_from(text: String) -> Result<Self, String> {
            if text == "yes" { Ok(Self) } else { Err(text) }
        }
    }

    #[derive(Debug, Deserialize)]
    struct Holds {
        strict: Strict,
        other: bool,
    }

    fn required<T: DeserializeOwned>() -> Vec<(String, Shape)> {
        let shape = shape_of::<T>();
        let Shape::Object { required } = shape else { panic!("it is {shape:?}") };
        required.into_iter().collect()
    }

    #[test]
    fn types_say_what_they_read() {
        assert_eq!(shape_of::<bool>(), Shape::Bool);
        assert_eq!(shape_of::<u64>(), Shape::Number);
        assert_eq!(shape_of::<f32>(), Shape::Number);
        assert_eq!(shape_of::<String>(), Shape::Text);
        assert_eq!(shape_of::<char>(), Shape::Text);
        assert_eq!(shape_of::<()>(), Shape::Null);
        assert_eq!(shape_of::<Vec<bool>>(), Shape::List);
        assert_eq!(shape_of::<(u8, String)>(), Shape::List);
        assert_eq!(shape_of::<Newtype>(), Shape::List);
        assert_eq!(shape_of::<Option<bool>>(), Shape::Maybe(Box::new(Shape::Bool)));
        assert_eq!(shape_of::<Map<String, u8>>(), Shape::Object { required: Map::new() });
        assert_eq!(shape_of::<HashMap<String, u8>>(), Shape::Object { required: Map::new() });
        assert_eq!(shape_of::<Choice>(), Shape::OneOf { names: vec!["approve".into(), "reject".into()] });
        assert_eq!(shape_of::<Strict>(), Shape::Text);
    }

    #[test]
    fn what_can_be_anything_is_never_refused() {
        assert_eq!(shape_of::<serde_json::Value>(), Shape::Any);
        assert_eq!(shape_of::<Payload>(), Shape::Any);
        assert_eq!(shape_of::<de::IgnoredAny>(), Shape::Any);
        assert_eq!(shape_of::<Either>(), Shape::Any);
        assert_eq!(shape_of::<Tagged>(), Shape::Any);
        assert_eq!(shape_of::<Open>(), Shape::Any);
    }

    #[test]
    fn a_struct_names_the_fields_that_it_needs() {
        let expected = [
            ("approved", Shape::Bool),
            ("by", Shape::Text),
            ("costs", Shape::Number),
            ("place", Shape::Object { required: Map::new() }),
        ];
        assert_eq!(required::<Decision>(), expected.map(|(name, shape)| (name.to_owned(), shape)));
        assert_eq!(required::<Tree>(), [("name".to_owned(), Shape::Text)]);
        // It cannot be made of an empty text, so nobody knows what else it needs.
        assert_eq!(required::<Holds>(), [("strict".to_owned(), Shape::Text)]);
    }

    #[test]
    fn whatever_a_type_writes_fits_its_shape() {
        fn holds<T: Serialize + DeserializeOwned>(value: &T) {
            let payload = Payload::encode(value).expect("it can be written");
            assert_eq!(shape_of::<T>().check(&payload), Ok(()), "{}", payload.text());
        }
        let place = Place { floor: -1, room: None };
        let decision = Decision { approved: true, by: "ada".into(), note: None, level: 0, cents: 1.0, place };
        holds(&decision);
        holds(&Some(decision));
        holds(&Choice::Approve);
        holds(&Choice::Reject { why: "no".into() });
        holds(&(1_u8, "x".to_owned()));
        holds(&vec![Some(1)]);
        holds(&None::<u8>);
    }
}
