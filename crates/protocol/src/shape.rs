//! What JSON a wait takes: enough to refuse a slip. It is no schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::Payload;

mod fit;

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

    /// Says what is wrong with a payload, if it does not fit. Reads its text from the beginning to the end and keeps
    /// nothing of it: a payload may be large, and its tree would be many times as large.
    pub fn check(&self, payload: &Payload) -> Result<(), String> {
        if self.is_any() {
            return Ok(());
        }
        fit::check(self, payload.text()).map_err(|what| format!("the payload {what}"))
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
                let mut known = Map::new();
                known.extend(names.iter().map(|name| (name.clone(), json!({}))));
                let variant = json!({
                    "type": "object", "properties": known, "additionalProperties": false,
                    "minProperties": 1, "maxProperties": 1
                });
                Some(json!({ "anyOf": [{ "enum": names }, variant] }))
            }
            Self::Object { required } => {
                let field = |(name, shape): (&String, &Self)| {
                    (name.clone(), shape.schema().unwrap_or_else(|| json!({})))
                };
                let mut properties = Map::new();
                properties.extend(required.iter().map(field));
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
    fn a_field_that_is_there_twice_is_refused_wherever_fields_are_looked_at() {
        let decision = object(&[("decision", Shape::Text), ("by", object(&[("name", Shape::Text)]))]);
        for (text, fits) in [
            (r#"{"decision":"accept","by":{"name":"a"},"comment":"x"}"#, true),
            (r#"{"decision":"accept","decision":"reject","by":{"name":"a"}}"#, false),
            (r#"{"decision":"accept","d\u0065cision":"reject","by":{"name":"a"}}"#, false),
            (r#"{"decision":"accept","by":{"name":"a"},"comment":"x","comment":"y"}"#, false),
            (r#"{"decision":"accept","by":{"name":"a","name":"b"}}"#, false),
            // Nobody looks into what nothing is said of.
            (r#"{"decision":"accept","by":{"name":"a"},"more":{"x":1,"x":2}}"#, true),
        ] {
            let checked = decision.check(&payload(text));
            assert_eq!(checked.is_ok(), fits, "{text}: {checked:?}");
            assert!(fits || checked.is_err_and(|what| what.contains("twice")), "{text}");
        }
        let choice = Shape::OneOf { names: vec!["approve".into(), "reject".into()] };
        for text in [r#"{"approve":1,"approve":2}"#, r#"{"approve":1,"reject":2}"#, "{}", r#"{"other":1}"#] {
            assert!(choice.check(&payload(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_large_or_deep_is_read_to_its_end() {
        let large = format!("[{}]", vec![r#"{"":0}"#; 200_000].join(","));
        assert_eq!(Shape::List.check(&payload(&large)), Ok(()));
        let slip = object(&[]).check(&payload(&large));
        assert_eq!(slip, Err("the payload is a list instead of an object".to_owned()));
        let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        let slip = Shape::List.check(&payload(&deep));
        assert!(slip.as_ref().is_err_and(|what| what.contains("cannot be read")), "{slip:?}");
        assert!(Shape::Text.check(&payload(&deep)).is_err());
        let last = format!(r#"{{"more":{large},"id":7}}"#);
        let slip = object(&[("id", Shape::Text)]).check(&payload(&last));
        assert_eq!(slip, Err("the payload has a field 'id' that is a number instead of text".to_owned()));
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
