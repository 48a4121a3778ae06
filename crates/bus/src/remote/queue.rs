//! The queue before one peer's connections: which request leaves next, and how many bytes may be under way.
//!
//! Requests under way count by the bytes that they move in either direction: the data of a READ arrive
//! as soon as it has left, and several peers that answer at once would fill this node's link and its
//! switch's buffers (incast).
//!
//! | bound | of | if it is reached |
//! |---|---|---|
//! | [`Windows::peer_bytes`] | all requests under way at the peer | nothing leaves |
//! | [`Windows::background_bytes`] | of those, requests that no client waits for | clients' requests leave |
//! | one disk's part of either: as much as is still free | requests under way at the disk | requests to other disks leave |
//! | a silent disk's share of either: one of as many as there are disks, and one more | requests under way at a disk that has answered nothing for [`SILENT_AFTER`] | requests to other disks leave, and bytes under way there beyond the share count no more, up to one further window: disks that hang delay no others |
//! | [`Windows::incoming_bytes`], the same rule for peers | data of READs, from all peers | all else leaves; a peer without a READ under way may have one in any case |
//!
//! Of the requests that may leave, the earliest goes first, and background work counts as having come a
//! little later than it did ([`head_start`]). So clients overtake it, and it waits at most for a
//! bounded time beyond earlier requests. Requests of one priority to one disk keep their order.
//!
//! # Why others may change places
//!
//! A transport may delay and reorder requests anyway ([`space::message::Transport`]), and nothing above
//! relies on more. Two changes of the same blocks are never under way together, since the coordinator locks
//! blocks. A read may be under way beside a change of its blocks: a late read that another copy has answered
//! meanwhile holds no lock any more. Its answer goes nowhere, in either order. The disk refuses a request
//! under an epoch that it has left behind, and the coordinator asks again. The opening of a session does not
//! wait here, and ends the session before it: requests of that one that still wait are answered with
//! [`space::message::BusError::NoSession`] when their turn comes, and never sent. So a write that the
//! coordinator has given up reaches the disk before the next session or not at all.
//!
//! # How long a request waits
//!
//! A request waits as long as others need, which says nothing of its disk. So the queue reports waiting
//! requests to their coordinators, which count the disk's time from the departure of the request
//! ([`Queue::tell`]). It does not report requests for a disk that has something to answer and answers
//! nothing: that wait is the disk's. Clients' reads are reported at once, and again when they leave,
//! since coordinators measure how long disks take for them. The number of waiting requests is bounded
//! by the work of coordinators: clients' requests, and a few regions of each volume in the background.

use super::PortId;
use space::message::{Priority, ReplicaOperation, Request, Waiting};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{BLOCK_BYTES, DiskId, Monotonic};

/// How many bytes may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// At one peer. A request that has more goes alone.
    pub peer_bytes: u64,
    /// Bytes of those, in the background.
    pub background_bytes: u64,
    /// From all peers to this node, by READs, beside one READ for each peer.
    pub incoming_bytes: u64,
}

impl Default for Windows {
    /// SMB2 credits allow 32 MiB under way at a peer (512 of 64 KiB), which would be one long queue there.
    /// A quarter of that keeps four regions of 1 MiB of one disk under way, which fills a link of 10
    /// Gbit/s, and lets a client's request wait behind it for 7 ms there. Data of READs fill the same link
    /// for 13 ms at most.
    fn default() -> Self {
        Self { peer_bytes: 32 << 20, background_bytes: 8 << 20, incoming_bytes: 16 << 20 }
    }
}

