//! The queue before one peer's connection: which request leaves next, and how many bytes may be under way.
//!
//! What is under way counts by the bytes that it moves in either direction: those that a READ will bring are there as soon as it has left, and
//! several peers that answer at once would fill this node's line and its switch's buffers (incast).
//!
//! | bound | of | if it is reached |
//! |---|---|---|
//! | [`Windows::peer_bytes`] | all that is under way at the peer | nothing leaves |
//! | [`Windows::background_bytes`] | of that, what no client waits for | clients' requests leave |
//! | one disk's part of either: as much as is still free | what is under way at the disk | requests to other disks leave, so that one which hangs delays none of them |
//! | [`Windows::incoming_bytes`], the same rule for peers | what READs bring, from all peers | all else leaves; a peer of which nothing is read may have one READ under way in any case |
//!
//! Of those that may leave, the one that came first goes first, and work in the background counts as having come a little later than it did
//! ([`head_start`]). So clients overtake it, and it waits for a bounded time at most beyond what came before. Requests of one priority to one disk keep
//! their order.
//!
//! # Why others may change places
//!
//! A transport may delay and reorder requests anyway ([`space::message::Transport`]), and nothing above relies on more. Writes, discards and
//! reads of the same blocks are never under way together, since the coordinator locks blocks. A request under an epoch that the disk has left behind is
//! refused, and asked again. The opening of a session does not wait here, and ends the session before it: what waits from that one is answered
//! with [`space::message::BusError::NoSession`] when its turn comes, and never sent. So a write of which the coordinator has given up to hear
//! comes to the disk before the next session or not at all.
//!
//! # How long a request waits
//!
//! As long as others need, which says nothing of its disk. Coordinators are told of what waits, and count the disk's time from when the request
//! has left ([`Queue::tell`]). They are not told of what waits for a disk that has something to answer and answers nothing: then it is the disk that is waited for. How many wait is bounded by what coordinators ask at once: a client's requests in work, and a few regions of each
//! volume in the background.

use super::PortId;
use space::message::{Operation, Priority, Request, Waiting};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{BLOCK_BYTES, DiskId, Monotonic};

/// How many bytes may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// At one peer. A request that has more goes alone.
    pub peer_bytes: u64,
    /// Of those, in the background.
    pub background_bytes: u64,
    /// From all peers to this node, by READs, beside one READ for each peer.
    pub incoming_bytes: u64,
}

impl Default for Windows {
    /// SMB2 credits let 32 MiB be under way at a peer (512 of 64 KiB), where they would make everything wait in one line. A quarter of that
    /// keeps four regions of 1 MiB of one disk under way, which fills a line of 10 Gbit/s, and lets a client's request wait behind it for 7 ms there. What
    /// is read fills the same line for 13 ms at most.
    fn default() -> Self {
        Self { peer_bytes: 32 << 20, background_bytes: 8 << 20, incoming_bytes: 16 << 20 }
    }
}

/// What each request counts beside its payload: as much as one SMB2 credit stands for, so that credits do not end before bytes do.
const MESSAGE_BYTES: u64 = 64 << 10;
/// How often coordinators are told of what waits: several times within the time that they give a disk, which is seconds.
const TELL_INTERVAL: Duration = Duration::from_secs(1);
/// A disk that has something to answer and answers nothing from one time of telling to so many later is waited for itself.
const SILENT_TELLS: u8 = 2;

/// How much later than it did a request counts as having come. Short, since a step of a job has the lock of the region that it copies, for which a
/// client may wait.
fn head_start(priority: Priority) -> Duration {
    Duration::from_millis(match priority {
        Priority::Client => 0,
        Priority::Resync => 50,
        Priority::Rebuild => 100,
        Priority::Rebalance => 200,
    })
}

/// A request that has not left.
pub struct Queued {
    pub port: PortId,
    pub disk: DiskId,
    pub request: Request,
    pub asked_at: Monotonic,
}

impl Queued {
    pub fn load(&self) -> Load {
        let (payload_bytes, incoming_bytes) = match &self.request.operation {
            Operation::Read { blocks, .. } => {
                let bytes = u64::from(*blocks) * BLOCK_BYTES as u64;
                (bytes, bytes)
            }
            Operation::Write { data, .. } => (data.len() as u64, 0),
            _ => (0, 0),
        };
        let (disk, priority) = (self.disk, self.request.priority);
        Load { disk, priority, bytes: payload_bytes + MESSAGE_BYTES, incoming_bytes }
    }

