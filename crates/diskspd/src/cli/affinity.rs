//! `-a`: processors, by group.

use super::CommandLineError;
use crate::profile::GroupProcessor;

/// Reads `[g#,]#[,#,...]`; the group holds until another is named.
pub fn parse(text: &str) -> Result<Vec<GroupProcessor>, CommandLineError> {
    let mut found = Vec::new();
    let mut group: u16 = 0;
    let mut at = 0;
    let fail = |at: usize| {
        CommandLineError(format!(
            "ERROR: syntax error parsing affinity at highlighted character\n-a{text}\n{:>width$}",
            "^",
            width = at + 3
        ))
    };
    while at < text.len() {
        let rest = &text[at..];
        let names_group = rest.starts_with('g');
        let number = &rest[usize::from(names_group)..];
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(fail(at + usize::from(names_group)));
        }
        let value: u32 = number[..digits].parse().map_err(|_| fail(at))?;
        at += usize::from(names_group) + digits;
        if names_group {
            group = u16::try_from(value)
                .map_err(|_| CommandLineError(format!("ERROR: group {value} is out of range")))?;
        } else {
            let processor = u8::try_from(value)
                .ok()
                .filter(|processor| *processor < 64)
                .ok_or_else(|| CommandLineError(format!("ERROR: CPU {value} is out of range")))?;
            found.push(GroupProcessor { group, processor });
        }
        match text.as_bytes().get(at) {
            None if names_group => return Err(incomplete()),
            None => {}
            Some(b',') if at + 1 == text.len() => return Err(incomplete()),
            Some(b',') => at += 1,
            Some(_) => return Err(fail(at)),
        }
    }
    if found.is_empty() { Err(incomplete()) } else { Ok(found) }
}

fn incomplete() -> CommandLineError {
    CommandLineError("ERROR: incomplete affinity specification".into())
}
