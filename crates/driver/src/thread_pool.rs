//! Threads that come when there is work and go when there is none, for work that waits for others: directories, PAM.
//!
//! Owns how many there are at once and how much may wait. Never knows what it runs, and never joins a thread: one that
//! hangs in a library must not delay the exit.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Something to run.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Work that may wait for a thread.
const WAITING: usize = 1_000;
/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(10);
/// Modules of PAM keep buffers on the stack.
const STACK_BYTES: usize = 1024 * 1024;

/// A pool of threads and its queue.
pub(crate) struct ThreadPool {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    most: usize,
    work: Mutex<Work>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Work {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
    over: bool,
}

impl ThreadPool {
    /// No threads yet, and never more than `most`.
    pub(crate) fn new(name: &'static str, most: usize) -> ThreadPool {
        let (work, wakeup) = (Mutex::default(), Condvar::new());
        ThreadPool { shared: Arc::new(Shared { name, most, work, wakeup }) }
    }

    /// Runs it as soon as a thread is free.
    ///
    /// # Errors
    /// Too much waits already, or there is no thread to be had: it will never run.
    pub(crate) fn take(&self, job: Job) -> Result<(), Overloaded> {
        let mut work = self.shared.work();
        if work.waiting.len() >= WAITING {
            return Err(Overloaded);
        }
        work.waiting.push_back(job);
        if work.waiting.len() > work.idle && work.threads < self.shared.most {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name(self.shared.name.to_owned()).stack_size(STACK_BYTES);
            match builder.spawn(move || shared.serve()) {
                Ok(_) => work.threads += 1,
                Err(_) if work.threads == 0 => {
                    work.waiting.pop_back();
                    return Err(Overloaded);
                }
                // Those who are there get to it.
                Err(_) => {}
            }
        }
        drop(work);
        self.shared.wakeup.notify_one();
        Ok(())
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let mut work = self.shared.work();
        work.over = true;
        work.waiting.clear();
        drop(work);
        self.shared.wakeup.notify_all();
    }
}

/// Every thread is busy and the queue is full.
#[derive(Debug)]
pub(crate) struct Overloaded;

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn serve(&self) {
        let mut work = self.work();
        loop {
            if let Some(job) = work.waiting.pop_front() {
                drop(work);
                job();
                work = self.work();
                continue;
            }
            work.idle += 1;
            let (after, waited) =
                self.wakeup.wait_timeout(work, LINGER).unwrap_or_else(PoisonError::into_inner);
            work = after;
            work.idle -= 1;
            if work.over || (waited.timed_out() && work.waiting.is_empty()) {
                work.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_that_hangs_stops_no_other() {
        let threads = ThreadPool::new("test", 4);
        let (release, released) = channel::<()>();
        threads.take(Box::new(move || assert!(released.recv().is_err()))).unwrap();
        let (done, is_done) = channel();
        for number in 0..100 {
            let done = done.clone();
            threads.take(Box::new(move || done.send(number).unwrap())).unwrap();
        }
        let mut seen: Vec<i32> = is_done.iter().take(100).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        drop(release);
    }

    #[test]
    fn threads_and_waiting_work_have_an_end() {
        let threads = ThreadPool::new("test", 2);
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (started, has_started) = channel();
        for _ in 0..2 {
            let (released, started) = (Arc::clone(&released), started.clone());
            let hang = move || {
                started.send(()).unwrap();
                let _ = released.lock().unwrap().recv();
            };
            threads.take(Box::new(hang)).unwrap();
            has_started.recv().unwrap();
        }
        for _ in 0..WAITING {
            threads.take(Box::new(|| ())).unwrap();
        }
        assert!(threads.take(Box::new(|| ())).is_err());
        assert_eq!(threads.shared.work().threads, 2);
        drop(release);
    }

    #[test]
    fn a_thread_is_used_again() {
        let threads = ThreadPool::new("test", 8);
        for _ in 0..20 {
            let (done, is_done) = channel();
            threads.take(Box::new(move || done.send(()).unwrap())).unwrap();
            is_done.recv().unwrap();
            while threads.shared.work().idle == 0 {
                thread::yield_now();
            }
        }
        assert_eq!(threads.shared.work().threads, 1);
    }
}
