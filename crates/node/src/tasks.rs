//! Administrative work that takes many turns of the loop: futures polled once a turn, helper
//! threads for work that blocks, and the loop's time.
//!
//! Promises: a task gets the time passed to [`Tasks::tell_time`], so that one turn has one time and
//! no task reads a clock. Never for the data path: a task costs a poll per turn while it lives.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::mpsc::{TryRecvError, channel};
use std::task::{Context, Poll};
use std::time::Duration;
use sys::driver::Waker;
use types::{FileTime, Monotonic};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs tasks on the thread of the loop, and gives them the time.
///
/// Invariant: `running` is borrowed only while tasks are polled, so that a task may spawn others;
/// `now` never goes back.
pub struct Tasks {
    running: RefCell<Vec<Task>>,
    /// Tasks spawned while the running ones are polled.
    spawned: RefCell<Vec<Task>>,
    waker: Waker,
    now: Cell<Monotonic>,
    /// Time of day, and the loop's time when it was set.
    wall_clock: Cell<(Monotonic, FileTime)>,
    /// Earliest time at which a task needs a turn.
    wake_at: Cell<Option<Monotonic>>,
}

impl Tasks {
    /// Makes an empty list; `wall_clock` is the time of day at `now`.
    pub fn new(waker: Waker, now: Monotonic, wall_clock: FileTime) -> Self {
        Self {
            running: RefCell::default(),
            spawned: RefCell::default(),
            waker,
            now: Cell::new(now),
            wall_clock: Cell::new((now, wall_clock)),
            wake_at: Cell::default(),
        }
    }

    /// Begins a turn.
    pub fn tell_time(&self, now: Monotonic) {
        debug_assert!(now >= self.now.get(), "the time went back");
        self.now.set(now);
        if self.wake_at.get().is_some_and(|at| at <= now) {
            // Tasks that still wait request it again when they are polled.
            self.wake_at.set(None);
        }
    }

    /// Sets the time of day, which an administrator may change.
    pub fn set_wall_clock(&self, now: Monotonic, wall_clock: FileTime) {
        self.wall_clock.set((now, wall_clock));
    }

    /// Returns the time of the present turn.
    pub fn now(&self) -> Monotonic {
        self.now.get()
    }

    /// Returns the time of day.
    pub fn wall_clock(&self) -> FileTime {
        let (told_at, told) = self.wall_clock.get();
        let passed = self.now().since(told_at);
        FileTime::from_unix_nanos(told.to_unix_nanos() + passed.as_nanos() as i128)
    }

    /// Returns the seconds since 1970-01-01 00:00 UTC.
    pub fn unix_seconds(&self) -> u64 {
        u64::try_from(self.wall_clock().to_unix_nanos() / NANOS_PER_SECOND).unwrap_or(0)
    }

    /// Makes the loop take a turn at this time.
    pub fn wake_at(&self, at: Monotonic) {
        self.wake_at.set(Some(self.wake_at.get().map_or(at, |earlier| earlier.min(at))));
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns the time at which a task needs a turn.
    pub fn next_wake(&self) -> Option<Monotonic> {
        self.wake_at.get()
    }

    /// Runs a task from the next poll of tasks on.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.spawned.borrow_mut().push(Box::pin(task));
    }

    /// Whether no task is left.
    pub fn is_empty(&self) -> bool {
        self.running.borrow().is_empty() && self.spawned.borrow().is_empty()
    }

    /// Drops the tasks that have not ended: some own the parts that run them, and would keep these,
    /// with their sockets, for ever.
    pub fn end(&self) {
        loop {
            let left = [self.running.take(), self.spawned.take()];
            if left.iter().all(Vec::is_empty) {
                return;
            }
        }
    }

    /// Polls every task. `true`: one has ended or begun.
    pub fn poll(&self) -> bool {
        let mut running = self.running.borrow_mut();
        let before = running.len();
        running.append(&mut self.spawned.borrow_mut());
        let began = running.len() > before;
        let mut context = Context::from_waker(std::task::Waker::noop());
        let all = running.len();
        running.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        began || running.len() < all
    }

