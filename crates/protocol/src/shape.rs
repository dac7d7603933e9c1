//! What JSON a wait takes: enough to refuse a slip. It is no schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Payload;

/// The form that a signal's payload must have for the wait that it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// Anything: nobody knows better.
    #[default]
    #[serde(rename = "any")]
    Any,
    /// `null`.
    #[serde(rename = "null")]
    Null,
    /// `true` or `false`.
    #[serde(rename = "bool")]
    Bool,
    /// A number.
    #[serde(rename = "number")]
    Number,
    /// A text.
    #[serde(rename = "text")]
    Text,
    /// A list, of whatever.
    #[serde(rename = "list")]
    List,
    /// An object with at least these fields.
    #[serde(rename = "object")]
    Object {
        /// The fields that it must have, and their forms.
        required: BTreeMap<String, Shape>,
    },
    /// One of these names; or an object with one field of such a name, for a variant that carries something.
    #[serde(rename = "one_of")]
    OneOf {
        /// The names.
        names: Vec<String>,
    },
    /// `null`, or this.
    #[serde(rename = "maybe")]
    Maybe(Box<Shape>),
}

impl Shape {
    /// How much a shape may hold, in parts and bytes of names: it is stored with the run.
    pub const WEIGHT_MAX: usize = 1_024;

    /// How deep objects are looked into.
    pub const DEPTH_MAX: usize = 4;

    /// Whether it is what nobody has to say.
    pub fn is_any(&self) -> bool {
        *self == Self::Any
    }

    /// The same, or anything if it is too large to be stored.
    #[must_use]
    pub fn bounded(self) -> Self {
        let fits = self.weight(Self::DEPTH_MAX).is_some_and(|weight| weight <= Self::WEIGHT_MAX);
        if fits { self } else { Self::Any }
    }

    /// Its parts and the bytes of its names; nothing, if it is too deep.
    fn weight(&self, depth: usize) -> Option<usize> {
        let depth = depth.checked_sub(1)?;
        Some(match self {
            Self::Any | Self::Null | Self::Bool | Self::Number | Self::Text | Self::List => 1,
            Self::Maybe(inner) => 1 + inner.weight(depth)?,
            Self::OneOf { names } => 1 + names.iter().map(String::len).sum::<usize>(),
            Self::Object { required } => {
                let mut weight = 1;
                for (name, shape) in required {
                    weight += name.len() + shape.weight(depth)?;
                }
                weight
            }
        })
    }

    /// Says what is wrong with a payload, if it does not fit.
    pub fn check(&self, payload: &Payload) -> Result<(), String> {
        if self.is_any() {
            return Ok(());
        }
        match payload.decode() {
            Ok(value) => self.fits(&value).map_err(|what| format!("the payload {what}")),
            // It was accepted as JSON, but it is deeper than anybody reads.
            Err(error) => Err(format!("the payload cannot be read: {error}")),
        }
    }

    fn fits(&self, value: &Value) -> Result<(), String> {
        let fits = match (self, value) {
            (Self::Any, _)
            | (Self::Null | Self::Maybe(_), Value::Null)
            | (Self::Bool, Value::Bool(_))
            | (Self::Number, Value::Number(_))
            | (Self::Text, Value::String(_))
            | (Self::List, Value::Array(_)) => true,
            (Self::Maybe(inner), other) => return inner.fits(other),
            (Self::OneOf { names }, Value::String(name)) => names.contains(name),
            (Self::OneOf { names }, Value::Object(fields)) => {
                fields.len() == 1 && fields.keys().all(|name| names.contains(name))
            }
            (Self::Object { required }, Value::Object(fields)) => {
                for (name, shape) in required {
                    let Some(field) = fields.get(name) else { return Err(format!("has no field '{name}'")) };
                    shape.fits(field).map_err(|what| format!("has a field '{name}' that {what}"))?;
                }
                true
            }
            (
                Self::Null
                | Self::Bool
                | Self::Number
                | Self::Text
                | Self::List
                | Self::OneOf { .. }
                | Self::Object { .. },
                _,
            ) => false,
        };
        if fits { Ok(()) } else { Err(format!("is {} instead of {}", kind_of(value), self.describe())) }
    }

