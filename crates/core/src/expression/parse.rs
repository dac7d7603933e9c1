//! Reads an expression: recursive descent, one function for each level of precedence.

use super::{
    BadExpression, Expression, Function, LENGTH_MAX, Link, Literal, NESTING_MAX, Node, Path, Relation,
    token::{Token, Word, tokens},
};

/// How much of a name a message has.
const NAME_SHOWN_MAX: usize = 40;

impl Expression {
    /// Reads an expression that goes by these names.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self, BadExpression> {
        if text.len() > LENGTH_MAX {
            let what = format!("the expression has {} bytes, and {LENGTH_MAX} are the most", text.len());
            return Err(BadExpression { what, at: 1 });
        }
        let end = text.chars().count() + 1;
        let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, end, names };
        let root = parser.choice()?;
        match parser.peek() {
            None => Ok(Self { root }),
            Some(_) => Err(parser.bad("the expression should end here")),
        }
    }
}

struct Parser<'a> {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    /// Where the text ends.
    end: usize,
    names: &'a [&'a str],
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Word> {
        self.tokens.get(self.next).map(|token| &token.what)
    }

    fn bad(&self, what: impl Into<String>) -> BadExpression {
        let at = self.tokens.get(self.next).map_or(self.end, |token| token.at);
        BadExpression { what: what.into(), at }
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Word::Sign(found)) if *found == sign);
        self.next += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, sign: &str) -> Result<(), BadExpression> {
        if self.take(sign) { Ok(()) } else { Err(self.bad(format!("'{sign}' is missing"))) }
    }

    /// Whatever is read inside is one level deeper.
    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, BadExpression>,
    ) -> Result<T, BadExpression> {
        if self.depth >= NESTING_MAX {
            return Err(self.bad(format!("the expression is nested more than {NESTING_MAX} levels deep")));
        }
        self.depth += 1;
        let done = read(self);
        self.depth -= 1;
        done
    }

    fn choice(&mut self) -> Result<Node, BadExpression> {
        self.deeper(|parser| {
            let condition = parser.any()?;
            if !parser.take("?") {
                return Ok(condition);
            }
            let then = parser.any()?;
            parser.expect(":")?;
            let otherwise = parser.choice()?;
            Ok(Node::Choice(Box::new((condition, then, otherwise))))
        })
    }

    fn any(&mut self) -> Result<Node, BadExpression> {
        let first = self.all()?;
        let mut nodes = vec![first];
        while self.take("||") {
            nodes.push(self.all()?);
        }
        Ok(one_or(nodes, Node::Or))
    }

    fn all(&mut self) -> Result<Node, BadExpression> {
        let first = self.relation()?;
        let mut nodes = vec![first];
        while self.take("&&") {
            nodes.push(self.relation()?);
        }
        Ok(one_or(nodes, Node::And))
    }

    fn relation(&mut self) -> Result<Node, BadExpression> {
        let left = self.unary()?;
        let Some(relation) = self.take_relation() else { return Ok(left) };
        let right = self.unary()?;
        let next = self.next;
        if self.take_relation().is_some() {
            self.next = next;
            return Err(self.bad("comparisons have no order among each other: write parentheses"));
        }
        Ok(Node::Relation(relation, Box::new((left, right))))
    }

    fn take_relation(&mut self) -> Option<Relation> {
        let relation = match self.peek()? {
            Word::Sign("==") => Relation::Equal,
            Word::Sign("!=") => Relation::NotEqual,
            Word::Sign("<") => Relation::Less,
            Word::Sign("<=") => Relation::LessOrEqual,
            Word::Sign(">") => Relation::Greater,
            Word::Sign(">=") => Relation::GreaterOrEqual,
            Word::Name(name) if name == "in" => Relation::In,
            Word::Name(_) | Word::Text(_) | Word::Int(_) | Word::Float(_) | Word::Sign(_) => return None,
        };
        self.next += 1;
        Some(relation)
    }

    fn unary(&mut self) -> Result<Node, BadExpression> {
        if self.take("!") {
            return self.deeper(|parser| Ok(Node::Not(Box::new(parser.unary()?))));
        }
        if self.take("-") {
            return self.negative();
        }
        self.postfix()
    }

    fn negative(&mut self) -> Result<Node, BadExpression> {
        let literal = match self.peek() {
            Some(Word::Float(number)) => Literal::Float(-number),
            Some(Word::Int(number)) => {
                let number = 0_i64.checked_sub_unsigned(*number);
                Literal::Int(number.ok_or_else(|| self.bad("the number is too large"))?)
            }
            Some(Word::Name(_) | Word::Text(_) | Word::Sign(_)) | None => {
                return Err(self.bad("only a number can follow '-'"));
            }
        };
        self.next += 1;
        Ok(Node::Literal(literal))
    }

    fn postfix(&mut self) -> Result<Node, BadExpression> {
        let mut node = self.primary()?;
        let before = self.depth;
        let done = loop {
            let linked = if self.take(".") {
                self.field_or_method(node)
            } else if self.take("[") {
                self.place(node)
            } else {
                break Ok(node);
            };
            match linked {
                Ok(linked) => node = linked,
                Err(error) => break Err(error),
            }
        };
        self.depth = before;
        done
    }

    /// Around what was read there is one more level, until the whole of it is read.
    fn around(&mut self) -> Result<(), BadExpression> {
        self.deeper(|_| Ok(()))?;
        self.depth += 1;
        Ok(())
    }

    fn field_or_method(&mut self, node: Node) -> Result<Node, BadExpression> {
        let name = self.name("a field or a function has to follow '.'")?;
        if self.take("(") {
            self.around()?;
            let function = match name.as_str() {
                "startsWith" => Function::StartsWith,
                "endsWith" => Function::EndsWith,
                "contains" => Function::Contains,
                "size" => Function::Size,
                _ => return Err(self.unknown(&name)),
            };
            let mut arguments = vec![node];
            arguments.extend(self.nodes(")")?);
            return self.call(function, arguments);
        }
        self.link(node, Link::Field(name))
    }

    fn place(&mut self, node: Node) -> Result<Node, BadExpression> {
        let place = self.choice()?;
        self.expect("]")?;
        if let Node::Literal(Literal::Text(name)) = place {
            self.link(node, Link::Field(name))
        } else if let Node::Literal(Literal::Int(at)) = place {
            self.link(node, Link::At(at))
        } else {
            self.around()?;
            Ok(Node::Index(Box::new((node, place))))
        }
    }

    fn link(&mut self, node: Node, link: Link) -> Result<Node, BadExpression> {
        if let Node::Path(mut path) = node {
            path.links.push(link);
            return Ok(Node::Path(path));
        }
        self.around()?;
        let place = match link {
            Link::Field(name) => Literal::Text(name),
            Link::At(at) => Literal::Int(at),
        };
        Ok(Node::Index(Box::new((node, Node::Literal(place)))))
    }

    fn primary(&mut self) -> Result<Node, BadExpression> {
        if self.take("(") {
            let inner = self.choice()?;
            self.expect(")")?;
            // In parentheses, so that what follows is about all of it.
            return Ok(inner);
        }
        if self.take("[") {
            return Ok(Node::List(self.nodes("]")?));
        }
        let literal = match self.peek() {
            Some(Word::Text(text)) => Literal::Text(text.clone()),
            Some(Word::Float(number)) => Literal::Float(*number),
            Some(Word::Int(number)) => {
                let number = i64::try_from(*number);
                Literal::Int(number.map_err(|_| self.bad("the number is too large"))?)
            }
            Some(Word::Name(_)) => return self.named(),
            Some(Word::Sign(_)) | None => return Err(self.bad("a value is missing")),
        };
        self.next += 1;
        Ok(Node::Literal(literal))
    }

    fn named(&mut self) -> Result<Node, BadExpression> {
        let at = self.next;
        let name = self.name("a value is missing")?;
        let literal = match name.as_str() {
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            "null" => Some(Literal::Null),
            _ => None,
        };
        if let Some(literal) = literal {
            return Ok(Node::Literal(literal));
        }
        if self.take("(") {
            return match name.as_str() {
                "has" => self.has(),
                "size" => {
                    let arguments = self.nodes(")")?;
                    self.call(Function::Size, arguments)
                }
                _ => Err(self.unknown(&name)),
            };
        }
        if !self.names.contains(&name.as_str()) {
            self.next = at;
            let what = format!("'{}' is unknown; there is {}", shown(&name), self.names.join(" and "));
            return Err(self.bad(what));
        }
        Ok(Node::Path(Path { root: name, links: Vec::new() }))
    }

    fn has(&mut self) -> Result<Node, BadExpression> {
        let argument = self.choice()?;
        self.expect(")")?;
        if let Node::Path(path) = argument
            && matches!(path.links.last(), Some(Link::Field(_)))
        {
            return Ok(Node::Has(path));
        }
        Err(self.bad("has(…) is about a field, such as has(event.data.id)"))
    }

    fn call(&mut self, function: Function, arguments: Vec<Node>) -> Result<Node, BadExpression> {
        let wanted = if function == Function::Size { 1 } else { 2 };
        if arguments.len() != wanted {
            return Err(self.bad("the function has another number of arguments"));
        }
        Ok(Node::Call(function, arguments))
    }

    /// Values up to a closing sign.
    fn nodes(&mut self, end: &str) -> Result<Vec<Node>, BadExpression> {
        let mut nodes = Vec::new();
        if self.take(end) {
            return Ok(nodes);
        }
        loop {
            nodes.push(self.choice()?);
            if self.take(end) {
                return Ok(nodes);
            }
            self.expect(",")?;
        }
    }

    fn name(&mut self, or: &str) -> Result<String, BadExpression> {
        match self.peek() {
            Some(Word::Name(name)) if name != "in" => {
                let name = name.clone();
                self.next += 1;
                Ok(name)
            }
            _ => Err(self.bad(or)),
        }
    }

    fn unknown(&self, name: &str) -> BadExpression {
        let what = format!(
            "there is no function '{}'; there are has, size, startsWith, endsWith, contains",
            shown(name)
        );
        self.bad(what)
    }
}

/// As much of a name as fits into a message.
fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN_MAX).collect()
}

fn one_or(mut nodes: Vec<Node>, several: impl FnOnce(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        last => {
            nodes.extend(last);
            several(nodes)
        }
    }
}
