//! The channels of the session with one peer (MS-SMB2 3.2.4.1.7): the choice for each request, and the
//! making of further ones.
//!
//! The first one is the connection that the session was set up over. Further ones, to the peer's other addresses or beside it at the same, are
//! bound to the session while that is in use, each in a slot of its own; one that is lost is made anew after a pause. Promises: there is a
//! channel for as long as the owner keeps this; losing one costs nothing that is under way on the others.

use super::dial::Dial;
use super::pauses::Pauses;
use super::session::PeerError;
use super::{ChannelStatus, RemoteOptions};
use smb_client::{Binding, Channel, Leftovers, Options, Reply, Request as SmbRequest, Token};
use smb_transport::client::Way;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use types::Monotonic;

/// Channels that a session has by default: at most one for each of the peer's addresses.
const CHANNELS_MAX: usize = 4;
/// The longest pause before a channel is tried again: others carry the session, and an address may be out of reach for good.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Requests that move less go by the first channel, where they share messages to the kernel, as long as it has not much more under way than
/// another one.
const SMALL_BYTES: u64 = 128 << 10;
/// How much more that may be: less than a client's request notices, more than small ones make of their own.
const AHEAD_BYTES: u64 = 2 << 20;
/// Bytes of large requests after which a channel counts as proven. One that takes connections and small
/// messages alone, as a network with a smaller MTU than its servers believe, never reaches them, and
/// costs a stall whenever it is tried.
const PROVEN_BYTES: u64 = 8 << 20;
/// Pauses before such a channel is tried again: the first in pauses of other channels, 10 s by default, doubled each time, and the longest.
const UNPROVEN_TIMES: u32 = 200;
const UNPROVEN_PAUSE_MAX: Duration = Duration::from_secs(600);
/// Part by which a channel's pace counts as slower after each large request: the best recent one is the
/// network's, since disks make requests take longer, never shorter.
const PACE_DRIFT: u64 = 64;
/// Limit on a channel's pace, in multiples of the quickest, so that one that only seems slow is used
/// with much under way, and measured again.
const SLOWER_MAX: u64 = 8;

/// Where a channel leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub address: SocketAddr,
    pub is_rdma: bool,
}

/// Makes connections that log on, which only the owner can.
pub trait Maker {
    /// # Errors
    /// There is no thread for it.
    fn dial(&self, place: Place) -> Result<Dial, PeerError>;
    /// Whether a device connects to the place itself.
    fn is_by_device(&self, place: Place) -> bool;
    /// # Errors
    /// The link cannot be opened.
    fn bind(&self, place: Place, way: Way, binding: Binding) -> Result<Box<Channel>, PeerError>;
}

/// A channel that carries requests.
struct Used {
    slot: usize,
    channel: Box<Channel>,
    /// Bytes of requests under way, in both directions.
    bytes: u64,
    /// Bytes of large requests that were answered.
    proven_bytes: u64,
    /// Best time for a MiB, in nanoseconds, by recent large requests with the bytes under way before them;
    /// `None`: not measured yet.
    pace: Option<u64>,
    /// Whether an echo that tests the channel is unanswered.
    is_probed: bool,
}

/// A channel on its way.
enum Forming {
    /// No attempt before that time.
    Waiting {
        until: Monotonic,
    },
    Dialing {
        dial: Dial,
        until: Monotonic,
    },
    Joining {
        channel: Box<Channel>,
        until: Monotonic,
    },
}

/// Place and state of a channel, or of one that is to be.
struct Slot {
    place: Place,
    pauses: Pauses,
    /// `None`: it is in use.
    forming: Option<Forming>,
    is_told: bool,
    requests: u64,
    moved_bytes: u64,
    /// Losses in a row before the channel had moved [`PROVEN_BYTES`].
    unproven_losses: u32,
}

impl Used {
    fn new(slot: usize, channel: Box<Channel>) -> Self {
        Self { slot, channel, bytes: 0, proven_bytes: 0, pace: None, is_probed: false }
    }

    /// Time until one more request would be through, in nanoseconds, if the quickest channel has this pace.
    fn time_for(&self, more: u64, quickest: u64) -> u64 {
        let pace = self.pace.unwrap_or(quickest).min(quickest.saturating_mul(SLOWER_MAX));
        (self.bytes + more).saturating_mul(pace) >> 20
    }
}

/// See the module.
pub struct Channels {
    used: Vec<Used>,
    slots: Vec<Slot>,
    past_stalls: u64,
}

