//! FSCTL codes and their structures (MS-SMB2 2.2.31, 2.2.32; MS-FSCC 2.3).

use super::{Guid, Put, U16, U32, U64, WireError, range, view_at};
use std::net::IpAddr;
use zerocopy::FromBytes;

/// FSCTL codes (MS-SMB2 2.2.31 CtlCode, MS-FSCC 2.3).
pub mod fsctl {
    /// Asks for referrals of a DFS path (MS-DFSC 2.2.2), of which this server has none.
    pub const DFS_GET_REFERRALS: u32 = 0x0006_0194;
    /// Asks for referrals of a DFS path, with a site name (MS-DFSC 2.2.3).
    pub const DFS_GET_REFERRALS_EX: u32 = 0x0006_01B0;
    /// Makes a file a reparse point: a [`ReparseHead`](super::ReparseHead) and its data.
    pub const SET_REPARSE_POINT: u32 = 0x0009_00A4;
    /// Reads the reparse buffer of a file or directory.
    pub const GET_REPARSE_POINT: u32 = 0x0009_00A8;
    /// Removes the reparse buffer of a file or directory whose tag is given.
    pub const DELETE_REPARSE_POINT: u32 = 0x0009_00AC;
    /// Gives a file an [`ObjectIdBuffer`](super::ObjectIdBuffer).
    pub const SET_OBJECT_ID: u32 = 0x0009_0098;
    /// Reads the [`ObjectIdBuffer`](super::ObjectIdBuffer) of a file.
    pub const GET_OBJECT_ID: u32 = 0x0009_009C;
    /// Removes the object id of a file.
    pub const DELETE_OBJECT_ID: u32 = 0x0009_00A0;
    /// Reads the object id of a file; gives the file one first if it has none.
    pub const CREATE_OR_GET_OBJECT_ID: u32 = 0x0009_00C0;
    /// Sets or clears the sparse attribute of a file.
    pub const SET_SPARSE: u32 = 0x0009_00C4;
    /// Lists the allocated ranges of a file: [`AllocatedRange`](super::AllocatedRange), in and out.
    pub const QUERY_ALLOCATED_RANGES: u32 = 0x0009_40CF;
    /// Fills a range of a file with zeros: [`ZeroData`](super::ZeroData).
    pub const SET_ZERO_DATA: u32 = 0x0009_80C8;
    /// Discards the data of ranges: [`FileLevelTrim`](super::FileLevelTrim).
    pub const FILE_LEVEL_TRIM: u32 = 0x0009_8208;
    /// Lists ranges of valid data: [`FileRegionInput`](super::FileRegionInput).
    pub const QUERY_FILE_REGIONS: u32 = 0x0009_0284;
    /// Reads [`IntegrityInformation`](super::IntegrityInformation): checksums of a file.
    pub const GET_INTEGRITY_INFORMATION: u32 = 0x0009_027C;
    /// Sets checksums of a file: [`SetIntegrityInformation`](super::SetIntegrityInformation).
    pub const SET_INTEGRITY_INFORMATION: u32 = 0x0009_C280;
    /// Reads the compression format of a file, in two bytes.
    pub const GET_COMPRESSION: u32 = 0x0009_003C;
    /// Sets the compression format of a file, in two bytes.
    pub const SET_COMPRESSION: u32 = 0x0009_C040;
    /// Shares extents of another file by reference: [`DuplicateExtents`](super::DuplicateExtents).
    pub const DUPLICATE_EXTENTS_TO_FILE: u32 = 0x0009_8344;
    /// As the former, with flags: [`DuplicateExtentsEx`](super::DuplicateExtentsEx).
    pub const DUPLICATE_EXTENTS_TO_FILE_EX: u32 = 0x0009_83E8;
    /// Reads counters of the file system (FILESYSTEM_STATISTICS).
    pub const FILESYSTEM_GET_STATISTICS: u32 = 0x0009_0060;
    /// Reads sizes and places of NTFS structures (NTFS_VOLUME_DATA_BUFFER).
    pub const GET_NTFS_VOLUME_DATA: u32 = 0x0009_0064;
    /// Asks whether a path is well-formed.
    pub const IS_PATHNAME_VALID: u32 = 0x0009_002C;
    /// Asks for a token that stands for a range of data (MS-FSCC 2.3, ODX).
    pub const OFFLOAD_READ: u32 = 0x0009_4264;
    /// Reads from a pipe and leaves its bytes there (FSCTL_PIPE_PEEK).
    pub const PIPE_PEEK: u32 = 0x0011_400C;
    /// Waits for an instance of a pipe: [`PipeWait`](super::PipeWait).
    pub const PIPE_WAIT: u32 = 0x0011_0018;
    /// Writes to a pipe and reads the answer in one request (FSCTL_PIPE_TRANSCEIVE).
    pub const PIPE_TRANSCEIVE: u32 = 0x0011_C017;
    /// Lists the snapshots of a volume: [`SnapshotArray`](super::SnapshotArray).
    pub const SRV_ENUMERATE_SNAPSHOTS: u32 = 0x0014_4064;
    /// Asks for the key that names an open as the source of a copy (MS-SMB2 2.2.32.3).
    pub const SRV_REQUEST_RESUME_KEY: u32 = 0x0014_0078;
    /// Copies ranges to a readable open: [`CopyChunkRequest`](super::CopyChunkRequest).
    pub const SRV_COPYCHUNK: u32 = 0x0014_40F2;
    /// Copies ranges to an open that need not be readable, as the former.
    pub const SRV_COPYCHUNK_WRITE: u32 = 0x0014_80F2;
    /// Reads hashes of BranchCache (MS-SMB2 2.2.31.2).
    pub const SRV_READ_HASH: u32 = 0x0014_41BB;
    /// Asks for resiliency of an open: [`ResiliencyRequest`](super::ResiliencyRequest).
    pub const LMR_REQUEST_RESILIENCY: u32 = 0x0014_01D4;
    /// Lists interfaces for multichannel: [`NetworkInterface`](super::NetworkInterface).
    pub const QUERY_NETWORK_INTERFACE_INFO: u32 = 0x0014_01FC;
    /// Verifies the negotiation of a dialect before 3.1.1 (MS-SMB2 2.2.31.4).
    pub const VALIDATE_NEGOTIATE_INFO: u32 = 0x0014_0204;

