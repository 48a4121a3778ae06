//! Names as a server and this machine have them.

use std::collections::HashMap;

/// Characters that Windows takes in no name (MS-FSCC 2.1.5), beside control characters.
const FORBIDDEN: &str = "\"*/:<>?\\|";
/// Of a name on a share (MS-FSCC 2.1.5.2).
const UNITS_MAX: usize = 255;

/// Why a server that follows Windows would refuse, or change, a name; `None` for a good one.
pub fn unfit_for_share(name: &str) -> Option<&'static str> {
    if name.chars().any(|c| c.is_control() || FORBIDDEN.contains(c)) {
        return Some("its name holds a control character or one of \"*/:<>?\\|, which a share cannot have");
    }
    if name.ends_with(['.', ' ']) {
        return Some("its name ends with a dot or a space, which a share cannot have");
    }
    (name.encode_utf16().count() > UNITS_MAX).then_some("its name is longer than 255 characters")
}

/// Whether a name from a server names a file in the directory that it is put into, and nothing elsewhere.
pub fn is_fit_for_disk(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

/// The form that all spellings of a name share: case is what NTFS folds, a character for a character.
fn folded(name: &str) -> String {
    let upper = |c: char| {
        let mut upper = c.to_uppercase();
        match (upper.next(), upper.next()) {
            (Some(only), None) => only,
            _ => c,
        }
    };
    name.chars().map(upper).collect()
}

/// The names of one directory on a share.
#[derive(Default)]
pub struct Names {
    /// By the folded form, as they are spelt.
    taken: HashMap<String, String>,
}

impl Names {
    /// Takes a name; the one that is there already if that is spelt otherwise.
    pub fn take(&mut self, name: &str) -> Result<(), String> {
        match self.taken.get(&folded(name)) {
            Some(there) if there != name => Err(there.clone()),
            Some(_) => Ok(()),
            None => {
                self.taken.insert(folded(name), name.to_owned());
                Ok(())
            }
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.taken.contains_key(&folded(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_are_found() {
        let mut names = Names::default();
        assert_eq!(names.take("Größe.TXT"), Ok(()));
        assert_eq!(names.take("Größe.TXT"), Ok(()));
        assert_eq!(names.take("gRÖßE.txt"), Err("Größe.TXT".to_owned()));
        // NTFS folds a character for a character: this is another name.
        assert_eq!(names.take("GRÖSSE.TXT"), Ok(()));
    }

    #[test]
    fn names_that_a_share_cannot_have_are_told() {
        for name in ["a:b", "a\\b", "a?", "a\n", "a.", "a ", "\u{1}", &"x".repeat(256)] {
            assert!(unfit_for_share(name).is_some(), "{name:?}");
        }
        for name in ["a", ".profile", "größe", "a b.c", &"x".repeat(255)] {
            assert_eq!(unfit_for_share(name), None, "{name:?}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_no_files_of_a_directory() {
        for name in ["", ".", "..", "../etc", "/etc/passwd", "a/b", "a\\b", "a\0b"] {
            assert!(!is_fit_for_disk(name), "{name:?}");
        }
        assert!(is_fit_for_disk("..a") && is_fit_for_disk("a:b"));
    }
}
