//! Files of the data directory that are written anew, whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts a file of mode 0600 in the place of the one at `path`, as [`replace`] does, and makes its name durable. Blocks.
///
/// # Errors
/// The system's; `path` is as it was, or the whole new file.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, content, 0o600)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Puts a file in the place of the one at `path`, if there is one. Its draft beside it is always a new file: a link or a file in the draft's place
/// loses that name and is not written to. Blocks.
///
/// # Errors
/// The system's; `path` is as it was, or the whole new file.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    match std::fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(draft, path)
}

#[cfg(test)]
mod tests {
    use super::replace_private;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn neither_a_link_nor_a_file_in_the_drafts_place_is_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for other in ["other", "third"] {
            fs::write(at(other), "somebody's data").unwrap();
        }
        symlink(at("other"), at("file.json.new")).unwrap();
        replace_private(&at("file.json"), b"1").unwrap();
        fs::hard_link(at("third"), at("file.json.new")).unwrap();
        replace_private(&at("file.json"), b"22").unwrap();
        assert_eq!(fs::read(at("file.json")).unwrap(), b"22");
        for other in ["other", "third"] {
            assert_eq!(fs::read(at(other)).unwrap(), b"somebody's data", "{other}");
        }
        assert_eq!(fs::metadata(at("file.json")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!at("file.json.new").exists());
    }
}
