//! Administrators' changes through named pipes (NetShareAdd and its kind), and their answers.
//!
//! Promises: a change takes the same path as the API's, with its entry in the audit log, and is
//! answered once; a client's input is checked there like any from outside. Never takes two at once.

use crate::manager::Manager;
use api::audit::Outcome;
use api::management::{ApiError, ErrorKind, Management};
use api::requests::{CreateShare, Grant, ShareOptions};
use records::shares::ShareAccess;
use smb::rpc::{RpcChange, RpcDone, RpcRefusal, ShareSettings};
use smb_server::PipeChange;
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;
use volume::security::{AceKind, SecurityDescriptor, rights};

/// SHI1005_FLAGS that change something here (MS-SRVS 2.2.4.29).
const ACCESS_BASED_ENUMERATION: u32 = 0x0800;
const ENCRYPT_DATA: u32 = 0x8000;
const CACHING_MASK: u32 = 0x30;

/// Executes changes, one after the other, until the data plane stops sending.
pub async fn carry_out(mut changes: Receiver<PipeChange>, manager: Arc<Manager>) {
    while let Some(PipeChange { pipe, user, peer, change }) = changes.recv().await {
        let source = peer.map_or_else(|| "a client that has gone".to_owned(), |peer| peer.to_string());
        let (action, target) = named(&change);
        let is_change = !matches!(change, RpcChange::FileSecurity { .. });
        let is_of_shares = matches!(action, "share create" | "share set" | "share delete");
        let outcome = answer(&manager, change).await;
        if is_of_shares && outcome.is_ok() {
            // A client of the pipe has no place for the names of servers that have not confirmed: the log has them.
            api::confirm(&(manager.clone() as Arc<dyn Management>)).await;
        }
        if is_change {
            let by = format!("by {user}, through a pipe");
            let (result, detail) = match &outcome {
                Ok(_) => (Outcome::Done, by),
                Err(error) if error.kind == ErrorKind::Internal => {
                    (Outcome::Failed, format!("{by}: {error}"))
                }
                Err(error) => (Outcome::Refused, format!("{by}: {error}")),
            };
            manager.audit(&source, action, &target, result, &detail);
        }
        let outcome = outcome.map_err(|error| refusal(&error));
        if !manager.answer_pipe(pipe, outcome) {
            return;
        }
    }
}

/// Names a change and its object for the audit log.
fn named(change: &RpcChange) -> (&'static str, String) {
    match change {
        RpcChange::CreateShare { name, .. } => ("share create", name.clone()),
        RpcChange::SetShare { name, .. } => ("share set", name.clone()),
        RpcChange::DeleteShare { name } => ("share delete", name.clone()),
        RpcChange::CloseFile { open } => ("file close", open.to_string()),
        RpcChange::CloseSessions { sessions } => {
            let all: Vec<String> = sessions.iter().map(u64::to_string).collect();
            ("session close", all.join(" "))
        }
        RpcChange::FileSecurity { share, path } => ("acl", format!("{share} {path}")),
    }
}

async fn answer(manager: &Manager, change: RpcChange) -> Result<RpcDone, ApiError> {
    match change {
        RpcChange::CreateShare { name, path, settings } => {
            let options = options_of(settings)?;
            let (volume, path) = place_of(&path)?;
            manager.create_share(CreateShare { name, volume, path, options }).await?;
        }
        RpcChange::SetShare { name, settings } => manager.set_share(name, options_of(settings)?).await?,
        RpcChange::DeleteShare { name } => manager.delete_share(name).await?,
        RpcChange::CloseFile { open } => manager.close_file(open).await?,
        RpcChange::CloseSessions { sessions } => {
            for session in sessions {
                match manager.close_session(session).await {
                    // The session has already ended.
                    Err(error) if error.kind == ErrorKind::NotFound => {}
                    done => done?,
                }
            }
        }
        RpcChange::FileSecurity { share, path } => {
            return manager.descriptor(&share, &path).await.map(RpcDone::SecurityDescriptor);
        }
    }
    Ok(RpcDone::Changed)
}

fn invalid(why: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Invalid, why)
}

/// Parses a path of Windows' kind, as paths of shares are shown: `C:\VOLUME\DIRECTORY`.
fn place_of(path: &str) -> Result<(String, String), ApiError> {
    let path = path.replace('/', "\\");
    let inner = path.get(..3).filter(|drive| drive.eq_ignore_ascii_case("c:\\")).and(path.get(3..));
    let inner = inner.ok_or_else(|| invalid(format!("'{path}' is no path below C:\\")))?;
    let (volume, directory) = inner.split_once('\\').unwrap_or((inner, ""));
    if volume.is_empty() {
        return Err(invalid("the path names no volume: C:\\VOLUME or C:\\VOLUME\\DIRECTORY"));
    }
    Ok((volume.to_owned(), directory.to_owned()))
}

