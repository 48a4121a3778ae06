//! Recognizes other programs' data on a foreign disk by its first megabyte.

/// Offset, bytes, name.
const SIGNATURES: [(usize, &[u8], &str); 13] = [
    (0, b"XFSB", "an XFS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0, b"LUKS\xBA\xBE", "a LUKS volume"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (512, b"LABELONE", "an LVM physical volume"),
    (536, b"LVM2 001", "an LVM physical volume"),
    (1080, b"\x53\xEF", "an ext2/3/4 file system"),
    (4096, b"\xFC\x4E\x2B\xA9", "a Linux RAID member"),
    (4086, b"SWAPSPACE2", "swap space"),
    (65600, b"_BHRfS_M", "a btrfs file system"),
    (510, b"\x55\xAA", "a partition table or boot sector"),
];

/// Names the content of a disk by its first bytes; `None` if all are zero.
pub(crate) fn recognise(area: &[u8]) -> Option<&'static str> {
    let known = SIGNATURES
        .iter()
        .find(|(at, bytes, _)| area.get(*at..).is_some_and(|rest| rest.starts_with(bytes)))
        .map(|(_, _, what)| *what);
    known.or_else(|| area.iter().any(|&byte| byte != 0).then_some("data of unknown kind"))
}
