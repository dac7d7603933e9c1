//! What an expression means.

use std::{borrow::Cow, cell::Cell, cmp::Ordering};

use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value as Json};
use stepwell_protocol::Payload;

use super::{EFFORT_MAX, Expression, Function, Link, Literal, Node, Path, Relation, SHARED_EFFORT_MAX};

/// Why an expression has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// A field or place is not there.
    #[error("a field that the expression goes by is missing")]
    Missing,
    /// Values of these kinds cannot be compared, or are no text, or no condition.
    #[error("the expression goes by a value of another type")]
    Mismatch,
    /// It would take too long.
    #[error("the expression would compare too much")]
    TooMuch,
    /// What it goes by is too large to be looked into.
    #[error("the data is larger than what conditions read")]
    TooLarge,
}

/// What is left to several expressions together.
#[derive(Debug)]
pub struct Effort(Cell<u32>);

impl Default for Effort {
    fn default() -> Self {
        Self(Cell::new(SHARED_EFFORT_MAX))
    }
}

#[cfg(test)]
impl Effort {
    /// What is gone of it.
    pub(super) fn spent(&self) -> u32 {
        SHARED_EFFORT_MAX - self.0.get()
    }
}

/// What a part of an expression is.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    /// A list that stands in the text.
    List(Vec<Value<'a>>),
    /// A list or an object of the data.
    Json(&'a Json),
}

/// What an expression is. What it has of its names' values is borrowed from there.
#[derive(Clone, Debug)]
pub struct Found<'a>(Value<'a>);

impl<'a> Found<'a> {
    /// A text as it is, or a number as a text. Nothing else is one.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        match &self.0 {
            Value::Text(text) => Some(Cow::Borrowed(text)),
            Value::Int(int) => Some(int.to_string().into()),
            Value::Float(float) => Number::from_f64(*float).map(|number| number.to_string().into()),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Json(_) => None,
        }
    }

    /// As JSON, unless that has more bytes than this. A list may hold the same large value hundreds of times: what is
    /// far too large is not written first.
    pub fn encode(&self, bytes_max: usize) -> Option<Payload> {
        let left = left_by(&self.0, bytes_max);
        left.and_then(|_| Payload::encode(&self.0).ok()).filter(|payload| payload.size() <= bytes_max)
    }
}

/// How many of these bytes a value leaves at the most when it is written as JSON. Escapes and most digits of floats are not
/// counted.
fn left_by(value: &Value<'_>, bytes: usize) -> Option<usize> {
    let own = match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Int(int) => int.unsigned_abs().checked_ilog10().map_or(1, |digits| digits as usize + 1),
        Value::Float(_) => 3,
        Value::Text(text) => text.len() + 2,
        // Each of the items or fields brings a comma, but for one.
        Value::List(_) | Value::Json(_) => 1,
    };
    let left = bytes.checked_sub(own)?;
    if let Value::Json(Json::Object(fields)) = value {
        let with_name = |left: usize, name: &str| left.checked_sub(name.len() + 4);
        return fields
            .iter()
            .try_fold(left, |left, (name, value)| left_by(&value.into(), with_name(left, name)?));
    }
    let items = items(value);
    (0..items.len()).try_fold(left, |left, at| left_by(&*items.at(at)?, left.checked_sub(1)?))
}

impl Serialize for Value<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(bool) => bool.serialize(serializer),
            Self::Int(int) => int.serialize(serializer),
            Self::Float(float) => float.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::List(items) => items.serialize(serializer),
            Self::Json(json) => json.serialize(serializer),
        }
    }
}

impl<'a> From<&'a Json> for Value<'a> {
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(bool) => Self::Bool(*bool),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(int), _) => Self::Int(int),
                (None, float) => Self::Float(float.unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(text),
            Json::Array(_) | Json::Object(_) => Self::Json(json),
        }
    }
}

impl<'a> From<&'a Literal> for Value<'a> {
    fn from(literal: &'a Literal) -> Self {
        match literal {
            Literal::Null => Self::Null,
            Literal::Bool(bool) => Self::Bool(*bool),
            Literal::Int(int) => Self::Int(*int),
            Literal::Float(float) => Self::Float(*float),
            Literal::Text(text) => Self::Text(text),
        }
    }
}

