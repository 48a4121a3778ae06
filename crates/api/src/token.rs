//! The bearer token: a reader of its file may administer the server.
//!
//! Owns the token file, of mode 0600. Promises: a token has 256 random bits and is compared in constant time. Never logs it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use records::replacing::replace_private;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zeroize::Zeroizing;

/// The secret itself.
pub struct Token(Zeroizing<String>);

impl Token {
    /// Reads the token file, or makes one if there is none.
    ///
    /// # Errors
    /// Errors of the file; `PermissionDenied` if others can read it; `InvalidData` if it holds no token.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        match Self::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut_slice()).map_err(io::Error::other)?;
        let token: Zeroizing<String> =
            Zeroizing::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        let line = Zeroizing::new(format!("{}\n", token.as_str()));
        replace_private(path, line.as_bytes())?;
        Ok(Self(token))
    }

    /// # Errors
    /// As [`Token::open_or_create`], `NotFound` too.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "token file has mode {mode:03o}, so others can read it: chmod 600 {}",
                    path.display()
                ),
            ));
        }
        let text = Zeroizing::new(std::fs::read_to_string(path)?);
        let token = text.trim();
        if token.len() < 32 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "token file holds no token of 32 or more characters; delete it, and a new one is made at the next start",
            ));
        }
        Ok(Self(Zeroizing::new(token.to_owned())))
    }

    /// Returns the token's text for the header, behind `Bearer `.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `given`: the value of an Authorization header.
    pub fn admits(&self, given: &[u8]) -> bool {
        given
            .strip_prefix(b"Bearer ")
            .is_some_and(|given| verify_slices_are_equal(given, self.0.as_bytes()).is_ok())
    }
}
