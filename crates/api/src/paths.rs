//! Parts of a request's path.

/// A name as part of a URL's path or query.
pub fn percent_encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let shown = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(shown).collect()
}

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
    fn a_pool_of_any_name_is_found_by_its_path() {
        assert_eq!(percent_encoded("my pool/\u{fc}"), "my%20pool%2F%C3%BC");
    }

    #[test]
    fn names_are_decoded_or_refused() {
        assert_eq!(percent_decoded("a%C3%BC").as_deref(), Some("a\u{fc}"));
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(percent_decoded(bad), None, "{bad}");
        }
    }
}
