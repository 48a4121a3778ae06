//! A small document as a tree, within limits.

use super::XmlError;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// Bytes of a document at most.
pub const BYTES_MAX: usize = 4 << 20;
const DEPTH_MAX: usize = 16;
const ELEMENTS_MAX: usize = 100_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) attributes: Vec<(String, String)>,
    /// Without the blanks around it.
    pub(super) text: String,
    pub(super) children: Vec<Element>,
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn fail<T>(problem: impl std::fmt::Display) -> Result<T, XmlError> {
    Err(XmlError(problem.to_string()))
}

/// The text of a file: UTF-8, or UTF-16 with a byte order mark, as PowerShell writes it.
pub(super) fn decode(bytes: &[u8]) -> Result<String, XmlError> {
    if bytes.len() > BYTES_MAX {
        return fail(format!("it is longer than {BYTES_MAX} bytes"));
    }
    let wide = |unit: fn([u8; 2]) -> u16, bytes: &[u8]| {
        let (units, rest) = bytes.as_chunks::<2>();
        let units: Vec<u16> = units.iter().map(|pair| unit(*pair)).collect();
        String::from_utf16(&units).ok().filter(|_| rest.is_empty())
    };
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => wide(u16::from_le_bytes, rest),
        [0xFE, 0xFF, rest @ ..] => wide(u16::from_be_bytes, rest),
        [0xEF, 0xBB, 0xBF, rest @ ..] | rest => std::str::from_utf8(rest).ok().map(str::to_owned),
    };
    text.ok_or_else(|| XmlError("it is neither UTF-8 nor UTF-16".into()))
}

/// Reads a whole document.
pub(super) fn parse(text: &str) -> Result<Element, XmlError> {
    parse_within(text, ELEMENTS_MAX)
}

/// Reads a whole document of at most this many elements.
pub(super) fn parse_within(text: &str, elements_max: usize) -> Result<Element, XmlError> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut count = 0;
    loop {
        let event = match reader.read_event() {
            Ok(event) => event,
            Err(error) => return fail(format!("at byte {}: {error}", reader.error_position())),
        };
        match event {
            Event::Start(start) => {
                count += 1;
                if open.len() >= DEPTH_MAX || count > elements_max {
                    return fail("it has too many elements, or too deep ones");
                }
                if root.is_some() {
                    return fail("it has more than one root element");
                }
                open.push(element(&start)?);
            }
            Event::Empty(_) => return fail("an element without an end"),
            Event::End(_) => {
                let Some(mut ended) = open.pop() else { return fail("an end without an element") };
                ended.text = ended.text.trim().to_owned();
                match open.last_mut() {
                    Some(parent) => parent.children.push(ended),
                    None => root = Some(ended),
                }
            }
            Event::Text(text) => add(&mut open, &text.xml10_content())?,
            Event::CData(text) => add(&mut open, &text.xml10_content())?,
            Event::GeneralRef(reference) => {
                let name: &str = &reference;
                let character = match name {
                    "lt" => '<',
                    "gt" => '>',
                    "amp" => '&',
                    "apos" => '\'',
                    "quot" => '"',
                    _ => match reference.resolve_char_ref() {
                        Ok(Some(character)) => character,
                        _ => return fail(format!("it has the entity '{name}'")),
                    },
                };
                add(&mut open, character.encode_utf8(&mut [0; 4]))?;
            }
            Event::DocType(_) => return fail("it has a document type"),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => break,
        }
    }
    match root {
        Some(root) if open.is_empty() => Ok(root),
        _ => fail("it ends too early"),
    }
}

fn add(open: &mut [Element], text: &str) -> Result<(), XmlError> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return fail("it has text outside of its root element"),
    }
    Ok(())
}

fn element(start: &BytesStart<'_>) -> Result<Element, XmlError> {
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| XmlError(error.to_string()))?;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|error| XmlError(error.to_string()))?;
        attributes.push((attribute.key.as_ref().to_owned(), value.into_owned()));
    }
    Ok(Element { name: start.name().as_ref().to_owned(), attributes, ..Element::default() })
}
