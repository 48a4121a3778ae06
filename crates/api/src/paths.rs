//! Parts of a request's path.

/// `None`: it is no text.
pub(crate) fn percent_decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_or_refused() {
        assert_eq!(percent_decoded("a%C3%BC").as_deref(), Some("a\u{fc}"));
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(percent_decoded(bad), None, "{bad}");
        }
    }
}
