//! Administrative work that takes many turns of the loop: futures polled once a turn, and helper threads for what blocks.
//!
//! Never for the data path: a task costs a poll per turn while it lives.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::mpsc::{TryRecvError, channel};
use std::task::{Context, Poll, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs tasks on the thread of the loop.
#[derive(Default)]
pub struct Tasks {
    running: RefCell<Vec<Task>>,
    /// Spawned while the running ones are polled.
    spawned: RefCell<Vec<Task>>,
}

impl Tasks {
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.spawned.borrow_mut().push(Box::pin(task));
    }

    pub fn is_empty(&self) -> bool {
        self.running.borrow().is_empty() && self.spawned.borrow().is_empty()
    }

    /// Lets every task go on as far as it can. `true`: one has ended or begun.
    pub fn poll(&self) -> bool {
        let mut running = self.running.borrow_mut();
        let before = running.len();
        running.append(&mut self.spawned.borrow_mut());
        let began = running.len() > before;
        let mut context = Context::from_waker(Waker::noop());
        let all = running.len();
        running.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        began || running.len() < all
    }
}

/// Does something that blocks on a thread of its own. `None` where no thread can be had, or it panicked.
pub async fn blocking<T: Send + 'static>(
    waker: sys::driver::Waker,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = channel();
    let wake = WakeOnDrop(waker);
    let thread = std::thread::Builder::new().name("cenote-helper".to_owned()).spawn(move || {
        // Dropped last, after a panic too.
        let _wake = wake;
        // Nobody waits for it any more where the data plane has ended.
        let _ = done.send(work());
    });
    if thread.is_err() {
        return None;
    }
    poll_fn(|_| match result.try_recv() {
        Ok(value) => Poll::Ready(Some(value)),
        Err(TryRecvError::Disconnected) => Poll::Ready(None),
        Err(TryRecvError::Empty) => Poll::Pending,
    })
    .await
}

struct WakeOnDrop(sys::driver::Waker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Waits until `ready` says so; asked once a turn.
pub async fn until<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    poll_fn(|_| ready().map_or(Poll::Pending, Poll::Ready)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;
    use sys::driver::{Driver, DriverChoice};

    #[test]
    fn a_task_waits_for_its_helper_thread_and_wakes_the_loop() {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let tasks = Tasks::default();
        let found = Rc::new(Cell::new(0));
        let (into, waker) = (found.clone(), driver.waker());
        tasks.spawn(async move {
            into.set(blocking(waker, || 41).await.unwrap_or(0) + 1);
        });
        while !tasks.is_empty() {
            tasks.poll();
            if !tasks.is_empty() {
                driver.wait(Some(Duration::from_secs(20))).expect("the loop");
            }
        }
        assert_eq!(found.get(), 42);
    }

    #[test]
    fn a_helper_that_panics_answers_nothing() {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let tasks = Tasks::default();
        let ended = Rc::new(Cell::new(false));
        let (seen, waker) = (ended.clone(), driver.waker());
        tasks.spawn(async move {
            let result: Option<u32> = blocking(waker, || std::panic::resume_unwind(Box::new(()))).await;
            seen.set(result.is_none());
        });
        tasks.poll();
        while !tasks.is_empty() {
            driver.wait(Some(Duration::from_secs(20))).expect("the loop");
            tasks.poll();
        }
        assert!(ended.get());
    }

    #[test]
    fn a_task_may_spawn_another() {
        let tasks = Rc::new(Tasks::default());
        let count = Rc::new(Cell::new(0));
        let (inner, counter) = (tasks.clone(), count.clone());
        tasks.spawn(async move {
            let counter_of_inner = counter.clone();
            inner.spawn(async move { counter_of_inner.set(counter_of_inner.get() + 1) });
            counter.set(counter.get() + 1);
        });
        while !tasks.is_empty() {
            tasks.poll();
        }
        assert_eq!(count.get(), 2);
    }
}
