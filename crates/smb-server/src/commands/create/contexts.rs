//! The create contexts of CREATE and of its answer (MS-SMB2 2.2.13.2, 2.2.14.2).

use crate::extended_attributes::read_eas;
use smb::wire::{
    AppInstanceId, AppInstanceVersion, CONTEXT_ALLOCATION_SIZE, CONTEXT_APP_INSTANCE_ID,
    CONTEXT_APP_INSTANCE_VERSION, CONTEXT_BUS_SESSION, CONTEXT_DURABLE_RECONNECT,
    CONTEXT_DURABLE_RECONNECT_V2, CONTEXT_DURABLE_REQUEST, CONTEXT_DURABLE_REQUEST_V2,
    CONTEXT_EXTENDED_ATTRIBUTES, CONTEXT_LEASE, CONTEXT_MAXIMAL_ACCESS, CONTEXT_ON_DISK_ID,
    CONTEXT_SECURITY_DESCRIPTOR, CONTEXT_TIME_WARP, CreateContextWriter, CreateRequest,
    DURABLE_FLAG_PERSISTENT, Dialect, DurableReconnectV2, DurableRequestV2, DurableResponseV2, FileId, Guid,
    LEASE_FLAG_BREAK_IN_PROGRESS, LEASE_FLAG_PARENT_LEASE_KEY_SET, Lease, LeaseV1, LeaseV2,
    MaximalAccessResponse, OPLOCK_LEVEL_LEASE, OnDiskIdResponse, U64, view_at,
};
use types::{FileTime, NtStatus};
use volume::backend::{CacheGrant, Created, ExtendedAttribute, LeaseRequest, LeaseState, LeaseVersion2};

/// The create contexts of a request that the server knows.
#[derive(Default)]
pub(super) struct Contexts<'a> {
    pub extended_attributes: Vec<ExtendedAttribute>,
    pub security: Option<&'a [u8]>,
    pub allocation: Option<u64>,
    pub time_warp: Option<FileTime>,
    pub lease: Option<LeaseRequest>,
    pub durable: bool,
    pub durable_v2: Option<DurableRequestV2>,
    pub reconnect: Option<FileId>,
    pub reconnect_v2: Option<DurableReconnectV2>,
    pub app_instance: Option<Guid>,
    pub app_version: Option<(u64, u64)>,
    pub maximal_access: bool,
    pub on_disk_id: bool,
    pub bus_session: Option<&'a [u8]>,
}