    // The storage bus has FSCTLs of its own: functions from 0x800 on are left to vendors (CTL_CODE, MS-FSCC 2.3).
    /// Promises an epoch on a disk: requests of lower ones fail from then on.
    pub const BUS_PROMISE: u32 = 0x0009_2000;
    /// Lists the chunks that have a slab on the disk.
    pub const BUS_CHUNKS: u32 = 0x0009_2004;
    /// Allocates a slab for a chunk.
    pub const BUS_ALLOCATE: u32 = 0x0009_2008;
    /// Frees the slab of a chunk.
    pub const BUS_FREE: u32 = 0x0009_200C;
    /// Discards the data of a range of blocks, which read as zeros afterwards.
    pub const BUS_DISCARD: u32 = 0x0009_2010;
    /// Marks blocks whose data is lost on every copy that counts.
    pub const BUS_MARK_LOST: u32 = 0x0009_2014;
    /// Lists the stamps of a chunk's regions.
    pub const BUS_REGIONS: u32 = 0x0009_2018;
    /// Reads the status of a node and its disks, on an open of the share's root.
    pub const BUS_STATUS: u32 = 0x0009_201C;
    /// Asks for an answer of 64 KiB, which proves that large messages come through.
    pub const BUS_PROVE: u32 = 0x0009_2020;

    /// Whether it is one of the storage bus.
    pub const fn is_of_bus(code: u32) -> bool {
        code >= BUS_PROMISE && code <= BUS_PROVE
    }
}

wire_struct! {
    /// MS-SMB2 2.2.32.3.
    ResumeKeyResponse { resume_key: [u8; 24], context_length: U32, }
}

wire_struct! {
    /// MS-SMB2 2.2.31.1, before its chunks.
    CopyChunkRequest { source_key: [u8; 24], chunk_count: U32, reserved: U32, }
}

wire_struct! {
    /// MS-SMB2 2.2.31.1.1.
    CopyChunkElement { source_offset: U64, target_offset: U64, length: U32, reserved: U32, }
}

wire_struct! {
    /// MS-SMB2 2.2.32.1.
    CopyChunkResponse { chunks_written: U32, chunk_bytes_written: U32, total_bytes_written: U32, }
}

impl CopyChunkRequest {
    /// The request and its chunks.
    ///
    /// # Errors
    /// [`WireError`] if it is cut short.
    pub fn parse(input: &[u8]) -> Result<(&Self, &[CopyChunkElement]), WireError> {
        let request: &Self = view_at(input, 0)?;
        let len = (request.chunk_count.get() as usize)
            .checked_mul(size_of::<CopyChunkElement>())
            .ok_or(WireError::OutOfBounds)?;
        let chunks = range(input, size_of::<Self>(), len)?;
        let chunks = <[CopyChunkElement]>::ref_from_bytes(chunks).map_err(|_| WireError::Short)?;
        Ok((request, chunks))
    }
}

