//! The first process of a machine: it makes the machine fit for DiskSpd, does one job as `fleet worker` does on a host, and ends the machine.

use super::{image, netlink};
use crate::job::{Answer, Job, LINE_BYTES_MAX, Said, line};
use crate::machine;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::time::{ClockId, Timespec, clock_settime};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// QEMU's user networking gives every machine these addresses, each in a network of its own.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const PREFIX_LENGTH: u8 = 24;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Devices appear soon after their modules are loaded.
const DEVICES_WITHIN: Duration = Duration::from_secs(20);
/// Number of questions for the time; the quickest answer is the most exact.
const CLOCK_ROUNDS: usize = 9;
/// Possible error of the clock from which a note is made.
const CLOCK_ERROR_MAX: Duration = Duration::from_millis(5);
/// `MODULE_INIT_COMPRESSED_FILE` of linux/module.h.
const COMPRESSED: i32 = 4;

/// Does all of it; comes back only if this is no machine of the fleet.
///
/// # Errors
/// If it is not the first process: it would end the machine that it runs on.
pub fn run() -> io::Result<()> {
    if std::process::id() != 1 {
        return Err(io::Error::other("this is for the first process of a microVM"));
    }
    if let Err(error) = serve() {
        eprintln!("fleet: the machine has no way to its host: {error}");
    }
    // QEMU ends at a restart. If that fails, the end of the first process panics the kernel, which restarts.
    reboot(RebootCommand::Restart)?;
    Ok(())
}

fn serve() -> io::Result<()> {
    mount_all()?;
    load_modules()?;
    let mut output = await_device(port)?;
    // The device can be opened once only.
    let mut input = BufReader::new(output.try_clone()?);
    let answer = match prepare(&mut input, &mut output).and_then(|clock_error| {
        say(&mut output, &Said::Ready)?;
        Ok((clock_error, job(&mut input)?))
    }) {
        Ok((clock_error, job)) => work(&job, clock_error, input, &mut output),
        Err(error) => Answer::Failed(format!("the machine could not be made ready: {error}")),
    };
    say(&mut output, &Said::Answer(answer))
}

fn say(output: &mut File, said: &Said) -> io::Result<()> {
    output.write_all(line(said).as_bytes())
}

fn mount_all() -> io::Result<()> {
    for (kind, place) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/tmp")] {
        // The kernel may have mounted /dev itself.
        match mount(kind, place, kind, MountFlags::empty(), None) {
            Ok(()) | Err(rustix::io::Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn load_modules() -> io::Result<()> {
    let mut files: Vec<PathBuf> = fs::read_dir(Path::new("/").join(image::MODULES))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    for path in files {
        let is_compressed = path.extension().is_some_and(|extension| extension != "ko");
        let flags = if is_compressed { COMPRESSED } else { 0 };
        match finit_module(File::open(&path)?, c"", flags) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(io::Error::other(format!("{}: {error}", path.display()))),
        }
    }
    Ok(())
}

/// Waits until a device is there.
fn await_device<T>(look: impl Fn() -> io::Result<Option<T>>) -> io::Result<T> {
    let until = Instant::now() + DEVICES_WITHIN;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(io::Error::other(
                "a device of the machine does not appear; has its kernel virtio drivers?",
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The only port of the only serial device, opened.
fn port() -> io::Result<Option<File>> {
    let mut entries = fs::read_dir("/dev")?.filter_map(Result::ok);
    let is_port = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("vport");
    let Some(entry) = entries.find(is_port) else { return Ok(None) };
    match OpenOptions::new().read(true).write(true).open(entry.path()) {
        Ok(port) => Ok(Some(port)),
        // The port's node appears before the driver knows of it.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name and the number of the only network interface beside loopback.
fn interface() -> io::Result<Option<(String, u32)>> {
    for entry in fs::read_dir("/sys/class/net")?.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "lo" {
            continue;
        }
        let index = fs::read_to_string(entry.path().join("ifindex"))?;
        return Ok(index.trim().parse().ok().map(|index| (name, index)));
    }
    Ok(None)
}

/// Sets up network and clock; returns the clock's possible error.
fn prepare(input: &mut impl BufRead, output: &mut File) -> io::Result<Duration> {
    let (name, index) = await_device(interface)?;
    netlink::configure(index, ADDRESS, PREFIX_LENGTH, GATEWAY)?;
    // Servers of a trial cluster listen at 127.0.0.11 and so on of the host. With the machine's own
    // loopback down these addresses are routed like any other, and QEMU connects to them.
    fs::write(format!("/proc/sys/net/ipv4/conf/{name}/route_localnet"), "1")?;
    set_clock(input, output)
}

fn set_clock(input: &mut impl BufRead, output: &mut File) -> io::Result<Duration> {
    let mut best: Option<(Duration, Instant, u64)> = None;
    for _ in 0..CLOCK_ROUNDS {
        let asked = Instant::now();
        say(output, &Said::Clock)?;
        let mut text = String::new();
        input.by_ref().take(64).read_line(&mut text)?;
        let round = asked.elapsed();
        let host_ns = text.trim().parse().map_err(|_| io::Error::other("the host tells no time"))?;
        if best.is_none_or(|(quickest, ..)| round < quickest) {
            best = Some((round, asked, host_ns));
        }
    }
    let Some((round, asked, host_ns)) = best else { return Err(io::Error::other("the host tells no time")) };
    // The host answered in the middle of the round, as far as can be known.
    let now_ns = u128::from(host_ns) + asked.elapsed().as_nanos().saturating_sub(round.as_nanos() / 2);
    let wrong = |_| io::Error::other("the host's time is none");
    clock_settime(
        ClockId::Realtime,
        Timespec {
            tv_sec: i64::try_from(now_ns / 1_000_000_000).map_err(wrong)?,
            tv_nsec: (now_ns % 1_000_000_000) as i64,
        },
    )?;
    Ok(round / 2)
}

fn job(input: &mut impl BufRead) -> io::Result<Job> {
    let mut text = String::new();
    input.by_ref().take(LINE_BYTES_MAX).read_line(&mut text)?;
    serde_json::from_str(&text).map_err(io::Error::other)
}

fn work(
    job: &Job,
    clock_error: Duration,
    mut input: impl BufRead + Send + 'static,
    output: &mut File,
) -> Answer {
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = is_asked.clone();
    std::thread::spawn(move || {
        // One more line, or the end of input, ends the run.
        let _ = input.by_ref().take(64).read_line(&mut String::new());
        asked.store(true, Ordering::Relaxed);
    });
    let mut tell = |answer: &Answer| say(output, &Said::Answer(answer.clone()));
    match machine::work(job, &|| is_asked.load(Ordering::Relaxed), &mut tell) {
        Ok(mut done) => {
            if clock_error > CLOCK_ERROR_MAX {
                done.notes
                    .push(format!("the clock of a microVM may be {} ms wrong", clock_error.as_millis()));
            }
            Answer::Done(done)
        }
        Err(why) => Answer::Failed(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_process_than_the_first_does_it() {
        assert!(run().unwrap_err().to_string().contains("first process"));
    }
}
