//! READ and WRITE (MS-SMB2 3.3.5.12, 3.3.5.13): the hot path. Payload goes from the message to the volume and back by reference.

use crate::directory::Directory;
use crate::dispatch::Element;
use crate::remote::RemoteWriteWork;
use crate::request::{Chain, Context, Step, Work};
use crate::server::Server;
use smb::wire::{
    CHANNEL_NONE, READ_FLAG_UNBUFFERED, ReadRequest, WRITE_FLAG_UNBUFFERED, WRITE_FLAG_WRITE_THROUGH,
    WriteRequest,
};
use sys::Payload;
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, ByteRange, Operation};
use volume::security::rights;

/// Highest byte offset of a file: offsets are signed on the wire.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl<B: Backend, D: Directory> Server<B, D> {
    pub(crate) fn handle_read(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let request = ReadRequest::parse(element.bytes())?;
        let length = request.length.get();
        let limit = self.config.limits.read_bytes;
        let key = self.find_open_for(context, chain, request.file_id, length as usize, limit)?;
        let memory = match request.channel.get() {
            CHANNEL_NONE => None,
            channel => Some(self.memory_to_write(context, channel, length, &request)?),
        };
        let open = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
        let Some((volume, name)) = open.volume_open() else {
            return self.read_pipe(context, length, now);
        };
        if open.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        if open.granted_access & (rights::READ_DATA | rights::EXECUTE) == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let offset = request.offset.get();
        if offset.checked_add(length.into()).is_none_or(|end| end > OFFSET_MAX) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.check_channel_sequence(context, key, false)?;
        context.bytes = length as usize;
        let minimum = request.minimum_count.get();
        let work = match memory {
            None => Work::Read { minimum, length, offset },
            Some(memory) => Work::ReadRemote { minimum, length, offset, memory: Box::new(memory) },
        };
        Ok(Step::Submit {
            volume,
            operation: Operation::Read {
                open: name,
                range: ByteRange { offset, len_bytes: length.into() },
                unbuffered: request.flags & READ_FLAG_UNBUFFERED != 0,
            },
            work,
        })
    }

    pub(crate) fn handle_write(
        &mut self,
        context: &mut Context,
        chain: &Chain,
        element: Element<'_>,
        now: Monotonic,
    ) -> Result<Step, NtStatus> {
        let request = WriteRequest::parse(element.bytes())?;
        let channel = request.channel.get();
        // By RDMA, the message carries nothing and RemainingBytes says how much there is.
        let length =
            if channel == CHANNEL_NONE { request.length.get() } else { request.remaining_bytes.get() };
        let limit = self.config.limits.write_bytes;
        let key = self.find_open_for(context, chain, request.file_id, length as usize, limit)?;
        if channel != CHANNEL_NONE && request.length.get() != 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let memory = match channel {
            CHANNEL_NONE => None,
            channel => Some(self.memory_to_read(context, channel, length, &request)?),
        };
        let range = request.data_range()?;
        self.check_channel_sequence(context, key, true)?;
        let open = self.opens.get(key).ok_or(NtStatus::FILE_CLOSED)?;
        let Some((volume, name)) = open.volume_open() else {
            return self.write_pipe(key, &element.bytes()[range], now);
        };
        if open.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        if open.granted_access & (rights::WRITE_DATA | rights::APPEND_DATA) == 0 {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let offset = request.offset.get();
        // All ones: at the end of the file, where only appending is granted.
        let appends = open.granted_access & rights::WRITE_DATA == 0 && offset == u64::MAX;
        if !appends && offset.checked_add(length.into()).is_none_or(|end| end > OFFSET_MAX) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let flags = request.flags.get();
        if let Some(memory) = memory {
            context.bytes = length as usize;
            return Ok(Step::Park(Work::WriteRemote(Box::new(RemoteWriteWork {
                memory,
                volume,
                open: name,
                offset,
                length,
                write_through: flags & WRITE_FLAG_WRITE_THROUGH != 0,
                unbuffered: flags & WRITE_FLAG_UNBUFFERED != 0,
                data: None,
            }))));
        }
        let data = element.whole.slice(element.start + range.start..element.start + range.end);
        context.bytes = length as usize;
        Ok(Step::Submit {
            volume,
            operation: Operation::Write {
                open: name,
                offset,
                data: Payload::from(data),
                write_through: flags & WRITE_FLAG_WRITE_THROUGH != 0,
                unbuffered: flags & WRITE_FLAG_UNBUFFERED != 0,
            },
            work: Work::Write { length },
        })
    }

    /// ChannelSequence of what changes something (MS-SMB2 3.3.5.2.10): requests of a channel that failed over before are not
    /// to overtake those of its successor.
    pub(crate) fn check_channel_sequence(
        &mut self,
        context: &mut Context,
        key: u64,
        modifies: bool,
    ) -> Result<(), NtStatus> {
        if self.dialect_of(context) < smb::wire::Dialect::Smb300 {
            return Ok(());
        }
        let replay = context.to.flags.contains(smb::wire::HeaderFlags::REPLAY_OPERATION);
        let open = self.opens.get_mut(key).ok_or(NtStatus::FILE_CLOSED)?;
        let ahead = context.channel_sequence.wrapping_sub(open.channel_sequence);
        if ahead == 0 {
            if replay && open.outstanding_before > 0 && modifies {
                return Err(NtStatus::FILE_NOT_AVAILABLE);
            }
        } else if ahead <= 0x7FFF {
            open.outstanding_before += open.outstanding;
            open.outstanding = 0;
            open.channel_sequence = context.channel_sequence;
            if replay && open.outstanding_before > 0 && modifies {
                return Err(NtStatus::FILE_NOT_AVAILABLE);
            }
        } else if modifies {
            return Err(NtStatus::FILE_NOT_AVAILABLE);
        } else {
            return Ok(());
        }
        open.outstanding += 1;
        context.counted = true;
        Ok(())
    }
}
