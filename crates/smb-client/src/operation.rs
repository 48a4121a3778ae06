//! Requests as the connection sends them, and answers as it gives them back.

use crate::ClientError;
use crate::file::Tree;
use smb::wire::{
    BufferDescriptorV1, CHANNEL_NONE, CHANNEL_RDMA_TRANSFORM, CLOSE_FLAG_POSTQUERY_ATTRIB, CloseRequestBody,
    Command, CreateRequestBody, ErrorResponse, FileId, FlushRequestBody, Header, IOCTL_IS_FSCTL,
    IoctlRequestBody, IoctlResponse, OutputBufferResponse, Put, QueryDirectoryRequestBody,
    QueryInfoRequestBody, READ_RESPONSE_RDMA_TRANSFORM, ReadRequestBody, ReadResponse, SetInfoRequestBody,
    U16, U32, U64, WriteRequestBody, WriteResponse, view_at, write_create_request, write_ioctl_request,
    write_query_directory_request, write_query_info_request, write_read_request, write_set_info_request,
    write_tree_connect_request, write_write_request, write_write_request_with_info,
};
use sys::{Buf, Payload};
use types::NtStatus;

/// SECURITY_IMPERSONATION (MS-SMB2 2.2.13).
const IMPERSONATION: u32 = 2;

/// READ or WRITE as it was asked for, so that it can go in a message or by RDMA, on whichever channel.
#[derive(Debug, Clone)]
pub(crate) enum Transfer {
    Read { file_id: FileId, offset: u64, len: u32, flags: u8 },
    Write { file_id: FileId, offset: u64, data: Payload, flags: u32 },
}

impl Transfer {
    pub fn len(&self) -> usize {
        match self {
            Self::Read { len, .. } => *len as usize,
            Self::Write { data, .. } => data.len(),
        }
    }

    /// Writes the request's body; `channel` and `descriptors` say how its payload goes by RDMA, if it does.
    fn write_body(&self, body: &mut Vec<u8>, channel: u32, descriptors: &[BufferDescriptorV1]) {
        body.clear();
        let is_remote = channel != CHANNEL_NONE;
        match self {
            Self::Read { file_id, offset, len, flags } => write_read_request(
                body,
                ReadRequestBody {
                    padding: smb::wire::READ_RESPONSE_DATA_OFFSET as u8,
                    flags: *flags,
                    length: U32::new(*len),
                    offset: U64::new(*offset),
                    file_id: *file_id,
                    channel: U32::new(channel),
                    ..Default::default()
                },
                descriptors,
            ),
            Self::Write { file_id, offset, data, flags } => write_write_request(
                body,
                WriteRequestBody {
                    // By RDMA the message carries nothing (MS-SMB2 3.2.4.7).
                    length: U32::new(if is_remote { 0 } else { data.len() as u32 }),
                    remaining_bytes: U32::new(if is_remote { data.len() as u32 } else { 0 }),
                    offset: U64::new(*offset),
                    file_id: *file_id,
                    flags: U32::new(*flags),
                    channel: U32::new(channel),
                    ..Default::default()
                },
                descriptors,
            ),
        }
    }
}

impl Transfer {
    /// The body of a WRITE whose payload a transform describes.
    pub fn write_transformed_body(&self, body: &mut Vec<u8>, info: &[u8]) {
        let Self::Write { file_id, offset, data, flags } = self else { return };
        body.clear();
        write_write_request_with_info(
            body,
            WriteRequestBody {
                remaining_bytes: U32::new(data.len() as u32),
                offset: U64::new(*offset),
                file_id: *file_id,
                flags: U32::new(*flags),
                channel: U32::new(CHANNEL_RDMA_TRANSFORM),
                ..Default::default()
            },
            info,
        );
    }
}

