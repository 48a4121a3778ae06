//! Sizes as the command line writes them: bytes, or one of K M G T b.

/// Why text is not a size; the message is DiskSpd's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("Invalid integer")]
    Integer,
    #[error("Invalid size '{0}'. Valid: K - KiB, M - MiB, G - GiB, T - TiB, B - block")]
    Unit(char),
    #[error("Overflow applying multipler '{0}'")]
    Overflow(char),
    #[error("Unrecognized characters after size specification")]
    Trailing,
}

/// Reads a size at the front of `text`; returns it and the rest. `block_bytes`: the meaning of the
/// suffix `b`.
pub fn take(text: &str, block_bytes: u64) -> Result<(u64, &str), SizeError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let value: u64 = text[..digits].parse().map_err(|_| SizeError::Integer)?;
    let rest = &text[digits..];
    let Some(unit) = rest.chars().next() else { return Ok((value, "")) };
    let factor = match unit.to_ascii_uppercase() {
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        'T' => 1 << 40,
        'B' => block_bytes,
        letter if letter.is_ascii_alphabetic() => return Err(SizeError::Unit(unit)),
        _ => return Ok((value, rest)),
    };
    let value = value.checked_mul(factor).ok_or(SizeError::Overflow(unit))?;
    Ok((value, &rest[1..]))
}

/// Reads a size that is all of `text`.
pub fn parse(text: &str, block_bytes: u64) -> Result<u64, SizeError> {
    match take(text, block_bytes)? {
        (value, "") => Ok(value),
        _ => Err(SizeError::Trailing),
    }
}

/// The largest unit that fits: whole if it is exact, two decimals else, plain bytes under 1 KiB.
pub fn display(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let one = 1u64 << shift;
        if bytes >= one {
            return if bytes.is_multiple_of(one) {
                format!("{}{unit}", bytes >> shift)
            } else {
                format!("{:.2}{unit}", bytes as f64 / one as f64)
            };
        }
    }
    bytes.to_string()
}
