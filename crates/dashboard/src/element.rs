//! Elements, made one by one. Texts become text nodes, never markup.
//!
//! The pages that are data are drawn with these: one small drawer is a fraction of the code that views of all their parts
//! would be.

use leptos::prelude::document;
use wasm_bindgen::JsCast as _;
use web_sys::{Element, HtmlElement};

/// An element that is being made.
pub struct Made(pub Element);

/// An element with a class, or with none.
pub fn el(tag: &str, class: &str) -> Made {
    of("http://www.w3.org/1999/xhtml", tag, class)
}

/// An element of a drawing.
pub fn svg(tag: &str) -> Made {
    of("http://www.w3.org/2000/svg", tag, "")
}

fn of(namespace: &str, tag: &str, class: &str) -> Made {
    let element = document().create_element_ns(Some(namespace), tag).expect("tags of ours are names");
    let made = Made(element);
    if class.is_empty() { made } else { made.attr("class", class) }
}

impl Made {
    /// The same with an attribute.
    pub fn attr(self, name: &str, value: &str) -> Self {
        let _ = self.0.set_attribute(name, value);
        self
    }

    /// The same with an attribute that has no value, if it is so.
    pub fn flag(self, name: &str, is_so: bool) -> Self {
        if is_so { self.attr(name, "") } else { self }
    }

    /// The same with a text.
    pub fn text(self, text: &str) -> Self {
        let _ = self.0.append_child(&document().create_text_node(text));
        self
    }

    /// The same with another element in it.
    pub fn with(self, child: Self) -> Self {
        let _ = self.0.append_child(&child.0);
        self
    }

    /// The same with another element in it, if there is one.
    pub fn with_any(self, child: Option<Self>) -> Self {
        match child {
            Some(child) => self.with(child),
            None => self,
        }
    }

    /// The same with these in it.
    pub fn with_all(self, children: Vec<Self>) -> Self {
        children.into_iter().fold(self, Self::with)
    }
}

/// A button that does this.
pub fn button(class: &str, label: &str, does: &str) -> Made {
    el("button", class).attr("type", "button").attr("data-do", does).text(label)
}

/// The element around a target of an event that matches a selector.
pub fn around(event: &web_sys::Event, selector: &str) -> Option<HtmlElement> {
    let target = event.target()?.dyn_into::<Element>().ok()?;
    target.closest(selector).ok()??.dyn_into().ok()
}

/// Takes away all that is in an element.
pub fn clear(element: &Element) {
    element.set_text_content(None);
}
