//! File system information classes (MS-FSCC 2.5).

use super::{Guid, Put, U32, U64};

/// Numbers of file system information classes.
pub mod fs_class {
    /// FileFsVolumeInformation: creation, serial number and label.
    pub const VOLUME: u8 = 1;
    /// FileFsLabelInformation: set only, the label.
    pub const LABEL: u8 = 2;
    /// FileFsSizeInformation: allocation units, free for the caller.
    pub const SIZE: u8 = 3;
    /// FileFsDeviceInformation: kind of the device.
    pub const DEVICE: u8 = 4;
    /// FileFsAttributeInformation: [`FileSystemAttributes`](super::FileSystemAttributes).
    pub const ATTRIBUTE: u8 = 5;
    /// FileFsControlInformation: quota flags and defaults.
    pub const CONTROL: u8 = 6;
    /// FileFsFullSizeInformation: as class 3, with units free for all.
    pub const FULL_SIZE: u8 = 7;
    /// FileFsObjectIdInformation: 16-byte id of the volume.
    pub const OBJECT_ID: u8 = 8;
    /// FileFsSectorSizeInformation: sizes and alignment of sectors.
    pub const SECTOR_SIZE: u8 = 11;
}

wire_struct! {
    /// MS-FSCC 2.5.9, up to the label.
    VolumeInformationHead {
        /// Creation of the volume (FILETIME: 100 ns since 1601, MS-DTYP 2.3.3).
        volume_creation_time: U64,
        /// Number that tells volumes apart, as clients show it.
        volume_serial_number: U32,
        /// Bytes of the label.
        volume_label_length: U32,
        /// 1 if the volume has object ids.
        supports_objects: u8,
        /// Reserved: sent as 0 and ignored.
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
        /// Clusters of the volume that the caller may use.
        total_allocation_units: U64,
        /// Free clusters that the caller may use.
        available_allocation_units: U64,
        /// Sectors of a cluster.
        sectors_per_allocation_unit: U32,
        /// Bytes of a logical sector.
        bytes_per_sector: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.5.4.
    FsFullSizeInformation {
        /// Clusters of the volume that the caller may use.
        total_allocation_units: U64,
        /// Free clusters that the caller may use.
        caller_available_allocation_units: U64,
        /// Free clusters of the volume.
        actual_available_allocation_units: U64,
        /// Sectors of a cluster.
        sectors_per_allocation_unit: U32,
        /// Bytes of a logical sector.
        bytes_per_sector: U32,
    }
}

/// FILE_DEVICE_DISK and FILE_DEVICE_NAMED_PIPE.
pub const DEVICE_DISK: u32 = 7;
/// FILE_DEVICE_NAMED_PIPE: IPC$.
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
        /// Names that differ in case alone can be told apart.
        const CASE_SENSITIVE_SEARCH = 0x1;
        /// Names keep their case.
        const CASE_PRESERVED_NAMES = 0x2;
        /// Names are Unicode.
        const UNICODE_ON_DISK = 0x4;
        /// Access control lists are kept and enforced.
        const PERSISTENT_ACLS = 0x8;
        /// Single files can be compressed.
        const FILE_COMPRESSION = 0x10;
        /// Quotas of users are supported.
        const VOLUME_QUOTAS = 0x20;
        /// Sparse files are supported.
        const SUPPORTS_SPARSE_FILES = 0x40;
        /// Reparse points are supported.
        const SUPPORTS_REPARSE_POINTS = 0x80;
        /// Object ids are supported.
        const SUPPORTS_OBJECT_IDS = 0x1_0000;
        /// Named streams are supported.
        const NAMED_STREAMS = 0x4_0000;
        /// The volume cannot be written.
        const READ_ONLY_VOLUME = 0x8_0000;
        /// Hard links are supported.
        const SUPPORTS_HARD_LINKS = 0x40_0000;
        /// Extended attributes are supported.
        const SUPPORTS_EXTENDED_ATTRIBUTES = 0x80_0000;
        /// Files can be opened by their id.
        const SUPPORTS_OPEN_BY_FILE_ID = 0x100_0000;
        /// Checksums of files are supported.
        const SUPPORTS_INTEGRITY_STREAMS = 0x400_0000;
        /// Extents can be shared between files.
        const SUPPORTS_BLOCK_REFCOUNTING = 0x800_0000;
        /// Valid data may have holes.
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
        /// Reserved for content indexing: 0.
        free_space_start_filtering: U64,
        /// Reserved for content indexing: 0.
        free_space_threshold: U64,
        /// Reserved for content indexing: 0.
        free_space_stop_filtering: U64,
        /// Bytes from which on users without an own quota are warned.
        default_quota_threshold: U64,
        /// Bytes that users without an own quota may take at most.
        default_quota_limit: U64,
        /// [`QuotaFlags`](super::QuotaFlags) bits.
        file_system_control_flags: U32,
        /// Fills the structure up to a multiple of 8 bytes.
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
        /// Bytes of the smallest addressable unit.
        logical_bytes_per_sector: U32,
        /// Bytes that the device writes atomically.
        physical_bytes_per_sector_for_atomicity: U32,
        /// Bytes of the physical sector, best for performance.
        physical_bytes_per_sector_for_performance: U32,
        /// Bytes that the file system takes to be atomic.
        effective_physical_bytes_per_sector_for_atomicity: U32,
        /// `SSINFO_FLAGS_` bits.
        flags: U32,
        /// Bytes from the device's logical sector 0 to a physical one.
        byte_offset_for_sector_alignment: U32,
        /// Bytes by which the partition is misaligned.
        byte_offset_for_partition_alignment: U32,
    }
}

/// Flags of [`FsSectorSizeInformation`].
pub const SSINFO_FLAGS_ALIGNED_DEVICE: u32 = 1;
/// SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE: the volume begins at a physical sector.
pub const SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE: u32 = 2;
/// SSINFO_FLAGS_NO_SEEK_PENALTY: solid state.
pub const SSINFO_FLAGS_NO_SEEK_PENALTY: u32 = 4;
/// SSINFO_FLAGS_TRIM_ENABLED: the device takes discards.
pub const SSINFO_FLAGS_TRIM_ENABLED: u32 = 8;
