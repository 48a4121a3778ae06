//! The two users, and the shares: one of a directory of each user's own, and one of both with the whole volume.

use smb::auth::NtHash;
use smb::rpc::{AccountEntry, AccountKind};
use smb_server::{Account, Directory, Share};
use std::sync::Arc;
use types::{Sid, VolumeId};
use volume::backend::{AccessToken, Privileges, ShareOptions};

pub const PASSWORD: &str = "right";
pub(crate) const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);
const FULL_ACCESS: u32 = 0x001F_01FF;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum User {
    Ana,
    Bob,
}

impl User {
    pub const ALL: [Self; 2] = [Self::Ana, Self::Bob];

    /// The user's name, which is also that of the share nobody else may connect and of the directory that is its root.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ana => "ana",
            Self::Bob => "bob",
        }
    }

    fn sid(self) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, 1000 + self as u32]).expect("four numbers make a SID")
    }

    pub(crate) fn token(self) -> AccessToken {
        AccessToken {
            user: self.sid(),
            primary_group: Sid::users(),
            groups: vec![Sid::everyone(), Sid::authenticated_users(), Sid::administrators()],
            privileges: Privileges::all(),
        }
    }
}

pub(crate) struct People {
    shares: Vec<Arc<Share>>,
}

impl Default for People {
    fn default() -> Self {
        let share = |name: &str, path: &str, who: Sid| {
            Arc::new(Share {
                name: name.to_owned(),
                comment: String::new(),
                volume: VOLUME,
                path: path.to_owned(),
                options: ShareOptions::default(),
                encrypt: false,
                access: vec![(who, FULL_ACCESS)],
            })
        };
        let mut shares = vec![share("both", "", Sid::everyone())];
        shares.extend(User::ALL.map(|user| share(user.name(), user.name(), user.sid())));
        Self { shares }
    }
}

impl Directory for People {
    fn account(&self, _domain: &str, name: &str) -> Option<Account> {
        let user = User::ALL.into_iter().find(|user| user.name() == name)?;
        Some(Account {
            name: name.to_owned(),
            nt_hash: *NtHash::from_password(PASSWORD).as_bytes(),
            enabled: true,
            token: Arc::new(user.token()),
        })
    }

    fn share(&self, name: &str) -> Option<Arc<Share>> {
        self.shares.iter().find(|share| share.name.eq_ignore_ascii_case(name)).cloned()
    }

    fn shares(&self) -> Vec<Arc<Share>> {
        self.shares.clone()
    }

    fn domain_sid(&self) -> Sid {
        Sid::new(5, &[21, 1, 2, 3]).expect("four numbers make a SID")
    }

    fn account_by_sid(&self, sid: &Sid) -> Option<AccountEntry> {
        let user = User::ALL.into_iter().find(|user| user.sid() == *sid)?;
        Some(AccountEntry { sid: sid.clone(), name: user.name().into(), kind: AccountKind::User })
    }

    fn account_by_name(&self, name: &str) -> Option<AccountEntry> {
        let user = User::ALL.into_iter().find(|user| user.name() == name)?;
        Some(AccountEntry { sid: user.sid(), name: name.into(), kind: AccountKind::User })
    }
    fn users(&self) -> Vec<smb::rpc::UserEntry> {
        Vec::new()
    }
    fn groups(&self) -> Vec<smb::rpc::GroupEntry> {
        Vec::new()
    }
    fn volume_name(&self, _volume: types::VolumeId) -> Option<String> {
        None
    }
}
