//! NTLMv2 (MS-NLMP): messages, keys, the accepting and the initiating side. NTLMv1 and LM are not spoken.

mod accept;
mod initiate;
mod keys;
mod messages;

pub(super) use accept::{NtlmAcceptor, NtlmStep};
pub(super) use initiate::NtlmInitiator;
pub(super) use keys::{Direction, SecurityContext};
pub use keys::{MessageSecurity, NtHash};
pub(super) use messages::SIGNATURE;

bitflags::bitflags! {
    /// NegotiateFlags (MS-NLMP 2.2.2.5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Flags: u32 {
        const UNICODE = 0x0000_0001;
        const OEM = 0x0000_0002;
        const REQUEST_TARGET = 0x0000_0004;
        const SIGN = 0x0000_0010;
        const SEAL = 0x0000_0020;
        const DATAGRAM = 0x0000_0040;
        const LM_KEY = 0x0000_0080;
        const NTLM = 0x0000_0200;
        const ANONYMOUS = 0x0000_0800;
        const ALWAYS_SIGN = 0x0000_8000;
        const TARGET_TYPE_DOMAIN = 0x0001_0000;
        const TARGET_TYPE_SERVER = 0x0002_0000;
        const EXTENDED_SESSION_SECURITY = 0x0008_0000;
        const TARGET_INFO = 0x0080_0000;
        const VERSION = 0x0200_0000;
        const KEY_128 = 0x2000_0000;
        const KEY_EXCHANGE = 0x4000_0000;
        const KEY_56 = 0x8000_0000;
        const _ = !0;
    }
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
