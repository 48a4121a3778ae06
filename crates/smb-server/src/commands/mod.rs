//! The commands of SMB2, one file each: the command starts a request, and continues it after a wait.
//!
//! Commands do not know each other. Only this file knows all of them: [`start`] and [`resume`] dispatch
//! a request to its command, and [`Work`] is the sum of the commands' work on waiting requests.

mod change_notify;
mod close;
mod create;
mod echo;
mod flush;
mod ioctl;
mod lock;
mod logoff;
mod negotiate;
mod oplock_break;
mod query_directory;
mod query_info;
mod read;
mod session_setup;
mod set_info;
mod tree_connect;
mod tree_disconnect;
mod write;

pub(crate) use negotiate::answer_smb1;

use crate::directory::Directory;
use crate::exchange::{Body, ChainFile, Context, Element, Step};
use crate::state::State;
use smb::wire::Command;
use std::convert::Infallible;
use sys::Buf;
use types::{Monotonic, NtStatus};
use volume::backend::{Backend, Refusal, Reply};

/// Work of a request that waits.
pub(crate) enum Work {
    SessionSetup(session_setup::SessionSetupWork),
    TreeConnect(Box<tree_connect::TreeConnectWork>),
    Create(Box<create::CreateWork>),
    Close(close::CloseWork),
    Flush(flush::FlushWork),
    Read(read::ReadWork),
    Write(write::WriteWork),
    Lock(lock::LockWork),
    Ioctl(ioctl::IoctlWork),
    QueryDirectory(query_directory::QueryDirectoryWork),
    ChangeNotify(change_notify::ChangeNotifyWork),
    QueryInfo(query_info::QueryInfoWork),
    SetInfo(set_info::SetInfoWork),
    OplockBreak(oplock_break::OplockBreakWork),
    /// The request was refused while its volume worked on it, and is answered with this status when the
    /// volume has released it.
    Refused(NtStatus),
}

impl Work {
    /// Whether the request may wait for something else than storage, so that CANCEL has to find it.
    pub fn may_wait(&self) -> bool {
        !matches!(
            self,
            Self::Read(read::ReadWork::File(_) | read::ReadWork::Remote(..))
                | Self::Write(write::WriteWork::Submitted { .. })
        )
    }

    /// Whether CANCEL ends the request though no volume works on it.
    pub fn can_be_cancelled_here(&self) -> bool {
        match self {
            Self::Read(read::ReadWork::Pipe { .. }) => true,
            Self::Ioctl(work) => work.waits_for_pipe(),
            _ => false,
        }
    }

    /// Whether the client can find the result without an answer.
    pub fn is_replayable(&self) -> bool {
        matches!(self, Self::Create(work) if work.is_replayable())
    }

    /// Whether the request waits for its payload.
    pub fn waits_for_payload(&self) -> bool {
        matches!(self, Self::Write(write::WriteWork::Remote(_)))
    }

    /// Takes in the payload that the transport has fetched for a request which waits for it.
    pub fn take_payload(&mut self, data: Buf) {
        if let Self::Write(write::WriteWork::Remote(work)) = self {
            work.take_payload(data);
        }
    }
}

/// The step of a command that never waits.
fn at_once(step: Result<Step<Infallible>, NtStatus>) -> Result<Step<Work>, NtStatus> {
    step.map(|step| step.map(|never| match never {}))
}

/// Takes an answer without content from a volume or from another source that a request waited for.
fn expect_done(result: Result<Reply, NtStatus>) -> Result<(), NtStatus> {
    match result? {
        Reply::Done => Ok(()),
        _ => Err(NtStatus::INTERNAL_ERROR),
    }
}

