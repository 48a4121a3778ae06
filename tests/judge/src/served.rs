//! A disk as the file system serves it: answering, slow, hanging or gone.
//!
//! Promises: a hanging disk performs and answers its requests when it is cleared; one that goes away
//! answers everything with ENODEV, and nobody finds its file.

use crate::disk::{Disk, Errno, Request};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub type Answer = Box<dyn FnOnce(Result<Vec<u8>, Errno>) + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Answering,
    /// Each operation is done after this time.
    Slow(Duration),
    Hanging,
    Gone,
}

struct State {
    disk: Disk,
    mood: Mood,
    /// Requests that came while it hung.
    waiting: Vec<(Request, Answer)>,
}

pub struct Served {
    pub name: String,
    state: Mutex<State>,
}

impl Served {
    pub fn new(name: &str, size_bytes: u64) -> Self {
        let state = State { disk: Disk::new(size_bytes), mood: Mood::Answering, waiting: Vec::new() };
        Self { name: name.to_owned(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn with_disk<R>(&self, action: impl FnOnce(&mut Disk) -> R) -> R {
        action(&mut self.state().disk)
    }

    pub fn is_gone(&self) -> bool {
        self.state().mood == Mood::Gone
    }

    pub fn submit(self: &Arc<Self>, request: Request, answer: Answer) {
        let mut state = self.state();
        match state.mood {
            Mood::Answering => answer(state.disk.perform(&request)),
            Mood::Slow(pause) => {
                let served = Arc::clone(self);
                std::thread::spawn(move || {
                    std::thread::sleep(pause);
                    answer(served.with_disk(|disk| disk.perform(&request)));
                });
            }
            Mood::Hanging => state.waiting.push((request, answer)),
            Mood::Gone => answer(Err(libc::ENODEV)),
        }
    }

    pub fn become_(&self, mood: Mood) {
        let mut state = self.state();
        state.mood = mood;
        if mood == Mood::Hanging {
            return;
        }
        for (request, answer) in std::mem::take(&mut state.waiting) {
            answer(if mood == Mood::Gone { Err(libc::ENODEV) } else { state.disk.perform(&request) });
        }
    }
}
