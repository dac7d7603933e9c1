//! Expressions: conditions over JSON, such as `event.data.amount > 100 && event.data.country in ["DE", "AT"]`.
//!
//! Owns: a part of CEL, as `docs/expressions.md` says it: how it is read, what it means, and which equalities an expression
//! cannot hold without. Does not own: what its names stand for.
//!
//! Invariant: neither reading nor evaluating recurses deeper than [`NESTING_MAX`] and the nesting of JSON allow, and
//! neither takes longer than [`LENGTH_MAX`] and [`EFFORT_MAX`] allow.

mod equalities;
mod evaluate;
mod parse;
#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
mod token;

pub use equalities::{Equality, Side, index_key};
pub use evaluate::{Effort, Failed, Found};

/// The most bytes of an expression.
pub const LENGTH_MAX: usize = 1_024;

/// How deep parentheses, lists, calls and conditions may be nested.
pub const NESTING_MAX: usize = 16;

/// How many values an evaluation compares, and how many fields it looks up by names that come from data, at the most;
/// where 64 bytes of a text or a name count as one more.
pub const EFFORT_MAX: u32 = 1 << 16;

/// The same for all evaluations over one event: as many as four that compare the most, or thousands that compare little.
pub const SHARED_EFFORT_MAX: u32 = 1 << 18;

/// An expression that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    root: Node,
}

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}, at character {at}")]
pub struct BadExpression {
    /// What is wrong.
    pub what: String,
    /// Where, counted from 1.
    pub at: usize,
}

/// A name, and the way from there: `event.data.items[0]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// The name.
    pub root: String,
    /// The way.
    pub links: Vec<Link>,
}

/// One part of a way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// A field of an object.
    Field(String),
    /// A place in a list.
    At(i64),
}

/// A value that stands in the text.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Literal(Literal),
    Path(Path),
    List(Vec<Node>),
    /// `has(path)`: the last link is there.
    Has(Path),
    Not(Box<Node>),
    /// Two or more.
    And(Vec<Node>),
    /// Two or more.
    Or(Vec<Node>),
    Relation(Relation, Box<(Node, Node)>),
    /// Condition, then, else.
    Choice(Box<(Node, Node, Node)>),
    /// Something that is no path, and a field or place of it; or a place that is no literal.
    Index(Box<(Node, Node)>),
    Call(Function, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    StartsWith,
    EndsWith,
    Contains,
    Size,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.root)?;
        for link in &self.links {
            match link {
                Link::Field(name) if token::is_name(name) => write!(f, ".{name}")?,
                // As JSON writes it, which is one of the ways in which it is read.
                Link::Field(name) => write!(f, "[{}]", serde_json::Value::from(name.as_str()))?,
                Link::At(at) => write!(f, "[{at}]")?,
            }
        }
        Ok(())
    }
}
