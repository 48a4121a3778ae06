//! Known answers published by Microsoft and NIST, and inputs that must be refused.

mod cipher;
mod keys;
mod signing;

/// Bytes from hexadecimal text; white space is skipped.
pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

pub(super) fn hex16(text: &str) -> [u8; 16] {
    hex(text).try_into().unwrap()
}
