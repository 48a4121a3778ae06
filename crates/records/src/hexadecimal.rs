//! Bytes as hexadecimal digits, as records, tokens and fingerprints have them.

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None`: there is something else than whole pairs of digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pairs_of_digits_are_bytes() {
        assert_eq!(unhex("00ff7A"), Some(vec![0, 255, 0x7a]));
        for bad in ["0", "0g", "+f", " 1", "\u{e9}"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