wire_struct! {
    /// MS-FSCC 2.3.8 SMB2_DUPLICATE_EXTENTS_DATA.
    DuplicateExtents {
        /// Open of the file to share extents of.
        source_file_id: super::FileId,
        /// Byte in the source at which the range begins.
        source_offset: U64,
        /// Byte in the target at which the range begins.
        target_offset: U64,
        /// Bytes to share, a multiple of the cluster size.
        byte_count: U64,
    }
}

wire_struct! {
    /// MS-FSCC 2.3.10.2: DUPLICATE_EXTENTS_DATA_EX on the wire.
    DuplicateExtentsEx {
        /// Bytes of the structure: 0x30.
        structure_size: U64,
        /// Open of the file to share extents of.
        source_file_id: super::FileId,
        /// Byte in the source at which the range begins.
        source_offset: U64,
        /// Byte in the target at which the range begins.
        target_offset: U64,
        /// Bytes to share, a multiple of the cluster size.
        byte_count: U64,
        /// DUPLICATE_EXTENTS_DATA_EX_SOURCE_ATOMIC (1): all or nothing.
        flags: U32,
        /// Reserved: sent as 0 and ignored.
        reserved: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.3.73 FILE_ZERO_DATA_INFORMATION.
    ZeroData { file_offset: U64, beyond_final_zero: U64, }
}

wire_struct! {
    /// MS-FSCC 2.3.49.1 FILE_ALLOCATED_RANGE_BUFFER, in and out.
    AllocatedRange { file_offset: U64, length: U64, }
}

wire_struct! {
    /// MS-FSCC 2.3.13 FILE_LEVEL_TRIM, before its ranges.
    FileLevelTrim { key: U32, num_ranges: U32, }
}

impl FileLevelTrim {
    /// The ranges to trim.
    ///
    /// # Errors
    /// [`WireError`] if they are cut short.
    pub fn parse(input: &[u8]) -> Result<&[AllocatedRange], WireError> {
        let head: &Self = view_at(input, 0)?;
        let len = (head.num_ranges.get() as usize)
            .checked_mul(size_of::<AllocatedRange>())
            .ok_or(WireError::OutOfBounds)?;
        <[AllocatedRange]>::ref_from_bytes(range(input, size_of::<Self>(), len)?)
            .map_err(|_| WireError::Short)
    }
}

wire_struct! {
    /// MS-FSCC 2.3.55 FILE_REGION_INPUT.
    FileRegionInput { file_offset: U64, length: U64, desired_usage: U32, reserved: U32, }
}

wire_struct! {
    /// MS-FSCC 2.3.56 FILE_REGION_OUTPUT, before its regions.
    FileRegionOutput {
        /// Reserved: sent as 0.
        flags: U32,
        /// Regions in the range.
        total_region_entry_count: U32,
        /// Regions in this answer.
        region_entry_count: U32,
        /// Reserved: sent as 0 and ignored.
        reserved: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.3.56.1 FILE_REGION_INFO.
    FileRegionInfo { file_offset: U64, length: U64, usage: U32, reserved: U32, }
}

/// FILE_REGION_USAGE_VALID_CACHED_DATA.
pub const FILE_REGION_USAGE_VALID_CACHED_DATA: u32 = 1;
/// FILE_REGION_USAGE_VALID_NONCACHED_DATA.
pub const FILE_REGION_USAGE_VALID_NONCACHED_DATA: u32 = 2;

wire_struct! {
    /// MS-FSCC 2.1.3.1 FILE_OBJECTID_BUFFER.
    ObjectIdBuffer {
        /// Id of the file, unique in its volume.
        object_id: Guid,
        /// Object id of the volume on which the file got its id.
        birth_volume_id: Guid,
        /// Object id of the file when it got one.
        birth_object_id: Guid,
        /// Reserved: zero.
        domain_id: Guid,
    }
}

wire_struct! {
    /// MS-FSCC 2.3.20 FSCTL_GET_INTEGRITY_INFORMATION_BUFFER.
    IntegrityInformation {
        /// CHECKSUM_TYPE_NONE (0), _CRC32 (1) or _CRC64 (2).
        checksum_algorithm: U16,
        /// Reserved: sent as 0 and ignored.
        reserved: U16,
        /// FSCTL_INTEGRITY_FLAG_CHECKSUM_ENFORCEMENT_OFF (1): reads ignore wrong checksums.
        flags: U32,
        /// Bytes that each checksum covers.
        checksum_chunk_size_bytes: U32,
        /// Bytes of a cluster.
        cluster_size_bytes: U32,
    }
}

wire_struct! {
    /// MS-FSCC 2.3.67 FSCTL_SET_INTEGRITY_INFORMATION_BUFFER.
    SetIntegrityInformation { checksum_algorithm: U16, reserved: U16, flags: U32, }
}

wire_struct! {
    /// MS-SMB2 2.2.32.2, before its snapshots.
    SnapshotArray {
        /// Snapshots of the volume.
        number_of_snapshots: U32,
        /// Snapshots in this answer; 0 if the buffer is too small for all.
        number_of_snapshots_returned: U32,
        /// Bytes of all names, each with its zero and one more at the end.
        snapshot_array_size: U32,
    }
}

wire_struct! {
    /// Head of every reparse buffer (MS-FSCC 2.1.2.1).
    ReparseHead { tag: U32, data_length: U16, reserved: U16, }
}

wire_struct! {
    /// MS-FSCC 2.3.48 FSCTL_PIPE_WAIT, before the name.
    PipeWait { timeout: U64, name_length: U32, timeout_specified: u8, padding: u8, }
}

wire_struct! {
    /// MS-SMB2 2.2.31.3.
    ResiliencyRequest { timeout_ms: U32, reserved: U32, }
}

bitflags::bitflags! {
    /// MS-SMB2 2.2.32.5 Capability of a network interface.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct InterfaceCapabilities: u32 {
        /// Receive side scaling: clients open several connections.
        const RSS = 1;
        /// SMB Direct.
        const RDMA = 2;
    }
}

/// One address of NETWORK_INTERFACE_INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Index of the interface (IfIndex): addresses with the same one share a network adapter.
    pub index: u32,
    /// RSS and RDMA, from which clients choose their connections.
    pub capabilities: InterfaceCapabilities,
    /// Bits a second.
    pub link_speed: u64,
    /// IPv4 or IPv6 address on which the server listens.
    pub address: IpAddr,
}

