//! Certificates in PEM files of an administrator's choice.
//!
//! Promises: a file is read whole or refused, and never more than [`FILE_BYTES_MAX`] of it. A file in
//! the configuration has to be a regular one, so that a pipe blocks no thread of the daemon; one on a
//! command line may be a pipe.

use crate::regular;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of a file with certificates, or with a key.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Files in which Linux distributions keep the trusted authorities.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Finds the certificates in a file's text.
///
/// # Errors
/// Why one of them cannot be read, or that there is none.
pub(crate) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("no certificate is in it".into()) } else { Ok(found) }
}

/// Authorities that may vouch for a server's name.
pub(crate) struct Authorities {
    pub certificates: Vec<CertificateDer<'static>>,
    file: PathBuf,
}

impl Authorities {
    /// Reads the authorities from the configuration's file; `None`: the system's.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn configured(file: Option<&Path>) -> Result<Self, String> {
        Self::read(file, regular::read)
    }

    /// Reads the authorities from a file on a command line; `None`: the system's.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn given(file: Option<&Path>) -> Result<Self, String> {
        Self::read(file, regular::read_any).map_err(|why| format!("{why}; give another file with --ca-file"))
    }

    fn read(file: Option<&Path>, read: fn(&Path, u64) -> io::Result<Vec<u8>>) -> Result<Self, String> {
        let file = file.map_or_else(|| PathBuf::from(SYSTEM_AUTHORITIES), Path::to_owned);
        let mut authorities = Self { certificates: Vec::new(), file };
        let text = read(&authorities.file, FILE_BYTES_MAX)
            .map_err(|error| authorities.unusable(&error.to_string()))?;
        authorities.certificates = certificates(&text).map_err(|why| authorities.unusable(&why))?;
        Ok(authorities)
    }

    /// Says why they cannot be used.
    pub fn unusable(&self, why: &str) -> String {
        format!("the authorities' certificates {} cannot be used: {why}", self.file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_configurations_authorities_are_in_a_regular_file_and_a_command_lines_may_come_by_a_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let (file, pipe) = (directory.path().join("ca.pem"), directory.path().join("pipe"));
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = rcgen::CertificateParams::default().self_signed(&key).unwrap();
        let pem = authority.pem().repeat(2);
        std::fs::write(&file, &pem).unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for found in [Authorities::configured(Some(&file)), Authorities::given(Some(&file))] {
            assert_eq!(found.unwrap().certificates, vec![authority.der().clone(); 2]);
        }
        let why = Authorities::configured(Some(&pipe)).err().unwrap();
        assert!(why.contains("no regular file") && !why.contains("--ca-file"), "{why}");
        let writer = {
            let pipe = pipe.clone();
            std::thread::spawn(move || std::fs::write(pipe, pem))
        };
        assert_eq!(Authorities::given(Some(&pipe)).unwrap().certificates.len(), 2);
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn a_file_without_an_end_or_a_certificate_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("none.pem");
        std::fs::write(&file, "text").unwrap();
        let why = Authorities::given(Some(&file)).err().unwrap();
        assert!(why.contains("no certificate is in it; give another file with --ca-file"), "{why}");
        let why = Authorities::given(Some(Path::new("/dev/zero"))).err().unwrap();
        assert!(why.contains("more than 4194304 bytes"), "{why}");
    }
}
