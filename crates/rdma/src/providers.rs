//! Both providers as one, for a server with one set of connections.
//!
//! Owns which connection and which registration is whose. Promises: names of connections and keys of registrations are unique over
//! both; each call goes to the provider that made the name.

use crate::ibverbs::IbverbsProvider;
use crate::iwarp::IwarpProvider;
use crate::verbs::{
    Access, Activity, ConnectionInfo, Event, PostError, QueuePairId, RegionKey, RegisterError, Verbs, WorkId,
};
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;
use sys::{Buf, BufMut, Payload};
use types::{IdentityMap, Monotonic};

/// Registrations made in search of a key that the other provider did not give.
const KEY_ATTEMPTS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Iwarp,
    Device,
}

/// See the module.
pub struct Providers {
    pub iwarp: IwarpProvider,
    /// `None`: no device is to be used, or there is none.
    pub devices: Option<IbverbsProvider>,
    keys: IdentityMap<u32, Owner>,
    events: Vec<Event>,
}

fn split(queue_pair: QueuePairId) -> (Owner, QueuePairId) {
    let owner = if queue_pair.is_by_device() { Owner::Device } else { Owner::Iwarp };
    (owner, queue_pair.of_provider())
}

impl Providers {
    pub fn new(iwarp: IwarpProvider, devices: Option<IbverbsProvider>) -> Self {
        Self { iwarp, devices, keys: IdentityMap::default(), events: Vec::new() }
    }

    /// [`IbverbsProvider::connect`], under this one's name for the connection.
    ///
    /// # Errors
    /// As there; `Unsupported` without devices.
    pub fn connect_by_device(
        &mut self,
        address: SocketAddr,
        private_data: &[u8],
        now: Monotonic,
    ) -> io::Result<QueuePairId> {
        let devices = self.devices.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        devices.connect(address, private_data, now).map(QueuePairId::by_device)
    }

    fn owner(&self, owner: Owner) -> Option<&dyn Verbs> {
        match owner {
            Owner::Iwarp => Some(&self.iwarp),
            Owner::Device => self.devices.as_ref().map(|devices| devices as &dyn Verbs),
        }
    }

    fn owner_mut(&mut self, owner: Owner) -> Option<&mut dyn Verbs> {
        match owner {
            Owner::Iwarp => Some(&mut self.iwarp),
            Owner::Device => self.devices.as_mut().map(|devices| devices as &mut dyn Verbs),
        }
    }

    /// The provider of a connection, and its name there.
    fn of(&mut self, queue_pair: QueuePairId) -> Result<(&mut dyn Verbs, QueuePairId), PostError> {
        let (owner, queue_pair) = split(queue_pair);
        self.owner_mut(owner).map(|provider| (provider, queue_pair)).ok_or(PostError::Closed)
    }

    /// `make` registers again each time; `again` ends the registration before, and gives back the bytes
    /// needed for that.
    fn register_with<T>(
        &mut self,
        owner: Owner,
        mut bytes: T,
        make: impl Fn(&mut dyn Verbs, T) -> Result<RegionKey, RegisterError>,
        again: impl Fn(&mut dyn Verbs, RegionKey) -> Option<T>,
    ) -> Result<RegionKey, RegisterError> {
        for _ in 0..KEY_ATTEMPTS {
            let provider = self.owner_mut(owner).ok_or(RegisterError::Closed)?;
            let key = make(provider, bytes)?;
            match self.keys.entry(key.0) {
                Entry::Vacant(entry) => {
                    entry.insert(owner);
                    return Ok(key);
                }
                // The other provider gave the same: both choose others each time.
                Entry::Occupied(_) => {
                    let provider = self.owner_mut(owner).ok_or(RegisterError::Closed)?;
                    bytes = again(provider, key).ok_or(RegisterError::Refused(io::ErrorKind::AddrInUse))?;
                }
            }
        }
        Err(RegisterError::Refused(io::ErrorKind::AddrInUse))
    }
}

impl Verbs for Providers {
    fn accept(&mut self, queue_pair: QueuePairId, private_data: &[u8]) -> Result<(), PostError> {
        let (provider, queue_pair) = self.of(queue_pair)?;
        provider.accept(queue_pair, private_data)
    }

    fn reject(&mut self, queue_pair: QueuePairId, private_data: &[u8]) {
        if let Ok((provider, queue_pair)) = self.of(queue_pair) {
            provider.reject(queue_pair, private_data);
        }
    }

    fn disconnect(&mut self, queue_pair: QueuePairId) {
        if let Ok((provider, queue_pair)) = self.of(queue_pair) {
            provider.disconnect(queue_pair);
        }
    }

    fn info(&self, queue_pair: QueuePairId) -> Option<ConnectionInfo> {
        let (owner, queue_pair) = split(queue_pair);
        self.owner(owner)?.info(queue_pair)
    }

    fn device_name(&self, queue_pair: QueuePairId) -> Option<String> {
        let (owner, queue_pair) = split(queue_pair);
        self.owner(owner)?.device_name(queue_pair)
    }

    fn register(
        &mut self,
        bytes: BufMut,
        access: Access,
        queue_pair: QueuePairId,
    ) -> Result<RegionKey, RegisterError> {
        let (owner, queue_pair) = split(queue_pair);
        let make = |provider: &mut dyn Verbs, bytes| provider.register(bytes, access, queue_pair);
        self.register_with(owner, bytes, make, |provider, key| provider.deregister(key))
    }

