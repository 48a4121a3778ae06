//! How many descriptors the process may have.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit of descriptors as far as is allowed, and gives it. `tell` hears why it cannot be raised.
pub fn raise_descriptor_limit(tell: impl FnOnce(std::io::Error)) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tell(error.into());
            limit.current = before;
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let raised = raise_descriptor_limit(|error| panic!("{error}"));
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert_eq!(limit.current.unwrap_or(u64::MAX), raised);
    }
}
