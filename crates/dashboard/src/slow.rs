//! Facts that take a while to look up.

use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// A value that a task looks up in the background, kept until the next one.
pub struct Slow<T> {
    kept: Arc<Mutex<Option<T>>>,
    task: Option<JoinHandle<()>>,
}

impl<T: Clone + Send + 'static> Slow<T> {
    pub fn new() -> Self {
        Self { kept: Arc::default(), task: None }
    }

    /// Begins another look-up, unless one is under way.
    pub fn refresh(&mut self, look: impl Future<Output = Option<T>> + Send + 'static) {
        if self.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let kept = self.kept.clone();
        self.task = Some(tokio::spawn(async move {
            if let Some(found) = look.await {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            }
        }));
    }

    pub fn last(&self) -> Option<T> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<T> Drop for Slow<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
