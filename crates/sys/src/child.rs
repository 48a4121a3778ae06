//! Child processes that end with this one.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets the kernel kill the command's process when the thread that starts it ends, however it ends. That thread is to live for as
/// long as the process is needed. Also puts the process into a group of its own, so that Ctrl-C on a terminal reaches this process only.
pub fn die_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    command.process_group(0);
    let in_child = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before this call.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(in_child) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_child_is_killed_when_the_thread_that_started_it_ends() {
        let starting = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("1000");
            die_with_parent(&mut command);
            command.spawn().expect("a child")
        });
        let mut child = starting.join().expect("the thread");
        let status = child.wait().expect("its end");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }
}
