//! The interfaces, the pipes that they are on, and their identifiers.

use super::pdu::Syntax;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    Srvsvc,
    Wkssvc,
    Lsarpc,
    Samr,
    Dssetup,
    Winreg,
    Svcctl,
    Epmapper,
    /// On every pipe.
    Management,
}

/// The pipes by their names, with Windows' interfaces on each.
pub(super) const PIPES: &[(&str, &[Interface])] = &[
    ("srvsvc", &[Interface::Srvsvc]),
    ("wkssvc", &[Interface::Wkssvc]),
    ("lsarpc", &[Interface::Lsarpc, Interface::Dssetup]),
    ("samr", &[Interface::Samr]),
    ("lsass", &[Interface::Lsarpc, Interface::Samr, Interface::Dssetup]),
    ("winreg", &[Interface::Winreg]),
    ("svcctl", &[Interface::Svcctl]),
    ("epmapper", &[Interface::Epmapper]),
];

/// Finds a pipe by its name, ignoring case.
pub(super) fn find(name: &str) -> Option<(&'static str, &'static [Interface])> {
    PIPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied()
}

/// Whether there is a pipe of that name (without `\PIPE\`, any case).
pub fn is_known(name: &str) -> bool {
    find(name).is_some()
}

impl Interface {
    pub(super) const fn syntax(self) -> Syntax {
        let (uuid, version) = match self {
            Self::Srvsvc => (0x4b324fc8_1670_01d3_1278_5a47bf6ee188, 3),
            Self::Wkssvc => (0x6bffd098_a112_3610_9833_46c3f87e345a, 1),
            Self::Lsarpc => (0x12345778_1234_abcd_ef00_0123456789ab, 0),
            Self::Samr => (0x12345778_1234_abcd_ef00_0123456789ac, 1),
            Self::Dssetup => (0x3919286a_b10c_11d0_9ba8_00c04fd92ef5, 0),
            Self::Winreg => (0x338cd001_2244_31f1_aaaa_900038001003, 1),
            Self::Svcctl => (0x367abb81_9844_35f1_ad32_98f038001003, 2),
            Self::Epmapper => (0xe1af8308_5d1f_11c9_91a4_08002b14a0fa, 3),
            Self::Management => (0xafa8bd80_7d8a_11c9_bef4_08002b102989, 1),
        };
        Syntax { uuid: on_wire(uuid), version }
    }
}

/// A UUID, read as one number, as it lies on the wire: its first three fields are little-endian integers.
const fn on_wire(uuid: u128) -> [u8; 16] {
    let b = uuid.to_be_bytes();
    [b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]
}
