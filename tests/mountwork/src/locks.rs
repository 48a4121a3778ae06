//! Locks held by this process, and whether another one could have them.

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(100);

/// A file that is locked as a whole by flock, and one by fcntl.
struct Locked {
    by_flock: File,
    by_fcntl: File,
}

/// Takes both locks at once, or says which it did not get.
fn take(file: &Path) -> Result<Locked, String> {
    let open = |path: PathBuf| {
        let opened = File::options().read(true).append(true).create(true).open(&path);
        opened.map_err(|error| format!("open {}: {error}", path.display()))
    };
    let locked = Locked {
        by_flock: open(file.with_extension("flock"))?,
        by_fcntl: open(file.with_extension("fcntl"))?,
    };
    let operation = FlockOperation::NonBlockingLockExclusive;
    flock(&locked.by_flock, operation).map_err(|error| format!("flock: {error}"))?;
    fcntl_lock(&locked.by_fcntl, operation).map_err(|error| format!("fcntl: {error}"))?;
    Ok(locked)
}

/// Holds the locks until the file `until` is there, and then still writes through the handles that have them.
pub fn hold(file: &Path, until: &Path) -> Result<String, String> {
    let mut locked = take(file)?;
    println!("held");
    let mut write = |what: &str| {
        let both = [&mut locked.by_flock, &mut locked.by_fcntl];
        both.into_iter().try_for_each(|file| {
            writeln!(file, "{what}")
                .and_then(|()| file.sync_all())
                .map_err(|error| format!("write {what}: {error}"))
        })
    };
    write("before")?;
    while !until.exists() {
        std::thread::sleep(PAUSE);
    }
    write("after")?;
    Ok("locks were held".to_owned())
}

/// Whether the locks can be had.
pub fn try_once(file: &Path) -> Result<String, String> {
    take(file).map(|_| "locks are free".to_owned())
}
