//! Queries and changes of security descriptors (MS-FSA 2.1.5.13, 2.1.5.16).

use super::notify;
use super::{Halt, Service};
use crate::backend::{OpenId, Reply};
use crate::security::{self, Parts, SecurityDescriptor};

impl Service {
    pub(super) fn query_security(&mut self, id: OpenId, parts: u32) -> Result<Reply, Halt> {
        let parts = Parts::from_bits_truncate(parts);
        let file = self.open_for(id, parts.access_to_query())?.stream.file;
        let attributes = self.fs.attributes(file)?;
        let descriptor = self.descriptor(&attributes)?;
        Ok(Reply::Security(security::select(&descriptor, parts).build()?))
    }

    pub(super) fn set_security(&mut self, id: OpenId, parts: u32, descriptor: &[u8]) -> Result<Reply, Halt> {
        let parts = Parts::from_bits_truncate(parts);
        let access = parts.access_to_set();
        let open = self.open_for(id, access)?;
        // Who names no part has shown no right to change anything, the time of the last change included.
        if access == 0 {
            return Ok(Reply::Done);
        }
        let (file, token) = (open.stream.file, open.token.clone());
        let new = SecurityDescriptor::parse(descriptor)?;
        let attributes = self.fs.attributes(file)?;
        let current = self.descriptor(&attributes)?;
        let changed = security::change(&current, &new, parts, &token)?.build()?;
        let now = self.time();
        self.fs.set_security(file, &changed, now)?;
        if let Some(open) = self.opens.get_mut(id) {
            open.dirty = true;
        }
        self.tell_modified(id, notify::SECURITY);
        Ok(Reply::Done)
    }
}