impl Expression {
    /// Whether the expression is true of these names' values. One that has no value, or one that is no bool, has failed.
    pub fn holds(&self, names: &[(&str, &Json)]) -> Result<bool, Failed> {
        self.holds_within(&Effort::default(), names)
    }

    /// What the expression is, by these names' values. Nothing is copied.
    pub fn find<'a>(&'a self, names: &[(&str, &'a Json)]) -> Result<Found<'a>, Failed> {
        let evaluation = Evaluation { names, effort: Cell::new(EFFORT_MAX) };
        evaluation.value(&self.root).map(Found)
    }

    /// Whether it is true, with what several expressions may spend together.
    pub fn holds_within(&self, shared: &Effort, names: &[(&str, &Json)]) -> Result<bool, Failed> {
        let most = shared.0.get().min(EFFORT_MAX);
        let evaluation = Evaluation { names, effort: Cell::new(most) };
        let holds = evaluation.condition(&self.root);
        // Whatever it is, it has taken a look.
        let spent = (most - evaluation.effort.get()).saturating_add(1);
        shared.0.set(shared.0.get().saturating_sub(spent));
        holds
    }
}

impl Path {
    /// What is at the end of it, if anything is.
    pub fn find<'a>(&self, names: &[(&str, &'a Json)]) -> Option<&'a Json> {
        let root = names.iter().find(|(name, _)| *name == self.root).map(|(_, json)| *json)?;
        self.links.iter().try_fold(root, follow)
    }
}

fn follow<'a>(json: &'a Json, link: &Link) -> Option<&'a Json> {
    match (json, link) {
        (Json::Object(fields), Link::Field(name)) => fields.get(name),
        (Json::Array(items), Link::At(at)) => items.get(usize::try_from(*at).ok()?),
        _ => None,
    }
}

struct Evaluation<'a, 'b> {
    names: &'b [(&'b str, &'a Json)],
    effort: Cell<u32>,
}

