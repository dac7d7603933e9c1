//! Which equalities an expression cannot hold without, so that whatever goes by it can be found by an index.

use serde_json::Value as Json;

use super::{Expression, Link, Literal, Node, Path, Relation};
use crate::ordered::OrdSet;

/// `path == side` is true wherever the expression is.
#[derive(Clone, Debug, PartialEq)]
pub struct Equality {
    /// What is compared.
    pub path: Path,
    /// What it is equal to.
    pub side: Side,
}

/// What a path is equal to.
#[derive(Clone, Debug, PartialEq)]
pub enum Side {
    /// A value that stands in the text.
    Literal(Literal),
    /// What is at the end of another path.
    Path(Path),
}

impl Expression {
    /// The equalities without which it is never true. Two paths that are equal are there in both directions.
    pub fn equalities(&self) -> Vec<Equality> {
        let mut found = Vec::new();
        lift(&self.root, &mut found);
        found
    }
}

impl Path {
    /// Reads a path of an event as it is written.
    pub fn read(text: &str) -> Option<Self> {
        let root = Expression::parse(text, &["event"]).ok()?.root;
        if let Node::Path(path) = root { Some(path) } else { None }
    }
}

impl Expression {
    /// The fields of a name's value that it goes by; nothing if it goes by all of it.
    pub fn fields_of(&self, root: &str) -> Option<OrdSet<String>> {
        let mut fields = OrdSet::new();
        gather(&self.root, root, &mut fields).then_some(fields)
    }
}

fn gather(node: &Node, root: &str, fields: &mut OrdSet<String>) -> bool {
    let mut all = |nodes: &[&Node]| nodes.iter().all(|node| gather(node, root, fields));
    match node {
        Node::Literal(_) => true,
        Node::Path(path) | Node::Has(path) => match path.links.first() {
            _ if path.root != root => true,
            Some(Link::Field(name)) => {
                fields.insert(name.clone());
                true
            }
            Some(Link::At(_)) | None => false,
        },
        Node::List(nodes) | Node::And(nodes) | Node::Or(nodes) | Node::Call(_, nodes) => {
            nodes.iter().all(|node| gather(node, root, fields))
        }
        Node::Not(node) => all(&[node]),
        Node::Relation(_, sides) | Node::Index(sides) => all(&[&sides.0, &sides.1]),
        Node::Choice(parts) => all(&[&parts.0, &parts.1, &parts.2]),
    }
}

fn lift(node: &Node, found: &mut Vec<Equality>) {
    if let Node::And(nodes) = node {
        for node in nodes {
            lift(node, found);
        }
    } else if let Node::Relation(Relation::Equal, sides) = node {
        let (left, right) = &**sides;
        for (one, other) in [(left, right), (right, left)] {
            if let Node::Path(path) = one
                && let Some(side) = side(other)
            {
                found.push(Equality { path: path.clone(), side });
            }
        }
    }
}

fn side(node: &Node) -> Option<Side> {
    if let Node::Literal(literal) = node {
        Some(Side::Literal(literal.clone()))
    } else if let Node::Path(path) = node {
        Some(Side::Path(path.clone()))
    } else {
        None
    }
}

impl From<&Literal> for Json {
    fn from(literal: &Literal) -> Self {
        match literal {
            Literal::Null => Self::Null,
            Literal::Bool(bool) => Self::from(*bool),
            Literal::Int(int) => Self::from(*int),
            Literal::Float(float) => Self::from(*float),
            Literal::Text(text) => Self::from(text.as_str()),
        }
    }
}

/// The same text for values that are equal, and another one for all others. Nothing for lists and objects, which are not
/// indexed.
pub fn index_key(value: &Json) -> Option<String> {
    Some(match value {
        Json::Null => "null".into(),
        Json::Bool(bool) => bool.to_string(),
        Json::Number(number) => match (number.as_i64(), number.as_f64()?) {
            (Some(int), _) => int.to_string(),
            // As an integer has it, if it is one.
            #[expect(clippy::cast_possible_truncation, reason = "it is within the bounds of an i64")]
            (None, float)
                if float.fract() == 0.0
                    && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float) =>
            {
                (float as i64).to_string()
            }
            (None, float) => format!("{float:e}"),
        },
        Json::String(text) => format!("\"{text}"),
        Json::Array(_) | Json::Object(_) => return None,
    })
}
