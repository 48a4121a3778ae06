//! Files and directories of served volumes for commands: with all rights, concurrently with
//! clients.

use crate::error::{Done, Error, ErrorKind};
use crate::tasks::Tasks;
use crate::volumes::Volumes;
use std::rc::Rc;
use std::sync::Arc;
use types::{NtStatus, Sid, VolumeId};
use volume::backend::{
    AccessToken, CacheRequest, Caller, Create, Created, Disposition, OpenId, Operation, OplockLevel,
    Privileges, Reply, SessionId, ShareOptions, ShareRoot, Standing,
};
use volume::security::rights;

/// Session under which commands open files; those of clients have other numbers.
const COMMAND_SESSION: SessionId = SessionId(u64::MAX);
/// Owner, group and DACL (MS-DTYP 2.4.7).
const OWNER: u32 = 1;
const GROUP: u32 = 2;
const DACL: u32 = 4;
/// FILE_OPEN_REPARSE_POINT | FILE_OPEN_FOR_BACKUP_INTENT (MS-SMB2 2.2.13).
const OPTIONS: u32 = 0x0020_0000 | 0x0000_4000;
/// FILE_DIRECTORY_FILE (MS-SMB2 2.2.13).
const DIRECTORY_FILE: u32 = 1;
/// FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE (MS-SMB2 2.2.13): other users of the file
/// are not disturbed.
const SHARE_ALL: u32 = 7;

/// A file's security descriptor, and the facts that inheritance needs.
#[derive(Debug, Clone)]
pub struct Described {
    /// Owner, group and DACL, self-relative (MS-DTYP 2.4.6).
    pub descriptor: Vec<u8>,
    /// Whether the file is a directory, which passes entries down.
    pub directory: bool,
}

/// Opens paths for commands.
#[derive(Clone)]
pub struct VolumePaths {
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) volumes: Rc<Volumes>,
}

impl VolumePaths {
    /// Reads the self-relative security descriptor (MS-DTYP 2.4.6) of `path` (`\` between names, empty: the root).
    ///
    /// # Errors
    /// The reason why the path cannot be opened; see [`ErrorKind`].
    pub async fn query_security(&self, volume: VolumeId, path: &str) -> Done<Described> {
        let created = self.open(volume, path, rights::READ_CONTROL).await?;
        let (open, directory) = (created.open, created.information.directory);
        let query = Operation::QuerySecurity { open, parts: OWNER | GROUP | DACL };
        let result = self.perform(volume, query).await;
        self.close(volume, open).await;
        match result.map_err(|status| refused(path, status))? {
            Reply::Security(descriptor) => Ok(Described { descriptor, directory }),
            _ => Err(Error::io(format!("{path}: the volume gave no security descriptor"))),
        }
    }

    /// Replaces owner, group and DACL, as far as the descriptor has them.
    ///
    /// # Errors
    /// `Invalid` if the descriptor does not parse; the reason why the path cannot be opened.
    pub async fn set_security(&self, volume: VolumeId, path: &str, descriptor: Vec<u8>) -> Done<()> {
        let parsed = volume::security::SecurityDescriptor::parse(&descriptor).map_err(|_| {
            Error::new(ErrorKind::Invalid, "the security descriptor does not parse (MS-DTYP 2.4.6)")
        })?;
        let mut parts = 0;
        parts |= if parsed.owner.is_some() { OWNER } else { 0 };
        parts |= if parsed.group.is_some() { GROUP } else { 0 };
        parts |= if parsed.dacl.is_some() { DACL } else { 0 };
        let access = rights::READ_CONTROL | rights::WRITE_DAC | rights::WRITE_OWNER;
        let open = self.open(volume, path, access).await?.open;
        let result = self.perform(volume, Operation::SetSecurity { open, parts, descriptor }).await;
        self.close(volume, open).await;
        result.map(|_| ()).map_err(|status| refused(path, status))
    }

    /// Makes the directory and its parents, if they are missing.
    ///
    /// # Errors
    /// The reason why a directory cannot be made; see [`ErrorKind`].
    pub async fn make_directory(&self, volume: VolumeId, path: &str) -> Done<()> {
        let ends = path.match_indices('\\').map(|(at, _)| at).chain([path.len()]);
        for directory in ends.map(|end| &path[..end]).filter(|directory| !directory.is_empty()) {
            let options = OPTIONS | DIRECTORY_FILE;
            let access = rights::READ_ATTRIBUTES;
            let made = self.open_or(volume, directory, access, Disposition::OpenIf, options).await?;
            self.close(volume, made.open).await;
        }
        Ok(())
    }

    async fn perform(&self, volume: VolumeId, operation: Operation) -> Result<Reply, NtStatus> {
        match self.volumes.served(volume) {
            Some(served) => served.perform(operation, self.tasks.now()).await,
            None => Err(NtStatus::DEVICE_NOT_READY),
        }
    }

