//! I6: a read never returns bytes whose checksum fails: somebody wrote the bytes there, whole.

pub fn check(garbage: &[String]) -> Vec<String> {
    garbage.iter().map(|what| format!("I6: {what}")).collect()
}
