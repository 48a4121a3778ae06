//! Reading files that an administrator names: settings, passwords, keys, certificates.
//!
//! Promises: a pipe, a device, a directory or a file that is too long is refused, and none of them holds the reader up; only [`read_any`], for
//! command lines, waits for a pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// O_NONBLOCK of Linux' generic headers, which all architectures that Cenote is built for have: a pipe is opened without a writer.
const NONBLOCK: i32 = 0o4000;

/// Opens a regular file for reading.
///
/// # Errors
/// As of [`File::open`], or that it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Reads a regular file of text.
///
/// # Errors
/// As of [`read`], or that it is no UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, bytes_max)?);
    text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Reads a regular file.
///
/// # Errors
/// As of [`open`] and of reading, or that it has more than `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    bounded(open(path)?, bytes_max)
}

/// Reads any file, such as a pipe that a shell makes of `<(COMMAND)`.
///
/// # Errors
/// As of [`File::open`] and of reading, or that it has more than `bytes_max` bytes.
pub fn read_any(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    bounded(File::open(path)?, bytes_max)
}

fn bounded(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file.take(bytes_max + 1).read_to_end(&mut bytes)? as u64 > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {bytes_max} bytes"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_regular_files_of_bounded_length_are_read_and_a_pipe_holds_nobody_up() {
        let directory = tempfile::tempdir().unwrap();
        let (file, pipe) = (directory.path().join("file"), directory.path().join("pipe"));
        std::fs::write(&file, "text").unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read_text(&file, 4).unwrap(), "text");
        assert_eq!(read_text(&file, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        for other in [pipe.as_path(), directory.path(), Path::new("/dev/zero")] {
            assert!(
                read_text(other, 4).unwrap_err().to_string().contains("no regular file"),
                "{}",
                other.display()
            );
        }
    }
}
