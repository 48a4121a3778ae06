//! Events of a run.

use records::{Answer, Request as StateRequest};
use space::message::{Request, Response};

pub(crate) enum Event {
    /// A request reaches a disk.
    Request {
        to: usize,
        from: usize,
        incarnations: (u64, u64),
        request: Request,
    },
    /// A disk's response reaches a node.
    Response {
        to: usize,
        from: usize,
        incarnations: (u64, u64),
        response: Response,
    },
    StateRequest {
        from: usize,
        incarnation: u64,
        number: u64,
        request: StateRequest,
    },
    StateAnswer {
        to: usize,
        incarnation: u64,
        number: u64,
        answer: Answer,
    },
    /// A server has read the record by which it judges others' epochs.
    RecordRead {
        node: usize,
        incarnation: u64,
        token: u64,
    },
    Timer {
        node: usize,
        incarnation: u64,
    },
    Poll {
        disk: usize,
    },
    /// The client's turn; with an operation, the timeout of that.
    Client {
        client: usize,
        operation: Option<u64>,
    },
    Heartbeat,
    Fault,
    Heal(Healing),
    Manage,
}

/// The end of one fault.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Healing {
    Restart(usize),
    Reconnect(usize, usize),
    /// Large messages get through again.
    Large,
    Disk(usize),
    State,
    Scrub(usize, u64),
    /// The right disks are back in place of older images.
    Images,
    All,
}