/// Returns a peer's socket, and that of the same port at each of its other addresses of the same kind.
/// An address without a listener costs an attempt only.
pub fn at_each(socket: Option<SocketAddr>, addresses: &[IpAddr]) -> Vec<SocketAddr> {
    let Some(socket) = socket else { return Vec::new() };
    let others = addresses.iter().filter(|ip| **ip != socket.ip() && ip.is_ipv4() == socket.is_ipv4());
    std::iter::once(socket).chain(others.map(|ip| SocketAddr::new(*ip, socket.port()))).collect()
}

/// The places of a session's channels: of the first one, then of the others. `wanted`: how many; `None`: one for each address.
pub fn places(first: Place, addresses: &[SocketAddr], wanted: Option<usize>) -> Vec<Place> {
    let others = addresses.iter().copied().filter(|address| *address != first.address);
    let mut all = vec![first];
    all.extend(others.map(|address| Place { address, ..first }));
    let count = wanted.unwrap_or(all.len().min(CHANNELS_MAX)).max(1);
    all.into_iter().cycle().take(count).collect()
}

impl Channels {
    /// Channels of a session that `first` carries, which leads to the first of the places.
    pub fn new(first: Box<Channel>, places: Vec<Place>, options: &RemoteOptions) -> Self {
        let slot = |(at, place): (usize, Place)| Slot {
            place,
            pauses: Pauses::new((options.pauses.0, PAUSE_MAX)),
            forming: (at > 0).then_some(Forming::Waiting { until: Monotonic(0) }),
            is_told: false,
            requests: 0,
            moved_bytes: 0,
            unproven_losses: 0,
        };
        let slots: Vec<Slot> = places.into_iter().enumerate().map(slot).collect();
        debug_assert!(!slots.is_empty(), "a session without the place of its first channel");
        Self { used: vec![Used::new(0, first)], slots, past_stalls: 0 }
    }