/// One request: the connection adds header, credits, signature and encryption.
#[derive(Debug, Clone)]
pub struct Request {
    pub command: Command,
    pub tree_id: u32,
    /// From StructureSize to before the payload.
    pub body: Vec<u8>,
    /// Follows the body as it is.
    pub payload: Payload,
    /// Most bytes of data in the answer: credits are paid for the larger of both directions.
    pub answer_bytes: usize,
    /// The share demands encryption.
    pub must_encrypt: bool,
    /// The request is signed even if the session does not demand it.
    pub must_sign: bool,
    pub(crate) transfer: Option<Transfer>,
    /// Was sent before, on a channel that died (MS-SMB2 3.2.4.1.3).
    pub(crate) is_replay: bool,
    /// A CREATE that names itself, so that the server knows it again.
    pub(crate) is_recognisable: bool,
    /// Which of the client's sessions calls tree and file so.
    pub(crate) session: u32,
}

impl Request {
    /// A request without payload.
    pub fn new(command: Command, tree_id: u32, body: Vec<u8>) -> Self {
        Self {
            command,
            tree_id,
            body,
            payload: Payload::new(),
            answer_bytes: 0,
            must_encrypt: false,
            must_sign: false,
            transfer: None,
            is_replay: false,
            is_recognisable: false,
            session: 0,
        }
    }

    /// Addresses the request to `tree`, or to a file opened there: it is encrypted if the share demands that, and finds the share again
    /// after a reconnect.
    #[must_use]
    pub fn within(mut self, tree: Tree) -> Self {
        self.tree_id = tree.id;
        self.must_encrypt |= tree.must_encrypt;
        self.session = tree.session;
        self
    }

    /// Whether it may be asked a second time without the first answer: its effect is the same once or twice, or the server
    /// recognises it.
    pub(crate) fn can_repeat(&self) -> bool {
        match self.command {
            Command::Read
            | Command::Write
            | Command::Flush
            | Command::Echo
            | Command::QueryInfo
            | Command::SetInfo
            | Command::TreeConnect
            | Command::Close
            | Command::ChangeNotify => true,
            Command::Create => self.is_recognisable,
            _ => false,
        }
    }

    /// Whether a repeated request must say that the server may have seen it (MS-SMB2 3.3.5.2.10).
    pub(crate) fn changes(&self) -> bool {
        matches!(self.command, Command::Write | Command::SetInfo | Command::Create)
    }

    /// Returns the offset of the file's identifier in the body, in bytes.
    fn file_id_at(&self) -> Option<usize> {
        match self.command {
            Command::Close
            | Command::Flush
            | Command::Lock
            | Command::Ioctl
            | Command::QueryDirectory
            | Command::ChangeNotify => Some(8),
            Command::Read | Command::Write | Command::SetInfo => Some(16),
            Command::QueryInfo => Some(24),
            _ => None,
        }
    }

    /// The same request for a file and tree that have other names since a reconnect; false: one of them is no more.
    pub(crate) fn rename(
        &mut self,
        trees: impl Fn(u32) -> Option<u32>,
        files: impl Fn(FileId) -> Option<FileId>,
    ) -> bool {
        if self.tree_id != 0 {
            let Some(tree) = trees(self.tree_id) else { return false };
            self.tree_id = tree;
        }
        let Some(at) = self.file_id_at() else { return true };
        let Some(bytes) = self.body.get_mut(at..at + size_of::<FileId>()) else { return false };
        let Ok(old) = view_at::<FileId>(bytes, 0).copied() else { return false };
        if old == FileId::RELATED {
            return true;
        }
        let Some(renamed) = files(old) else { return false };
        let mut name = Vec::with_capacity(size_of::<FileId>());
        name.put(&renamed);
        bytes.copy_from_slice(&name);
        if let Some(Transfer::Read { file_id, .. } | Transfer::Write { file_id, .. }) = &mut self.transfer {
            *file_id = renamed;
        }
        true
    }

    /// Bytes that credits are paid for (MS-SMB2 3.1.5.2), whichever way they go.
    pub(crate) fn charged_bytes(&self) -> usize {
        let transferred = self.transfer.as_ref().map_or(0, Transfer::len);
        self.payload.len().max(self.answer_bytes).max(transferred)
    }

    fn transfer(command: Command, tree_id: u32, transfer: Transfer) -> Self {
        let mut request = Self::new(command, tree_id, Vec::with_capacity(80));
        request.transfer = Some(transfer);
        request.send_inline();
        request
    }

