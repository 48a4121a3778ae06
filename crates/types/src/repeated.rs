//! Failures that repeat, for the log: reported once, and counted until they are over.

use std::cell::Cell;

/// How often in a row something has failed.
#[derive(Debug, Default)]
pub struct Repeated(Cell<u64>);

impl Repeated {
    /// Notes a failure; `true` the first time: then it should be reported.
    pub fn note_failure(&self) -> bool {
        self.0.replace(self.0.get() + 1) == 0
    }

    /// Notes a success; returns the number of failures before it, if any: then the recovery should be
    /// reported.
    pub fn note_success(&self) -> Option<u64> {
        let failures = self.0.take();
        (failures > 0).then_some(failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_said_once_and_its_end_with_how_often_it_came() {
        let repeated = Repeated::default();
        assert_eq!(repeated.note_success(), None);
        assert_eq!([(); 3].map(|()| repeated.note_failure()), [true, false, false]);
        assert_eq!((repeated.note_success(), repeated.note_success()), (Some(3), None));
        assert!(repeated.note_failure(), "it is another one");
    }
}
