//! I6: a read never returns bytes whose checksum fails: all bytes that it returns were written
//! there, whole.

/// Turns each read of bytes that were never written into a violation.
pub fn check(garbage: &[String]) -> Vec<String> {
    garbage.iter().map(|what| format!("I6: {what}")).collect()
}
