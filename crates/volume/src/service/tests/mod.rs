//! The service in virtual time, over a volume in memory.

mod bounds;
mod caching;
mod cold;
pub mod durability;
mod files;
mod locks;
mod lookup;
mod owners;
mod persistent;
mod propagation;
mod random;
pub mod refusals;
mod review;
mod short_names;

use super::{LastingOpens, Service, ServiceConfig};
use crate::backend::*;
use crate::fs::{Config, FileSystem, Format};
use crate::security::{rights, volume_root};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use sys::{Buf, Payload};
use types::{BlockCount, FileTime, Monotonic, NtStatus, Sid};

pub(crate) struct Bench {
    pub service: Service,
    pub now: Monotonic,
    next: u64,
    answers: HashMap<OperationId, Result<Reply, Refusal>>,
    pending: Vec<OperationId>,
    /// Breaks and closings, oldest first.
    pub told: Vec<Event>,
}

pub(crate) fn wide(text: &str) -> Box<[u16]> {
    text.encode_utf16().collect()
}

pub(crate) fn user(number: u32) -> Arc<AccessToken> {
    let sid = |rid| Sid::new(5, &[21, 1, 2, 3, rid]).expect("a SID");
    Arc::new(AccessToken {
        user: sid(1000 + number),
        primary_group: sid(513),
        groups: vec![Sid::everyone(), Sid::authenticated_users(), Sid::users()],
        privileges: Privileges::empty(),
    })
}

/// The caller of a session; its client has the same number.
pub(crate) fn caller(session: u64) -> Caller {
    Caller {
        session: SessionId(session),
        client: [session as u8; 16],
        token: user(1),
        root: ShareRoot::VOLUME,
        share_access: rights::FILE_ALL,
        share: ShareOptions::default(),
        standing: Standing::none(),
    }
}

/// An open of everything by everyone, made if it is missing.
pub(crate) fn open_if(session: u64, path: &str) -> Create {
    Create {
        caller: caller(session),
        path: wide(path),
        desired_access: rights::FILE_ALL,
        attributes: 0,
        share_access: 7,
        disposition: Disposition::OpenIf,
        options: 0,
        cache: CacheRequest::Oplock(OplockLevel::None),
        allocation_bytes: None,
        extended_attributes: Vec::new(),
        security: None,
        durable: None,
        app_instance: None,
        query_maximal_access: false,
        time_warp: None,
        replay: false,
    }
}

pub(crate) fn directory(session: u64, path: &str) -> Create {
    Create { options: super::options::DIRECTORY_FILE, ..open_if(session, path) }
}

/// An open of the root for listing.
pub(crate) fn root(session: u64) -> Create {
    Create { desired_access: rights::FILE_GENERIC_READ, ..directory(session, "") }
}

/// A new volume on the disk.
pub(crate) fn formatted(disk: impl space::api::VirtualDisk + 'static) -> FileSystem {
    let format = Format {
        id: [3; 16],
        label: "test".into(),
        serial: 1,
        now: FileTime(1_000_000),
        root_security: volume_root().build().expect("short enough"),
    };
    FileSystem::format(Box::new(disk), &format, Config::default())
}

impl Bench {
    pub fn new() -> Self {
        let disk = space::memory::MemoryVirtualDisk::new(BlockCount(65_536), 4096, BlockCount(65_536));
        Self::over(formatted(disk))
    }

    pub fn over(fs: FileSystem) -> Self {
        Self::with(fs, ServiceConfig::default())
    }

    /// Makes a bench with at most this many opens.
    pub fn with_opens(opens_max: usize) -> Self {
        let disk = space::memory::MemoryVirtualDisk::new(BlockCount(65_536), 4096, BlockCount(65_536));
        Self::with(formatted(disk), ServiceConfig { opens_max, ..ServiceConfig::default() })
    }

    /// Makes a bench with at most this many byte-range locks.
    pub fn with_locks(locks_max: usize) -> Self {
        let disk = space::memory::MemoryVirtualDisk::new(BlockCount(65_536), 4096, BlockCount(65_536));
        Self::with(formatted(disk), ServiceConfig { locks_max, ..ServiceConfig::default() })
    }