impl<'a> Evaluation<'a, '_> {
    fn spend(&self, effort: usize) -> Result<(), Failed> {
        let left = self.effort.get().checked_sub(u32::try_from(effort).unwrap_or(u32::MAX));
        self.effort.set(left.unwrap_or_default());
        left.map(|_| ()).ok_or(Failed::TooMuch)
    }

    /// Before a text is read, or a field looked up by it.
    fn spend_on_text(&self, text: &str) -> Result<(), Failed> {
        self.spend(1 + text.len() / 64)
    }

    fn condition(&self, node: &'a Node) -> Result<bool, Failed> {
        if let Value::Bool(bool) = self.value(node)? { Ok(bool) } else { Err(Failed::Mismatch) }
    }

    fn value(&self, node: &'a Node) -> Result<Value<'a>, Failed> {
        Ok(match node {
            Node::Literal(literal) => literal.into(),
            Node::Path(path) => path.find(self.names).ok_or(Failed::Missing)?.into(),
            Node::List(nodes) => {
                Value::List(nodes.iter().map(|node| self.value(node)).collect::<Result<_, _>>()?)
            }
            Node::Has(path) => Value::Bool(self.has(path)?),
            Node::Not(node) => Value::Bool(!self.condition(node)?),
            Node::And(nodes) => Value::Bool(self.decided_by(nodes, false)?),
            Node::Or(nodes) => Value::Bool(self.decided_by(nodes, true)?),
            Node::Relation(relation, sides) => {
                let (left, right) = (self.value(&sides.0)?, self.value(&sides.1)?);
                Value::Bool(self.relation(*relation, &left, &right)?)
            }
            Node::Choice(parts) => {
                let (condition, then, otherwise) = &**parts;
                return self.value(if self.condition(condition)? { then } else { otherwise });
            }
            Node::Index(sides) => return self.index(&self.value(&sides.0)?, &self.value(&sides.1)?),
            Node::Call(function, arguments) => return self.call(*function, arguments),
        })
    }

    /// One that is `decisive` decides, wherever it stands; even if another one has failed.
    fn decided_by(&self, nodes: &'a [Node], decisive: bool) -> Result<bool, Failed> {
        let mut failed = None;
        for node in nodes {
            match self.condition(node) {
                Ok(bool) if bool == decisive => return Ok(decisive),
                Ok(_) => {}
                Err(Failed::TooMuch) => return Err(Failed::TooMuch),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(!decisive), Err)
    }

    fn has(&self, path: &Path) -> Result<bool, Failed> {
        let Some((last, before)) = path.links.split_last() else { return Err(Failed::Mismatch) };
        let root = self.names.iter().find(|(name, _)| *name == path.root).map(|(_, json)| *json);
        let around = before.iter().try_fold(root.ok_or(Failed::Missing)?, follow).ok_or(Failed::Missing)?;
        if around.is_object() { Ok(follow(around, last).is_some()) } else { Err(Failed::Mismatch) }
    }

    fn relation(&self, relation: Relation, left: &Value<'a>, right: &Value<'a>) -> Result<bool, Failed> {
        Ok(match relation {
            Relation::Equal => self.equal(left, right)?,
            Relation::NotEqual => !self.equal(left, right)?,
            Relation::Less => self.order(left, right)? == Some(Ordering::Less),
            Relation::LessOrEqual => self.order(left, right)?.is_some_and(Ordering::is_le),
            Relation::Greater => self.order(left, right)? == Some(Ordering::Greater),
            Relation::GreaterOrEqual => self.order(left, right)?.is_some_and(Ordering::is_ge),
            Relation::In => return self.is_in(left, right),
        })
    }

    fn is_in(&self, item: &Value<'a>, list: &Value<'a>) -> Result<bool, Failed> {
        match (list, item) {
            (Value::List(_) | Value::Json(Json::Array(_)), _) => {
                let items = items(list);
                for at in 0..items.len() {
                    if let Some(other) = items.at(at)
                        && self.equal(item, &other)?
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (Value::Json(Json::Object(fields)), Value::Text(name)) => {
                self.spend_on_text(name)?;
                Ok(fields.contains_key(*name))
            }
            (Value::Json(Json::Object(_)), _) => Ok(false),
            _ => Err(Failed::Mismatch),
        }
    }

    /// Values of different kinds are different; numbers are one kind.
    fn equal(&self, left: &Value<'a>, right: &Value<'a>) -> Result<bool, Failed> {
        self.spend(1)?;
        Ok(match (left, right) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(left), Value::Bool(right)) => left == right,
            (Value::Text(left), Value::Text(right)) => {
                self.spend(left.len().min(right.len()) / 64)?;
                left == right
            }
            (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
                compare_numbers(left, right) == Some(Ordering::Equal)
            }
            (Value::Json(Json::Object(left)), Value::Json(Json::Object(right))) => {
                left.len() == right.len() && self.equal_fields(left, right)?
            }
            (Value::List(_) | Value::Json(Json::Array(_)), Value::List(_) | Value::Json(Json::Array(_))) => {
                let (left, right) = (items(left), items(right));
                left.len() == right.len() && self.equal_items(&left, &right)?
            }
            _ => false,
        })
    }

    /// As many fields on both sides. Ends at the first difference: what comes after it would be looked up for nothing.
    fn equal_fields(
        &self,
        left: &'a Map<String, Json>,
        right: &'a Map<String, Json>,
    ) -> Result<bool, Failed> {
        for (name, value) in left {
            self.spend_on_text(name)?;
            let Some(other) = right.get(name) else { return Ok(false) };
            if !self.equal(&value.into(), &other.into())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// As many items on both sides.
    fn equal_items(&self, left: &Items<'a, '_>, right: &Items<'a, '_>) -> Result<bool, Failed> {
        for at in 0..left.len() {
            let (Some(left), Some(right)) = (left.at(at), right.at(at)) else { return Ok(false) };
            if !self.equal(&left, &right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nothing for numbers that have no order, which JSON does not have.
    fn order(&self, left: &Value<'a>, right: &Value<'a>) -> Result<Option<Ordering>, Failed> {
        self.spend(1)?;
        match (left, right) {
            (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(right))),
            (Value::Text(left), Value::Text(right)) => {
                self.spend(left.len().min(right.len()) / 64)?;
                Ok(Some(left.cmp(right)))
            }
            (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
                Ok(compare_numbers(left, right))
            }
            _ => Err(Failed::Mismatch),
        }
    }

    fn index(&self, value: &Value<'a>, place: &Value<'a>) -> Result<Value<'a>, Failed> {
        match (value, place) {
            (Value::Json(Json::Object(fields)), Value::Text(name)) => {
                self.spend_on_text(name)?;
                fields.get(*name).map(Value::from).ok_or(Failed::Missing)
            }
            (Value::List(_) | Value::Json(Json::Array(_)), Value::Int(at)) => {
                let item = usize::try_from(*at).ok().and_then(|at| items(value).at(at));
                item.map(Cow::into_owned).ok_or(Failed::Missing)
            }
            _ => Err(Failed::Mismatch),
        }
    }

    fn call(&self, function: Function, arguments: &'a [Node]) -> Result<Value<'a>, Failed> {
        let subject = self.value(arguments.first().ok_or(Failed::Mismatch)?)?;
        if function == Function::Size {
            if let Value::Text(text) = &subject {
                self.spend_on_text(text)?;
            }
            return size(&subject).map(Value::Int).ok_or(Failed::Mismatch);
        }
        let part = self.value(arguments.get(1).ok_or(Failed::Mismatch)?)?;
        let (Value::Text(text), Value::Text(part)) = (&subject, &part) else {
            return Err(Failed::Mismatch);
        };
        self.spend_on_text(text)?;
        Ok(Value::Bool(match function {
            Function::StartsWith => text.starts_with(part),
            Function::EndsWith => text.ends_with(part),
            Function::Contains => text.contains(part),
            Function::Size => return Err(Failed::Mismatch),
        }))
    }
}

enum Items<'a, 'b> {
    Own(&'b [Value<'a>]),
    Json(&'a [Json]),
}

impl<'a, 'b> Items<'a, 'b> {
    fn len(&self) -> usize {
        match self {
            Self::Own(items) => items.len(),
            Self::Json(items) => items.len(),
        }
    }

    /// A list in a list of the text is not copied: it may be compared with thousands of others.
    fn at(&self, at: usize) -> Option<Cow<'b, Value<'a>>> {
        match self {
            Self::Own(items) => items.get(at).map(Cow::Borrowed),
            Self::Json(items) => items.get(at).map(|json| Cow::Owned(json.into())),
        }
    }
}

/// The items of a list; nothing of anything else.
fn items<'a, 'b>(value: &'b Value<'a>) -> Items<'a, 'b> {
    if let Value::List(items) = value {
        Items::Own(items)
    } else if let Value::Json(Json::Array(items)) = value {
        Items::Json(items)
    } else {
        Items::Own(&[])
    }
}

/// Characters of a text, items of a list, fields of an object.
fn size(value: &Value<'_>) -> Option<i64> {
    let size = match value {
        Value::Text(text) => text.chars().count(),
        Value::List(items) => items.len(),
        Value::Json(Json::Array(items)) => items.len(),
        Value::Json(Json::Object(fields)) => fields.len(),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Json(_) => return None,
    };
    i64::try_from(size).ok()
}

/// As numbers, not as bits: 2^53 + 1 is not 2^53, though a float cannot say it.
fn compare_numbers(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
        (Value::Int(left), Value::Float(right)) => int_with_float(*left, *right),
        (Value::Float(left), Value::Int(right)) => int_with_float(*right, *left).map(Ordering::reverse),
        _ => None,
    }
}

fn int_with_float(int: i64, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float >= 9_223_372_036_854_775_808.0 {
        return Some(Ordering::Less);
    }
    if float < -9_223_372_036_854_775_808.0 {
        return Some(Ordering::Greater);
    }
    #[expect(clippy::cast_possible_truncation, reason = "its whole part is within the bounds of an i64")]
    let whole = float.trunc() as i64;
    let rest = 0.0_f64.partial_cmp(&float.fract())?;
    Some(int.cmp(&whole).then(rest))
}
