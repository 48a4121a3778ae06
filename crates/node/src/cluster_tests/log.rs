//! Log lines of one test's thread.
//!
//! A thread's default subscriber would miss lines. `tracing` decides once for all threads whether a
//! place in the code has a listener, when the first thread gets there, and that may be another
//! test's, without a subscriber. So there is one subscriber for the process.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, Once};
use tracing::subscriber::{Interest, set_global_default};

thread_local! {
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// Lines, with their levels and fields.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Keeps what this thread logs from now on.
    pub fn of_this_thread() -> Self {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            set_global_default(OfThreads).expect("no other test has one");
            // For places in the code that threads have reached before.
            tracing::callsite::rebuild_interest_cache();
        });
        let log = Self::default();
        LOG.set(Some(log.clone()));
        log
    }

    /// Whether a line has all these parts.
    pub fn tells(&self, parts: &[&str]) -> bool {
        let lines = self.0.lock().expect("no thread panics while it holds it");
        lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

struct OfThreads;

impl tracing::Subscriber for OfThreads {
    fn register_callsite(&self, _: &'static tracing::Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        LOG.with_borrow(Option::is_some)
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let Some(log) = LOG.with_borrow(Clone::clone) else { return };
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
            line.push_str(&format!(" {field}={value:?}"));
        });
        log.0.lock().expect("no thread panics while it holds it").push(line);
    }
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}

#[test]
fn a_line_is_kept_although_another_thread_came_to_its_place_first() {
    let log = Log::of_this_thread();
    let tell = |of: &str| tracing::warn!(of, "a line");
    std::thread::scope(|scope| scope.spawn(|| tell("another")).join()).expect("it ends");
    tell("this");
    assert!(log.tells(&["WARN", "of=\"this\"", "a line"]));
    assert!(!log.tells(&["another"]));
}