    fn with(fs: FileSystem, config: ServiceConfig) -> Self {
        let now = Monotonic(1);
        let service = Service::new(fs, config, now, FileTime(2_000_000));
        let mut bench =
            Self { service, now, next: 1, answers: HashMap::new(), pending: Vec::new(), told: Vec::new() };
        for _ in 0..100 {
            bench.run_polls();
        }
        assert!(bench.service.is_open(), "the volume opens");
        bench
    }

    fn run_polls(&mut self) {
        let mut events = Vec::new();
        for _ in 0..20 {
            self.service.poll(&mut events);
        }
        for event in events {
            match event {
                Event::Done { operation, result } => {
                    assert!(self.answers.insert(operation, result).is_none(), "answered twice");
                }
                Event::Pending { operation } => self.pending.push(operation),
                other => self.told.push(other),
            }
        }
    }

    /// Starts an operation.
    pub fn start(&mut self, request: Operation) -> OperationId {
        let operation = OperationId(self.next);
        self.next += 1;
        self.service.submit(operation, request, self.now);
        self.run_polls();
        operation
    }

    pub fn create_later(&mut self, create: Create) -> OperationId {
        self.start(Operation::Create(Box::new(create)))
    }

    /// Returns the answer, if there is one.
    pub fn answer(&mut self, operation: OperationId) -> Option<Result<Reply, NtStatus>> {
        self.full_answer(operation).map(|answer| answer.map_err(|refusal| refusal.status))
    }

    /// The answer with all details of a refusal.
    pub fn full_answer(&mut self, operation: OperationId) -> Option<Result<Reply, Refusal>> {
        self.run_polls();
        self.answers.remove(&operation)
    }

    pub fn is_waiting(&mut self, operation: OperationId) -> bool {
        self.run_polls();
        !self.answers.contains_key(&operation) && self.pending.contains(&operation)
    }

    pub fn call(&mut self, request: Operation) -> Result<Reply, NtStatus> {
        let operation = self.start(request);
        for _ in 0..1000 {
            if let Some(answer) = self.answer(operation) {
                return answer;
            }
        }
        panic!("no answer");
    }

    pub fn create(&mut self, create: Create) -> Result<Created, NtStatus> {
        match self.call(Operation::Create(Box::new(create)))? {
            Reply::Created(created) => Ok(*created),
            other => panic!("{other:?}"),
        }
    }

    pub fn close(&mut self, open: OpenId) -> Result<Reply, NtStatus> {
        self.call(Operation::Close { open, query: false })
    }

    pub fn write(&mut self, open: OpenId, offset: u64, data: &[u8]) -> Result<Reply, NtStatus> {
        let data = Payload::from(Buf::from(data));
        self.call(Operation::Write { open, offset, data, write_through: false, unbuffered: false })
    }

    pub fn read(&mut self, open: OpenId, offset: u64, len_bytes: u64) -> Result<Vec<u8>, NtStatus> {
        let range = ByteRange { offset, len_bytes };
        match self.call(Operation::Read { open, range, unbuffered: false })? {
            Reply::Read(payload) => Ok(payload.contiguous().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    pub fn information(&mut self, open: OpenId) -> FileInformation {
        match self.call(Operation::QueryInformation { open }) {
            Ok(Reply::Information(information)) => *information,
            other => panic!("{other:?}"),
        }
    }

    pub fn set(&mut self, open: OpenId, set: SetInformation) -> Result<Reply, NtStatus> {
        self.call(Operation::SetInformation { open, set })
    }

    pub fn names(&mut self, open: OpenId, pattern: &str) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let (pattern, short_names) = (wide(pattern), false);
            let request = Operation::QueryDirectory { open, pattern, after, entries_max: 3, short_names };
            let Ok(Reply::Directory(entries)) = self.call(request) else { panic!("no listing") };
            let Some(last) = entries.last() else { return names };
            after = last.cookie;
            names.extend(entries.iter().map(|entry| String::from_utf16_lossy(&entry.name)));
        }
    }

    pub fn pass(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
        self.service.handle_timeout(self.now);
        self.run_polls();
    }
}
