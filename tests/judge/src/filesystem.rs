//! The file system: one directory, one file for each disk. Nothing of it is cached by the kernel.

use crate::disk::Request as DiskRequest;
use crate::served::Served;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// How long the kernel may remember names and sizes.
const REMEMBERED: Duration = Duration::ZERO;
/// Longest write in bytes that the kernel may send in one piece.
const WRITE_BYTES_MAX: u32 = 1 << 20;

pub struct Disks {
    pub disks: Vec<Arc<Served>>,
}

impl Disks {
    /// Inode numbers of disks follow the root's.
    fn inode(place: usize) -> INodeNo {
        INodeNo(INodeNo::ROOT.0 + 1 + place as u64)
    }

    fn disk(&self, inode: INodeNo) -> Option<&Arc<Served>> {
        self.disks.get(inode.0.checked_sub(INodeNo::ROOT.0 + 1)? as usize)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = if inode == INodeNo::ROOT {
            (FileType::Directory, 0o700, 0)
        } else {
            (FileType::RegularFile, 0o600, self.disk(inode)?.with_disk(|disk| disk.size_bytes()))
        };
        // SAFETY: these calls have no preconditions.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for Disks {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A kernel with a smaller limit returns it, and it is set then.
        if let Err(most) = config.set_max_write(WRITE_BYTES_MAX) {
            let _ = config.set_max_write(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let place = self.disks.iter().position(|disk| OsStr::new(&disk.name) == name && !disk.is_gone());
        match place.and_then(|place| self.attributes(Self::inode(place))) {
            Some(attributes) => reply.entry(&REMEMBERED, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&REMEMBERED, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.disk(inode) {
            Some(disk) if !disk.is_gone() => {
                let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
                reply.opened(FileHandle(0), flags);
            }
            _ => reply.error(Errno::ENODEV),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(disk) = self.disk(inode) else { return reply.error(Errno::ENODEV) };
        let request = DiskRequest::Read { offset, len_bytes: u64::from(size) };
        disk.submit(
            request,
            Box::new(move |result| match result {
                Ok(data) => reply.data(&data),
                Err(errno) => reply.error(Errno::from_i32(errno)),
            }),
        );
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(disk) = self.disk(inode) else { return reply.error(Errno::ENODEV) };
        let len_bytes = data.len() as u32;
        // RWF_DSYNC comes as the flag of an open file.
        let durable = flags.0 & libc::O_DSYNC != 0;
        let request = DiskRequest::Write { offset, data: data.to_vec(), durable };
        disk.submit(
            request,
            Box::new(move |result| match result {
                Ok(_) => reply.written(len_bytes),
                Err(errno) => reply.error(Errno::from_i32(errno)),
            }),
        );
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.submit_empty(inode, DiskRequest::Flush, reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        len_bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & libc::FALLOC_FL_PUNCH_HOLE == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        self.submit_empty(inode, DiskRequest::Discard { offset, len_bytes }, reply);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let disks = self.disks.iter().enumerate().filter(|(_, disk)| !disk.is_gone());
        let files = disks.map(|(place, disk)| (Self::inode(place), FileType::RegularFile, &*disk.name));
        let entries =
            [".", ".."].map(|name| (INodeNo::ROOT, FileType::Directory, name)).into_iter().chain(files);
        for (number, (inode, kind, name)) in entries.enumerate().skip(offset as usize) {
            if reply.add(inode, number as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

impl Disks {
    fn submit_empty(&self, inode: INodeNo, request: DiskRequest, reply: ReplyEmpty) {
        let Some(disk) = self.disk(inode) else { return reply.error(Errno::ENODEV) };
        disk.submit(
            request,
            Box::new(move |result| match result {
                Ok(_) => reply.ok(),
                Err(errno) => reply.error(Errno::from_i32(errno)),
            }),
        );
    }
}
