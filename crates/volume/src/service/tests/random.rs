//! Random operations of several clients on few files: every operation is answered once, none waits for
//! ever, nothing is left behind.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Create { session: u64, file: u8, disposition: u8, access: u8, share: u8, cache: u8, options: u8 },
    Close(usize),
    Write(usize),
    Read(usize),
    Lock { open: usize, offset: u64, kind: u8 },
    Delete(usize),
    Rename { open: usize, to: u8 },
    Notify(usize),
    AcknowledgeAll(u8),
    Cancel(usize),
    EndSession { session: u64 },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let session = 1..4_u64;
    let any_open = 0..8_usize;
    prop_oneof![
        8 => (session.clone(), 0..5_u8, 0..6_u8, 0..4_u8, 0..8_u8, 0..8_u8, 0..4_u8).prop_map(
            |(session, file, disposition, access, share, cache, options)| Step::Create {
                session, file, disposition, access, share, cache, options
            }
        ),
        3 => any_open.clone().prop_map(Step::Close),
        2 => any_open.clone().prop_map(Step::Write),
        1 => any_open.clone().prop_map(Step::Read),
        2 => (any_open.clone(), 0..20_u64, 0..4_u8)
            .prop_map(|(open, offset, kind)| Step::Lock { open, offset, kind }),
        1 => any_open.clone().prop_map(Step::Delete),
        1 => (any_open.clone(), 0..5_u8).prop_map(|(open, to)| Step::Rename { open, to }),
        1 => any_open.clone().prop_map(Step::Notify),
        4 => (0..8_u8).prop_map(Step::AcknowledgeAll),
        1 => any_open.prop_map(Step::Cancel),
        1 => session.prop_map(|session| Step::EndSession { session }),
        1 => (1..40_u64).prop_map(Step::Pass),
    ]
}

const FILES: [&str; 5] = ["a", "b", "d\\c", "a:s", "d"];

fn create_of(step: &Step) -> Create {
    let Step::Create { session, file, disposition, access, share, cache, options } = *step else {
        unreachable!("only creates are asked")
    };
    use Disposition::*;
    let disposition = [Open, OpenIf, Create, Overwrite, OverwriteIf, Supersede][usize::from(disposition)];
    let access =
        [rights::FILE_ALL, rights::READ_DATA | rights::DELETE, rights::WRITE_DATA, rights::READ_ATTRIBUTES]
            [usize::from(access)];
    let cache = match cache {
        0 => CacheRequest::Oplock(OplockLevel::None),
        1 => CacheRequest::Oplock(OplockLevel::LevelII),
        2 => CacheRequest::Oplock(OplockLevel::Exclusive),
        3 => CacheRequest::Oplock(OplockLevel::Batch),
        more => CacheRequest::Lease(LeaseRequest {
            key: [file + 10 * (more % 2); 16],
            state: [
                LeaseState::READ,
                LeaseState::all(),
                LeaseState::READ | LeaseState::HANDLE,
                LeaseState::all(),
            ][usize::from(more - 4)],
            version_2: None,
        }),
    };
    let options = [0, 0, super::super::options::DELETE_ON_CLOSE, 0][usize::from(options)];
    let durable = Some(DurableRequest::Version1);
    let share_access = u32::from(share);
    let base =
        if file == 4 { directory(session, FILES[4]) } else { open_if(session, FILES[usize::from(file)]) };
    let options = options | base.options;
    super::Create { disposition, desired_access: access, cache, options, durable, share_access, ..base }
}

struct Run {
    bench: Bench,
    opens: Vec<OpenId>,
    creates: Vec<OperationId>,
    others: Vec<OperationId>,
}

impl Run {
    fn collect(&mut self) {
        for operation in std::mem::take(&mut self.creates) {
            match self.bench.answer(operation) {
                None => self.creates.push(operation),
                Some(Ok(Reply::Created(created))) => self.opens.push(created.open),
                Some(_) => {}
            }
        }
        for operation in std::mem::take(&mut self.others) {
            if self.bench.answer(operation).is_none() {
                self.others.push(operation);
            }
        }
    }

    fn open(&self, index: usize) -> OpenId {
        match self.opens.len() {
            0 => OpenId(0),
            len => self.opens[index % len],
        }
    }

