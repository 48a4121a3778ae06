//! Security descriptors, ACLs and ACEs: self-relative form to values and back (MS-DTYP 2.4.4 to 2.4.6).
//!
//! Promises: a parsed descriptor builds again to one that parses to the same value. Never decides about access.

use super::rights;
use types::{NtStatus, Sid};

/// Longest accepted descriptor in bytes: twice the most that an ACL's 16-bit size allows, with owner
/// and group.
pub const DESCRIPTOR_BYTES_MAX: usize = 2 * 65_536 + 256;

const HEADER_BYTES: usize = 20;
const ACL_HEADER_BYTES: usize = 8;
/// ACL_REVISION and ACL_REVISION_DS (MS-DTYP 2.4.5).
const ACL_REVISION: u8 = 2;
const ACL_REVISION_DS: u8 = 4;

bitflags::bitflags! {
    /// MS-DTYP 2.4.6 Control.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Control: u16 {
        /// OD: the owner came from a default.
        const OWNER_DEFAULTED = 0x0001;
        /// GD: the group came from a default.
        const GROUP_DEFAULTED = 0x0002;
        /// DP: the descriptor has a DACL, which may be NULL.
        const DACL_PRESENT = 0x0004;
        /// DD: the DACL came from a default.
        const DACL_DEFAULTED = 0x0008;
        /// SP: the descriptor has a SACL, which may be NULL.
        const SACL_PRESENT = 0x0010;
        /// SD: the SACL came from a default.
        const SACL_DEFAULTED = 0x0020;
        /// DT: the DACL comes from a trusted source.
        const DACL_TRUSTED = 0x0040;
        /// SS: make a server ACL of the input.
        const SERVER_SECURITY = 0x0080;
        /// DC: propagate the DACL to children.
        const DACL_AUTO_INHERIT_REQUIRED = 0x0100;
        /// SC: propagate the SACL to children.
        const SACL_AUTO_INHERIT_REQUIRED = 0x0200;
        /// DI: the DACL was made by inheritance.
        const DACL_AUTO_INHERITED = 0x0400;
        /// SI: the SACL was made by inheritance.
        const SACL_AUTO_INHERITED = 0x0800;
        /// PD: the DACL takes no entries from the parent.
        const DACL_PROTECTED = 0x1000;
        /// PS: the SACL takes no entries from the parent.
        const SACL_PROTECTED = 0x2000;
        /// RM: the byte Sbz1 carries control bits of a resource manager.
        const RM_CONTROL_VALID = 0x4000;
        /// SR: the parts follow in the same buffer, as offsets.
        const SELF_RELATIVE = 0x8000;
    }

    /// MS-DTYP 2.4.4.1 AceFlags.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct AceFlags: u8 {
        /// Files in the directory inherit the entry.
        const OBJECT_INHERIT = 0x01;
        /// Directories in the directory inherit the entry.
        const CONTAINER_INHERIT = 0x02;
        /// Children inherit the entry, and their own children do not.
        const NO_PROPAGATE_INHERIT = 0x04;
        /// The entry is for children, and has no effect on the directory itself.
        const INHERIT_ONLY = 0x08;
        /// The entry came from a parent directory.
        const INHERITED = 0x10;
        /// An audit entry reports accesses that are granted.
        const SUCCESSFUL_ACCESS = 0x40;
        /// An audit entry reports accesses that are refused.
        const FAILED_ACCESS = 0x80;
        const _ = !0;
    }
}

/// MS-DTYP 2.4.4.1 AceType.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AceKind {
    /// ACCESS_ALLOWED_ACE_TYPE (0): grants the rights of its mask.
    Allow,
    /// ACCESS_DENIED_ACE_TYPE (1): refuses the rights of its mask.
    Deny,
    /// Audit, alarm, label, attribute, policy and conditional ACEs: kept, and without effect on access. The number is the type's.
    Other(u8),
}

impl AceKind {
    const fn from_wire(kind: u8) -> Option<Self> {
        match kind {
            0 => Some(Self::Allow),
            1 => Some(Self::Deny),
            2 | 3 | 5..=0x14 => Some(Self::Other(kind)),
            _ => None,
        }
    }
    const fn to_wire(self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Deny => 1,
            Self::Other(kind) => kind,
        }
    }
    /// Object ACEs have flags and up to two GUIDs before the SID (MS-DTYP 2.4.4.3).
    const fn has_object(self) -> bool {
        matches!(self, Self::Other(5..=8 | 11 | 12 | 15 | 16))
    }
}