    /// The same as JSON Schema; nothing, if it takes anything.
    pub fn schema(&self) -> Option<Value> {
        let of = |kind: &str| Some(json!({ "type": kind }));
        match self {
            Self::Any => None,
            Self::Null => of("null"),
            Self::Bool => of("boolean"),
            Self::Number => of("number"),
            Self::Text => of("string"),
            Self::List => of("array"),
            Self::Maybe(inner) => Some(json!({ "anyOf": [{ "type": "null" }, inner.schema()?] })),
            Self::OneOf { names } => {
                let known: BTreeMap<_, _> = names.iter().map(|name| (name, json!({}))).collect();
                let variant = json!({
                    "type": "object", "properties": known, "additionalProperties": false,
                    "minProperties": 1, "maxProperties": 1
                });
                Some(json!({ "anyOf": [{ "enum": names }, variant] }))
            }
            Self::Object { required } => {
                let field = |(name, shape): (_, &Self)| (name, shape.schema().unwrap_or_else(|| json!({})));
                let properties: BTreeMap<_, _> = required.iter().map(field).collect();
                let names: Vec<_> = required.keys().collect();
                Some(json!({ "type": "object", "properties": properties, "required": names }))
            }
        }
    }

    /// In words, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Any => "anything".into(),
            Self::Null => "null".into(),
            Self::Bool => "true or false".into(),
            Self::Number => "a number".into(),
            Self::Text => "text".into(),
            Self::List => "a list".into(),
            Self::Maybe(inner) => format!("null or {}", inner.describe()),
            Self::OneOf { names } => format!("one of {}", names.join(", ")),
            Self::Object { required } if required.is_empty() => "an object".into(),
            Self::Object { required } => {
                let names: Vec<_> = required.keys().map(String::as_str).collect();
                format!("an object with {}", names.join(", "))
            }
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &str) -> Payload {
        Payload::from_text(text.to_owned()).expect("it is JSON")
    }

    fn object(fields: &[(&str, Shape)]) -> Shape {
        let required = fields.iter().map(|(name, shape)| ((*name).to_owned(), shape.clone())).collect();
        Shape::Object { required }
    }

    #[test]
    fn a_payload_fits_its_own_shape_and_no_other() {
        let shapes = [
            (Shape::Null, "null"),
            (Shape::Bool, "true"),
            (Shape::Number, "1.5"),
            (Shape::Text, "\"x\""),
            (Shape::List, "[1]"),
            (object(&[]), "{}"),
        ];
        for (shape, _) in &shapes {
            for (other, text) in &shapes {
                assert_eq!(shape.check(&payload(text)).is_ok(), shape == other, "{shape:?} {text}");
                let maybe = Shape::Maybe(Box::new(shape.clone()));
                assert_eq!(maybe.check(&payload(text)).is_ok(), shape == other || *text == "null");
            }
            assert_eq!(Shape::Any.check(&payload("null")), Ok(()));
        }
    }

    #[test]
    fn a_slip_is_named() {
        let order = object(&[("id", Shape::Text), ("by", object(&[("name", Shape::Text)]))]);
        for (text, what) in [
            ("7", "the payload is a number instead of an object with by, id"),
            (r#"{"by": {"name": "a"}}"#, "the payload has no field 'id'"),
            (
                r#"{"id": "1", "by": {"name": null}}"#,
                "the payload has a field 'by' that has a field 'name' that is null instead of text",
            ),
        ] {
            assert_eq!(order.check(&payload(text)), Err(what.to_owned()));
        }
        assert_eq!(order.check(&payload(r#"{"id": "1", "by": {"name": "a"}, "more": 1}"#)), Ok(()));
        let choice = Shape::OneOf { names: vec!["approve".into(), "reject".into()] };
        assert_eq!(choice.check(&payload("\"approve\"")), Ok(()));
        assert_eq!(choice.check(&payload(r#"{"reject": "too dear"}"#)), Ok(()));
        let slip = choice.check(&payload("\"aprove\""));
        assert_eq!(slip, Err("the payload is text instead of one of approve, reject".to_owned()));
    }

    #[test]
    fn a_shape_that_is_too_large_takes_anything() {
        let mut deep = Shape::Bool;
        for _ in 0..100 {
            deep = Shape::Maybe(Box::new(deep));
        }
        assert_eq!(deep.bounded(), Shape::Any);
        let long = "x".repeat(Shape::WEIGHT_MAX);
        assert_eq!(Shape::OneOf { names: vec![long] }.bounded(), Shape::Any);
        assert_eq!(Shape::Maybe(Box::new(Shape::Bool)).bounded(), Shape::Maybe(Box::new(Shape::Bool)));
    }
}
