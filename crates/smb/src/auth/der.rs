//! The little of DER (X.690) that SPNEGO needs: bounded, definite lengths only, no recursion.

/// Why bytes are not the DER that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotDer;

/// Reads elements from the front of a slice.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next element.
    pub(super) fn element(&mut self) -> Result<Element<'a>, NotDer> {
        let [tag, first, after @ ..] = self.rest else { return Err(NotDer) };
        // Tags of more than one byte do not occur in SPNEGO.
        if tag & 0x1F == 0x1F {
            return Err(NotDer);
        }
        let (len, after) = match first {
            0..=0x7F => (usize::from(*first), after),
            0x81..=0x84 => {
                let (len, after) = after.split_at_checked(usize::from(first & 0x7F)).ok_or(NotDer)?;
                (len.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)), after)
            }
            _ => return Err(NotDer),
        };
        let (content, rest) = after.split_at_checked(len).ok_or(NotDer)?;
        self.rest = rest;
        Ok(Element { tag: *tag, content })
    }

    /// The content of the next element, which has `tag`.
    pub(super) fn expect(&mut self, tag: u8) -> Result<&'a [u8], NotDer> {
        let element = self.element()?;
        if element.tag == tag { Ok(element.content) } else { Err(NotDer) }
    }
}

pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
}

/// One element with the given content.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    out.push(tag);
    match content.len() {
        len @ 0..=0x7F => out.push(len as u8),
        len => {
            let bytes = (len as u32).to_be_bytes();
            let skip = bytes.iter().take_while(|&&byte| byte == 0).count();
            out.push(0x80 | (bytes.len() - skip) as u8);
            out.extend_from_slice(&bytes[skip..]);
        }
    }
    out.extend_from_slice(content);
    out
}
