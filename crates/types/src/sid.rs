//! Security identifiers (MS-DTYP 2.4.2).

use serde::{Deserialize, Serialize};
use std::fmt;

/// A SID: authority and at most 15 sub-authorities.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Sid {
    authority: u64,
    sub_authorities: Vec<u32>,
}

/// Why bytes or text are not a SID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a security identifier (S-1-AUTHORITY-SUBAUTHORITY...)")]
pub struct InvalidSid;

impl Sid {
    /// Most sub-authorities of a SID (MS-DTYP 2.4.2.2).
    pub const SUB_AUTHORITIES_MAX: usize = 15;

    /// # Errors
    /// [`InvalidSid`] for an authority over 48 bits or more than 15 sub-authorities.
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Result<Self, InvalidSid> {
        if authority >> 48 != 0 || sub_authorities.len() > Self::SUB_AUTHORITIES_MAX {
            return Err(InvalidSid);
        }
        Ok(Self { authority, sub_authorities: sub_authorities.to_vec() })
    }

    /// S-1-1-0, Everyone.
    pub fn everyone() -> Self {
        Self { authority: 1, sub_authorities: vec![0] }
    }
    /// S-1-3-0, CREATOR OWNER.
    pub fn creator_owner() -> Self {
        Self { authority: 3, sub_authorities: vec![0] }
    }
    /// S-1-3-1, CREATOR GROUP.
    pub fn creator_group() -> Self {
        Self { authority: 3, sub_authorities: vec![1] }
    }
    /// S-1-3-4, OWNER RIGHTS.
    pub fn owner_rights() -> Self {
        Self { authority: 3, sub_authorities: vec![4] }
    }
    /// S-1-5-7, ANONYMOUS LOGON.
    pub fn anonymous() -> Self {
        Self { authority: 5, sub_authorities: vec![7] }
    }
    /// S-1-5-11, Authenticated Users.
    pub fn authenticated_users() -> Self {
        Self { authority: 5, sub_authorities: vec![11] }
    }
    /// The machine accounts of the cluster's nodes: formed as Windows forms the SID of a service (MS-DTYP 2.4.2.4, S-1-5-80), of the
    /// name CENOTE-NODES.
    pub fn cluster_nodes() -> Self {
        let service = vec![80, 444_895_981, 2_005_302_585, 2_996_396_284, 3_687_563_118, 217_407_457];
        Self { authority: 5, sub_authorities: service }
    }
    /// S-1-5-18, LOCAL SYSTEM.
    pub fn local_system() -> Self {
        Self { authority: 5, sub_authorities: vec![18] }
    }
    /// S-1-5-2, NETWORK.
    pub fn network() -> Self {
        Self { authority: 5, sub_authorities: vec![2] }
    }
    /// S-1-5-32-544, BUILTIN\Administrators.
    pub fn administrators() -> Self {
        Self { authority: 5, sub_authorities: vec![32, 544] }
    }
    /// S-1-5-32-545, BUILTIN\Users.
    pub fn users() -> Self {
        Self { authority: 5, sub_authorities: vec![32, 545] }
    }
    /// S-1-5-32-546, BUILTIN\Guests.
    pub fn guests() -> Self {
        Self { authority: 5, sub_authorities: vec![32, 546] }
    }

    pub fn authority(&self) -> u64 {
        self.authority
    }
    pub fn sub_authorities(&self) -> &[u32] {
        &self.sub_authorities
    }
    /// The last sub-authority: the relative identifier within its domain.
    pub fn relative_id(&self) -> Option<u32> {
        self.sub_authorities.last().copied()
    }
    /// The SID of `relative_id` in the domain that this SID names; `None` if there is no space.
    pub fn child(&self, relative_id: u32) -> Option<Self> {
        let mut child = self.clone();
        child.sub_authorities.push(relative_id);
        (child.sub_authorities.len() <= Self::SUB_AUTHORITIES_MAX).then_some(child)
    }
    /// Bytes of its binary form.
    pub fn len_bytes(&self) -> usize {
        8 + 4 * self.sub_authorities.len()
    }

    /// The binary form (MS-DTYP 2.4.2.2).
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[1, self.sub_authorities.len() as u8]);
        out.extend_from_slice(&self.authority.to_be_bytes()[2..]);
        for sub in &self.sub_authorities {
            out.extend_from_slice(&sub.to_le_bytes());
        }
    }

    /// Reads the binary form from the front of `bytes`; longer input is fine.
    ///
    /// # Errors
    /// [`InvalidSid`] if it is cut short, has another revision or too many sub-authorities.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidSid> {
        let [1, count, rest @ ..] = bytes else { return Err(InvalidSid) };
        let count = usize::from(*count);
        if count > Self::SUB_AUTHORITIES_MAX || rest.len() < 6 + 4 * count {
            return Err(InvalidSid);
        }
        let authority = rest[..6].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let sub_authorities = rest[6..6 + 4 * count]
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
            .collect();
        Ok(Self { authority, sub_authorities })
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S-1-{}", self.authority)?;
        self.sub_authorities.iter().try_for_each(|sub| write!(f, "-{sub}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Sid {
    type Err = InvalidSid;
    fn from_str(text: &str) -> Result<Self, InvalidSid> {
        let mut parts = text.strip_prefix("S-1-").ok_or(InvalidSid)?.split('-');
        let authority = parts.next().and_then(|part| part.parse().ok()).ok_or(InvalidSid)?;
        let subs: Vec<u32> = parts.map(str::parse).collect::<Result<_, _>>().map_err(|_| InvalidSid)?;
        Self::new(authority, &subs)
    }
}

impl From<Sid> for String {
    fn from(sid: Sid) -> Self {
        sid.to_string()
    }
}

impl TryFrom<String> for Sid {
    type Error = InvalidSid;
    fn try_from(text: String) -> Result<Self, InvalidSid> {
        text.parse()
    }
}
