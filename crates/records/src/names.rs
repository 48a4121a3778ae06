//! Names and texts that administrators give and people read.
//!
//! Owns the rule of every kind of name. Promises: a new name shows all that it holds, so that two names which look the same in a list are the same up
//! to letters of different scripts, and none turns the direction of the text around it. Names of records that are there already are not looked
//! at: their objects load, and can be changed, renamed and deleted.

use std::fmt;
use types::is_unseen;

/// Longest text beside a name (a full name, a comment), in characters.
const TEXT_CHARS_MAX: usize = 256;
/// Longest label of a fault domain, in characters.
const LABEL_CHARS_MAX: usize = 64;

/// The rule of one kind of name.
#[derive(Debug, Clone, Copy)]
pub struct NameRule {
    kind: &'static str,
    chars_max: usize,
    /// Characters that the kind has another use for.
    forbidden: &'static str,
    may_be_empty: bool,
}

const ACCOUNTS_FORBID: &str = r#""/\[]:;|=,+*?<>@%"#;
const STORAGE_FORBIDS: &str = r#"/\"'"#;

impl NameRule {
    /// Of users: at most 64 characters.
    pub const USER: Self = Self::name("user", 64, ACCOUNTS_FORBID);
    /// Of groups: at most 64 characters.
    pub const GROUP: Self = Self::name("group", 64, ACCOUNTS_FORBID);
    /// Of tokens of the API: at most 64 characters.
    pub const TOKEN: Self = Self::name("token", 64, ACCOUNTS_FORBID);
    /// MS-SRVS 2.2.4.23 by way of NNLEN.
    pub const SHARE: Self = Self::name("share", 80, r#""/\[]:|<>+=;,*?"#);
    /// Of pools: at most 64 characters.
    pub const POOL: Self = Self::name("pool", 64, STORAGE_FORBIDS);
    /// Of volumes: at most 64 characters.
    pub const VOLUME: Self = Self::name("volume", 64, STORAGE_FORBIDS);
    /// A rack, a server or an enclosure that disks share.
    pub const FAULT_DOMAIN: Self =
        Self { may_be_empty: true, ..Self::name("fault domain", LABEL_CHARS_MAX, "") };

    const fn name(kind: &'static str, chars_max: usize, forbidden: &'static str) -> Self {
        Self { kind, chars_max, forbidden, may_be_empty: false }
    }

    /// # Errors
    /// [`UnfitName`].
    pub fn check(&self, name: &str) -> Result<(), UnfitName> {
        self.fault_of(name).map_or(Ok(()), |fault| Err(self.refuse(name, fault)))
    }

    /// Refuses a name for a reason beyond the rule.
    pub(crate) fn refuse(&self, name: &str, fault: NameFault) -> UnfitName {
        UnfitName { kind: self.kind, name: name.to_owned(), fault }
    }

    fn fault_of(&self, name: &str) -> Option<NameFault> {
        if name.is_empty() && self.may_be_empty {
            return None;
        }
        // First: of a name that consists of unseen characters "it is empty" would be no help.
        if let Some(unseen) = name.chars().find(|c| is_unseen(*c)) {
            return Some(NameFault::Unseen(unseen));
        }
        if name.trim().is_empty() || name != name.trim() {
            return Some(NameFault::Padded);
        }
        if name.chars().count() > self.chars_max {
            return Some(NameFault::TooLong(self.chars_max));
        }
        if name.contains(|c| self.forbidden.contains(c)) {
            return Some(NameFault::Forbidden(self.forbidden));
        }
        matches!(name, "." | "..").then_some(NameFault::Directory)
    }
}

/// Checks a text beside a name, which may be empty and in any language. `what`: its kind in words.
///
/// # Errors
/// [`UnfitText`].
pub fn check_text(what: &'static str, text: &str) -> Result<(), UnfitText> {
    let fault = match text.chars().find(|c| c.is_control() || is_directing(*c)) {
        Some(unseen) => Some(NameFault::Unseen(unseen)),
        None => (text.chars().count() > TEXT_CHARS_MAX).then_some(NameFault::TooLong(TEXT_CHARS_MAX)),
    };
    fault.map_or(Ok(()), |fault| Err(UnfitText { what, fault }))
}

/// Why a name was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameFault {
    /// Empty, or begins or ends with a space.
    Padded,
    /// Longer than this many characters.
    TooLong(usize),
    /// Has an invisible character, or one that changes the direction of text.
    Unseen(char),
    /// Has one of these characters.
    Forbidden(&'static str),
    /// `.` or `..`, which mean directories in paths and addresses.
    Directory,
    /// Name of an account that ends with a dot, or reads as a SID.
    Account,
    /// Windows uses it for something else.
    Reserved,
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Padded => f.write_str("it is empty, or begins or ends with a space"),
            Self::TooLong(most) => write!(f, "it is longer than {most} characters"),
            Self::Unseen(unseen) if unseen.is_control() => {
                write!(f, "it holds a control character (U+{:04X})", u32::from(*unseen))
            }
            Self::Unseen(unseen) => write!(
                f,
                "it holds a character that cannot be seen or that changes the direction of text (U+{:04X})",
                u32::from(*unseen)
            ),
            Self::Forbidden(these) => write!(f, "it holds one of {these}"),
            Self::Directory => f.write_str("that means a directory"),
            Self::Account => f.write_str("it ends with a dot or reads as a SID"),
            Self::Reserved => f.write_str("Windows uses it for something else"),
        }
    }
}