    /// How many carry requests.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    pub fn is_rdma(&self) -> bool {
        self.used.iter().any(|used| used.channel.is_rdma())
    }

    pub fn credit_stalls(&self) -> u64 {
        let present = self.used.iter().map(|used| used.channel.counters().smb_credit_stalls);
        self.past_stalls + present.sum::<u64>()
    }

    pub fn kill(&mut self, at: Option<usize>) {
        let chosen = self.used.iter_mut().enumerate().filter(|(place, _)| at.is_none_or(|at| at == *place));
        chosen.for_each(|(_, used)| used.channel.kill());
    }

    /// The channel that a request of this many bytes leaves by: the one that is through with it first,
    /// since networks may differ in speed. Small ones keep to the first channel.
    fn choose(&self, bytes: u64) -> usize {
        if self.used.len() == 1 {
            return 0;
        }
        if bytes < SMALL_BYTES {
            let fewest = self.used.iter().map(|used| used.bytes).min().unwrap_or_default();
            return self.used.iter().position(|used| used.bytes <= fewest + AHEAD_BYTES).unwrap_or_default();
        }
        // A channel without a measurement gets one: it counts as the quickest.
        let quickest = self.used.iter().filter_map(|used| used.pace).min().unwrap_or(1 << 20);
        let times = self.used.iter().map(|used| used.time_for(bytes, quickest)).enumerate();
        times.min_by_key(|(at, time)| (*time, *at)).map_or(0, |(at, _)| at)
    }

    /// Hands a request of this many bytes to a channel; returns, for a large one, the bytes under way there
    /// with it.
    pub fn submit(
        &mut self,
        token: Token,
        request: SmbRequest,
        bytes: u64,
        options: &Options,
        now: Monotonic,
    ) -> Option<u64> {
        let at = self.choose(bytes);
        let used = &mut self.used[at];
        used.bytes += bytes;
        used.channel.submit(token, request, options, now);
        let slot = &mut self.slots[used.slot];
        slot.requests += 1;
        slot.moved_bytes += bytes;
        (bytes >= SMALL_BYTES).then(|| self.used[at].bytes)
    }

    /// Hands the peer's own question to the first channel.
    pub fn submit_first(&mut self, token: Token, request: SmbRequest, options: &Options, now: Monotonic) {
        self.used[0].channel.submit(token, request, options, now);
    }

    /// Notes that the channel answered a request of this many bytes. `paced`: the bytes under way when it
    /// left, with it, and the time until its answer.
    pub fn ended(&mut self, at: usize, bytes: u64, paced: Option<(u64, Duration)>) {
        let used = &mut self.used[at];
        debug_assert!(used.bytes >= bytes, "a request that was not counted");
        used.bytes -= bytes;
        if bytes < SMALL_BYTES {
            return;
        }
        used.proven_bytes += bytes;
        if let Some((with, took)) = paced {
            let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            let pace = (nanoseconds.saturating_mul(1 << 10) / (with >> 10).max(1)).max(1);
            let slower = used.pace.map_or(pace, |before| before.saturating_add(before / PACE_DRIFT + 1));
            used.pace = Some(pace.min(slower));
        }
    }

    /// Sends an echo by all but the first, which carries the peer's own question: only so a dead channel is
    /// known from one that waits for disks that hang.
    pub fn probe(&mut self, token: Token, options: &Options, now: Monotonic) {
        for used in self.used.iter_mut().skip(1).filter(|used| !used.is_probed) {
            used.is_probed = true;
            used.channel.submit(token, SmbRequest::echo(), options, now);
        }
    }

    pub fn probed(&mut self, at: usize) {
        self.used[at].is_probed = false;
    }

    /// As [`Channel::pump`], for one channel.
    ///
    /// # Errors
    /// Why the channel is of no further use.
    pub fn pump(
        &mut self,
        at: usize,
        timeout: Duration,
        now: Monotonic,
        out: &mut Vec<(Token, Reply)>,
    ) -> Result<bool, PeerError> {
        Ok(self.used[at].channel.pump(now, timeout, out)?)
    }

    /// Takes out a lost channel, which is not the only one, and its unanswered requests.
    pub fn take_lost(&mut self, at: usize, now: Monotonic) -> (Place, Leftovers) {
        debug_assert!(self.used.len() > 1, "the last channel goes with the session");
        let Used { slot, mut channel, proven_bytes, .. } = self.used.remove(at);
        self.past_stalls += channel.counters().smb_credit_stalls;
        let slot = &mut self.slots[slot];
        let (mut until, _) = slot.pauses.after_failure(now);
        if proven_bytes >= PROVEN_BYTES {
            slot.unproven_losses = 0;
        } else {
            let pause = unproven_pause(slot.pauses.first(), slot.unproven_losses);
            (until, slot.unproven_losses) = (until.max(now.after(pause)), slot.unproven_losses + 1);
        }
        slot.forming = Some(Forming::Waiting { until });
        slot.is_told = false;
        (slot.place, channel.connection.take_leftovers())
    }

    /// Makes channels that are missing, without waiting; whether anything moved.
    pub fn form(&mut self, maker: &impl Maker, options: &RemoteOptions, now: Monotonic) -> bool {
        let is_due = |slot: &Slot| match slot.forming {
            None => false,
            Some(Forming::Waiting { until }) => until <= now,
            Some(Forming::Dialing { .. } | Forming::Joining { .. }) => true,
        };
        if !self.slots.iter().any(is_due) {
            return false;
        }
        // The session may not take any.
        let Some(binding) = self.used[0].channel.connection.binding() else { return false };
        let mut moved = false;
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let Some(forming) = slot.forming.take() else { continue };
            match step(forming, slot.place, &binding, maker, options, now) {
                Ok(Step::Stays(forming)) => slot.forming = Some(forming),
                Ok(Step::Moves(forming)) => (slot.forming, moved) = (Some(forming), true),
                Ok(Step::Done(channel)) => {
                    slot.pauses.succeeded(now);
                    slot.is_told = false;
                    tracing::info!(address = %slot.place.address, "one more channel of the storage bus");
                    // The order is that of the addresses: small requests keep to the first.
                    let place = self.used.partition_point(|used| used.slot < at);
                    self.used.insert(place, Used::new(at, channel));
                    moved = true;
                }
                Err(error) => {
                    if !std::mem::replace(&mut slot.is_told, true) {
                        tracing::info!(address = %slot.place.address, %error, "no further channel of the storage bus");
                    }
                    let (until, _) = slot.pauses.after_failure(now);
                    slot.forming = Some(Forming::Waiting { until });
                }
            }
        }
        moved
    }

    pub fn next_timeout(&self, silence: Duration) -> Option<Monotonic> {
        let asked = self.used.iter().filter(|used| used.channel.connection.in_flight() > 0);
        let silent_at = asked.map(|used| used.channel.next_timeout(silence));
        let forming = self.slots.iter().filter_map(|slot| match slot.forming.as_ref()? {
            Forming::Waiting { until } | Forming::Dialing { until, .. } => Some(*until),
            Forming::Joining { channel, until } => Some((*until).min(channel.next_timeout(silence))),
        });
        silent_at.chain(forming).min()
    }

    pub fn status(&self) -> Vec<ChannelStatus> {
        let status = |(at, slot): (usize, &Slot)| {
            let used = self.used.iter().find(|used| used.slot == at);
            ChannelStatus {
                address: slot.place.address,
                rdma: slot.place.is_rdma,
                is_ready: used.is_some(),
                in_flight_bytes: used.map_or(0, |used| used.bytes),
                requests: slot.requests,
                moved_bytes: slot.moved_bytes,
            }
        };
        self.slots.iter().enumerate().map(status).collect()
    }
}

