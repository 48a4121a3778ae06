//! SIGINT and SIGTERM as a counter, for programs that end their work in order instead of dying; SIGPIPE for those that print.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_signal: libc::c_int) {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Counts SIGINT and SIGTERM from here on. The second one of a kind ends the process as if nothing had been installed.
///
/// # Errors
/// The kernel's.
pub fn install() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all zero is a valid sigaction; the handler only adds to an atomic, which signals may.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// A write to a pipe that nobody reads any more ends the process, as it does other commands in a pipeline. Not for programs whose
/// sockets are written to by other means than the standard library's.
pub fn end_on_broken_pipe() {
    // SAFETY: the default action is valid for every signal, and no handler is replaced that anybody waits for.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Signals that have come.
pub fn received() -> u32 {
    COUNT.load(Ordering::Relaxed)
}