/// A name that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a name for a {kind}: {fault}", shown(.name))]
pub struct UnfitName {
    /// Kind of the name, in a word.
    pub kind: &'static str,
    /// The name, as it was given.
    pub name: String,
    /// Fault of the name.
    pub fault: NameFault,
}

/// A text that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this cannot be a {what}: {fault}")]
pub struct UnfitText {
    /// Kind of the text, in words.
    pub what: &'static str,
    /// Fault of the text.
    pub fault: NameFault,
}

/// The beginning of a name, with characters escaped that would not be seen.
fn shown(name: &str) -> String {
    let mut shown = String::new();
    for character in name.chars().take(TEXT_CHARS_MAX) {
        match is_unseen(character) {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    shown
}

/// Whether a character turns the direction of what stands behind it (UAX 9, explicit formatting), or begins another line. Marks that words of some
/// languages are written with are none.
const fn is_directing(character: char) -> bool {
    matches!(character, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [NameRule; 6] =
        [NameRule::USER, NameRule::GROUP, NameRule::TOKEN, NameRule::SHARE, NameRule::POOL, NameRule::VOLUME];

    fn fault(rule: NameRule, name: &str) -> Option<NameFault> {
        rule.check(name).err().map(|bad| bad.fault)
    }

    #[test]
    fn no_kind_of_name_takes_what_nobody_sees_or_what_turns_text_round() {
        let unseen = [
            '\0',
            '\n',
            '\u{7F}',
            '\u{9B}',
            '\u{A0}',
            '\u{AD}',
            '\u{61C}',
            '\u{115F}',
            '\u{200B}',
            '\u{200E}',
            '\u{202E}',
            '\u{2028}',
            '\u{2066}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{FE0F}',
            '\u{FEFF}',
            '\u{FFF9}',
            '\u{E0041}',
        ];
        for rule in RULES.into_iter().chain([NameRule::FAULT_DOMAIN]) {
            for character in unseen {
                for name in [format!("{character}"), format!("a{character}"), format!("a{character}b")] {
                    assert_eq!(
                        fault(rule, &name),
                        Some(NameFault::Unseen(character)),
                        "{} {name:?}",
                        rule.kind
                    );
                }
            }
            for name in ["api", "Größe", "日本語", "شركة", "नमस्ते", "a b.c-d_e", "$x"] {
                assert_eq!(fault(rule, name), None, "{} {name:?}", rule.kind);
            }
        }
    }

    #[test]
    fn no_kind_of_name_is_empty_padded_too_long_or_a_directory() {
        for rule in RULES {
            for name in ["", " ", " a", "a "] {
                assert_eq!(fault(rule, name), Some(NameFault::Padded), "{} {name:?}", rule.kind);
            }
            for name in [".", ".."] {
                assert_eq!(fault(rule, name), Some(NameFault::Directory), "{} {name:?}", rule.kind);
            }
            let long = "ü".repeat(rule.chars_max);
            assert_eq!(fault(rule, &long), None);
            assert_eq!(fault(rule, &(long + "x")), Some(NameFault::TooLong(rule.chars_max)));
            assert_eq!(fault(rule, r"a\b"), Some(NameFault::Forbidden(rule.forbidden)));
        }
        assert_eq!(fault(NameRule::FAULT_DOMAIN, ""), None, "it separates nothing");
    }

    #[test]
    fn a_refusal_shows_the_character_and_not_its_effect() {
        let refused = NameRule::TOKEN.check("txt\u{202E}exe").unwrap_err().to_string();
        assert!(refused.starts_with(r"'txt\u{202e}exe' is not a name for a token: "), "{refused}");
        assert!(refused.ends_with("(U+202E)"), "{refused}");
    }

    #[test]
    fn a_text_may_be_in_any_language_and_turns_nothing_round() {
        for text in ["", "Sales, 3rd floor", "می‌خواهم", "👩‍💻 ❤️"] {
            assert_eq!(check_text("comment", text), Ok(()));
        }
        for text in ["a\nb", "a\u{202E}b", "a\u{2066}b", &"x".repeat(257)] {
            assert!(check_text("comment", text).is_err(), "{text:?}");
        }
    }
}
