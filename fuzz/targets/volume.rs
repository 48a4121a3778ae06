//! On-disk structures of a volume: a formatted one with bytes of its blocks changed, opened.
//!
//! Checksums are zero in this build, so that changed bytes get past them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use space::api::{SpaceCompletion, SpaceError, SpaceReply, SpaceRequest, SpaceSize, VirtualDisk};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use sys::BufMut;
use types::{BlockCount, FileTime, Monotonic};
use volume::fs::{Config, FileSystem, Format, FsEvent};

const BLOCKS: u64 = 1 << 17;
const POLLS_MAX: usize = 5_000;

/// The blocks that were ever written; the others are zeroes.
#[derive(Default)]
struct Blocks {
    contents: BTreeMap<u64, Vec<u8>>,
    answers: Vec<SpaceCompletion>,
}

/// A virtual disk that outlives the file system on it.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Blocks>>);

impl VirtualDisk for Shared {
    fn size(&self) -> SpaceSize {
        SpaceSize { blocks: BlockCount(BLOCKS), available: BlockCount(BLOCKS), chunk_blocks: 16_384 }
    }

    fn submit(&mut self, token: u64, request: SpaceRequest) {
        let mut blocks = self.0.borrow_mut();
        let (lba, count) = match &request {
            SpaceRequest::Read { lba, blocks, .. } => (*lba, u64::from(*blocks)),
            SpaceRequest::Write { lba, data, .. } => (*lba, (data.len() / 4096) as u64),
            SpaceRequest::Discard { lba, blocks } => (*lba, *blocks),
        };
        if lba.0.checked_add(count).is_none_or(|end| end > BLOCKS) {
            let result = Err(SpaceError::Invalid("beyond the end"));
            blocks.answers.push(SpaceCompletion { token, result });
            return;
        }
        let result = match request {
            SpaceRequest::Read { lba, blocks: count, .. } => {
                let mut data = BufMut::zeroed(count as usize * 4096);
                for (index, target) in data.chunks_mut(4096).enumerate() {
                    if let Some(content) = blocks.contents.get(&(lba.0 + index as u64)) {
                        target.copy_from_slice(content);
                    }
                }
                SpaceReply::Data(data.freeze().into())
            }
            SpaceRequest::Write { lba, data, .. } => {
                let data = data.contiguous();
                for (index, content) in data.chunks(4096).enumerate() {
                    blocks.contents.insert(lba.0 + index as u64, content.to_vec());
                }
                SpaceReply::Done
            }
            SpaceRequest::Discard { lba, blocks: count } => {
                blocks.contents.retain(|&at, _| at < lba.0 || at >= lba.0 + count);
                SpaceReply::Done
            }
        };
        blocks.answers.push(SpaceCompletion { token, result: Ok(result) });
    }

    fn poll(&mut self, out: &mut Vec<SpaceCompletion>) {
        out.append(&mut self.0.borrow_mut().answers);
    }
}

/// Polls until the volume is open or has failed; whether it is open.
fn poll_until_opened(fs: &mut FileSystem) -> bool {
    let mut events = Vec::new();
    for now in 0..POLLS_MAX {
        fs.poll(Monotonic(now as u64 * 1_000_000), &mut events);
        for event in events.drain(..) {
            match event {
                FsEvent::Opened => return true,
                FsEvent::Failed(_) => return false,
                _ => {}
            }
        }
    }
    panic!("opening does not end");
}

fuzz_target!(|input: &[u8]| {
    let disk = Shared::default();
    let config = Config { cache_bytes: 1 << 20, dirty_bytes: 512 << 10, page_cache_bytes: 1 << 20 };
    let format = Format {
        id: [7; 16],
        label: "fuzz".into(),
        serial: 1,
        now: FileTime(133_000_000_000_000_000),
        root_security: Vec::new(),
    };
    let mut fs = FileSystem::format(Box::new(disk.clone()), &format, config);
    assert!(poll_until_opened(&mut fs));
    drop(fs);

    // (which of the blocks written, offset, up to 32 bytes), again and again.
    let mut rest = input;
    while let [which, low, high, len, after @ ..] = rest {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % 4096;
        let (bytes, after) = after.split_at(usize::from(*len % 32).min(after.len()));
        let mut blocks = disk.0.borrow_mut();
        let count = blocks.contents.len().max(1);
        if let Some(content) = blocks.contents.values_mut().nth(usize::from(*which) % count) {
            for (target, byte) in content[at..].iter_mut().zip(bytes) {
                *target = *byte;
            }
        }
        rest = after;
    }
    let mut fs = FileSystem::open(Box::new(disk), config);
    if poll_until_opened(&mut fs) {
        let _ = (fs.volume().label.len(), fs.statistics());
    }
});
