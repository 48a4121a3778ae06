//! Raw requests about files: a test's fields go onto the wire as they are.

use crate::fixture::*;
use smb::wire::*;
use types::NtStatus;

/// FILE_DIRECTORY_FILE, FILE_DELETE_ON_CLOSE, FILE_OPEN_REPARSE_POINT (MS-SMB2 2.2.13).
pub const DIRECTORY: u32 = 0x0000_0001;
pub const DELETE_ON_CLOSE: u32 = 0x0000_1000;
pub const OPEN_REPARSE_POINT: u32 = 0x0020_0000;

/// Fields of a CREATE.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub access: u32,
    pub attributes: u32,
    pub disposition: u32,
    pub options: u32,
    pub contexts: &'a [u8],
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self { access: 0x0002_0089, attributes: 0, disposition: FILE_OPEN, options: 0, contexts: &[] }
    }
}

/// An open or a make of anything, with all rights.
pub const MAKE: Asked<'_> =
    Asked { access: 0x001F_01FF, attributes: 0, disposition: FILE_OPEN_IF, options: 0, contexts: &[] };
pub const MAKE_DIRECTORY: Asked<'_> = Asked { options: DIRECTORY, ..MAKE };

impl Client {
    pub fn open_as(&mut self, world: &mut World, name: &str, asked: Asked<'_>) -> Result<FileId, NtStatus> {
        let answer = self.call(world, Command::Create, |out| {
            let body = CreateRequestBody {
                impersonation_level: 2.into(),
                desired_access: asked.access.into(),
                file_attributes: asked.attributes.into(),
                share_access: 7.into(),
                create_disposition: asked.disposition.into(),
                create_options: asked.options.into(),
                ..Default::default()
            };
            write_create_request(out, body, &wide_from_str(name), asked.contexts);
        });
        match status(&answer) {
            NtStatus::SUCCESS => Ok(CreateResponse::parse(&answer).unwrap().file_id),
            status => Err(status),
        }
    }

    /// Makes it where it is missing, and closes it.
    pub fn make(&mut self, world: &mut World, name: &str, asked: Asked<'_>) {
        let file = self.open_as(world, name, asked).unwrap();
        self.close(world, file);
    }

    pub fn close(&mut self, world: &mut World, file: FileId) {
        let answer = self.call(world, Command::Close, Self::close_body(file));
        assert_eq!(status(&answer), NtStatus::SUCCESS);
    }

    pub fn set_info(&mut self, world: &mut World, file: FileId, class: u8, data: &[u8]) -> NtStatus {
        let answer = self.call(world, Command::SetInfo, |out| {
            let body = SetInfoRequestBody {
                info_type: INFO_FILE,
                file_info_class: class,
                file_id: file,
                ..Default::default()
            };
            write_set_info_request(out, body, data);
        });
        status(&answer)
    }

    /// FileRenameInformation or FileLinkInformation.
    pub fn rename(&mut self, world: &mut World, file: FileId, class: u8, to: RenameInformation) -> NtStatus {
        let mut data = Vec::new();
        to.write(&mut data);
        self.set_info(world, file, class, &data)
    }

    pub fn query_info(&mut self, world: &mut World, file: FileId, class: u8) -> Result<Vec<u8>, NtStatus> {
        let answer = self.call(world, Command::QueryInfo, |out| {
            let body = QueryInfoRequestBody {
                info_type: INFO_FILE,
                file_info_class: class,
                output_buffer_length: 4096.into(),
                file_id: file,
                ..Default::default()
            };
            write_query_info_request(out, body, &[]);
        });
        match status(&answer) {
            NtStatus::SUCCESS => Ok(OutputBufferResponse::parse(&answer).unwrap().data().unwrap().to_vec()),
            status => Err(status),
        }
    }

    /// Owner, group and DACL.
    pub fn security(&mut self, world: &mut World, file: FileId) -> Vec<u8> {
        let answer = self.call(world, Command::QueryInfo, |out| {
            let body = QueryInfoRequestBody {
                info_type: INFO_SECURITY,
                additional_information: 7.into(),
                output_buffer_length: 4096.into(),
                file_id: file,
                ..Default::default()
            };
            write_query_info_request(out, body, &[]);
        });
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        OutputBufferResponse::parse(&answer).unwrap().data().unwrap().to_vec()
    }

    pub fn set_security(&mut self, world: &mut World, file: FileId, parts: u32, data: &[u8]) -> NtStatus {
        let answer = self.call(world, Command::SetInfo, |out| {
            let body = SetInfoRequestBody {
                info_type: INFO_SECURITY,
                additional_information: parts.into(),
                file_id: file,
                ..Default::default()
            };
            write_set_info_request(out, body, data);
        });
        status(&answer)
    }

    pub fn fsctl(&mut self, world: &mut World, file: FileId, code: u32, input: &[u8]) -> (NtStatus, Vec<u8>) {
        let answer = self.call(world, Command::Ioctl, |out| {
            let body = IoctlRequestBody {
                control_code: code.into(),
                file_id: file,
                max_output_response: 4096.into(),
                flags: IOCTL_IS_FSCTL.into(),
                ..Default::default()
            };
            write_ioctl_request(out, body, input);
        });
        match status(&answer) {
            NtStatus::SUCCESS => {
                (NtStatus::SUCCESS, IoctlResponse::parse(&answer).unwrap().output().unwrap().to_vec())
            }
            status => (status, Vec::new()),
        }
    }

    /// The entries of a directory from its beginning: names and file identities.
    pub fn list(&mut self, world: &mut World, directory: FileId) -> Vec<(String, u64)> {
        let answer = self.call(world, Command::QueryDirectory, |out| {
            let body = QueryDirectoryRequestBody {
                file_information_class: class::ID_BOTH_DIRECTORY,
                flags: QUERY_DIRECTORY_RESTART_SCANS,
                file_id: directory,
                output_buffer_length: 65_536.into(),
                ..Default::default()
            };
            write_query_directory_request(out, body, &wide_from_str("*"));
        });
        assert_eq!(status(&answer), NtStatus::SUCCESS);
        let entries = OutputBufferResponse::parse(&answer).unwrap().data().unwrap().to_vec();
        let (mut found, mut at) = (Vec::new(), 0);
        loop {
            // FileIdBothDirectoryInformation (MS-FSCC 2.4.17).
            let entry = &entries[at..];
            let number = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap()) as usize;
            let units =
                entry[104..104 + number(60)].chunks(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
            let name = String::from_utf16(&units.collect::<Vec<u16>>()).unwrap();
            found.push((name, u64::from_le_bytes(entry[96..104].try_into().unwrap())));
            match number(0) {
                0 => return found,
                next => at += next,
            }
        }
    }
}

/// FileRenameInformation of a name from the share's root.
pub fn to(name: &str) -> RenameInformation {
    RenameInformation { flags: 0, root_directory: 0, name: wide_from_str(name) }
}