    fn acknowledge(&mut self, keep: LeaseState) {
        for event in std::mem::take(&mut self.bench.told) {
            let request = match event {
                Event::BreakLease { client, key, to, acknowledge: true, .. } => {
                    Operation::AcknowledgeLease { client, key, state: to & keep }
                }
                Event::BreakOplock { open, to, .. } => Operation::AcknowledgeOplock { open, level: to },
                _ => continue,
            };
            let operation = self.bench.start(request);
            self.others.push(operation);
        }
    }

    fn step(&mut self, step: &Step) {
        let request = match step {
            Step::Create { .. } => {
                let operation = self.bench.create_later(create_of(step));
                return self.creates.push(operation);
            }
            Step::Close(open) => Operation::Close { open: self.open(*open), query: false },
            Step::Write(open) => {
                let data = Payload::from(Buf::from(&b"data"[..]));
                let open = self.open(*open);
                Operation::Write { open, offset: 5, data, write_through: false, unbuffered: false }
            }
            Step::Read(open) => {
                let range = ByteRange { offset: 0, len_bytes: 100 };
                Operation::Read { open: self.open(*open), range, unbuffered: false }
            }
            Step::Lock { open, offset, kind } => {
                let element = LockElement {
                    range: ByteRange { offset: *offset, len_bytes: 5 },
                    exclusive: [Some(true), Some(false), None, Some(true)][usize::from(*kind)],
                    fail_immediately: *kind == 3,
                };
                Operation::Lock { open: self.open(*open), elements: vec![element], sequence: None }
            }
            Step::Delete(open) => Operation::SetInformation {
                open: self.open(*open),
                set: SetInformation::Disposition { flags: 1 },
            },
            Step::Rename { open, to } => {
                let target = wide(FILES[usize::from(*to)]);
                Operation::SetInformation {
                    open: self.open(*open),
                    set: SetInformation::Rename { target, replace: true, posix: false },
                }
            }
            Step::Notify(open) => {
                let open = self.open(*open);
                Operation::Notify { open, filter: 0xFFF, tree: true, bytes_max: 200 }
            }
            Step::AcknowledgeAll(keep) => {
                return self.acknowledge(LeaseState::from_bits_truncate(u32::from(*keep)));
            }
            Step::Cancel(index) => {
                let waiting: Vec<OperationId> = self.creates.iter().chain(&self.others).copied().collect();
                if let Some(operation) = waiting.get(index % waiting.len().max(1)) {
                    self.bench.service.cancel(*operation);
                }
                return;
            }
            Step::EndSession { session } => Operation::EndSession { session: SessionId(*session) },
            Step::Pass(seconds) => return self.bench.pass(Duration::from_secs(*seconds)),
        };
        let operation = self.bench.start(request);
        self.others.push(operation);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn everything_is_answered_once_and_nothing_is_left_behind(steps in prop::collection::vec(step(), 1..80)) {
        let mut bench = Bench::new();
        let d = bench.create(directory(1, "d")).expect("made");
        bench.close(d.open).expect("closed");
        let mut run = Run { bench, opens: Vec::new(), creates: Vec::new(), others: Vec::new() };
        for step in &steps {
            run.step(step);
            run.collect();
        }
        // Every break is acknowledged or times out; a create may meet several, one after the other.
        for _ in 0..20 {
            run.bench.pass(Duration::from_secs(36));
            run.collect();
        }
        prop_assert!(run.creates.is_empty(), "creates wait for ever");
        for session in 1..4 {
            let operation =
                run.bench.start(Operation::EndSession { session: SessionId(session) });
            run.others.push(operation);
        }
        run.bench.pass(Duration::from_secs(301));
        run.collect();
        prop_assert!(run.others.is_empty(), "operations without an answer");
        let service = &run.bench.service;
        prop_assert_eq!(service.open_count(), 0);
        prop_assert!(service.opens.is_empty(), "{:?}", service.opens);
        prop_assert!(service.caching.is_empty());
        prop_assert!(service.locks.is_empty());
        prop_assert!(service.replays.is_empty());
        prop_assert!(service.watches.is_empty());
        prop_assert!(service.agenda.tasks.is_empty());
        prop_assert!(service.reclaims.is_empty());
    }
}
