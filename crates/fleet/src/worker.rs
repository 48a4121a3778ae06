//! `fleet worker`: one machine's part in a run, in processes (`machine`) or in QEMU machines (`microvm`).
//!
//! It reads one job from its standard input and answers on its standard output; when its input ends, or
//! on SIGINT, it stops the workers.

use crate::job::{Answer, Job, LINE_BYTES_MAX, line};
use crate::{machine, microvm};
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Reads the job, runs it, and answers. `is_interrupted`: whether somebody asked for an end.
///
/// # Errors
/// The job cannot be read or the answer cannot be written; an error of the run is an answer.
pub fn serve(is_interrupted: &dyn Fn() -> bool) -> io::Result<()> {
    let mut text = String::new();
    io::stdin().lock().take(LINE_BYTES_MAX).read_line(&mut text)?;
    let job: Job = serde_json::from_str(&text).map_err(io::Error::other)?;
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = has_ended.clone();
    std::thread::spawn(move || {
        // Machines get no more messages: the end of its input is the end of the run.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        ended.store(true, Ordering::Relaxed);
    });
    let is_stopped = || is_interrupted() || has_ended.load(Ordering::Relaxed);
    let mut tell = |answer: &Answer| {
        let mut out = io::stdout().lock();
        out.write_all(line(answer).as_bytes()).and_then(|()| out.flush())
    };
    let result = match &job.microvms {
        Some(microvms) => microvm::host::work(&job, microvms, &is_stopped, &mut tell),
        None => machine::work(&job, &is_stopped, &mut tell),
    };
    let answer = match result {
        Ok(done) => Answer::Done(done),
        Err(why) => Answer::Failed(why),
    };
    tell(&answer)
}
