//! Accounts and shares of the cluster state, in the SMB server's form.
//!
//! Promises: every answer is from RAM and of one version of the directory.

use crate::directory::SharedDirectory;
use records::accounts::{Group, User};
use records::shares::{Share as ShareRecord, ShareDurability};
use smb::rpc::{AccountEntry, GroupEntry, UserEntry};
use smb_server::{Account, Directory, Share};
use std::sync::Arc;
use types::{FileTime, Sid, VolumeId};
use volume::backend::{Durability, ShareOptions};

/// The directory for the SMB server.
pub struct ServerDirectory(pub SharedDirectory);

fn share_of(record: &ShareRecord) -> Arc<Share> {
    let durability = match record.durability {
        ShareDurability::Write => Durability::Write,
        ShareDurability::Close => Durability::Close,
        ShareDurability::Flush => Durability::Flush,
    };
    Arc::new(Share {
        name: record.name.clone(),
        comment: record.comment.clone(),
        volume: record.volume,
        path: record.path.clone(),
        options: ShareOptions {
            durability,
            read_only: record.read_only,
            continuously_available: record.continuously_available,
            scale_out: record.scale_out,
            access_based_enumeration: record.access_based_enumeration,
            no_caching: !record.caching,
        },
        encrypt: record.encrypt,
        access: record.access.iter().map(|(sid, access)| (sid.clone(), access.mask())).collect(),
    })
}

impl Directory for ServerDirectory {
    fn account(&self, _domain: &str, user: &str) -> Option<Account> {
        let directory = self.0.current();
        let secret = directory.user(user)?;
        Some(Account {
            name: secret.user.name.clone(),
            nt_hash: *secret.nt_hash,
            enabled: secret.user.enabled,
            token: Arc::new(directory.token(&secret.user.sid)),
        })
    }

    fn is_behind(&self) -> bool {
        self.0.freshness().is_behind()
    }

    fn share(&self, name: &str) -> Option<Arc<Share>> {
        self.0.current().share(name).map(|share| share_of(share))
    }

    fn shares(&self) -> Vec<Arc<Share>> {
        self.0.current().shares().map(|share| share_of(share)).collect()
    }

    fn domain_sid(&self) -> Sid {
        self.0.current().domain_sid().clone()
    }

    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        self.0.current().account_by_sid(sid)
    }

    fn account_by_name(&self, name: &str) -> Option<AccountEntry> {
        self.0.current().account_by_name(name)
    }

    fn users(&self) -> Vec<UserEntry> {
        let entry = |user: &User| UserEntry {
            sid: user.sid.clone(),
            name: user.name.clone(),
            full_name: user.full_name.clone(),
            enabled: user.enabled,
            password_set: FileTime::from_unix_nanos(i128::from(user.password_set_unix_s) * 1_000_000_000),
        };
        self.0.current().users().map(entry).collect()
    }

    fn groups(&self) -> Vec<GroupEntry> {
        let entry = |group: &Group| GroupEntry {
            sid: group.sid.clone(),
            name: group.name.clone(),
            members: group.members.clone(),
        };
        self.0.current().groups().iter().map(entry).collect()
    }

    fn volume_name(&self, volume: VolumeId) -> Option<String> {
        self.0.current().volume_name(volume).map(str::to_owned)
    }
}
