//! The preauthentication integrity hash of SMB 3.1.1 (MS-SMB2 3.1.4.4 and 3.3.5.4, 3.3.5.5).

use aws_lc_rs::digest::{Context, SHA512};

/// A running SHA-512 over all NEGOTIATE and SESSION_SETUP messages, in order.
///
/// The connection keeps one over NEGOTIATE; each session being set up continues from a copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreauthHash([u8; 64]);

impl Default for PreauthHash {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl PreauthHash {
    /// Adds one whole message, from its SMB2 header to its end.
    pub fn update(&mut self, message: &[u8]) {
        self.update_parts(&[message]);
    }

    /// Adds one message that lies in several parts.
    pub fn update_parts(&mut self, parts: &[&[u8]]) {
        let mut context = Context::new(&SHA512);
        context.update(&self.0);
        parts.iter().for_each(|part| context.update(part));
        self.0.copy_from_slice(context.finish().as_ref());
    }

    /// The value, which is the context of all keys of SMB 3.1.1.
    pub fn value(&self) -> &[u8; 64] {
        &self.0
    }
}