    /// Waits for `time`.
    pub async fn rest(&self, time: Duration) {
        let rested = self.now().after(time);
        until(|| {
            self.wake_at(rested);
            (self.now() >= rested).then_some(())
        })
        .await;
    }

    /// Waits until `ready` returns an answer; `None` if it has none by `patience`.
    pub async fn until_late<T>(
        &self,
        patience: Monotonic,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        until(|| {
            self.wake_at(patience);
            ready().map(Some).or_else(|| (self.now() >= patience).then_some(None))
        })
        .await
    }

    /// Does `work`, which blocks, on a thread of its own. `None` if no thread can be started, or
    /// `work` panicked.
    pub async fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        blocking(self.waker.clone(), work).await
    }
}

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Does `work`, which blocks, on a thread of its own. `None` if no thread can be started, or `work`
/// panicked.
async fn blocking<T: Send + 'static>(waker: Waker, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = channel();
    let wake = WakeOnDrop(waker);
    let thread = std::thread::Builder::new().name("cenote-helper".to_owned()).spawn(move || {
        // Dropped last, after a panic too.
        let _wake = wake;
        // If the data plane has ended, nothing waits for the result.
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

struct WakeOnDrop(Waker);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Waits until `ready`, called once a turn, returns an answer.
pub async fn until<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    poll_fn(|_| ready().map_or(Poll::Pending, Poll::Ready)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;
    use sys::driver::{Driver, DriverChoice};

    fn tasks(driver: &Driver) -> Tasks {
        Tasks::new(driver.waker(), Monotonic(1), FileTime::from_unix_nanos(0))
    }

    #[test]
    fn a_task_that_rests_has_the_loop_woken_and_goes_on_when_it_is_told_the_time() {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let tasks = Rc::new(tasks(&driver));
        let resting = tasks.clone();
        tasks.spawn(async move { resting.rest(Duration::from_secs(2)).await });
        tasks.poll();
        let due = Monotonic(1).after(Duration::from_secs(2));
        assert_eq!(tasks.next_wake(), Some(due));
        tasks.tell_time(Monotonic(2));
        tasks.poll();
        assert!(!tasks.is_empty());
        tasks.tell_time(due);
        tasks.poll();
        assert!(tasks.is_empty() && tasks.unix_seconds() == 2);
    }

    #[test]
    fn tasks_that_have_not_come_to_their_end_are_dropped_with_what_they_hold() {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let tasks = Rc::new(tasks(&driver));
        for _ in 0..2 {
            let held = tasks.clone();
            tasks.spawn(async move {
                std::future::pending::<()>().await;
                drop(held);
            });
            tasks.poll();
        }
        let held = tasks.clone();
        tasks.spawn(async move { drop(held) });
        tasks.end();
        assert_eq!((tasks.is_empty(), Rc::strong_count(&tasks)), (true, 1));
    }

    #[test]
    fn a_wait_that_is_late_ends_without_an_answer() {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let tasks = Rc::new(tasks(&driver));
        let (waiting, answer) = (tasks.clone(), Rc::new(Cell::new(Some(1))));
        let told = answer.clone();
        tasks.spawn(async move { told.set(waiting.until_late(Monotonic(9), || None).await) });
        tasks.poll();
        assert_eq!(answer.get(), Some(1));
        tasks.tell_time(Monotonic(9));
        tasks.poll();
        assert_eq!(answer.get(), None);
    }

    #[test]
    fn a_task_waits_for_its_helper_thread_and_wakes_the_loop() {
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let tasks = tasks(&driver);
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
        let tasks = tasks(&driver);
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
        let driver = Driver::new(DriverChoice::Automatic).expect("a loop");
        let tasks = Rc::new(tasks(&driver));
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
