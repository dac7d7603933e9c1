//! Whether a text of JSON has a shape, found out while reading it: of what it says, nothing is kept but a number for each
//! field of an object whose fields matter.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Shape;

/// Says what is wrong with a text, if it does not fit.
pub(super) fn check(shape: &Shape, text: &str) -> Result<(), String> {
    let slip = RefCell::new(None);
    let read = Fit { shape, slip: &slip }.deserialize(&mut serde_json::Deserializer::from_str(text));
    match (slip.into_inner(), read) {
        (Some(what), _) => Err(what),
        // It was accepted as JSON, but it is deeper than anybody reads.
        (None, Err(error)) => Err(format!("cannot be read: {error}")),
        (None, Ok(())) => Ok(()),
    }
}

/// Reads one value of a shape.
#[derive(Clone, Copy)]
struct Fit<'a> {
    shape: &'a Shape,
    /// What is wrong.
    slip: &'a RefCell<Option<String>>,
}

impl Fit<'_> {
    fn slip<E: Error>(self, what: String) -> E {
        self.slip.replace(Some(what));
        E::custom("it does not fit")
    }

    /// The value is of this kind.
    fn is<E: Error>(self, fits: bool, kind: &str) -> Result<(), E> {
        if fits || self.shape.is_any() {
            return Ok(());
        }
        Err(self.slip(format!("is {kind} instead of {}", self.shape.describe())))
    }

    fn object<'de, A: MapAccess<'de>>(
        self,
        required: &BTreeMap<String, Shape>,
        mut fields: A,
    ) -> Result<(), A::Error> {
        let mut missing: BTreeSet<_> = required.keys().map(String::as_str).collect();
        let mut seen = Vec::new();
        while let Some((number, field)) = fields.next_key_seed(Name { required })? {
            seen.push(number);
            let Some((name, shape)) = field else {
                fields.next_value_seed(Skim)?;
                continue;
            };
            missing.remove(name);
            fields.next_value_seed(Fit { shape, slip: self.slip }).inspect_err(|_| {
                let within = |what| format!("has a field '{name}' that {what}");
                self.slip.replace_with(|slip| slip.take().map(within));
            })?;
        }
        if let Some(name) = missing.first() {
            return Err(self.slip(format!("has no field '{name}'")));
        }
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair.first() == pair.last()) {
            // Some readers take the first, others the last: nobody knows which is meant.
            return Err(self.slip("has a field twice".into()));
        }
        Ok(())
    }

    fn variant<'de, A: MapAccess<'de>>(self, names: &[String], mut fields: A) -> Result<(), A::Error> {
        let mut known = BTreeMap::new();
        known.extend(names.iter().map(|name| (name.clone(), Shape::Any)));
        let first = fields.next_key_seed(Name { required: &known })?;
        self.is(matches!(first, Some((_, Some(_)))), "an object")?;
        fields.next_value_seed(Skim)?;
        let more = fields.next_key_seed(Name { required: &known })?;
        self.is(more.is_none(), "an object")
    }
}

impl<'de> DeserializeSeed<'de> for Fit<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fit<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.is(matches!(self.shape, Shape::Null | Shape::Maybe(_)), "null")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        let this = self.not_null();
        this.is(*this.shape == Shape::Bool, "a boolean")
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        let this = self.not_null();
        this.is(*this.shape == Shape::Number, "a number")
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.visit_i64(0)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.visit_i64(0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let this = self.not_null();
        let fits = if let Shape::OneOf { names } = this.shape {
            names.iter().any(|name| name == text)
        } else {
            *this.shape == Shape::Text
        };
        this.is(fits, "text")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        let this = self.not_null();
        this.is(*this.shape == Shape::List, "a list")?;
        Skim.visit_seq(items)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        let this = self.not_null();
        if let Shape::Object { required } = this.shape {
            this.object(required, fields)
        } else if let Shape::OneOf { names } = this.shape {
            this.variant(names, fields)
        } else {
            this.is(false, "an object")?;
            Skim.visit_map(fields)
        }
    }
}

impl Fit<'_> {
    /// The same for a value that is not null.
    fn not_null(mut self) -> Self {
        while let Shape::Maybe(inner) = self.shape {
            self.shape = inner;
        }
        self
    }
}

/// Reads the name of a field: a number for it, and its shape, if it has to be there.
struct Name<'a> {
    required: &'a BTreeMap<String, Shape>,
}

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = (u64, Option<(&'a str, &'a Shape)>);

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = (u64, Option<(&'a str, &'a Shape)>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let known = self.required.get_key_value(name).map(|(name, shape)| (name.as_str(), shape));
        Ok((hasher.finish(), known))
    }
}

/// Reads anything that is not nested too deep for a program.
struct Skim;

impl<'de> DeserializeSeed<'de> for Skim {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skim {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(Self)?;
        }
        Ok(())
    }
}