/// Pause before the next attempt of a channel that was lost before it had moved [`PROVEN_BYTES`].
/// `losses_before`: such losses in a row before this one.
fn unproven_pause(first: Duration, losses_before: u32) -> Duration {
    let pause = first.saturating_mul(UNPROVEN_TIMES).saturating_mul(1 << losses_before.min(10));
    pause.min(UNPROVEN_PAUSE_MAX)
}

/// Result of a step of a channel on its way.
enum Step {
    Stays(Forming),
    Moves(Forming),
    Done(Box<Channel>),
}

fn step(
    forming: Forming,
    place: Place,
    binding: &Binding,
    maker: &impl Maker,
    options: &RemoteOptions,
    now: Monotonic,
) -> Result<Step, PeerError> {
    let until = now.after(options.dial_timeout);
    let join = |way| {
        let channel = maker.bind(place, way, binding.clone())?;
        Ok(Step::Moves(Forming::Joining { channel, until }))
    };
    match forming {
        Forming::Waiting { until } if until > now => Ok(Step::Stays(Forming::Waiting { until })),
        Forming::Waiting { .. } if maker.is_by_device(place) => join(Way::Device(place.address)),
        Forming::Waiting { .. } => Ok(Step::Moves(Forming::Dialing { dial: maker.dial(place)?, until })),
        Forming::Dialing { dial, until } => match dial.result() {
            None if now >= until => Err(PeerError::TimedOut),
            None => Ok(Step::Stays(Forming::Dialing { dial, until })),
            Some(Err(error)) => Err(PeerError::Other(error.to_string())),
            Some(Ok(stream)) if place.is_rdma => join(Way::Iwarp(stream)),
            Some(Ok(stream)) => join(Way::Tcp(stream)),
        },
        Forming::Joining { mut channel, until } => {
            let moved = channel.pump(now, options.silence, &mut Vec::new())?;
            match () {
                () if channel.connection.is_ready() => Ok(Step::Done(channel)),
                () if now >= until => Err(PeerError::TimedOut),
                () if moved => Ok(Step::Moves(Forming::Joining { channel, until })),
                () => Ok(Step::Stays(Forming::Joining { channel, until })),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(ports: &[u16]) -> Vec<SocketAddr> {
        ports.iter().map(|port| SocketAddr::from(([192, 0, 2, 1], *port))).collect()
    }

    #[test]
    fn a_channel_that_moves_nothing_large_is_tried_ever_more_rarely() {
        let pauses =
            [0, 1, 5, 6, 60].map(|losses| unproven_pause(Duration::from_millis(50), losses).as_secs());
        assert_eq!(pauses, [10, 20, 320, 600, 600]);
    }

    #[test]
    fn a_socket_is_looked_for_at_the_other_addresses_of_its_kind() {
        let known: [IpAddr; 3] = ["192.0.2.1", "2001:db8::1", "198.51.100.7"].map(|ip| ip.parse().unwrap());
        let found = at_each(Some("198.51.100.7:445".parse().unwrap()), &known);
        assert_eq!(found, ["198.51.100.7:445", "192.0.2.1:445"].map(|at| at.parse::<SocketAddr>().unwrap()));
        assert!(at_each(None, &known).is_empty());
    }

    #[test]
    fn a_session_has_a_channel_for_each_address_up_to_four_or_as_many_as_are_wanted() {
        let all = addresses(&[1, 2, 3, 4, 5, 6]);
        let first = Place { address: all[2], is_rdma: true };
        let ports = |wanted, addresses: &[SocketAddr]| {
            let found = places(first, addresses, wanted);
            assert!(found.iter().all(|place| place.is_rdma));
            found.iter().map(|place| place.address.port()).collect::<Vec<_>>()
        };
        assert_eq!(ports(None, &all), [3, 1, 2, 4]);
        assert_eq!(ports(None, &all[2..3]), [3]);
        assert_eq!(ports(Some(1), &all), [3]);
        assert_eq!(ports(Some(5), &all[1..3]), [3, 2, 3, 2, 3]);
        assert_eq!(ports(Some(0), &all), [3], "there is always one");
    }
}