/// Starts a request. `related` is the file that it means if it is related to one before it and names none.
#[inline]
pub(crate) fn start<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    related: ChainFile,
    element: Element<'_>,
    now: Monotonic,
) -> Result<Step<Work>, NtStatus> {
    Ok(match context.to.command {
        Command::Read => read::start(state, context, related, element)?.map(Work::Read),
        Command::Write => write::start(state, context, related, element, now)?.map(Work::Write),
        Command::Negotiate => return at_once(negotiate::start(state, context, element, now)),
        Command::SessionSetup => session_setup::start(state, context, element, now)?.map(Work::SessionSetup),
        Command::Logoff => return at_once(logoff::start(&mut state.sessions, context, element)),
        Command::TreeConnect => tree_connect::start(state, context, element)?.map(Work::TreeConnect),
        Command::TreeDisconnect => return at_once(tree_disconnect::start(state, context, element, now)),
        Command::Create => create::start(state, context, element, now)?.map(Work::Create),
        Command::Close => close::start(state, context, related, element)?.map(Work::Close),
        Command::Flush => flush::start(state, context, related, element)?.map(Work::Flush),
        Command::Lock => lock::start(state, context, related, element)?.map(Work::Lock),
        Command::Ioctl => ioctl::start(state, context, related, element, now)?.map(Work::Ioctl),
        Command::Echo => return at_once(echo::start(element)),
        Command::QueryDirectory => {
            query_directory::start(state, context, related, element)?.map(Work::QueryDirectory)
        }
        Command::ChangeNotify => {
            change_notify::start(state, context, related, element)?.map(Work::ChangeNotify)
        }
        Command::QueryInfo => query_info::start(state, context, related, element)?.map(Work::QueryInfo),
        Command::SetInfo => set_info::start(state, context, related, element)?.map(Work::SetInfo),
        Command::OplockBreak => oplock_break::start(state, context, related, element)?.map(Work::OplockBreak),
        // CANCEL has no answer, and is handled before.
        Command::Cancel => Step::Disconnect,
    })
}

/// Resumes a request after its answer came from the volume, or from another source that it waited for.
#[inline]
pub(crate) fn resume<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    work: Work,
    result: Result<Reply, Refusal>,
    now: Monotonic,
) -> Result<Step<Work>, NtStatus> {
    let (result, told) = match result {
        Ok(reply) => (Ok(reply), None),
        Err(Refusal { status, detail }) => (Err(status), detail.map(|detail| (status, detail))),
    };
    let step = resume_command(state, context, work, result, now);
    // The command has released its work for the request, and has added no details of its own to the
    // refusal.
    if let (Err(status), Some((refused, detail))) = (&step, told)
        && *status == refused
    {
        let body = Body::of_refusal(context.dialect(&state.connections), *detail)?;
        return Ok(Step::Reply(refused, body));
    }
    step
}

#[inline]
fn resume_command<B: Backend, D: Directory>(
    state: &mut State<B, D>,
    context: &mut Context,
    work: Work,
    result: Result<Reply, NtStatus>,
    now: Monotonic,
) -> Result<Step<Work>, NtStatus> {
    Ok(match work {
        Work::Read(work) => read::resume(state, context, work, result)?.map(Work::Read),
        Work::Write(work) => write::resume(state, context, work, result)?.map(Work::Write),
        Work::SessionSetup(work) => {
            session_setup::resume(state, context, work, result, now)?.map(Work::SessionSetup)
        }
        Work::TreeConnect(work) => {
            tree_connect::resume(state, context, &work, result)?.map(Work::TreeConnect)
        }
        Work::Create(work) => create::resume(state, context, &work, result, now)?.map(Work::Create),
        Work::Close(work) => close::resume(state, context, work, result)?.map(Work::Close),
        Work::Flush(_) => flush::resume(result)?.map(Work::Flush),
        Work::Lock(work) => lock::resume(work, result)?.map(Work::Lock),
        Work::Ioctl(work) => ioctl::resume(state, context, work, result)?.map(Work::Ioctl),
        Work::QueryDirectory(work) => {
            query_directory::resume(state, context, work, result)?.map(Work::QueryDirectory)
        }
        Work::ChangeNotify(work) => change_notify::resume(work, result)?.map(Work::ChangeNotify),
        Work::QueryInfo(work) => query_info::resume(state, context, &work, result)?.map(Work::QueryInfo),
        Work::SetInfo(_) => set_info::resume(result)?.map(Work::SetInfo),
        Work::OplockBreak(work) => oplock_break::resume(state, context, work, result)?.map(Work::OplockBreak),
        Work::Refused(status) => return Err(status),
    })
}