/// Bytes of one NETWORK_INTERFACE_INFO.
pub const NETWORK_INTERFACE_INFO_BYTES: usize = 152;
const FAMILY_IPV4: u16 = 2;
const FAMILY_IPV6: u16 = 0x17;

/// The list of NETWORK_INTERFACE_INFO for `interfaces` (MS-SMB2 2.2.32.5).
pub fn put_network_interfaces(out: &mut Vec<u8>, interfaces: &[NetworkInterface]) {
    for (position, interface) in interfaces.iter().enumerate() {
        let start = out.len();
        let next = if position + 1 == interfaces.len() { 0 } else { NETWORK_INTERFACE_INFO_BYTES as u32 };
        out.put(&[
            U32::new(next),
            U32::new(interface.index),
            U32::new(interface.capabilities.bits()),
            U32::new(0),
        ]);
        out.put(&U64::new(interface.link_speed));
        match interface.address {
            IpAddr::V4(address) => {
                out.put_wide(&[FAMILY_IPV4, 0]);
                out.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.put_wide(&[FAMILY_IPV6, 0]);
                out.put(&U32::new(0));
                out.extend_from_slice(&address.octets());
            }
        }
        out.resize(start + NETWORK_INTERFACE_INFO_BYTES, 0);
    }
}

/// The interfaces of such a list; addresses of other families are skipped.
///
/// # Errors
/// [`WireError`] if the list is cut short.
pub fn parse_network_interfaces(mut bytes: &[u8]) -> Result<Vec<NetworkInterface>, WireError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let [next, index, capabilities, _] = view_at::<[U32; 4]>(bytes, 0)?.map(U32::get);
        let link_speed = view_at::<U64>(bytes, 16)?.get();
        let address = match view_at::<U16>(bytes, 24)?.get() {
            FAMILY_IPV4 => Some(IpAddr::from(*view_at::<[u8; 4]>(bytes, 28)?)),
            FAMILY_IPV6 => Some(IpAddr::from(*view_at::<[u8; 16]>(bytes, 32)?)),
            _ => None,
        };
        if let Some(address) = address {
            let capabilities = InterfaceCapabilities::from_bits_truncate(capabilities);
            found.push(NetworkInterface { index, capabilities, link_speed, address });
        }
        if next == 0 {
            break;
        }
        if (next as usize) < NETWORK_INTERFACE_INFO_BYTES {
            return Err(WireError::OutOfBounds);
        }
        bytes = bytes.get(next as usize..).ok_or(WireError::OutOfBounds)?;
    }
    Ok(found)
}
