//! The thread that starts etcd, hears its log, and starts it again.
//!
//! The thread lives as long as etcd is wanted, since the kernel ties etcd's life to it.

use super::EtcdProcessState;
use super::command::command;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two starts: the first pause, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// One that ran this long ended for a new reason.
const RAN_WELL: Duration = Duration::from_secs(30);
/// How often it is looked whether etcd ended.
const LOOK: Duration = Duration::from_millis(100);
/// Longer lines of its log are cut.
const LINE_BYTES_MAX: u64 = 16 << 10;

pub(super) struct Supervisor {
    stop: mpsc::Sender<Duration>,
    thread: JoinHandle<()>,
}

impl Supervisor {
    /// Returns after the first try to start the program.
    ///
    /// # Errors
    /// The program cannot be started, or there is no thread.
    pub fn start(
        program: PathBuf,
        arguments: Vec<OsString>,
        state: Arc<Mutex<EtcdProcessState>>,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (give, first) = mpsc::channel();
        let supervised = Supervised { program, arguments, state, stopped, last_error: Arc::default() };
        let thread = std::thread::Builder::new().name("etcd-supervisor".into());
        let thread = thread.spawn(move || supervised.run(&give))?;
        match first.recv() {
            Ok(Ok(())) => Ok(Self { stop, thread }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("its thread ended")),
        }
    }

    pub fn stop(self, patience: Duration) {
        // Fails if the thread ended by itself.
        let _ = self.stop.send(patience);
        let _ = self.thread.join();
    }
}

/// Bounds the descriptors of etcd, and with them the cost of strangers' silent connections: etcd keeps
/// each for as long as its peer likes. Sixteen servers and etcd's own files need some two hundred.
const ETCD_DESCRIPTORS_MAX: u64 = 1024;

fn bound_descriptors(child: &Child) {
    let limit = Rlimit { current: Some(ETCD_DESCRIPTORS_MAX), maximum: Some(ETCD_DESCRIPTORS_MAX) };
    if let Err(error) = prlimit(Some(Pid::from_child(child)), Resource::Nofile, limit) {
        tracing::warn!(%error, "the connections of etcd are not bounded");
    }
}

struct Supervised {
    program: PathBuf,
    arguments: Vec<OsString>,
    state: Arc<Mutex<EtcdProcessState>>,
    stopped: mpsc::Receiver<Duration>,
    last_error: Arc<Mutex<Heard>>,
}

/// Findings in etcd's log.
#[derive(Default)]
struct Heard {
    /// The last line that is an error.
    error: String,
    was_removed: bool,
}

impl Supervised {
    fn run(self, first: &mpsc::Sender<io::Result<()>>) {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            let why = match self.spawn() {
                Ok(child) => {
                    let _ = first.send(Ok(()));
                    match self.attend(child) {
                        Some(why) => why,
                        None => break,
                    }
                }
                Err(error) => {
                    let why = error.to_string();
                    if first.send(Err(error)).is_ok() {
                        break;
                    }
                    why
                }
            };
            if self.heard().was_removed {
                tracing::warn!("etcd was removed from its cluster");
                self.set(EtcdProcessState::Removed);
                let _ = self.stopped.recv();
                break;
            }
            if began.elapsed() > RAN_WELL {
                pause = PAUSE_MIN;
            }
            tracing::warn!(why, pause_ms = pause.as_millis() as u64, "etcd ended and is started again");
            self.set(EtcdProcessState::Restarting { why });
            if self.stopped.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                break;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        if *self.state() != EtcdProcessState::Removed {
            self.set(EtcdProcessState::Stopped);
        }
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = command(&self.program);
        command.args(&self.arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        sys::die_with_parent(&mut command);
        let mut child = command.spawn()?;
        bound_descriptors(&child);
        self.set(EtcdProcessState::Running { pid: child.id() });
        tracing::debug!(pid = child.id(), "etcd is started");
        if let Some(log) = child.stderr.take() {
            let heard = self.last_error.clone();
            // Ends with etcd, which holds the other end.
            std::thread::Builder::new().name("etcd-log".into()).spawn(move || hear(log, &heard))?;
        }
        Ok(child)
    }

    /// Waits for etcd's end, and says why; `None` if the supervisor stopped it.
    fn attend(&self, mut child: Child) -> Option<String> {
        loop {
            match self.stopped.recv_timeout(LOOK) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(patience) => {
                    end(&mut child, patience);
                    return None;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    end(&mut child, Duration::ZERO);
                    return None;
                }
            }
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => {
                    let error = self.heard().error.clone();
                    return Some(if error.is_empty() {
                        status.to_string()
                    } else {
                        format!("{status}: {error}")
                    });
                }
                Err(error) => return Some(error.to_string()),
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, EtcdProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: EtcdProcessState) {
        *self.state() = state;
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SIGTERM lets a leader hand over; SIGKILL follows.
fn end(child: &mut Child, patience: Duration) {
    let until = Instant::now() + patience;
    if !patience.is_zero()
        && let Some(pid) = Pid::from_raw(child.id().cast_signed())
    {
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        while Instant::now() < until {
            if let Ok(Some(_)) = child.try_wait() {
                return;
            }
            std::thread::sleep(LOOK / 10);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Puts etcd's log into ours.
fn hear(log: impl Read, heard: &Mutex<Heard>) {
    let mut log = BufReader::new(log);
    let mut line = Vec::new();
    loop {
        line.clear();
        match log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        tracing::debug!(target: "etcd", "{text}");
        let is_error = ["\"level\":\"error\"", "\"level\":\"fatal\"", "\"level\":\"panic\""];
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        if is_error.iter().any(|level| text.contains(level)) || !text.starts_with('{') {
            heard.error = text.to_owned();
        }
        heard.was_removed |= text.contains("the member has been permanently removed from the cluster");
    }
}
