//! Talks with systemd, if it runs the server: watchdog, start timeout, credentials, run-time directory,
//! log.
//!
//! Promises: feeds the watchdog, and extends the start timeout, only while the data plane's loop turns.
//! Without a service manager, nothing here does anything.

use crate::control::ControlHandle;
use api::ADDRESS_FILE;
use node::pulse::Pulse;
use rustix::fs::fstat;
use sd_notify::NotifyState;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Interval between checks of the loop during a start; an idle turn takes at most five seconds.
const START_LOOK: Duration = Duration::from_secs(6);
/// Time that each check of a turning loop adds to the start: several intervals, for a busy machine.
const START_EXTENSION_US: u32 = 30_000_000;
/// Checks of the loop within the service manager's watchdog time.
const WATCHDOG_LOOKS: u32 = 4;

/// Sends the service manager a message, if there is one.
pub fn tell(state: NotifyState) {
    tell_all(&[state]);
}

/// Sends the service manager several messages together.
pub fn tell_all(states: &[NotifyState]) {
    let _ = sd_notify::notify(states);
}

/// Notices whether the loop has turned since the last check.
struct Watch {
    pulse: Pulse,
    seen: Option<u64>,
}

impl Watch {
    fn new(pulse: Pulse) -> Self {
        Self { pulse, seen: None }
    }

    fn has_turned(&mut self) -> bool {
        let turns = Some(self.pulse.turns());
        std::mem::replace(&mut self.seen, turns) != turns
    }
}

/// Feeds the service manager's watchdog while the loop turns. Ends immediately if there is no watchdog.
pub async fn feed_watchdog(pulse: Pulse, control: ControlHandle) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut watch = Watch::new(pulse);
    loop {
        if watch.has_turned() {
            tell(NotifyState::Watchdog);
        }
        // An idle loop may sleep for longer than until the next check.
        control.wake();
        tokio::time::sleep(limit / WATCHDOG_LOOKS).await;
    }
}

/// SIGTERM and SIGINT.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Listens for the signals, which from now on no longer end the process. Within a runtime.
    ///
    /// # Errors
    /// If it cannot listen for them.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one of the signals.
    pub async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Returns whether a signal has arrived before it was awaited.
    pub async fn have_come(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.come() => true,
            () = std::future::ready(()) => false,
        }
    }
}

/// Ends the process at a signal to stop while a server starts again in it: the handlers of its first run are still installed, and would swallow the
/// signal. Dropped once the server handles signals itself.
pub struct StopsAtOnce {
    _end: tokio::sync::oneshot::Sender<()>,
}

impl StopsAtOnce {
    /// # Errors
    /// If the signals cannot be listened for.
    pub fn begin() -> io::Result<Self> {
        let (end, ended) = tokio::sync::oneshot::channel();
        let (listens, begun) = channel();
        // A separate runtime: the starting server's is not driven meanwhile.
        let thread = std::thread::Builder::new().name("cenote-stop".into());
        thread.spawn(move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(stop_at_signal(&listens, ended)),
            Err(error) => drop(listens.send(Err(error))),
        })?;
        begun.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")))?;
        Ok(Self { _end: end })
    }
}

async fn stop_at_signal(listens: &Sender<io::Result<()>>, ended: tokio::sync::oneshot::Receiver<()>) {
    let mut stop = match StopSignals::listen() {
        Ok(stop) => stop,
        Err(error) => return drop(listens.send(Err(error))),
    };
    let _ = listens.send(Ok(()));
    tokio::select! {
        _ = ended => return,
        () = stop.come() => {}
    }
    tracing::info!("stopped during the start");
    std::process::exit(0);
}

/// Extends the start timeout while journals are replayed and the loop turns; ends when it is dropped.
pub struct LongStart {
    _end: Sender<()>,
}

