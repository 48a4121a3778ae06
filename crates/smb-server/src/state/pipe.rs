//! The end of a named pipe that an open is of.

use super::budget::Charge;
use super::keys::RequestKey;
use smb::rpc::RpcChange;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// An open end of a pipe.
pub(crate) struct Pipe {
    /// `None` while it is being worked on.
    pub end: Option<smb::rpc::Pipe>,
    /// The memory that it keeps.
    pub charge: Charge,
    /// READs that wait for something to read, oldest first.
    readers: VecDeque<RequestKey>,
}

impl Pipe {
    pub fn new(end: smb::rpc::Pipe) -> Self {
        Self { end: Some(end), charge: Charge::none(), readers: VecDeque::new() }
    }

    /// Bytes that wait to be read.
    pub fn waiting_bytes(&self) -> u32 {
        self.end.as_ref().map_or(0, smb::rpc::Pipe::waiting_bytes) as u32
    }

    /// A READ waits for something to read.
    pub fn wait(&mut self, reader: RequestKey) {
        self.readers.push_back(reader);
    }

    /// Returns the READ that may continue; `None` if there is no data or no READ.
    pub fn next_reader(&mut self) -> Option<RequestKey> {
        if self.waiting_bytes() == 0 { None } else { self.readers.pop_front() }
    }

    /// Removes and returns all waiting READs, for the close of the pipe.
    pub fn take_readers(&mut self) -> VecDeque<RequestKey> {
        std::mem::take(&mut self.readers)
    }
}

/// A change that an administrator requests through a pipe. The server's owner performs it, and reports
/// the outcome by [`crate::Server::answer_pipe`].
#[derive(Debug)]
pub struct PipeChange {
    /// The open of the pipe, as in [`crate::OpenInfo::id`].
    pub pipe: u64,
    /// Name of the account whose session has the pipe.
    pub user: String,
    /// The client's address; `None`: its connection is lost.
    pub peer: Option<SocketAddr>,
    /// Change that the client asked for by RPC.
    pub change: RpcChange,
}
