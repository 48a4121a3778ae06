//! The named events of `-y`: files in a directory of the user's own, that stay set until they are removed.
//!
//! A program that waits removes the event it waited for when its run is over, as a Windows event goes with its last handle.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How often a waiting program looks.
pub const LOOK: Duration = Duration::from_millis(10);

/// The directory of events: under `XDG_RUNTIME_DIR`, or `/tmp`.
fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) if !runtime.is_empty() => PathBuf::from(runtime).join("diskspd"),
        _ => PathBuf::from(format!("/tmp/diskspd-{}", rustix::process::getuid().as_raw())),
    }
}

/// Where an event of this name lies.
///
/// # Errors
/// A name that is no file's name.
pub fn path(name: &str) -> io::Result<PathBuf> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') || name.len() > 200 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name for an event"));
    }
    Ok(directory().join(name))
}

/// Sets an event.
///
/// # Errors
/// The system's.
pub fn set(name: &str) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let path = path(name)?;
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    fs::write(path, b"")
}

pub fn is_set(name: &str) -> bool {
    path(name).is_ok_and(|path| path.exists())
}

/// Takes an event back.
pub fn clear(name: &str) {
    if let Ok(path) = path(name) {
        // One that was never set is fine.
        let _ = fs::remove_file(path);
    }
}
