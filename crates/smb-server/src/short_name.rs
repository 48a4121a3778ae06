//! Names of eight and three characters (MS-FSCC 2.1.5.2.1) for clients that ask for one.
//!
//! A name that already has the form is its own short name. Others get one from a hash of the whole name, so that it stays the
//! same without being stored.

/// Characters of a hash in a short name; with `~` and the letter before it they fill eight.
const HASH_CHARS: usize = 6;
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

fn is_short_char(unit: u16) -> bool {
    match u8::try_from(unit) {
        Ok(byte) => byte.is_ascii_alphanumeric() || b"!#$%&'()-@^_`{}~".contains(&byte),
        Err(_) => false,
    }
}

/// Whether the name has the form already.
fn is_short(name: &[u16]) -> bool {
    let dot = u16::from(b'.');
    let mut parts = name.split(|unit| *unit == dot);
    let base = parts.next().unwrap_or_default();
    let extension = parts.next();
    let fits = |part: &[u16], len: usize| {
        (1..=len).contains(&part.len()) && part.iter().all(|unit| is_short_char(*unit))
    };
    parts.next().is_none() && fits(base, 8) && extension.is_none_or(|part| fits(part, 3))
}

fn upper(unit: u16) -> u16 {
    match u8::try_from(unit) {
        Ok(byte) => u16::from(byte.to_ascii_uppercase()),
        Err(_) => unit,
    }
}

/// The short name of `name`, which is one component of a path.
pub(crate) fn short_name(name: &[u16]) -> Vec<u16> {
    if is_short(name) {
        return name.iter().map(|unit| upper(*unit)).collect();
    }
    // FNV-1a over the folded name.
    let mut hash = name.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, unit| {
        (hash ^ u64::from(upper(*unit))).wrapping_mul(0x0000_0100_0000_01B3)
    });
    let first = name.iter().copied().find(|unit| is_short_char(*unit)).map_or(u16::from(b'_'), upper);
    let mut out = vec![first];
    for _ in 0..HASH_CHARS {
        out.push(u16::from(DIGITS[(hash % 36) as usize]));
        hash /= 36;
    }
    out.insert(HASH_CHARS, u16::from(b'~'));
    let dot = u16::from(b'.');
    if let Some(at) = name.iter().rposition(|unit| *unit == dot) {
        let extension: Vec<u16> =
            name[at + 1..].iter().copied().filter(|unit| is_short_char(*unit)).take(3).map(upper).collect();
        if at > 0 && !extension.is_empty() {
            out.push(dot);
            out.extend(extension);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{is_short, short_name};

    fn units(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    #[test]
    fn short_names_have_the_form_and_stay_the_same() {
        for name in ["a long name.html", "ünïcode", "many.dots.in.it", ".hidden", "x", "README.md", "a+b"] {
            let short = short_name(&units(name));
            assert!(is_short(&short), "{name}: {}", String::from_utf16_lossy(&short));
            assert_eq!(short, short_name(&units(name)));
        }
    }

    #[test]
    fn a_short_name_is_its_own() {
        assert_eq!(short_name(&units("Readme.txt")), units("README.TXT"));
    }

    #[test]
    fn different_long_names_get_different_ones() {
        assert_ne!(short_name(&units("a long name 1.txt")), short_name(&units("a long name 2.txt")));
    }
}
