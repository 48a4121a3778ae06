//! File system information classes (MS-FSCC 2.5).

use super::{Guid, Put, U32, U64};

/// Numbers of file system information classes.
pub mod fs_class {
    pub const VOLUME: u8 = 1;
    pub const LABEL: u8 = 2;
    pub const SIZE: u8 = 3;
    pub const DEVICE: u8 = 4;
    pub const ATTRIBUTE: u8 = 5;
    pub const CONTROL: u8 = 6;
    pub const FULL_SIZE: u8 = 7;
    pub const OBJECT_ID: u8 = 8;
    pub const SECTOR_SIZE: u8 = 11;
}

wire_struct! {
    /// MS-FSCC 2.5.9, up to the label.
    VolumeInformationHead {
        volume_creation_time: U64,
        volume_serial_number: U32,
        volume_label_length: U32,
        supports_objects: u8,
        reserved: u8,
    }
}

/// Appends FileFsVolumeInformation.
pub fn put_volume_information(out: &mut Vec<u8>, created: u64, serial: u32, label: &[u16]) {
    out.put(&VolumeInformationHead {
        volume_creation_time: U64::new(created),
        volume_serial_number: U32::new(serial),
        volume_label_length: U32::new((label.len() * 2) as u32),
        supports_objects: 1,
        reserved: 0,
    });
    out.put_wide(label);
}

wire_struct! {
    /// MS-FSCC 2.5.8.
    FsSizeInformation {
        total_allocation_units: U64,
        available_allocation_units: U64,
        sectors_per_allocation_unit: U32,
        bytes_per_sector: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.5.4.
    FsFullSizeInformation {
        total_allocation_units: U64,
        caller_available_allocation_units: U64,
        actual_available_allocation_units: U64,
        sectors_per_allocation_unit: U32,
        bytes_per_sector: U32,
    }
}

/// FILE_DEVICE_DISK and FILE_DEVICE_NAMED_PIPE.
pub const DEVICE_DISK: u32 = 7;
pub const DEVICE_NAMED_PIPE: u32 = 0x11;
/// FILE_DEVICE_IS_MOUNTED.
pub const DEVICE_IS_MOUNTED: u32 = 0x20;

wire_struct! {
    /// MS-FSCC 2.5.10.
    FsDeviceInformation { device_type: U32, characteristics: U32, }
}

bitflags::bitflags! {
    /// MS-FSCC 2.5.1 FileSystemAttributes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FileSystemAttributes: u32 {
        const CASE_SENSITIVE_SEARCH = 0x1;
        const CASE_PRESERVED_NAMES = 0x2;
        const UNICODE_ON_DISK = 0x4;
        const PERSISTENT_ACLS = 0x8;
        const FILE_COMPRESSION = 0x10;
        const VOLUME_QUOTAS = 0x20;
        const SUPPORTS_SPARSE_FILES = 0x40;
        const SUPPORTS_REPARSE_POINTS = 0x80;
        const SUPPORTS_OBJECT_IDS = 0x1_0000;
        const NAMED_STREAMS = 0x4_0000;
        const READ_ONLY_VOLUME = 0x8_0000;
        const SUPPORTS_HARD_LINKS = 0x40_0000;
        const SUPPORTS_EXTENDED_ATTRIBUTES = 0x80_0000;
        const SUPPORTS_OPEN_BY_FILE_ID = 0x100_0000;
        const SUPPORTS_INTEGRITY_STREAMS = 0x400_0000;
        const SUPPORTS_BLOCK_REFCOUNTING = 0x800_0000;
        const SUPPORTS_SPARSE_VDL = 0x1000_0000;
        const _ = !0;
    }
}

/// Appends FileFsAttributeInformation (MS-FSCC 2.5.1).
pub fn put_attribute_information(
    out: &mut Vec<u8>,
    attributes: FileSystemAttributes,
    component_length_max: u32,
    name: &[u16],
) {
    out.put(&[
        U32::new(attributes.bits()),
        U32::new(component_length_max),
        U32::new((name.len() * 2) as u32),
    ]);
    out.put_wide(name);
}

wire_struct! {
    /// MS-FSCC 2.5.2.
    FsControlInformation {
        free_space_start_filtering: U64,
        free_space_threshold: U64,
        free_space_stop_filtering: U64,
        default_quota_threshold: U64,
        default_quota_limit: U64,
        file_system_control_flags: U32,
        padding: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.5.6.
    FsObjectIdInformation { object_id: Guid, extended_info: [[u8; 16]; 3], }
}

wire_struct! {
    /// MS-FSCC 2.5.7.
    FsSectorSizeInformation {
        logical_bytes_per_sector: U32,
        physical_bytes_per_sector_for_atomicity: U32,
        physical_bytes_per_sector_for_performance: U32,
        effective_physical_bytes_per_sector_for_atomicity: U32,
        flags: U32,
        byte_offset_for_sector_alignment: U32,
        byte_offset_for_partition_alignment: U32,
    }
}

/// Flags of [`FsSectorSizeInformation`].
pub const SSINFO_FLAGS_ALIGNED_DEVICE: u32 = 1;
pub const SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE: u32 = 2;
pub const SSINFO_FLAGS_NO_SEEK_PENALTY: u32 = 4;
pub const SSINFO_FLAGS_TRIM_ENABLED: u32 = 8;