    async fn open(&self, volume: VolumeId, path: &str, desired_access: u32) -> Done<Box<Created>> {
        self.open_or(volume, path, desired_access, Disposition::Open, OPTIONS).await
    }

    async fn open_or(
        &self,
        volume: VolumeId,
        path: &str,
        desired_access: u32,
        disposition: Disposition,
        options: u32,
    ) -> Done<Box<Created>> {
        self.volumes.pool_of(volume)?;
        let create = Create {
            caller: caller(),
            path: path.trim_matches(['\\', '/']).replace('/', "\\").encode_utf16().collect(),
            desired_access,
            attributes: 0,
            share_access: SHARE_ALL,
            disposition,
            options,
            cache: CacheRequest::Oplock(OplockLevel::None),
            allocation_bytes: None,
            extended_attributes: Vec::new(),
            security: None,
            durable: None,
            app_instance: None,
            query_maximal_access: false,
            time_warp: None,
            replay: false,
        };
        match self.perform(volume, Operation::Create(Box::new(create))).await {
            Ok(Reply::Created(created)) => Ok(created),
            Ok(_) => Err(Error::io(format!("{path}: the volume gave no open"))),
            Err(status) => Err(refused(path, status)),
        }
    }

    async fn close(&self, volume: VolumeId, open: OpenId) {
        // If the open is gone already, another party closed it.
        let _ = self.perform(volume, Operation::Close { open, query: false }).await;
    }
}

/// Returns the identity of commands. Files that they make belong to the administrators.
fn caller() -> Caller {
    let token = AccessToken {
        user: Sid::administrators(),
        primary_group: Sid::administrators(),
        groups: vec![Sid::local_system(), Sid::everyone(), Sid::authenticated_users()],
        privileges: Privileges::all(),
    };
    Caller {
        session: COMMAND_SESSION,
        client: [0; 16],
        token: Arc::new(token),
        root: ShareRoot::VOLUME,
        share_access: rights::FILE_ALL,
        share: ShareOptions::default(),
        standing: Standing::none(),
    }
}

pub(crate) fn refused(path: &str, status: NtStatus) -> Error {
    let kind = match status {
        NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND => ErrorKind::NotFound,
        NtStatus::OBJECT_NAME_INVALID
        | NtStatus::OBJECT_PATH_SYNTAX_BAD
        | NtStatus::INVALID_PARAMETER
        | NtStatus::NOT_A_DIRECTORY
        | NtStatus::STOPPED_ON_SYMLINK => ErrorKind::Invalid,
        NtStatus::DISK_FULL | NtStatus::QUOTA_EXCEEDED => ErrorKind::NoSpace,
        NtStatus::DEVICE_NOT_READY | NtStatus::MEDIA_WRITE_PROTECTED => ErrorKind::Unavailable,
        NtStatus::SHARING_VIOLATION | NtStatus::DELETE_PENDING => ErrorKind::Conflict,
        _ => ErrorKind::Io,
    };
    let shown = if path.is_empty() { "\\" } else { path };
    let message = match status {
        NtStatus::OBJECT_NAME_NOT_FOUND => format!("there is no '{shown}' on the volume"),
        NtStatus::OBJECT_PATH_NOT_FOUND => format!("there is no directory for '{shown}' on the volume"),
        NtStatus::NOT_A_DIRECTORY => format!("'{shown}' is a file, not a directory"),
        NtStatus::OBJECT_NAME_INVALID => format!("'{shown}' holds characters that a name cannot have"),
        NtStatus::STOPPED_ON_SYMLINK => {
            format!("'{shown}' leads through a link: give the directory's own path")
        }
        NtStatus::MEDIA_WRITE_PROTECTED => {
            format!("'{shown}' cannot be changed: the volume can only be read, see `cenote health`")
        }
        NtStatus::DELETE_PENDING => format!("'{shown}' is being deleted"),
        NtStatus::SHARING_VIOLATION => format!("'{shown}' is open by somebody who does not share it"),
        NtStatus::DISK_FULL => format!("'{shown}': the pool is full"),
        _ => format!("{shown}: {status:?}"),
    };
    Error::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_the_caller_gave_wrong_is_no_fault_of_the_server() {
        for (status, kind, words) in [
            (NtStatus::NOT_A_DIRECTORY, ErrorKind::Invalid, "'a' is a file"),
            (NtStatus::STOPPED_ON_SYMLINK, ErrorKind::Invalid, "through a link"),
            (NtStatus::DELETE_PENDING, ErrorKind::Conflict, "is being deleted"),
            (NtStatus::MEDIA_WRITE_PROTECTED, ErrorKind::Unavailable, "can only be read"),
            (NtStatus::UNEXPECTED_IO_ERROR, ErrorKind::Io, "a: "),
        ] {
            let refused = refused("a", status);
            assert!(refused.kind == kind && refused.message.contains(words), "{refused:?}");
        }
    }
}