impl<'a> Contexts<'a> {
    pub fn read(request: &CreateRequest<'a>, dialect: Dialect) -> Result<Self, NtStatus> {
        let mut found = Self::default();
        for context in request.contexts()? {
            let context = context?;
            let data = context.data;
            match context.name {
                // One list: its length is bounded.
                CONTEXT_EXTENDED_ATTRIBUTES if found.extended_attributes.is_empty() => {
                    found.extended_attributes = read_eas(data, NtStatus::INVALID_PARAMETER)?;
                }
                CONTEXT_EXTENDED_ATTRIBUTES => return Err(NtStatus::INVALID_PARAMETER),
                CONTEXT_SECURITY_DESCRIPTOR => found.security = Some(data),
                CONTEXT_ALLOCATION_SIZE => {
                    found.allocation = Some(view_at::<U64>(data, 0)?.get());
                }
                CONTEXT_TIME_WARP => {
                    found.time_warp = Some(FileTime(view_at::<U64>(data, 0)?.get()));
                }
                CONTEXT_MAXIMAL_ACCESS => {
                    if !matches!(data.len(), 0 | 8) {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                    found.maximal_access = true;
                }
                CONTEXT_ON_DISK_ID => found.on_disk_id = true,
                CONTEXT_BUS_SESSION => found.bus_session = Some(data),
                CONTEXT_LEASE if dialect >= Dialect::Smb210 => {
                    let lease = Lease::parse(data)?;
                    found.lease = lease_request(lease, dialect);
                }
                CONTEXT_DURABLE_REQUEST => {
                    if data.len() != 16 {
                        return Err(NtStatus::INVALID_PARAMETER);
                    }
                    found.durable = true;
                }
                CONTEXT_DURABLE_RECONNECT => {
                    found.reconnect = Some(*view_at::<FileId>(data, 0)?);
                }
                CONTEXT_DURABLE_REQUEST_V2 if dialect >= Dialect::Smb300 => {
                    found.durable_v2 = Some(*view_at(data, 0)?);
                }
                CONTEXT_DURABLE_RECONNECT_V2 if dialect >= Dialect::Smb300 => {
                    found.reconnect_v2 = Some(*view_at(data, 0)?);
                }
                CONTEXT_APP_INSTANCE_ID if dialect >= Dialect::Smb300 => {
                    found.app_instance = Some(view_at::<AppInstanceId>(data, 0)?.id);
                }
                CONTEXT_APP_INSTANCE_VERSION if dialect >= Dialect::Smb311 => {
                    let version = view_at::<AppInstanceVersion>(data, 0)?;
                    found.app_version = Some((version.high.get(), version.low.get()));
                }
                _ => {}
            }
        }
        found.check_durability(request.requested_oplock_level)?;
        Ok(found)
    }

    /// Checks that an open requests at most one form of durability (MS-SMB2 3.3.5.9.6, 3.3.5.9.7,
    /// 3.3.5.9.10, 3.3.5.9.12).
    fn check_durability(&mut self, oplock_level: u8) -> Result<(), NtStatus> {
        let reconnects = self.reconnect.is_some() || self.reconnect_v2.is_some();
        if oplock_level != OPLOCK_LEVEL_LEASE && !reconnects {
            // Only a reconnect names its lease without asking for one.
            self.lease = None;
        }
        let version_2 = self.durable_v2.is_some() || self.reconnect_v2.is_some();
        if self.reconnect.is_some() && version_2
            || self.reconnect_v2.is_some() && (self.durable || self.durable_v2.is_some())
            || self.durable && self.durable_v2.is_some() && !reconnects
        {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        Ok(())
    }
}

fn lease_request(lease: Lease<'_>, dialect: Dialect) -> Option<LeaseRequest> {
    Some(match lease {
        Lease::V1(v1) => LeaseRequest {
            key: v1.key,
            state: LeaseState::from_bits_truncate(v1.state.get()),
            version_2: None,
        },
        Lease::V2(v2) => {
            if dialect < Dialect::Smb300 {
                return None;
            }
            let has_parent = v2.flags.get() & LEASE_FLAG_PARENT_LEASE_KEY_SET != 0;
            LeaseRequest {
                key: v2.key,
                state: LeaseState::from_bits_truncate(v2.state.get()),
                version_2: Some(LeaseVersion2 {
                    parent_key: has_parent.then_some(v2.parent_key),
                    epoch: v2.epoch.get(),
                }),
            }
        }
    })
}

/// The contexts of the request that its answer depends on.
pub(super) struct Asked {
    pub maximal_access: bool,
    pub on_disk_id: bool,
    /// The version of the durable handle asked for.
    pub durable_version: Option<u8>,
    pub reconnect: bool,
    /// The volume's number of 64 bits in the on-disk id.
    pub volume_number: u64,
}

/// Builds the create contexts of the answer.
pub(super) fn answer(asked: &Asked, created: &Created) -> Vec<u8> {
    let mut contexts = CreateContextWriter::default();
    push_lease(&mut contexts, &created.cache);
    if asked.maximal_access
        && let Some(maximal) = created.maximal_access
    {
        let (status, access) = match maximal {
            Ok(access) => (NtStatus::SUCCESS, access),
            Err(status) => (status, 0),
        };
        contexts.push_struct(
            CONTEXT_MAXIMAL_ACCESS,
            &MaximalAccessResponse { query_status: status.0.into(), maximal_access: access.into() },
        );
    }
    // A reconnect's answer does not repeat that it is durable (MS-SMB2 3.3.5.9.7, 3.3.5.9.12).
    if !asked.reconnect
        && let Some(timeout) = created.durable
    {
        match asked.durable_version {
            Some(2) => contexts.push_struct(
                CONTEXT_DURABLE_REQUEST_V2,
                &DurableResponseV2 {
                    timeout_ms: (timeout.as_millis().min(u128::from(u32::MAX)) as u32).into(),
                    flags: if created.persistent { DURABLE_FLAG_PERSISTENT } else { 0 }.into(),
                },
            ),
            Some(1) => contexts.push(CONTEXT_DURABLE_REQUEST, &[0; 8]),
            _ => {}
        }
    }
    if asked.on_disk_id {
        contexts.push_struct(
            CONTEXT_ON_DISK_ID,
            &OnDiskIdResponse {
                disk_file_id: created.information.file_id.into(),
                volume_id: asked.volume_number.into(),
                ..Default::default()
            },
        );
    }
    contexts.finish()
}

fn push_lease(contexts: &mut CreateContextWriter, cache: &CacheGrant) {
    if let CacheGrant::Lease { key, state, breaking, version_2 } = *cache {
        let breaking = if breaking { LEASE_FLAG_BREAK_IN_PROGRESS } else { 0 };
        match version_2 {
            None => contexts.push_struct(
                CONTEXT_LEASE,
                &LeaseV1 { key, state: state.bits().into(), flags: breaking.into(), ..Default::default() },
            ),
            Some(version_2) => {
                let parent = if version_2.parent_key.is_some() { LEASE_FLAG_PARENT_LEASE_KEY_SET } else { 0 };
                contexts.push_struct(
                    CONTEXT_LEASE,
                    &LeaseV2 {
                        key,
                        state: state.bits().into(),
                        flags: (breaking | parent).into(),
                        parent_key: version_2.parent_key.unwrap_or_default(),
                        epoch: version_2.epoch.into(),
                        ..Default::default()
                    },
                );
            }
        }
    }
}