/// Converts a client's settings to options of a share.
fn options_of(settings: ShareSettings) -> Result<ShareOptions, ApiError> {
    let ShareSettings { comment, flags, security_descriptor } = settings;
    let access = security_descriptor.map(|descriptor| grants_of(&descriptor)).transpose()?;
    let has = |flag| flags.map(|flags| flags & flag != 0);
    Ok(ShareOptions {
        comment,
        access,
        encrypt: has(ENCRYPT_DATA),
        access_based_enumeration: has(ACCESS_BASED_ENUMERATION),
        caching: flags.map(|flags| flags & CACHING_MASK != CACHING_MASK),
        ..ShareOptions::default()
    })
}

/// Converts a share's descriptor to grants: entries that allow one of the three accesses, and none that deny.
fn grants_of(descriptor: &[u8]) -> Result<Vec<Grant>, ApiError> {
    let parsed = SecurityDescriptor::parse(descriptor);
    let parsed = parsed.map_err(|_| invalid("the share's security descriptor is malformed"))?;
    let dacl =
        parsed.dacl.ok_or_else(|| invalid("a share without a list of entries would be open to all"))?;
    let grant = |ace: &volume::security::Ace| {
        let known = [ShareAccess::Full, ShareAccess::Change, ShareAccess::Read];
        let mask = rights::map_generic(ace.mask);
        let access = known.into_iter().find(|access| access.mask() == mask);
        match (ace.kind, access) {
            (AceKind::Allow, Some(access)) => Ok(Grant { who: ace.sid.to_string(), access }),
            _ => Err(invalid(format!(
                "shares know entries that allow read, change or full access; the one of {} is another",
                ace.sid
            ))),
        }
    };
    dacl.aces.iter().map(grant).collect()
}

fn refusal(error: &ApiError) -> RpcRefusal {
    match error.kind {
        ErrorKind::NotFound => RpcRefusal::NotFound,
        ErrorKind::Conflict => RpcRefusal::Exists,
        ErrorKind::Invalid => RpcRefusal::Invalid,
        ErrorKind::Unauthorized | ErrorKind::Forbidden | ErrorKind::ConfirmationNeeded => {
            RpcRefusal::AccessDenied
        }
        ErrorKind::NoSpace | ErrorKind::Unavailable | ErrorKind::Corrupt | ErrorKind::Internal => {
            RpcRefusal::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Sid;
    use volume::security::{Ace, AceFlags, Acl, Control};

    fn descriptor(aces: Vec<Ace>) -> Vec<u8> {
        let dacl = Some(Acl::new(aces));
        let control = Control::DACL_PRESENT;
        SecurityDescriptor { control, dacl, ..SecurityDescriptor::default() }.build().unwrap()
    }

    #[test]
    fn a_path_of_windows_names_a_volume_and_a_directory_of_it() {
        let place = |path: &str| place_of(path).ok();
        let of = |volume: &str, path: &str| Some((volume.to_owned(), path.to_owned()));
        assert_eq!(place("C:\\data"), of("data", ""));
        assert_eq!(place("c:\\data\\plans\\new"), of("data", "plans\\new"));
        assert_eq!(place("C:/data/plans"), of("data", "plans"));
        for bad in ["", "data", "C:", "C:\\", "D:\\data", "\u{20AC}:\\data", "C:\u{20AC}"] {
            assert_eq!(place(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_descriptor_becomes_the_grants_that_it_was_made_of_and_nothing_is_guessed() {
        let allow = |mask| Ace::allow(Sid::everyone(), mask, AceFlags::empty());
        let all = descriptor([0x0012_00A9, 0x0013_01BF, 0x001F_01FF, 0x1000_0000].map(allow).to_vec());
        let grants = grants_of(&all).unwrap();
        let found: Vec<ShareAccess> = grants.iter().map(|grant| grant.access).collect();
        assert_eq!(found, [ShareAccess::Read, ShareAccess::Change, ShareAccess::Full, ShareAccess::Full]);
        assert!(grants_of(&descriptor(vec![allow(1)])).is_err(), "less than reading");
        let deny = Ace::deny(Sid::everyone(), 0x001F_01FF, AceFlags::empty());
        assert!(grants_of(&descriptor(vec![deny])).is_err());
        assert!(grants_of(&[1, 0, 4]).is_err());
        let open = SecurityDescriptor::default().build().unwrap();
        assert!(grants_of(&open).is_err(), "no list is access for all");
    }
}
