//! Tasks of a runtime, one for each of what a configuration wants.

use tokio::task::{self, AbortHandle};

/// The tasks that run, and what each is for.
pub struct Tasks<T>(Vec<(T, AbortHandle)>);

impl<T> Default for Tasks<T> {
    fn default() -> Tasks<T> {
        Tasks(Vec::new())
    }
}

impl<T: Clone + PartialEq> Tasks<T> {
    /// Ends those for what is not wanted any more, and begins those that are missing. Inside of a runtime.
    pub fn keep<Task>(&mut self, mut wanted: Vec<T>, begin: impl Fn(T) -> Task)
    where
        Task: Future<Output = ()> + Send + 'static,
    {
        self.0.retain(|(one, task)| {
            let is_wanted = wanted.contains(one);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        wanted.retain(|one| self.0.iter().all(|(other, _)| other != one));
        self.0.extend(wanted.into_iter().map(|one| (one.clone(), task::spawn(begin(one)).abort_handle())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[tokio::test]
    async fn tasks_are_those_that_are_wanted() {
        let (begun, mut tasks) = (RefCell::new(Vec::new()), Tasks::default());
        for wanted in [vec![1, 2], vec![2, 3], vec![1]] {
            tasks.keep(wanted, |number| {
                begun.borrow_mut().push(number);
                std::future::pending()
            });
        }
        let kept: Vec<_> = tasks.0.iter().map(|(number, task)| (*number, task.is_finished())).collect();
        assert_eq!((begun.into_inner(), kept), (vec![1, 2, 3, 1], vec![(1, false)]));
    }
}
