//! Faults that tests steer in front of the disks of a running daemon, for servers in tests.
//!
//! If the environment names a Unix socket in `CENOTE_FAULTS`, every opened disk fails as commands on
//! the socket demand; with `CENOTE_POWER_CUTS` set too, every disk gets a volatile write cache that a
//! power cut robs. A connection sends one command a line and gets one line for each, `ok` or `error:
//! ...`; docs/OPERATIONS.md, "Fault injection", has the commands. Never part of installed programs.

use disk::crash::{Fault, FaultAction, FaultTarget};
use disk::fault::{FaultDisk, FaultHandle};
use disk::volatile::{Plug, VolatileDisk};
use disk::{Disk, DiskError, FileDisk, OpenedFile};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use sys::driver::{Driver, Waker};

/// The faults of one disk; they stay from one opening to the next.
#[derive(Default)]
struct Told {
    handle: FaultHandle,
    plug: Option<Plug>,
}

#[derive(Default)]
struct Registry {
    disks: BTreeMap<String, Told>,
    waker: Option<Waker>,
}

/// Every disk that was ever opened, by path; none if `CENOTE_FAULTS` is not set.
static REGISTRY: OnceLock<Option<Mutex<Registry>>> = OnceLock::new();

fn registry() -> Option<MutexGuard<'static, Registry>> {
    let registry = REGISTRY.get_or_init(|| {
        let path = std::env::var_os("CENOTE_FAULTS")?;
        let _ = std::fs::remove_file(&path);
        match UnixListener::bind(&path) {
            Ok(listener) => {
                std::thread::spawn(move || listen(&listener));
                tracing::info!(?path, "disks fail as this socket is told");
                Some(Mutex::default())
            }
            Err(error) => {
                tracing::error!(?path, %error, "the socket of CENOTE_FAULTS cannot be made");
                None
            }
        }
    });
    registry.as_ref().map(|registry| registry.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Puts the disk behind the faults of its path.
///
/// # Errors
/// If its file cannot be opened a second time for a volatile cache.
pub fn steered(driver: &Driver, opened: OpenedFile, time_bound: Duration) -> std::io::Result<Box<dyn Disk>> {
    let Some(mut registry) = registry() else { return Ok(Box::new(FileDisk::new(driver, opened))) };
    registry.waker = Some(driver.waker());
    let told = registry.disks.entry(opened.info().path.clone()).or_default();
    let handle = told.handle.clone();
    if std::env::var_os("CENOTE_POWER_CUTS").is_none() {
        return Ok(Box::new(FaultDisk::new(FileDisk::new(driver, opened), handle, time_bound)));
    }
    let waker = driver.waker();
    let (disk, plug) = VolatileDisk::new(opened, 1, Box::new(move || waker.wake()))?;
    told.plug = Some(plug);
    Ok(Box::new(FaultDisk::new(disk, handle, time_bound)))
}

fn listen(listener: &UnixListener) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || serve(&stream));
    }
}

fn serve(stream: &UnixStream) {
    let mut out = stream;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let answer = match command(&line) {
            Ok(()) => "ok\n".to_owned(),
            Err(why) => format!("error: {why}\n"),
        };
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Carries out one command.
fn command(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let first = words.next().ok_or("a disk (the name of its file, or `all`) or a seed is missing")?;
    let rest: Vec<&str> = words.collect();
    let registry = registry().ok_or("faults are off")?;
    if verb == "cut" {
        return Err(cut(registry, number(first)?));
    }
    let name = |path: &str| Path::new(path).file_name().is_some_and(|name| name == first);
    let told: Vec<&Told> = registry
        .disks
        .iter()
        .filter(|(path, _)| first == "all" || name(path))
        .map(|(_, told)| told)
        .collect();
    if told.is_empty() {
        return Err(format!("no disk {first} was opened"));
    }
    for disk in told {
        tell(&disk.handle, verb, &rest)?;
    }
    if let Some(waker) = &registry.waker {
        waker.wake();
    }
    Ok(())
}

fn tell(handle: &FaultHandle, verb: &str, rest: &[&str]) -> Result<(), String> {
    match (verb, rest) {
        ("hang", []) => handle.set_hang(true),
        ("clear", []) => handle.clear(),
        ("no-space", []) => handle.set_no_space(true),
        ("no-space", [offset, len]) => {
            let target = FaultTarget::WriteRange { offset: number(offset)?, len_bytes: number(len)? };
            handle.inject(Fault::every(target, FaultAction::Fail(DiskError::NoSpace)));
        }
        ("rot", [offset, len]) => handle.rot(number(offset)?, number(len)?),
        ("fail", [what, times]) => {
            let target = match *what {
                "read" => FaultTarget::Read,
                "write" => FaultTarget::Write,
                "flush" => FaultTarget::Flush,
                "discard" => FaultTarget::Discard,
                "any" => FaultTarget::Any,
                _ => return Err(format!("{what} is none of read, write, flush, discard, any")),
            };
            const EIO: i32 = 5;
            let action = FaultAction::Fail(DiskError::Medium(EIO));
            handle.inject(Fault { target, skip: 0, times: number(times)?, action });
        }
        _ => return Err(format!("there is no command `{verb}` with {} arguments", rest.len())),
    }
    Ok(())
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

/// Cuts the power of all disks and ends the process at once; returns only with the reason why not.
fn cut(registry: MutexGuard<'static, Registry>, seed: u64) -> String {
    let plugs: Vec<&Plug> = registry.disks.values().filter_map(|told| told.plug.as_ref()).collect();
    if plugs.is_empty() {
        return "no disk has a volatile cache: CENOTE_POWER_CUTS is not set".to_owned();
    }
    for (plug, at) in plugs.iter().zip(0_u64..) {
        if let Err(error) = plug.pull(seed.wrapping_mul(31).wrapping_add(at)) {
            return format!("a file cannot be written: {error}");
        }
    }
    // Nothing may run any more: no destructor, no buffered output.
    let ended = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    format!("the process cannot be ended: {ended:?}")
}
