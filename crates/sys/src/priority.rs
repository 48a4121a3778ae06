//! Which threads run first on a machine that has more to do than it can.
//!
//! The kernel grants this only to processes that may ask for it (RLIMIT_RTPRIO and RLIMIT_NICE, or CAP_SYS_NICE). Threads that these ones start do
//! not inherit it.

use std::io::{Error, Result};

/// The lowest of all real-time priorities: before every thread that has none, behind the kernel's own.
const REAL_TIME_PRIORITY: libc::c_int = 1;
/// Weighs about nine times as much as a thread of the usual niceness.
const NICENESS_AHEAD: libc::c_int = -10;

/// Has the calling thread run as soon as it is ready. Only for a thread that needs little: it is not interrupted for one without real-time
/// priority, and the kernel's bound for all of them together (`kernel.sched_rt_runtime_us`) guards the others.
///
/// # Errors
/// The process may not; nothing is changed then.
pub fn ask_for_real_time() -> Result<()> {
    schedule(libc::SCHED_RR, REAL_TIME_PRIORITY)
}

/// Has the calling thread run like others again, after [`ask_for_real_time`].
pub fn give_real_time_up() {
    // A thread may always give up a priority.
    let _ = schedule(libc::SCHED_OTHER, 0);
}

/// Has the calling thread run before others, which get their share still.
///
/// # Errors
/// The process may not; nothing is changed then.
pub fn ask_for_precedence() -> Result<()> {
    schedule(libc::SCHED_OTHER, 0)?;
    // SAFETY: the call takes no memory. On Linux it is of the calling thread alone.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS_AHEAD) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

fn schedule(policy: libc::c_int, sched_priority: libc::c_int) -> Result<()> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the kernel reads the parameters during the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy and the niceness of the calling thread.
    fn standing() -> (libc::c_int, libc::c_int) {
        // SAFETY: neither call takes memory; both are of the calling thread.
        unsafe {
            (
                libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK,
                libc::getpriority(libc::PRIO_PROCESS, 0),
            )
        }
    }

    #[test]
    fn a_thread_has_what_it_was_granted_and_those_that_it_starts_have_not() {
        let usual = standing();
        let asked = std::thread::spawn(move || {
            let granted = ask_for_real_time().is_ok();
            assert_eq!(standing().0 == libc::SCHED_RR, granted);
            assert_eq!(std::thread::spawn(standing).join().expect("a thread"), usual);
            give_real_time_up();
            assert_eq!(standing(), usual);
        });
        asked.join().expect("a thread");
        let asked = std::thread::spawn(move || {
            let granted = ask_for_precedence().is_ok();
            assert_eq!(standing().1 == NICENESS_AHEAD, granted);
            assert_eq!(std::thread::spawn(standing).join().expect("a thread"), usual);
        });
        asked.join().expect("a thread");
    }
}
