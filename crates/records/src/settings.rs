//! Facts about the server itself that stay the same for its whole life.
//!
//! Owns the record `settings/server`. Promises: made once, at the first start; relative identifiers only grow.

use crate::{BlockingState, Record, StateError, Stored, Typed};
use serde::{Deserialize, Serialize};
use types::Sid;

/// The first relative identifier given to an account, as Windows has it.
pub const FIRST_RELATIVE_ID: u32 = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// S-1-5-21-X-Y-Z: the server's own account domain.
    pub domain_sid: Sid,
    pub next_relative_id: u32,
    /// ServerGuid of MS-SMB2 2.2.4.
    pub server_guid: uuid::Uuid,
}

impl Record for ServerSettings {
    const PREFIX: &'static str = "settings/";
    fn id(&self) -> String {
        ID.into()
    }
}

pub(crate) const ID: &str = "server";

impl ServerSettings {
    /// The relative identifier of an account of this server's domain.
    pub(crate) fn relative_id_of(&self, sid: &Sid) -> Option<u32> {
        let id = sid.relative_id()?;
        (self.domain_sid.child(id).as_ref() == Some(sid)).then_some(id)
    }

    /// Whether this server has given the SID to an account, which may be deleted since.
    pub(crate) fn has_given(&self, sid: &Sid) -> bool {
        self.relative_id_of(sid).is_some_and(|id| id < self.next_relative_id)
    }

    /// The settings, made now if there are none.
    ///
    /// # Errors
    /// [`StateError`] of the state; `Unknown` if the system has no random numbers.
    pub fn open_or_create(state: &impl BlockingState) -> Result<Stored<Self>, StateError> {
        if let Some(found) = state.read(ID)? {
            return Ok(found);
        }
        let value = Self::random()?;
        let revision = state.write(&value, 0)?;
        Ok(Stored { revision, value })
    }

    fn random() -> Result<Self, StateError> {
        let mut bytes = [0; 28];
        getrandom::fill(&mut bytes)
            .map_err(|error| StateError::Unknown(format!("no random numbers from the system: {error}")))?;
        let (sub_authorities, guid) = bytes.split_at(12);
        let mut subs = vec![21];
        subs.extend(sub_authorities.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])));
        let mut guid_bytes = [0; 16];
        guid_bytes.copy_from_slice(guid);
        Ok(Self {
            domain_sid: Sid::new(5, &subs).map_err(|error| StateError::Unknown(error.to_string()))?,
            next_relative_id: FIRST_RELATIVE_ID,
            server_guid: uuid::Builder::from_random_bytes(guid_bytes).into_uuid(),
        })
    }
}