    fn register_room(
        &mut self,
        len_bytes: usize,
        access: Access,
        queue_pair: QueuePairId,
    ) -> Result<RegionKey, RegisterError> {
        let (owner, queue_pair) = split(queue_pair);
        let make =
            |provider: &mut dyn Verbs, len_bytes| provider.register_room(len_bytes, access, queue_pair);
        self.register_with(owner, len_bytes, make, |provider, key| {
            provider.deregister(key);
            Some(len_bytes)
        })
    }

    fn register_shared(&mut self, bytes: Buf, queue_pair: QueuePairId) -> Result<RegionKey, RegisterError> {
        let (owner, queue_pair) = split(queue_pair);
        let make = |provider: &mut dyn Verbs, bytes: Buf| provider.register_shared(bytes, queue_pair);
        self.register_with(owner, bytes.clone(), make, |provider, key| {
            provider.deregister(key);
            Some(bytes.clone())
        })
    }

    fn remote_offset(&self, key: RegionKey) -> u64 {
        let provider = self.keys.get(&key.0).and_then(|owner| self.owner(*owner));
        provider.map_or(0, |provider| provider.remote_offset(key))
    }

    fn deregister(&mut self, key: RegionKey) -> Option<BufMut> {
        let owner = self.keys.remove(&key.0)?;
        self.owner_mut(owner)?.deregister(key)
    }

    #[inline]
    fn post_receive(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        len_bytes: usize,
    ) -> Result<(), PostError> {
        // Each message comes by here: known at compile time, it costs no call.
        if !queue_pair.is_by_device() {
            return self.iwarp.post_receive(queue_pair, id, len_bytes);
        }
        let (provider, queue_pair) = self.of(queue_pair)?;
        provider.post_receive(queue_pair, id, len_bytes)
    }

    fn set_receive_bytes_max(&mut self, queue_pair: QueuePairId, bytes: usize) {
        if let Ok((provider, queue_pair)) = self.of(queue_pair) {
            provider.set_receive_bytes_max(queue_pair, bytes);
        }
    }

    fn post_send(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        payload: Payload,
        invalidate: Option<RegionKey>,
    ) -> Result<(), PostError> {
        let (provider, queue_pair) = self.of(queue_pair)?;
        provider.post_send(queue_pair, id, payload, invalidate)
    }

    #[inline]
    fn post_send_with_head(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        head: &[u8],
        payload: Payload,
        invalidate: Option<RegionKey>,
    ) -> Result<(), PostError> {
        if !queue_pair.is_by_device() {
            return self.iwarp.post_send_with_head(queue_pair, id, head, payload, invalidate);
        }
        let (provider, queue_pair) = self.of(queue_pair)?;
        provider.post_send_with_head(queue_pair, id, head, payload, invalidate)
    }

    fn post_write(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        payload: Payload,
        remote: (RegionKey, u64),
    ) -> Result<(), PostError> {
        let (provider, queue_pair) = self.of(queue_pair)?;
        provider.post_write(queue_pair, id, payload, remote)
    }

    fn post_read(
        &mut self,
        queue_pair: QueuePairId,
        id: WorkId,
        sink: (RegionKey, u64),
        len_bytes: u32,
        remote: (RegionKey, u64),
    ) -> Result<(), PostError> {
        let (provider, queue_pair) = self.of(queue_pair)?;
        provider.post_read(queue_pair, id, sink, len_bytes, remote)
    }

    fn poll(&mut self, now: Monotonic, out: &mut Vec<Event>) {
        self.iwarp.poll(now, out);
        let Some(devices) = &mut self.devices else { return };
        devices.poll(now, &mut self.events);
        out.extend(self.events.drain(..).map(|event| match event {
            Event::ConnectRequest { queue_pair, peer, private_data } => {
                Event::ConnectRequest { queue_pair: queue_pair.by_device(), peer, private_data }
            }
            Event::Established { queue_pair, private_data } => {
                Event::Established { queue_pair: queue_pair.by_device(), private_data }
            }
            Event::Completion(mut completion) => {
                completion.queue_pair = completion.queue_pair.by_device();
                Event::Completion(completion)
            }
            Event::Disconnected { queue_pair, reason } => {
                Event::Disconnected { queue_pair: queue_pair.by_device(), reason }
            }
        }));
    }

    /// Devices place what comes into receives that were posted with their memory.
    fn take_unfinished(&mut self, out: &mut Vec<(QueuePairId, usize)>) {
        self.iwarp.take_unfinished(out);
    }

    fn wants_poll(&self) -> bool {
        self.iwarp.wants_poll() || self.devices.as_ref().is_some_and(Verbs::wants_poll)
    }

    fn activity(&self) -> Activity {
        let mut activity = self.iwarp.activity();
        activity += self.devices.as_ref().map(Verbs::activity).unwrap_or_default();
        activity
    }

    fn next_timeout(&self) -> Option<Monotonic> {
        let devices = self.devices.as_ref().and_then(Verbs::next_timeout);
        [self.iwarp.next_timeout(), devices].into_iter().flatten().min()
    }
}