/// Bytes that each request counts beside its payload: as many as one SMB2 credit stands for, so that
/// credits do not end before bytes do.
const MESSAGE_BYTES: u64 = 64 << 10;
/// Interval between reports of waiting requests: several fit into a coordinator's timeout of a disk,
/// which is seconds.
const TELL_INTERVAL: Duration = Duration::from_secs(1);
/// Time without any answer from a disk that owes one, after which requests wait for the disk itself.
const WAITED_FOR_AFTER: Duration = Duration::from_secs(2);
/// Time without any answer from a disk that owes one, after which it is silent: longer than a spinning
/// disk takes for all requests that it may have at once.
pub const SILENT_AFTER: Duration = Duration::from_millis(500);
/// Interval between checks for silent disks.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Delay by which a request counts as having come later. Short, since a step of a job has the lock of
/// the region that it copies, for which a client may wait.
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
            ReplicaOperation::Read { blocks, .. } => {
                let bytes = u64::from(*blocks) * BLOCK_BYTES as u64;
                (bytes, bytes)
            }
            ReplicaOperation::Write { data, .. } => (data.len() as u64, 0),
            _ => (0, 0),
        };
        let (disk, priority) = (self.disk, self.request.priority);
        Load { disk, priority, bytes: payload_bytes + MESSAGE_BYTES, incoming_bytes }
    }

    /// Whether a client waits for it to be read.
    pub fn is_client_read(&self) -> bool {
        let Request { priority, operation, .. } = &self.request;
        *priority == Priority::Client && matches!(operation, ReplicaOperation::Read { .. })
    }

    /// The notice to the request's coordinator.
    pub fn waiting(&self, has_left: bool) -> Waiting {
        let Request { volume, session, id, .. } = self.request;
        Waiting { disk: self.disk, volume, session, id, has_left }
    }

    fn due(&self) -> Monotonic {
        self.asked_at.after(head_start(self.request.priority))
    }
}

/// Bytes that a request under way counts.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    disk: DiskId,
    priority: Priority,
    bytes: u64,
    incoming_bytes: u64,
}

impl Load {
    /// Bytes of the request in both directions, plus [`MESSAGE_BYTES`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Bytes under way at one disk, or a part of them.
#[derive(Debug, Clone, Copy, Default)]
struct Bytes {
    all: u64,
    background: u64,
    incoming: u64,
}

impl Bytes {
    fn of(load: &Load) -> Self {
        let background = if load.priority == Priority::Client { 0 } else { load.bytes };
        Self { all: load.bytes, background, incoming: load.incoming_bytes }
    }

    /// The bytes of whole windows.
    fn of_windows(windows: &Windows) -> Self {
        let Windows { peer_bytes, background_bytes, incoming_bytes } = *windows;
        Self { all: peer_bytes, background: background_bytes, incoming: incoming_bytes }
    }

    fn each(self, other: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            all: of(self.all, other.all),
            background: of(self.background, other.background),
            incoming: of(self.incoming, other.incoming),
        }
    }
}

/// Requests under way at one disk.
struct AtDisk {
    bytes: Bytes,
    /// Time of the disk's last answer, or of the first request after it had answered everything.
    heard_at: Monotonic,
    is_silent: bool,
}

impl AtDisk {
    fn is_unheard(&self, now: Monotonic, limit: Duration) -> bool {
        self.bytes.all > 0 && now.since(self.heard_at) >= limit
    }
}

/// Why a request does not leave now.
enum Full {
    /// The window is full: nothing else may leave, either.
    Window,
    /// The request's own part is full: it waits for others of its kind.
    Part,
}

/// Requests that wait for one peer or are under way there, over all channels.
pub struct Queue {
    windows: Windows,
    /// First come, first served. None is empty.
    lanes: BTreeMap<(Priority, DiskId), VecDeque<Queued>>,
    disks: BTreeMap<DiskId, AtDisk>,
    /// Bytes under way, by priority.
    bytes: [u64; Priority::ALL.len()],
    incoming_bytes: u64,
    /// Bytes of all these that do not count: those at silent disks beyond their share.
    excused: Bytes,
    tell_at: Monotonic,
    look_at: Monotonic,
}

