//! Each node's hold on the volume.
//!
//! A volume is not served as soon as its virtual disk is: the file layer on it opens after that, which
//! takes its time, and may fail. Nor does a node let go of one at once: commands on it have to end.
//! Meanwhile nothing is opened, even if the node hears that it should. It checks whether it is to have
//! the volume only when it hears of something new, or has let go of the volume.

use super::course::{Course, MILLISECOND};
use super::membership::Known;
use space::takeover::{LetGo, Tried};

/// Pause before a volume that could not be opened is tried again.
const PAUSE: u64 = 500 * MILLISECOND;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Another node has it.
    #[default]
    Elsewhere,
    /// The virtual disk opens.
    Opening,
    /// The file layer opens, until then.
    Mounting {
        until: u64,
        fails: bool,
    },
    Serving,
    /// Commands on it end.
    LettingGo {
        until: u64,
    },
    /// The volume could not be opened, and the node is about to record that.
    Failed {
        at: u64,
    },
    /// The node tries again then.
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
    /// The records are to be read before the node looks again.
    reads: bool,
    pub(super) looks: bool,
    known: Option<Known>,
}

impl Holding {
    /// Takes the node's present knowledge; `has_read`: the records were read.
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
