//! A lock that one client holds and another wants, until somebody ends it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// Time after its holder's end within which the lock must be free.
const FREE_WITHIN: Duration = Duration::from_secs(20);

fn open(file: &Path) -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(file)
}

/// Tries the lock; returns whether it was free. cifs.ko gives the server's refusal of a lock as EACCES.
fn try_lock(file: &File) -> Result<bool, Error> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::PermissionDenied => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks the file, reports that, and keeps the lock until `end` is there.
pub fn hold(file: &Path, end: &Path) -> Result<String, String> {
    let held = open(file).map_err(|error| format!("{}: {error}", file.display()))?;
    held.lock().map_err(|error| format!("locking {}: {error}", file.display()))?;
    println!("held");
    while !end.exists() {
        std::thread::sleep(PAUSE);
    }
    held.unlock().map_err(|error| format!("unlocking {}: {error}", file.display()))?;
    Ok("the lock was held".into())
}

/// Tries to lock the file until `end` is there, which has to fail each time, and then until it works.
pub fn want(file: &Path, end: &Path) -> Result<String, String> {
    let (mut refused, mut failed, mut why) = (0, 0, String::new());
    while !end.exists() {
        match open(file).and_then(|wanted| try_lock(&wanted)) {
            // The lock's holder may have ended meanwhile.
            Ok(true) if end.exists() => break,
            Ok(true) => return Err(format!("the lock was had after {refused} tries, and another has it")),
            Ok(false) => refused += 1,
            Err(error) => {
                failed += 1;
                why = error.to_string();
            }
        }
        std::thread::sleep(PAUSE);
    }
    if refused == 0 {
        return Err(format!("nobody refused the lock: {failed} tries failed otherwise, the last by {why}"));
    }
    let ended = Instant::now();
    loop {
        let found = open(file).and_then(|wanted| try_lock(&wanted));
        match found {
            Ok(true) => break,
            _ if ended.elapsed() < FREE_WITHIN => std::thread::sleep(PAUSE),
            other => return Err(format!("the lock is not to be had when its holder has ended: {other:?}")),
        }
    }
    Ok(format!("the lock was refused {refused} times, {failed} tries failed while the server was away"))
}