    /// Has the payload go in messages, also if it went by RDMA before: to ask again over another
    /// connection.
    pub fn send_inline(&mut self) {
        let Some(transfer) = &self.transfer else { return };
        transfer.write_body(&mut self.body, CHANNEL_NONE, &[]);
        match transfer {
            Transfer::Read { len, .. } => self.answer_bytes = *len as usize,
            Transfer::Write { data, .. } => self.payload = data.clone(),
        }
    }

    /// Makes the payload go by RDMA, to or from the places that `descriptors` name.
    pub(crate) fn send_remote(&mut self, channel: u32, descriptors: &[BufferDescriptorV1]) {
        let Some(transfer) = &self.transfer else { return };
        transfer.write_body(&mut self.body, channel, descriptors);
        self.answer_bytes = 0;
        self.payload = Payload::new();
    }

    /// `path` is `\\server\share`.
    pub fn tree_connect(path: &str) -> Self {
        let mut body = Vec::new();
        write_tree_connect_request(&mut body, 0, &path.encode_utf16().collect::<Vec<_>>());
        // MS-SMB2 3.2.4.2.4: the first request to a tree proves who asks.
        Self { must_sign: true, ..Self::new(Command::TreeConnect, 0, body) }
    }

    pub fn tree_disconnect(tree_id: u32) -> Self {
        Self::new(Command::TreeDisconnect, tree_id, vec![4, 0, 0, 0])
    }

    pub fn logoff() -> Self {
        Self::new(Command::Logoff, 0, vec![4, 0, 0, 0])
    }

    pub fn echo() -> Self {
        Self::new(Command::Echo, 0, vec![4, 0, 0, 0])
    }

    /// `name` is relative to the share, with backslashes; `contexts` are encoded create contexts.
    pub fn create(tree_id: u32, name: &str, mut body: CreateRequestBody, contexts: &[u8]) -> Self {
        body.impersonation_level = U32::new(IMPERSONATION);
        let mut bytes = Vec::new();
        write_create_request(&mut bytes, body, &name.encode_utf16().collect::<Vec<_>>(), contexts);
        Self::new(Command::Create, tree_id, bytes)
    }

    pub fn close(tree_id: u32, file_id: FileId) -> Self {
        let mut body = Vec::new();
        body.put(&CloseRequestBody {
            flags: U16::new(CLOSE_FLAG_POSTQUERY_ATTRIB),
            file_id,
            ..Default::default()
        });
        Self::new(Command::Close, tree_id, body)
    }

    pub fn flush(tree_id: u32, file_id: FileId) -> Self {
        let mut body = Vec::new();
        body.put(&FlushRequestBody { file_id, ..Default::default() });
        Self::new(Command::Flush, tree_id, body)
    }

    pub fn read(tree_id: u32, file_id: FileId, offset: u64, len: u32) -> Self {
        Self::read_with(tree_id, file_id, offset, len, 0)
    }

    /// `flags` as in MS-SMB2 2.2.19 ([`smb::wire::READ_FLAG_UNBUFFERED`], from 3.0.2 on).
    pub fn read_with(tree_id: u32, file_id: FileId, offset: u64, len: u32, flags: u8) -> Self {
        Self::transfer(Command::Read, tree_id, Transfer::Read { file_id, offset, len, flags })
    }

    /// `flags` as in MS-SMB2 2.2.21 ([`smb::wire::WRITE_FLAG_WRITE_THROUGH`]).
    pub fn write(tree_id: u32, file_id: FileId, offset: u64, data: Payload, flags: u32) -> Self {
        Self::transfer(Command::Write, tree_id, Transfer::Write { file_id, offset, data, flags })
    }

    /// `flags` as in MS-SMB2 2.2.33.
    pub fn query_directory(
        tree_id: u32,
        file_id: FileId,
        class: u8,
        pattern: &str,
        flags: u8,
        answer_bytes: u32,
    ) -> Self {
        let mut body = Vec::new();
        write_query_directory_request(
            &mut body,
            QueryDirectoryRequestBody {
                file_information_class: class,
                flags,
                file_id,
                output_buffer_length: U32::new(answer_bytes),
                ..Default::default()
            },
            &pattern.encode_utf16().collect::<Vec<_>>(),
        );
        Self { answer_bytes: answer_bytes as usize, ..Self::new(Command::QueryDirectory, tree_id, body) }
    }

