//! Rights on files, as a CREATE gets them: by the file's descriptor, by that of its directory, and by the share.

use super::grant::{self, Effect, Grant};
use super::options;
use super::parts::Parts;
use super::suspend::Suspend;
use crate::backend::{Create, OpenId};
use crate::fs::{Attributes, FileId};
use crate::security::{self, AccessRequest, rights};
use types::NtStatus;

/// Returns the rights of `create`'s caller on an existing file, on which it has that effect.
pub fn granted(
    parts: &mut Parts<'_>,
    create: &Create,
    file: &Attributes,
    parent: Option<FileId>,
    effect: Effect,
) -> Result<u32, Suspend> {
    let token = &create.caller.token;
    let desired = rights::map_generic(create.desired_access);
    let grant = Grant::of(&create.caller);
    grant.check(grant::needed_to_create(create, effect, None))?;
    let beside = grant::beside(create, effect);
    let maximum = desired & rights::MAXIMUM_ALLOWED != 0;
    let descriptor = parts.descriptor(file)?;
    let backup_intent = create.options & options::OPEN_FOR_BACKUP_INTENT != 0;
    let mut request = AccessRequest { desired: desired | beside, backup_intent, from_parent: 0 };
    let mut granted = security::access_check(&descriptor, token, request);
    if parent.is_some() && (maximum || granted.is_err()) {
        request.from_parent = parts.parent_grants(parent, token)?;
        granted = security::access_check(&descriptor, token, request);
    }
    let mut granted = granted?;
    if maximum {
        granted = grant.limit(granted);
    }
    // Rights that a disposition needs are checked, but not kept.
    Ok(if maximum { granted } else { granted & !(beside & !desired) })
}

/// Returns the rights that the user of an open has on its file.
pub fn maximal(parts: &mut Parts<'_>, id: OpenId) -> Result<u32, NtStatus> {
    let open = parts.opens.get(id).ok_or(NtStatus::FILE_CLOSED)?;
    let (file, token, grant) = (open.stream.file, open.token.clone(), open.grant());
    let parent = open.own_link().map(|link| link.parent);
    let result = (|| -> Result<u32, Suspend> {
        let attributes = parts.fs.attributes(file)?;
        let descriptor = parts.descriptor(&attributes)?;
        let from_parent = parts.parent_grants(parent, &token)?;
        Ok(security::maximal_access(&descriptor, &token) | from_parent)
    })();
    match result {
        Ok(access) => Ok(grant.limit(access)),
        Err(Suspend::Status(status)) => Err(status),
        // The metadata was in memory a moment ago, and has been pushed out since.
        Err(_) => Ok(0),
    }
}