/// Access control entry: rights of one account (MS-DTYP 2.4.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ace {
    /// Type of the entry: it grants, refuses or does neither.
    pub kind: AceKind,
    /// Inheritance and audit flags; unknown bits are preserved.
    pub flags: AceFlags,
    /// Access rights (MS-SMB2 2.2.13.1), generic ones possibly among them.
    pub mask: u32,
    /// Account or group that the entry applies to.
    pub sid: Sid,
    /// Flags and GUIDs of an object ACE, as on the wire.
    pub(super) object: Box<[u8]>,
    /// The bytes that follow the SID (conditions, attributes).
    pub(super) tail: Box<[u8]>,
}

impl Ace {
    /// Makes an entry without object GUIDs and without bytes behind the SID.
    pub fn new(kind: AceKind, flags: AceFlags, mask: u32, sid: Sid) -> Self {
        Self { kind, flags, mask, sid, object: Box::default(), tail: Box::default() }
    }

    /// Makes an ACE that allows.
    pub fn allow(sid: Sid, mask: u32, flags: AceFlags) -> Self {
        Self::new(AceKind::Allow, flags, mask, sid)
    }

    /// Makes an ACE that denies.
    pub fn deny(sid: Sid, mask: u32, flags: AceFlags) -> Self {
        Self::new(AceKind::Deny, flags, mask, sid)
    }

    fn len_bytes(&self) -> usize {
        (8 + self.object.len() + self.sid.len_bytes() + self.tail.len()).next_multiple_of(4)
    }

    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let kind = AceKind::from_wire(*bytes.first()?)?;
        let flags = AceFlags::from_bits_retain(*bytes.get(1)?);
        let len = usize::from(u16_at(bytes, 2)?);
        if len < 8 {
            return None;
        }
        let (ace, rest) = bytes.split_at_checked(len)?;
        let mask = u32_at(ace, 4)?;
        let mut body = ace.get(8..)?;
        let mut object: &[u8] = &[];
        if kind.has_object() {
            let guids = u32_at(body, 0)?;
            let object_bytes = 4 + 16 * (guids & 3).count_ones() as usize;
            (object, body) = body.split_at_checked(object_bytes)?;
        }
        let sid = Sid::parse(body).ok()?;
        let tail = body.get(sid.len_bytes()..)?;
        // Padding of zeroes after a plain ACE carries nothing.
        let tail = if matches!(kind, AceKind::Allow | AceKind::Deny) { &[] } else { tail };
        Some((Self { kind, flags, mask, sid, object: object.into(), tail: tail.into() }, rest))
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[self.kind.to_wire(), self.flags.bits()]);
        out.extend_from_slice(&(self.len_bytes() as u16).to_le_bytes());
        out.extend_from_slice(&self.mask.to_le_bytes());
        out.extend_from_slice(&self.object);
        self.sid.write_to(out);
        out.extend_from_slice(&self.tail);
        out.resize(start + self.len_bytes(), 0);
    }
}

/// Access control list: entries in the order in which they are evaluated (MS-DTYP 2.4.5).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl {
    /// Entries from first to last; the wire form has at most 65,535 bytes.
    pub aces: Vec<Ace>,
}

impl Acl {
    /// Makes a list of `aces` in the order given.
    pub fn new(aces: Vec<Ace>) -> Self {
        Self { aces }
    }

    /// Makes the generic rights of ACEs that have an effect those of files.
    pub(super) fn with_rights_of_files(mut self) -> Self {
        for ace in &mut self.aces {
            if !ace.flags.contains(AceFlags::INHERIT_ONLY) {
                ace.mask = rights::map_generic(ace.mask);
            }
        }
        self
    }