    /// `info_type` and `class` as in MS-SMB2 2.2.37; `additional` names the parts of a security descriptor.
    pub fn query_info(
        tree_id: u32,
        file_id: FileId,
        info_type: u8,
        class: u8,
        additional: u32,
        answer_bytes: u32,
    ) -> Self {
        let mut body = Vec::new();
        write_query_info_request(
            &mut body,
            QueryInfoRequestBody {
                info_type,
                file_info_class: class,
                output_buffer_length: U32::new(answer_bytes),
                additional_information: U32::new(additional),
                file_id,
                ..Default::default()
            },
            &[],
        );
        Self { answer_bytes: answer_bytes as usize, ..Self::new(Command::QueryInfo, tree_id, body) }
    }

    /// As [`Self::query_info`]; `buffer` is the new information.
    pub fn set_info(
        tree_id: u32,
        file_id: FileId,
        info_type: u8,
        class: u8,
        additional: u32,
        buffer: &[u8],
    ) -> Self {
        let mut body = Vec::new();
        write_set_info_request(
            &mut body,
            SetInfoRequestBody {
                info_type,
                file_info_class: class,
                additional_information: U32::new(additional),
                file_id,
                ..Default::default()
            },
            buffer,
        );
        Self { answer_bytes: buffer.len(), ..Self::new(Command::SetInfo, tree_id, body) }
    }

    pub fn fsctl(tree_id: u32, file_id: FileId, code: u32, input: &[u8], answer_bytes: u32) -> Self {
        let mut body = Vec::new();
        write_ioctl_request(
            &mut body,
            IoctlRequestBody {
                control_code: U32::new(code),
                file_id,
                max_output_response: U32::new(answer_bytes),
                flags: U32::new(IOCTL_IS_FSCTL),
                ..Default::default()
            },
            input,
        );
        let most = input.len().max(answer_bytes as usize);
        Self { answer_bytes: most, ..Self::new(Command::Ioctl, tree_id, body) }
    }
}

/// The server's answer to one request.
#[derive(Debug, Clone)]
pub struct Reply {
    command: Command,
    status: NtStatus,
    tree_id: u32,
    message: Buf,
    /// Bytes that the server placed by RDMA, in a buffer for all that was asked for.
    placed: Option<Buf>,
    /// The request, if the server did not do it only because of another channel.
    refused: Option<Box<Request>>,
    /// Which of the client's sessions it came in; `None`: the present one.
    session: Option<u32>,
}

impl Reply {
    pub(crate) fn new(command: Command, status: NtStatus, tree_id: u32, message: Buf) -> Self {
        Self { command, status, tree_id, message, placed: None, refused: None, session: None }
    }

    pub(crate) fn set_refused(&mut self, request: Option<Request>) {
        self.refused = request.map(Box::new);
    }

    pub(crate) fn refused_mut(&mut self) -> Option<&mut Request> {
        self.refused.as_deref_mut()
    }

    pub(crate) fn take_refused(&mut self) -> Option<Request> {
        self.refused.take().map(|request| *request)
    }

    /// Which of the client's sessions it came in, as said first.
    pub(crate) fn set_session(&mut self, session: u32) {
        self.session.get_or_insert(session);
    }

    pub(crate) fn session(&self) -> Option<u32> {
        self.session
    }

    /// Data of a READ that came by RDMA.
    pub(crate) fn attach(&mut self, placed: Option<Buf>) {
        self.placed = placed;
    }

    /// Bytes that a READ's answer says went by RDMA.
    pub(crate) fn placed_bytes(&self) -> usize {
        if self.status != NtStatus::SUCCESS || self.placed.is_none() {
            return 0;
        }
        ReadResponse::parse(&self.message).map_or(0, |response| response.data_remaining.get() as usize)
    }

    /// An answer that no server gave.
    pub(crate) fn local(command: Command, status: NtStatus) -> Self {
        Self {
            command,
            status,
            tree_id: 0,
            message: Buf::empty(),
            placed: None,
            refused: None,
            session: None,
        }
    }