impl LongStart {
    pub fn begin(pulse: Pulse) -> Option<Self> {
        std::env::var_os("NOTIFY_SOCKET")?;
        let (end, ended) = channel::<()>();
        let ask = || tell(NotifyState::ExtendTimeoutUsec(START_EXTENSION_US));
        let look = move || ask_while_turning(&ended, Watch::new(pulse), START_LOOK, ask);
        // Without the thread a start has the time that the unit gives.
        let thread = std::thread::Builder::new().name("cenote-start".to_owned()).spawn(look);
        thread.ok().map(|_| Self { _end: end })
    }
}

/// Asks once at each check that finds the loop turning, until the other end of the channel is dropped.
fn ask_while_turning(ended: &Receiver<()>, mut watch: Watch, every: Duration, ask: impl Fn()) {
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        if watch.has_turned() {
            ask();
        }
    }
}

/// The credential of this name, if the service manager handed one over (`LoadCredential=`).
pub fn credential(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("CREDENTIALS_DIRECTORY")?).join(name);
    path.exists().then_some(path)
}

/// Returns the directory that exists while the service runs (`RuntimeDirectory=`).
pub fn run_time_directory() -> Option<PathBuf> {
    let names = std::env::var_os("RUNTIME_DIRECTORY")?;
    std::env::split_paths(&names).next()
}

/// Whether standard error goes to the journal: it is the very stream that `JOURNAL_STREAM` names.
pub fn logs_to_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(std::io::stderr()).is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Lines for the journal: it adds the time, and reads the priority from the beginning (sd-daemon(3)).
pub struct JournalLines;

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(writer, "<{priority}>")?;
        let line = tracing_subscriber::fmt::format().without_time().with_level(false).with_ansi(false);
        line.format_event(context, writer, event)
    }
}

/// Writes the API's address for the command line. A service's is removed with its run-time directory,
/// and the data directory has a link to it; the lock stays beside the data, which others could open
/// elsewhere.
pub fn leave_address(file: &Path, address: SocketAddr) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let line = format!("{address}\n");
    match run_time_directory() {
        Some(directory) => {
            let there = directory.join(ADDRESS_FILE);
            std::fs::write(&there, line).and_then(|()| symlink(there, file))
        }
        None => std::fs::write(file, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_start_asks_for_time_as_long_as_the_loop_turns() {
        let pulse = Pulse::default();
        let watch = Watch::new(pulse.clone());
        let (end, ended) = channel::<()>();
        let (ask, asked) = channel();
        let look =
            move || ask_while_turning(&ended, watch, Duration::from_millis(1), || ask.send(()).unwrap());
        let looks = std::thread::spawn(look);
        for _ in 0..3 {
            pulse.beat();
            asked.recv_timeout(Duration::from_secs(60)).expect("it asks");
        }
        // One check may have been under way when the loop stalled.
        let _ = asked.recv_timeout(Duration::from_millis(50));
        assert!(
            asked.recv_timeout(Duration::from_millis(50)).is_err(),
            "it asks although the loop stands still"
        );
        drop(end);
        looks.join().expect("it ends with the start");
    }

    #[test]
    fn a_loop_that_stands_still_is_noticed() {
        let pulse = Pulse::default();
        let mut watch = Watch::new(pulse.clone());
        pulse.beat();
        assert!(watch.has_turned());
        assert!(!watch.has_turned(), "it has not turned since");
        pulse.beat();
        assert!(watch.has_turned());
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_for_the_journal_begin_with_their_priority() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_writer(move || writer.clone())
            .event_format(JournalLines)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(disk = 7, "a disk is gone");
            tracing::warn!("slow");
            tracing::info!("serving");
            tracing::debug!("details");
        });
        let text = String::from_utf8(lines.0.lock().expect("no panic").clone()).expect("text");
        let priorities: Vec<&str> = text.lines().filter_map(|line| line.get(..3)).collect();
        assert_eq!(priorities, ["<3>", "<4>", "<6>", "<7>"], "{text}");
        assert!(text.contains("a disk is gone disk=7"), "{text}");
    }
}
