//! Accounts and shares of the cluster state, in the form the SMB server asks for.
//!
//! Promises: every answer is from RAM and of one version of the directory.

use crate::directory::SharedDirectory;
use cluster::shares::{Share as ShareRecord, ShareDurability};
use smb::rpc::AccountEntry;
use smb_server::{Account, Directory, Share};
use std::sync::Arc;
use types::Sid;
use volume::backend::{Durability, ShareOptions};

/// The directory as the server asks for it.
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
}