    pub fn command(&self) -> Command {
        self.command
    }

    pub fn status(&self) -> NtStatus {
        self.status
    }

    /// The tree of the answer: of TREE_CONNECT the one that was connected.
    pub fn tree_id(&self) -> u32 {
        self.tree_id
    }

    /// The whole answer, from its header on, for the views of [`smb::wire`].
    pub fn message(&self) -> &Buf {
        &self.message
    }

    /// Parses the header of the answer.
    ///
    /// # Errors
    /// [`ClientError::Wire`] if no server answered.
    pub fn header(&self) -> Result<&Header, ClientError> {
        Ok(Header::parse(&self.message)?)
    }

    /// Returns the answer itself if it is a success.
    ///
    /// # Errors
    /// [`ClientError::Status`].
    pub fn success(&self) -> Result<&Self, ClientError> {
        self.success_or(&[])
    }

    /// Does as [`Self::success`], and takes the given statuses as success too.
    ///
    /// # Errors
    /// [`ClientError::Status`].
    pub fn success_or(&self, fine: &[NtStatus]) -> Result<&Self, ClientError> {
        if self.status == NtStatus::SUCCESS || fine.contains(&self.status) {
            Ok(self)
        } else {
            Err(ClientError::Status { command: self.command, status: self.status })
        }
    }

    /// The data of a READ, without a copy. By SMB Direct it may be a view of a buffer in which several
    /// short answers were received together; that is kept as long as any of them ([`Buf::retained_bytes`]).
    /// Callers that keep many of them copy them.
    ///
    /// # Errors
    /// [`ClientError::Status`] (STATUS_END_OF_FILE behind the end), [`ClientError::Wire`].
    pub fn read_data(&self) -> Result<Buf, ClientError> {
        self.success_or(&[NtStatus::BUFFER_OVERFLOW])?;
        let response = ReadResponse::parse(&self.message)?;
        let len = response.data()?.len();
        // If the payload came by RDMA the message may hold its transform, which was checked when the payload was.
        let is_transformed = response.flags.get() & READ_RESPONSE_RDMA_TRANSFORM != 0;
        if let Some(placed) = &self.placed
            && (len == 0 || is_transformed)
        {
            let count = response.data_remaining.get() as usize;
            if count > placed.len() {
                return Err(ClientError::Protocol("more data by RDMA than was asked for"));
            }
            return Ok(placed.slice(..count));
        }
        let at = if len == 0 { 0 } else { usize::from(response.data_offset) };
        Ok(self.message.slice(at..at + len))
    }

    /// Bytes that a WRITE wrote.
    ///
    /// # Errors
    /// [`ClientError::Status`], [`ClientError::Wire`].
    pub fn written_bytes(&self) -> Result<u32, ClientError> {
        self.success()?;
        Ok(WriteResponse::parse(&self.message)?.count.get())
    }

    /// The buffer of a QUERY_INFO, QUERY_DIRECTORY or CHANGE_NOTIFY.
    ///
    /// # Errors
    /// [`ClientError::Status`], [`ClientError::Wire`].
    pub fn output(&self) -> Result<&[u8], ClientError> {
        self.success_or(&[NtStatus::BUFFER_OVERFLOW])?;
        Ok(OutputBufferResponse::parse(&self.message)?.data()?)
    }

    /// Details of an error beside its status (MS-SMB2 2.2.2); nothing, as a rule.
    ///
    /// # Errors
    /// [`ClientError::Wire`] if the answer is no error response.
    pub fn error_data(&self) -> Result<&[u8], ClientError> {
        Ok(ErrorResponse::parse(&self.message)?.data()?)
    }

    /// The output of an FSCTL.
    ///
    /// # Errors
    /// [`ClientError::Status`], [`ClientError::Wire`].
    pub fn fsctl_output(&self) -> Result<&[u8], ClientError> {
        self.success_or(&[NtStatus::BUFFER_OVERFLOW])?;
        Ok(IoctlResponse::parse(&self.message)?.output()?)
    }
}