/// Whether a party with `own` of the `taken` bytes may have `more` of a window: only if it has no more
/// than is still free.
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
            excused: Bytes::default(),
            tell_at: Monotonic(0),
            look_at: Monotonic(0),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Bytes of READs under way, as far as they count.
    pub fn incoming_bytes(&self) -> u64 {
        self.incoming_bytes - self.excused.incoming
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
        let under_way: u64 = self.bytes.iter().sum();
        let taken = under_way - self.excused.all;
        let at_disk = self.disks.get(&load.disk);
        let own = at_disk.map_or(Bytes::default(), |disk| disk.bytes);
        if at_disk.is_some_and(|disk| disk.is_silent)
            && own.all > 0
            && own.all + load.bytes > self.share().all
        {
            return Err(Full::Part);
        }
        if taken > 0 && taken + load.bytes > peer_bytes {
            return Err(Full::Window);
        }
        let in_background = under_way - self.bytes(Priority::Client) - self.excused.background;
        let fits = taken == 0 || has_room(peer_bytes, taken, own.all, load.bytes);
        let fits_background = load.priority == Priority::Client
            || in_background == 0
            || has_room(background_bytes, in_background, own.background, load.bytes);
        let incoming = self.incoming_bytes();
        let fits_incoming = load.incoming_bytes == 0
            || incoming == 0
            || has_room(incoming_bytes, incoming + elsewhere, incoming, load.incoming_bytes);
        if fits && fits_background && fits_incoming { Ok(()) } else { Err(Full::Part) }
    }

    /// The share of a silent disk in each window.
    fn share(&self) -> Bytes {
        let parts = self.disks.len() as u64 + 1;
        let windows = Bytes::of_windows(&self.windows);
        windows.each(windows, |window, _| window / parts)
    }

    /// Counts a request that leaves.
    pub fn left(&mut self, load: &Load, now: Monotonic) {
        self.bytes[load.priority as usize] += load.bytes;
        self.incoming_bytes += load.incoming_bytes;
        let unasked = AtDisk { bytes: Bytes::default(), heard_at: now, is_silent: false };
        let disk = self.disks.entry(load.disk).or_insert(unasked);
        if disk.bytes.all == 0 {
            disk.heard_at = now;
        }
        disk.bytes = disk.bytes.each(Bytes::of(load), |own, more| own + more);
    }

    /// Stops counting a request that had left.
    pub fn ended(&mut self, load: &Load) {
        self.bytes[load.priority as usize] -= load.bytes;
        self.incoming_bytes -= load.incoming_bytes;
        let Some(disk) = self.disks.get_mut(&load.disk) else { return };
        disk.bytes = disk.bytes.each(Bytes::of(load), |own, less| own - less);
        if disk.is_silent {
            disk.is_silent = disk.bytes.all > 0;
            self.excuse();
        }
    }

    /// The disk has answered something.
    pub fn answered(&mut self, disk: DiskId, now: Monotonic) {
        let Some(disk) = self.disks.get_mut(&disk) else { return };
        disk.heard_at = now;
        if std::mem::take(&mut disk.is_silent) {
            self.excuse();
        }
    }

    /// Finds silent disks, if it is time.
    pub fn look(&mut self, now: Monotonic) {
        if now < self.look_at {
            return;
        }
        self.look_at = now.after(LOOK_INTERVAL);
        let mut is_changed = false;
        for disk in self.disks.values_mut().filter(|disk| !disk.is_silent) {
            disk.is_silent = disk.is_unheard(now, SILENT_AFTER);
            is_changed |= disk.is_silent;
        }
        if is_changed {
            self.excuse();
        }
    }

    /// Computes the bytes that do not count: at most a whole window, so that SMB2 credits do not end.
    fn excuse(&mut self) {
        let share = self.share();
        let silent = self.disks.values().filter(|disk| disk.is_silent);
        let beyond = silent.map(|disk| disk.bytes.each(share, u64::saturating_sub));
        let all = beyond.fold(Bytes::default(), |all, more| all.each(more, |all, more| all + more));
        self.excused = all.each(Bytes::of_windows(&self.windows), u64::min);
    }

    /// Forgets waiting requests of a port that is gone.
    pub fn forget(&mut self, port: PortId) {
        self.lanes.retain(|_, lane| {
            lane.retain(|queued| queued.port != port);
            !lane.is_empty()
        });
    }

    /// Reports requests that wait for others, if it is time.
    pub fn tell(&mut self, now: Monotonic, mut out: impl FnMut(PortId, Waiting)) {
        if self.lanes.is_empty() || now < self.tell_at {
            return;
        }
        self.tell_at = now.after(TELL_INTERVAL);
        let is_waited_for =
            |disk| self.disks.get(&disk).is_some_and(|disk| disk.is_unheard(now, WAITED_FOR_AFTER));
        for queued in self.lanes.values().flatten().filter(|queued| !is_waited_for(queued.disk)) {
            out(queued.port, queued.waiting(false));
        }
    }

    /// Time of the next call of [`Queue::tell`] or [`Queue::look`].
    pub fn next_timeout(&self) -> Option<Monotonic> {
        (!self.lanes.is_empty()).then_some(self.tell_at.min(self.look_at))
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
            operation: ReplicaOperation::Read { lba: Lba(0), blocks },
        };
        Queued { port: PortId(0), disk: DiskId::from_bytes([disk; 16]), request, asked_at: at(milliseconds) }
    }

    /// Ids of the requests that leave, which count from then on.
    fn leaving(queue: &mut Queue) -> Vec<u64> {
        let next = |queue: &mut Queue| {
            let queued = queue.next(0)?;
            queue.left(&queued.load(), at(0));
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
    fn disks_that_hang_keep_a_share_and_the_healthy_one_goes_on() {
        for priority in [Priority::Client, Priority::Rebuild] {
            let windows = Windows { peer_bytes: 4 << 20, background_bytes: 4 << 20, incoming_bytes: 4 << 20 };
            // Requests to a healthy disk stand behind others to disks that hang.
            let asked = (0..90).map(|id| ask(priority, 1 + id as u8 % 3, 256, id, id));
            let mut queue = queue_of(windows, asked);
            let healthy = ask(priority, 3, 256, 2, 0).load();
            let mut ids = leaving(&mut queue);
            let mut answered = 0;
            for millisecond in 0..2000 {
                queue.look(at(millisecond));
                for _ in ids.drain(..).filter(|id| id % 3 == 2) {
                    queue.answered(healthy.disk, at(millisecond));
                    queue.ended(&healthy);
                    answered += 1;
                }
                ids = leaving(&mut queue);
            }
            assert_eq!(answered, 30, "{priority:?}");
            // The disks that hang have no more than was under way when they were found silent, and SMB2 credits suffice for that.
            assert!(queue.bytes.iter().sum::<u64>() <= 2 * windows.peer_bytes);
            assert!(queue.incoming_bytes() <= windows.incoming_bytes);
            // When they answer again, all counts again, and all that waits leaves.
            let before = leaving(&mut queue).len();
            assert_eq!(before, 0);
            for disk in [1, 2] {
                let load = ask(priority, disk, 256, 0, 0).load();
                queue.answered(load.disk, at(2000));
                assert_eq!(queue.excused.all == 0, disk == 2, "{priority:?}");
            }
        }
    }

    #[test]
    fn a_disk_that_answers_now_and_then_is_not_silent() {
        let mut queue = queue_of(WINDOWS, (0..100).map(|id| ask(Priority::Client, 1, 256, id, 0)));
        leaving(&mut queue);
        for millisecond in (0..4000).step_by(100) {
            queue.look(at(millisecond));
            assert!(!queue.disks.values().any(|disk| disk.is_silent), "after {millisecond} ms");
            if millisecond % 400 == 0 {
                queue.answered(DiskId::from_bytes([1; 16]), at(millisecond));
            }
        }
    }

    #[test]
    fn what_waits_for_a_port_that_is_gone_is_forgotten() {
        let mut queue = queue_of(WINDOWS, (0..4).map(|id| ask(Priority::Client, 1, 1, id, 0)));
        queue.push(Queued { port: PortId(1), ..ask(Priority::Client, 2, 1, 9, 0) }, at(0));
        queue.forget(PortId(0));
        assert_eq!(leaving(&mut queue), [9]);
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
            queue.answered(DiskId::from_bytes([2; 16]), at(1000 * second));
            // A new session of another volume ends the requests under way there: that is no answer.
            queue.ended(&ask(Priority::Client, 1, 256, 0, 0).load());
            leaving(&mut queue);
            let expected = if second < WAITED_FOR_AFTER.as_secs() { vec![1, 2, 3] } else { vec![2, 3] };
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
        queue.left(&first.load(), at(0));
        assert!(queue.next(WINDOWS.incoming_bytes).is_none());
        let mut promise = ask(Priority::Client, 2, 0, 9, 5);
        promise.request.operation = ReplicaOperation::Promise;
        queue.push(promise, at(5));
        assert_eq!(queue.next(WINDOWS.incoming_bytes).map(|queued| queued.request.id.0), Some(9));
        assert!(queue.next(0).is_some());
    }
}
