//! What a request becomes when what it waited for has come.

use crate::directory::Directory;
use crate::extended_attributes::ea_answer;
use crate::file::{close_body, empty_body, lease_break_body, notify_answer, oplock_break_body};
use crate::query_info::{security_answer, short_name_answer, stream_answer};
use crate::request::{Body, Context, Step, Work};
use crate::server::Server;
use crate::set_info::set_info_body;
use smb::wire::INFO_FILESYSTEM;
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, CacheGrant, Reply};

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn finish_work(
        &mut self,
        context: &mut Context,
        work: Work,
        result: Result<Reply, NtStatus>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        match work {
            Work::Read { minimum, length, offset } => {
                self.read_done(context, minimum, length, offset, result?)
            }
            Work::Write { length } => {
                let Reply::Written(count) = result? else { return Err(NtStatus::INTERNAL_ERROR) };
                self.counters.written_bytes += u64::from(count);
                if let Some(open) = self.opens.get_mut(context.open) {
                    open.written_bytes += u64::from(count);
                }
                if let Some(session) = self.sessions.get_mut(context.session) {
                    session.written_bytes += u64::from(count);
                }
                Ok(Step::Reply(NtStatus::SUCCESS, Body::Written(count.min(length))))
            }
            Work::ReadRemote { minimum, length, offset, memory } => {
                match self.read_done(context, minimum, length, offset, result?)? {
                    Step::Reply(NtStatus::SUCCESS, Body::Read(data)) => {
                        self.read_into_remote(context, *memory, data)
                    }
                    other => Ok(other),
                }
            }
            Work::WriteRemote(work) => {
                result?;
                self.remote_fetched(context, *work)
            }
            Work::TreeConnect(work) => self.root_opened(context, &work, result),
            Work::Create(work) => match result? {
                Reply::Created(created) => self.created(context, &work, *created, now),
                _ => Err(NtStatus::INTERNAL_ERROR),
            },
            Work::Close { query } => {
                // Closed it is, even where what was written could not be kept.
                self.forget_open(context.open);
                match result? {
                    Reply::Closed(information) => {
                        Ok(Step::ok(close_body(information.as_ref().filter(|_| query))))
                    }
                    _ => Ok(Step::ok(close_body(None))),
                }
            }
            Work::Flush => result.map(|_| Step::ok(empty_body())),
            Work::Lock { then } => {
                result?;
                then.map_or_else(|| Ok(Step::ok(empty_body())), Err)
            }
            Work::SetInfo => {
                result?;
                Ok(Step::ok(set_info_body()))
            }
            Work::QueryDirectory(work) => {
                let step = match result {
                    Ok(Reply::Directory(entries)) => self.enumerated(context, &work, &entries),
                    Ok(_) => Err(NtStatus::INTERNAL_ERROR),
                    Err(status) => Err(status),
                };
                self.enumeration_free(context.open, now);
                step
            }
            Work::QueryDirectoryQueued(work) => {
                result?;
                self.enumerate(context.open, work)
            }
            Work::Notify { bytes_max } => match result {
                Ok(Reply::Notify(changes)) => Ok(notify_answer(&changes, bytes_max)),
                Ok(_) => Err(NtStatus::INTERNAL_ERROR),
                Err(status) if !status.is_error() => {
                    let mut body = Vec::new();
                    smb::wire::write_output_buffer_response(&mut body, &[]);
                    Ok(Step::Reply(status, Body::Bytes(body)))
                }
                Err(status) => Err(status),
            },
            Work::QueryInfo(work) => match result? {
                Reply::Information(file) => self.file_information(context, &work, &file),
                Reply::Volume(volume) if work.info_type == INFO_FILESYSTEM => {
                    self.volume_information(context, &work, &volume)
                }
                Reply::Name(name) => Ok(short_name_answer(&name, work.bytes_max)),
                Reply::Streams(streams) => Ok(stream_answer(&streams, work.bytes_max)),
                Reply::ExtendedAttributes(found) => ea_answer(&found, &work),
                Reply::Security(descriptor) => Ok(security_answer(&descriptor, work.bytes_max)),
                _ => Err(NtStatus::INTERNAL_ERROR),
            },
            Work::Ioctl(work) => self.ioctl_done(context, work, result),
            Work::BreakAcknowledgment { file_id } => {
                let Reply::Oplock(level) = result? else { return Err(NtStatus::INTERNAL_ERROR) };
                if let Some(open) = self.opens.get_mut(context.open) {
                    open.cache = CacheGrant::Oplock(level);
                }
                Ok(Step::ok(oplock_break_body(file_id, level)))
            }
            Work::LeaseAcknowledgment => {
                let Reply::Lease { key, state } = result? else {
                    return Err(NtStatus::INTERNAL_ERROR);
                };
                Ok(Step::ok(lease_break_body(key, state)))
            }
            Work::Delayed { status, .. } | Work::Refused(status) => Err(status),
            Work::HeldLogon(held) => {
                result?;
                self.judge_held_logon(context, *held, now)
            }
            Work::PipeRead { length } => {
                result?;
                self.read_pipe(context, length, now)
            }
        }
    }

    fn read_done(
        &mut self,
        context: &Context,
        minimum: u32,
        length: u32,
        offset: u64,
        answer: Reply,
    ) -> Result<Step, NtStatus> {
        let Reply::Read(data) = answer else { return Err(NtStatus::INTERNAL_ERROR) };
        let count = data.len() as u64;
        if length > 0 && data.is_empty() || count < u64::from(minimum) {
            return Err(NtStatus::END_OF_FILE);
        }
        self.counters.read_bytes += count;
        if let Some(open) = self.opens.get_mut(context.open) {
            open.read_bytes += count;
            open.position = offset + count;
        }
        if let Some(session) = self.sessions.get_mut(context.session) {
            session.read_bytes += count;
        }
        Ok(Step::Reply(NtStatus::SUCCESS, Body::Read(data)))
    }
}