    /// Returns the number of bytes of its wire form.
    pub fn len_bytes(&self) -> usize {
        ACL_HEADER_BYTES + self.aces.iter().map(Ace::len_bytes).sum::<usize>()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let revision = *bytes.first()?;
        if !matches!(revision, ACL_REVISION..=ACL_REVISION_DS) {
            return None;
        }
        let len = usize::from(u16_at(bytes, 2)?);
        let count = u16_at(bytes, 4)?;
        let mut rest = bytes.get(ACL_HEADER_BYTES..len)?;
        let mut aces = Vec::new();
        for _ in 0..count {
            let (ace, after) = Ace::parse(rest)?;
            aces.push(ace);
            rest = after;
        }
        Some(Self { aces })
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        let revision =
            if self.aces.iter().any(|ace| ace.kind.has_object()) { ACL_REVISION_DS } else { ACL_REVISION };
        out.extend_from_slice(&[revision, 0]);
        out.extend_from_slice(&(self.len_bytes() as u16).to_le_bytes());
        out.extend_from_slice(&(self.aces.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        self.aces.iter().for_each(|ace| ace.write_to(out));
    }
}

/// MS-DTYP 2.4.6. A DACL that is `None`, absent or NULL, allows everyone everything; an empty one
/// allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityDescriptor {
    /// Control bits as parsed; building adds SELF_RELATIVE and the presence bits of given parts.
    pub control: Control,
    /// Owner of the file; `None` if the descriptor names none.
    pub owner: Option<Sid>,
    /// Primary group: kept for clients, without effect on access.
    pub group: Option<Sid>,
    /// Discretionary ACL, by which access is decided.
    pub dacl: Option<Acl>,
    /// System ACL: audit entries, labels, attributes and policies; stored only.
    pub sacl: Option<Acl>,
}

impl SecurityDescriptor {
    /// Reads the self-relative form.
    ///
    /// # Errors
    /// INVALID_SECURITY_DESCR for a wrong header or length, INVALID_SID and INVALID_ACL for a wrong part.
    pub fn parse(bytes: &[u8]) -> Result<Self, NtStatus> {
        let invalid = NtStatus::INVALID_SECURITY_DESCR;
        if bytes.len() < HEADER_BYTES || bytes.len() > DESCRIPTOR_BYTES_MAX || bytes[0] != 1 {
            return Err(invalid);
        }
        let control = Control::from_bits_retain(u16_at(bytes, 2).ok_or(invalid)?);
        let part = |at: usize| -> Result<Option<&[u8]>, NtStatus> {
            match u32_at(bytes, at).ok_or(invalid)? as usize {
                0 => Ok(None),
                offset if offset < HEADER_BYTES => Err(invalid),
                offset => bytes.get(offset..).map(Some).ok_or(invalid),
            }
        };
        let sid = |at| -> Result<Option<Sid>, NtStatus> {
            part(at)?.map(Sid::parse).transpose().map_err(|_| NtStatus::INVALID_SID)
        };
        let acl = |at, present| -> Result<Option<Acl>, NtStatus> {
            match part(at)? {
                Some(bytes) if control.contains(present) => {
                    Acl::parse(bytes).map(Some).ok_or(NtStatus::INVALID_ACL)
                }
                _ => Ok(None),
            }
        };
        Ok(Self {
            control,
            owner: sid(4)?,
            group: sid(8)?,
            sacl: acl(12, Control::SACL_PRESENT)?,
            dacl: acl(16, Control::DACL_PRESENT)?,
        })
    }

    /// Builds the self-relative form: header, SACL, DACL, owner, group.
    ///
    /// # Errors
    /// INVALID_ACL if an ACL is longer than its 16-bit size can say.
    pub fn build(&self) -> Result<Vec<u8>, NtStatus> {
        let mut control = self.control | Control::SELF_RELATIVE;
        control.set(Control::DACL_PRESENT, control.contains(Control::DACL_PRESENT) || self.dacl.is_some());
        control.set(Control::SACL_PRESENT, control.contains(Control::SACL_PRESENT) || self.sacl.is_some());
        let mut out = vec![0; HEADER_BYTES];
        out[0] = 1;
        out[2..4].copy_from_slice(&control.bits().to_le_bytes());
        // In the order that clients expect which read the parts one after the other instead of by their offsets.
        for (sid, at) in [(&self.owner, 4), (&self.group, 8)] {
            if let Some(sid) = sid {
                let offset = out.len() as u32;
                out[at..at + 4].copy_from_slice(&offset.to_le_bytes());
                sid.write_to(&mut out);
            }
        }
        for (acl, at) in [(&self.sacl, 12), (&self.dacl, 16)] {
            if let Some(acl) = acl {
                if acl.len_bytes() > usize::from(u16::MAX) {
                    return Err(NtStatus::INVALID_ACL);
                }
                let offset = out.len() as u32;
                out[at..at + 4].copy_from_slice(&offset.to_le_bytes());
                acl.write_to(&mut out);
            }
        }
        Ok(out)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}
