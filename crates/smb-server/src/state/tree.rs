//! Tree connects (MS-SMB2 3.3.1.9).

use super::keys::VolumeSlot;
use super::share_figures::FiguresSlot;
use crate::directory::Share;
use std::sync::Arc;
use volume::backend::{ShareOptions, ShareRoot, Standing};

/// Target of a tree connect.
#[derive(Clone)]
pub(crate) enum Target {
    /// A directory of a volume.
    Disk {
        volume: VolumeSlot,
        share: Arc<Share>,
        /// The directory that the share's path led to when the client connected.
        root: ShareRoot,
        /// The logon and the share that the tree connect depends on.
        standing: Standing,
    },
    /// IPC$.
    Pipe,
}

#[derive(Clone)]
pub(crate) struct Tree {
    pub target: Target,
    /// Access that the share grants this user at most.
    pub access: u32,
    /// Requests that are not encrypted are refused.
    pub encrypt: bool,
    pub figures: FiguresSlot,
}

impl Tree {
    pub fn options(&self) -> ShareOptions {
        match &self.target {
            Target::Disk { share, .. } => share.options,
            Target::Pipe => ShareOptions::default(),
        }
    }

    pub fn standing(&self) -> Standing {
        match &self.target {
            Target::Disk { standing, .. } => standing.clone(),
            Target::Pipe => Standing::none(),
        }
    }

    pub fn name(&self) -> &str {
        match &self.target {
            Target::Disk { share, .. } => &share.name,
            Target::Pipe => "IPC$",
        }
    }
}
