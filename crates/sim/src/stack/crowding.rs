//! Users who only make names, once all copies are whole: first one with a quota, then one without,
//! until the volume takes no more.
//!
//! Owns the progress of that. A quota applies to all kinds of files, and a volume that refuses a
//! name for lack of space reports no free space.

use super::home::wide;
use super::node::Node;
use super::served::Served;
use std::time::Duration;
use types::{BLOCK_BYTES, FileTime, Monotonic, Sid};
use volume::fs::{FileId, FileSystem, FsError, NewFile, QuotaLimits, QuotaMode, QuotaSettings};
use volume::security::SecurityDescriptor;

/// Most names of the bounded user: each costs at least a block.
const NAMES_MAX: u64 = 64;
/// Names made in one turn.
const NAMES: u64 = 64;
/// Pause for checkpoints and changes of the pool's space.
const PAUSE: Duration = Duration::from_millis(50);
/// Refusals in a row after which the volume is full: work that may free space has had two seconds.
const REFUSALS: u32 = 40;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    #[default]
    Begin,
    /// Counting the present files for quotas.
    Counting,
    Bounded,
    Unbounded,
    End,
}

#[derive(Debug, Default)]
pub(crate) struct Crowding {
    wake_at: Monotonic,
    step: Step,
    made: u64,
    refused: u32,
    /// A broken promise.
    pub wrong: Option<String>,
    /// The reason of the wait.
    pub why: String,
}

fn user(number: u32) -> Sid {
    Sid::new(5, &[21, 1, 2, 3, number]).expect("a SID")
}

impl Crowding {
    /// Continues in the first volume. Returns whether it is over.
    pub fn drive(&mut self, node: &mut Node, now: Monotonic) -> bool {
        if now < self.wake_at {
            return false;
        }
        self.wake_at = now.after(PAUSE);
        let Some(service) = node.volumes.first_mut().and_then(Served::service) else { return false };
        match self.go_on(service.file_system_mut()) {
            Ok(is_over) => is_over,
            Err(FsError::Miss) => false,
            Err(error) => {
                self.why = format!("{:?}: {error}", self.step);
                false
            }
        }
    }

    fn go_on(&mut self, fs: &mut FileSystem) -> Result<bool, FsError> {
        let (bounded, other) = (user(2001), user(2002));
        match self.step {
            Step::Begin => {
                fs.set_quota_settings(QuotaSettings { mode: QuotaMode::Enforce, ..fs.quota_settings().0 })?;
                self.step = Step::Counting;
            }
            Step::Counting if fs.quota_settings().1 => self.why = "the files are not counted".to_owned(),
            Step::Counting => {
                let limit_bytes = Some(NAMES_MAX * BLOCK_BYTES as u64);
                let limits = QuotaLimits { threshold_bytes: None, limit_bytes };
                fs.set_quota_limits(&bounded, Some(limits), FileTime(1))?;
                self.step = Step::Bounded;
            }
            Step::Bounded => match self.make(fs, &bounded) {
                Ok(()) if self.made <= NAMES_MAX => {}
                Err(FsError::QuotaExceeded | FsError::NoSpace) if self.made <= NAMES_MAX => {
                    self.step = Step::Unbounded
                }
                Err(error) if self.made <= NAMES_MAX => return Err(error),
                _ => {
                    let (made, limit) = (self.made, NAMES_MAX);
                    self.wrong = Some(format!("a user whose quota is {limit} blocks made {made} names"));
                    self.step = Step::End;
                }
            },
            Step::Unbounded => match self.make(fs, &other) {
                Ok(()) => self.refused = 0,
                Err(FsError::NoSpace) if self.refused < REFUSALS => self.refused += 1,
                Err(FsError::NoSpace) => {
                    let told = fs.statistics().available_bytes;
                    self.wrong = (told > 0).then(|| {
                        format!("a name is refused for want of room after {} names, and {told} bytes are told to be available", self.made)
                    });
                    self.step = Step::End;
                }
                Err(error) => return Err(error),
            },
            Step::End => {
                fs.set_quota_limits(&bounded, None, FileTime(1))?;
                fs.set_quota_settings(QuotaSettings::default())?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes some empty directories, until the volume refuses one.
    fn make(&mut self, fs: &mut FileSystem, owner: &Sid) -> Result<(), FsError> {
        let owned = SecurityDescriptor { owner: Some(owner.clone()), ..SecurityDescriptor::default() };
        let security = owned.build().expect("short enough");
        let new = NewFile { directory: true, attributes: 0, now: FileTime(1), security: &security };
        for _ in 0..NAMES {
            let name = wide(&format!("{:0>200}", self.made));
            fs.create(FileId::ROOT, &name, &new)?;
            self.made += 1;
        }
        Ok(())
    }
}
