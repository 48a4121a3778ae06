//! The named events of `-y`: files in a directory of the user's own, that stay set until they are removed.
//!
//! Promises: nobody else sets, removes or redirects an event. Others may be able to make a directory of
//! that name first, as in /tmp: it is used only if it is the user's and closed to others, and nothing
//! in it is followed or changed. A program that waits removes the event it waited for when its run is
//! over, as a Windows event goes with its last handle.

use rustix::fs::{AtFlags, Mode, OFlags, open, openat, statat, unlinkat};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a waiting program looks.
pub const LOOK: Duration = Duration::from_millis(10);

/// The directory of events: under `XDG_RUNTIME_DIR`, or `/tmp`.
fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) if !runtime.is_empty() => PathBuf::from(runtime).join("diskspd"),
        _ => PathBuf::from(format!("/tmp/diskspd-{}", user())),
    }
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// An error if this is no name of an event.
fn check_name(name: &str) -> io::Result<()> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') || name.len() > 200 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name for an event"));
    }
    Ok(())
}

/// Makes the directory if it is not there.
fn make(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    match builder.create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => builder.recursive(true).create(directory),
        done => done,
    }
}

/// Opens the directory if it is `owner`'s and nobody else can write in it.
fn open_own(directory: &Path, owner: u32) -> io::Result<OwnedFd> {
    let refused = |why: &str| {
        let why = format!("{} {why}: somebody else may have put it there; remove it", directory.display());
        io::Error::new(io::ErrorKind::PermissionDenied, why)
    };
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = open(directory, flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => refused("is no directory"),
        error => error.into(),
    })?;
    let stat = rustix::fs::fstat(&opened)?;
    if stat.st_uid != owner {
        return Err(refused(&format!("belongs to user {}", stat.st_uid)));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(refused("can be written by others"));
    }
    Ok(opened)
}

fn set_in(directory: &Path, owner: u32, name: &str) -> io::Result<()> {
    check_name(name)?;
    make(directory)?;
    // An event that is set already stays as it is.
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(open_own(directory, owner)?, name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(())
}

fn is_set_in(directory: &Path, owner: u32, name: &str) -> io::Result<bool> {
    check_name(name)?;
    let directory = match open_own(directory, owner) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    Ok(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

/// Sets an event.
///
/// # Errors
/// A name that is no file's name, a directory that is not the user's own, or the system's.
pub fn set(name: &str) -> io::Result<()> {
    set_in(&directory(), user(), name)
}

/// Whether an event can be waited for.
///
/// # Errors
/// As for [`set`].
pub fn check(name: &str) -> io::Result<()> {
    is_set_in(&directory(), user(), name).map(drop)
}

pub fn is_set(name: &str) -> bool {
    is_set_in(&directory(), user(), name).unwrap_or(false)
}

/// Takes an event back.
pub fn clear(name: &str) {
    if check_name(name).is_ok()
        && let Ok(directory) = open_own(&directory(), user())
    {
        // One that was never set is fine.
        let _ = unlinkat(directory, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn an_event_is_set_in_a_directory_that_is_made_for_its_user_alone() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("run/diskspd");
        assert!(!is_set_in(&own, user(), "go").unwrap());
        set_in(&own, user(), "go").unwrap();
        set_in(&own, user(), "go").unwrap();
        assert!(is_set_in(&own, user(), "go").unwrap());
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(set_in(&own, user(), "../go").is_err());
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused_and_no_file_of_the_users_is_emptied() {
        let place = tempfile::tempdir().unwrap();
        let precious = place.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        let planted = place.path().join("planted");
        fs::create_dir(&planted).unwrap();
        symlink(&precious, planted.join("go")).unwrap();
        let refused = |directory: &Path, owner| set_in(directory, owner, "go").unwrap_err().to_string();
        assert!(refused(&planted, user() + 1).contains("belongs to user"));
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&planted, user()).contains("written by others"));
        assert!(is_set_in(&planted, user(), "go").is_err());
        symlink(&planted, place.path().join("link")).unwrap();
        assert!(refused(&place.path().join("link"), user()).contains("is no directory"));
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(set_in(&planted, user(), "go").is_err(), "a link is not followed");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
    }

    #[test]
    fn an_event_that_is_set_keeps_what_its_file_holds() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(place.path().join("go"), "kept").unwrap();
        set_in(place.path(), user(), "go").unwrap();
        assert_eq!(fs::read_to_string(place.path().join("go")).unwrap(), "kept");
    }
}
