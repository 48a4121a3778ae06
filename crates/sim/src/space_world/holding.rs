//! Each node's hold on the volume.
//!
//! A volume is not served as soon as its virtual disk is: the file layer opens after that, which
//! takes time and may fail. Nor does a node release a volume at once: commands on it must end.
//! Meanwhile the node opens nothing, even if it learns that it should. It checks whether it should
//! have the volume only on news, or after it has released the volume.

use super::course::{Course, MILLISECOND};
use super::membership::Known;
use space::takeover::{LetGo, Tried};

/// Pause before a volume that could not be opened is opened again.
const PAUSE: u64 = 500 * MILLISECOND;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Another node has the volume.
    #[default]
    Elsewhere,
    /// The virtual disk is being opened.
    Opening,
    /// The file layer is being opened, until this time.
    Mounting {
        until: u64,
        fails: bool,
    },
    Serving,
    /// Commands on it are ending.
    LettingGo {
        until: u64,
    },
    /// The volume could not be opened, and the node is about to record that.
    Failed {
        at: u64,
    },
    /// The node tries again at this time.
    Waiting {
        until: u64,
    },
}

/// A node's hold on the volume.
#[derive(Default)]
pub(crate) struct Holding {
    pub(super) hold: Hold,
    /// The last opening.
    pub(super) tried: Option<Tried>,
    let_go: LetGo,
    /// Whether the node must read the records before it checks again.
    reads: bool,
    pub(super) looks: bool,
    known: Option<Known>,
}

impl Holding {
    /// Updates the node's present knowledge; `has_read`: the records were read.
    pub(super) fn hear(&mut self, known: Known, has_read: bool) {
        self.reads |= self.let_go.take();
        self.looks |= has_read && std::mem::take(&mut self.reads);
        if self.known.as_ref() != Some(&known) {
            self.known = Some(known);
            self.looks = true;
        }
    }

    pub(super) fn fail(&mut self, course: &Course) {
        self.hold = Hold::Waiting { until: course.now + PAUSE };
    }

    pub(super) fn let_go(&mut self) {
        self.hold = Hold::Elsewhere;
        self.let_go.note();
    }
}
