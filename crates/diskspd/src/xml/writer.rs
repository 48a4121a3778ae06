//! Elements as text: two blanks for each level, everything escaped.

use std::fmt::{Display, Write};

pub(super) struct Writer {
    out: String,
    depth: usize,
}

impl Writer {
    pub(super) fn new(depth: usize) -> Self {
        Self { out: String::new(), depth }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    fn indent(&mut self) {
        for _ in 0..self.depth {
            self.out.push_str("  ");
        }
    }

    /// An element that holds a value.
    pub(super) fn value(&mut self, name: &str, value: impl Display) {
        self.value_with(name, &[], value);
    }

    pub(super) fn value_with(&mut self, name: &str, attributes: &[(&str, String)], value: impl Display) {
        self.indent();
        self.tag(name, attributes);
        let _ = writeln!(self.out, ">{}</{name}>", escaped(&value.to_string()));
    }

    /// An element without content.
    pub(super) fn empty(&mut self, name: &str, attributes: &[(&str, String)]) {
        self.indent();
        self.tag(name, attributes);
        self.out.push_str("/>\n");
    }

    /// An element that holds others.
    pub(super) fn inside(
        &mut self,
        name: &str,
        attributes: &[(&str, String)],
        content: impl FnOnce(&mut Self),
    ) {
        self.indent();
        self.tag(name, attributes);
        self.out.push_str(">\n");
        self.depth += 1;
        content(self);
        self.depth -= 1;
        self.indent();
        let _ = writeln!(self.out, "</{name}>");
    }

    /// Lines that are elements already, of this depth.
    pub(super) fn raw(&mut self, lines: &str) {
        self.out.push_str(lines);
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, String)]) {
        let _ = write!(self.out, "<{name}");
        for (key, value) in attributes {
            let _ = write!(self.out, " {key}=\"{}\"", escaped(value));
        }
    }
}

/// Carriage returns too: a reader would take them for ends of lines.
fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).replace('\r', "&#13;")
}