    fn due(&self) -> Monotonic {
        self.asked_at.after(head_start(self.request.priority))
    }
}

/// What a request that is under way counts.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    disk: DiskId,
    priority: Priority,
    bytes: u64,
    incoming_bytes: u64,
}

/// Bytes under way at one disk.
#[derive(Default)]
struct AtDisk {
    all: u64,
    background: u64,
    /// Times of telling since it answered, or since it has something to answer.
    silent_tells: u8,
}

/// Why a request does not leave now.
enum Full {
    /// Nothing else may, either.
    Window,
    /// It waits for others of its kind.
    Part,
}

/// What waits for one peer and what is under way there, over one connection.
pub struct Queue {
    windows: Windows,
    /// First come, first served. None is empty.
    lanes: BTreeMap<(Priority, DiskId), VecDeque<Queued>>,
    disks: BTreeMap<DiskId, AtDisk>,
    /// Bytes under way, by priority.
    bytes: [u64; Priority::ALL.len()],
    incoming_bytes: u64,
    tell_at: Monotonic,
}

/// Whether somebody who has `own` of `taken` bytes may have `more` of a window: only if he has no more than is still free.
fn has_room(window: u64, taken: u64, own: u64, more: u64) -> bool {
    taken + more <= window && own <= window - taken
}

