//! The metadata store: an ordered map from keys to small values, changed by transactions.

mod gaps;
pub mod journal;
pub mod key;
pub mod log;
pub mod merge;
pub mod page;
pub mod record;
mod store;
#[cfg(test)]
mod tests;
mod transaction;
mod tree;

use std::ops::Deref;
use std::rc::Rc;

pub use key::Key;
pub use store::Store;
pub use transaction::{BlockRun, Changes, Charge, ChunkUse, Transaction};
pub use tree::Tree;

use page::Page;

/// Largest value; longer things are stored in pieces.
pub const VALUE_BYTES_MAX: usize = 3072;

/// A stored value.
#[derive(Debug, Clone)]
pub enum Value {
    Overlay(Rc<[u8]>),
    InPage { page: Rc<Page>, start: usize, len: usize },
}

impl Value {
    fn in_page(page: &Rc<Page>, index: usize) -> Self {
        let (start, len) = page.value_place(index);
        Self::InPage { page: page.clone(), start, len }
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Overlay(bytes) => bytes,
            Self::InPage { page, start, len } => &page.bytes()[*start..*start + *len],
        }
    }
}
