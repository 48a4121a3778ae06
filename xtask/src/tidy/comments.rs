//! Finds the comments of a source, which a parser of syntax leaves out.

/// A comment of one line, or one line of a longer one.
#[derive(Debug, PartialEq, Eq)]
pub struct Comment<'a> {
    /// Counted from 1.
    pub line: usize,
    pub text: &'a str,
}

/// All comments of a source, documentation among them.
pub fn comments(source: &str) -> Vec<Comment<'_>> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                let end = end_of_line(bytes, at);
                found.push(Comment { line, text: source[at..end].trim_start_matches(['/', '!']).trim() });
                end
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = source[at + 2..].find("*/").map_or(bytes.len(), |length| at + 2 + length + 2);
                let lines = source[at..end].lines().enumerate();
                found.extend(lines.map(|(below, text)| Comment { line: line + below, text: text.trim() }));
                end
            }
            b'"' => end_of_string(bytes, at + 1),
            b'r' | b'b' | b'c' if !at.checked_sub(1).is_some_and(|before| is_word(bytes[before])) => {
                end_of_raw_string(source, at).unwrap_or(at + 1)
            }
            b'\'' => end_of_character(source, at),
            _ => at + 1,
        };
        line += bytes[at..end].iter().filter(|byte| **byte == b'\n').count();
        at = end;
    }
    found
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn end_of_line(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| from + length)
}

/// Behind the quote that ends a string whose content begins at `from`.
fn end_of_string(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Behind a string with a prefix that has an `r`, if one begins here.
fn end_of_raw_string(source: &str, from: usize) -> Option<usize> {
    let rest = &source[from..];
    let body =
        rest.strip_prefix("br").or_else(|| rest.strip_prefix("cr")).or_else(|| rest.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let content = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&close)?;
    let begin = source.len() - content.len();
    Some(begin + length + close.len())
}

/// Behind a character, or behind the tick of a lifetime.
fn end_of_character(source: &str, from: usize) -> usize {
    let mut rest = source[from + 1..].char_indices();
    match rest.next() {
        Some((_, '\\')) => {
            let close = source[from + 3..].find('\'');
            close.map_or(source.len(), |length| from + 3 + length + 1)
        }
        Some(_) => match rest.next() {
            Some((at, '\'')) => from + 1 + at + 1,
            _ => from + 1,
        },
        None => source.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<(usize, &str)> {
        comments(source).into_iter().map(|comment| (comment.line, comment.text)).collect()
    }

    #[test]
    fn comments_of_all_kinds_are_found_with_their_lines() {
        let source = "//! one\nfn a() {} // two\n/* three\nfour */\n/// five\n";
        assert_eq!(texts(source), [(1, "one"), (2, "two"), (3, "/* three"), (4, "four */"), (5, "five")]);
    }

    #[test]
    fn what_strings_and_characters_hold_is_no_comment() {
        let source = "let a = \"// \\\" no\"; let b = r#\"// \" no\"#; let c = '\"'; let d = '\\''; // yes";
        assert_eq!(texts(source), [(1, "yes")]);
    }

    #[test]
    fn a_lifetime_opens_no_character() {
        assert_eq!(texts("fn a<'a>(b: &'a str) {} // yes"), [(1, "yes")]);
    }
}
