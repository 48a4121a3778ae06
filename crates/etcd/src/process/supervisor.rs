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
/// Time for the last lines of its log after its end; a program of its own may hold the log open.
const LAST_LINES: Duration = Duration::from_secs(1);
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
    /// The last error, or the reason of etcd's end.
    error: String,
    /// `error` is the reason of the end: a trace of the program's threads comes behind it.
    is_final: bool,
    was_removed: bool,
}

impl Heard {
    /// Takes a line of the log.
    fn note(&mut self, line: &str) {
        self.was_removed |= line.contains("the member has been permanently removed from the cluster");
        if self.is_final {
            return;
        }
        let ends = ["\"level\":\"fatal\"", "\"level\":\"panic\""].iter().any(|level| line.contains(level));
        self.is_final = ends || ["panic: ", "fatal error: "].iter().any(|start| line.starts_with(start));
        if self.is_final
            || line.contains("\"level\":\"error\"")
            || !(line.is_empty() || line.starts_with('{'))
        {
            self.error = in_words(line);
        }
    }
}

/// A line of the log for people: message and error of a JSON object, any other line as it is.
fn in_words(line: &str) -> String {
    let parsed = serde_json::from_str::<serde_json::Value>(line).unwrap_or_default();
    let text = |key: &str| parsed.get(key).and_then(serde_json::Value::as_str);
    match (text("msg"), text("error")) {
        (Some(message), Some(error)) => format!("{message}: {error}"),
        (Some(message), None) => message.to_owned(),
        _ => line.to_owned(),
    }
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

    /// Returns the program and the thread that hears its log.
    fn spawn(&self) -> io::Result<(Child, Option<JoinHandle<()>>)> {
        let mut command = command(&self.program);
        command.args(&self.arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        sys::die_with_parent(&mut command);
        let mut child = command.spawn()?;
        bound_descriptors(&child);
        self.set(EtcdProcessState::Running { pid: child.id() });
        tracing::debug!(pid = child.id(), "etcd is started");
        let mut hearing = None;
        if let Some(log) = child.stderr.take() {
            let heard = self.last_error.clone();
            *self.heard() = Heard::default();
            // Ends with etcd, which holds the other end.
            let thread = std::thread::Builder::new().name("etcd-log".into());
            hearing = Some(thread.spawn(move || hear(log, &heard))?);
        }
        Ok((child, hearing))
    }

    /// Waits for etcd's end, and says why; `None` if the supervisor stopped it.
    fn attend(&self, (mut child, hearing): (Child, Option<JoinHandle<()>>)) -> Option<String> {
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
                    let until = Instant::now() + LAST_LINES;
                    while hearing.as_ref().is_some_and(|thread| !thread.is_finished())
                        && Instant::now() < until
                    {
                        std::thread::sleep(LOOK / 10);
                    }
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
        heard.lock().unwrap_or_else(PoisonError::into_inner).note(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(log: &str) -> Heard {
        let heard = Mutex::default();
        hear(log.as_bytes(), &heard);
        heard.into_inner().unwrap()
    }

    #[test]
    fn the_reason_of_the_end_is_kept_and_not_the_trace_behind_it() {
        let why =
            "tocommit(57) is out of range [lastIndex(29)]. Was the raft log corrupted, truncated, or lost?";
        let trace = "\ngoroutine 163 [running]:\ngo.uber.org/zap/zapcore.(*CheckedEntry).Write()\n\tgo.etcd.io/etcd/raft/node.go:242 +0x24a\n";
        let error = "{\"level\":\"error\",\"msg\":\"a peer\",\"error\":\"is away\"}\n";
        assert_eq!(heard(error).error, "a peer: is away");
        let panic = format!("{{\"level\":\"panic\",\"msg\":\"{why}\"}}\npanic: {why}\n");
        let old = format!("panic: {why}\n");
        let found = heard(&[error, &panic, trace].concat());
        assert_eq!(found.error, why);
        assert_eq!(heard(&[error, &old, trace].concat()).error, format!("panic: {why}"));
        assert_eq!(heard("{\"level\":\"info\",\"msg\":\"started\"}\n").error, "");
        assert_eq!(heard("listen: no permission\n\n").error, "listen: no permission");
    }
}