impl Queue {
    pub fn new(windows: Windows) -> Self {
        Self {
            windows,
            lanes: BTreeMap::new(),
            disks: BTreeMap::new(),
            bytes: [0; Priority::ALL.len()],
            incoming_bytes: 0,
            tell_at: Monotonic(0),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// What READs under way bring.
    pub fn incoming_bytes(&self) -> u64 {
        self.incoming_bytes
    }

    pub fn bytes(&self, priority: Priority) -> u64 {
        self.bytes[priority as usize]
    }

    pub fn waiting(&self, priority: Priority) -> usize {
        let of_priority = self.lanes.iter().filter(|((of, _), _)| *of == priority);
        of_priority.map(|(_, lane)| lane.len()).sum()
    }

    /// Has the request wait for its turn.
    pub fn push(&mut self, queued: Queued, now: Monotonic) {
        if self.lanes.is_empty() {
            self.tell_at = now.after(TELL_INTERVAL);
        }
        self.lanes.entry((queued.request.priority, queued.disk)).or_default().push_back(queued);
    }

    /// Takes the request that leaves now, if one may. `elsewhere`: bytes that READs under way bring from other peers.
    pub fn next(&mut self, elsewhere: u64) -> Option<Queued> {
        let mut tried = None;
        loop {
            let heads = self.lanes.iter().filter_map(|(lane, queued)| Some((queued.front()?.due(), *lane)));
            let head = heads.filter(|head| tried.is_none_or(|tried| tried < *head)).min()?;
            let lane = self.lanes.get_mut(&head.1)?;
            let load = lane.front()?.load();
            match self.check(&load, elsewhere) {
                Ok(()) => {
                    let lane = self.lanes.get_mut(&head.1)?;
                    let queued = lane.pop_front();
                    if lane.is_empty() {
                        self.lanes.remove(&head.1);
                    }
                    return queued;
                }
                Err(Full::Window) => return None,
                Err(Full::Part) => tried = Some(head),
            }
        }
    }

    /// Whether a request may leave without waiting.
    pub fn admits(&self, load: &Load, elsewhere: u64) -> bool {
        self.is_empty() && self.check(load, elsewhere).is_ok()
    }

    fn check(&self, load: &Load, elsewhere: u64) -> Result<(), Full> {
        let Windows { peer_bytes, background_bytes, incoming_bytes } = self.windows;
        let taken: u64 = self.bytes.iter().sum();
        if taken > 0 && taken + load.bytes > peer_bytes {
            return Err(Full::Window);
        }
        let at_disk = self.disks.get(&load.disk);
        let own = at_disk.map_or(0, |disk| disk.all);
        let in_background = taken - self.bytes(Priority::Client);
        let own_background = at_disk.map_or(0, |disk| disk.background);
        let fits = taken == 0 || has_room(peer_bytes, taken, own, load.bytes);
        let fits_background = load.priority == Priority::Client
            || in_background == 0
            || has_room(background_bytes, in_background, own_background, load.bytes);
        let incoming = self.incoming_bytes + elsewhere;
        let fits_incoming = load.incoming_bytes == 0
            || self.incoming_bytes == 0
            || has_room(incoming_bytes, incoming, self.incoming_bytes, load.incoming_bytes);
        if fits && fits_background && fits_incoming { Ok(()) } else { Err(Full::Part) }
    }

    /// Counts a request that leaves.
    pub fn left(&mut self, load: &Load) {
        self.bytes[load.priority as usize] += load.bytes;
        self.incoming_bytes += load.incoming_bytes;
        let disk = self.disks.entry(load.disk).or_default();
        if disk.all == 0 {
            disk.silent_tells = 0;
        }
        disk.all += load.bytes;
        disk.background += if load.priority == Priority::Client { 0 } else { load.bytes };
    }

    /// Counts a request no more that had left.
    pub fn ended(&mut self, load: &Load) {
        self.bytes[load.priority as usize] -= load.bytes;
        self.incoming_bytes -= load.incoming_bytes;
        if let Some(disk) = self.disks.get_mut(&load.disk) {
            disk.all -= load.bytes;
            disk.background -= if load.priority == Priority::Client { 0 } else { load.bytes };
        }
    }

    /// The disk has answered something.
    pub fn answered(&mut self, disk: DiskId) {
        if let Some(disk) = self.disks.get_mut(&disk) {
            disk.silent_tells = 0;
        }
    }

    /// Tells of what waits for others, if it is time.
    pub fn tell(&mut self, now: Monotonic, mut out: impl FnMut(PortId, Waiting)) {
        if self.lanes.is_empty() || now < self.tell_at {
            return;
        }
        self.tell_at = now.after(TELL_INTERVAL);
        for disk in self.disks.values_mut().filter(|disk| disk.all > 0) {
            disk.silent_tells = disk.silent_tells.saturating_add(1);
        }
        let is_silent = |disk| self.disks.get(&disk).is_some_and(|disk| disk.silent_tells > SILENT_TELLS);
        for queued in self.lanes.values().flatten().filter(|queued| !is_silent(queued.disk)) {
            let Request { volume, session, id, .. } = queued.request;
            out(queued.port, Waiting { disk: queued.disk, volume, session, id });
        }
    }

    /// When [`Queue::tell`] wants to be called.
    pub fn next_timeout(&self) -> Option<Monotonic> {
        (!self.lanes.is_empty()).then_some(self.tell_at)
    }

    /// Takes everything that waits, in the order of asking.
    pub fn drain(&mut self) -> Vec<Queued> {
        let mut all: Vec<Queued> = std::mem::take(&mut self.lanes).into_values().flatten().collect();
        all.sort_by_key(|queued| (queued.request.session, queued.request.id));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use space::message::{RequestId, SessionId};
    use std::collections::BTreeSet;
    use types::{Epoch, Lba, VolumeId};

    const WINDOWS: Windows =
        Windows { peer_bytes: 16 << 20, background_bytes: 4 << 20, incoming_bytes: 8 << 20 };

    fn at(milliseconds: u64) -> Monotonic {
        Monotonic(milliseconds * 1_000_000)
    }

    fn ask(priority: Priority, disk: u8, blocks: u32, id: u64, milliseconds: u64) -> Queued {
        let request = Request {
            volume: VolumeId::from_bytes([7; 16]),
            session: SessionId(1),
            id: RequestId(id),
            epoch: Epoch(1),
            priority,
            operation: Operation::Read { lba: Lba(0), blocks },
        };
        Queued { port: PortId(0), disk: DiskId::from_bytes([disk; 16]), request, asked_at: at(milliseconds) }
    }

    /// The ids of what leaves, and counts from then on.
    fn leaving(queue: &mut Queue) -> Vec<u64> {
        let next = |queue: &mut Queue| {
            let queued = queue.next(0)?;
            queue.left(&queued.load());
            Some(queued.request.id.0)
        };
        std::iter::from_fn(|| next(queue)).collect()
    }

    fn queue_of(windows: Windows, asked: impl IntoIterator<Item = Queued>) -> Queue {
        let mut queue = Queue::new(windows);
        asked.into_iter().for_each(|queued| queue.push(queued, at(0)));
        queue
    }

    #[test]
    fn a_disk_that_hangs_leaves_room_for_others() {
        for priority in [Priority::Client, Priority::Rebuild] {
            let windows = Windows { incoming_bytes: u64::MAX, ..WINDOWS };
            let hanging = (0..100).map(|id| ask(priority, 1, 256, id, 0));
            let mut queue = queue_of(windows, hanging);
            let of_one = leaving(&mut queue).len();
            assert!(of_one >= 2, "{of_one}");
            queue.push(ask(priority, 2, 256, 200, 1), at(1));
            assert_eq!(leaving(&mut queue), [200], "{priority:?}");
        }
    }

    #[test]
    fn what_waits_for_others_is_told_and_what_waits_for_a_disk_that_answers_nothing_is_not() {
        let asked = (0..100).map(|id| ask(Priority::Client, 1 + id as u8 % 2, 256, id, 0));
        let mut queue = queue_of(WINDOWS, asked);
        leaving(&mut queue);
        // Nothing is under way there.
        queue.push(ask(Priority::Client, 3, 256, 200, 0), at(0));
        for second in 1..=8 {
            let mut told = BTreeSet::new();
            queue.tell(at(1000 * second), |_, waiting| {
                told.insert(waiting.disk.to_bytes()[0]);
            });
            queue.answered(DiskId::from_bytes([2; 16]));
            // A new session of another volume takes off what was under way there: that is no answer.
            queue.ended(&ask(Priority::Client, 1, 256, 0, 0).load());
            leaving(&mut queue);
            let expected = if second <= u64::from(SILENT_TELLS) { vec![1, 2, 3] } else { vec![2, 3] };
            assert_eq!(told.into_iter().collect::<Vec<_>>(), expected, "after {second} s");
        }
    }

    #[test]
    fn what_is_larger_than_a_window_goes_alone() {
        for priority in [Priority::Client, Priority::Rebuild] {
            let windows = Windows { peer_bytes: 4096, background_bytes: 4096, incoming_bytes: 4096 };
            let mut queue = queue_of(windows, (0..3).map(|id| ask(priority, 1, 256, id, 0)));
            for id in 0..3 {
                assert_eq!(leaving(&mut queue), [id]);
                queue.ended(&ask(priority, 1, 256, id, 0).load());
            }
        }
    }

    #[test]
    fn work_in_the_background_is_overtaken_by_what_comes_within_its_head_start_only() {
        let windows = Windows { peer_bytes: 4096, ..WINDOWS };
        let order = |asked: Vec<Queued>| {
            let mut queue = queue_of(windows, asked);
            let mut order = Vec::new();
            while let [id] = leaving(&mut queue)[..] {
                order.push(id);
                queue = Queue { lanes: queue.lanes, ..Queue::new(windows) };
            }
            order
        };
        use Priority::{Client, Rebalance, Rebuild, Resync};
        let asked = vec![
            ask(Rebalance, 1, 1, 4, 0),
            ask(Rebuild, 1, 1, 3, 0),
            ask(Resync, 1, 1, 2, 0),
            ask(Client, 1, 1, 1, 0),
        ];
        assert_eq!(order(asked), [1, 2, 3, 4]);
        let asked = vec![ask(Resync, 1, 1, 1, 0), ask(Client, 1, 1, 2, 49), ask(Client, 1, 1, 3, 51)];
        assert_eq!(order(asked), [2, 1, 3]);
    }

    #[test]
    fn background_has_a_part_of_the_window_and_clients_the_rest() {
        let reads = (0..100).map(|id| ask(Priority::Resync, id as u8 % 5, 256, id, 0));
        let mut queue = queue_of(Windows { incoming_bytes: u64::MAX, ..WINDOWS }, reads);
        leaving(&mut queue);
        assert!(queue.bytes(Priority::Resync) <= WINDOWS.background_bytes);
        assert_eq!(queue.waiting(Priority::Resync), 97);
        for id in 200..300 {
            queue.push(ask(Priority::Client, id as u8 % 5, 256, id, 10), at(10));
        }
        leaving(&mut queue);
        let in_all: u64 = queue.bytes.iter().sum();
        assert!(in_all <= WINDOWS.peer_bytes && in_all > WINDOWS.peer_bytes - (2 << 20), "{in_all}");
    }

    #[test]
    fn reads_elsewhere_leave_a_peer_one_read_and_its_writes() {
        let mut queue = queue_of(WINDOWS, (0..4).map(|id| ask(Priority::Client, 1, 256, id, 0)));
        let first = queue.next(WINDOWS.incoming_bytes).unwrap();
        queue.left(&first.load());
        assert!(queue.next(WINDOWS.incoming_bytes).is_none());
        let mut promise = ask(Priority::Client, 2, 0, 9, 5);
        promise.request.operation = Operation::Promise;
        queue.push(promise, at(5));
        assert_eq!(queue.next(WINDOWS.incoming_bytes).map(|queued| queued.request.id.0), Some(9));
        assert!(queue.next(0).is_some());
    }
}
